"""Loops that are run for some lanes of a warp after the other, and atomics of all lanes that are put off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cujit.devices.cpu.pipeline import ir_of
from cujit.devices.cpu.preparation import Preparation
from cujit.devices.device import Device
from cujit.devices.shapes import Dim3
from devices.cpu.launching import Array, ptx_of, run_ptx

MASK = (1 << 32) - 1

# Six words a lane go round until the highest bits of the first are all 0; lanes leave after 1 to 40 turns.
MIX = """
ld.global.u32 r1, [at]; mov.u32 r2, 1; mov.u32 r3, 2; mov.u32 r4, 3; mov.u32 r5, 4; mov.u32 r6, 77; mov.u32 r8, 5;
{before}
LOOP:
mad.lo.u32 r1, r1, 1664525, 1013904223;
xor.b32 r2, r2, r1; add.u32 r3, r3, r2; max.u32 r4, r4, r3; sub.u32 r5, r5, r4; add.u32 r6, r6, 1;
and.b32 r8, r2, 15; shr.u32 r7, r1, 28; setp.ne.u32 q1, r7, 0; setp.lt.u32 q2, r6, 117; and.pred q1, q1, q2;
@q1 bra LOOP;
{after}
add.u32 r2, r2, r3; xor.b32 r2, r2, r4; add.u32 r2, r2, r5; mad.lo.u32 r2, r6, 31, r2; add.u32 r2, r2, r8;
st.global.u32 [at], r2;
"""


def mixed(x: int) -> int:
    """Do as one lane of ``MIX``."""
    a, b, c, d, turns = 1, 2, 3, 4, 77
    while True:
        x = (x * 1664525 + 1013904223) & MASK
        a ^= x
        b = (b + a) & MASK
        c = max(c, b)
        d = (d - c) & MASK
        turns += 1
        if x >> 28 == 0 or turns >= 117:
            return (((a + b) & MASK ^ c) + d + turns * 31 + (a & 15)) & MASK


def words(count: int) -> Array:
    """Numbers to begin with, some of which leave the loop at once."""
    return np.random.default_rng(3).integers(0, 1 << 32, count, np.uint32)


@pytest.mark.parametrize("block", [32, 256, 45, 8, 17])
def test_lanes_leave_a_loop_at_different_times(device: Device, block: int) -> None:
    data = words(3 * block)
    (got,) = run_ptx(device, MIX.format(before="", after=""), data, grid=3, block=block)
    np.testing.assert_array_equal(got, [mixed(int(x)) for x in data])


SOME: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "a half": ("setp.ge.u32 q0, lane, 16;", lambda lane: lane >= 16),
    "the other half": ("setp.lt.u32 q0, lane, 16;", lambda lane: lane < 16),
    "every third": ("rem.u32 r9, lane, 3; setp.ne.u32 q0, r9, 0;", lambda lane: lane % 3 != 0),
    "one": ("setp.ne.u32 q0, lane, 9;", lambda lane: lane != 9),
}


@pytest.mark.parametrize("some", SOME)
@pytest.mark.parametrize("barrier", ["", "bar.sync 0;"], ids=["alone", "with barriers"])
def test_lanes_that_skip_a_loop_keep_their_values(device: Device, some: str, barrier: str) -> None:
    test, away = SOME[some]
    data = words(64)
    text = barrier + MIX.format(before=f"{test} @q0 bra AFTER;", after=f"AFTER: {barrier}")
    (got,) = run_ptx(device, text, data, block=64)
    untouched = ((1 + 2 ^ 3) + 4 + 77 * 31 + 5) & MASK
    want = [untouched if away(k % 32) else mixed(int(x)) for k, x in enumerate(data)]
    np.testing.assert_array_equal(got, want)


# Every lane sums up what all of them find in the second array, in eight sums; the count of turns is read after it.
SUMS = """
cvt.rn.f{bits}.u32 f0, t; mov.u32 r1, 0; mov.u64 d0, p1; mov.u32 r2, 0;
{zeros}
{before}
LOOP:
ld.global.f{bits} f1, [d0]; {sums}
add.u32 r1, r1, 1; add.u64 d0, d0, {size}; setp.lt.u32 q1, r1, 50; @q1 bra LOOP;
mov.u32 r2, r1;
{all}
AFTER:
mul.wide.u32 d1, t, {size}; add.u64 d1, p0, d1;
cvt.rn.f{bits}.u32 f2, r2; add.f{bits} f3, f3, f2; st.global.f{bits} [d1], f3;
"""


@pytest.mark.parametrize("some", ["all", *SOME])
@pytest.mark.parametrize("bits", [32, 64])
def test_loop_with_as_many_turns_for_all_lanes_runs_in_parts(device: Device, bits: int, some: str) -> None:
    numbers = range(3, 11)
    test, away = SOME.get(some, ("", lambda lane: lane < 0))
    body = f".reg .f{bits} f<16>;" + SUMS.format(
        bits=bits,
        size=bits // 8,
        zeros=" ".join(f"mov.f{bits} f{k}, 0d0000000000000000;" if bits == 64 else f"mov.f{bits} f{k}, 0f00000000;"
                       for k in numbers),
        sums=" ".join(f"fma.rn.f{bits} f{k}, f1, f0, f{k}; add.f{bits} f{k}, f{k}, f1;" for k in numbers),
        all=" ".join(f"add.f{bits} f3, f3, f{k};" for k in numbers if k > 3),
        before=f"{test} @q0 bra AFTER;" if test else "",
    )  # fmt: skip
    kind = np.dtype(f"f{bits // 8}")
    data = np.arange(50).astype(kind)
    got, _ = run_ptx(device, body, np.zeros(64, kind), data, block=64)
    t = np.arange(64)
    want = np.where(away(t % 32), 0, 8 * (data.sum() * t + data.sum()) + 50)
    np.testing.assert_array_equal(got, want.astype(kind))


def runs_in_parts(body: str) -> bool:
    """Tell whether any loop does: the values that each part takes its own from are in memory."""
    preparation = Preparation(ptx_of(body, 1), "here")
    preparation.facts()
    return ".all = alloca" in ir_of(preparation.body("k"), Dim3(64))


def test_divergent_loop_is_emitted_in_parts() -> None:
    assert runs_in_parts(MIX.format(before="", after=""))


def test_loop_that_reads_shared_data_is_not_split() -> None:
    body = """
    mov.u32 r6, 1; mov.u32 r7, 0;
    LOOP:
    ld.volatile.global.u32 r1, [p0]; add.u32 r7, r7, r1; add.u32 r6, r6, lane; setp.lt.u32 q1, r6, 99; @q1 bra LOOP;
    st.global.u32 [at], r7;
    """
    assert runs_in_parts(body.replace("volatile.", ""))
    assert not runs_in_parts(body)


# -- atomics that are put off -----------------------------------------------------------------------------

SHARED = ".shared .align 16 .b32 cells[64];"
PLACES = """
mov.u32 r2, cells; mad.lo.u32 r3, lane, 4, r2; st.shared.u32 [r3], 7; st.shared.u32 [r3+128], 7;
ld.global.u32 r4, [at]; and.b32 r5, r4, 31; mad.lo.u32 r5, r5, 4, r2; shr.u32 r6, r4, 5; and.b32 r6, r6, 31;
mad.lo.u32 r6, r6, 4, r2;
{operations}
bar.warp.sync -1; ld.shared.u32 r8, [r3]; add.u32 r7, r7, r8; st.global.u32 [at], r7;
"""


@pytest.mark.parametrize(
    "operations",
    [
        "red.shared.add.u32 [r5], r4; red.shared.max.u32 [r6], r4;",
        "red.shared.max.u32 [r5], r4; red.shared.add.u32 [r6], r4;",
        "red.shared.add.u32 [r5], r4; xor.b32 r4, r4, 3; red.shared.add.u32 [r6], r4; mov.u32 r6, r5;",
        "red.shared.add.u32 [r5], 1; ld.shared.u32 r7, [r6]; red.shared.add.u32 [r6], 1;",
        "red.shared.add.u32 [r5], 1; st.shared.u32 [r6], lane; red.shared.add.u32 [r6], 1;",
        "atom.shared.add.u32 r9, [r5], r4; atom.shared.add.u32 r7, [r6], r4;",
        "atom.shared.cas.b32 r9, [r5], 7, 9; red.shared.and.b32 [r5+4], 14;",
        "red.shared.add.u32 [r5], 2; red.shared.add.u32 [r2], 1; red.shared.max.s32 [r5], 9;",
    ],
)
def test_deferred_operations_keep_their_order(cpu: Device, operations: str) -> None:
    # On a GPU the lanes' operations on one cell come in any order.
    data = words(32)
    body = ("mov.u32 r7, 0;" + PLACES).format(operations=operations)
    (got,) = run_ptx(cpu, body, data, outside=SHARED)
    np.testing.assert_array_equal(got, _in_order(operations, data))


def _in_order(operations: str, data: Array) -> list[int]:
    """Do the operations of 32 lanes, each in all lanes in order of their numbers before the next."""
    cells = [7] * 64
    values = [{"r2": 0, "r4": int(x), "r5": int(x) & 31, "r6": int(x) >> 5 & 31, "r7": 0, "lane": k}
              for k, x in enumerate(data)]  # fmt: skip

    def number(lane: dict[str, int], text: str) -> int:
        return lane[text] if text in lane else int(text)

    steps: dict[str, Callable[[int, list[int]], int]] = {
        "add": lambda old, x: (old + x[0]) & MASK,
        "max": lambda old, x: max(old, x[0]),
        "and": lambda old, x: old & x[0],
        "cas": lambda old, x: x[1] if old == x[0] else old,
    }
    for operation in operations.split(";")[:-1]:
        name, *operands = operation.replace(",", " ").split()
        words_of_name = name.split(".")
        for lane in values:
            if words_of_name[0] in ("atom", "red", "st", "ld"):
                where = next(o for o in operands if o[0] == "[")
                base, _, far = where.strip("[]").partition("+")
                place = lane[base] + int(far or 0) // 4
                rest = [number(lane, o) for o in operands[operands.index(where) + 1 :]]
                old = cells[place]
                if words_of_name[0] in ("atom", "red"):
                    cells[place] = steps[words_of_name[2]](old, rest)
                elif words_of_name[0] == "st":
                    cells[place] = rest[0]
                if operands[0] != where:
                    lane[operands[0]] = old
            elif words_of_name[0] == "mov":
                lane[operands[0]] = number(lane, operands[1])
            else:
                lane[operands[0]] = number(lane, operands[1]) ^ number(lane, operands[2])
    return [(lane["r7"] + cells[k]) & MASK for k, lane in enumerate(values)]
