"""Products in tensor memory, of matrices that ``tensor_layouts`` lays out: all types, patterns, and what may be said.

No result was ever compared with hardware.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import cujit
from cujit.devices.device import Device
from cujit.errors import KernelFaultError
from devices.cpu.tensor_products import (
    A_COLUMN,
    CODES,
    COLUMNS,
    FACTORS,
    LANES,
    SMALL,
    STEPS,
    Product,
    arrays_of,
    bits_of,
    codes,
    exactly,
    launch,
    numbers,
    padded,
    text_of,
    words_of,
)  # fmt: skip
from instructions.scene import Scene, entry, run_scene
from instructions.scenes_matrix import values_of
from instructions.sums_inputs import operands
from instructions.sums_rule import aligned_sum
from instructions.tensor_layouts import store
from raising import raises

pytestmark = pytest.mark.usefixtures("unoptimised")

Array = npt.NDArray[Any]

TYPES = [Product(kind, a, b, d) for kind, d in (("f16", "f32"), ("tf32", "f32"), ("f8f6f4", "f32"), ("i8", "s32"))
         for a in CODES[kind] for b in CODES[kind] if kind != "f16" or a == b]  # fmt: skip


@pytest.mark.parametrize("x", [*TYPES, Product(d="f16"), Product("f8f6f4", "e4m3", "e4m3", "f16")], ids=str)
def test_every_type(cpu: Device, x: Product) -> None:
    exactly(cpu, x)


SIZES = [("f16", "f16", "f32"), ("tf32", "tf32", "f32"), ("f8f6f4", "e4m3", "f32"), ("i8", "s8", "s32")]


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize(("kind", "type_", "d"), SIZES)
def test_every_pattern_in_shared_memory(cpu: Device, kind: str, type_: str, d: str, across: bool) -> None:
    for mode in (0, 1, 2, 4, 6) if across else (0, 2, 4, 6):
        x = Product(kind, type_, type_, d, n=128, modes=(mode, mode), across=(across, across))
        exactly(cpu, x)
        exactly(cpu, replace(x, modes=(mode, 2), across=(across, not across)))


@pytest.mark.parametrize("m", [64, 128])
@pytest.mark.parametrize("n", [8, 24, 48, 256])
def test_every_shape(cpu: Device, m: int, n: int) -> None:
    exactly(cpu, Product(m=m, n=n))


def test_product_of_64_rows_may_use_the_upper_lanes(cpu: Device) -> None:
    exactly(cpu, Product(m=64, n=8, first_lane=16))


@pytest.mark.parametrize("m", [64, 128])
@pytest.mark.parametrize("type_", ["f16", "bf16", "tf32", "e4m3", "e3m2", "e2m1", "s8"])
def test_a_in_tensor_memory(cpu: Device, type_: str, m: int) -> None:
    kind = next(kind for kind, types in CODES.items() if type_ in types)
    d = "s32" if kind == "i8" else "f32"
    exactly(cpu, Product(kind, type_, type_, d, m=m, from_tensor=True))


@pytest.mark.parametrize(
    "more",
    [{"keeps": False}, {"negative": (True, False)}, {"negative": (True, True)}, {"scale": 3}, {"d": "f16", "scale": 2},
     {"masked": (0xF0F0F0F0, 0, 0xFFFFFFFF, 1)}, {"masked": (1, 2, 4, 8), "m": 64, "scale": 1}],
    ids=str,
)  # fmt: skip
def test_product_accepts_every_modifier(cpu: Device, more: dict[str, Any]) -> None:
    exactly(cpu, replace(Product(), **more))


def test_saturated_integers(cpu: Device) -> None:
    exactly(cpu, Product("i8", "s8", "u8", "s32", saturates=True))


@pytest.mark.parametrize(("kind", "type_", "d"), [("f16", "f16", "f32"), ("f16", "f16", "f16"), ("f16", "bf16", "f32"),
                                                  ("tf32", "tf32", "f32"), ("f8f6f4", "e4m3", "f32"),
                                                  ("f8f6f4", "e5m2", "f16")])  # fmt: skip
def test_sums_follow_the_published_rule(cpu: Device, kind: str, type_: str, d: str) -> None:
    """One alignment over all of k, cut at 25 bits; of random bits, ties, cancellation and NaNs."""
    x = Product(kind, type_, type_, d, m=64, n=8)
    for a, b, c in zip(*operands(f"tensor {type_}", (type_, type_, d), (64, 8, STEPS[kind]), 1), strict=True):
        got = launch(cpu, x, a.astype(np.uint64), b.astype(np.uint64), c.astype(np.uint32))
        for i in range(0, 64, 5):
            expected = [aligned_sum(a[i], b[j], int(c[i, j]), (type_, type_, d, d)) for j in range(8)]
            np.testing.assert_array_equal(got[i], expected)


@pytest.mark.parametrize("signs", [1, -1])
def test_sums_of_the_largest_products(cpu: Device, signs: int) -> None:
    """Of 32 numbers of one size the sum has more than 31 bits below the place of the largest product."""
    x = Product("f8f6f4", "e4m3", "e4m3", negative=(signs < 0, False))
    a, b = np.full((x.m, 32), 0x44, np.uint64), np.full((x.n, 32), 0x44, np.uint64)
    got = launch(cpu, x, a, b, np.zeros((x.m, x.n), np.uint32))
    np.testing.assert_array_equal(got, words_of(np.full((x.m, x.n), signs * 288.0), "f32"))


SCALED = [
    *(Product("mxf8f6f4", a, b, chunks=1, places=(1, 3), size=size) for a in SMALL for b, size in zip(
        SMALL, ("", ".scale_vec::1X", ".block32", "", ""), strict=True)),
    Product("mxf4", "fp4", "fp4", n=40, chunks=2, places=(2, 0)),
    Product("mxf4", "fp4", "fp4", chunks=2, places=(0, 2), size=".block32", from_tensor=True, negative=(True, False)),
    Product("mxf4nvf4", "fp4", "fp4", chunks=2, places=(0, 2), size=".scale_vec::2X"),
    Product("mxf4nvf4", "fp4", "fp4", n=136, chunks=4, size=".scale_vec::4X"),
    Product("mxf4nvf4", "fp4", "fp4", chunks=4, size=".block16", factor="ue4m3", keeps=False),
]  # fmt: skip


@pytest.mark.parametrize("x", SCALED, ids=str)
def test_scale_factors(cpu: Device, x: Product) -> None:
    steps, rng = STEPS[x.kind], np.random.default_rng(5)
    a, b = codes(x.a, x.m, steps, 1), codes(x.b, x.n, steps, 2)
    near = {"ue8m0": range(124, 131), "ue4m3": [0x30, 0x38, 0x3C, 0x40]}[x.factor]
    of_a, of_b = (np.array(near, np.uint64)[rng.integers(0, len(near), (rows, x.chunks))] for rows in (x.m, x.n))
    left, right = (
        numbers(m, t) * np.repeat(values_of(f, x.factor), steps // x.chunks, axis=1)
        for m, t, f in ((a, x.a, of_a), (b, x.b, of_b))
    )
    c = rng.integers(-64, 64, (x.m, x.n)).astype(np.float64)
    expected = (-1 if x.negative[0] else 1) * (left @ right.T) + (c if x.keeps else 0)
    got = launch(cpu, x, a, b, words_of(c, "f32"), factors=(of_a, of_b))
    np.testing.assert_array_equal(got, words_of(expected, "f32"))


def exact_number(code: int, type_: str) -> tuple[Fraction, int]:
    """Give the value of a small float, and the exponent that it is aligned by."""
    exponent, fraction, bias = {"e4m3": (4, 3, 7), "ue4m3": (4, 3, 7), "e5m2": (5, 2, 15), "e2m3": (2, 3, 1),
                                "e3m2": (3, 2, 3), "e2m1": (2, 1, 1), "fp4": (2, 1, 1)}[type_]  # fmt: skip
    power, rest = code >> fraction & (1 << exponent) - 1, code & (1 << fraction) - 1
    sign = -1 if code >> (exponent + fraction) & 1 else 1
    own = max(power, 1) - bias
    return sign * (rest + (1 << fraction if power else 0)) * Fraction(2) ** (own - fraction), own


def exact_factor(code: int, type_: str) -> tuple[Fraction, int]:
    return (Fraction(2) ** (code - 127), code - 127) if type_ == "ue8m0" else exact_number(code, type_)


def scaled_sum(x: Product, a: Array, b: Array, c: int, factors: tuple[Array, Array]) -> Fraction:
    """Sum a row of A times a column of B and a whole C by the published rule, before the sum is cut to f32.

    Source: the rule, not the code, of microsoft/MMA-Sim (arXiv 2511.10909).
    """
    fused, width = (16, 35) if x.a == "fp4" else (1, 25)
    terms = [(Fraction(c), abs(c).bit_length() - 1 if c else -126)]
    for first in range(0, len(a), fused):
        chunk = first * x.chunks // len(a)
        (s, of_s), (t, of_t) = (exact_factor(int(f[chunk]), x.factor) for f in factors)
        pairs = [(exact_number(int(a[k]), x.a), exact_number(int(b[k]), x.b)) for k in range(first, first + fused)]
        value = sum((left[0] * right[0] for left, right in pairs), Fraction(0)) * s * t
        own = sum(number[1] for number in pairs[0]) if fused == 1 else 0
        terms.append((value, of_s + of_t + own))
    unit = Fraction(2) ** (max(own for value, own in terms if value or own == -126) - width)
    return sum((int(value / unit) * unit for value, _ in terms), Fraction(0))


def cut(value: Fraction) -> float:
    """Cut a normal number to f32, toward zero."""
    near = np.float32(float(value))
    return float(np.nextafter(near, np.float32(0)) if abs(Fraction(float(near))) > abs(value) else near)


ROUNDED = [
    *(Product("mxf8f6f4", t, t, n=8, chunks=1) for t in SMALL), Product("mxf8f6f4", "e5m2", "e2m1", n=8, chunks=1),
    Product("mxf4", "fp4", "fp4", n=8, chunks=2), Product("mxf4nvf4", "fp4", "fp4", n=8, chunks=4, size=".block16"),
    Product("mxf4nvf4", "fp4", "fp4", n=8, chunks=4, size=".block16", factor="ue4m3"),
]  # fmt: skip


@pytest.mark.parametrize("adverse", [False, True])
@pytest.mark.parametrize("x", ROUNDED, ids=str)
def test_scaled_sums_follow_the_published_rule(cpu: Device, x: Product, adverse: bool) -> None:
    """Of random codes and factors; adverse are factors far apart and a large C, beside which products get lost."""
    rng, steps = np.random.default_rng(7), STEPS[x.kind]
    most = {"e4m3": 127, "e5m2": 124, "e2m3": 32, "e3m2": 32, "e2m1": 8, "fp4": 8}
    a, b = (
        (
            rng.integers(0, most[t], (rows, steps))
            | rng.integers(0, 2, (rows, steps)) * (128 if bits_of(t) == 8 else most[t])
        ).astype(np.uint64)
        for t, rows in ((x.a, x.m), (x.b, x.n))
    )
    low, high = {"ue8m0": (107, 147) if adverse else (124, 131), "ue4m3": (1, 127) if adverse else (0x30, 0x40)}[
        x.factor
    ]
    factors = tuple(rng.integers(low, high, (rows, x.chunks)).astype(np.uint64) for rows in (x.m, x.n))
    c = rng.integers(-(1 << 23), 1 << 23, (x.m, x.n)) if adverse else rng.integers(-64, 64, (x.m, x.n))
    c[::4] = 0
    got = launch(cpu, x, a, b, words_of(c.astype(np.float64), "f32"), factors=(factors[0], factors[1]))
    for i in range(0, x.m, 3):
        sums = [scaled_sum(x, a[i], b[j], int(c[i, j]), (factors[0][i], factors[1][j])) for j in range(x.n)]
        np.testing.assert_array_equal(got[i], words_of(np.array([cut(s) for s in sums]), "f32"))


COPIED = {
    "128x256b": (128, 32, [0, 1, 2, 3]), "128x128b": (128, 16, [0, 1, 2, 3]), "4x256b": (4, 32, [0, 1, 2, 3]),
    "64x128b.warpx2::02_13": (64, 16, [0, 1, 0, 1]), "64x128b.warpx2::01_23": (64, 16, [0, 0, 1, 1]),
    "32x128b.warpx4": (32, 16, [0, 0, 0, 0]),
}  # fmt: skip
"""Rows and bytes of a copy, and which 32 rows, or which row, are in each 32 lanes."""
PACKED = {"": 8, ".b8x16.b4x16_p64": 4, ".b8x16.b6x16_p32": 6}


@pytest.mark.parametrize("mode", [0, 2, 4, 6])
@pytest.mark.parametrize("packed", PACKED)
@pytest.mark.parametrize("copy", COPIED)
def test_copies_from_shared_memory(cpu: Device, copy: str, packed: str, mode: int) -> None:
    rows, size, groups = COPIED[copy]
    bits = PACKED[packed]
    given = np.random.default_rng(6).integers(0, 1 << bits, (rows, size)).astype(np.uint64)
    stored = store(np.resize(given, (max(rows, 8), size)), bits, mode, False)
    if bits == 4:
        given <<= np.uint64(2)  # in the middle of its byte, as A of a product
    before = np.random.default_rng(7).integers(0, 1 << 32, (COLUMNS, LANES), np.uint32)
    more = np.array([stored.descriptor, *[0] * 7], np.uint64)
    text = text_of(Product(), copy=copy + packed).replace("ld.global.b32 at, [p3+56];", "mov.u32 at, 7;")
    arrays = (padded(stored.image, 32768), padded(stored.image, 65536), before, more)
    after = run_scene(cpu, Scene("copy", text, arrays, 1, 128))[2]
    words = np.ascontiguousarray(given.astype(np.uint8)).view(np.uint32).reshape(-1, min(rows, 32), size // 4)
    expected = before.copy()
    if copy == "4x256b":
        expected[7 : 7 + size // 4, ::32] = words.reshape(4, -1).T
    else:
        expected[7 : 7 + size // 4] = np.concatenate([words[group] for group in groups]).T
    np.testing.assert_array_equal(after, expected)


def test_four_rows_go_to_one_lane_of_every_warp(cpu: Device) -> None:
    given = np.random.default_rng(6).integers(0, 256, (8, 32)).astype(np.uint64)
    stored = store(given, 8, 0, False)
    text = text_of(Product(), copy="4x256b").replace("ld.global.b32 at, [p3+56];", f"mov.u32 at, {31 << 16 | 7};")
    more = np.array([stored.descriptor, *[0] * 7], np.uint64)
    arrays = (padded(stored.image, 32768), padded(stored.image, 65536), np.zeros((COLUMNS, LANES), np.uint32), more)
    after = run_scene(cpu, Scene("copy", text, arrays, 1, 128))[2]
    expected = np.zeros_like(after)
    expected[7:15, 31::32] = np.ascontiguousarray(given[:4].astype(np.uint8)).view(np.uint32).T
    np.testing.assert_array_equal(after, expected)
    with raises(KernelFaultError, "fault-tensor-memory", "lane 32", "tcgen05.cp"):
        run_scene(cpu, Scene("copy", text.replace(str(31 << 16 | 7), str(32 << 16 | 7)), arrays, 1, 128))


@pytest.mark.parametrize("issuer", [None, 0])
@pytest.mark.parametrize("lane", [0, 96])
def test_rows_move_by_a_lane(cpu: Device, lane: int, issuer: int | None) -> None:
    """8 columns of the 32 lanes of a warp, but for the last one; of a pair, in both blocks."""
    x = Product(m=128 if issuer is None else 256, issuer=issuer)
    before = np.random.default_rng(7).integers(0, 1 << 32, (x.blocks, COLUMNS, LANES), np.uint32)
    begin, _, end = text_of(x, copy="4x256b").partition(f"@one tcgen05.cp.cta_group::{x.blocks}.4x256b [at], da;")
    text = f"{begin} mov.u32 at, {lane << 16 | 9}; @one tcgen05.shift.cta_group::{x.blocks}.down [at];\n{end}"
    arrays = (
        np.zeros(32768 * x.blocks, np.uint8),
        np.zeros(65536 * x.blocks, np.uint8),
        before,
        np.zeros(8, np.uint64),
    )
    after = run_scene(cpu, Scene("shift", text, arrays, x.blocks, 128))[2]
    expected = before.copy()
    expected[:, 9:17, lane : lane + 31] = before[:, 9:17, lane + 1 : lane + 32]
    np.testing.assert_array_equal(after, expected)
    for wrong, word in ((lane + 16 << 16 | 9, f"lane {lane + 16}"), (lane << 16 | 505, "8 columns")):
        other = text.replace(f"mov.u32 at, {lane << 16 | 9};", f"mov.u32 at, {wrong};")
        with raises(KernelFaultError, "fault-tensor-memory", word, "tcgen05.shift"):
            run_scene(cpu, Scene("wrong", other, arrays, x.blocks, 128))


@pytest.mark.parametrize("column", [8, 9, 16, 17])
def test_who_does_not_wait_for_a_shift_is_told(cpu: Device, column: int) -> None:
    load = f"tcgen05.ld.sync.aligned.32x32b.x1.b32 {{r0}}, [t+{column}];"
    begin, _, end = text_of(Product(), copy="4x256b").partition("@one tcgen05.cp.cta_group::1.4x256b [at], da;")
    text = f"{begin} mov.u32 at, 9; @one tcgen05.shift.cta_group::1.down [at];\n{load}\n{end}"
    arrays = (np.zeros(32768, np.uint8), np.zeros(65536, np.uint8), np.zeros((COLUMNS, LANES), np.uint32))
    scene = Scene("shift", text, (*arrays, np.zeros(8, np.uint64)), 1, 128)
    if 9 <= column < 17:
        with raises(KernelFaultError, "fault-tensor-memory", "tcgen05.ld", "tcgen05.shift", "try_wait"):
            run_scene(cpu, scene)
    else:
        run_scene(cpu, scene)


@pytest.mark.parametrize("schedule", [None, *range(1, 5)])
@pytest.mark.parametrize("waits", ["late", "never"])
def test_missing_wait_for_a_product_is_reported(waits: str, schedule: int | None) -> None:
    a, b = codes("f16", 128, 16, 1), codes("f16", 32, 16, 2)
    before = words_of(np.full((128, 32), 7.0), "f32")
    with raises(KernelFaultError, "fault-tensor-memory", "tcgen05.ld", "tcgen05.mma", "try_wait"):
        launch(cujit.cpu(schedule=schedule), Product(), a, b, before, waits=waits)


@pytest.mark.parametrize("operand", ["d", "a", "factors"])
def test_product_of_data_not_yet_stored_is_found(cpu: Device, operand: str) -> None:
    """``tcgen05.wait::st`` is missing."""
    x = Product("mxf8f6f4", "e4m3", "e4m3", chunks=1, from_tensor=True)
    column = {"d": 0, "a": A_COLUMN, "factors": FACTORS[0]}[operand]
    late = f"add.u32 at, t, {column}; tcgen05.st.sync.aligned.32x32b.x1.b32 [at], {{r0}};"
    text = text_of(x).replace("tcgen05.fence::before_thread_sync;", f"{late} tcgen05.fence::before_thread_sync;")
    a, b = (codes("e4m3", rows, 32, 1) for rows in (x.m, x.n))
    arrays = arrays_of(x, a, b, np.zeros((COLUMNS, LANES), np.uint32))
    with raises(KernelFaultError, "fault-tensor-memory", f"column {column}", "tcgen05.st", "wait::st", "mma"):
        run_scene(cpu, Scene("unstored", text, arrays, 1, 128))
    waited = text.replace(late, f"{late} tcgen05.wait::st.sync.aligned;")
    run_scene(cpu, Scene("stored", waited, arrays, 1, 128))


@pytest.mark.parametrize(("operand", "chunk"), [("d", 0), ("a", 256), ("factors", 320)])
@pytest.mark.parametrize("issuer", [None, 1])
def test_product_of_unwritten_data_is_found(operand: str, chunk: int, issuer: int | None) -> None:
    """Nobody stores the 64 columns that begin at ``chunk``; of a pair, in its first block."""
    x = Product("mxf8f6f4", "e4m3", "e4m3", m=128, chunks=1, from_tensor=True, issuer=issuer)
    a, b = (codes("e4m3", rows, 32, 1) for rows in (x.m, x.n))
    own = "mov.u32 at, %cluster_ctarank; setp.eq.and.u32 done, at, 0, done;"
    kept = f"setp.eq.u32 done, n, {chunk}; {own} add.u32 at, t, n; @done bra KEPT; tcgen05.st"
    text = (
        text_of(x)
        .replace("add.u32 at, t, n; tcgen05.st", kept)
        .replace("add.u64 a, a, 32768;", "KEPT: add.u64 a, a, 32768;", 1)
    )
    arrays = arrays_of(x, a, b, np.zeros((x.blocks, COLUMNS, LANES), np.uint32))
    with raises(KernelFaultError, "fault-tensor-memory", "never wrote", f"from column {chunk} on", "mma"):
        run_scene(cujit.cpu(check="init"), Scene("unwritten", text, arrays, x.blocks, 128))
    if operand == "d":
        arrays[3][2] = x.described  # enable-input-d is false
        run_scene(cujit.cpu(check="init"), Scene("written", text, arrays, x.blocks, 128))


ALL = [(kind, type_, across) for kind, types in CODES.items() for type_ in types for across in (False, True)
       if not across or bits_of(type_) >= 8]  # fmt: skip


def at_the_end(bits: int, mode: int, across: bool, rows: int, steps: int) -> tuple[int, int]:
    """Give the descriptor of a matrix but for its address, and the bytes that it is in."""
    stored = store(np.zeros((rows, steps), np.uint64), bits, mode, across)
    return stored.descriptor, stored.end


def only_reading(instruction: str, size: int) -> str:
    """Write a kernel of one product or copy, whose matrix is in the last ``size`` bytes of shared memory."""
    body = f""".shared .align 1024 .b8 all[{1024 + size}]; .reg .pred one, done, keeps; .reg .b32 i, base, n;
        .reg .b64 da, s; mov.u32 i, %tid.x; mov.u32 n, all; setp.ne.b32 keeps, i, i;
        tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [all], 512; setp.eq.u32 one, i, 0;
        @one mbarrier.init.shared::cta.b64 [all+8], 1; bar.warp.sync -1; ld.shared.b32 base, [all];
        shr.u32 n, n, 4; add.u32 n, n, 64; cvt.u64.u32 s, n; ld.global.b64 da, [p0]; add.u64 da, da, s;
        ld.global.b32 n, [p0+8]; @one {instruction}
        @one tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [all+8];
        WAIT: mbarrier.try_wait.parity.shared::cta.b64 done, [all+8], 0; @!done bra WAIT;
        tcgen05.dealloc.cta_group::1.sync.aligned.b32 base, 512;"""
    return entry(body, 1, target="sm_100a", version="8.8")


def ends_with_shared_memory(cpu: Device, instruction: str, descriptor: int, described: int, end: int) -> None:
    """Run with as much shared memory as a matrix needs, and with less, which is a fault."""
    given = (np.array([descriptor, described], np.uint64),)
    run_scene(cpu, Scene("inside", only_reading(instruction, end), given, 1, 32))
    for less in (1, 16, 1024):
        with raises(KernelFaultError, "fault-tensor-memory", "not all in shared memory", "tcgen05"):
            run_scene(cpu, Scene("outside", only_reading(instruction, end - less), given, 1, 32))


@pytest.mark.parametrize(("kind", "type_", "across"), ALL)
def test_product_past_shared_memory_ends_the_launch(cpu: Device, kind: str, type_: str, across: bool) -> None:
    chunks = {"mxf8f6f4": 1, "mxf4": 2, "mxf4nvf4": 4}.get(kind, 0)
    d = "s32" if kind == "i8" else "f32"
    x = Product(kind, type_, type_, d, n=128, across=(across, across), chunks=chunks)
    size = {"mxf4nvf4": ".scale_vec::4X"}.get(kind, "")
    words = f"{kind}.block_scale{size}" if chunks else kind
    factors = ", [base+320], [base+330]" if chunks else ""
    product = f"tcgen05.mma.cta_group::1.kind::{words} [base], da, da, n{factors}, keeps;"
    steps, bits = (STEPS[kind] // 2, 8) if type_ == "fp4" else (STEPS[kind], bits_of(type_))
    for mode in (0, 1, 2, 4, 6) if across else (0, 2, 4, 6):
        descriptor, end = at_the_end(bits, mode, across, 128, steps)
        ends_with_shared_memory(cpu, product, descriptor, x.described, end)


@pytest.mark.parametrize("packed", PACKED)
@pytest.mark.parametrize("copy", [copy for copy in COPIED if copy != "4x256b"])
def test_copy_past_shared_memory_ends_the_launch(cpu: Device, copy: str, packed: str) -> None:
    rows, size, _ = COPIED[copy]
    for mode in (0, 2, 4, 6):
        descriptor, end = at_the_end(PACKED[packed], mode, False, rows, size)
        ends_with_shared_memory(cpu, f"tcgen05.cp.cta_group::1.{copy}{packed} [base], da;", descriptor, 0, end)


def test_no_copy_of_four_rows_reads_beyond_shared_memory(cpu: Device) -> None:
    ends_with_shared_memory(cpu, "tcgen05.cp.cta_group::1.4x256b [base], da;", 8 << 16 | 8 << 32 | 1 << 46, 0, 192)


WRONG = {
    "M": (replace(Product(), m=96), "descriptor"),
    "N": (replace(Product("i8", "s8", "s8", "s32"), n=40), "descriptor"),
    "pattern": (replace(Product(), modes=(3, 2)), "descriptor"),
    "lane": (replace(Product(m=128), first_lane=32), "lane"),
}


@pytest.mark.parametrize("name", WRONG)
def test_products_that_do_not_exist_end_the_launch(cpu: Device, name: str) -> None:
    x, word = WRONG[name]
    good = replace(x, m=128 if name == "M" else x.m, modes=(2, 2))
    arrays = arrays_of(good, codes("f16", 128, 16, 1), codes("f16", 32, 16, 2), np.zeros((COLUMNS, LANES), np.uint32))
    more = arrays[3]
    more[0] = int(more[0]) & ~(7 << 61) | x.modes[0] << 61
    more[2] = int(more[2]) & ~0xFFFFFFFF | x.described
    with raises(KernelFaultError, "fault-tensor-memory", word, "mma"):
        run_scene(cpu, Scene("wrong", text_of(good), arrays, 1, 128))


DISAGREEING = [
    Product("mxf8f6f4", "e4m3", "e4m3", chunks=1, factor="ue4m3"),
    Product("mxf4", "fp4", "fp4", chunks=2, places=(1, 0)),
    Product("mxf4", "fp4", "fp4", chunks=2, places=(0, 3)), Product("mxf4", "fp4", "fp4", chunks=2, factor="ue4m3"),
    Product("mxf4nvf4", "fp4", "fp4", chunks=4, size=".scale_vec::4X", places=(2, 0)),
]  # fmt: skip
"""The descriptor has a type of scale factors, or places in their words, that the instruction does not have."""


@pytest.mark.parametrize("x", DISAGREEING, ids=str)
def test_scale_layouts_that_disagree_end_the_launch(cpu: Device, x: Product) -> None:
    a, b = (np.zeros((rows, STEPS[x.kind]), np.uint64) for rows in (x.m, x.n))
    arrays = arrays_of(x, a, b, np.zeros((COLUMNS, LANES), np.uint32))
    with raises(KernelFaultError, "fault-tensor-memory", "instruction descriptor", "mma"):
        run_scene(cpu, Scene("wrong", text_of(x), arrays, 1, 128))


def test_scale_factors_in_columns_that_the_block_never_allocated(cpu: Device) -> None:
    x = Product("mxf8f6f4", "e4m3", "e4m3", chunks=1)
    a, b = (np.zeros((rows, 32), np.uint64) for rows in (x.m, x.n))
    arrays = arrays_of(x, a, b, np.zeros((COLUMNS, LANES), np.uint32))
    text = text_of(x).replace(f"[base+{FACTORS[0]}]", f"[base+{COLUMNS - 2}]")
    with raises(KernelFaultError, "fault-tensor-memory", "4 columns", "from column 510", "mma"):
        run_scene(cpu, Scene("wrong", text, arrays, 1, 128))


@pytest.mark.parametrize("waits", [True, False])
def test_commit_to_an_mbarrier_that_nobody_waits_for(cpu: Device, waits: bool) -> None:
    """Who waits at another mbarrier waits forever; who does not wait deallocates too early."""
    x = Product()
    text = text_of(x).replace(".shared .align 8 .b64 bar;", ".shared .align 8 .b64 bar; .shared .align 8 .b64 other;")
    text = text.replace("b64 [bar], 1;", "b64 [bar], 1; @one mbarrier.init.shared::cta.b64 [other], 1;")
    text = text.replace("shared::cluster.b64 [bar];", "shared::cluster.b64 [other];")
    if not waits:
        begin, _, end = text.partition("WAIT:")
        text = begin + end[end.index("setp.lt.u32 one, i, 32; @!one bra OVER;") :]
    arrays = arrays_of(x, codes("f16", 128, 16, 1), codes("f16", 32, 16, 2), np.zeros((COLUMNS, LANES), np.uint32))
    code, words = (
        ("fault-deadlock", ("try_wait",)) if waits else ("fault-tensor-memory", ("dealloc", "mma", "try_wait"))
    )
    with raises(KernelFaultError, code, *words):
        run_scene(cpu, Scene("elsewhere", text, arrays, 1, 128))


def test_commit_signals_several_blocks(cpu: Device) -> None:
    """Block 0 of a cluster commits for both blocks, and each waits at a barrier of its own."""
    body = """.shared .align 8 .b64 bar; .reg .pred one, done; .reg .b32 i, rank; .reg .b16 mask; .reg .b64 a;
        mov.u32 i, %tid.x; setp.eq.u32 one, i, 0; mov.u32 rank, %cluster_ctarank; mov.u16 mask, 3;
        @one mbarrier.init.shared::cta.b64 [bar], 1; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
        setp.eq.and.u32 one, rank, 0, one;
        @one tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [bar], mask;
        WAIT: mbarrier.try_wait.parity.shared::cta.b64 done, [bar], 0; @!done bra WAIT;
        mad.wide.u32 a, rank, 4, p0; st.global.b32 [a], 7;
        barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"""
    text = entry(body, 1, target="sm_100a", version="8.8", directives=".reqnctapercluster 2, 1, 1")
    got = run_scene(cpu, Scene("multicast", text, (np.zeros(2, np.int32),), 2, 32))[0]
    np.testing.assert_array_equal(got, [7, 7])


@pytest.mark.parametrize("waits", [True, False])
def test_commit_to_another_block_lets_it_write(waits: bool) -> None:
    """Block 1 writes to a matrix in block 0 when the product that reads the matrix is done, or too early."""
    again = "WAIT: mbarrier.try_wait.parity.shared::cta.b64 done, [bar], 0; @!done bra WAIT;"
    body = f""".shared .align 1024 .b8 all[8192]; .shared .align 8 .b64 bar; .shared .align 4 .b32 place;
        .reg .pred one, done, keeps, here; .reg .b32 i, rank, n, base; .reg .b16 mask; .reg .b64 da, s;
        mov.u32 i, %tid.x; setp.eq.u32 one, i, 0; mov.u32 rank, %cluster_ctarank; mov.u16 mask, 3;
        setp.ne.b32 keeps, i, i; setp.eq.u32 here, rank, 0; mov.u32 base, 0;
        @one mbarrier.init.shared::cta.b64 [bar], 1; mov.u32 n, all; mad.lo.u32 n, i, 4, n;
        ZERO: st.shared.b32 [n], base; add.u32 n, n, 128; add.u32 base, base, 1; setp.lt.u32 done, base, 64;
        @done bra ZERO; fence.proxy.async.shared::cta; mov.u32 base, 0;
        @here tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [place], 32;
        barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
        @here ld.shared.b32 base, [place]; mov.u32 n, all; shr.u32 n, n, 4; cvt.u64.u32 s, n;
        ld.global.b64 da, [p0]; add.u64 da, da, s; ld.global.b32 n, [p0+8]; and.pred one, one, here;
        @one tcgen05.mma.cta_group::1.kind::f16 [base], da, da, n, keeps;
        @one tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [bar], mask;
        @here bra WAIT; {"" if waits else "bra WRITE;"}
        {again} WRITE: mov.u32 n, all; mapa.shared::cluster.u32 n, n, 0; setp.eq.u32 one, i, 3;
        not.pred done, here; and.pred one, one, done; @one st.shared::cluster.b32 [n], rank;
        barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
        @here tcgen05.dealloc.cta_group::1.sync.aligned.b32 base, 32;"""
    text = entry(body, 1, target="sm_100a", version="8.8", directives=".reqnctapercluster 2, 1, 1")
    stored = store(np.zeros((64, 16), np.uint64), 16, 0, False)
    given = (np.array([stored.descriptor, Product(m=64, n=8).described], np.uint64),)
    scene = Scene("far", text, given, 2, 32)
    if waits:
        run_scene(cujit.cpu(check="race"), scene)
    else:
        with raises(KernelFaultError, "fault-race", "st.shared::cluster", "tcgen05.mma"):
            run_scene(cujit.cpu(check="race"), scene)
