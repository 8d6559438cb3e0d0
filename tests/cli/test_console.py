from __future__ import annotations

import json

import click
import pytest

from cujit.cli.console import print_error, print_json, print_table, progress, settings, shown_time
from cujit.values import NamedTuple


def test_json_is_one_line_and_valid_with_any_float(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({1: [1.5, float("nan"), (float("-inf"),)], "c": 1j})
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert json.loads(out) == {"1": [1.5, "nan", ["-inf"]], "c": "1j"}


def test_table_keeps_long_names_and_brackets_whole(capsys: pytest.CaptureFixture[str]) -> None:
    name = "k<" + "a" * 100 + ">[bold]"
    print_table(("name", "n"), [(name, "1")], right=("n",))
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith(name)
    assert all(line == line.rstrip() for line in lines)


def test_progress_is_silent_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("working") as tick:
        tick(1, 2, "sm_90")
    assert capsys.readouterr() == ("", "")


def test_message_keeps_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    print_error("a\n  b\n  hint: c")
    assert capsys.readouterr().err == "error: a\n  b\n  hint: c\n"


@pytest.mark.parametrize(
    ("seconds", "text"), [(12.34, "12.3 s"), (0.0123, "12.3 ms"), (1.5e-6, "1.5 µs"), (2e-8, "20 ns"), (0.0, "0 ns")]
)
def test_time_has_three_digits_and_a_unit(seconds: float, text: str) -> None:
    assert shown_time(seconds) == text


class _Sizes(NamedTuple):
    width: int
    height: int = 2


def test_settings_reach_a_command_as_one_value() -> None:
    seen = []

    @click.command()
    @click.option("--depth", type=int, default=3)
    @settings("sizes", _Sizes, click.option("--width", type=int, default=1, help="Width."))
    def command(**given: object) -> None:
        seen.append(given)

    command.main(["--width", "5"], standalone_mode=False)
    assert seen == [{"depth": 3, "sizes": _Sizes(5, 2)}]
    assert [option.name for option in command.params] == ["depth", "width"]
