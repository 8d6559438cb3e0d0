"""What the lanes of a warp do together: shuffles, votes, matches, reductions, elections; whole warps and parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import SupportsInt

import numpy as np
import pytest

from cujit.devices.device import Device
from cujit.loading import jit
from devices.cpu.launching import Array, blank, run_ptx

LANES = np.arange(32)
FULL = 0xFFFFFFFF


def shuffled(mode: str, values: Array, by: Array, clamp: Array) -> tuple[Array, Array]:
    """Shuffle within a warp. Source: PTX ISA 9.1, "shfl.sync", its code."""
    out, good = values.copy(), np.zeros(len(values), bool)
    for lane in range(len(values)):
        b, c = int(by[lane]) & 31, int(clamp[lane]) & 31
        segment = int(clamp[lane]) >> 8 & 31
        last, first = (lane & segment) | (c & ~segment), lane & segment
        if mode == "up":
            j, good[lane] = lane - b, lane - b >= last
        elif mode == "down":
            j, good[lane] = lane + b, lane + b <= last
        elif mode == "bfly":
            j, good[lane] = lane ^ b, lane ^ b <= last
        else:
            j, good[lane] = first | (b & ~segment), first | (b & ~segment) <= last
        out[lane] = values[j if good[lane] else lane]
    return out, good


# Clamp words: whole warps, tiles of 16, 8 and 2, and odd bounds. Source: PTX ISA 9.1, "shfl.sync", operand c.
CLAMPS = {"up": [0, 0x1000, 0x1800, 0x1E00, 0x0005]}
CLAMPS |= {mode: [0x1F, 0x101F, 0x181F, 0x1E1F, 0x0013, 0x1805] for mode in ("down", "bfly", "idx")}
BY = [0, 1, 5, 16, 31, 33]


@pytest.mark.parametrize("mode", CLAMPS)
def test_shuffles_by_constants(device: Device, mode: str) -> None:
    cases = [(by, clamp) for clamp in CLAMPS[mode] for by in BY]
    body = ["mul.lo.u32 r1, t, 77; add.u64 d0, p0, 0; mad.wide.u32 d0, t, 8, d0;"]
    for by, clamp in cases:
        body.append(f"shfl.sync.{mode}.b32 r2|q1, r1, {by}, {clamp}, -1; selp.u32 r3, 1, 0, q1;")
        body.append("st.global.v2.u32 [d0], {r2, r3}; add.u64 d0, d0, 512;")
    (got,) = run_ptx(device, "\n".join(body), blank(128 * len(cases)), block=64)
    words = got.reshape(len(cases), 2, 32, 2)
    for k, (by, clamp) in enumerate(cases):
        for w in range(2):
            values = (np.arange(32) + 32 * w) * 77
            out, good = shuffled(mode, values, np.full(32, by), np.full(32, clamp))
            np.testing.assert_array_equal(words[k, w, :, 0], out, err_msg=f"{by} {clamp:#x}")
            np.testing.assert_array_equal(words[k, w, :, 1], good, err_msg=f"{by} {clamp:#x}")


@pytest.mark.parametrize("mode", CLAMPS)
def test_shuffles_with_run_time_arguments(device: Device, mode: str) -> None:
    rng = np.random.default_rng(9)
    rounds = 24
    by = rng.integers(0, 40, (rounds, 32)).astype(np.uint32)
    clamp = rng.choice(CLAMPS[mode], (rounds, 1)).astype(np.uint32) * np.ones((1, 32), np.uint32)
    body = f"""mov.u32 r9, 0; mul.lo.u32 r1, t, 77; mul.wide.u32 d0, t, 4; add.u64 d1, p1, d0; add.u64 d2, p2, d0;
    mad.wide.u32 d3, t, 8, p0;
    AGAIN: ld.global.u32 r4, [d1]; ld.global.u32 r5, [d2]; shfl.sync.{mode}.b32 r2|q1, r1, r4, r5, 0xffffffff;
    selp.u32 r3, 1, 0, q1; st.global.v2.u32 [d3], {{r2, r3}}; add.u64 d1, d1, 128; add.u64 d2, d2, 128;
    add.u64 d3, d3, 256; add.u32 r9, r9, 1; setp.lt.u32 q2, r9, {rounds}; @q2 bra AGAIN;"""
    got, _, _ = run_ptx(device, body, blank(64 * rounds), by.ravel(), clamp.ravel())
    words = got.reshape(rounds, 32, 2)
    for k in range(rounds):
        out, good = shuffled(mode, LANES * 77, by[k], clamp[k])
        np.testing.assert_array_equal(words[k], np.stack([out, good], 1))


def test_shuffle_without_a_predicate_or_a_used_result(device: Device) -> None:
    body = """mul.lo.u32 r1, t, 3; shfl.sync.down.b32 r2, r1, 1, 0x1f, -1; shfl.sync.idx.b32 r3|_, r1, 7, 0x1f, -1;
    shfl.sync.bfly.b32 _|q1, r1, 16, 0xf, -1; selp.u32 r4, 100, 0, q1; add.u32 r2, r2, r3; add.u32 r2, r2, r4;
    st.global.u32 [at], r2;"""
    body = body.replace("r3|_", "r3").replace("_|q1", "r5|q1")
    (got,) = run_ptx(device, body, blank(32))
    _, good = shuffled("bfly", LANES, np.full(32, 16), np.full(32, 0xF))
    np.testing.assert_array_equal(got, np.minimum(LANES + 1, 31) * 3 + 21 + 100 * good)


def test_branches_shuffle_among_their_own_lanes(device: Device) -> None:
    text = """extern "C" __global__ void k(int *out) {
        int t = threadIdx.x, v = t * t;
        if (t % 4 < 2) { for (int i = 0; i < 3; i++) v += __shfl_xor_sync(0x33333333, v, 1); }
        else if (t % 4 == 2) { v -= __shfl_up_sync(0x44444444, v, 4); }
        else { v = __shfl_sync(0x88888888, v, 7) + __reduce_add_sync(0x88888888, t); }
        out[t] = v;
    }"""
    out = device.zeros(64, np.int32)
    jit(text, names=["k"], device=device, arch="compute_80" if not device.is_gpu else None)["k"][1, 64](out)
    t, v = np.arange(64), np.arange(64) ** 2
    for _ in range(3):
        v = np.where(t % 4 < 2, v + v[t ^ 1], v)
    up = np.where(t % 32 >= 4, v[np.maximum(t - 4, 0)], v)
    threes = np.array([sum(range(32 * w + 3, 32 * w + 32, 4)) for w in range(2)])[t // 32]
    v = np.select([t % 4 < 2, t % 4 == 2], [v, v - up], (t // 32 * 32 + 7) ** 2 + threes)
    np.testing.assert_array_equal(out.numpy(), v)


def test_lanes_arriving_at_different_times_shuffle_together(device: Device) -> None:
    # Every lane comes by a loop of its own length, and they go on apart again.
    text = """extern "C" __global__ void k(int *out, int n) {
        int t = threadIdx.x, v = t;
        for (int i = 0; i < 4; i++) {
            for (int j = 0; j < (t * 5 + i) % n; j++) v = v * 3 + 1;
            v += __shfl_down_sync(0xffffffff, v, 3);
            if (t % (i + 2) == 0) v ^= 5;
            unsigned same = __match_any_sync(0xffffffff, v & 3);
            v += __popc(same);
        }
        out[t] = v;
    }"""
    out = device.zeros(32, np.int32)
    jit(text, names=["k"], device=device)["k"][1, 32](out, 7)
    v = LANES.astype(np.uint32)
    for i in range(4):
        for j in range(7):
            v = np.where(j < (LANES * 5 + i) % 7, v * np.uint32(3) + np.uint32(1), v)
        v = v + np.where(LANES + 3 < 32, v[np.minimum(LANES + 3, 31)], v)
        v = np.where(LANES % (i + 2) == 0, v ^ np.uint32(5), v)
        v = v + np.array([(v & 3 == x & 3).sum() for x in v], np.uint32)
    np.testing.assert_array_equal(out.numpy().view(np.uint32), v)


def test_last_warp_shuffles_with_its_existing_lanes(device: Device) -> None:
    body = "mul.lo.u32 r1, t, 9; shfl.sync.bfly.b32 r2, r1, 1, 0x1f, 0x3ff; st.global.u32 [at], r2;"
    body = "setp.lt.u32 q1, t, 32; mov.u32 r3, 0x3ff; @q1 mov.u32 r3, -1;" + body.replace("0x3ff", "r3")
    (got,) = run_ptx(device, body, blank(42), block=42)
    np.testing.assert_array_equal(got, (np.arange(42) ^ 1) * 9)


# -- votes, matches, reductions ---------------------------------------------------------------------------

# Lanes form groups by label (0 to 4): each group's lanes name one another, and vote with the parity of data.
GROUPS = """ld.global.u32 r1, [{label}]; ld.global.u32 r2, [{data}]; match.any.sync.b32 r3, r1, -1;
and.b32 r4, r2, 1; setp.eq.u32 q1, r4, 1; setp.eq.u32 q4, r1, 0; setp.eq.u32 q5, r1, 1; setp.eq.u32 q6, r1, 2;
"""

Reference = Callable[[Array, Array], SupportsInt]
VOTES: dict[str, tuple[str, Reference]] = {
    "all": ("vote.sync.all.pred q2, q1, r3; selp.u32 r5, 1, 0, q2;", lambda d, _: (d & 1).all()),
    "any": ("vote.sync.any.pred q2, q1, r3; selp.u32 r5, 1, 0, q2;", lambda d, _: (d & 1).any()),
    "not_all": ("vote.sync.all.pred q2, !q1, r3; selp.u32 r5, 1, 0, q2;", lambda d, _: not (d & 1).any()),
    "uni": ("vote.sync.uni.pred q2, q1, r3; selp.u32 r5, 1, 0, q2;", lambda d, _: len(set(d & 1)) == 1),
    "ballot": ("vote.sync.ballot.b32 r5, q1, r3;", lambda d, who: sum(1 << int(k) for k in who[d & 1 == 1])),
    "match": ("match.any.sync.b32 r5, r4, r3; popc.b32 r5, r5; mul.lo.u32 r5, r5, r4;", lambda *_: -1),
    "match_all": ("match.all.sync.b32 r5|q2, r4, r3; selp.u32 r5, r5, 7, q2;", lambda *_: -2),
    "add": ("redux.sync.add.u32 r5, r2, r3;", lambda d, _: int(d.sum()) & FULL),
    "min": ("redux.sync.min.s32 r5, r2, r3;", lambda d, _: int(d.view(np.int32).min()) & FULL),
    "max": ("redux.sync.max.u32 r5, r2, r3;", lambda d, _: int(d.max())),
    "and": ("redux.sync.and.b32 r5, r2, r3;", lambda d, _: int(np.bitwise_and.reduce(d))),
    "or": ("redux.sync.or.b32 r5, r2, r3;", lambda d, _: int(np.bitwise_or.reduce(d))),
    "xor": ("redux.sync.xor.b32 r5, r2, r3;", lambda d, _: int(np.bitwise_xor.reduce(d))),
    "elect": ("elect.sync r5|q2, r3; @!q2 add.u32 r5, r5, 100;", lambda *_: -3),
}


def expected_of(kind: str, labels: Array, data: Array, lanes: Array) -> Array:
    """Compute what every lane finds; ``lanes`` are their numbers in their warps."""
    out = np.zeros(len(labels), np.uint32)
    for k in range(len(labels)):
        warp = np.arange(len(labels)) // 32 == k // 32
        group = warp & (labels == labels[k])
        d, who = data[group], lanes[group]
        value = int(VOTES[kind][1](d, who))
        if value == -1:
            value = int((d & 1 == 1).sum() if data[k] & 1 else 0)
        elif value == -2:
            value = sum(1 << int(x) for x in who) if len(set(d & 1)) == 1 else 7
        elif value == -3:
            value = int(who.min()) + (100 if lanes[k] != who.min() else 0)
        out[k] = value
    return out


@pytest.mark.parametrize("way", ["together", "apart"])
@pytest.mark.parametrize("kind", VOTES)
def test_groups_of_lanes_agree(device: Device, kind: str, way: str) -> None:
    rng = np.random.default_rng(4)
    labels, data = rng.integers(0, 4, 96).astype(np.uint32), rng.integers(0, 2**32, 96).astype(np.uint32)
    labels[32:64], data[70:] = 2, data[70:] | 1
    labels[65] = 4  # alone, right behind the first of another group
    begin = "mad.wide.u32 d1, t, 4, p1; mad.wide.u32 d2, t, 4, p2;" + GROUPS.format(label="d1", data="d2")
    vote = VOTES[kind][0]
    if way == "apart":
        arms = [f"@q{4 + k} bra ARM{k};" for k in range(3)] + [f"{vote} bra END;"]
        arms += [f"ARM{k}: {vote} bra END;" for k in range(3)]
        vote = "\n".join([*arms, "END:"])
    got, _, _ = run_ptx(device, f"{begin}\n{vote}\nst.global.u32 [at], r5;", blank(96), labels, data, block=96)
    np.testing.assert_array_equal(got, expected_of(kind, labels, data, np.arange(96) % 32))


@pytest.mark.parametrize("bits", [32, 64])
def test_match_finds_lanes_with_the_same_value(device: Device, bits: int) -> None:
    data = np.random.default_rng(2).integers(0, 5, 32).astype(np.uint64) << np.uint64(bits - 8)
    body = f"""mad.wide.u32 d1, t, 8, p1; ld.global.u64 d2, [d1]; .reg .b{bits} value; cvt.u{bits}.u64 value, d2;
    match.any.sync.b{bits} r1, value, -1; st.global.u32 [at], r1;"""
    got, _ = run_ptx(device, body, blank(32), data)
    assert got.tolist() == [sum(1 << int(k) for k in np.flatnonzero(data == x)) for x in data]


def test_activemask_shows_the_active_lanes(device: Device) -> None:
    body = """and.b32 r1, t, 3; setp.eq.u32 q1, r1, 0; @q1 bra FOURTH; activemask.b32 r2; bra END;
    FOURTH: activemask.b32 r2; END: bar.warp.sync -1; activemask.b32 r3; xor.b32 r3, r3, r2; st.global.u32 [at], r2;
    mad.wide.u32 d0, t, 4, p1; st.global.u32 [d0], r3;"""
    got, rest = run_ptx(device, body, blank(50), blank(50), block=50)
    t = np.arange(50)
    there = np.where(t < 32, FULL, (1 << 18) - 1)
    fourths = 0x11111111
    np.testing.assert_array_equal(got, there & np.where(t % 4 == 0, fourths, FULL ^ fourths))
    np.testing.assert_array_equal(rest, there ^ got)


def test_lanes_meet_in_different_arms(device: Device) -> None:
    body = """mov.u32 r2, cells; mad.lo.u32 r3, t, 4, r2; xor.b32 r4, t, 1; mad.lo.u32 r4, r4, 4, r2;
    and.b32 r5, t, 1; setp.eq.u32 q1, r5, 0; mov.u32 r8, 0; @q1 bra EVEN;
    ODD: st.shared.u32 [r3], r8; bar.warp.sync -1; ld.shared.u32 r6, [r4]; add.u32 r8, r6, 1; bar.warp.sync 0xffffffff;
    setp.lt.u32 q2, r8, 9; @q2 bra ODD; bra END;
    EVEN: add.u32 r8, r8, 2; st.shared.u32 [r3], r8; bar.warp.sync -1; ld.shared.u32 r6, [r4]; bar.warp.sync -1;
    setp.lt.u32 q2, r8, 6; @q2 bra EVEN;
    END: st.global.u32 [at], r8;"""
    # Odd lanes: 3, 5, 7 after rounds in which the even ones wrote 2, 4, 6; a fourth round would have no partner.
    body = body.replace("setp.lt.u32 q2, r8, 9", "setp.lt.u32 q2, r8, 7")
    outside = ".shared .align 4 .b32 cells[64];"
    (got,) = run_ptx(device, body, blank(64), block=64, outside=outside)
    assert got.tolist() == [6, 7] * 32


def test_exited_lanes_are_not_waited_for(device: Device) -> None:
    text = """extern "C" __global__ void k(int *out) {
        int t = threadIdx.x;
        if (t % 3 == 1) return;
        out[t] = __popc(__ballot_sync(0xffffffff, t & 1)) + 100 * __any_sync(0xffffffff, t == 31);
        if (t < 16) return;
        out[t] += 1000 * __popc(__activemask());
        __syncwarp();
    }"""
    out = device.zeros(32, np.int32)
    jit(text, names=["k"], device=device)["k"][1, 32](out)
    left = LANES % 3 != 1
    votes = int((left & (LANES % 2 == 1)).sum()) + 100 * int(left[31])
    later = 1000 * int((left & (LANES >= 16)).sum())
    np.testing.assert_array_equal(out.numpy(), np.where(left, votes + later * (LANES >= 16), 0))
