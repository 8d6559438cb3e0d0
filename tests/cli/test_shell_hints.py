"""Hints as one types them in a shell: no arguments of Python are left in what a verb can say."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import Result

import cujit.errors as errors
from cujit.cli.shell_hints import for_the_shell

_SRC = Path(errors.__file__).parents[1]
_PYTHON = re.compile(r"\b\w+=[\[({'\"]|\w+=(True|False)\b|\bcujit\.[a-z]|\b\w+\.\w+\([^)]*\)$")


@pytest.mark.parametrize(
    ("hint", "said"),
    [
        ("extra=('--flag',)", "-O extra=--flag"),
        ("give its directory (include=[…]) or its text (headers={name: text})", "give its directory (-I DIR)"),
        ("to='ltoir', or to='ptx' with rdc=True, and link", "--to ltoir, or --to ptx with -O rdc, and link"),
        ("isolate=True, memory_mib=4096", "--isolate --memory 4096"),
        ("targets=['sm_90'] or ['compute_90']", "--target sm_90 --target compute_90"),
        ("cujit.link([image], arch='sm_80')", "cujit link FILE -a sm_80 -o x.cubin"),
        ("run on the CPU device: device=cujit.cpu()", "run on the CPU device: --device cpu"),
        ("std='c++20'", "-O std=c++20"),
        ("Source.nvvm(…, libdevice=True); or rdc=True, to link it later", "--libdevice; or -O rdc, to link it later"),
        ("pip install 'cujit[cu13]'", "pip install 'cujit[cu13]'"),
    ],
)
def test_hint_names_options_of_the_command(hint: str, said: str) -> None:
    assert for_the_shell(hint) == said


def test_a_name_and_an_architecture_are_said_as_the_verb_takes_them() -> None:
    hint = "names=['axpy<float>'], arch='sm_90'"
    assert for_the_shell(hint, "run") == "-k 'axpy<float>', --arch sm_90"
    assert for_the_shell(hint, "build") == "-n 'axpy<float>', --target sm_90"
    assert for_the_shell(hint, "compile") == "-n 'axpy<float>', --arch sm_90"


def _hints(path: Path) -> Iterator[str]:
    """Find what a file gives as ``help=``: whole texts, for the parts of others are put together later."""
    for node in ast.walk(ast.parse(path.read_text())):
        for keyword in node.keywords if isinstance(node, ast.Call) else ():
            if keyword.arg == "help" and isinstance(keyword.value, ast.Constant):
                yield str(keyword.value.value or "")


_FROM_PYTHON_ALONE = ("Entry(", "Source.nvvm(text)", "options='-O1'", "headers={", "Cache(", "Source.cuda")
"""Hints about values that no verb makes."""


def test_no_hint_of_the_compiler_is_left_in_python() -> None:
    files = [_SRC / "program.py", *(f for d in ("compiler", "inspection") for f in (_SRC / d).rglob("*.py"))]
    found = [for_the_shell(hint) for file in files for hint in _hints(file)]
    assert len(found) > 40
    left = [hint for hint in found if _PYTHON.search(hint) and not any(own in hint for own in _FROM_PYTHON_ALONE)]
    assert left == []


def test_the_command_says_it(cujit: object, tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text('#include "none.h"\nextern "C" __global__ void scale(int* x) { *x = 1; }')

    def error_of(*arguments: str) -> str:
        result: Result = cujit(*arguments)  # type: ignore[operator]
        assert result.exit_code == 1
        return result.stderr

    assert "try: give its directory (-I DIR); a source" in error_of("compile", "k.cu")
    assert "goes through -O extra=--flag" in error_of("compile", "k.cu", "-O", "fast")
    assert "try: --isolate --memory 4096" in error_of("compile", "k.cu", "--memory", "10")
    assert "did you mean sm_90?" in error_of("compile", "k.cu", "-a", "90")
    (tmp_path / "k.cu").write_text('extern "C" __global__ void scale(int* x) { *x = 1; }')
    near = error_of("run", "k.cu", "-k", "scal", "--grid", "1", "--block", "1", "--device", "cpu")
    assert "did you mean scale?" in near
