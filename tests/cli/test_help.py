"""Every help text, of every command: what it begins with, how it states defaults, and which words it leaves out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import cujit.program
from cujit import cli
from cujit.arch import Arch
from cujit.cli.app import COMMANDS, TASKS, main, overview
from cujit.cli.environment import VARIABLES
from cujit.cli.exit_codes import ExitCode
from cujit.cli.help import RENAMED_OPTIONS, options_by_group, with_new_names

_AVOIDED = re.compile(
    r"\b(?:verbs?|un?said|if nothing|without it|or else|whoever|whose|shall|by hand|anew|likewise|apart|tells?|told|"
    r"machine code|multiprocessors?|foreign|houses?|floors?|roads?|colours?|optimis\w+)\b",
    re.IGNORECASE,
)
"""Private words, archaisms, British spelling, and other ways to write "Default: X."."""

_IMPERATIVE = re.compile(r"(?!The |An? |What |Which |How )[A-Z][a-z]*(?:[^sdg]|ss|[^e]d|[^n]g),? ")
"""How a sentence begins that says what a command does: not by an article, "Prints", "Printed" or "Printing"."""


def _all_commands(group: click.Group = main, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group, info_name="cujit")
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command
        yield " ".join((*path, name)), command
        if isinstance(command, click.Group):
            yield from _all_commands(command, (*path, name))


_ALL = dict(_all_commands())


def _options(command: click.Command) -> list[click.Option]:
    return [one for one in command.get_params(click.Context(command)) if isinstance(one, click.Option)]


def test_overview_fits_on_a_screen_and_lists_each_command_once() -> None:
    result = CliRunner().invoke(main, [])
    assert (result.exit_code, result.output) == (ExitCode.USAGE, f"{overview()}\n")
    lines = result.output.splitlines()
    assert len(lines) <= 15
    assert max(map(len, lines)) <= 80
    listed = [
        name for names in re.findall(r"^  [^:]+: +(.+)$", result.output, re.MULTILINE) for name in names.split(", ")
    ]
    assert listed == list(COMMANDS)


def test_help_lists_the_commands_by_task() -> None:
    text = CliRunner().invoke(main, ["--help"]).output
    assert re.findall(r"^  (\S.*):$", text.partition("\nOptions:")[0].partition("\nGeneral")[0], re.MULTILINE) == [
        *TASKS
    ]
    assert re.findall(r"^    (\w+)  ", text.partition("\nGeneral options:")[0], re.MULTILINE) == list(COMMANDS)


@pytest.mark.parametrize("name", _ALL)
def test_summary_is_one_short_sentence_with_a_verb(name: str) -> None:
    summary = _ALL[name].get_short_help_str(limit=1000)
    assert len(summary) <= 60
    assert _IMPERATIVE.match(summary)
    assert summary.endswith(".")
    assert summary == (_ALL[name].help or "").partition("\n")[0]  # and nothing of it is cut off


@pytest.mark.parametrize("name", _ALL)
def test_help_uses_plain_words_and_whole_sentences(name: str) -> None:
    command = _ALL[name]
    texts = [command.help or "", *(option.help or "" for option in _options(command))]
    for text in texts:
        assert not _AVOIDED.search(text), text
        assert text[:1].isupper() or text.startswith(("cujit ", "--", "python:")), text
        for sentence in re.split(r"(?<=[.!?]) +", text.replace("\n", " ")):
            assert len(sentence.split()) <= 25, sentence
    for option in _options(command):
        assert (option.help or "").endswith((".", "FILE")), option.help
        assert ";" not in re.sub(r"[^;]*; (?:see|-)", "", option.help or ""), option.help


@pytest.mark.parametrize("name", _ALL)
def test_default_is_stated_in_one_form_and_is_true(name: str) -> None:
    for option in _options(_ALL[name]):
        stated = re.findall(r"Default: (.+?)\.(?:$|  )", option.help or "")
        assert not option.show_default, option.name
        assert len(stated) <= 1, option.help
        default = option.to_info_dict()["default"]
        if option.is_flag or default in (None, (), [], "", False) or callable(default):
            continue
        shown = (
            ", ".join(map(str, default))
            if isinstance(default, list | tuple)
            else f"{default:g}"
            if isinstance(default, float)
            else str(default)
        )
        assert stated == [shown], f"{option.name}: {option.help}"


@pytest.mark.parametrize("name", _ALL)
def test_help_shows_every_option_under_one_heading(name: str) -> None:
    command = _ALL[name]
    context = click.Context(command, info_name=name)
    groups = options_by_group(command, context)
    assert sorted(option.name or "" for found in groups.values() for option in found) == sorted(
        option.name or "" for option in _options(command)
    )
    text = CliRunner().invoke(main, [*name.split(), "--help"]).output
    headings = re.findall(r"^(\w[\w ]+):$", text, re.MULTILINE)
    assert [heading for heading in headings if heading != "Commands"] == [*groups]
    assert groups["General options"][0].name == "quiet"
    assert "..." not in text.partition("\n\n")[2]


def test_each_environment_variable_has_a_description() -> None:
    for one in VARIABLES:
        assert one.meaning[:1].isupper(), one.name
        assert one.meaning.endswith("."), one.name
        assert not _AVOIDED.search(one.meaning), one.meaning
        assert len(one.described) <= 100, one.name
        assert "Default" not in one.meaning


_VAGUE = re.compile(r"\b(?:says?|said|tells?|told|gives?|given|is no (?!argument)|are no|takes no|whoever|who|leave)\b")


def test_usage_errors_use_the_exact_verb() -> None:
    """Not "say --grid", "is no array", "remove it": specify, is not, remove."""
    found = []
    for path in Path(cli.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                kind = ast.unparse(node.exc.func)
                texts = [part.value for part in ast.walk(node.exc) if isinstance(part, ast.Constant)]
                if kind in ("click.UsageError", "click.BadParameter"):
                    found += [f"{path.name}: {text}" for text in texts if isinstance(text, str) and _VAGUE.search(text)]
    assert found == []


def test_option_still_accepts_its_name_of_the_last_release(tmp_path: Path) -> None:
    (tmp_path / "k.ptx").write_text(".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n")
    old, new = (CliRunner().invoke(main, ["compat", str(tmp_path / "k.ptx"), f"{name}=sm_90"]) for name in _COMPAT)
    assert (old.exit_code, old.stdout) == (0, new.stdout)
    assert (old.stderr, new.stderr) == ("warning: --device is now --arch\n", "")


_COMPAT = ("--device", "--arch")


def test_inspect_and_run_still_accept_kernel_and_a(tmp_path: Path) -> None:
    file = tmp_path / "k.cu"
    file.write_text('extern "C" __global__ void k(int* x, int n) { *x = n; }\n')
    launch = ["run", str(file), "--grid=1", "--block=1", "--device=cpu", "--print=1"]
    old = CliRunner().invoke(main, [*launch, "-a", "zeros:i32:1", "-a7"])
    assert (old.exit_code, old.stdout) == (0, "[7]\n")
    assert re.findall("warning: .*", old.stderr) == ["warning: -a is now --arg"]  # once, not for each argument
    ptx = tmp_path / "k.ptx"
    ptx.write_text(".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n")
    old, new = (CliRunner().invoke(main, ["inspect", str(ptx), name, "k"]) for name in ("--kernel", "--kernels"))
    assert (old.exit_code, old.stdout, new.stderr) == (0, new.stdout, "")
    assert old.stderr == "warning: --kernel is now --kernels\n"


def test_value_or_word_of_another_command_keeps_its_name(tmp_path: Path) -> None:
    path = tmp_path / "--device"
    path.write_text(".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n")
    result = CliRunner().invoke(main, ["retarget", "-o", str(tmp_path / "k.ptx"), "--ptx=7.1", "--", str(path)])
    assert (result.exit_code, result.stderr) == (0, "warning: --ptx is now --ptx-version\n")
    emulate = _ALL["emulate"]
    words = ["--log", "--needs", "--needs", "python", "--needs"]
    found = with_new_names(emulate, RENAMED_OPTIONS["emulate"], words)
    assert found == ["--log", "--needs", "--unsupported", "python", "--needs"]
    words = ["-a", "1", "-a2.5", "-a=-3", "-arch=sm_90", "-arch", "sm_90", "-arhc=sm_90", "-k", "-a"]
    new = ["--arg", "1", "--arg=2.5", "--arg=-3", *words[4:]]  # arguments of nvcc stay, and so do values
    assert [with_new_names(_ALL[name], RENAMED_OPTIONS[name], words) for name in ("run", "profile", "explore")] == [
        new, new, new,
    ]  # fmt: skip


def test_renamed_options_match_the_commands() -> None:
    for path, renamed in RENAMED_OPTIONS.items():
        names = {name for option in _options(_ALL[path]) for name in option.opts}
        assert set(renamed.values()) <= names, path
        assert not set(renamed) & names, path


def test_option_has_one_kind_of_value_in_every_command() -> None:
    shapes: dict[str, set[str]] = {}
    for command in _ALL.values():
        for option in _options(command):
            shape = "flag" if option.is_flag else option.metavar or "choice"
            for name in option.opts:
                shapes.setdefault(name, set()).add(shape)
    assert {name: found for name, found in shapes.items() if len(found) > 1} == {}


def test_short_option_has_one_meaning_in_every_command() -> None:
    meanings: dict[str, set[str]] = {}
    for command in _ALL.values():
        for option in _options(command):
            names = {name for name in option.opts if len(name) > 2} or {option.name or ""}
            for letter in {*option.opts} - names:
                meanings[letter] = names & meanings.get(letter, names)
    assert {"-a": {"--arch"}, "-k": {"--kernel"}}.items() <= meanings.items()
    assert [letter for letter, names in meanings.items() if not names] == []


def test_every_command_accepts_several_arch_options_and_native(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cujit.program, "present_arches", lambda: [Arch.parse("sm_80"), Arch.parse("sm_90")])
    found = {}
    for path, command in _ALL.items():
        for option in _options(command):
            if "--arch" in option.opts:
                assert (option.multiple, option.metavar) == (True, "ARCH"), path
                assert "native" in [one.value for one in option.shell_complete(click.Context(command), "nat")], path
                context = click.Context(command, info_name=path)
                assert option.callback, path
                found[path] = option.callback(context, option, ("native",))
    one = {"compile", "link", "retarget", "cache why"}
    assert found == {path: "sm_80" if path in one else ("sm_80", "sm_90") for path in found}
    assert {"run", "profile", "explore", "inspect", "budget", "compat", "worklist build", *one} <= {*found}
