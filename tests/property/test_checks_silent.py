"""Random kernels that do nothing wrong are silent under every check, and compute what they compute without."""

from __future__ import annotations

import functools
import random
import re

import numpy as np
import numpy.typing as npt
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import cujit
from cujit.devices.device import Device
from cujit.devices.process import process_devices
from cujit.devices.shapes import Dim3
from property import test_barriers, test_divergence, test_regions, test_vector_accesses
from property.effort import times

BLOCKS = 2
RACES = re.compile(r"shl\.b32 %r35, (3|12),")
"""Where pairs lie apart by no power of two, threads share words of shared memory."""
SEEDS = st.integers(0, 2**32 - 1)
_NOT_SYNC = "memory,race,init"
SHARED_BY_BLOCKS = "mad.wide.u32 at, t, 4, at;"
"""A thread writes its word twice at times, so blocks with the same words would race."""


@functools.cache
def devices(check: str) -> tuple[Device, Device]:
    return process_devices().cpu(1), process_devices().cpu(1, check=check)


def compare(ptx: str, kernel: str, block: Dim3, words: int, *more: int, check: str = "all") -> None:
    """Launch with and without checks; ``words`` are what a thread writes."""
    plain, checked = (
        _launched(device, ptx, kernel, block, np.zeros(BLOCKS * block.volume * words, np.uint32), *more)
        for device in devices(check)
    )
    np.testing.assert_array_equal(checked, plain)


def _launched(
    device: Device, ptx: str, kernel: str, block: Dim3, blank: npt.NDArray[np.uint32], *more: int
) -> npt.NDArray[np.uint32]:
    out = device.array(blank)
    cujit.load(cujit.Artifact.of(ptx), device)[kernel][BLOCKS, tuple(block)](out, *more)
    return out.numpy()


@settings(max_examples=times(3))
@given(SEEDS, st.sampled_from([32, 40, 64, 96]))
def test_barriers_in_divergent_code(seed: int, block: int) -> None:
    """Threads skip barriers and leave, which the sync check reports."""
    ptx = test_barriers.as_ptx(test_barriers.random_body(random.Random(seed), 3))
    own = "mov.u32 u, %ctaid.x; mov.u32 x, %ntid.x; mad.lo.u32 u, u, x, t; mad.wide.u32 at, u, 4, at;"
    assert ptx.count(SHARED_BY_BLOCKS) == 1
    compare(ptx.replace(SHARED_BY_BLOCKS, own), "k", Dim3(block), 1, check=_NOT_SYNC)


@settings(max_examples=times(3))
@given(SEEDS, st.sampled_from(sorted(test_divergence.TOGETHER)), st.sampled_from([32, 40]), st.integers(0, 7))
def test_warp_operations_have_no_findings(seed: int, together: str, block: int, common: int) -> None:
    nodes = test_divergence.random_graph(seed, [f"warp {together}"])
    compare(test_divergence.as_ptx(nodes), "walk", Dim3(block), 5, common)


@settings(max_examples=times(3))
@given(SEEDS, st.sampled_from(test_regions.SHAPES), st.integers(0, 3))
def test_values_handed_over_between_barriers(seed: int, block: Dim3, common: int) -> None:
    """Warps wait at different barriers, which the sync check reports."""
    compare(test_regions.Writer(seed).text(), "walk", block, test_regions.VALUES, common, check=_NOT_SYNC)


@settings(max_examples=times(3))
@given(SEEDS, st.sampled_from(test_vector_accesses.SHAPES), st.integers(0, 3))
def test_shared_memory_at_patterns(seed: int, block: Dim3, common: int) -> None:
    text = test_vector_accesses.Writer(seed).text()
    assume(not RACES.search(text))
    compare(text, "walk", block, test_regions.VALUES, common)
