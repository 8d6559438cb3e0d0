"""The race check: what arrivals order that are for others: by one lane of a warp, or relaxed ones of a cluster."""

from __future__ import annotations

import numpy as np
import pytest

import cujit
from cujit.errors import KernelFaultError
from devices.cpu.pipeline_mistakes import HEAD

pytestmark = pytest.mark.usefixtures("unoptimised")

_ONE_LANE = """
extern "C" __global__ void k(int *o) {
    __shared__ int s[64]; __shared__ uint64_t full, empty; int t = threadIdx.x;
    s[t] = -t;
    if (t == 0) { INIT(&full, FULL); INIT(&empty, EMPTY); }
    __syncthreads();
    if (t < 32) { WRITER } else { UNTIL(&full, 0); READER }
}"""
WRITERS = {
    "no order": ("s[t] = t; if (t == 0) ARRIVE(&full);", True),
    "half of the lanes arrive": ("s[t] = t; if (t < 16) ARRIVE(&full);", True),
    "lanes meet too late": ("s[t] = t; if (t == 0) ARRIVE(&full); __syncwarp();", True),
    "lanes met before": ("__syncwarp(); s[t] = t; if (t == 0) ARRIVE(&full);", True),
    "__syncwarp": ("s[t] = t; __syncwarp(); if (t == 0) ARRIVE(&full);", False),
    "a vote": ("s[t] = t; if (__any_sync(~0u, t == 3) && t == 0) ARRIVE(&full);", False),
    "all lanes arrive": ("s[t] = t; ARRIVE(&full);", False),
    "a lane arrives for itself": ("if (t == 0) { for (int k = 0; k < 32; k++) s[k] = k; ARRIVE(&full); }", False),
    "lanes arrive again": ("s[t] = t; if (t == 0) ARRIVE(&full); __syncwarp(); if (t == 0) ARRIVE(&full);", False),
    "lanes arrive one after the other": ("s[t] = t; for (int k = 0; k < 32; k++) if (t == k) ARRIVE(&full);", False),
}
"""What the writing warp does, and whether that is a race; the count of arrivals is that of ``_COUNTS``, or 1."""
_COUNTS = {
    "half of the lanes arrive": 16,
    "all lanes arrive": 32,
    "lanes arrive again": 2,
    "lanes arrive one after the other": 32,
}
READERS = {"no order": ("", True), "__syncwarp": ("__syncwarp();", False)}


def _one_lane(writer: str, reader: str, full: int, empty: int = 1) -> str:
    text = _ONE_LANE.replace("FULL", str(full)).replace("EMPTY", str(empty))
    return text.replace("WRITER", writer).replace("READER", reader)


def _error(text: str, grid: int, schedule: int | None = None) -> str:
    """Run a kernel; return what the race check finds, or nothing."""
    device = cujit.cpu(1, check="race", schedule=schedule)
    image = cujit.compile(HEAD + text, arch="compute_90", lineinfo=True)
    launch, out = cujit.load(image, device)["k"].prepare(grid, 64), device.zeros(64 * grid, np.int32)
    try:
        launch(out)
    except KernelFaultError as error:
        return f"{error.kind}: {error.message}"
    return ""


@pytest.mark.parametrize("schedule", [None, 5])
@pytest.mark.parametrize("name", WRITERS)
def test_one_lane_arrives_for_what_its_warp_wrote(name: str, schedule: int | None) -> None:
    writer, wrong = WRITERS[name]
    message = _error(_one_lane(writer, "o[t] = s[63 - t];", _COUNTS.get(name, 1)), 1, schedule)
    assert message.startswith("race: ") == wrong == bool(message), message
    assert not wrong or message.count("from source.cu:") == 2
    words = "wrote with no __syncwarp() before another lane of its warp arrived at an mbarrier in between"
    assert not wrong or words in message or schedule is not None


@pytest.mark.parametrize("name", READERS)
def test_one_lane_arrives_for_what_its_warp_read(name: str) -> None:
    between, wrong = READERS[name]
    writer = "s[t] = t; ARRIVE(&full); UNTIL(&empty, 0); s[t] = 2 * t;"
    reader = f"o[t] = s[63 - t]; {between} if (t == 32) ARRIVE(&empty);"
    message = _error(_one_lane(writer, reader, 32), 1)
    assert message.startswith("race: ") == wrong == bool(message), message
    assert not wrong or "read with no __syncwarp() before another lane" in message


_RELAXED = """
extern "C" __global__ void __cluster_dims__(2) k(int *o) {
    __shared__ int s[64]; __shared__ uint64_t bar; int t = threadIdx.x, r = rank_();
    int *far; asm("mapa.u64 %0, %1, %2;" : "=l"(far) : "l"(s), "r"(r ^ 1));
    s[t] = 0;
    CLUSTER();
    BEFORE
    FENCE_
    RUN("barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;", ::);
    AFTER
    END
}"""
_FENCES = {
    "": True,
    "__threadfence();": False,
    'RUN("fence.acq_rel.cluster;", ::);': False,
    "__syncthreads(); if (t == 0) __threadfence();": False,
    "__threadfence_block();": True,
}
_PAIRS = {
    "own write, far read": ("s[t] = t;", "o[64 * r + t] = far[t];"),
    "far write, own read": ("far[t] = t;", "o[64 * r + t] = s[t];"),
    "far read, own write": ("o[64 * r + t] = far[t];", "s[t] = t;"),
    "own read, far write": ("o[64 * r + t] = s[t];", "far[t] = t;"),
    "bytes": ("((char *)s)[t] = t;", "o[64 * r + t] = ((char *)far)[t];"),
}
_KEPT = {
    "a block that has only to have begun": ("", "far[t] = t;", "CLUSTER();"),
    "a block that has only not to end": ("s[t] = t; CLUSTER(); o[64 * r + t] = far[t];", "", ""),
    "an mbarrier": (
        "if (t == 0) { INIT(&bar, 64); READY(); }",
        "ARRIVE_AT(of(r ^ 1, &bar)); UNTIL(&bar, 0);",
        "CLUSTER();",
    ),
}


def _relaxed(before: str, fence: str, after: str, end: str) -> str:
    text = _RELAXED.replace("BEFORE", before).replace("FENCE_", fence)
    return text.replace("AFTER", after).replace("END", end)


@pytest.mark.parametrize("fence", _FENCES)
@pytest.mark.parametrize("pair", _PAIRS)
def test_relaxed_arrival_of_a_cluster_needs_a_fence(pair: str, fence: str) -> None:
    before, after = _PAIRS[pair]
    message = _error(_relaxed(before, fence, after, "CLUSTER();"), 2)
    assert message.startswith("race: ") == _FENCES[fence] == bool(message), message
    assert not message or "no fence before barrier.cluster.arrive.relaxed" in message
    assert not message or message.count("from source.cu:") == 2


@pytest.mark.parametrize("name", _KEPT)
def test_relaxed_arrival_tells_that_a_block_is_there(name: str) -> None:
    before, after, end = _KEPT[name]
    assert not _error(_relaxed(before, "", after, end), 2)
