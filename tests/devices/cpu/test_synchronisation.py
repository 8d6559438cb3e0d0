"""Barriers of a block in every form, and the lanes that come to them together, apart, or not at all."""

from __future__ import annotations

import numpy as np
import pytest

from cujit.devices.device import Device
from cujit.loading import jit
from devices.cpu.launching import blank, run_ptx

SHARED = ".shared .align 16 .b32 cells[1024];"

# Every thread leaves its square for its neighbour 33 further on.
NEIGHBOUR = """
mul.lo.u32 r1, t, t; mov.u32 r2, cells; mad.lo.u32 r3, t, 4, r2; mov.u32 r9, 5; mov.u32 r10, {count};
setp.ne.u32 q0, t, t;
st.shared.u32 [r3], r1;
{barrier};
add.u32 r4, t, 33; rem.u32 r4, r4, n; mad.lo.u32 r4, r4, 4, r2; ld.shared.u32 r5, [r4];
st.global.u32 [at], r5;
"""

WHOLE = [
    "bar.sync 0", "bar.cta.sync 7", "barrier.sync 0", "barrier.cta.sync 15", "barrier.sync.aligned 3",
    "barrier.cta.sync.aligned 0", "bar.sync r9", "barrier.sync r9", "bar.sync 1, {count}", "bar.sync r9, r10",
    "barrier.sync 2, r10", "barrier.sync.aligned r9, {count}", "bar.red.popc.u32 r11, 0, q0",
    "barrier.red.or.pred q1, 4, q0", "barrier.cta.red.and.aligned.pred q1, r9, r10, !q0",
    "@!q0 bar.sync 0", "@!q0 barrier.sync 1, r10",
]  # fmt: skip


@pytest.mark.parametrize("block", [32, 33, 96])
@pytest.mark.parametrize("barrier", WHOLE)
def test_no_thread_passes_a_barrier_before_all_arrive(device: Device, barrier: str, block: int) -> None:
    count = (block + 31) // 32 * 32
    body = NEIGHBOUR.format(barrier=barrier.format(count=count), count=count)
    (got,) = run_ptx(device, body, blank(3 * block), grid=3, block=block, outside=SHARED)
    t = np.arange(block, dtype=np.uint32)
    np.testing.assert_array_equal(got, np.tile(((t + 33) % block) ** 2, 3))


def test_block_of_the_largest_size_waits(device: Device) -> None:
    body = NEIGHBOUR.format(barrier="bar.sync 0", count=1024)
    (got,) = run_ptx(device, body, blank(1024), block=1024, outside=SHARED)
    np.testing.assert_array_equal(got, ((np.arange(1024) + 33) % 1024) ** 2)


# -- reductions -------------------------------------------------------------------------------------------

# Ten rounds; in round i thread t says yes where the word t * 10 + i of the second array is not 0.
ROUNDS = """
mov.u32 r1, 0; mov.u32 r6, 0; mov.u32 r7, {number}; mov.u32 r8, {count}; mul.wide.u32 d0, t, 40; add.u64 d0, d0, p1;
LOOP:
ld.global.u32 r2, [d0]; setp.ne.u32 q1, r2, 0;
{{ {operation} }}
mad.lo.u32 r6, r6, 3, r3; add.u64 d0, d0, 4; add.u32 r1, r1, 1; setp.lt.u32 q2, r1, 10; @q2 bra LOOP;
st.global.u32 [at], r6;
"""

REDUCTIONS = {
    "popc": ("{form}.red.popc.u32 r3, {operands}, q1;", lambda yes: yes.sum()),
    "not_popc": ("{form}.red.popc.u32 r3, {operands}, !q1;", lambda yes: (~yes).sum()),
    "and": ("{form}.red.and.pred q3, {operands}, q1; selp.u32 r3, 1, 0, q3;", lambda yes: yes.all()),
    "or": ("{form}.red.or.pred q3, {operands}, q1; selp.u32 r3, 1, 0, q3;", lambda yes: yes.any()),
}


@pytest.mark.parametrize("operands", ["0", "r7", "9, {count}", "r7, r8"])
@pytest.mark.parametrize("form", ["bar", "barrier.cta"])
@pytest.mark.parametrize("kind", REDUCTIONS)
def test_barrier_reduces_predicates(device: Device, kind: str, form: str, operands: str) -> None:
    block = 96
    text, reference = REDUCTIONS[kind]
    operation = text.format(form=form, operands=operands.format(count=block))
    yes = np.random.default_rng(5).random((block, 10)) < np.array([0.5, 0, 1, 0.01, 0.99, 0.5, 0, 1, 0.1, 0.9])
    body = ROUNDS.format(operation=operation, number=6, count=block)
    got, _ = run_ptx(device, body, blank(block), yes.astype(np.uint32), block=block)
    expected = 0
    for i in range(10):
        expected = expected * 3 + int(reference(yes[:, i]))  # type: ignore[no-untyped-call]
    assert got.tolist() == [expected] * block


def test_exited_threads_do_not_count(device: Device) -> None:
    # Each round a third of the threads that are left leave; the others count who is still there.
    text = """extern "C" __global__ void k(unsigned *out) {
        unsigned left = threadIdx.x, seen = 0;
        for (int i = 0; i < 5; i++) {
            if (left % 3 == 0) return;
            left /= 3;
            seen = seen * 128 + __syncthreads_count(1);
            out[threadIdx.x] = seen;
        }
    }"""
    out = device.array(np.zeros(100, np.uint32))
    jit(text, names=["k"], device=device)["k"][1, 100](out)
    left, seen, there = np.arange(100), np.zeros(100, np.uint64), np.ones(100, bool)
    for _ in range(5):
        there &= left % 3 != 0
        left //= 3
        seen[there] = seen[there] * 128 + there.sum()
    np.testing.assert_array_equal(out.numpy(), seen.astype(np.uint32))


# -- some of the warps ------------------------------------------------------------------------------------


def test_guard_keeps_warps_from_a_barrier(device: Device) -> None:
    body = """setp.lt.u32 q1, w, 2; mov.u32 r1, 0; mov.u32 r3, 99;
    mov.u32 r2, cells; mad.lo.u32 r4, t, 4, r2; xor.b32 r5, t, 32; mad.lo.u32 r5, r5, 4, r2;
    AGAIN: add.u32 r6, r1, t; @q1 st.shared.u32 [r4], r6; @q1 bar.sync 1, 64; @q1 ld.shared.u32 r3, [r5];
    @q1 bar.sync 1, 64; add.u32 r1, r1, 1; setp.lt.u32 q2, r1, 4; @q2 bra AGAIN;
    st.global.u32 [at], r3;"""
    (got,) = run_ptx(device, body, blank(96), block=96, outside=SHARED)
    t = np.arange(96)
    np.testing.assert_array_equal(got, np.where(t < 64, (t ^ 32) + 3, 99))


def test_producers_arrive_and_consumers_wait(device: Device) -> None:
    # Two buffers, each with a barrier "full" and one "empty". Source: PTX ISA 9.1, "bar", the last example.
    body = """mov.u32 r1, 0; mov.u32 r6, 0; mov.u32 r2, cells; mad.lo.u32 r3, lane, 4, r2;
    setp.eq.u32 q1, w, 0; setp.ge.u32 q2, w, 1;
    ROUND: and.b32 r4, r1, 1; shl.b32 r5, r4, 7; add.u32 r5, r5, r3; add.u32 r7, r4, 1; add.u32 r8, r4, 3;
    @q2 bra CONSUME;
    setp.lt.u32 q3, r1, 2; @q3 bra FREE; bar.sync r8, 96; FREE:
    mad.lo.u32 r9, r1, 100, lane; st.shared.u32 [r5], r9; bar.arrive r7, 96; bra NEXT;
    CONSUME: bar.sync r7, 96; ld.shared.u32 r9, [r5]; mad.lo.u32 r6, r6, 7, r9; bar.arrive r8, 96;
    NEXT: add.u32 r1, r1, 1; setp.lt.u32 q4, r1, 9; @q4 bra ROUND;
    setp.eq.u32 q5, w, 0; @q5 bar.sync 3, 96; @q5 bar.sync 4, 96;
    st.global.u32 [at], r6;"""
    (got,) = run_ptx(device, body, blank(96), block=96, outside=SHARED)
    lane, total = np.arange(32, dtype=np.uint32), np.zeros(32, np.uint32)
    for i in range(9):
        total = total * np.uint32(7) + (np.uint32(100 * i) + lane)
    np.testing.assert_array_equal(got, np.concatenate([np.zeros(32, np.uint32), total, total]))


def test_pairs_of_warps_use_their_own_barriers(device: Device) -> None:
    body = """shr.u32 r9, w, 1; mov.u32 r1, 0; mov.u32 r2, cells; mad.lo.u32 r3, t, 4, r2;
    xor.b32 r4, t, 32; mad.lo.u32 r4, r4, 4, r2; mov.u32 r5, t;
    AGAIN: st.shared.u32 [r3], r5; bar.sync r9, 64; ld.shared.u32 r6, [r4]; mad.lo.u32 r5, r5, 3, r6; bar.sync r9, 64;
    add.u32 r1, r1, 1; add.u32 r7, r9, 2; setp.lt.u32 q1, r1, r7; @q1 bra AGAIN;
    st.global.u32 [at], r5;"""
    (got,) = run_ptx(device, body, blank(256), block=256, outside=SHARED)
    t = np.arange(256)
    values = t.astype(np.uint32)
    for i in range(5):
        values = np.where(i < t // 64 + 2, values * np.uint32(3) + values[t ^ 32], values)
    np.testing.assert_array_equal(got, values)


# -- lanes apart ------------------------------------------------------------------------------------------


def test_both_arms_of_a_branch_meet_at_one_barrier(device: Device) -> None:
    body = """mov.u32 r2, cells; mad.lo.u32 r3, t, 4, r2; xor.b32 r4, t, 1; mad.lo.u32 r4, r4, 4, r2;
    and.b32 r5, t, 1; setp.eq.u32 q1, r5, 0; @q1 bra EVEN;
    mul.lo.u32 r6, t, 3; st.shared.u32 [r3], r6; barrier.sync 0; ld.shared.u32 r7, [r4]; add.u32 r7, r7, 1000; bra END;
    EVEN: mul.lo.u32 r6, t, 5; st.shared.u32 [r3], r6; barrier.sync 0; ld.shared.u32 r7, [r4];
    END: st.global.u32 [at], r7;"""
    (got,) = run_ptx(device, body, blank(80), block=80, outside=SHARED)
    t = np.arange(80)
    np.testing.assert_array_equal(got, np.where(t % 2, (t ^ 1) * 5 + 1000, (t ^ 1) * 3))


@pytest.mark.parametrize("guard", ["@q1 barrier.sync 0; @!q1 barrier.sync 0;", "@q1 bar.sync 0; @!q1 bar.sync 0;"])
def test_guards_of_both_kinds_meet(device: Device, guard: str) -> None:
    # An aligned barrier asks for all lanes of a warp: there the predicate is that of the warp.
    by = "w" if "bar.sync 0; @!" in guard and "barrier" not in guard else "t"
    body = f"""and.b32 r5, {by}, 1; setp.eq.u32 q1, r5, 0; mov.u32 r2, cells; mad.lo.u32 r3, t, 4, r2;
    st.shared.u32 [r3], t; {guard} sub.u32 r4, 63, t; mad.lo.u32 r4, r4, 4, r2; ld.shared.u32 r7, [r4];
    st.global.u32 [at], r7;"""
    (got,) = run_ptx(device, body, blank(64), block=64, outside=SHARED)
    assert got.tolist() == list(range(63, -1, -1))


def test_threads_with_fewer_waits_do_not_block_others(device: Device) -> None:
    # Thread t passes t % 5 + 1 barriers, counts who is there, and exits.
    body = """rem.u32 r1, t, 5; mov.u32 r6, 0; setp.eq.u32 q1, t, t;
    AGAIN: barrier.red.popc.u32 r2, 0, q1; mad.lo.u32 r6, r6, 128, r2; st.global.u32 [at], r6;
    sub.s32 r1, r1, 1; setp.ge.s32 q2, r1, 0; @q2 bra AGAIN;"""
    (got,) = run_ptx(device, body, blank(100), block=100)
    t = np.arange(100)
    seen = np.zeros(100, np.uint64)
    for i in range(5):
        there = t % 5 >= i
        seen[there] = seen[there] * 128 + there.sum()
    np.testing.assert_array_equal(got, seen.astype(np.uint32))


def test_barrier_in_one_branch_waits_for_exits_in_the_other(device: Device) -> None:
    body = """and.b32 r1, t, 3; setp.eq.u32 q1, r1, 0; @q1 bra LEAVE;
    barrier.sync 0; mov.u32 r2, cells; ld.shared.u32 r3, [r2]; st.global.u32 [at], r3; bra DONE;
    LEAVE: mov.u32 r2, cells; atom.shared.add.u32 r3, [r2], 1; st.global.u32 [at], 7; DONE:"""
    zero = "mov.u32 r2, cells; setp.eq.u32 q2, t, 0; @q2 st.shared.u32 [r2], 0; bar.sync 1;"
    (got,) = run_ptx(device, zero + body, blank(72), block=72, outside=SHARED)
    t = np.arange(72)
    np.testing.assert_array_equal(got, np.where(t % 4 == 0, 7, 18))


def test_lanes_of_a_warp_use_barriers_of_different_numbers(cpu: Device) -> None:
    # An H200 ends this with an illegal instruction: there the lanes of a warp use one barrier at a time.
    # The lower halves of two warps meet at barrier 1, the upper halves at 2.
    body = """shr.u32 r1, lane, 4; add.u32 r1, r1, 1; mov.u32 r2, cells; mad.lo.u32 r3, t, 4, r2;
    xor.b32 r4, t, 32; mad.lo.u32 r4, r4, 4, r2; mul.lo.u32 r5, t, 9; st.shared.u32 [r3], r5;
    setp.eq.u32 q1, r1, 1; @q1 barrier.sync 1, 32; @!q1 barrier.sync 2, 32;
    ld.shared.u32 r6, [r4]; st.global.u32 [at], r6;"""
    (got,) = run_ptx(cpu, body, blank(64), block=64, outside=SHARED)
    np.testing.assert_array_equal(got, (np.arange(64) ^ 32) * 9)


def test_lanes_leave_a_loop_while_others_wait_in_it(cpu: Device) -> None:
    # When the lanes of one warp meet again is the GPU's choice, so that it counts others than these.
    # The barrier in the loop and the one behind it are one and the same.
    text = """extern "C" __global__ void k(unsigned *out) {
        unsigned t = threadIdx.x, seen = 0;
        for (unsigned i = 0; i < 8; i++) {
            if (i == t % 9) break;
            unsigned c; asm volatile("{ .reg .pred p; setp.eq.u32 p, 1, 1; barrier.red.popc.u32 %0, 0, p; }" : "=r"(c));
            seen = seen * 3 + c;
        }
        for (unsigned i = t % 9; i < 8; i++) {
            unsigned c;
            asm volatile("{ .reg .pred p; setp.ne.u32 p, 1, 1; barrier.red.popc.u32 %0, 0, p; }" : "=r"(c) :: "memory");
            seen = seen * 5 + c;
        }
        out[t] = seen;
    }"""
    out = cpu.array(np.zeros(72, np.uint32))
    jit(text, names=["k"], device=cpu)["k"][1, 72](out)
    t = np.arange(72)
    seen = np.zeros(72, np.uint64)
    for i in range(8):
        inside = i < t % 9
        seen = np.where(inside, seen * 3, seen * 5) + np.uint64(inside.sum())
    np.testing.assert_array_equal(out.numpy(), seen.astype(np.uint32))


def test_every_warp_has_its_own_path_to_the_barrier(device: Device) -> None:
    # Warps take different numbers of steps between barriers, and lanes within them, too.
    text = """extern "C" __global__ void k(unsigned *out, int rounds) {
        __shared__ unsigned sum[2];
        unsigned t = threadIdx.x, h = t;
        if (t < 2) sum[t] = 0;
        __syncthreads();
        for (int r = 0; r < rounds; r++) {
            for (unsigned i = 0; i < (t * 7 + r) % 13; i++) h = h * 1664525u + 1013904223u;
            atomicAdd(&sum[r & 1], h);
            __syncthreads();
            h ^= sum[r & 1];
            if (t == 0) sum[~r & 1] = 0;
            __syncthreads();
        }
        out[blockIdx.x * blockDim.x + t] = h;
    }"""
    out = device.array(np.zeros(2 * 200, np.uint32))
    jit(text, names=["k"], device=device)["k"][2, 200](out, 6)
    t = np.arange(200)
    h = t.astype(np.uint32)
    for r in range(6):
        for i in range(13):
            h = np.where(i < (t * 7 + r) % 13, h * np.uint32(1664525) + np.uint32(1013904223), h)
        h = h ^ h.sum(dtype=np.uint32)
    np.testing.assert_array_equal(out.numpy(), np.tile(h, 2))
