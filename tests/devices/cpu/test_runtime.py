"""The run-time in C: what the package has is what its sources give, and both sides see the same structures."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TOOL = ROOT / "tools" / "runtime.py"
SOURCES = ROOT / "src" / "cujit" / "devices" / "cpu" / "runtime"

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ziglang") is None or not TOOL.exists(), reason="needs the clang of `ziglang`"
)


def make(directory: Path, sources: Path = SOURCES) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TOOL), str(directory), str(sources)]
    return subprocess.run(command, capture_output=True, text=True)


def test_the_bitcode_of_the_package_is_that_of_its_sources(tmp_path: Path) -> None:
    made = make(tmp_path)
    assert made.returncode == 0, made.stderr
    there = {path.relative_to(tmp_path).as_posix(): path.read_bytes() for path in tmp_path.rglob("*.*")}
    assert there == {path: (SOURCES / path).read_bytes() for path in there}, "run `make runtime`"
    assert {path.relative_to(SOURCES).as_posix() for path in SOURCES.rglob("*.bc")} == there.keys() - {"numbers.h"}


@pytest.mark.parametrize(("was", "now"), [("i32 width, height", "i32 height, width"), ("i64 row,", "i32 row,")])
def test_a_structure_that_python_sees_otherwise_does_not_compile(tmp_path: Path, was: str, now: str) -> None:
    for file in SOURCES.glob("*.[ch]"):
        text = file.read_text()
        (tmp_path / file.name).write_text(text.replace(was, now))
    made = make(tmp_path / "made", tmp_path)
    assert made.returncode == 1
    assert "as Python has it" in made.stderr
