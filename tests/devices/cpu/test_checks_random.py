"""The race check against an oracle: random accesses at addresses of their own, in epochs between barriers."""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt
import pytest

import cujit
from cujit.errors import KernelFaultError
from devices.cpu.launching import blank, run_ptx

pytestmark = pytest.mark.usefixtures("unoptimised")

THREADS, WORDS, EPOCHS, STEPS = 64, 160, 3, 5
READ, WRITE, ADD, MEET = range(4)
MANY = int(os.environ.get("CUJIT_RACES", "25"))
"""Programs of each seed; ``make checked`` sets more."""

_BODY = """
    for (int e = 0; e < EPOCHS; e++) {
        for (int k = e * STEPS; k < (e + 1) * STEPS; k++) {
            int kind = kinds[k], i = index[k * THREADS + t];
            if (kind == 3) { __syncwarp(); continue; }
            if (i < 0) continue;
            if (kind == 0) sum += s[i];
            if (kind == 1) s[i] = k * THREADS + t;
            if (kind == 2) atomicAdd(&s[i], 1);
        }
        __syncthreads();
    }
"""
_SOURCE = f"""
#define EPOCHS {EPOCHS}
#define STEPS {STEPS}
#define THREADS {THREADS}
template<typename T> __device__ void body(const int *kinds, const int *index, int *out) {{
    __shared__ T s[{WORDS}];
    int t = threadIdx.x; T sum = 0;
    for (int i = t; i < {WORDS}; i += THREADS) s[i] = i;
    __syncthreads();
{_BODY}
    out[t] = sum;
}}
extern "C" __global__ void words(const int *kinds, const int *index, int *out) {{ body<int>(kinds, index, out); }}
extern "C" __global__ void longs(const int *kinds, const int *index, int *out) {{
    body<unsigned long long>(kinds, index, out);
}}
"""
Numbers = npt.NDArray[np.int32]


def _program(rng: np.random.Generator) -> tuple[Numbers, Numbers]:
    """Make kinds and indices (-1: not at all): most threads stay at words of their own, in many orders.

    Of several atomic operations on a word the check remembers the last: other accesses meet those of one thread alone.
    """
    kinds = rng.choice([READ, READ, WRITE, WRITE, ADD, MEET], EPOCHS * STEPS).astype(np.int32)
    index = np.full((len(kinds), THREADS), -1, np.int32)
    threads = np.arange(THREADS)
    for epoch in range(EPOCHS):
        own = (rng.permutation(THREADS), threads ^ int(rng.choice([1, 4, 16, 32])), threads)[rng.integers(3)]
        steps = range(epoch * STEPS, (epoch + 1) * STEPS)
        contended = rng.random() < 0.2
        if contended:
            kinds[steps] = rng.choice([ADD, ADD, MEET], STEPS)
        for k in steps:
            places = own + THREADS * rng.integers(0, 2)
            if contended or (kinds[k] != ADD and rng.random() < 0.03):
                places = rng.integers(0, WORDS, THREADS)
            elif kinds[k] != ADD and rng.random() < 0.02:
                places = np.full(THREADS, rng.integers(WORDS))
            elif kinds[k] != ADD and rng.random() < 0.02:
                places = own * 2
            mask = threads >= 0
            if rng.random() < 0.6:
                mask = (threads & int(rng.choice([1, 2, 8, 32]))) != 0
            if rng.random() < 0.2:
                mask &= rng.random(THREADS) < 0.3
            index[k, mask] = places[mask]
    return kinds, index


def _races(kinds: Numbers, index: Numbers) -> bool:
    """Tell whether two threads access a word in one epoch, not both atomically, and not ordered within a warp."""
    for epoch in range(EPOCHS):
        seen: dict[int, list[tuple[int, int, int]]] = {}
        meetings = 0
        for k in range(epoch * STEPS, (epoch + 1) * STEPS):
            kind = int(kinds[k])
            if kind == MEET:
                meetings += 1
                continue
            for t in np.flatnonzero(index[k] >= 0).tolist():
                before = seen.setdefault(int(index[k, t]), [])
                for other, its, when in before:
                    if other == t or (kind == its and kind != WRITE):
                        continue
                    if other // 32 != t // 32 or when == meetings:
                        return True
                before.append((t, kind, meetings))
    return False


@pytest.mark.parametrize("kernel", ["words", "longs"])
@pytest.mark.parametrize("check", ["race", "all"])
def test_races_match_those_of_an_oracle(kernel: str, check: str) -> None:
    device = cujit.cpu(1, check=check)
    launch = cujit.jit(_SOURCE, names=["words", "longs"], device=device)[kernel][1, THREADS]
    rng = np.random.default_rng(13)
    expected = []
    for _ in range(MANY):
        kinds, index = _program(rng)
        expected.append(_races(kinds, index))
        found = ""
        try:
            launch(device.array(kinds), device.array(index), device.zeros(THREADS, np.int32))
        except KernelFaultError as error:
            found = error.kind
        assert found == ("race" if expected[-1] else ""), (kinds.tolist(), index.tolist())
    assert 0.1 < np.mean(expected) < 0.9


_NEIGHBOUR = """.shared .align 16 .b32 s[64]; setp.gt.u32 q1, t, 99; setp.eq.u32 q2, t, 0; mov.u32 r1, s;
mad.lo.u32 r2, t, 4, r1; st.shared.u32 [r2], t; {order}
xor.b32 r3, t, 1; mad.lo.u32 r2, r3, 4, r1; {read}"""
_PROXY = "@q2 cp.async.bulk.global.shared::cta.bulk_group [p0], [s], 128; @q2 cp.async.bulk.commit_group;"
_READ = "ld.shared.u32 r4, [r2]; st.global.u32 [at], r4;"


@pytest.mark.parametrize(
    ("order", "read"),
    [
        ("bar.warp.sync -1;", _READ),
        ("fence.proxy.async; bar.sync 0;", _PROXY + "@q2 cp.async.bulk.wait_group 0;"),
    ],
    ids=["__syncwarp", "fence.proxy.async"],
)
def test_ordering_operation_needs_an_executing_lane(order: str, read: str) -> None:
    device, skipped = cujit.cpu(check="race"), order.replace("bar.warp", "@q1 bar.warp").replace("fence", "@q1 fence")
    run_ptx(device, _NEIGHBOUR.format(order=order, read=read), blank(32))
    with pytest.raises(KernelFaultError) as caught:
        run_ptx(device, _NEIGHBOUR.format(order=skipped, read=read), blank(32))
    assert caught.value.kind == "race"
