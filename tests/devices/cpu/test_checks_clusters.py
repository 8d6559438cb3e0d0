"""Races between the blocks of a cluster in each other's shared memory: each mistake is found with both lines."""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest

import cujit
from cujit.devices.device import Device
from cujit.errors import KernelFaultError
from groups import GROUPS

pytestmark = pytest.mark.usefixtures("unoptimised")

# Each kernel is `name(int *out, int fault)` in clusters of four blocks of 64 threads, which writes 64 words a block.
# It is right with fault 0; a line that a finding has to name ends in // and the letter of a fault.
CODE = (
    GROUPS
    + r"""
#include <cstdint>
namespace cg = cooperative_groups;
static __device__ unsigned sh(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }
static __device__ unsigned of(unsigned rank, const void *p) {
    unsigned a;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(a) : "r"(sh(p)), "r"(rank));
    return a;
}
#define init(bar, count) asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(sh(bar)), "r"(count) : "memory")
static __device__ void ready() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
#define arrive_at(bar) \
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" :: "r"(bar) : "memory")
#define put(to, value) asm volatile("st.shared::cluster.u32 [%0], %1;" :: "r"(to), "r"(value) : "memory")
static __device__ void expect(uint64_t *bar, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" :: "r"(sh(bar)), "r"(bytes) : "memory");
}
static __device__ void until(uint64_t *bar, int parity) {
    asm volatile("{ .reg .pred p; L: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1; @!p bra L; }"
                 :: "r"(sh(bar)), "r"(parity) : "memory");
}
#define to_all(to, from, bar) \
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster " \
                 "[%0], [%1], 256, [%2], %3;" :: "r"(sh(to)), "l"(from), "r"(sh(bar)), "h"((short)15) : "memory")
#define CLUSTER extern "C" __global__ void __cluster_dims__(4)
#define MINE out[blockIdx.x * 64 + t]

CLUSTER met(int *out, int fault) {
    __shared__ int s[64], inbox[64];
    auto cluster = cg::this_cluster();
    int t = threadIdx.x, r = cluster.block_rank();
    s[t] = t + r;
    inbox[t] = 0;
    if (fault != 1) cluster.sync();
    int v = cluster.map_shared_rank(s, r ^ 1)[63 - t];                         // 1 3 5
    if (fault == 3) s[t] = v;                                                  // 3
    cluster.map_shared_rank(inbox, r ^ 2)[t] = v;                              // 4 5
    if (fault == 4 && t == 5) *cluster.map_shared_rank(inbox, (r + 1) & 3) = v;  // 4
    if (fault != 5) cluster.sync();
    MINE = inbox[t];                                                           // 5
    if (fault == 2) MINE = cluster.map_shared_rank(s, r ^ 3)[t];                // 2
}

CLUSTER counted(int *out, int fault) {
    __shared__ int bins[64];
    __shared__ unsigned char bytes[64];
    auto cluster = cg::this_cluster();
    int t = threadIdx.x, r = cluster.block_rank();
    if (fault == 2) cluster.sync();
    bins[t] = 0;                                                               // 2
    if (fault != 2) cluster.sync();
    atomicAdd(cluster.map_shared_rank(bins, 3 - r) + t, t + r);                // 1 2
    cluster.map_shared_rank(bytes, 0)[4 * (t % 16) + r] = (unsigned char)(t % 16 + r);
    if (fault == 1) bins[t] = 7;                                               // 1
    cluster.sync();
    MINE = bins[t] + cluster.map_shared_rank(bytes, 0)[4 * (t % 16) + r];
    cluster.sync();
}

// Blocks hand a word round: each writes into the next one's shared memory, and tells it by an mbarrier there.
CLUSTER handed(int *out, int fault) {
    __shared__ int s[64];
    __shared__ uint64_t full, free_;
    auto cluster = cg::this_cluster();
    int t = threadIdx.x, sum = 0;
    unsigned r = cluster.block_rank(), next = (r + 1) & 3, before = (r + 3) & 3;
    if (fault == 1) cluster.sync();
    if (t == 0) {
        init(&full, 64);                                                       // 1
        init(&free_, 64);
        ready();
    }
    if (fault == 1) __syncthreads();
    else cluster.sync();
    for (int i = 0; i < 4; i++) {
        if (i && fault != 2) until(&free_, (i - 1) & 1);
        put(of(next, s + t), i + t);                                           // 2 3 4
        arrive_at(of(next, &full));                                            // 1
        if (fault == 3 && i == 2) put(of(next, s + t), 9);                     // 3
        until(&full, fault == 4 ? (i + 1) & 1 : i & 1);                        // 2
        sum += s[t ^ 1];                                                       // 2 3 4
        arrive_at(of(before, &free_));                                         // 5
    }
    MINE = sum;
    if (fault != 5) until(&free_, 1);
}

CLUSTER shared_out(const int *x, int *out, int fault) {
    __shared__ __align__(128) int s[4][64];
    __shared__ uint64_t full;
    auto cluster = cg::this_cluster();
    int t = threadIdx.x, r = cluster.block_rank();
    if (fault == 2) cluster.sync();
    if (t == 0) { init(&full, 1); ready(); expect(&full, 1024); }               // 2
    if (fault == 2 || fault == 1) __syncthreads();
    else cluster.sync();
    if (t == 0)
        to_all(s[r], x + 64 * r, &full);                                       // 1 2
    if (fault != 3) until(&full, 0);
    MINE = s[(r + 1) & 3][63 - t];                                             // 3
    cluster.sync();
}

CLUSTER swapped(int *out, int fault) {
    auto cluster = cg::this_cluster();
    int t = threadIdx.x, v = t + 100 * cluster.block_rank();
    for (int k = 0; k < 4; k++) {
        MINE = v;                                                              // 1 2
        if (fault != 1 || k < 3) cluster.sync();
        v = out[(blockIdx.x ^ 1) * 64 + t];                                    // 1 2
        if (fault != 2 || k < 2) cluster.sync();
    }
    MINE = v;
}
"""
)
KERNELS = {
    "met": (
        "an access before the cluster meets",
        "an access after it met last",
        "a write that another block's read is unordered with",
        "two blocks that write one word",
        "no barrier behind what others write",
    ),
    "counted": ("a plain store beside atomic operations", "an atomic operation on what is not ready"),
    "handed": (
        "an mbarrier that is told before its init",
        "no wait for the free slot",
        "a write after the arrival",
        "the wrong phase",
        "an arrival at a block that has ended",
    ),
    "shared_out": (
        "a copy to blocks that may not have begun",
        "a copy that tells an mbarrier before its init",
        "no wait for a copy to all",
    ),
    "swapped": ("no barrier before a read of global memory", "no barrier before it is written again"),
}
FAULTS = [(name, k + 1) for name, faults in KERNELS.items() for k in range(len(faults))]
IDS = [f"{name}: {words}" for name, faults in KERNELS.items() for words in faults]
T, R = np.arange(64), np.arange(4)[:, None]
EXPECTED = {
    "met": (63 - T) + (R ^ 2 ^ 1),
    "counted": T + 3 - R + T % 16 + R,
    "handed": 4 * (T ^ 1) + 6 + 0 * R,
    "shared_out": 64 * ((R + 1) & 3) + 63 - T,
    "swapped": T + 100 * R,
}


@functools.cache
def image() -> cujit.Artifact:
    return cujit.compile(CODE, arch="compute_90", lineinfo=True)


@functools.cache
def checked(check: str, schedule: int | None) -> tuple[Device, cujit.Module]:
    """Load the kernels on a device, which keeps its compiled kernels for several tests."""
    device = cujit.cpu(check=check) if schedule is None else cujit.cpu(check=check, schedule=schedule)
    return device, cujit.load(image(), device)


def launch(device: Device, module: cujit.Module, name: str, fault: int) -> tuple[cujit.Launch, tuple[object, ...]]:
    """Prepare a kernel: the launch and its arguments, ``out`` before the last."""
    x = (device.array(np.arange(256, dtype=np.int32)),) if name == "shared_out" else ()
    return module[name][8, 64], (*x, device.zeros((2, 4, 64), np.int32), fault)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("check", ["race", "all"])
def test_right_clusters_are_silent(name: str, check: str) -> None:
    device, module = checked(check, None)
    for _ in range(2):  # what the clusters of a launch before did does not count
        prepared, arguments = launch(device, module, name, 0)
        prepared(*arguments)
        np.testing.assert_array_equal(arguments[-2].numpy(), np.broadcast_to(EXPECTED[name], (2, 4, 64)))  # type: ignore[attr-defined]


@pytest.mark.parametrize(("name", "fault"), FAULTS, ids=IDS)
@pytest.mark.parametrize("schedule", [None, 1, 2])
def test_cluster_mistakes_are_found_with_their_line(name: str, fault: int, schedule: int | None) -> None:
    prepared, arguments = launch(*checked("race", schedule), name, fault)
    with pytest.raises(KernelFaultError) as caught:
        prepared(*arguments)
    error = str(caught.value)
    late = (name, fault) == ("handed", 2)  # two phases may end before a block looks, which then waits for ever
    assert caught.value.kind == "race" or (late and caught.value.kind == "deadlock"), error
    begin = CODE[: CODE.index(f"CLUSTER {name}(")].count("\n") + 1
    end = CODE.find("\n}\n", CODE.index(f"CLUSTER {name}("))
    lines = CODE[:end].split("\n")
    wanted = {k + 1 for k, line in enumerate(lines) if k + 1 > begin and re.search(rf"//[ \d]* {fault}\b", line)}
    named = {int(number) for number in re.findall(r"\.cu:(\d+)", error)}
    assert wanted & named, (wanted, error)


@pytest.mark.parametrize("name", KERNELS)
def test_right_clusters_are_equal_under_schedules(name: str) -> None:
    device = cujit.cpu()
    prepared, arguments = launch(device, cujit.load(image(), device), name, 0)
    assert prepared.under_schedules(*arguments, schedules=20).equal
