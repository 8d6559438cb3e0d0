"""The answers to 1,655 calls, most of them misuse, are those of a GPU's driver, but for those that ``REASONS`` counts.

``python tests/emulator/misuse.py`` on a machine with a GPU gives what to record: its lines are kept as a list in
``goldens/driver_answers.json``, the first one naming the GPU and the CUDA version of its driver.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from emulator.programs import emulated

SCRIPT = Path(__file__).with_name("misuse.py")
GOLDEN = Path(__file__).parents[1] / "goldens" / "driver_answers.json"

MACHINE = "the machine"

_OF_MACHINES = r"device attribute \d+"

REASONS = {
    _OF_MACHINES: (30, "the emulated device has figures and features of its own"),
    r"crooked: .*": (30, "an address that is not aligned is no fault of x86-64 or aarch64; a check finds it"),
    r"far_shared: .*": (30, "far behind shared memory lies other memory of the process; a check finds it"),
    r"function attribute 4": (1, "nothing is assembled for a GPU, so nobody knows the registers"),
    r"function attribute 16|pool attribute 9": (2, "newer than the driver that was recorded"),
    r"cuArray3DCreate, (of UNORM_INT8X1|sparse|mapped later)": (3, "not emulated, and said so"),
    r"cuTexObjectCreate, (anisotropy 16|seams of a cube)": (2, "not emulated, and said so"),
    r"cuTexObjectCreate, of rows without width": (1, "refused by the manual"),
    r"a kernel reads .*": (3, "what is no texture reads anything on a GPU; here that is a fault"),
}
"""Cases whose answers may differ from a GPU's, by what their names match whole: how many differ, and why."""

Rows = dict[str, list[Any]]


def rows(text: str) -> Rows:
    found = [json.loads(line) for line in text.splitlines()]
    twice = [case for case, count in Counter(row["case"] for row in found).items() if count > 1]
    assert not twice
    return {row["case"]: [row["answer"], *row["values"]] for row in found}


def recorded() -> Rows:
    return {row["case"]: [row["answer"], *row["values"]] for row in json.loads(GOLDEN.read_text())}


def differing(ours: Rows, theirs: Rows) -> dict[str, tuple[Any, Any]]:
    """Give the cases that differ without a reason, those that one of them has not included.

    Where a driver ends the process, whose answer is None, any error will do.
    """
    return {
        case: (ours.get(case), theirs.get(case))
        for case in sorted({*ours, *theirs} - {MACHINE})
        if ours.get(case) != theirs.get(case)
        and not any(re.fullmatch(each, case) for each in REASONS)
        and not (theirs.get(case, [0])[0] is None and ours.get(case, [0])[0])
    }


@pytest.fixture(scope="module")
def answers() -> Rows:
    done = emulated(sys.executable, SCRIPT)
    assert done.returncode == 0, done.stderr
    assert "fault of cujit" not in done.stderr
    return rows(done.stdout)


def test_every_case_has_a_result(answers: Rows) -> None:
    assert len(answers) > 800
    assert not {case: found for case, found in answers.items() if found[0] is None or found[0] == 999}


def test_results_match_a_driver(answers: Rows) -> None:
    assert differing(answers, recorded()) == {}


def test_number_of_differing_results_does_not_grow(answers: Rows) -> None:
    theirs = recorded()
    differ = [case for case, answer in answers.items() if case != MACHINE and answer != theirs[case]]
    found = {each: sum(bool(re.fullmatch(each, case)) for case in differ) for each in REASONS}
    assert found.pop(_OF_MACHINES) <= REASONS[_OF_MACHINES][0]
    assert found == {each: count for each, (count, _) in REASONS.items() if each in found}


def test_page_has_the_numbers() -> None:
    page = " ".join((Path(__file__).parents[2] / "docs/emulate.md").read_text().split())
    theirs = [answer for case, answer in recorded().items() if case != MACHINE]
    ended, differ = sum(answer[0] is None for answer in theirs), sum(count for count, _ in REASONS.values())
    for words in (f"We compared {len(theirs):,} calls", f"In {ended} cases", f"the other {differ} calls"):
        assert words in page
    assert f"{len(theirs) - ended - differ:,} return what an H200 returned" in page


def test_differing_case_is_detected_unless_it_has_a_reason() -> None:
    ours: Rows = {"a": [0], "b": [1, 2], "device attribute 3": [0, 5], MACHINE: [0, "x"]}
    theirs: Rows = {"a": [0], "b": [1, 3], "device attribute 3": [0, 6], "c": [0]}
    assert differing(ours, theirs) == {"b": ([1, 2], [1, 3]), "c": (None, [0])}


def test_error_is_returned_where_a_driver_ends_the_process() -> None:
    assert differing({"a": [1], "b": [0]}, {"a": [None, 11], "b": [None, 11]}) == {"b": ([0], [None, 11])}


def test_reason_is_needed() -> None:
    theirs = recorded()
    for pattern in REASONS:
        assert any(re.fullmatch(pattern, case) for case in theirs), pattern


@pytest.mark.gpu
def test_recording_matches_todays_driver() -> None:
    expected = recorded()
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=300, check=True)
    assert differing(rows(done.stdout), expected) == {}
