"""No launch on a GPU beats a bound: one that did would be wrong."""

from __future__ import annotations

import pytest

import cujit
from bounds.bounded import CASES, Case, bounds_of, certain_s, launch
from cujit.devices.device import Device
from cujit.errors import ArchError
from cujit.profile import peaks


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.kernel)
def test_each_kernel_keeps_the_part_busy_that_it_is_for(case: Case) -> None:
    found = bounds_of(case._replace(blocks=132), "H200")
    assert found.bounds[0].unit == case.unit
    assert found.seconds > 0


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.kernel)
def test_no_bound_is_beaten(gpu: Device, case: Case) -> None:
    try:
        peaks(gpu)
    except ArchError as e:
        pytest.skip(e.message)
    found = bounds_of(case, gpu)
    took = cujit.time(launch(case, gpu), device=gpu, flush_cache=case.unit == "memory")
    for bound in found.bounds:
        assert took.min_ms * 1e-3 >= certain_s(found, bound), f"{bound.unit}: {bound.amount} {bound.what}"
