"""No launch on a GPU beats a bound: one that did would be wrong. What an H200 took is in the goldens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import cujit
from bounds.bounded import CASES, Case, bounds_of, certain_s, launch
from cujit.devices.device import Device
from cujit.errors import ArchError
from cujit.profile import peaks

TOOK_US = json.loads((Path(__file__).parents[1] / "goldens/bounds-h200.json").read_text())["took_us"]
_SOME = 132
"""Blocks that are profiled where no GPU is: one for each multiprocessor of an H200."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.kernel)
def test_kernel_has_its_own_unit_as_the_tightest_bound(case: Case) -> None:
    found = bounds_of(case._replace(blocks=_SOME), "H200")
    assert found.bounds[0].unit == case.unit
    assert found.seconds > 0
    if case.kernel in TOOK_US:
        least = [certain_s(found, bound, case.blocks // _SOME) for bound in found.bounds]
        assert max(least) * 1e6 <= TOOK_US[case.kernel]
        assert found.seconds * 1e6 * (case.blocks // _SOME) > 0.4 * TOOK_US[case.kernel], "a bound that says nothing"


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.kernel)
def test_measured_times_are_above_every_bound(gpu: Device, case: Case) -> None:
    try:
        peaks(gpu)
    except ArchError as e:
        pytest.skip(e.message)
    found = bounds_of(case, gpu)
    took = cujit.time(launch(case, gpu), device=gpu, flush_cache=case.unit == "memory")
    for bound in found.bounds:
        assert took.min_ms * 1e-3 >= certain_s(found, bound), f"{bound.unit}: {bound.amount} {bound.what}"
