"""``tools/mutants.py``: which mutants of a made package live, and what a mutant is."""

from __future__ import annotations

import ast
import shlex
import sys
from pathlib import Path

import pytest

import mutants

SOURCE = '''"""Sums."""
LIMIT = 10


def share(total, count):
    """Shares, none of which is more than LIMIT."""
    if count > 0:
        return min(total // count, LIMIT)
    raise ValueError(f"{count - 1} is no count")


def untested(names: "int | None") -> "bool":
    names.sort()
    return not names
'''
TESTS = """
import os
import pytest
from made.sums import share

def test_shares():
    assert share(12, 3) == 4
    assert share(100, 2) == 10
    assert share(7, 1) == 7

def test_no_count():
    with pytest.raises(ValueError, match="-1 is no count"):
        share(1, 0)

def test_that_fails_here():
    assert not os.environ.get("CUJIT_MUTANTS_LIMIT")
"""
OTHER = """
def test_that_comes_last():
    from made.sums import share
    assert share(9, 9) == 1
"""
README = """
| tests | guard | by |
|---|---|---|
| `sums/`, `test_*.py` here | `sums` | use |
| `others/` | `others` | nothing |
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A made package with its tests, for which pytest needs no plugins that are installed."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    files = {
        "src/made/__init__.py": "", "src/made/sums.py": SOURCE, "tests/README.md": README,
        "tests/sums/test_sums.py": TESTS, "tests/test_other.py": OTHER, "tests/others/test_none.py": "",
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def _changed(root: Path) -> list[str]:
    """The changed line of each mutant."""
    return [mutants.shown(m, root).rpartition("+ ")[2] for m in mutants.mutants_of(root / "src/made/sums.py")]


def test_operators_statements_and_numbers_are_mutated(root: Path) -> None:
    assert _changed(root) == [
        "LIMIT = (11)",
        "if (count >= 0):",
        "if (not (count > 0)):",
        "if count > (1):",
        "return None",
        "return min((total * count), LIMIT)",
        "pass",
        "pass",
        "return None",
        "return (names)",
    ]


def test_mutant_is_python_and_keeps_line_numbers() -> None:
    for path in (mutants.ROOT / "src/cujit/cache/evict.py", mutants.ROOT / "src/cujit/cache/key.py"):
        for mutant in mutants.mutants_of(path):
            text = mutant.text()
            ast.parse(text)
            assert text.count(b"\n") == path.read_bytes().count(b"\n"), mutants.shown(mutant, mutants.ROOT)
            assert text != path.read_bytes()


def test_type_only_code_has_no_mutant(tmp_path: Path) -> None:
    file = tmp_path / "made.py"
    file.write_text("@overload\ndef f(a: int, b: bool = True) -> int: ...\nif TYPE_CHECKING:\n    LIMIT = 3\n")
    assert mutants.mutants_of(file) == []


def test_tests_of_an_area_match_the_page(root: Path) -> None:
    names = [path.name for path in mutants.guards_of(root, "sums")]
    assert names == ["test_sums.py", "test_other.py"]
    assert mutants.guards_of(root, "sums/parts") == mutants.guards_of(root, "sums")
    assert mutants.guards_of(root, "sum") == []


def test_page_of_the_tests_names_tests_of_every_room() -> None:
    package = mutants.ROOT / "src/cujit"
    rooms = [path.name for path in package.iterdir() if path.is_dir() and any(path.glob("*.py"))]
    assert [room for room in rooms if not mutants.guards_of(mutants.ROOT, room)] == []


def test_unseen_mutant_lives_and_a_failing_test_kills_nothing(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = (root / "src/made/sums.py").read_text()
    assert mutants.main(["sums", "-n", "3", "--seed", "6", "--root", str(root)]) == 1
    said = capsys.readouterr().out
    assert (root / "src/made/sums.py").read_text() == source
    assert "killed by tests/sums/test_sums.py::test_no_count: src/made/sums.py:7\n  - if count > 0:\n" in said
    assert "left out, as they fail without a change: tests/sums/test_sums.py::test_that_fails_here" in said
    summary = said.partition("\n\n")[2]
    assert summary.startswith("sums: 1 of 3 mutants killed, of 10 that there are; seed 6\nlives: ")
    assert "  - return not names\n  + return (names)\n" in summary
    assert "  - names.sort()\n  + pass\n" in summary


def test_distant_test_that_imports_the_changed_file_runs(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those that ``--tests`` names are all that there are."""
    elsewhere = root / "tests/far/test_elsewhere.py"
    elsewhere.parent.mkdir()
    elsewhere.write_text("from made.others import untested\ndef test_it():\n    assert untested([]) is True\n")
    (root / "src/made/others.py").write_text(SOURCE[SOURCE.index("def untested") :])
    command = ["others", "-n", "10", "--root", str(root)]
    assert mutants.main([*command, "--tests", "tests/test_other.py"]) == mutants.main(command) == 1
    said = capsys.readouterr().out
    assert said.count("killed by tests/far/test_elsewhere.py::test_it: src/made/others.py:3") == 2
    assert said.count("lives: src/made/others.py:2\n") == said.count("lives: src/made/others.py:3\n") == 2


def test_output_of_a_nested_pytest_is_no_failure(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    test = "tests/others/test_none.py"
    (root / test).write_text(
        "from made.others import LIMIT\n"
        "def test_limit():\n    print('FAILED test_it.py::test_inner - assert 1')\n    assert LIMIT == 10\n"
    )
    (root / "src/made/others.py").write_text("LIMIT = 10\n")
    assert mutants.main(["others", "--root", str(root), "--tests", test]) == 0
    assert f"killed by {test}::test_limit: src/made/others.py:1" in capsys.readouterr().out


def test_mutant_with_an_endless_test_is_killed(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "src/made/sums.py").write_text(
        "import time\n\ndef wait(n):\n    while n:\n        time.sleep(0.01)\n        n -= 1\n"
    )
    (root / "tests/sums/test_sums.py").write_text("from made.sums import wait\ndef test_it():\n    wait(3)\n")
    assert mutants.main(["sums", "--hang", "2", "--root", str(root), "--tests", "tests/sums/test_sums.py"]) == 1
    said = capsys.readouterr().out
    assert "killed by tests/sums/test_sums.py::test_it does not end: src/made/sums.py:6\n  - n -= 1\n  + pass\n" in said


def test_test_that_never_ends_unchanged_kills_nothing(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    test = "tests/others/test_none.py"
    (root / test).write_text("import time\ndef test_sleep():\n    from made import sums\n    time.sleep(60)\n")
    assert mutants.main(["sums", "-n", "1", "--hang", "2", "--root", str(root), "--tests", test]) == 1
    said = capsys.readouterr().out
    assert "1/1 LIVES (every test was left out): src/made/sums.py" in said
    assert f"left out, as they fail without a change: {test}::test_sleep" in said


def test_all_mutates_each_package_and_reports_missing_tests(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "src/made/others.py").write_text("COUNT = 3\n")
    (root / "src/made/names.py").write_text('NAME = "no mutant"\n')
    assert mutants.rooms_of(root / "src/made") == ["others", "sums"]
    assert mutants.main(["all", "-n", "2", "--seed", "6", "--root", str(root)]) == 1
    said = capsys.readouterr().out
    assert "1/1 LIVES (every test was left out): src/made/others.py:1\n  - COUNT = 3\n  + COUNT = (4)\n" in said
    assert "others: 0 of 1 mutants killed, of 1 that there are; seed 6" in said
    assert said.splitlines()[-1].endswith("of 3 mutants killed, in 2 areas")


def test_framework_tests_run_in_their_environment(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    python = root / ".venv-frameworks/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nHAS_TORCH=1 exec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    for room in ("others", "torch"):
        (root / f"src/made/{room}.py").write_text("COUNT = 3\n")
        (root / f"tests/{room}").mkdir(exist_ok=True)
        (root / f"tests/{room}/test_{room}.py").write_text(
            'import os, pytest\npytestmark = pytest.mark.skipif("HAS_TORCH" not in os.environ, reason="no torch")\n'
            f"def test_it():\n    from made.{room} import COUNT\n    assert COUNT == 3\n"
        )
    (root / "tests/README.md").write_text(f"{README}| `torch/` | `torch` | use |\n")
    assert mutants.main(["torch", "--root", str(root)]) == 0
    assert mutants.main(["others", "--root", str(root)]) == 1
    assert "1/1 LIVES (every test was left out): src/made/others.py:1" in capsys.readouterr().out


def test_skipped_mutants_are_reported(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The limit is used up when the first process has begun."""
    for number in range(5):
        (root / f"tests/sums/test_{number}.py").write_text("def test_nothing():\n    pass\n")
    assert mutants.main(["sums", "-n", "1", "--limit", "0.001", "--root", str(root)]) == 1
    assert "1/1 LIVES (6 tests and 3 files of tests had no time): src/made/sums.py" in capsys.readouterr().out


def test_unknown_area_is_an_error(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for area, said in (("nothing", "made has no nothing"), ("__init__", "tests/README.md names no tests for __init__")):
        with pytest.raises(SystemExit):
            mutants.main([area, "--root", str(root)])
        assert said in capsys.readouterr().err
