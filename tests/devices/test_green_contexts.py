"""Green contexts: streams that have some of a device's SMs, on every device; and what a GPU refuses."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cujit.devices.device import Device
from cujit.emulator.settings import EmulatorSettings
from cujit.errors import ArgumentError, ClosedError, LaunchError
from cujit.loading import jit
from devices.cuda.gpus import context_of
from emulator.programs import python
from raising import raises

ADD = """
extern "C" __global__ void add(float *x, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += a;
}
"""
SEEN = """
extern "C" __global__ void seen(unsigned *smids) {
    unsigned smid;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(smid));
    long long start = clock64();
    while (clock64() - start < 200000) {}
    smids[blockIdx.x] = smid;
}
"""


def halves(device: Device) -> Any:
    return device.green_contexts(max(device.limits.processors // 2, 1), None)


def test_launches_copies_and_graphs_run_in_its_streams(device: Device) -> None:
    add = jit(ADD, device=device)["add"]
    (half,) = device.green_contexts(max(device.limits.processors // 2, 1))
    stream, other = half.stream(), device.stream()
    x = device.array(np.ones(1000, np.float32), stream=stream)
    add[4, 256, 0, stream](x, 1.0, 1000)
    other.wait(stream)
    add[4, 256, 0, other](x, 2.0, 1000)
    stream.wait(other)
    with device.capture(stream) as graph:
        add[4, 256, 0, stream](x, 0.5, 1000)
    graph.launch()
    event = stream.record()
    event.synchronize()
    assert event.done
    assert (x.numpy(stream=stream) == 4.5).all()


def test_stream_outlives_its_green_context(device: Device) -> None:
    add = jit(ADD, device=device)["add"]
    x = device.zeros(1000, np.float32)
    with device.green_contexts(1)[0] as small:
        assert small.sm_count >= 1
        stream = small.stream(priority=0)
    with raises(ClosedError, "closed"):
        small.stream()
    add[4, 256, 0, stream](x, 1.0, 1000)
    stream.synchronize()
    assert (x.numpy() == 1).all()
    assert repr(small) == f"<GreenContext of {device.name}: {small.sm_count} SMs closed>"


@pytest.mark.parametrize("counts", [(), (0,), (-8, None), (None, None), (1.5,), (True,)])
def test_invalid_sm_count_is_refused(device: Device, counts: tuple[Any, ...]) -> None:
    with pytest.raises(ArgumentError):
        device.green_contexts(*counts)


def test_invalid_priority_is_refused(device: Device) -> None:
    with pytest.raises(LaunchError):
        device.green_contexts(1)[0].stream(priority="high")  # type: ignore[arg-type]


def test_cpu_device_accepts_every_count(cpu: Device) -> None:
    many, rest = cpu.green_contexts(1000, None)
    assert (many.sm_count, rest.sm_count) == (1000, 1)
    assert cpu.green_contexts(None)[0].sm_count == cpu.limits.processors


@pytest.mark.gpu
def test_gpu_has_each_sm_once(gpu: Device) -> None:
    if gpu.limits.processors < 2:
        pytest.skip("one SM cannot be split")
    first, rest = halves(gpu)
    assert first.sm_count >= gpu.limits.processors // 2
    assert gpu.limits.processors // 4 <= rest.sm_count <= gpu.limits.processors - first.sm_count
    with raises(LaunchError, "sm-count"):
        gpu.green_contexts(gpu.limits.processors, 1)


@pytest.mark.gpu
def test_stream_has_its_reported_number_of_sms(gpu: Device) -> None:
    context = context_of(gpu)
    if context.driver.version < (13, 1):
        pytest.skip("the driver cannot be asked")
    (half,) = gpu.green_contexts(max(gpu.limits.processors // 2, 1))
    kind = context.driver.bindings.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
    stream = half.stream()
    resource = context.call("cuStreamGetDevResource", stream.handle, kind)
    assert resource.sm.smCount == half.sm_count


@pytest.mark.hardware
@pytest.mark.gpu
def test_blocks_run_only_on_its_sms(gpu: Device) -> None:
    seen = jit(SEEN, device=gpu)["seen"]
    first, rest = halves(gpu)
    used = []
    for green in (first, rest):
        stream, smids = green.stream(), gpu.zeros(4 * gpu.limits.processors, np.uint32)
        seen[smids.size, 1, 0, stream](smids)
        stream.synchronize()
        used.append(set(smids.numpy().tolist()))
    assert [len(each) for each in used] == [first.sm_count, rest.sm_count]
    assert not used[0] & used[1]


MANY = """
import cujit
from raising import raises

gpu = cujit.gpu(0)
counts = lambda *asked: [each.sm_count for each in gpu.green_contexts(*asked)]
"""


def many(code: str, cc: tuple[int, int]) -> None:
    """Run a program with an emulated GPU of 44 SMs."""
    python(MANY + textwrap.dedent(code), EmulatorSettings(cc=cc, threads=44), {"PYTHONPATH": ":".join(sys.path)})


def test_gpu_splits_into_whole_groups() -> None:
    many(
        """
        assert counts(1) == [8] and counts(9, 8) == [16, 8] and counts(8, None, 8) == [8, 24, 8]
        assert counts(None) == [40], "what lies together otherwise cannot be in it"
        with raises(cujit.errors.LaunchError, "sm-count", 44, 6):
            counts(33, 8)
        """,
        (9, 0),
    )
    many("assert counts(1) == [2] and counts(9, None) == [10, 34]", (8, 6))


def test_green_context_lives_as_long_as_its_streams(tmp_path: Path) -> None:
    log = tmp_path / "calls"
    python(
        """
        import gc, cujit
        gpu = cujit.gpu(0)
        (first,) = gpu.green_contexts(1)
        stream = first.stream()
        del first; gc.collect()
        stream.synchronize()
        del stream; gc.collect()
        """,
        EmulatorSettings(log=str(log)),
    )
    calls = [line.split("(")[0].split()[-1].removesuffix("_v2") for line in log.read_text().splitlines()]
    begin, end = ["cuGreenCtxCreate", "cuGreenCtxStreamCreate"], ["cuStreamDestroy", "cuGreenCtxDestroy"]
    order = [*begin, "cuStreamSynchronize", *end]
    assert [call for call in calls if call in order] == order


def test_older_driver_is_reported_by_name() -> None:
    many(
        """
        gpu.backend.context.driver.version = (12, 4)
        with raises(cujit.errors.UnsupportedError, "unsupported", "12.5"):
            gpu.green_contexts(8)
        """,
        (9, 0),
    )
