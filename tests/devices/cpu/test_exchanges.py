"""One operation of a warp written in several places: lanes that wait at different ones do it together."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cujit.devices.cpu.backend import CpuBackend
from cujit.devices.device import Device
from cujit.loading import jit
from devices.cpu.launching import Array, blank, run_ptx

pytestmark = pytest.mark.usefixtures("unoptimised")

LANES = np.arange(32)
FULL = 0xFFFFFFFF
DATA = np.random.default_rng(12).integers(0, 2**32, 32).astype(np.uint32)

# r1 is the operand and q1 its parity, r3 the mask; r5 takes the result. The reference gets the operands of all lanes
# that take part (zeros elsewhere) and who they are.
Reference = Callable[[Array, Array], "Array | int"]


def bits(lanes: Array) -> int:
    return sum(1 << int(k) for k in np.flatnonzero(lanes))


def same(values: Array, there: Array) -> Array:
    return np.array([bits(there & (values == v)) for v in values])


KINDS: dict[str, tuple[str, Reference]] = {
    "shfl_bfly": ("shfl.sync.bfly.b32 r5, r1, 5, 0x1f, r3;", lambda v, _: v[LANES ^ 5]),
    "shfl_idx": ("shfl.sync.idx.b32 r5, r1, 9, 0x1f, r3;", lambda v, _: int(v[9])),
    "shfl_up": ("shfl.sync.up.b32 r5, r1, r6, 0, r3;", lambda v, _: np.where(LANES >= 7, v[LANES - 7], v)),
    "shfl_predicate": (
        "shfl.sync.down.b32 r5|q2, r1, 4, 0x1f, r3; selp.u32 r5, r5, 3, q2;",
        lambda v, _: np.where(LANES < 28, v[(LANES + 4) % 32], 3),
    ),
    "vote_any": ("vote.sync.any.pred q2, q1, r3; selp.u32 r5, 1, 0, q2;", lambda v, who: int((v[who] & 1).any())),
    "vote_all": ("vote.sync.all.pred q2, !q1, r3; selp.u32 r5, 1, 0, q2;", lambda v, who: int((~v[who] & 1).all())),
    "vote_uni": ("vote.sync.uni.pred q2, q1, r3; selp.u32 r5, 1, 0, q2;", lambda v, w: int(len(set(v[w] & 1)) == 1)),
    "ballot": ("vote.sync.ballot.b32 r5, q1, r3;", lambda v, who: bits(who & (v & 1 == 1))),
    "match_any": ("and.b32 r1, r1, 3; match.any.sync.b32 r5, r1, r3;", lambda v, who: same(v & 3, who)),
    "match_wide": (
        "and.b32 r1, r1, 3; mov.b64 d5, {r1, r1}; match.any.sync.b64 r5, d5, r3;",
        lambda v, who: same(v & 3, who),
    ),
    "match_all": (
        "shr.u32 r1, r1, 30; match.all.sync.b32 r5|q2, r1, r3; selp.u32 r5, r5, 9, q2;",
        lambda v, who: bits(who) if len(set(v[who] >> 30)) == 1 else 9,
    ),
    "add": ("redux.sync.add.u32 r5, r1, r3;", lambda v, who: int(v[who].sum(dtype=np.uint32))),
    "min": ("redux.sync.min.s32 r5, r1, r3;", lambda v, who: int(v[who].view(np.int32).min()) & FULL),
    "xor": ("redux.sync.xor.b32 r5, r1, r3;", lambda v, who: int(np.bitwise_xor.reduce(v[who]))),
    "elect": ("elect.sync r5|q2, r3; @q2 add.u32 r5, r5, 50;", lambda _, who: int(np.flatnonzero(who)[0])),
}
# Lanes can take values only of those that name the same mask and are there.
NOT_SHUFFLES = [kind for kind in KINDS if not kind.startswith("shfl")]

# Data of which all lanes find the same.
AGREEING = {"match_all": np.full(32, 7 << 28, np.uint32), "vote_uni": DATA | np.uint32(1)}
AGREEING |= {"vote_any": DATA & np.uint32(FULL - 1), "vote_all": DATA & np.uint32(FULL - 1)}

BEGIN = """mad.wide.u32 d1, lane, 4, p1; ld.global.u32 r1, [d1]; mov.u32 r3, {mask}; mov.u32 r6, 7; mov.u32 r5, 0;
rem.u32 r7, lane, 3; setp.eq.u32 q5, r7, 0; setp.eq.u32 q6, r7, 1;
"""
PARITY = "and.b32 r4, r1, 1; setp.eq.u32 q1, r4, 1;"


def arms(kind: str) -> str:
    """Three places: an arm for each rest of the lane's number by 3, each with an operand and a result of its own."""
    operation = KINDS[kind][0]
    return f"""@q5 bra FIRST; @q6 bra SECOND;
    xor.b32 r1, r1, 4; {PARITY} {operation} add.u32 r5, r5, 300; bra END;
    FIRST: {PARITY} {operation} add.u32 r5, r5, 100; bra END;
    SECOND: xor.b32 r1, r1, 8; {PARITY} {operation} add.u32 r5, r5, 200;
    END: st.global.u32 [at], r5;"""


def expected(kind: str, data: Array, who: Array) -> Array:
    """Give what each lane of ``who`` stores; lanes that are not there have zeros."""
    values = np.where(who, data ^ np.array([0, 8, 4], np.uint32)[LANES % 3], 0).astype(np.uint32)
    found = np.broadcast_to(KINDS[kind][1](values, who), 32) + np.array([100, 200, 300])[LANES % 3]
    if kind == "elect":
        found = found + 50 * (np.flatnonzero(who)[0] == LANES)
    words: Array = (found & FULL).astype(np.uint32)
    return words


@pytest.mark.parametrize("mask", ["constant", "register"])
@pytest.mark.parametrize(
    ("kind", "data"), [*((kind, "random") for kind in KINDS), *((kind, "agreeing") for kind in AGREEING)]
)
def test_one_operation_in_three_arms_is_one_exchange(cpu: Device, kind: str, mask: str, data: str) -> None:
    values = AGREEING[kind] if data == "agreeing" else DATA
    # A mask that is read from memory is known neither to be whole nor to be the same in all lanes.
    begin = BEGIN.format(mask="-1") + ("ld.global.u32 r3, [d1+128];" if mask == "register" else "")
    memory = np.concatenate([values, np.full(32, FULL, np.uint32)])
    got, _ = run_ptx(cpu, begin + arms(kind), blank(32), memory)
    np.testing.assert_array_equal(got, expected(kind, values, np.ones(32, bool)))


@pytest.mark.parametrize("kind", NOT_SHUFFLES)
def test_exited_lanes_take_no_part(cpu: Device, kind: str) -> None:
    body = BEGIN.format(mask=-1) + "and.b32 r8, lane, 7; setp.eq.u32 q7, r8, 2; @q7 exit;" + arms(kind)
    got, _ = run_ptx(cpu, body, blank(32), DATA)
    who = LANES % 8 != 2
    np.testing.assert_array_equal(got, np.where(who, expected(kind, DATA, who), 0xDEAD))


@pytest.mark.parametrize("kind", NOT_SHUFFLES)
def test_two_halves_exchange_separately_at_the_same_places(cpu: Device, kind: str) -> None:
    begin = BEGIN.format(mask=0) + "setp.lt.u32 q7, lane, 16; selp.u32 r3, 0xffff, 0xffff0000, q7;"
    got, _ = run_ptx(cpu, begin + arms(kind), blank(32), DATA)
    low = expected(kind, DATA, LANES < 16)
    np.testing.assert_array_equal(got, np.where(LANES < 16, low, expected(kind, DATA, LANES >= 16)))


@pytest.mark.parametrize("kind", KINDS)
def test_each_branch_with_its_own_mask_stays_separate(device: Device, kind: str) -> None:
    operation, reference = KINDS[kind]
    if kind.startswith("shfl"):
        operation, reference = "shfl.sync.bfly.b32 r5, r1, 3, 0x1f, r3;", lambda v, _: v[LANES ^ 3]
    body = (
        BEGIN.format(mask=0)
        + f"""setp.lt.u32 q7, lane, 16; @q7 bra LOW;
    mov.u32 r3, 0xffff0000; xor.b32 r1, r1, 4; {PARITY} {operation} add.u32 r5, r5, 1; bra END;
    LOW: mov.u32 r3, 0x0000ffff; {PARITY} {operation} add.u32 r5, r5, 2; END: st.global.u32 [at], r5;"""
    )
    got, _ = run_ptx(device, body, blank(32), DATA)
    low = LANES < 16
    values = np.where(low, DATA, DATA ^ np.uint32(4))
    for who, more in ((low, 2), (~low, 1)):
        found = np.broadcast_to(reference(np.where(who, values, 0).astype(np.uint32), who), 32) + more
        if kind == "elect":
            found = found + 50 * (np.flatnonzero(who)[0] == LANES)
        np.testing.assert_array_equal(got[who], (found[who] & FULL).astype(np.uint32))


def test_halves_shuffle_separately_at_the_same_places(cpu: Device) -> None:
    begin = BEGIN.format(mask=0) + "setp.lt.u32 q7, lane, 16; selp.u32 r3, 0xffff, 0xffff0000, q7;"
    body = arms("shfl_bfly")
    got, _ = run_ptx(cpu, begin + body, blank(32), DATA)
    np.testing.assert_array_equal(got, expected("shfl_bfly", DATA, np.ones(32, bool)))


@pytest.mark.parametrize("kind", ["shfl_predicate", "ballot", "add"])
def test_checks_accept_an_exchange_from_several_places(kind: str) -> None:
    got, _ = run_ptx(Device(CpuBackend(1, check="all")), BEGIN.format(mask="-1") + arms(kind), blank(32), DATA)
    np.testing.assert_array_equal(got, expected(kind, DATA, np.ones(32, bool)))


# -- where the places stand -------------------------------------------------------------------------------


def run_cuda(device: Device, text: str, *more: object, threads: int = 32) -> Array:
    out = device.zeros(threads, np.int32)
    jit(text, names=["k"], device=device)["k"][1, threads](out, *more)
    return out.numpy()


def test_places_in_nested_branches(device: Device) -> None:
    text = """extern "C" __global__ void k(int *out) {
        int t = threadIdx.x, v = t * t, got;
        if (t & 1) {
            if (t & 2) { v += 1000; got = __shfl_xor_sync(0xffffffffu, v, 3) * 3; }
            else if (t & 4) { v += 2000; got = __shfl_xor_sync(0xffffffffu, v, 3) * 5; }
            else { v += 3000; got = __shfl_xor_sync(0xffffffffu, v, 3) * 7; }
        } else {
            v += 4000;
            for (int i = 0; i < t % 5; i++) v = v * 3 + i;
            got = __shfl_xor_sync(0xffffffffu, v, 3) * 9;
        }
        out[t] = got;
    }"""
    v = LANES**2
    even = v + 4000
    for i in range(4):
        even = np.where(i < LANES % 5, even * 3 + i, even)
    arm = np.select([LANES & 1 == 0, LANES & 2 != 0, LANES & 4 != 0], [3, 0, 1], 2)
    v = np.choose(arm, [v + 1000, v + 2000, v + 3000, even])
    np.testing.assert_array_equal(run_cuda(device, text), v[LANES ^ 3] * np.array([3, 5, 7, 9])[arm])


@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_places_in_a_loop(device: Device, rounds: int) -> None:
    # Which lanes take which arm differs from round to round.
    text = """extern "C" __global__ void k(int *out, int rounds) {
        unsigned t = threadIdx.x, v = t;
        for (int i = 0; i < rounds; i++) {
            if ((t * 5 + i) % 3 == 0) v = v * 3 + __shfl_down_sync(0xffffffffu, v, 1);
            else if ((t + i) % 2 == 0) { v ^= i; v = v * 5 - __shfl_down_sync(0xffffffffu, v, 1); }
            else { v += 7; v += __shfl_down_sync(0xffffffffu, v + 2, 1); }
            if (v % 4 == 0) v += __shfl_xor_sync(__activemask(), v, 0);
        }
        out[t] = v;
    }"""
    v = LANES.astype(np.uint32)
    for i in range(rounds):
        first, second = (LANES * 5 + i) % 3 == 0, (LANES + i) % 2 == 0
        before = np.select([first, second], [v, v ^ np.uint32(i)], v + np.uint32(7))
        sent = np.where(first | second, before, before + np.uint32(2)).astype(np.uint32)
        got = np.where(LANES < 31, sent[np.minimum(LANES + 1, 31)], sent)
        v = np.select([first, second], [before * np.uint32(3) + got, before * np.uint32(5) - got], before + got)
        v = np.where(v % 4 == 0, v + v, v).astype(np.uint32)
    np.testing.assert_array_equal(run_cuda(device, text, rounds).view(np.uint32), v)


def test_looping_lanes_meet_those_that_go_straight(cpu: Device) -> None:
    # One lane's second time at a place is another's only time at the next: they exchange by their counts.
    text = """extern "C" __global__ void k(int *out) {
        int t = threadIdx.x, v = t, seen = 0;
        if (t < 20) { for (int i = 0; i < 4; i++) { v += 100; seen = seen * 3 + __shfl_xor_sync(0xffffffffu, v, 16); } }
        else {
            v += 1000; seen = __shfl_xor_sync(0xffffffffu, v, 16);
            v += 2000; seen = seen * 3 + __shfl_xor_sync(0xffffffffu, v, 16);
            for (int i = 0; i < t % 4; i++) v += 5;
            seen = seen * 3 + __shfl_xor_sync(0xffffffffu, v, 16);
            v += 3000; seen = seen * 3 + __shfl_xor_sync(0xffffffffu, v, 16);
        }
        out[t] = seen;
    }"""
    seen, low = np.zeros(32, int), LANES < 20
    late = 5 * (LANES % 4)
    high = [1000 + 0 * late, 3000 + 0 * late, 3000 + late, 6000 + late]
    for i in range(4):
        v = np.where(low, LANES + 100 * (i + 1), LANES + high[i])
        seen = seen * 3 + v[LANES ^ 16]
    np.testing.assert_array_equal(run_cuda(cpu, text), seen)


def test_lane_back_at_a_place_waits_for_the_next_exchange(cpu: Device) -> None:
    # The upper half passes the second place once more while the lower half still is to leave it.
    text = """extern "C" __global__ void k(int *out) {
        int t = threadIdx.x, v = t, seen = 0;
        if (t >= 16) { v += 100; seen = __shfl_xor_sync(0xffffffffu, v, 16); v += 100; }
        seen = seen * 7 + __shfl_xor_sync(0xffffffffu, v, 16);
        if (t < 16) { v += 1000; seen = seen * 7 + __shfl_xor_sync(0xffffffffu, v, 16); }
        out[t] = seen;
    }"""
    high = LANES >= 16
    first = np.where(high, LANES + 100, LANES)
    second = np.where(high, LANES + 200, LANES + 1000)
    np.testing.assert_array_equal(run_cuda(cpu, text), first[LANES ^ 16] * 7 + second[LANES ^ 16])


def test_meeting_is_passed_as_often_by_every_lane(cpu: Device) -> None:
    # As before with __syncwarp(): the flag that the upper half sets last is seen only behind the last meeting.
    text = """extern "C" __global__ void k(int *out) {
        __shared__ volatile int flag;
        int t = threadIdx.x, seen;
        flag = 0;
        __syncwarp();
        if (t >= 16) { flag = 1; __syncwarp(); }
        if (t < 16 || flag) __syncwarp();
        seen = flag;
        if (t < 16) __syncwarp();
        else if (t == 16) flag = 2;
        out[t] = seen * 10 + flag;
    }"""
    got = run_cuda(cpu, text)
    assert set(got[:16].tolist()) <= {11, 12, 22}
    assert (got[16:] // 10).tolist() == [1] * 16


def test_exchange_in_an_inlined_function(device: Device) -> None:
    text = """__device__ __noinline__ int swap(int v) { return __shfl_xor_sync(0xffffffffu, v * 2, 9); }
    extern "C" __global__ void k(int *out) {
        int t = threadIdx.x;
        out[t] = t % 5 < 2 ? swap(t + 50) + 1 : __shfl_xor_sync(0xffffffffu, t * t, 9) + 2;
    }"""
    called = LANES % 5 < 2
    sent = np.where(called, 2 * (LANES + 50), LANES**2)
    np.testing.assert_array_equal(run_cuda(device, text), sent[LANES ^ 9] + np.where(called, 1, 2))


def test_lanes_exchange_while_another_spins(cpu: Device) -> None:
    # The last lane waits for what the others write after an exchange that they do from two places.
    body = """mov.u32 r2, cells; st.shared.u32 [r2], 0; bar.warp.sync -1; mov.u32 r3, 0x7fffffff; mov.u32 r1, 0;
    setp.eq.u32 q1, lane, 31; @q1 bra SPIN; and.b32 r4, lane, 1; setp.eq.u32 q2, r4, 0; @q2 bra EVEN;
    add.u32 r1, lane, 1; redux.sync.add.u32 r5, r1, r3; bra TELL;
    EVEN: redux.sync.add.u32 r5, lane, r3;
    TELL: setp.eq.u32 q3, lane, 30; @q3 st.shared.u32 [r2], r5; bra END;
    SPIN: ld.volatile.shared.u32 r5, [r2]; setp.eq.u32 q4, r5, 0; @q4 bra SPIN;
    END: st.global.u32 [at], r5;"""
    (got,) = run_ptx(cpu, body, blank(32), outside=".shared .align 4 .b32 cells[1];")
    assert got.tolist() == [sum(range(31)) + 15] * 32


def test_lanes_exchange_while_others_wait_at_a_barrier(cpu: Device) -> None:
    body = """setp.lt.u32 q1, lane, 8; mov.u32 r5, 7; @q1 bra WAIT;
    and.b32 r4, lane, 1; setp.eq.u32 q2, r4, 0; @q2 bra EVEN;
    vote.sync.ballot.b32 r5, q2, 0xffffff00; add.u32 r5, r5, 1; bra WAIT;
    EVEN: vote.sync.ballot.b32 r5, q2, 0xffffff00;
    WAIT: barrier.sync 0; st.global.u32 [at], r5;"""
    (got,) = run_ptx(cpu, body, blank(64), block=64)
    lane = np.arange(64) % 32
    np.testing.assert_array_equal(got, np.where(lane < 8, 7, 0x55555500 + (lane & 1)))
