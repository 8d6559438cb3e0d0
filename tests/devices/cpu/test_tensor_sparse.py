"""Products in tensor memory of a sparse A, and those with ``.ws``: all kinds, layouts, and masks of columns.

No result was ever compared with hardware.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import cujit
from cujit.devices.device import Device
from cujit.errors import KernelFaultError, PtxSyntaxError, UnsupportedError
from devices.cpu.tensor_products import (
    CODES,
    COLUMNS,
    METADATA,
    STEPS,
    Product,
    arrays_of,
    codes,
    exactly,
    launch,
    spread,
    text_of,
    used_columns,
    words_of,
)
from instructions.scene import Scene, entry, run_scene
from instructions.sums_inputs import operands
from instructions.sums_rule import aligned_sum
from raising import raises

pytestmark = pytest.mark.usefixtures("unoptimised")

Array = npt.NDArray[Any]

KINDS = [
    ("f16", "f16", "f32"), ("f16", "bf16", "f32"), ("f16", "f16", "f16"), ("tf32", "tf32", "f32"),
    *(("f8f6f4", type_, "f32") for type_ in ("e4m3", "e3m2", "e2m1")), ("f8f6f4", "e5m2", "f16"), ("i8", "s8", "s32"),
]  # fmt: skip


def product(kind: tuple[str, str, str], **more: Any) -> Product:
    return Product(kind[0], kind[1], kind[1], kind[2], **more)


# -- .ws --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [32, 64, 128])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_stationary_a(cpu: Device, kind: tuple[str, str, str], m: int) -> None:
    for n, from_tensor in ((64, False), (256, True)):
        exactly(cpu, product(kind, m=m, n=n, stationary=True, from_tensor=from_tensor))
    exactly(cpu, product(kind, m=m, n=128, stationary=True))


@pytest.mark.parametrize("m", [32, 64, 128])
def test_stationary_a_in_every_pattern(cpu: Device, m: int) -> None:
    for mode in (0, 2, 4, 6):
        for across in (False, True):
            exactly(cpu, Product(m=m, n=64, stationary=True, modes=(mode, mode), across=(across, across)))
    exactly(cpu, Product(m=m, n=64, stationary=True, keeps=False, negative=(True, False)))


def mask(starts: tuple[int, ...], firsts: tuple[int, ...], skip: int, use: int, shift: int = 0) -> int:
    """Write a zero-column mask descriptor. Source: PTX ISA 9.1, 9.7.16.4.3, table 45."""
    fields = [*((start, 8 * k) for k, start in enumerate(starts)), *((one, 32 + k) for k, one in enumerate(firsts))]
    return sum(value << at for value, at in (*fields, (1, 39), (skip, 40), (use, 48), (shift, 56)))


EXAMPLES = {
    (128, mask((0,), (0,), 2, 3)): [("", "0000111")],
    (64, mask((0, 0), (1, 0), 2, 3)): [("", "1110000"), ("", "0000111")],
    (32, mask((0, 1, 2, 1), (1, 1, 0, 0), 2, 3, 2)): [
        ("", "1110000"), ("11", "0000111"), ("00", "1110000"), ("000", "1110000"),
    ],
}  # fmt: skip
"""Examples 2 to 4 of the manual: how each mask begins, and how it goes on, from the first column on; 1 is a zero."""


@pytest.mark.parametrize("given", EXAMPLES, ids=str)
def test_mask_of_columns_is_that_of_the_manual(given: tuple[int, int]) -> None:
    m, zeros = given
    expected = "".join((first + 40 * rest)[: 128 * m // 128] for first, rest in EXAMPLES[given])
    found = used_columns(Product(m=m, n=128, stationary=True, zeros=zeros), np.ones((160, 1)))
    assert "".join(str(int(value == 0)) for value in found[:, 0]) == expected


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("given", EXAMPLES, ids=str)
def test_products_of_some_columns(cpu: Device, given: tuple[int, int], across: bool) -> None:
    m, zeros = given
    for shift, most in ((zeros >> 56, 1), (16, 2), *(((32, 3),) if m > 32 else ())):
        own = zeros & ~(63 << 56) | shift << 56
        x = Product(m=m, n=128, stationary=True, zeros=own, most_shift=most, across=(False, across))
        exactly(cpu, x)
        exactly(cpu, replace(x, zeros=shift << 56))


def test_columns_that_are_zero_are_not_read() -> None:
    """The init check finds no fault where columns that the mask leaves out were never written."""
    x = Product(m=128, n=64, modes=(0, 0), stationary=True, zeros=mask((0,), (0,), 31, 31), keeps=False)
    a, b = codes("f16", 128, 16, 1), codes("f16", 64, 16, 2)
    arrays = arrays_of(x, a, b, np.zeros((1, COLUMNS, 128), np.uint32))
    assert int(arrays[3][1]) >> 16 & 0x3FFF == 8 * (int(arrays[3][1]) >> 32 & 0x3FFF)
    half = "mul.wide.u32 s, n, 4; add.u64 a, p1, s; ld.global.b32 r0, [a]; mov.u32 at, right;"
    begin, _, end = text_of(x).partition(half)
    store = end.index("st.shared.b32 [at], r0;")
    # Parts of 8 columns are 384 bytes apart: the last four parts of each half of k stay as they are.
    skip = "rem.u32 r1, n, 768; setp.ge.u32 keeps, r1, 384; @!keeps "
    text = begin + half + end[:store] + skip + end[store:]
    run_scene(cujit.cpu(check="init"), Scene("masked", text, arrays, 1, 128))
    arrays[3][3] = 0
    with raises(KernelFaultError, "fault-init", "tcgen05.mma", "never written"):
        run_scene(cujit.cpu(check="init"), Scene("whole", text, arrays, 1, 128))


# -- .sp --------------------------------------------------------------------------------------------------

PLACES = [
    (64, 0, None, False), (64, 16, None, True), (128, 0, None, False), (128, 0, None, True), (128, 0, 0, False),
    (128, 16, 1, True), (256, 0, 0, True),
]  # fmt: skip
"""Rows, the first lane, which block of a pair issues, and whether A is in tensor memory."""


@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_sparse_a(cpu: Device, kind: tuple[str, str, str], place: tuple[int, int, int | None, bool]) -> None:
    m, first_lane, issuer, from_tensor = place
    more = {"first_lane": first_lane, "issuer": issuer, "from_tensor": from_tensor}
    selector = int(from_tensor and kind[0] in ("f16", "tf32"))
    exactly(cpu, product(kind, m=m, n=64, sparse=True, selector=selector, **more))


@pytest.mark.parametrize("m", [32, 64, 128])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_sparse_stationary_a(cpu: Device, kind: tuple[str, str, str], m: int) -> None:
    x = product(kind, m=m, n=64, sparse=True, stationary=True)
    exactly(cpu, x)
    exactly(cpu, replace(x, n=128, from_tensor=True, zeros=mask((3,), (1,), 5, 6)))


SCALED = [
    *(Product("mxf8f6f4", type_, type_, chunks=1, places=(1, 3)) for type_ in CODES["mxf8f6f4"]),
    Product("mxf4", "fp4", "fp4", chunks=2, places=(2, 0)), Product("mxf4", "fp4", "fp4", chunks=2, size=".block32"),
    Product("mxf4nvf4", "fp4", "fp4", chunks=2, size=".scale_vec::2X"),
    Product("mxf4nvf4", "fp4", "fp4", chunks=4, size=".block16", factor="ue4m3", keeps=False),
]  # fmt: skip


@pytest.mark.parametrize("x", SCALED, ids=str)
def test_sparse_a_with_scale_factors(cpu: Device, x: Product) -> None:
    near = {"ue8m0": range(124, 131), "ue4m3": [0x30, 0x38, 0x3C, 0x40]}[x.factor]
    for m, issuer, from_tensor in ((128, None, False), (128, None, True), (256, 0, True)):
        rng = np.random.default_rng(5)
        own = replace(x, m=m, n=64, issuer=issuer, from_tensor=from_tensor, sparse=True)
        factors = [np.array(near, np.uint64)[rng.integers(0, len(near), (rows, x.chunks))] for rows in (m, own.n)]
        exactly(cpu, own, (factors[0], factors[1]))


@pytest.mark.parametrize(
    "more", [{"negative": (True, True)}, {"scale": 3}, {"masked": (0xF0F0F0F0, 0, 0xFFFFFFFF, 1)}, {"keeps": False}],
    ids=str,
)  # fmt: skip
def test_what_a_sparse_product_may_say(cpu: Device, more: dict[str, Any]) -> None:
    exactly(cpu, replace(Product(sparse=True), **more))


@pytest.mark.parametrize("negative", [False, True])
def test_zeros_of_a_sparse_a_make_no_nan(cpu: Device, negative: bool) -> None:
    """An infinity in B counts where a number of A is stored, a zero too, and nowhere else."""
    x = Product(m=64, n=8, sparse=True, negative=(negative, False), keeps=False)
    stored, b = np.full((64, 16), 0x3C00, np.uint64), np.full((8, 32), 0x3C00, np.uint64)
    stored[:, 2] = 0x8000
    b[1, 1] = b[2, 4] = b[3, 0] = 0x7C00
    metadata = np.full(64, 0x88888888, np.uint64)  # the first and the third of four
    got = launch(cpu, x, stored, b, np.zeros((64, 8), np.uint32), metadata=metadata).view(np.float32)
    sign = -1 if negative else 1
    finite, infinite = sign * 15.0, sign * np.float32(np.inf)
    expected = [finite, finite, np.nan, infinite, finite, finite, finite, finite]
    np.testing.assert_array_equal(got, np.tile(np.array(expected, np.float32), (64, 1)))


ALIGNED = [("f16", "f16", "f32"), ("f16", "bf16", "f32"), ("tf32", "tf32", "f32"), ("f8f6f4", "e4m3", "f32"),
           ("f8f6f4", "e5m2", "f16")]  # fmt: skip


@pytest.mark.parametrize(("kind", "type_", "d"), ALIGNED)
@pytest.mark.parametrize("stationary", [False, True])
def test_sums_follow_the_rule_of_dense_products(cpu: Device, kind: str, type_: str, d: str, stationary: bool) -> None:
    """One alignment over all of k, cut at 25 bits. That it is the rule of these products, too, nobody published."""
    steps = STEPS[kind]
    x = Product(kind, type_, type_, d, m=64, n=64 if stationary else 8, sparse=True, stationary=stationary)
    given = operands(f"sparse {type_}", (type_, type_, d), (64, x.n, 2 * steps), 1)
    a, b, c = (each[0] for each in given)
    stored = a[:, :steps].astype(np.uint64)
    whole, metadata = spread(x, stored)
    there = spread(x, np.ones_like(stored))[0] > 0
    got = launch(cpu, x, stored, b.astype(np.uint64), c.astype(np.uint32), metadata=metadata)
    for i in range(0, 64, 5):
        own = whole[i, there[i]].astype(np.uint64)
        expected = [aligned_sum(own, b[j, there[i]], int(c[i, j]), (type_, type_, d, d)) for j in range(x.n)]
        np.testing.assert_array_equal(got[i], expected)


# -- what does not exist ----------------------------------------------------------------------------------

WS, SP = Product(m=64, n=64, stationary=True), Product(sparse=True)
MISTAKES = {
    "a sparse product whose descriptor says dense": (SP, 0, 4, "instruction descriptor"),
    "a dense product whose descriptor says sparse": (Product(), 4, 0, "instruction descriptor"),
    "a selector of the third column": (SP, 2, 0, "instruction descriptor"),
    "a selector of 8-bit numbers": (Product("f8f6f4", "e4m3", "e4m3", sparse=True), 1, 0, "instruction descriptor"),
    "N of .ws": (replace(WS, n=32), 0, 0, "instruction descriptor"),
    "N of .ws.sp": (replace(WS, n=256, sparse=True), 0, 0, "instruction descriptor"),
    "a shift that the descriptor does not allow": (replace(WS, zeros=9 << 56, most_shift=1), 0, 0, "zero-column mask"),
    "a shift of 17 with 32 rows": (replace(WS, m=32, zeros=17 << 56, most_shift=3), 0, 0, "zero-column mask"),
    "a reserved bit of the mask": (replace(WS, zeros=1 << 36), 0, 0, "zero-column mask"),
}  # fmt: skip


def scene_of(x: Product) -> Scene:
    steps = STEPS[x.kind]
    a, b = (np.zeros((rows, k), np.uint64) for rows, k in ((x.m, steps), (x.n + (32 if x.shift else 0), steps * 2)))
    return Scene("wrong", text_of(x), arrays_of(x, a, b, np.zeros((x.blocks, COLUMNS, 128), np.uint32)), x.blocks, 128)


@pytest.mark.parametrize("name", MISTAKES)
def test_products_that_do_not_exist_end_the_launch(cpu: Device, name: str) -> None:
    x, put, cleared, words = MISTAKES[name]
    scene = scene_of(x)
    more = scene.arrays[3]
    more[2] = (int(more[2]) | put) & ~cleared
    with raises(KernelFaultError, "fault-tensor-memory", words, "mma"):
        run_scene(cpu, scene)


def test_sparse_a_of_128_rows_has_no_scale_factors_in_a_pair(cpu: Device) -> None:
    x = Product("mxf8f6f4", "e4m3", "e4m3", chunks=1, sparse=True, issuer=0)
    with raises(KernelFaultError, "fault-tensor-memory", "instruction descriptor", "mma"):
        run_scene(cpu, scene_of(x))


def test_metadata_is_in_the_lanes_of_d(cpu: Device) -> None:
    scene = scene_of(replace(SP, m=64, first_lane=16))
    wrong = replace(scene, ptx=scene.ptx.replace(f"[at+{METADATA}]", f"[base+{METADATA}]"))
    assert wrong.ptx != scene.ptx
    run_scene(cpu, scene)
    with raises(KernelFaultError, "fault-tensor-memory", "instruction descriptor", "mma"):
        run_scene(cpu, wrong)


@pytest.mark.parametrize("missing", ["columns", "wait::st", "wait for the product"])
def test_checks_see_metadata(missing: str) -> None:
    scene, here = scene_of(SP), "tcgen05.fence::before_thread_sync;"
    store = f"add.u32 at, t, {METADATA}; tcgen05.st.sync.aligned.32x32b.x1.b32 [at], {{r0}};"
    changed = {
        "columns": scene.ptx.replace(f"[at+{METADATA}]", "[at+512]"),
        "wait::st": scene.ptx.replace(here, f"{store} {here}"),
        "wait for the product": scene.ptx.replace("WAIT:", f"{store} tcgen05.wait::st.sync.aligned; WAIT:"),
    }[missing]
    word = {"columns": "512", "wait::st": "wait::st", "wait for the product": "try_wait"}[missing]
    assert changed != scene.ptx
    with raises(KernelFaultError, "fault-tensor-memory", word, "tcgen05"):
        run_scene(cujit.cpu(), replace(scene, ptx=changed))


def test_product_of_metadata_that_nobody_wrote() -> None:
    x = replace(SP, keeps=False)
    scene = scene_of(x)
    kept = "setp.eq.u32 done, n, 320; add.u32 at, t, n; @done bra KEPT; tcgen05.st"
    text = scene.ptx.replace("add.u32 at, t, n; tcgen05.st", kept).replace(
        "add.u64 a, a, 32768;", "KEPT: add.u64 a, a, 32768;", 1
    )
    with raises(KernelFaultError, "fault-tensor-memory", "never wrote", f"column {METADATA}", "mma"):
        run_scene(cujit.cpu(check="init"), replace(scene, ptx=text))


def test_words_of_d_stay_where_a_stationary_product_is_masked(cpu: Device) -> None:
    """Columns of zeros leave C, and with a false enable-input-d zeros."""
    x = Product(m=32, n=64, stationary=True, zeros=mask((0,), (1,), 255, 0), keeps=False)
    a, b = codes("f16", 32, 16, 1), codes("f16", 64, 16, 2)
    got = launch(cpu, x, a, b, words_of(np.full((32, 64), 7.0), "f32"))
    assert not got[:, :16].any()
    assert got[:, 16:].any()


REFUSED = [
    "mma.ws.cta_group::2.kind::f16 [t], d, d, t, p", "mma.ws.cta_group::1.kind::f16 [t], d, d, t, {t, t, t, t}, p",
    "mma.ws.cta_group::1.kind::f16.collector::a::use [t], d, d, t, p",
    "mma.ws.cta_group::1.kind::f16 [t], d, d, t, p, t", "mma.sp.cta_group::1.kind::f16 [t], d, d, t, p",
    "mma.ws.cta_group::1.kind::mxf4.block_scale [t], d, d, t, [t], [t], p",
    "mma.sp.cta_group::1.kind::f8f6f4 [t], d, d, [t], t, p, 2", "mma.cta_group::1.kind::f8f6f4 [t], d, d, t, p, 2",
    "mma.sp.cta_group::1.kind::f16 [t], d, d, [t], t, p, 16", "mma.cta_group::1.kind::f16 [t], d, d, [t], t, p",
    "mma.cta_group::1.kind::f16.ashift [t], d, d, t, p", "mma.ws.cta_group::1.kind::f16.ashift [t], [t], d, t, p",
    "shift.cta_group::1 [t]", "shift.cta_group::1.down t", "cp.cta_group::1.4x256b.b8x16 [t], d",
    "cp.cta_group::1.4x256b.b6x16_p32 [t], d", "cp.cta_group::1.4x256b.warpx4 [t], d",
    "ld.red.sync.aligned.32x32b.x1.min.u32 {t}, t, [t]", "ld.red.sync.aligned.16x64b.x2.min.u32 {t, u}, v, [t]",
    "ld.red.sync.aligned.32x32b.x2.min.abs.u32 {t, u}, v, [t]", "ld.red.sync.aligned.32x32b.x2.min.u32 {t, u}, [t]",
]  # fmt: skip


@pytest.mark.verbatim
@pytest.mark.parametrize("statement", REFUSED)
def test_what_ptxas_refuses_is_refused(cpu: Device, statement: str) -> None:
    zeros = "mov.u32 t, 0; mov.u64 d, 0; setp.ne.u32 p, t, t;"
    body = f".reg .b32 t, u, v; .reg .b64 d; .reg .pred p; {zeros} tcgen05.{statement};"
    with pytest.raises((PtxSyntaxError, UnsupportedError)):
        run_scene(cpu, Scene("refused", entry(body, 1, target="sm_103a", version="8.8"), (np.zeros(1),), 1, 32))
