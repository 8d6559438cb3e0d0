"""Type checkers accept what users write rightly, and name the line of each mistake."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from cujit.compiler.options.table import OPTIONS
from cujit.errors import other_apis
from option_types import HOME, option_types

ROOT = Path(__file__).parents[1]
USERS = ROOT / "tests/types"
CHECKERS = {
    "mypy": ["-m", "mypy", "--config-file=", "--strict", "--cache-dir=/dev/null"],
    "pyright": ["-m", "basedpyright", "--level=error", f"--pythonpath={sys.executable}", f"--project={USERS}"],
}


@pytest.fixture(scope="module", params=sorted(CHECKERS))
def found(request: pytest.FixtureRequest) -> dict[str, set[int]]:
    """Check both files once: the lines with errors, by file."""
    files = map(str, sorted(USERS.glob("*.py"))) if request.param == "mypy" else ()
    command = [sys.executable, *CHECKERS[request.param], *files]
    told = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300).stdout
    lines: dict[str, set[int]] = {"right": set(), "wrong": set()}
    for name, line in re.findall(r"(\w+)\.py:(\d+)(?::\d+)?(?: -|:) error: ", told):
        lines[name].add(int(line))
    assert lines["wrong"], told
    return lines


def test_checkers_accept_right_code(found: dict[str, set[int]]) -> None:
    assert found["right"] == set()


def test_checkers_find_each_mistake(found: dict[str, set[int]]) -> None:
    text = (USERS / "wrong.py").read_text().splitlines()
    assert found["wrong"] == {number for number, line in enumerate(text, 1) if line.endswith("# wrong")}


def test_option_types_match_the_table() -> None:
    assert HOME.read_text() == option_types(), "python tools/option_types.py"


def test_no_option_has_the_name_of_another_library() -> None:
    assert not other_apis._SENTENCES["options"].keys() & OPTIONS.keys()
