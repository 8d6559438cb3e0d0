"""Every launch around what binds it, directives, sizes of the device, shared memory, is taken as an H200 takes it."""

from __future__ import annotations

import functools
import json
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cujit
from cujit.devices.device import Device
from cujit.devices.shapes import Dim3, LaunchShape, Limits, Resources, check_launch, keeps_limits
from cujit.errors import LaunchError
from devices.launch_table import GOLDENS, ROWS, Entry, Row, ptx_of
from raising import raises

SAMPLE = 40


@functools.cache
def goldens() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(GOLDENS.read_text())
    return found


ENTRIES = tuple(dict.fromkeys(row.entry for row in ROWS))
VALID = [entry for entry in ENTRIES if entry.name not in goldens()["not assembled"]]
INVALID = [entry for entry in ENTRIES if entry.name in goldens()["not assembled"]]


@functools.cache
def kernel(device: Device, entry: Entry) -> cujit.Kernel:
    return cujit.load(cujit.Artifact.of(ptx_of(entry)), device)["k"]


def is_taken(row: Row) -> bool:
    return row.key in goldens()["taken"][row.entry.name]


def prepared(device: Device, row: Row) -> cujit.Launch:
    return kernel(device, row.entry).prepare(row.grid, row.block, shared_bytes=row.dynamic, cluster=row.cluster)


def accepts(device: Device, row: Row) -> bool:
    try:
        prepared(device, row)
    except LaunchError:
        return False
    return True


@pytest.mark.parametrize("entry", VALID, ids=lambda e: e.name)
def test_launch_bounds_are_checked_as_on_a_gpu(cpu: Device, entry: Entry) -> None:
    rows = [row for row in ROWS if row.entry == entry]
    assert [row.key for row in rows if accepts(cpu, row) != is_taken(row)] == []


@pytest.mark.parametrize("entry", INVALID, ids=lambda e: e.name)
def test_directives_that_no_assembler_accepts_are_refused(cpu: Device, entry: Entry) -> None:
    with raises(cujit.errors.PtxSyntaxError, "ptx-syntax", "<ptx>:5"):
        kernel(cpu, entry)


def test_accepted_launch_has_the_sizes_of_a_gpu(device: Device) -> None:
    if device.is_gpu and device.arch.number < 90:
        pytest.skip(f"{device} has no clusters")
    taken = [row for row in ROWS if row.entry in VALID and is_taken(row) and max(row.grid) <= 32]
    unlike = goldens()["unlike"]
    few = [row for row in taken if "clusters" in row.entry.name or ("reqntid" in row.entry.name and row.block == (1,))]
    for row in [*random.Random(5).sample(taken, SAMPLE), *few]:
        out = device.zeros(11, np.uint32)
        prepared(device, row)(out)
        seen = out.numpy().tolist()
        expected = unlike.get(row.entry.name, {}).get(row.key, row.sizes)
        assert [*seen[:9], seen[9]] == [*expected, row.dynamic], (row.entry.name, row.key)


@pytest.mark.gpu
def test_gpu_accepts_the_recorded_launches(gpu: Device) -> None:
    if gpu.product != goldens()["origin"].split(";")[0].removeprefix("NVIDIA "):
        pytest.skip("the goldens are of another GPU")
    wrong = []
    for row in random.Random(7).sample([row for row in ROWS if row.entry in VALID], 1000):
        out = gpu.zeros(11, np.uint32)
        try:
            prepared(gpu, row)(out)
            taken = True
        except (LaunchError, cujit.errors.DriverError):
            taken = False
        if taken != is_taken(row):
            wrong.append((row.entry.name, row.key))
    gpu.synchronize()
    assert wrong == []


@settings(max_examples=200, deadline=None)
@given(
    sizes=st.tuples(*[st.sampled_from([1, 2, 31, 64, 65, 1024, 1025, 65535, 65536, 1 << 31])] * 6),
    shared=st.sampled_from([0, 1, 1000, 1001, 5000]),
    threads=st.sampled_from([1, 64, 512, 1024, 2048]),
)
def test_launch_fits_if_no_error_is_found(sizes: tuple[int, ...], shared: int, threads: int) -> None:
    limits = Limits(1024, Dim3(1024, 1024, 64), Dim3((1 << 31) - 1, 65535, 65535), 4000, 5000, 1, 32, 2048)
    shape, resources = LaunchShape(Dim3(*sizes[:3]), Dim3(*sizes[3:]), shared), Resources(32, 4000, 0, 0, threads)
    try:
        check_launch("k", shape, limits, resources)
    except LaunchError:
        assert not keeps_limits(shape, limits, resources)
    else:
        assert keeps_limits(shape, limits, resources)
