"""Tensor memory of a pair of blocks: products of both, what they allocate together, and what is wrong use of it.

No result was ever compared with hardware.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import cujit
from cujit.devices.device import Device
from cujit.errors import KernelFaultError, PtxSyntaxError
from devices.cpu.tensor_products import (
    CODES,
    COLUMNS,
    LANES,
    STEPS,
    Product,
    arrays_of,
    codes,
    exactly,
    launch,
    numbers,
    padded,
    text_of,
    words_of,
)
from instructions.scene import Scene, entry, run_scene
from instructions.scenes_matrix import values_of
from instructions.tensor_layouts import store
from raising import raises

pytestmark = pytest.mark.usefixtures("unoptimised")

PAIR = Product(m=256, n=32, issuer=0)


@pytest.mark.parametrize("issuer", [0, 1])
@pytest.mark.parametrize("m", [128, 256])
@pytest.mark.parametrize("n", [16, 48, 256])
def test_every_shape(cpu: Device, m: int, n: int, issuer: int) -> None:
    exactly(cpu, Product(m=m, n=n, issuer=issuer))


@pytest.mark.parametrize("m", [128, 256])
@pytest.mark.parametrize("kind", ["f16", "tf32", "f8f6f4", "i8"])
def test_every_kind(cpu: Device, kind: str, m: int) -> None:
    for k, type_ in enumerate(CODES[kind]):
        d = "s32" if kind == "i8" else "f32"
        exactly(cpu, Product(kind, type_, type_, d, m=m, n=64, from_tensor=k % 2 == 1, issuer=k % 2))


@pytest.mark.parametrize("m", [128, 256])
@pytest.mark.parametrize("type_", ["bf16", "tf32", "e4m3", "e3m2", "e2m1", "s8"])
def test_a_in_tensor_memory(cpu: Device, type_: str, m: int) -> None:
    kind = next(kind for kind, types in CODES.items() if type_ in types)
    d = "s32" if kind == "i8" else "f32"
    exactly(cpu, Product(kind, type_, type_, d, m=m, n=64, from_tensor=True, issuer=0))


@pytest.mark.parametrize("m", [128, 256])
def test_every_pattern_in_shared_memory(cpu: Device, m: int) -> None:
    for mode in (0, 1, 2, 4, 6):
        exactly(cpu, Product(m=m, n=64, modes=(mode, mode), across=(True, True), issuer=1))
        exactly(cpu, Product(m=m, n=64, modes=(mode if mode != 1 else 2, 2), issuer=0))


MASK = (0xF0F0F0F0, 0, 0xFFFFFFFF, 1, 2, 4, 8, 0x80000000)


@pytest.mark.parametrize(
    "more",
    [{"keeps": False}, {"negative": (True, False)}, {"scale": 3}, {"d": "f16", "scale": 2}, {"masked": MASK},
     {"masked": MASK, "m": 128, "scale": 1}],
    ids=str,
)  # fmt: skip
def test_product_accepts_every_modifier(cpu: Device, more: dict[str, Any]) -> None:
    exactly(cpu, replace(PAIR, **more))


SCALED = [
    Product(kind, type_, type_, m=m, n=n, chunks=chunks, places=places, size=size, from_tensor=from_tensor, issuer=0)
    for kind, type_, chunks, places, size, from_tensor in (
        ("mxf8f6f4", "e4m3", 1, (1, 3), "", False), ("mxf8f6f4", "e3m2", 1, (3, 0), ".block32", True),
        ("mxf4", "fp4", 2, (2, 0), "", False), ("mxf4nvf4", "fp4", 4, (0, 0), ".scale_vec::4X", True),
    )
    for m, n in ((128, 64), (256, 48), (128, 256), (256, 256))
]  # fmt: skip


@pytest.mark.parametrize("x", SCALED, ids=str)
def test_scale_factors(cpu: Device, x: Product) -> None:
    steps, rng = STEPS[x.kind], np.random.default_rng(5)
    a, b = codes(x.a, x.m, steps, 1), codes(x.b, x.n, steps, 2)
    of_a, of_b = (rng.integers(124, 131, (rows, x.chunks)).astype(np.uint64) for rows in (x.m, x.n))
    left, right = (
        numbers(m, t) * np.repeat(values_of(f, x.factor), steps // x.chunks, axis=1)
        for m, t, f in ((a, x.a, of_a), (b, x.b, of_b))
    )
    c = rng.integers(-64, 64, (x.m, x.n)).astype(np.float64)
    got = launch(cpu, x, a, b, words_of(c, "f32"), factors=(of_a, of_b))
    np.testing.assert_array_equal(got, words_of(left @ right.T + c, "f32"))


@pytest.mark.parametrize("check", [None, "all"])
@pytest.mark.parametrize("schedule", [None, *range(1, 5)])
def test_pair_kernel_is_silent_under_every_schedule(schedule: int | None, check: str | None) -> None:
    for issuer, m in enumerate((128, 256)):
        exactly(cujit.cpu(schedule=schedule, check=check), Product(m=m, issuer=issuer))


def test_each_block_copies_from_its_own_shared_memory(cpu: Device) -> None:
    given = np.random.default_rng(6).integers(0, 256, (2, 32, 16)).astype(np.uint64)
    parts = [store(part, 8, 0, False) for part in given]
    before = np.random.default_rng(7).integers(0, 1 << 32, (2, COLUMNS, LANES), np.uint32)
    left = np.concatenate([padded(part.image, 32768) for part in parts])
    more = np.array([parts[0].descriptor, *[0] * 7], np.uint64)
    arrays = (left, np.zeros(131072, np.uint8), before, more)
    after = run_scene(cpu, Scene("copy", text_of(PAIR, copy="32x128b.warpx4"), arrays, 2, 128))[2]
    words = np.ascontiguousarray(given.astype(np.uint8)).view(np.uint32)
    expected = before.copy()
    expected[:, :4] = np.tile(words.transpose(0, 2, 1), (1, 1, 4))
    np.testing.assert_array_equal(after, expected)


# -- wrong uses -------------------------------------------------------------------------------------------

HERE = "/* here */"
ALLOC = "tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [place], {};"
DEALLOC = "tcgen05.dealloc.cta_group::2.sync.aligned.b32 t, {};"
MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
HEAD = """.reg .pred odd, even; .reg .b32 t, n, rank; .reg .b64 d; .shared .align 4 .b32 place;
    .shared .align 16 .b8 m[65536];
    mov.u32 rank, %cluster_ctarank; setp.ne.u32 odd, rank, 0; not.pred even, odd; mov.u64 d, 64; mov.u32 t, 0;"""
START = f"{HEAD} {ALLOC.format(64)} ld.shared.b32 t, [place]; {MEET}"
END = f"{MEET} {DEALLOC.format(64)}"
MISTAKES = {
    "no cluster": (f"{HEAD}\n{HERE} {ALLOC.format(64)}", "cluster=2", 1),
    "the last block of three": (f"{HEAD} setp.lt.u32 odd, rank, 2; @odd bra DONE;\n{HERE} {ALLOC.format(64)} DONE:",
                                "cluster of an even number", 3),
    "alloc in one block": (f"{HEAD}\n{HERE} @odd {ALLOC.format(64)}", "never executes its part", 2),
    "dealloc in one block": (f"{START} {MEET}\n{HERE} @even {DEALLOC.format(64)}", "never executes its part", 2),
    "dealloc before a barrier that the other block waits at": (
        f"""{START} @even bra EVEN;\n{HERE} {DEALLOC.format(64)}\n{MEET} bra DONE;
        EVEN: {MEET} {DEALLOC.format(64)} DONE:""", "no barrier between the blocks", 2,
    ),
    "another number of columns": (
        f"{HEAD} @even bra EVEN;\n{HERE} {ALLOC.format(64)}\nbra DONE; EVEN: {ALLOC.format(32)} DONE:", "same columns",
        2,
    ),
    "dealloc of other columns": (
        f"""{START} {ALLOC.format(64)} {MEET} ld.shared.b32 n, [place]; @even bra EVEN;\n{HERE} {DEALLOC.format(64)}
        bra DONE; EVEN: mov.b32 t, n; {DEALLOC.format(64)} DONE:""", "same order", 2,
    ),
    "a product after dealloc": (
        f"{START} {END}\n{HERE} @even tcgen05.mma.cta_group::2.kind::f16 [t], d, d, {1 << 4 | 2 << 17 | 8 << 24}, 1;",
        "deallocated", 2,
    ),
    "columns that the block of the other rank has not": (
        f"{START}\n{HERE} @odd tcgen05.cp.cta_group::2.128x256b [t+64], d;\n{END}", "never allocated", 2
    ),
}  # fmt: skip


@pytest.mark.verbatim
@pytest.mark.parametrize("name", MISTAKES)
def test_wrong_uses_end_the_launch_at_their_line(cpu: Device, name: str) -> None:
    body, word, blocks = MISTAKES[name]
    directives = f".reqnctapercluster {blocks}, 1, 1" if blocks > 1 else ""
    text = entry(body, 1, target="sm_100a", version="8.8", directives=directives)
    line = next(k for k, each in enumerate(text.splitlines(), 1) if each.startswith(HERE))
    with raises(KernelFaultError, "fault-tensor-memory", "tcgen05", word) as e:
        run_scene(cpu, Scene("wrong", text, (np.zeros(1),), blocks, 32))
    assert (e.value.kind, e.value.line) == ("tensor_memory", line)
    right = entry(f"{START} {END}", 1, target="sm_100a", version="8.8", directives=".reqnctapercluster 2, 1, 1")
    run_scene(cpu, Scene("right", right, (np.zeros(1),), 4, 32))  # nothing of it is left


def test_pair_waits_for_columns_that_both_free(cpu: Device) -> None:
    """One warp of each block asks for more than there is, and another one frees it; both get the same columns again."""
    body = f""".reg .pred first; .reg .b32 i, t, u, rank; .reg .b64 a; .shared .align 4 .b32 place;
        .shared .align 4 .b32 other; mov.u32 i, %tid.x; setp.lt.u32 first, i, 32; mov.u32 rank, %cluster_ctarank;
        @first {ALLOC.format(512)} bar.sync 0; @first bra FIRST;
        tcgen05.alloc.cta_group::2.sync.aligned.b32 [other], 64; ld.shared.b32 t, [other]; {DEALLOC.format(64)}
        mad.wide.u32 a, rank, 4, p0; st.global.b32 [a], t; bra DONE;
        FIRST: ld.shared.b32 t, [place]; {DEALLOC.format(512)} DONE:"""
    text = entry(body, 1, target="sm_100a", version="8.8", directives=".reqnctapercluster 2, 1, 1")
    got = run_scene(cpu, Scene("again", text, (np.full(2, 9, np.int32),), 2, 64))[0]
    np.testing.assert_array_equal(got, [0, 0])


@pytest.mark.parametrize("waits", ["late", "never"])
def test_missing_wait_for_a_product_is_reported(cpu: Device, waits: str) -> None:
    a, b = codes("f16", 256, 16, 1), codes("f16", 32, 16, 2)
    before = words_of(np.full((256, 32), 7.0), "f32")
    with raises(KernelFaultError, "fault-tensor-memory", "tcgen05.ld", "tcgen05.mma", "try_wait"):
        launch(cpu, PAIR, a, b, before, waits=waits)


@pytest.mark.parametrize("block", [0, 1])
def test_product_of_data_that_a_block_has_not_stored_is_found(cpu: Device, block: int) -> None:
    """``tcgen05.wait::st`` is missing in one block."""
    late = f"setp.eq.u32 done, n, {block}; @done tcgen05.st.sync.aligned.32x32b.x1.b32 [t], {{r0}};"
    late = f"mov.u32 n, %cluster_ctarank; {late}"
    text = text_of(PAIR).replace("tcgen05.fence::before_thread_sync;", f"{late} tcgen05.fence::before_thread_sync;")
    arrays = arrays_of(
        PAIR, codes("f16", 256, 16, 1), codes("f16", 32, 16, 2), np.zeros((2, COLUMNS, LANES), np.uint32)
    )
    with raises(KernelFaultError, "fault-tensor-memory", "column 0", "tcgen05.st", "wait::st", "mma"):
        run_scene(cpu, Scene("unstored", text, arrays, 2, 128))
    waited = text.replace(late, f"{late} tcgen05.wait::st.sync.aligned;")
    run_scene(cpu, Scene("stored", waited, arrays, 2, 128))


@pytest.mark.parametrize(
    "x",
    [Product(m=64, issuer=0), Product(m=128, n=24, issuer=0), Product("i8", "s8", "s8", "s32", n=48, issuer=0),
     Product("f8f6f4", "e4m3", "e4m3", m=256, n=48, across=(False, True), issuer=0)],
    ids=str,
)  # fmt: skip
def test_products_that_do_not_exist_end_the_launch(cpu: Device, x: Product) -> None:
    bits = 16 if x.kind == "f16" else 8
    a, b = (np.zeros((rows, 256 // bits), np.uint64) for rows in (256, 256))
    with raises(KernelFaultError, "fault-tensor-memory", "descriptor", "mma"):
        run_scene(cpu, Scene("wrong", text_of(x), arrays_of(x, a, b, np.zeros((2, COLUMNS, LANES), np.uint32)), 2, 128))


@pytest.mark.verbatim
@pytest.mark.parametrize("inside", [True, False])
def test_kernel_has_one_cta_group(cpu: Device, inside: bool) -> None:
    """Ptxas refuses others, and so does cujit, whether the other group is in the kernel or in a function."""
    other = "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;"
    body = f"{START} {END}\n{other if inside else 'call f, ();'}"
    again = ".reg .pred p; .reg .b32 i; mov.u32 i, %laneid; setp.eq.u32 p, i, 40; @p call f, ();"
    outside = "" if inside else f".func f() {{ {again}\n{other} ret; }}"
    text = entry(body, 1, target="sm_100a", version="8.8", outside=outside)
    with raises(PtxSyntaxError, "ptx-syntax", "cta_group::1", "cta_group::2"):
        run_scene(cpu, Scene("mixed", text, (np.zeros(1),), 2, 32))


@pytest.mark.verbatim
@pytest.mark.parametrize(("blocks", "words", "right"), [(1, 4, True), (2, 8, True), (1, 8, False), (2, 4, False)])
def test_lane_mask_has_four_words_per_block(cpu: Device, blocks: int, words: int, right: bool) -> None:
    """As for ptxas."""
    mask = ", ".join(["n"] * words)
    product = f"setp.ne.u32 odd, n, n; @odd tcgen05.mma.cta_group::{blocks}.kind::f16 [t], d, d, t, {{{mask}}}, 1;"
    scene = Scene(
        "mask", entry(f"{HEAD} mov.u32 n, 0; {product}", 1, target="sm_100a", version="8.8"), (np.zeros(1),), 1, 32
    )
    if right:
        run_scene(cpu, scene)
        return
    with raises(PtxSyntaxError, "ptx-syntax", "tcgen05.mma"):
        run_scene(cpu, scene)


# -- what checks find between the blocks ------------------------------------------------------------------

WAIT = "WAIT: mbarrier.try_wait.parity.shared::cta.b64 done, [bar], 0; @!done bra WAIT;"
STORE = "mov.u32 n, %cluster_ctarank; setp.eq.u32 done, n, 1; mov.u32 r0, left;\n@done st.shared.b32 [r0], n;"
FENCE = "fence.proxy.async.shared::cta;"


def fenced_in(rank: int) -> str:
    """Write a fence that only one of the blocks executes."""
    return f"mov.u32 r1, %cluster_ctarank; setp.eq.u32 done, r1, {rank}; @done {FENCE}"


PLANTED = {
    "no fence in the other block": (
        FENCE, fenced_in(0), "race", ("tcgen05.mma", "no fence.proxy.async", "block (1, 0, 0)", "st.shared.b32")
    ),
    "no fence in the block that issues": (FENCE, fenced_in(1), "race", ("tcgen05.mma", "no fence.proxy.async")),
    "a fence behind the barrier in the block that issues": (
        f"{FENCE} {MEET}", f"{fenced_in(1)} {MEET} {fenced_in(0)}", "race", ()
    ),
    "no barrier between the blocks": (MEET, "bar.sync 0;", "race", ("tcgen05.mma", "block (1, 0, 0)")),
    "the other block writes too early": (WAIT, f"{STORE} {WAIT}", "race", ("tcgen05.mma", "st.shared.b32")),
    "a part of the other block's matrix is not written": (
        "mov.u32 n, i; LEFT:", "mov.u32 n, %cluster_ctarank; mad.lo.u32 n, n, 8064, i; LEFT:", "init",
        ("tcgen05.mma", "never written"),
    ),
    "the other block writes after the product": (WAIT, f"{WAIT} {STORE}", "race", ()),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_checks_see_the_shared_memory_of_both_blocks(name: str) -> None:
    old, new, check, words = PLANTED[name]
    text = text_of(PAIR)
    assert old in text
    text = text.replace(old, new, 1)
    memory = np.zeros((2, COLUMNS, LANES), np.uint32)
    scene = Scene("both", text, arrays_of(PAIR, codes("f16", 256, 16, 1), codes("f16", 32, 16, 2), memory), 2, 128)
    if not words:
        run_scene(cujit.cpu(check=check), scene)
        return
    with raises(KernelFaultError, f"fault-{check}", *words):
        run_scene(cujit.cpu(check=check), scene)
