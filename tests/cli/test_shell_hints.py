"""Hints as one types them in a shell: no arguments of Python are left in what a verb can say."""

from __future__ import annotations

import ast
import copy
import functools
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

from click.testing import Result

import cujit.errors as errors
from cujit.cli.shell_hints import for_the_shell
from cujit.errors.hints import Hint, join_hints, shell_hint

_SRC = Path(errors.__file__).parents[1]
_PYTHON = re.compile(r"\b\w+=[\[({'\"]|\w+=(True|False)\b|\bcujit\.[a-z]|\b\w+\.\w+\([^)]*\)$")


def test_hint_keeps_two_wordings_through_every_change() -> None:
    hint = Hint("use {}: to='ptx'", shell="use {}: --to ptx")
    made = "first, " + hint.format("it") + "; " + Hint("rdc=True", "-O rdc") + "."
    assert made == "first, use it: to='ptx'; rdc=True."
    assert shell_hint(made) == "first, use it: --to ptx; -O rdc."
    assert shell_hint(join_hints("; ", ["a", Hint("b=1", "-O b=1")])) == "a; -O b=1"
    for same in (copy.deepcopy(made), pickle.loads(pickle.dumps(made)), pickle.loads(pickle.dumps(made, 2))):
        assert (same, shell_hint(same)) == (made, shell_hint(made))
    assert shell_hint("pip install 'cujit[cu13]'") == "pip install 'cujit[cu13]'"


def test_hint_spells_kernel_and_architecture_as_the_command() -> None:
    hint = Hint("names=['axpy<float>'], arch='sm_90'", shell="<-n> 'axpy<float>', <--arch> sm_90")
    assert for_the_shell(hint, "run") == "-k 'axpy<float>', --arch sm_90"
    assert for_the_shell(hint, "build") == "-n 'axpy<float>', --target sm_90"
    assert for_the_shell(hint, "compile") == "-n 'axpy<float>', --arch sm_90"


def _text(node: ast.expr) -> str:
    """Return the text of a literal, with a dot for what an f-string fills in; "" for anything else."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) or "." for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _is_hint(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Hint"


@functools.cache
def _nodes(path: Path) -> list[ast.AST]:
    """Parse a file that may have hints; others have no nodes."""
    text = path.read_text()
    return [*ast.walk(ast.parse(text))] if "help" in text or "Hint(" in text else []


def _hints(path: Path) -> Iterator[tuple[bool, str]]:
    """Find what a file gives as ``help=``, and every ``Hint``: whether a shell reads the text, and the text."""
    for node in _nodes(path):
        if isinstance(node, ast.Call) and _is_hint(node):
            yield True, _text([*node.args, *(keyword.value for keyword in node.keywords)][1])
        for keyword in node.keywords if isinstance(node, ast.Call) else ():
            if keyword.arg == "help" and _text(keyword.value):
                yield False, _text(keyword.value)


_FROM_PYTHON_ALONE = ("Entry(", "Source.nvvm(text)", "options='-O1'", "headers={", "Cache(", "Source.cuda", "code=[")
"""Hints about values that no command makes."""

_FILES = [_SRC / "program.py", *(f for d in ("compiler", "inspection", "occupancy") for f in (_SRC / d).rglob("*.py"))]


def test_no_compiler_hint_is_left_in_python_form() -> None:
    found = [text for file in _FILES for _, text in _hints(file)]
    assert len(found) > 100
    assert [t for t in found if _PYTHON.search(t) and not any(own in t for own in _FROM_PYTHON_ALONE)] == []


def test_no_hint_leaves_shell_placeholders_in_python() -> None:
    found = [text for file in _SRC.rglob("*.py") for is_shell, text in _hints(file) if is_shell]
    assert len(found) > 80
    assert [text for text in found if _PYTHON.search(text)] == []


def test_no_hint_loses_its_shell_wording_in_an_f_string() -> None:
    lost = []
    for file in _SRC.rglob("*.py"):
        named = {
            target.id
            for node in _nodes(file)
            if isinstance(node, ast.Assign) and _is_hint(node.value)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        lost += [
            f"{file.name}: {ast.unparse(node.value)}"
            for node in _nodes(file)
            if isinstance(node, ast.FormattedValue) and any(_is_named(part, named) for part in ast.walk(node))
        ]
    assert sorted(lost) == _SHOWN


def _is_named(node: ast.AST, names: set[str]) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == "help"
    return isinstance(node, ast.Name) and node.id in names


_SHOWN = [
    "__init__.py: self.help",
    "__init__.py: self.help",
    "app.py: main.help",
    "compat.py: for_the_shell(verdict.help)",
    "displays.py: error.help",
    "displays.py: error.help",
    "faults.py: found.help",
    "findings.py: error.help",
    "nvcc_arguments.py: e.help",
]
"""Where a hint is printed, or is one of a page for Python."""


def test_command_prints_the_shell_wording(cujit: object, tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text('#include "none.h"\nextern "C" __global__ void scale(int* x) { *x = 1; }')

    def error_of(*arguments: str) -> str:
        result: Result = cujit(*arguments)  # type: ignore[operator]
        assert result.exit_code == 1
        return result.stderr

    assert "hint: pass its directory (-I DIR); cujit also" in error_of("compile", "k.cu")
    assert "use -O extra=--flag" in error_of("compile", "k.cu", "-O", "fast")
    assert "--isolate --memory 4096" in error_of("compile", "k.cu", "--memory", "10")
    assert "did you mean sm_90?" in error_of("compile", "k.cu", "-a", "90")
    (tmp_path / "k.cu").write_text('extern "C" __global__ void scale(int* x) { *x = 1; }')
    near = error_of("run", "k.cu", "-k", "scal", "--grid", "1", "--block", "1", "--device", "cpu")
    assert "did you mean scale?" in near
