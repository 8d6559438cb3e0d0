"""``benchmarks/pairs.py`` and the page of its records: who is slower, by what was measured in turn."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import performance_page

_ROOT = Path(__file__).parents[1]
_PAIRS = runpy.run_path(str(_ROOT / "benchmarks/pairs.py"))
FAST = [1.0, 1.1, 1.2, 1.3, 1.4]


@pytest.mark.parametrize(
    ("own", "is_slower"), [(FAST, False), ([t + 0.15 for t in FAST], False), ([t + 0.3 for t in FAST], True)]
)
def test_slower_means_spreads_do_not_overlap(own: list[float], is_slower: bool) -> None:
    assert _PAIRS["slower"](own, FAST) == is_slower
    assert not _PAIRS["slower"](FAST, own)


def test_both_run_in_turns_and_times_are_stored(tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    words = ["import", "--against", str(_ROOT), "--commit", "mine", "--rounds", "2", "--write", str(record)]
    command = [sys.executable, str(_ROOT / "benchmarks/pairs.py"), *words]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert shown.stdout.startswith("`import cujit`: ")
    kept = json.loads(record.read_text())
    assert kept["commit"] == "mine"
    case = kept["cases"]["import"]
    assert len(case["own"]) == len(case["other"]) == 2
    assert all(0 < seconds < 60 for seconds in case["own"] + case["other"])


def test_unknown_case_is_named() -> None:
    shown = subprocess.run([sys.executable, _ROOT / "benchmarks/pairs.py", "imports"], capture_output=True, text=True)
    assert shown.returncode == 2
    assert "no case is called imports" in shown.stderr


def test_page_has_the_last_record_of_each_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for day, cores, own in ((1, 16, 3.0), (2, 2, 1e-3), (3, 16, 5e-6)):
        case = {"what": "a launch", "own": [own] * 3, "other": [2 * own] * 3}
        record = {"machine": f"Any, {cores} cores, Python 3", "commit": f"c{day}", "date": f"2026-01-0{day}"}
        (tmp_path / f"{day}.json").write_text(json.dumps({**record, "cases": {"launch": case}}))
    monkeypatch.setattr(performance_page, "HISTORY", tmp_path)
    page = performance_page.performance_page()
    assert page.index("2 cores") < page.index("16 cores")
    assert "Commit c3" in page
    assert "Commit c1" not in page
    assert "| a launch | 10 µs | 5 µs | 0.50 | 0.50 to 0.50 |" in page
    assert "| a launch | 2 ms | 1 ms | 0.50 | 0.50 to 0.50 |" in page
