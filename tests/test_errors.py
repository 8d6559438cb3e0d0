"""The exception tree is the one that its docstring draws, and errors print what they carry."""

from __future__ import annotations

import ast
import copy
import inspect
import operator
import pickle
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

import cujit
from cujit import errors
from cujit.cli.app import COMMANDS
from cujit.cli.environment import VARIABLES
from cujit.devices.cpu.native.structures import FaultKind
from cujit.errors import CompileError, CujitError, Diagnostic, FormatError, PtxSyntaxError, ToolError
from cujit.errors.codes import CODES, explain
from cujit.toolchain.nvrtc import nvrtcError
from processes import printed
from raising import raises


def drawn() -> dict[str, str]:
    """Read the tree of the docstring: class to base."""
    parents: dict[str, str] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"    ([│ ├└─]*)(\w+Error)\b", line)
        if match:
            depth = len(match[1]) // 4
            path[depth:] = [match[2]]
            if depth:
                parents[match[2]] = path[depth - 1]
    return parents


def test_docstring_lists_every_class_under_its_base() -> None:
    classes = {n: c for n, c in vars(errors).items() if isinstance(c, type) and issubclass(c, CujitError)}
    actual = {n: next(b.__name__ for b in c.__bases__) for n, c in classes.items() if c is not CujitError}
    assert drawn() == actual


def test_every_class_is_public() -> None:
    classes = {n for n, c in vars(errors).items() if isinstance(c, type) and c.__module__ == errors.__name__}
    assert set(errors.__all__) == classes


def test_help_is_printed_after_the_message() -> None:
    assert str(CujitError("it broke", help="mend it")) == "it broke\n  hint: mend it"
    assert str(CujitError("it broke")) == "it broke"


def test_tool_error_prints_call_result_tool_and_log() -> None:
    error = ToolError(
        "the link failed", tool="nvJitLink 13.5", call="nvJitLinkComplete", result="ERROR_X", log="a\nb\n"
    )
    assert str(error) == "the link failed\n  call: nvJitLinkComplete -> ERROR_X (nvJitLink 13.5)\n  log:\n    a\n    b"
    assert str(ToolError("the link failed: a\nb", log="a\nb\n", help="-v")) == "the link failed: a\nb\n  hint: -v"


def test_format_error_has_its_place() -> None:
    error = FormatError("wrong magic", offset=12)
    assert str(error) == "wrong magic (at byte 12)"
    assert error.offset == 12


def test_caret_is_below_its_column_after_tabs() -> None:
    diagnostic = Diagnostic("error", "no such thing", "k.cu", 3, 4, "E20", "\tx = y;")
    assert str(diagnostic) == "k.cu:3:4: error: no such thing [E20]\n    \tx = y;\n    \t  ^"
    assert str(Diagnostic("warning", "odd", "k.cu", 3)) == "k.cu:3: warning: odd"
    assert str(Diagnostic("error", "odd")) == "error: odd"


def test_syntax_error_shows_the_line() -> None:
    error = PtxSyntaxError("expected ';'", line=2, column=5, source_line="add r", name="x.ptx")
    assert str(error) == "x.ptx:2:5: error: expected ';'\n    add r\n        ^"


def test_errors_are_also_pythons_own_types() -> None:
    assert issubclass(errors.ArchError, ValueError)
    assert issubclass(errors.NameNotFoundError, KeyError)
    assert issubclass(errors.ArgumentError, TypeError)
    with pytest.raises(ValueError, match="bad"):
        raise errors.OptionError("bad")
    assert str(errors.NameNotFoundError("no kernel 'x'")) == "no kernel 'x'"
    assert CompileError("x").diagnostics == ()


def test_error_keeps_all_its_fields() -> None:
    for name in errors.__all__:
        made = getattr(errors, name)
        if issubclass(made, CujitError) and made is not PtxSyntaxError:  # which makes a diagnostic of it
            given = {key: (f"its {key}",) for key in inspect.signature(made).parameters if key != "message"}
            error = made("it is wrong", **given)
            assert {key: getattr(error, key) for key in given} == given, name


@pytest.mark.parametrize(
    "error",
    [
        CujitError("it broke", help="mend it"),
        CompileError(
            "no", diagnostics=[Diagnostic("error", "no", "k.cu", 1)], tool="NVRTC", call="f", result="R", log="l"
        ),
        PtxSyntaxError("no", line=1, column=2, source_line="x"),
        errors.FileError("no file", help="another"),
        nvrtcError(6, "it broke", tool="NVRTC 13.5", call="nvrtcCompileProgram", log="why"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("again", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))], ids=["copy", "pickle"])
def test_error_is_pickled_unchanged(error: CujitError, again: Callable[[CujitError], CujitError]) -> None:
    other = again(error)
    assert (type(other), vars(other), str(other)) == (type(error), vars(error), str(error))


def test_value_is_printed_up_to_300_characters() -> None:
    for length, said in ((298, f"'{'x' * 298}'"), (299, f"'{'x' * 299}…")):
        assert errors.spell("x" * length) == said
    assert errors.spell((1 << 128) - 1) == str((1 << 128) - 1)
    assert errors.spell(1 << 128) == "an int of 129 bits"


def test_names_are_listed_once_and_the_rest_counted() -> None:
    assert errors.listed(["a", "b", "a"], 2) == "a, b"
    assert errors.listed(["a", "b", "c", "a"], 2) == "a, b and 1 more"
    assert errors.listed(["axpy", "scale", "count"], 1, "cuont") == "count and 2 more"


def test_int_is_checked_for_a_minimum_and_bool_refused() -> None:
    assert errors.read_int(-3, "n", errors.OptionError) == -3
    assert errors.read_int(2, "n", errors.OptionError, least=2) == 2
    for value, why in (
        (1, ("n", "1", "2")),
        (True, ("n", "bool True")),
        (2.0, ("n", "float")),
    ):
        with raises(errors.OptionError, "option", *why):
            errors.read_int(value, "n", errors.OptionError, least=2)


_FRAMES = """
import traceback
import numpy as np
import cujit

module = cujit.jit("__global__ void fill(int *x) { x[1] = 1; }", device=cujit.cpu(check="memory"))
for wrong in (
    lambda: cujit.jit("__global__ void k() { oops(); }", device="cpu"),
    lambda: module["fill"][1, 1](np.zeros(1, np.int32)),
):
    try:
        wrong()
    except cujit.errors.CujitError as error:
        print(len(traceback.extract_tb(error.__traceback__)))
"""


def test_traceback_shows_few_frames_of_cujit() -> None:
    assert all(int(line) <= 6 for line in printed(_FRAMES).split())
    assert int(printed(_FRAMES, options=("-X", "dev")).split()[0]) > 15


def raised_codes() -> dict[str, set[str]]:
    """Read from the source which classes raise a code that isn't the code of their class."""
    found: dict[str, set[str]] = {}
    for path in (Path(cujit.__file__).parent).rglob("*.py"):
        text = path.read_text()
        for call in ast.walk(ast.parse(text)) if "code=" in text else ():
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in errors.__all__:
                given = [word.value for word in call.keywords if word.arg == "code" and call.func.id != "Diagnostic"]
                for value in given:
                    assert isinstance(value, ast.Constant), f"{path}:{value.lineno}: a code is a literal"
                    found.setdefault(str(value.value), set()).add(call.func.id)
    return found


def test_codes_are_those_that_are_raised() -> None:
    raised = raised_codes()
    for name in errors.__all__:
        if issubclass(getattr(errors, name), CujitError):
            raised.setdefault(getattr(errors, name).code, set()).add(name)
    for kind in FaultKind:
        if kind is not FaultKind.NONE:
            error = errors.KernelFaultError("it stops", kind=kind.name.lower())
            raised[error.code] = {"KernelFaultError"}
    del raised["kernel-fault"]  # a fault has its kind
    assert {code: set(row.errors.split()) for code, row in CODES.items()} == raised
    assert list(CODES) == sorted(CODES)


def test_command_suggested_by_a_code_exists() -> None:
    for code, row in CODES.items():
        for path in re.findall(r"\bcujit(?:\.\w+)+", row.remedy):
            operator.attrgetter(path.partition(".")[2])(cujit)
        for command in re.findall(r"cujit ([a-z]+)", row.remedy):
            assert command in COMMANDS, code
        for variable in re.findall(r"CUJIT_\w+", row.meaning + row.remedy):
            assert variable in {one.name for one in VARIABLES}, code
        for name in re.findall(r"\b(kernel|device)\.(\w+)", row.remedy):
            assert hasattr(cujit.Kernel if name[0] == "kernel" else cujit.cpu(), name[1]), code


@pytest.mark.skipif(sys.version_info < (3, 11), reason="notes of exceptions came with Python 3.11")
def test_traceback_ends_with_the_explain_command() -> None:
    error = errors.LaunchError("too large", help="less", code="grid-size")
    assert traceback.format_exception(error)[-1] == "For details, run: cujit explain grid-size\n"
    assert errors.LaunchError("x").code == "launch"
    assert nvrtcError(6, "it broke").code == "tool"
    assert errors.PtxSyntaxError("x", line=1, column=1, source_line="").code == "ptx-syntax"


def test_misspelled_code_is_corrected() -> None:
    with pytest.raises(errors.OptionError) as raised:
        explain("grid-sise")
    assert raised.value.code == "option-unknown"
    assert "grid-size" in (raised.value.help or "")
