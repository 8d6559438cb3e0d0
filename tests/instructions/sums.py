"""How tensor cores sum: every form of mma, wmma and wgmma over the operands of ``sums_inputs``, as PTX.

One launch does all warps of a form. ``tests/goldens/sums.json`` has what an H200 made of them, by kinds of operands.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cujit.devices.device import Device
from instructions.scene import Scene, run_scene
from instructions.scenes_matrix import place_of_operand, place_of_sum
from instructions.sums_inputs import FORMATS, KINDS, operands, small_operands

__all__ = ["GOLDEN", "Form", "digests", "forms", "measured", "run_form", "scene_of"]

GOLDEN = Path(__file__).parents[1] / "goldens" / "sums.json"
"""Digests of what an H200 left, recorded by ``record_sums.py``."""

Array = npt.NDArray[Any]
_LANES = np.arange(32)
# Metadata of a chunk of a sparse A, and which of its elements are stored. Source: PTX ISA 9.1, "Sparse matrix storage".
_CHUNKS = {0x4: (0, 1), 0x8: (0, 2), 0xC: (0, 3), 0x9: (1, 2), 0xD: (1, 3), 0xE: (2, 3)}


@dataclass(frozen=True)
class Form:
    """One form: ``name`` seeds its operands; ``warps`` of each kind. ``wgmma`` has 64 rows and so four warps."""

    name: str
    op: str
    shape: tuple[int, int, int]
    d: str
    a: str
    b: str
    c: str
    warps: int
    sparse: bool = False
    sign: int = 1
    small: bool = False

    @property
    def is_wmma(self) -> bool:
        """Whether matrices go through memory."""
        return self.op.startswith("wmma")

    @property
    def is_wgmma(self) -> bool:
        """Whether B lies in shared memory."""
        return self.op.startswith("wgmma")

    @property
    def is_volta(self) -> bool:
        """Whether four products are made at once."""
        return self.shape == (8, 8, 4) and self.a == "f16"

    def operands(self) -> tuple[Array, Array, Array, Array]:
        """Codes of A (as it is stored), B and C; of each warp the metadata of every chunk, and nothing where none."""
        if self.small:
            return *small_operands(self.a, self.shape), np.zeros(0, np.uint32)
        a, b, c = operands(self.name, (self.a, self.b, self.c), self.shape, self.warps)
        if not self.sparse:
            return a, b, c, np.zeros(0, np.uint32)
        rng = np.random.default_rng([zlib.crc32(self.name.encode()), 99])
        chunks = {0x4: (0,), 0xE: (1,)} if self.a == "tf32" else _CHUNKS
        size = 2 if self.a == "tf32" else 4
        picked = [list(chunks.items())[k] for k in rng.integers(0, len(chunks), len(a))]
        kept = np.array(
            [[start + p for start in range(0, self.shape[2], size) for p in places] for _, places in picked]
        )
        metadata = np.array([nibble for nibble, _ in picked], np.uint32)
        return np.take_along_axis(a, kept[:, None, :], 2), b, c, metadata


# -- registers --------------------------------------------------------------------------------------------


def _packed(x: Array, type_: str, halves: int) -> Array:
    """Registers (warps, registers, 32) of A or B (warps, rows, k)."""
    bits = FORMATS[type_].bits
    each = max(1, 32 // bits)
    count = halves * x.shape[2] // (4 * each)
    dtype = np.dtype(np.uint64 if bits == 64 else np.uint32)
    out = np.zeros((len(x), count, 32), dtype)
    for register in range(count):
        for element in range(each):
            row, k = place_of_operand(type_, halves, register, element)
            out[:, register] |= x[:, row, k].astype(dtype) << dtype.type(element * bits)
    return out


def _packed_sums(x: Array) -> Array:
    """Registers of C (warps, rows, 8)."""
    flat = np.stack([x[(slice(None), *place_of_sum(r))] for r in range(x.shape[1] // 4)], 1)
    return _pairs(flat) if x.dtype == np.uint16 else np.ascontiguousarray(flat)


def _pairs(halves: Array) -> Array:
    low, high = halves[:, 0::2].astype(np.uint32), halves[:, 1::2].astype(np.uint32)
    return np.ascontiguousarray(low | high << np.uint32(16))


def _unpacked_sums(words: Array, type_: str, rows: int) -> Array:
    """Undo ``_packed_sums``."""
    out = np.zeros((len(words), rows, 8), FORMATS[type_].dtype)
    for r in range(rows // 4):
        half = words[:, r // 2] >> np.uint32(16 * (r % 2)) if type_ == "f16" else words[:, r]
        out[(slice(None), *place_of_sum(r))] = half.astype(out.dtype)
    return out


def _volta_places(type_: str, element: int) -> tuple[Array, Array, Array]:
    """Product, row and column of C and D. Source: PTX ISA 9.1, "Matrix Fragments for mma.m8n8k4 with .f16…"."""
    product, upper = _LANES % 16 // 4, _LANES // 16 * 4
    if type_ == "f16":
        return product, _LANES % 4 + upper, np.full(32, element)
    return product, (_LANES & 1) + (element & 2) + upper, (element & 4) + (_LANES & 2) + (element & 1)


def _volta_sums(c: Array) -> Array:
    fours = c.reshape(-1, 4, 8, 8)
    type_ = "f16" if c.dtype == np.uint16 else "f32"
    flat = np.stack([fours[(slice(None), *_volta_places(type_, e))] for e in range(8)], 1)
    return _pairs(flat) if type_ == "f16" else np.ascontiguousarray(flat)


def _volta_factors(x: Array) -> Array:
    """Registers of A by rows, or B by columns."""
    own = x.reshape(-1, 4, 8, 4)[:, _LANES % 16 // 4, _LANES % 4 + _LANES // 16 * 4]
    return _pairs(own.transpose(0, 2, 1))


def _from_volta(words: Array, type_: str) -> Array:
    out = np.zeros((len(words), 4, 8, 8), FORMATS[type_].dtype)
    for e in range(8):
        own = words[:, e // 2] >> np.uint32(16 * (e % 2)) if type_ == "f16" else words[:, e]
        out[(slice(None), *_volta_places(type_, e))] = own.astype(out.dtype)
    return out.reshape(-1, 8, 8)


# -- PTX --------------------------------------------------------------------------------------------------

_HEAD = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry k({parameters}) {{
.shared .align 1024 .b8 memory[2048];
.reg .b64 far; .reg .b32 warp, lane, thread; .reg .pred yes; .reg .b64 p<{count}>;
{loads}
mov.u32 thread, %tid.x; mov.u32 lane, %ctaid.x; mov.u32 warp, %ntid.x; mad.lo.u32 lane, lane, warp, thread;
shr.u32 warp, lane, 5; and.b32 lane, lane, 31;
{body}
ret;
}}
"""


def _entry(body: list[str], pointers: int) -> str:
    parameters = ", ".join(f".param .u64 a{k}" for k in range(pointers))
    loads = "\n".join(f"ld.param.u64 p{k}, [a{k}];" for k in range(pointers))
    return _HEAD.format(parameters=parameters, count=pointers, loads=loads, body="\n".join(body))


def _group(prefix: str, count: int) -> str:
    return "{" + ", ".join(f"{prefix}{k}" for k in range(count)) + "}"


def _kind(itemsize: int, *, real: bool) -> str:
    return "f64" if itemsize == 8 else "f32" if real else "b32"


def _moved(name: str, array: Array, pointer: int, *, real: bool, load: bool) -> list[str]:
    """Load the registers of an array (warps, registers, 32), or store them."""
    count, size = array.shape[1], array.itemsize
    kind = _kind(size, real=real)
    lines = [f".reg .{kind} {name}<{count}>;"] if load else []
    lines.append(f".reg .b64 q{pointer}; mul.wide.u32 q{pointer}, warp, {count * 32 * size};")
    lines.append(f"mul.wide.u32 far, lane, {size}; add.u64 q{pointer}, q{pointer}, far;")
    lines.append(f"add.u64 q{pointer}, q{pointer}, p{pointer};")
    for k in range(count):
        place = f"[q{pointer}+{k * 32 * size}]"
        lines.append(f"ld.global.{kind} {name}{k}, {place};" if load else f"st.global.{kind} {place}, {name}{k};")
    return lines


def _mma(form: Form) -> tuple[list[str], list[Array]]:
    m, _, _ = form.shape
    a, b, c, metadata = form.operands()
    if form.is_volta:
        arrays = [_volta_factors(a), _volta_factors(b), _volta_sums(c)]
        made = np.zeros((len(a) // 4, 4 if form.d == "f16" else 8, 32), np.uint32)
    else:
        arrays = [_packed(a, form.a, m // 8), _packed(b, form.b, 1), _packed_sums(c)]
        made = np.zeros((len(a), m // 8 if form.d == "f16" else m // 4, 32), arrays[0].dtype)
    lines = []
    for k, (name, array) in enumerate(zip(("ra", "rb", "rc"), arrays, strict=True)):
        lines += _moved(name, array, k, real=name == "rc" and form.c == "f32", load=True)
    lines.append(f".reg .{_kind(made.itemsize, real=form.d == 'f32')} rd<{made.shape[1]}>;")
    groups = [_group("rd", made.shape[1])] + [
        _group(n, x.shape[1]) for n, x in zip(("ra", "rb", "rc"), arrays, strict=True)
    ]
    if form.sparse:
        arrays.append(_metadata_of(metadata))
        lines += _moved("rm", arrays[-1], 3, real=False, load=True)
        groups += ["rm0", "0x0"]
    lines.append(f"{form.op} {', '.join(groups)};")
    lines += _moved("rd", made, len(arrays), real=form.d == "f32", load=False)
    return lines, [*arrays, made]


def _metadata_of(nibbles: Array) -> Array:
    return np.repeat((nibbles * np.uint32(0x11111111))[:, None, None], 32, 2)


def _wmma(form: Form) -> tuple[list[str], list[Array]]:
    m, n, k = form.shape
    a, b, c, _ = form.operands()
    made = np.zeros((len(a), m, n), FORMATS[form.d].dtype)
    kinds = {"f32": "f32", "f64": "f64"}
    sums = {"f16": 4, "f32": 8, "f64": 2}
    factors = {"f16": (8, 8), "bf16": (m // 4, n // 4), "tf32": (4, 4), "f64": (1, 1)}[form.a]
    counts = (*factors, sums[form.c], sums[form.d])
    shape = f"m{m}n{n}k{k}"
    lines = [
        f".reg .{kinds.get(t, 'b32')} r{x}<{count}>; .reg .b64 q{x};"
        for x, t, count in zip("abcd", (form.a, form.b, form.c, form.d), counts, strict=True)
    ]
    for x, array, pointer in zip("abcd", (a, b, c, made), range(4), strict=True):
        lines.append(f"mul.wide.u32 q{x}, warp, {array[0].nbytes}; add.u64 q{x}, q{x}, p{pointer};")
    for x, layout, type_, count, stride in zip(
        "abc", ("row", "col", "row"), (form.a, form.b, form.c), counts, (k, k, n), strict=False
    ):
        lines.append(
            f"wmma.load.{x}.sync.aligned.{layout}.{shape}.global.{type_} {_group(f'r{x}', count)}, [q{x}], {stride};"
        )
    groups = ", ".join(_group(f"r{x}", count) for x, count in zip("dabc", (counts[3], *counts), strict=False))
    lines.append(f"{form.op} {groups};")
    lines.append(f"wmma.store.d.sync.aligned.row.{shape}.global.{form.d} [qd], {_group('rd', counts[3])}, {n};")
    return lines, [a, b, c, made]


def _wgmma(form: Form) -> tuple[list[str], list[Array]]:
    """A in registers, and eight columns of B in shared memory, without a pattern."""
    a, b, c, metadata = form.operands()
    given = _packed(a.reshape(-1, 16, a.shape[2]), form.a, 2)
    sums = _packed_sums(c.reshape(-1, 16, 8))
    chunks = b.shape[2] * b.itemsize // 16
    image = np.ascontiguousarray(b).view(np.uint8).reshape(len(b), 8, chunks, 16).transpose(0, 2, 1, 3)
    shared = np.ascontiguousarray(image).view(np.uint32).reshape(len(b), -1)
    words, real = shared.shape[1], form.d == "f32"
    lines = _moved("ra", given, 0, real=False, load=True) + _moved("rc", sums, 2, real=real, load=True)
    # Source: PTX ISA 9.1, "Matrix Descriptor Format": address, distances along k and across, in units of 16 bytes.
    strides = 128 >> 4 << 16 | words * 4 >> 4 << 32
    lines.append(f""".reg .b64 q1, b, rest; .reg .b32 start, x, y;
mov.u32 x, %ctaid.x; mul.wide.u32 q1, x, {words * 4}; add.u64 q1, q1, p1;
mul.wide.u32 far, thread, 4; add.u64 q1, q1, far;
mov.u32 start, memory; shl.b32 y, thread, 2; add.u32 y, y, start;
setp.lt.u32 yes, thread, {words}; @yes ld.global.b32 x, [q1]; @yes st.shared.b32 [y], x;
fence.proxy.async; bar.sync 0;
shr.u32 x, start, 4; and.b32 x, x, 0x3FFF; cvt.u64.u32 b, x; mov.u64 rest, {strides}; or.b64 b, b, rest;
setp.eq.u32 yes, thread, thread;
wgmma.fence.sync.aligned;""")
    arrays, sparse = [given, shared, sums], ""
    if form.sparse:
        arrays.append(_metadata_of(np.repeat(metadata, 4)))
        lines += _moved("rm", arrays[-1], 3, real=False, load=True)
        sparse = "rm0, 0x0, "
    trans = ", 0" if FORMATS[form.a].bits == 16 else ""
    groups = f"{_group('rc', sums.shape[1])}, {_group('ra', given.shape[1])}"
    lines.append(f"{form.op} {groups}, b, {sparse}yes, {form.sign}, 1{trans};")
    lines.append("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;")
    made = np.zeros_like(sums)
    # The registers are stored over again, at another pointer.
    lines += _moved("rc", made, len(arrays), real=real, load=False)
    return lines, [*arrays, made]


def scene_of(form: Form) -> Scene:
    """Write the launch of a form; the last array is for D."""
    lines, arrays = _wmma(form) if form.is_wmma else _wgmma(form) if form.is_wgmma else _mma(form)
    groups = len(arrays[-1]) // 4 if form.is_wgmma else len(arrays[-1])
    ptx = _entry(lines, len(arrays))
    return Scene(form.name, ptx, tuple(arrays), groups, 128 if form.is_wgmma else 32, target="sm_90a")


def run_form(device: Device, form: Form) -> Array:
    """Run a form; codes of D (warps, m, n)."""
    left = run_scene(device, scene_of(form))[-1]
    if form.is_wmma:
        return left
    if form.is_volta:
        return _from_volta(left, form.d)
    m = 16 if form.is_wgmma else form.shape[0]
    return _unpacked_sums(left, form.d, m).reshape(-1, form.shape[0], 8)


def digests(d: Array, kinds: Iterable[str] = KINDS) -> dict[str, str]:
    """Digest D, kind by kind of operands."""
    kinds = list(kinds)
    parts = np.split(np.ascontiguousarray(d), len(kinds))
    return {kind: hashlib.sha256(part.tobytes()).hexdigest()[:12] for kind, part in zip(kinds, parts, strict=True)}


def measured(device: Device, form: Form) -> dict[str, str]:
    """Run a form on all kinds of operands, and digest what it makes."""
    found = digests(run_form(device, form))
    if form.name in _SMALL:
        found |= digests(run_form(device, replace(form, small=True)), [SMALL])
    return found


# -- forms ------------------------------------------------------------------------------------------------


def _dense(shape: tuple[int, int, int], types: str, warps: int, *, sparse: bool = False) -> Form:
    d, a, b, c = types.split()
    m, n, k = shape
    op = f"mma{'.sp::ordered_metadata' if sparse else ''}.sync.aligned.m{m}n{n}k{k}.row.col.{d}.{a}.{b}.{c}"
    return Form(op, op, shape, d, a, b, c, warps, sparse)


def _mma_forms() -> list[Form]:
    found = []
    for k, warps in ((8, 20), (16, 40)):
        found += [_dense((16, 8, k), t, warps) for t in ("f32 f16 f16 f32", "f16 f16 f16 f16", "f32 bf16 bf16 f32")]
    found += [_dense((16, 8, k), "f32 tf32 tf32 f32", w) for k, w in ((4, 20), (8, 40))]
    for m, k, warps in ((8, 4, 16), (16, 4, 8), (16, 8, 8), (16, 16, 8)):
        found.append(_dense((m, 8, k), "f64 f64 f64 f64", warps))
    eights = ("e4m3 e4m3", "e5m2 e5m2", "e4m3 e5m2")
    found += [
        _dense((16, 8, k), f"{d} {x} {d}", w) for k, w in ((16, 8), (32, 20)) for x in eights for d in ("f32", "f16")
    ]
    sparse = [("f32 f16 f16 f32", 16), ("f16 f16 f16 f16", 16), ("f32 bf16 bf16 f32", 16), ("f32 tf32 tf32 f32", 8)]
    found += [_dense((16, 8, k * more), t, 12, sparse=True) for t, k in sparse for more in (1, 2)]
    eights = ("e4m3 e4m3", "e5m2 e5m2", "e5m2 e4m3")
    found += [_dense((16, 8, 64), f"f32 {x} f32", 12, sparse=True) for x in eights]
    for d, c in (("f32", "f32"), ("f16", "f16"), ("f32", "f16")):
        op = f"mma.sync.aligned.m8n8k4.row.col.{d}.f16.f16.{c}"
        found.append(Form(f"volta.{d}.{c}", op, (8, 8, 4), d, "f16", "f16", c, 48))
    return found


def _wmma_forms() -> list[Form]:
    found = []
    for m, n in ((16, 16), (32, 8), (8, 32)):
        start = f"wmma.mma.sync.aligned.row.col.m{m}n{n}k16"
        square = m == n
        for d, c in (("f32", "f32"), ("f16", "f16"), *((("f32", "f16"), ("f16", "f32")) if square else ())):
            op = f"{start}.{d}.{c}"
            found.append(Form(op, op, (m, n, 16), d, "f16", "f16", c, 6 if square else 3))
        op = f"{start}.f32.bf16.bf16.f32"
        found.append(Form(op, op, (m, n, 16), "f32", "bf16", "bf16", "f32", 4))
    op = "wmma.mma.sync.aligned.row.col.m16n16k8.f32.tf32.tf32.f32"
    found.append(Form(op, op, (16, 16, 8), "f32", "tf32", "tf32", "f32", 6))
    for rounding in ("", ".rn", ".rz", ".rm", ".rp"):
        op = f"wmma.mma.sync.aligned.row.col.m8n8k4{rounding}.f64.f64.f64.f64"
        found.append(Form(op, op, (8, 8, 4), "f64", "f64", "f64", "f64", 8))
    for rounding in (".rz", ".rm", ".rp"):
        op = f"mma.sync.aligned.m8n8k4.row.col{rounding}.f64.f64.f64.f64"
        found.append(Form(op, op, (8, 8, 4), "f64", "f64", "f64", "f64", 8))
    return found


def _group_form(k: int, types: str, warps: int, *, sparse: bool = False) -> Form:
    d, a, b = types.split()
    op = f"wgmma.mma_async{'.sp' if sparse else ''}.sync.aligned.m64n8k{k}.{d}.{a}.{b}"
    return Form(op, op, (64, 8, k), d, a, b, d, warps, sparse)


def _wgmma_forms() -> list[Form]:
    found = []
    for d in ("f32", "f16"):
        found += [_group_form(16, f"{d} f16 f16", 10), _group_form(32, f"{d} f16 f16", 4, sparse=True)]
        for x in ("e4m3 e4m3", "e4m3 e5m2", "e5m2 e4m3", "e5m2 e5m2"):
            found.append(_group_form(32, f"{d} {x}", 8 if x[:4] == x[5:] else 4))
        found += [_group_form(64, f"{d} {x}", 4, sparse=True) for x in ("e4m3 e4m3", "e5m2 e4m3")]
    found += [_group_form(16, "f32 bf16 bf16", 10), _group_form(8, "f32 tf32 tf32", 10)]
    found += [_group_form(32, "f32 bf16 bf16", 4, sparse=True), _group_form(16, "f32 tf32 tf32", 4, sparse=True)]
    for form in (_group_form(16, "f32 f16 f16", 2), _group_form(32, "f32 e4m3 e4m3", 2)):
        found.append(replace(form, name=f"{form.name}.neg", sign=-1))
    return found


SMALL = "near the least of f16"
"""The kind of operands that ``small_operands`` makes, for some forms with C of f16."""
_SMALL = (
    "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16",
    "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16",
    "mma.sync.aligned.m16n8k32.row.col.f16.e5m2.e5m2.f16",
    "wmma.mma.sync.aligned.row.col.m16n16k16.f16.f16",
    "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f16",
    "wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16",
    "wgmma.mma_async.sync.aligned.m64n8k32.f16.e5m2.e5m2",
)


def forms() -> dict[str, Form]:
    """List every form of floats that an H200 has, by name."""
    return {form.name: form for form in (*_mma_forms(), *_wmma_forms(), *_wgmma_forms())}
