"""Scenes of matrices: every form of mma over whole registers. ``Mma`` also tells what the exact result is.

Elements are small integers and powers of two (or all codes of a small float), so that the sums are exact in any order.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from instructions.scene import Scene, entry

__all__ = ["SCENES", "Mma", "Volta", "bundles", "integers", "mma_forms"]

Array = npt.NDArray[Any]

_BITS = {
    "f16": 16,
    "bf16": 16,
    "tf32": 32,
    "f64": 64,
    "f32": 32,
    "s32": 32,
    "s8": 8,
    "u8": 8,
    "s4": 4,
    "u4": 4,
    "b1": 1,
}
# Exponent bits, fraction bits, bias, and the first bit of the container of a small float.
_SMALL = {"e4m3": (4, 3, 7, 0), "e5m2": (5, 2, 15, 0), "e3m2": (3, 2, 3, 0), "e2m3": (2, 3, 1, 0), "e2m1": (2, 1, 1, 2)}
_LANES = np.arange(32)


def bits_of(type_: str) -> int:
    """Bits that an element takes in a register."""
    return 4 if type_ == "fp4" else _BITS.get(type_, 8)


# -- elements ---------------------------------------------------------------------------------------------


def values_of(codes: Array, type_: str) -> Array:
    """Numbers that codes stand for, as f64."""
    codes = np.asarray(codes, np.uint64)
    if type_ == "f16":
        return codes.astype(np.uint16).view(np.float16).astype(np.float64)
    if type_ in ("bf16", "tf32", "f32"):
        words = codes << np.uint64(16) if type_ == "bf16" else codes & np.uint64(0xFFFFE000 if type_ == "tf32" else ~0)
        return words.astype(np.uint32).view(np.float32).astype(np.float64)
    if type_ == "f64":
        return codes.view(np.float64)
    if type_ in ("s8", "s4", "s32"):
        sign = 1 << (_BITS[type_] - 1)
        return (codes.astype(np.int64) ^ sign) - sign
    if type_ in ("u8", "u4", "b1"):
        return codes.astype(np.int64)
    if type_ == "ue8m0":
        return 2.0 ** (codes.astype(np.float64) - 127)
    return _small_values(codes.astype(np.int64), *_SMALL[{"fp4": "e2m1", "ue4m3": "e4m3"}.get(type_, type_)], type_)


def _small_values(codes: Array, exponent: int, fraction: int, bias: int, low: int, type_: str) -> Array:
    codes = codes if type_ == "fp4" else codes >> low
    sign = np.where(codes >> (exponent + fraction) & 1, -1.0, 1.0) if type_ != "ue4m3" else 1.0
    power, rest = codes >> fraction & (1 << exponent) - 1, codes & (1 << fraction) - 1
    small = rest * 2.0 ** (1 - bias - fraction)
    return sign * np.where(power == 0, small, (1 + rest / (1 << fraction)) * 2.0 ** (power - bias))


def codes_for(type_: str, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Codes of tame numbers."""
    if type_ in ("f16", "bf16", "tf32", "f32", "f64"):
        x = rng.integers(-8, 9, shape) * 2.0 ** rng.integers(-3, 2, shape)
        if type_ == "f16":
            return x.astype(np.float16).view(np.uint16).astype(np.uint64)
        if type_ == "f64":
            return x.view(np.uint64)
        words = x.astype(np.float32).view(np.uint32).astype(np.uint64)
        return words >> np.uint64(16) if type_ == "bf16" else words
    codes = rng.integers(0, 1 << bits_of(type_), shape, dtype=np.uint64)
    if type_ in ("e4m3", "e5m2"):
        # Without the codes of numbers so far apart that a sum would be rounded, and those of no number.
        top = {"e4m3": (0x30, 0x50), "e5m2": (0x38, 0x48)}[type_]
        return codes & np.uint64(0x80) | rng.integers(*top, shape, dtype=np.uint64)
    return codes


def integers(shape: tuple[int, ...], large: bool, rng: np.random.Generator) -> Array:
    """Make tame integers to add to; or, where sums shall be too large, those at the ends of their range."""
    tame = rng.integers(-1000, 1000, shape)
    return np.where(tame < 0, -(2**31) - tame // 100, 2**31 - 1 - tame // 100) if large else tame


# -- fragments --------------------------------------------------------------------------------------------


def place_of_operand(type_: str, halves: int, register: int, element: int) -> tuple[Array, Array]:
    """Row (column, for B) and k of an element of A or B, for each lane.

    Source: PTX ISA 9.1, "Matrix Fragments for mma…": ``groupID``, ``threadID_in_group`` and the formulas of each.
    """
    group, thread = _LANES // 4, _LANES % 4
    in_register = max(1, 32 // bits_of(type_))
    k = thread * in_register + element + 4 * in_register * (register // halves)
    return group + 8 * (register % halves), k


def place_of_sum(register: int) -> tuple[Array, Array]:
    """Row and column of element ``register`` of C or D."""
    return _LANES // 4 + 8 * (register // 2), 2 * (_LANES % 4) + register % 2


def pack(codes: Array, type_: str, halves: int) -> Array:
    """Put a matrix (rows by k) into registers: (registers, 32)."""
    in_register = max(1, 32 // bits_of(type_))
    count = halves * codes.shape[1] // (4 * in_register)
    words = np.zeros((count, 32), np.uint64)
    for register in range(count):
        for element in range(in_register):
            row, k = place_of_operand(type_, halves, register, element)
            words[register] |= codes[row, k] << np.uint64(element * bits_of(type_))
    return words.astype(np.uint64 if type_ == "f64" else np.uint32)


def pack_sums(values: Array, type_: str) -> Array:
    """Put C or D (rows by eight columns) into registers."""
    dtype = {"f16": np.float16, "f32": np.float32, "f64": np.float64, "s32": np.int32}[type_]
    count = values.shape[0] // 4
    flat = np.stack([values[place_of_sum(k)] for k in range(count)])
    if type_ == "f16":
        pairs = flat.astype(np.float16).view(np.uint16).astype(np.uint32)
        return pairs[0::2] | pairs[1::2] << np.uint32(16)
    return np.ascontiguousarray(flat.astype(dtype))


# -- mma --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mma:
    """One form of mma, with its operands."""

    shape: tuple[int, int, int]
    d: str
    a: str
    b: str
    c: str
    words: str = ""
    sparse: str = ""
    selector: int = 0
    scale: tuple[str, int, tuple[int, int], tuple[int, int]] | None = None
    target: str = "sm_90a"
    large: bool = False

    @property
    def name(self) -> str:
        """The mnemonic."""
        m, n, k = self.shape
        real = {"fp4": "e2m1"}
        types = f"{self.d}.{real.get(self.a, self.a)}.{real.get(self.b, self.b)}.{self.c}"
        middle = f".{self.words}" if self.words and not self.words.startswith((".xor", ".and")) else ""
        tail = self.words if self.words.startswith((".xor", ".and")) else ""
        scale = f".{self.scale[0]}" if self.scale else ""
        sparse = f".{self.sparse}" if self.sparse else ""
        return f"mma{sparse}.sync.aligned.m{m}n{n}k{k}.row.col{middle}.{types}{tail}{scale}"

    def operands(self) -> dict[str, Array]:
        """Codes of A (dense), B (columns by k), C, and the metadata and scales; always the same."""
        seed = np.frombuffer(self.title.encode().ljust(128, b"\0")[:128], np.uint32)
        rng = np.random.default_rng(seed)
        m, n, k = self.shape
        found = {"a": codes_for(self.a, (m, k), rng), "b": codes_for(self.b, (n, k), rng)}
        if self.c == "s32":
            found["c"] = integers((m, n), self.large, rng)
        else:
            found["c"] = rng.integers(-16, 17, (m, n)) * 0.25
        if self.sparse:
            found |= thinned(self.a, self.selector, found["a"], rng)
        if self.scale:
            chunks = self.chunks
            low, high = (124, 131) if self.scale[0] == "ue8m0" else (0x30, 0x48)
            found["sa"] = rng.integers(low, high, (m, chunks), dtype=np.uint64)
            found["sb"] = rng.integers(low, high, (n, chunks), dtype=np.uint64)
        return found

    @property
    def chunks(self) -> int:
        """Scale factors of a row."""
        found = re.search(r"scale_vec::(\d)X", self.words)
        return int(found[1]) if found else 1

    @property
    def title(self) -> str:
        """Name of the scene."""
        scale = f"_{self.scale[1]}{self.scale[2]}{self.scale[3]}" if self.scale else ""
        return (
            f"{self.name}{f'_{self.selector}' if self.sparse else ''}{scale}{'_large' if self.large else ''}".replace(
                " ", ""
            )
        )

    def exact(self) -> Array:
        """D in registers, as exact arithmetic has it, but for f16 sums of 8-bit floats: see ``_by_pairs``."""
        o = self.operands()
        a, b = values_of(o["a"], self.a), values_of(o["b"], self.b)
        if self.d == "f16" and self.a in ("e4m3", "e5m2"):
            return pack_sums(_by_pairs(a, b) + o["c"], "f16")
        if self.scale:
            size = self.shape[2] // self.chunks
            a = a * np.repeat(values_of(o["sa"], self.scale[0]), size, 1)
            b = b * np.repeat(values_of(o["sb"], self.scale[0]), size, 1)
        if self.a == "b1":
            both = o["a"][:, None, :] ^ o["b"][None] if "xor" in self.words else o["a"][:, None, :] & o["b"][None]
            return pack_sums((both.sum(2).astype(np.int64) + o["c"]).astype(np.int32), "s32")
        d = a @ b.T + o["c"]
        if self.d == "s32":
            clipped = np.clip(d, -(2**31), 2**31 - 1) if "satfinite" in self.words else d.astype(np.int64) & 0xFFFFFFFF
            d = clipped.astype(np.int64).astype(np.uint32).view(np.int32)
        return pack_sums(d, self.d)

    def arrays(self) -> list[Array]:
        """List A, B, C, the metadata and scales if there are any, and place for D, in registers."""
        o = self.operands()
        a = o.get("stored", o["a"])
        arrays = [_packed(a, self.a, self.shape[0] // 8), _packed(o["b"], self.b, 1), pack_sums(o["c"], self.c)]
        more = [o["meta"]] if self.sparse else []
        if self.scale:
            kind, byte, *ids = self.scale
            more += [_scale_words(o["sa"], byte, ids[0], 2), _scale_words(o["sb"], byte, ids[1], 1)]
            del kind
        if more:
            arrays.append(np.stack(more))
        return [*arrays, np.zeros_like(self.exact())]

    def body(self, arrays: list[Array], first: int) -> str:
        """Do it once in each warp; the arrays are those of the pointers ``first`` on."""
        names = ["ra", "rb", "rc", *(["rm"] * (len(arrays) - 4)), "rd"]
        loads, store = _accesses(names, arrays, first)
        groups = [[f"{name}{n}" for n in range(len(a))] for name, a in zip(names, arrays, strict=True)]
        return "\n".join([*loads, self.instruction(groups), *store])

    def instruction(self, groups: Sequence[Sequence[str]]) -> str:
        """Write it with the registers of each of ``arrays``."""
        a, b, c, *more, d = groups
        operands = ["{" + ", ".join(registers) + "}" for registers in (d, a, b, c)]
        words = more[0] if more else []
        if self.sparse:
            operands += [words[0], str(self.selector)]
        if self.scale:
            for register, (_, thread) in zip(words[-2:], self.scale[2:], strict=True):
                operands += [register, f"{{{self.scale[1]}, {thread}}}"]
        return f"{self.name} {', '.join(operands)};"


def _by_pairs(a: Array, b: Array) -> Array:
    """A product as sm_90 makes it of 8-bit floats: the lower two of every four steps, then the others, each in f16."""
    low = np.arange(a.shape[1]) % 4 < 2
    first = (a[:, low] @ b[:, low].T).astype(np.float16).astype(np.float64)
    return np.asarray((first + a[:, ~low] @ b[:, ~low].T).astype(np.float16).astype(np.float64))


def _accesses(names: list[str], arrays: list[Array], first: int) -> tuple[list[str], list[str]]:
    """Declare registers for all arrays, and load all but the last; and store the last."""
    loads, store = [], []
    for k, (name, array) in enumerate(zip(names, arrays, strict=True)):
        size = array.itemsize
        kind = ("f" if array.dtype.kind == "f" else "b") + str(8 * size)
        loads.append(f".reg .{kind} {name}<{len(array)}>; .reg .b64 q{k};")
        loads.append(f"mul.lo.u64 i, j, {size}; add.u64 q{k}, p{first + k}, i;")
        places = [(f"{name}{n}", f"[q{k}+{32 * size * n}]") for n in range(len(array))]
        if name == "rd":
            store = [f"st.global.{kind} {place}, {x};" for x, place in places]
        else:
            loads += [f"ld.global.{kind} {x}, {place};" for x, place in places]
    return loads, store


def bundle(name: str, forms: Sequence[Mma | Volta]) -> Scene:
    """Do several forms in one kernel, for the time that it takes to compile one."""
    arrays: list[Array] = []
    lines = [".reg .b32 t; .reg .b64 i, j;", "mov.u32 t, %tid.x; cvt.u64.u32 j, t;"]
    for form in forms:
        own = form.arrays()
        lines.append("{\n" + form.body(own, len(arrays)) + "\n}")
        arrays += own
    target = forms[0].target
    ptx = entry("\n".join(lines), len(arrays), target=target, version="8.8")
    return Scene(name, ptx, tuple(arrays), 1, 32, target=target)


def _packed(codes: Array, type_: str, halves: int) -> Array:
    """Registers of A or B; single bits are packed into words first."""
    if type_ != "b1":
        return pack(codes, type_, halves)
    words = (codes.reshape(len(codes), -1, 32) << np.arange(32, dtype=np.uint64)).sum(2, dtype=np.uint64)
    return pack(words, "tf32", halves)


# Elements of a chunk, and how many neighbours go together. Source: PTX ISA 9.1, "Sparse matrix storage".
_CHUNKS = {"tf32": (2, 1), "s4": (8, 2), "u4": (8, 2), "fp4": (8, 2)}


def thinned(type_: str, selector: int, a: Array, rng: np.random.Generator) -> dict[str, Array]:
    """Empty half of A, 16 rows; what is left, what is stored of it, and the metadata of every lane."""
    width, group = _CHUNKS.get(type_, (4, 1))
    choices = np.array([(0,), (1,)] if type_ == "tf32" else [(i, j) for j in range(4) for i in range(j)])
    picked = choices[rng.integers(len(choices), size=(len(a), a.shape[1] // width))]
    elements = (picked[..., None] * group + np.arange(group)).reshape(*picked.shape[:2], -1)
    at = (elements + width * np.arange(picked.shape[1])[:, None]).reshape(len(a), -1)
    dense, stored = np.zeros_like(a), np.take_along_axis(a, at, 1)
    np.put_along_axis(dense, at, stored, 1)
    bits = np.array([0b0100, 0b1110])[picked[..., 0]] if type_ == "tf32" else picked[..., 0] | picked[..., 1] << 2
    codes, places = bits.astype(np.uint64), np.arange(0, 16, 4, dtype=np.uint64)
    parts = [(codes[:, c : c + 4] << places).sum(1, dtype=np.uint64) for c in range(0, codes.shape[1], 4)]
    return {"a": dense, "stored": stored.astype(np.uint64), "meta": _metadata(type_, selector, parts)}


def _metadata(type_: str, selector: int, parts: list[Array]) -> Array:
    """Each lane's register; ``parts`` are 16 bits of each row. Source: PTX ISA 9.1, the figures of "mma.sp"."""
    words = np.full(32, 0x44444444, np.uint64)
    for g in range(8):
        if type_ in ("f16", "bf16", "tf32"):
            for c, part in enumerate(parts):
                lane = 4 * g + (selector if len(parts) == 1 else 2 * selector + c)
                words[lane] = part[g] | part[g + 8] << np.uint64(16)
            continue
        for c in range(len(parts) // 2):
            for r in range(2):
                lane = 4 * g + 2 * (selector if len(parts) == 2 else c) + r
                words[lane] = parts[2 * c][g + 8 * r] | parts[2 * c + 1][g + 8 * r] << np.uint64(16)
    return words.astype(np.uint32)


def _scale_words(scales: Array, byte: int, thread: tuple[int, int], lanes: int) -> Array:
    words = np.full(32, 0x7F7F7F7F, np.uint64)
    for row, own in enumerate(scales):
        lane = 4 * (row % 8) + lanes * thread[1] + row // 8
        for j, code in enumerate(own):
            shift = np.uint64(8 * (byte + j))
            words[lane] = words[lane] & ~(np.uint64(0xFF) << shift) | code << shift
    return words.astype(np.uint32)


def _shapes(text: str) -> list[tuple[int, int, int]]:
    return [tuple(int(x) for x in re.findall(r"\d+", word)) for word in text.split()]  # type: ignore[misc]


def _forms(shapes: str, d: str, a: str, b: str, c: str, **more: Any) -> list[Mma]:
    return [
        Mma(shape, x, y, z, x if c == "=" else c, **more)
        for shape in _shapes(shapes)
        for x in d.split()
        for y in a.split()
        for z in ([y] if b == "=" else b.split())
    ]


def mma_forms() -> list[Mma]:
    """List every form, with the operands that matter."""
    forms = _forms("m16n8k8 m16n8k16", "f16 f32", "f16", "=", "=")
    forms += _forms("m16n8k8 m16n8k16", "f32", "bf16", "=", "f32") + _forms(
        "m16n8k4 m16n8k8", "f32", "tf32", "=", "f32"
    )
    forms += _forms("m8n8k4 m16n8k4 m16n8k8 m16n8k16", "f64", "f64", "=", "f64")
    for types, shapes in (("s8 u8", "m8n8k16 m16n8k16 m16n8k32"), ("s4 u4", "m8n8k32 m16n8k32 m16n8k64")):
        forms += _forms(shapes, "s32", types, types, "s32")
        forms += _forms(shapes, "s32", types.split()[0], "=", "s32", large=True)
        forms += _forms(shapes, "s32", types.split()[1], "=", "s32", words="satfinite", large=True)
    for how in (".xor.popc", ".and.popc"):
        forms += _forms("m8n8k128 m16n8k128 m16n8k256", "s32", "b1", "=", "s32", words=how)
    forms += _forms("m16n8k16 m16n8k32", "f16 f32", "e4m3 e5m2", "e4m3 e5m2", "=")
    forms += _forms(
        "m16n8k32", "f32", " ".join(_SMALL), "e2m1 e4m3 e3m2", "f32", words="kind::f8f6f4", target="sm_120a"
    )
    return forms + _sparse_forms() + _scaled_forms()


def _sparse_forms() -> list[Mma]:
    forms = []
    for selector in range(4):
        s: dict[str, Any] = {"selector": selector, "sparse": "sp::ordered_metadata"}
        forms += _forms("m16n8k16", "f16 f32", "f16", "=", "=", **s) + _forms("m16n8k8", "f32", "tf32", "=", "f32", **s)
        if selector < 2:
            forms += _forms("m16n8k32", "f32", "f16 bf16", "=", "f32", **s)
            forms += _forms("m16n8k16", "f32", "tf32", "=", "f32", **s)
            forms += _forms("m16n8k32", "s32", "s8 u8", "=", "s32", **s)
            forms += _forms("m16n8k64", "s32", "s4 u4", "=", "s32", **s)
        if selector < 1:
            forms += _forms("m16n8k64", "s32", "s8 u8", "=", "s32", **s)
            forms += _forms("m16n8k128", "s32", "s4", "=", "s32", **s)
            forms += _forms("m16n8k64", "f32", "e4m3", "e5m2", "f32", **s)
    return [*forms, dataclasses.replace(forms[0], sparse="sp")]


def _scaled_forms() -> list[Mma]:
    forms = []
    for kind, a, k, byte, scale in (
        ("kind::mxf8f6f4.block_scale.scale_vec::1X", "e4m3 e2m1", 32, 3, "ue8m0"),
        ("kind::mxf4.block_scale.scale_vec::2X", "fp4", 64, 2, "ue8m0"),
        ("kind::mxf4nvf4.block_scale.scale_vec::4X", "fp4", 64, 0, "ue4m3"),
        ("kind::mxf4nvf4.block_scale.scale_vec::2X", "fp4", 64, 0, "ue8m0"),
    ):
        for threads in ((0, 3), (1, 2)):
            scaled = (scale, byte, (byte, threads[0]), (byte, threads[1]))
            more: dict[str, Any] = {"words": kind, "scale": scaled, "target": "sm_120a"}
            forms += _forms(f"m16n8k{k}", "f32", a, "=", "f32", **more)
            sparse: dict[str, Any] = {**more, "sparse": "sp::ordered_metadata"}
            forms += _forms(f"m16n8k{2 * k}", "f32", a, "=", "f32", **sparse)
    return forms


@dataclass(frozen=True)
class Volta:
    """``mma.m8n8k4`` of f16: four products, each of eight lanes. Source: PTX ISA 9.1, its section on fragments."""

    layouts: tuple[str, str]
    d: str
    c: str
    target: str = "sm_90a"

    @property
    def name(self) -> str:
        """The mnemonic."""
        return f"mma.sync.aligned.m8n8k4.{self.layouts[0]}.{self.layouts[1]}.{self.d}.f16.f16.{self.c}"

    def operands(self) -> tuple[Array, Array, Array]:
        """A (four of 8 by 4), B (4 by 8) and C, as numbers."""
        rng = np.random.default_rng(np.frombuffer(self.name.encode(), np.uint8))
        return tuple(rng.integers(-8, 9, size) * 0.5 for size in ((4, 8, 4), (4, 4, 8), (4, 8, 8)))  # type: ignore[return-value]

    def exact(self) -> Array:
        """D in registers."""
        a, b, c = self.operands()
        return _volta_sums(a @ b + c, self.d)

    def arrays(self) -> list[Array]:
        """List A, B, C and place for D, in registers."""
        a, b, c = self.operands()
        upper, lane = _LANES // 16 * 4, _LANES % 4
        product = _LANES % 16 // 4
        pieces = []
        for k in range(4):
            left = a[product, lane + upper, k] if self.layouts[0] == "row" else a[product, k + upper, lane]
            right = b[product, lane, k + upper] if self.layouts[1] == "row" else b[product, k, lane + upper]
            pieces.append((left, right))
        left, right = (_pairs(np.stack([piece[side] for piece in pieces])) for side in range(2))
        return [left, right, _volta_sums(c, self.c), np.zeros_like(self.exact())]

    def body(self, arrays: list[Array], first: int) -> str:
        """Do it once in each warp; the arrays are those of the pointers ``first`` on."""
        names = ["ra", "rb", "rc", "rd"]
        loads, store = _accesses(names, arrays, first)
        groups = {name: ", ".join(f"{name}{n}" for n in range(len(a))) for name, a in zip(names, arrays, strict=True)}
        operands = ", ".join("{" + groups[f"r{x}"] + "}" for x in "dabc")
        return "\n".join([*loads, f"{self.name} {operands};", *store])


def _pairs(values: Array) -> Array:
    halves = values.astype(np.float16).view(np.uint16).astype(np.uint32)
    return np.ascontiguousarray(halves[0::2] | halves[1::2] << np.uint32(16))


def _volta_sums(d: Array, type_: str) -> Array:
    product, upper = _LANES % 16 // 4, _LANES // 16 * 4
    if type_ == "f16":
        return _pairs(np.stack([d[product, _LANES % 4 + upper, i] for i in range(8)]))
    cells = [((_LANES & 1) + (i & 2) + upper, (i & 4) + (_LANES & 2) + (i & 1)) for i in range(8)]
    return np.stack([d[product, row, column] for row, column in cells]).astype(np.float32)


def bundles() -> dict[str, list[Mma | Volta]]:
    """Put forms of the same types and target together, eight at most."""
    found: dict[str, list[Mma | Volta]] = {}
    for form in mma_forms():
        stem = f"mma_{form.a}_{'sparse_' if form.sparse else ''}{'scaled_' if form.scale else ''}{form.target}"
        number = next(n for n in range(99) if len(found.get(f"{stem}_{n}", [])) < 8)
        found.setdefault(f"{stem}_{number}", []).append(form)
    for k, (d, c) in enumerate((("f16", "f16"), ("f32", "f32"), ("f32", "f16"))):
        layouts = [(a, b) for a in ("row", "col") for b in ("row", "col")]
        found[f"mma_m8n8k4_{k}"] = [Volta(pair, d, c) for pair in layouts]
    return found


def _random() -> Scene:
    """Random operands, whose sum is rounded."""
    rng = np.random.default_rng(5)
    form = Mma((16, 8, 16), "f32", "f16", "f16", "f32")
    arrays = form.arrays()
    for k in (0, 1):
        arrays[k] = rng.standard_normal((len(arrays[k]), 64)).astype(np.float16).view(np.uint32)
    arrays[2] = rng.standard_normal(arrays[2].shape).astype(np.float32)
    lines = [".reg .b32 t; .reg .b64 i, j;", "mov.u32 t, %tid.x; cvt.u64.u32 j, t;", form.body(arrays, 0)]
    ptx = entry("\n".join(lines), len(arrays), target=form.target)
    return Scene("mma_random", ptx, tuple(arrays), 1, 32, target=form.target)


SCENES: tuple[Scene, ...] = (*(bundle(name, forms) for name, forms in bundles().items()), _random())
