"""``-q``, ``-v``, ``--color``, narrow terminals, and what the help says of the environment."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from cujit.cli import main
from cujit.cli.app import COMMANDS
from cujit.cli.console import print_table
from cujit.cli.environment import VARIABLES

Cujit = Callable[..., Result]
WARNS = 'extern "C" __global__ void k(int* x) { int unused; *x = 1; }'
_ROOT = Path(__file__).parents[2]


@pytest.fixture
def source(tmp_path: Path) -> str:
    (tmp_path / "k.cu").write_text(WARNS)
    return "k.cu"


@pytest.mark.parametrize("place", ["before", "behind"])
def test_quiet_prints_only_results_and_errors(cujit: Cujit, source: str, place: str) -> None:
    said = ("-q", "compile", source) if place == "before" else ("compile", source, "-q")
    assert "never referenced" in cujit("compile", source).stderr
    quiet = cujit(*said)
    assert (quiet.exit_code, quiet.stderr) == (0, "")
    assert quiet.stdout.startswith("k.ptx: ptx for ")
    assert cujit(*said, "-O", "no_such").stderr.startswith("error: unknown option")


def test_verbose_prints_compiles_and_cache_hits(cujit: Cujit, source: str) -> None:
    first = cujit("compile", source, "-v", "-D", "VERBOSE")
    again = cujit("-v", "compile", source, "-D", "VERBOSE")
    assert "cujit.compiler: compile k.cu for compute_75 by NVRTC: " in first.stderr + again.stderr
    assert "cujit.cache: compile k.cu for compute_75: memory, " in again.stderr
    assert "cujit." not in cujit("compile", source, "-D", "VERBOSE").stderr


_RED = "\x1b[31m"


@pytest.mark.parametrize(
    ("said", "environment", "is_red"),
    [
        ((), {}, False),
        (("--color", "always"), {}, True),
        (("--color", "never"), {}, False),
        (("--color", "always"), {"NO_COLOR": "1"}, True),
        (("--color", "auto"), {}, False),
    ],
)
def test_color_option_is_respected(said: tuple[str, ...], environment: dict[str, str], is_red: bool) -> None:
    for arguments in ((*said, "compile", "-O", "fast", __file__), ("compile", "-O", "fast", __file__, *said)):
        done = CliRunner().invoke(main, arguments, env=environment)
        assert (done.exit_code, _RED in done.stderr) == (1, is_red)


@pytest.mark.parametrize(("no_color", "is_red"), [("", True), ("1", False)])
def test_no_color_is_respected_on_a_terminal(no_color: str, is_red: bool) -> None:
    done = CliRunner().invoke(main, ["compile", "-O", "fast", __file__], env={"NO_COLOR": no_color}, color=True)
    assert (_RED in done.stderr) is is_red


def test_table_in_colours_is_one_in_a_pipe_too() -> None:
    said = ["doctor", "--color", "always"]
    assert "\x1b[32m" in CliRunner().invoke(main, said).stdout
    assert "\x1b[" not in CliRunner().invoke(main, ["doctor"]).stdout


_ROWS = [("axpy<float>", "compute_90a", "needs what an older driver lacks"), ("k", "sm_90", "")]


def _table(width: int, rows: list[tuple[str, str, str]]) -> list[str]:
    @click.command()
    def show() -> None:
        click.get_current_context().color = True  # as on a terminal, which has a width
        print_table(("kernel", "arch", "about"), rows)

    text = click.unstyle(CliRunner().invoke(show, env={"COLUMNS": str(width)}).stdout)
    return [line.rstrip() for line in text.splitlines()]


@pytest.mark.parametrize("width", [34, 40, 60, 80, 160])
def test_table_does_not_split_words(width: int) -> None:
    lines = _table(width, _ROWS)
    assert max(map(len, lines)) <= width
    words = " ".join(lines).split()
    assert {word for row in _ROWS for cell in row for word in cell.split()} <= set(words)
    assert lines[0].split() == ["kernel", "arch", "about"]


def test_narrow_table_prints_each_row_on_several_lines() -> None:
    assert _table(30, _ROWS) == [
        "kernel  axpy<float>",
        "arch    compute_90a",
        "about   needs what an older",
        "        driver lacks",
        "",
        "kernel  k",
        "arch    sm_90",
    ]


def test_help_names_each_variable() -> None:
    text = CliRunner().invoke(main, ["--help"]).output
    for one in VARIABLES:
        assert re.search(rf"^ +{one.name} ", text, re.MULTILINE)
    assert "..." not in text.partition("Options:")[2]


def test_every_command_accepts_the_common_options() -> None:
    for verb in (*COMMANDS, ("cache", "ls"), ("pack", "build")):
        arguments = [verb] if isinstance(verb, str) else list(verb)
        text = CliRunner().invoke(main, [*arguments, "--help"]).output
        assert all(option in text for option in ("-q, --quiet", "-v, --verbose", "--color")), verb


def test_extra_is_installed_by_the_same_spelling_in_every_shell() -> None:
    done = subprocess.run(
        ["git", "grep", "-hoE", r"pip install [^`|#]*cujit\[", "--", "src", "docs", "README.md", "examples"],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert {line for line in done.stdout.splitlines() if not line.endswith(" 'cujit[")} == set()
