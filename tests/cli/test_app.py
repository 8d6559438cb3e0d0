from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from cujit.cli import main
from cujit.cli.app import COMMANDS, Commands
from cujit.cli.exit_codes import ExitCode, exit_code_of
from cujit.errors import (
    CompileError,
    CujitError,
    DeviceNotFoundError,
    DriverNotFoundError,
    OptionError,
    ToolchainNotFoundError,
)


def _ending_in(error: Exception) -> Result:
    """Run a group of our kind whose one verb raises ``error``."""

    def fail() -> None:
        raise error

    class OneVerb(Commands):
        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
            del ctx
            return click.Command(cmd_name, callback=fail)

    return CliRunner().invoke(OneVerb("cujit"), ["fail"])


def test_every_command_is_named_after_its_file() -> None:
    for verb in COMMANDS:
        command = importlib.import_module(f"cujit.cli.{verb}").command
        assert command.name == verb
        assert command.help


def test_python_m_cujit_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "cujit", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("cujit, version ")


def test_help_names_every_verb_and_status() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    for word in (
        *COMMANDS,
        "Exit status:",
        "0  success",
        "1  wrong input, or a check that failed",
        "2  wrong usage",
        "3  a required library or driver",
    ):
        assert word in result.output


def test_unknown_verb_is_usage() -> None:
    assert CliRunner().invoke(main, ["frobnicate"]).exit_code == ExitCode.USAGE


@pytest.mark.parametrize(("said", "meant"), [("complie", "compile"), ("retargt", "retarget"), ("docter", "doctor")])
def test_misspelled_command_suggests_the_right_one(said: str, meant: str) -> None:
    result = CliRunner().invoke(main, [said])
    assert (result.exit_code, f"no command '{said}'; did you mean {meant}" in result.output) == (2, True)


def test_error_is_a_message_on_standard_error_without_traceback() -> None:
    result = _ending_in(CujitError("it is [red]wrong[/red]", help="another way"))
    assert result.stdout == ""
    assert result.stderr == "error: it is [red]wrong[/red] [failure]\n  hint: another way\n"
    assert result.exit_code == ExitCode.WRONG_INPUT


def test_with_json_an_error_is_json_on_standard_output_too(tmp_path: Path) -> None:
    (tmp_path / "k.cubin").write_bytes(b"no image")
    result = CliRunner().invoke(main, ["inspect", str(tmp_path / "k.cubin"), "--json"])
    error = json.loads(result.stdout)["error"]
    assert (error["code"], result.exit_code) == ("format", ExitCode.WRONG_INPUT)
    assert f"{error['message']} [format]" in result.stderr


def test_explain_prints_an_error_code_and_lists_all_codes() -> None:
    said = CliRunner().invoke(main, ["explain", "option-conflict"]).output
    assert said.startswith("option-conflict (OptionError, LaunchError)\n\nTwo options are mutually exclusive")
    listed = CliRunner().invoke(main, ["explain", "--json"]).stdout
    assert json.loads(listed)["compile"]["errors"] == ["CompileError"]
    assert "grid-size " in CliRunner().invoke(main, ["explain"]).output
    wrong = CliRunner().invoke(main, ["explain", "grid-sise"])
    assert (wrong.exit_code, "did you mean grid-size" in wrong.stderr) == (ExitCode.WRONG_INPUT, True)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OptionError("o"), 1),
        (CompileError("c"), 1),
        (ToolchainNotFoundError("t"), 3),
        (DriverNotFoundError("d"), 3),
        (DeviceNotFoundError("d"), 3),
    ],
)
def test_exit_status_distinguishes_input_from_machine_errors(error: CujitError, code: int) -> None:
    assert exit_code_of(error) == code
    assert _ending_in(error).exit_code == code


def test_unwritable_file_is_named() -> None:
    result = _ending_in(FileNotFoundError(2, "No such file or directory", "/x/y"))
    assert (result.stderr, result.exit_code) == ("error: /x/y: No such file or directory\n", 1)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), OSError("No space left on device")])
def test_error_without_a_file_name_is_a_message(error: OSError) -> None:
    result = _ending_in(error)
    assert (result.stderr, result.exit_code) == ("error: No space left on device\n", 1)


_FULL = Path("/dev/full")


@pytest.mark.skipif(not _FULL.exists(), reason="the system has no device that is always full")
@pytest.mark.parametrize("command", ["--help", "--version", "demo --help", "doctor --json"])
def test_full_disk_on_standard_output_ends_without_traceback(command: str) -> None:
    with _FULL.open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "cujit", *command.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.stderr, done.returncode) == ("error: No space left on device\n", 1)


@pytest.mark.skipif(not _FULL.exists(), reason="the system has no device that is always full")
def test_full_disk_error_names_the_file(tmp_path: Path) -> None:
    source = tmp_path / "k.cu"
    source.write_text("__global__ void k() {}")
    done = subprocess.run(
        [sys.executable, "-m", "cujit", "build", str(source), "-t", "sm_90", "-o", str(_FULL)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.endswith("error: /dev/full can't be written: No space left on device [file]\n")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("end", ["| head -c 1", ">&-"], ids=["pipe", "standard output"])
def test_closed_output_ends_without_traceback(end: str) -> None:
    command = f"{sys.executable} -m cujit run --help {end}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stderr == ""
