"""``make quick`` runs the tests of what changed, and ends in time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from quick import GUARDS, ROOT, chosen_tests
from time_limit import _LEFT_OUT


@pytest.mark.parametrize(
    ("changed", "first"),
    [
        ("src/cujit/cache/tier.py", "tests/cache/test_tiers.py"),
        ("src/cujit/cli/observers.py", "tests/cli/test_run.py"),
        ("tests/cache/test_pack.py", "tests/cache/test_pack.py"),
        ("tests/cache/samples.py", "tests/cache/test_tiers.py"),
        ("docs/checks.md", "tests/test_checks_page.py"),
        ("tools/renames.py", "tests/test_renames.py"),
    ],
)
def test_quick_chooses_the_tests_of_a_change(changed: str, first: str) -> None:
    chosen = chosen_tests([changed])
    assert first in chosen
    assert "tests/test_house.py" in chosen
    assert "tests/soak/test_soak.py" not in chosen


def test_quick_chooses_tests_for_every_package() -> None:
    packages = [path.relative_to(ROOT) for path in (ROOT / "src/cujit").glob("*/__init__.py")]
    assert len(packages) > 20
    assert [path for path in packages if len(chosen_tests([str(path)])) <= len(GUARDS)] == []
    assert chosen_tests(["LICENSE"]) == [f"tests/{name}.py" for name in GUARDS]


def test_quick_leaves_out_slow_tests(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text("def test_one():\n    pass\n")
    (tmp_path / "conftest.py").write_text("pytest_plugins = ('time_limit',)\n")
    for until, said in (("1", f"{_LEFT_OUT}: 1 tests were left out"), ("9e9", "1 passed")):
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)],
            env={**os.environ, "CUJIT_QUICK_UNTIL": until, "PYTHONPATH": f"{ROOT / 'tests'}:{ROOT / 'src'}"},
            capture_output=True, text=True, check=True, cwd=tmp_path,
        )  # fmt: skip
        assert said in done.stdout
