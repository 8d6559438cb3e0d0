from __future__ import annotations

import importlib
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner, Result

from cujit.cli import main
from cujit.cli.app import VERBS, Verbs
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

    class OneVerb(Verbs):
        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
            del ctx
            return click.Command(cmd_name, callback=fail)

    return CliRunner().invoke(OneVerb("cujit"), ["fail"])


def test_every_verb_is_the_command_of_its_file() -> None:
    for verb in VERBS:
        command = importlib.import_module(f"cujit.cli.{verb}").command
        assert command.name == verb
        assert command.help


def test_python_m_cujit_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "cujit", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("cujit, version ")


def test_help_names_every_verb_and_status() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    for word in (*VERBS, "Exit status: 0 good, 1 the input is wrong, 2 usage, 3"):
        assert word in result.output


def test_unknown_verb_is_usage() -> None:
    assert CliRunner().invoke(main, ["frobnicate"]).exit_code == ExitCode.USAGE


def test_error_is_a_message_on_standard_error_without_traceback() -> None:
    result = _ending_in(CujitError("it is [red]wrong[/red]", help="another way"))
    assert result.stdout == ""
    assert result.stderr == "error: it is [red]wrong[/red]\n  try: another way\n"
    assert result.exit_code == ExitCode.WRONG_INPUT


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
def test_status_says_whether_the_input_or_the_machine_is_to_blame(error: CujitError, code: int) -> None:
    assert exit_code_of(error) == code
    assert _ending_in(error).exit_code == code


def test_file_that_cannot_be_written_is_named() -> None:
    result = _ending_in(FileNotFoundError(2, "No such file or directory", "/x/y"))
    assert (result.stderr, result.exit_code) == ("error: /x/y: No such file or directory\n", 1)


def test_error_of_no_file_is_not_hidden() -> None:
    assert isinstance(_ending_in(OSError("a bug")).exception, OSError)


def test_closed_pipe_ends_without_traceback() -> None:
    command = f"{sys.executable} -m cujit run --help | head -c 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stderr == ""
