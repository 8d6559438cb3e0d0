"""A kernel of one product in tensor memory, of one block or a pair, and what comes of it for matrices of codes.

No result was ever compared with hardware.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cujit.devices.device import Device
from instructions.scene import Scene, entry, run_scene
from instructions.scenes_matrix import codes_for, values_of
from instructions.tensor_layouts import BLOCK, LANE, factor_cells, left_rows, metadata_bits, store, sum_cells

Array = npt.NDArray[Any]

COLUMNS, LANES = 512, 128
A_COLUMN, FACTORS, METADATA = 256, (320, 330), 340
"""D is in the first half of tensor memory; in the second one are A, if it is there, scale factors, and metadata."""

BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e2m3": 6, "e3m2": 6, "e2m1": 4, "fp4": 4}
"""Bits of an element in shared memory; of others, 8."""
STEPS = {"f16": 16, "tf32": 8, "f8f6f4": 32, "i8": 32, "mxf8f6f4": 32, "mxf4": 64, "mxf4nvf4": 64}
SMALL = {"e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5}
CODES = {
    "f16": {"f16": 0, "bf16": 1},
    "tf32": {"tf32": 2},
    "f8f6f4": SMALL,
    "i8": {"u8": 0, "s8": 1},
    "mxf8f6f4": SMALL,
    "mxf4": {"fp4": 1},
    "mxf4nvf4": {"fp4": 1},
}
RESULTS = {"f16": 0, "f32": 1, "s32": 2}


@dataclass(frozen=True)
class Product:
    """One product; ``modes`` and ``across`` are of A and B."""

    kind: str = "f16"
    a: str = "f16"
    b: str = "f16"
    d: str = "f32"
    m: int = 128
    n: int = 32
    modes: tuple[int, int] = (2, 2)
    across: tuple[bool, bool] = (False, False)
    negative: tuple[bool, bool] = (False, False)
    from_tensor: bool = False
    keeps: bool = True
    masked: tuple[int, ...] | None = None
    scale: int | None = None
    saturates: bool = False
    first_lane: int = 0
    chunks: int = 0
    places: tuple[int, int] = (0, 0)
    """Which bytes of words are the first scale factors of A and B."""
    factor: str = "ue8m0"
    size: str = ""
    """The word for the size of blocks."""
    issuer: int | None = None
    """Which block of a pair issues the product; None where there is one block."""
    sparse: bool = False
    selector: int = 0
    stationary: bool = False
    zeros: int | None = None
    """The zero-column mask descriptor, or None if the instruction has none."""
    most_shift: int = 0

    @property
    def blocks(self) -> int:
        """How many blocks the product is done in."""
        return 1 if self.issuer is None else 2

    @property
    def layout(self) -> str:
        """The letter of D's layout. Source: PTX ISA 9.1, 9.7.16.10.5 "Data Path Layout Organization"."""
        if self.blocks == 2:
            return "A" if self.m == 256 else "C" if self.sparse else "B"
        return "D" if self.m == 128 else "G" if self.m == 32 else "E" if self.stationary else "F"

    @property
    def shift(self) -> int:
        """By how many columns B is shifted."""
        return (self.zeros or 0) >> 56 & 63

    @property
    def described(self) -> int:
        """The instruction descriptor. Source: PTX ISA 9.1, 9.7.16.4.2, tables 42 and 43."""
        fields = [
            (0, self.selector), (2, int(self.sparse)), (30, self.most_shift),
            (3, int(self.saturates)), (4, self.places[1] if self.chunks else RESULTS[self.d]),
            (7, CODES[self.kind][self.a]), (23, int(self.chunks > 0 and self.factor == "ue8m0")), (29, self.places[0]),
            (10, CODES[self.kind][self.b]), (13, int(self.negative[0])), (14, int(self.negative[1])),
            (15, int(self.across[0])), (16, int(self.across[1])), (17, self.n // 8), (24, self.m // 16),
        ]  # fmt: skip
        return sum(value << at for at, value in fields)


def bits_of(type_: str) -> int:
    return BITS.get(type_, 8)


def codes(type_: str, rows: int, steps: int, seed: int) -> Array:
    """Codes as they lie in shared memory: e2m1 in 4 bits."""
    rng = np.random.default_rng(seed)
    found = codes_for("fp4" if type_ == "e2m1" else type_, (rows, steps), rng)
    return found & np.uint64(63) if bits_of(type_) == 6 else found


def numbers(given: Array, type_: str) -> Array:
    return np.asarray(values_of(given, "fp4" if type_ == "e2m1" else type_), np.float64)


def registers(first: int, count: int) -> str:
    return "{" + ", ".join(f"r{k}" for k in range(first, first + count)) + "}"


def text_of(x: Product, *, waits: str = "early", copy: str = "") -> str:
    """Write the kernel: p0 is A and p1 B in shared memory, p2 tensor memory before and after, p3 what else it takes.

    Each block of a pair has its own part of the first three.
    """
    group, pair = f"cta_group::{x.blocks}", x.issuer is not None
    meet = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" if pair else "bar.sync 0;"
    own = (
        f"""mov.u32 n, %cluster_ctarank; mad.wide.u32 p0, n, 32768, p0; mad.wide.u32 p1, n, 65536, p1;
        mad.wide.u32 p2, n, 262144, p2; setp.eq.u32 issues, n, {x.issuer};"""
        if pair
        else "setp.eq.u32 issues, 0, 0;"
    )
    several, both = (".multicast::cluster", ", 3") if pair else ("", "")
    mask = f", {registers(1, 4 * x.blocks)}" if x.masked else ""
    scale = f", {x.scale}" if x.scale is not None else ""
    a = f"[at+{A_COLUMN}]" if x.from_tensor else "da"
    scale, kind = (scale, x.kind) if not x.chunks else ("", f"{x.kind}.block_scale{x.size}")
    factors = f", [base+{FACTORS[0]}], [base+{FACTORS[1]}]" if x.chunks else ""
    words = f"{'.ws' * x.stationary}{'.sp' * x.sparse}"
    metadata = f", [at+{METADATA}]" if x.sparse else ""
    zeros = ", s" if x.zeros is not None else ""
    product = f"""ld.global.b64 s, [p3+24];
        @one tcgen05.mma{words}.{group}.kind::{kind} [at], {a}, db{metadata}, n{mask}{factors}, keeps{scale}{zeros};"""
    if copy:
        product = f"@one tcgen05.cp.{group}.{copy} [at], da;"
    wait = "WAIT: mbarrier.try_wait.parity.shared::cta.b64 done, [bar], 0; @!done bra WAIT;"
    body = f"""
        .shared .align 1024 .b8 left[32768]; .shared .align 1024 .b8 right[65536]; .shared .align 8 .b64 bar;
        .shared .align 4 .b32 place; .reg .pred one, issues, done, keeps; .reg .b32 i, n, t, at, base, r<70>;
        .reg .b64 a, da, db, s;
        {own} mov.u32 i, %tid.x; setp.lt.u32 one, i, 32;
        @one tcgen05.alloc.{group}.sync.aligned.shared::cta.b32 [place], 512;
        setp.eq.u32 one, i, 0; @one mbarrier.init.shared::cta.b64 [bar], 1;
        mov.u32 n, i; LEFT: mul.wide.u32 s, n, 4; add.u64 a, p0, s; ld.global.b32 r0, [a]; mov.u32 at, left;
        mad.lo.u32 at, n, 4, at; st.shared.b32 [at], r0; add.u32 n, n, 128; setp.lt.u32 done, n, 8192; @done bra LEFT;
        mov.u32 n, i; RIGHT: mul.wide.u32 s, n, 4; add.u64 a, p1, s; ld.global.b32 r0, [a]; mov.u32 at, right;
        mad.lo.u32 at, n, 4, at; st.shared.b32 [at], r0; add.u32 n, n, 128; setp.lt.u32 done, n, 16384;
        @done bra RIGHT;
        bar.sync 0; ld.shared.b32 base, [place]; shr.u32 t, i, 5; shl.b32 t, t, 21; add.u32 t, t, base;
        mov.u32 n, 0; mad.wide.u32 a, i, 4, p2;
        FILL: {" ".join(f"ld.global.b32 r{k}, [a+{512 * k}];" for k in range(64))}
        add.u32 at, t, n; tcgen05.st.sync.aligned.32x32b.x64.b32 [at], {registers(0, 64)};
        add.u64 a, a, 32768; add.u32 n, n, 64; setp.lt.u32 done, n, 512; @done bra FILL;
        tcgen05.wait::st.sync.aligned; tcgen05.fence::before_thread_sync; fence.proxy.async.shared::cta; {meet}
        tcgen05.fence::after_thread_sync;
        ld.global.b64 da, [p3]; ld.global.b64 db, [p3+8]; ld.global.b32 n, [p3+16]; ld.global.b32 r0, [p3+20];
        setp.ne.b32 keeps, r0, 0; {" ".join(f"ld.global.b32 r{k}, [p3+{20 + 4 * k}];" for k in range(1, 9))}
        ld.global.b32 at, [p3+56]; add.u32 at, at, base;
        mov.u32 r0, left; bfe.u32 r0, r0, 4, 14; cvt.u64.u32 s, r0; add.u64 da, da, s;
        mov.u32 r0, right; bfe.u32 r0, r0, 4, 14; cvt.u64.u32 s, r0; add.u64 db, db, s;
        and.pred one, one, issues; {product}
        @one tcgen05.commit.{group}.mbarrier::arrive::one.shared::cluster{several}.b64 [bar]{both};
        {wait if waits == "early" else ""} tcgen05.fence::after_thread_sync;
        mov.u32 n, 0; mad.wide.u32 a, i, 4, p2;
        DRAIN: add.u32 at, t, n; tcgen05.ld.sync.aligned.32x32b.x64.b32 {registers(0, 64)}, [at];
        tcgen05.wait::ld.sync.aligned; {" ".join(f"st.global.b32 [a+{512 * k}], r{k};" for k in range(64))}
        add.u64 a, a, 32768; add.u32 n, n, 64; setp.lt.u32 done, n, 512; @done bra DRAIN;
        setp.lt.u32 one, i, 32; @!one bra OVER; {wait if waits == "late" else ""} OVER: {meet}
        @one tcgen05.dealloc.{group}.sync.aligned.b32 base, 512;"""
    return entry(body, 4, target="sm_100a", version="8.8", directives=".reqnctapercluster 2, 1, 1" if pair else "")


def padded(image: Array, size: int) -> Array:
    return np.concatenate([image, np.full(size - len(image), 0x22, np.uint8)])


def pairs(given: Array) -> Array:
    """Put two codes of four bits into a byte."""
    return np.asarray(given[:, ::2] | given[:, 1::2] << np.uint64(4))


def in_tensor(given: Array, type_: str) -> Array:
    """Put rows of A into words: elements of 8 bits and less have a byte each, e2m1 in the middle of it."""
    if type_ == "fp4":
        given, type_ = pairs(given), "u8"
    size = max(8, bits_of(type_))
    spread = given << np.uint64(2) if type_ == "e2m1" else given
    words = np.ascontiguousarray(spread.astype(f"u{size // 8}")).view(np.uint32)
    return np.asarray(words)


def cells_at(memory: Array, addresses: Array) -> Array:
    """Give the numbers by which addresses in tensor memory index the cells of all blocks."""
    blocks, lanes, columns = addresses // BLOCK, addresses % BLOCK // LANE, addresses % LANE
    return np.asarray(np.ravel_multi_index((blocks, columns, lanes), memory.shape))


def put_factors(x: Product, factors: tuple[Array, Array], memory: Array) -> None:
    """Put scale factors where a product finds them."""
    for k, (column, place, of_rows) in enumerate(zip(FACTORS, x.places, factors, strict=True)):
        words = np.array([sum(int(code) << 8 * (place + n) for n, code in enumerate(own)) for own in of_rows])
        addresses = factor_cells(len(of_rows), x.m, x.blocks, of_b=k == 1) + column
        memory.ravel()[cells_at(memory, addresses)] = words[:, None]


def put_metadata(x: Product, metadata: Array, memory: Array) -> None:
    """Put the metadata of each row, a whole number, where a product finds them."""
    bits = metadata_bits(x.m, x.layout, x.kind in ("f16", "tf32"), x.first_lane)
    places = cells_at(memory, bits // LANE * LANE + bits % LANE // 32 + METADATA + x.selector)
    values = metadata[:, None] >> np.arange(bits.shape[1], dtype=np.uint64) & np.uint64(1)
    masks = (1 << bits % 32).astype(np.uint32)
    np.bitwise_or.at(memory.ravel(), places, masks)
    np.bitwise_xor.at(memory.ravel(), places, np.where(values[:, :, None], np.uint32(0), masks))


def put_left(x: Product, a: Array, memory: Array) -> None:
    """Put A into tensor memory."""
    words = in_tensor(a, x.a)
    for addresses in left_rows(x.m, x.layout, x.first_lane):
        at = addresses[:, None] + A_COLUMN + np.arange(words.shape[1])
        memory.ravel()[cells_at(memory, at)] = words


def arrays_of(x: Product, a: Array, b: Array, memory: Array) -> tuple[Array, ...]:
    """List the arrays that the kernel takes: each block has its rows of A and its columns of B in shared memory."""
    images: list[Array] = []
    descriptors = []
    for m, t, mode, across, size in zip((a, b), (x.a, x.b), x.modes, x.across, (32768, 65536), strict=True):
        parts = [
            store(pairs(part) if t == "fp4" else part, 8 if t == "fp4" else bits_of(t), mode, across)
            for part in np.split(m, x.blocks)
        ]
        images.append(np.concatenate([padded(part.image, size) for part in parts]))
        descriptors.append(parts[0].descriptor)
    zeros = x.zeros or 0
    masks = (*(x.masked or (zeros & 0xFFFFFFFF, zeros >> 32)), *[0] * 8)[:8]
    more = np.array([x.described, int(x.keeps), *masks, x.first_lane * LANE, 0], np.uint32).view(np.uint64)
    return (*images, memory, np.concatenate([np.array(descriptors, np.uint64), more]))


def launch(
    cpu: Device, x: Product, a: Array, b: Array, c: Array, *, waits: str = "early",
    factors: tuple[Array, Array] | None = None, metadata: Array | None = None,
) -> Array:  # fmt: skip
    """Do a product of codes with C, given as words of D's cells; give D's cells, and require that no other changed."""
    before = np.random.default_rng(9).integers(0, 1 << 32, (x.blocks, COLUMNS, LANES), np.uint32)
    sums = cells_at(before, sum_cells(x.m, x.n, x.layout, x.first_lane))
    before.ravel()[sums] = c
    if x.from_tensor:
        put_left(x, a, before)
    if factors:
        put_factors(x, factors, before)
    if metadata is not None:
        put_metadata(x, metadata, before)
    scene = Scene("product", text_of(x, waits=waits), arrays_of(x, a, b, before), x.blocks, 128)
    after = run_scene(cpu, scene)[2].reshape(before.shape)
    got = after.ravel()[sums]
    after.ravel()[sums] = before.ravel()[sums]
    np.testing.assert_array_equal(after, before)
    return np.asarray(got)


def words_of(values: Array, d: str) -> Array:
    if d == "f16":
        return values.astype(np.float16).view(np.uint16).astype(np.uint32)
    return values.astype(np.float32).view(np.uint32) if d == "f32" else values.astype(np.int64).astype(np.uint32)


def spread(x: Product, stored: Array) -> tuple[Array, Array]:
    """Choose where the numbers of a sparse A are: two quarters of each chunk. Give A with its zeros, and the metadata.

    Source: PTX ISA 9.1, 9.7.16.10.8.1 and .2, the meaningful values of the index.
    """
    rows, count = stored.shape
    each = 2 if x.a == "fp4" else 1
    chosen = [(1, 0), (3, 2)] if x.kind == "tf32" else [(1, 0), (2, 0), (3, 0), (2, 1), (3, 1), (1, 2), (3, 2)]
    chunks = count if x.kind == "tf32" else count // (2 * each)
    which = np.random.default_rng(8).integers(0, len(chosen), (rows, chunks))
    whole = np.zeros((rows, chunks, 4, each))
    metadata = np.zeros(rows, np.uint64)
    for chunk in range(chunks):
        high, low = np.array(chosen)[which[:, chunk]].T
        own = stored.reshape(rows, chunks, -1, each)[:, chunk]
        for place, at in enumerate((low, high)[: own.shape[1]]):
            whole[np.arange(rows), chunk, at] = own[:, place]
        metadata |= (high << 2 | low).astype(np.uint64) << np.uint64(4 * chunk)
    return (whole[:, :, ::2] if x.kind == "tf32" else whole).reshape(rows, 2 * count), metadata


def used_columns(x: Product, b: Array) -> Array:
    """Give the columns of B that a zero-column mask leaves. Source: PTX ISA 9.1, 9.7.16.4.3, its examples."""
    shift, zeros = x.shift, x.zeros or 0
    found = b[shift : shift + x.n].copy()
    if zeros >> 39 & 1:
        parts = 128 // x.m
        for part in range(parts):
            skips = [0] * ((zeros >> 48 & 255) + 1) + [1] * ((zeros >> 40 & 255) + 1)
            if zeros >> (32 + part) & 1:
                skips.sort(reverse=True)
            mask = np.tile(skips, 300)[zeros >> 8 * part & 255 :][: x.n // parts]
            found[part * x.n // parts :][: x.n // parts][mask == 1] = 0
    return found


def exactly(cpu: Device, x: Product, factors: tuple[Array, Array] | None = None) -> None:
    """Compare a product of numbers whose sums are exact."""
    steps = STEPS[x.kind] * (2 if x.sparse else 1)
    a, b = codes(x.a, x.m, STEPS[x.kind], 1), codes(x.b, x.n + (32 if x.shift else 0), steps, 2)
    left, right, metadata = numbers(a, x.a), used_columns(x, numbers(b, x.b)), None
    if x.sparse:
        left, metadata = spread(x, left)
    if factors:
        left, right = (
            m * np.repeat(values_of(f, x.factor), steps // x.chunks, axis=1)
            for m, f in zip((left, right), factors, strict=True)
        )
    rng = np.random.default_rng(3)
    c = rng.integers(-64, 64, (x.m, x.n)).astype(np.float64)
    if x.saturates:
        c = np.where(c < 0, -(2.0**31) - c, 2.0**31 - 1 - c)
    signs = (-1 if x.negative[0] else 1) * (-1 if x.negative[1] else 1)
    expected = signs * (left @ right.T) + (c * 2.0 ** -(x.scale or 0) if x.keeps else 0)
    if x.saturates:
        expected = np.clip(expected, -(2**31), 2**31 - 1)
    wanted, held = words_of(expected, x.d), words_of(c, x.d)
    if x.masked:
        cells = sum_cells(x.m, x.n, x.layout, x.first_lane)
        lanes = cells // BLOCK * LANES + cells % BLOCK // LANE
        stays = np.array(x.masked)[lanes // 32] >> lanes % 32 & 1 == 1
        wanted[stays] = held[stays]
    np.testing.assert_array_equal(launch(cpu, x, a, b, held, factors=factors, metadata=metadata), wanted)
