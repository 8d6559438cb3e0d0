"""What several warps do together: the warps of a warpgroup meet at wgmma, whatever order they run in."""

from __future__ import annotations

import re

import numpy as np
import pytest

import cujit
from cujit.devices.device import Device
from cujit.errors import KernelFaultError
from cujit.formats.ptx.concrete import concrete_forms
from cujit.formats.ptx.isa.semantics import Collective, form_of
from cujit.formats.ptx.isa.table import rows
from raising import raises

# -- the scope of every instruction ---------------------------------------------------------------------------


def test_every_multi_lane_instruction_has_its_scope() -> None:
    """An instruction that a manual's word makes one of several lanes is never done by a lane alone."""
    for row in rows():
        for words in concrete_forms(row):
            form = form_of(row.opcode, *words)
            name = ".".join((row.opcode, *words))
            if row.opcode == "wgmma":
                assert form.collective is Collective.WARPGROUP, name
            elif "cluster" in words and row.opcode == "barrier":
                assert form.collective is Collective.CLUSTER, name
            elif row.opcode == "barrier" or (row.opcode == "bar" and "warp" not in words):
                assert form.collective is Collective.BLOCK, name
            elif "sync" in words or "aligned" in words:
                assert form.collective is Collective.WARP, name
            else:
                # Only the oldest products have no word for it.
                assert form.collective is Collective.LANE or row.opcode == "wmma", name


# -- results as if all four warps had arrived -----------------------------------------------------------------

_SOURCE = r"""
__device__ unsigned long long desc(unsigned a) {
    return ((a & 0x3FFFFull) >> 4) | (1ull << 16) | (64ull << 32) | (1ull << 62);
}
__device__ unsigned short *place(unsigned short *t, int i) {
    int r = i / 64, c = i % 64;
    return t + r * 64 + (((c / 8) ^ (r % 8)) * 8 + c % 8);
}
__device__ void product(float *d, unsigned long long at) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, %4, %5, 1, 1, 1, 0, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(at), "l"(at));
}
#define SYNC(words) asm volatile("wgmma." words ";" ::: "memory")
/* Warp w comes late by late[w] turns of waiting for nothing; each warp writes its quarter of the tile, again for each
   round, and overwrites it when the products of the round are done. No barrier is there but wgmma itself. */
extern "C" __global__ void rounds(const unsigned short *A, float *D, const int *late, int count) {
    __shared__ __align__(1024) unsigned short all[2][4096];
    __shared__ volatile int never;
    unsigned short *t = all[threadIdx.x / 128];
    int w = threadIdx.x / 32 % 4, l = threadIdx.x % 32;
    for (int round = 0; round < count; round++) {
        for (int k = 0; k < late[(w + round) % 4]; k++) if (never == 12345 + k) __nanosleep(1);
        for (int j = l; j < 1024; j += 32) *place(t, j * 4 + w) = A[round * 4096 + j * 4 + w];
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        unsigned long long at = desc((unsigned)__cvta_generic_to_shared(t));
        float d[4] = {0, 0, 0, 0};
        SYNC("fence.sync.aligned");
        for (int k = 0; k < 4; k++) product(d, at + 2 * k);
        SYNC("commit_group.sync.aligned");
        SYNC("wait_group.sync.aligned 0");
        for (int j = l; j < 1024; j += 32) *place(t, j * 4 + w) = 0x7fc0;
        float *to = D + (((threadIdx.x / 128) * count + round) * 64 + w * 16 + l / 4) * 8 + l % 4 * 2;
        for (int i = 0; i < 4; i++) to[i / 2 * 64 + i % 2] = d[i];
    }
}
"""


def _bf16(values: np.ndarray) -> np.ndarray:
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


@pytest.fixture(scope="module")
def program() -> cujit.Artifact:
    return cujit.compile(_SOURCE, arch="compute_90a")


@pytest.mark.parametrize("late", [(0, 0, 0, 0), (0, 40, 80, 120), (90, 0, 60, 30), (0, 0, 0, 200)])
@pytest.mark.parametrize("block", [128, 256])
def test_products_read_the_writes_of_all_four_warps(
    late: tuple[int, ...], block: int, program: cujit.Artifact, cpu: Device
) -> None:
    rng = np.random.default_rng(0)
    a = rng.integers(-3, 4, (3, 64, 64)).astype(np.float32)
    out = cpu.zeros((block // 128, 3, 64, 8), np.float32)
    kernel = cujit.load(program, cpu)["rounds"]
    kernel[1, block](cpu.array(_bf16(a)), out, cpu.array(np.array(late, np.int32)), 3)
    np.testing.assert_array_equal(out.numpy(), np.broadcast_to(a @ a[:, :8].transpose(0, 2, 1), out.shape))


# -- warps that do not come -----------------------------------------------------------------------------------

_HEAD = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out)
{ .reg .b32 w, lane; .reg .pred p, q;
  mov.u32 w, %tid.x; shr.u32 w, w, 5; mov.u32 lane, %laneid; setp.eq.u32 p, w, 3; setp.lt.u32 q, lane, 7;
"""
_APART = {
    "another_instruction": (
        "@p bra OTHER; wgmma.fence.sync.aligned; bra END; OTHER: wgmma.commit_group.sync.aligned; END: ret; }",
        128,
        r"warps 0-2 waited at PTX line \d+: .*wgmma.fence.*\n    warp 3 reached PTX line \d+: .*wgmma.commit_group",
    ),
    "one_exits": ("@p exit; wgmma.fence.sync.aligned; ret; }", 128, r"warps 0-2 waited at PTX .*\n    warp 3 exited"),
    "one_goes_past": (
        "@p bra END; wgmma.wait_group.sync.aligned 0; END: ret; }",
        256,
        r"warps 0-3, did not all reach the same instruction:\n    warps 0-2 waited at PTX line .*\n    warp 3 exited",
    ),
    "one_has_exited_before": (
        "setp.eq.u32 p, w, 0; @p exit; wgmma.fence.sync.aligned; ret; }",
        128,
        r"warp 1 reached PTX line .*wgmma.fence.*\n    warp 0 exited",
    ),
    "there_are_two": ("wgmma.fence.sync.aligned; ret; }", 64, r"warp 0 reached PTX line .*\n    the block has 2 warps"),
    "the_last_group_has_one": ("wgmma.fence.sync.aligned; ret; }", 160, r"warp 4 reach.*\n    the block has 5 warps"),
}  # fmt: skip


@pytest.mark.parametrize("name", _APART)
@pytest.mark.parametrize("check", [None, "all"])
def test_missing_warps_are_named_with_their_lines(name: str, check: str | None) -> None:
    body, block, words = _APART[name]
    device = cujit.cpu(check=check)
    kernel = cujit.load(_HEAD + body.replace("; ", ";\n  "), device)["k"]
    with pytest.raises(KernelFaultError) as caught:
        kernel[1, block](device.zeros(1, np.uint64))
    assert caught.value.kind == "warps_apart"
    assert re.search(words, str(caught.value)), str(caught.value)
    assert "threadIdx.x / 128" in str(caught.value.help)
    assert caught.value.block == (0, 0, 0)


def test_warps_at_a_barrier_are_a_deadlock_with_both_places(cpu: Device) -> None:
    body = "@p bra OTHER;\n  wgmma.fence.sync.aligned;\n bra END;\n OTHER: bar.sync 0;\n END: ret; }"
    with pytest.raises(KernelFaultError) as caught:
        cujit.load(_HEAD + body, cpu)["k"][1, 128](cpu.zeros(1, np.uint64))
    assert caught.value.kind == "deadlock"
    assert "threads 0-95 at a warpgroup instruction, where 3 of 4 warps have arrived" in str(caught.value)
    assert "threads 96-127 at barrier 0" in str(caught.value)


def test_missing_lanes_are_named(cpu: Device) -> None:
    body = "@q bra OTHER;\n wgmma.fence.sync.aligned;\n bra END;\n OTHER: bar.warp.sync -1;\n END: ret; }"
    with raises(KernelFaultError, "fault-lanes-apart", "7-31", "0xffffffff") as caught:
        cujit.load(_HEAD + body, cpu)["k"][1, 128](cpu.zeros(1, np.uint64))
    assert caught.value.kind == "lanes_apart"


def test_warpgroup_on_two_paths_waits_for_all_lanes(cpu: Device) -> None:
    # The lanes of each warp part before, and come together again at the instruction.
    body = "@q bra OTHER;\n add.u32 w, w, 1;\n OTHER: wgmma.fence.sync.aligned;\n @p exit;\n ret; }"
    cujit.load(_HEAD + body, cpu)["k"][1, 128](cpu.zeros(1, np.uint64))


def test_false_predicate_in_all_warps_blocks_none(cpu: Device) -> None:
    body = "setp.eq.u32 p, w, 9;\n @p wgmma.fence.sync.aligned;\n ret; }"
    cujit.load(_HEAD + body, cpu)["k"][1, 64](cpu.zeros(1, np.uint64))


# -- clusters -------------------------------------------------------------------------------------------------

_PARTS = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out) .reqnctapercluster 2, 1, 1
{ .reg .b32 lane; .reg .pred q;
  mov.u32 lane, %laneid; setp.lt.u32 q, lane, 7; barrier.cluster.arrive;
  @q bra A;
  barrier.cluster.wait.aligned;
  bra E;
  A: barrier.cluster.wait.aligned;
  E: ret; }"""


def test_divergent_arrival_at_a_cluster_barrier_is_found() -> None:
    device = cujit.cpu(check="sync")
    with raises(KernelFaultError, "fault-sync", "7-31") as caught:
        cujit.load(_PARTS, device)["k"].prepare(2, 64)(device.zeros(1, np.uint64))
    assert (caught.value.kind, caught.value.line) == ("sync", 8)
    whole = _PARTS.replace("  @q bra A;\n", "")
    cujit.load(whole, device)["k"].prepare(2, 64)(device.zeros(1, np.uint64))
