"""Scenes of ``atom`` and ``red``: every operation and type, in every space.

``atom.<operation>.<type>``: each thread has a place of its own in global, shared and generic memory; the old values
go to an array. ``red.<operation>.<type>``: all threads at one place, with operations whose order does not matter.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from instructions.scene import Scene, entry

__all__ = ["SCENES", "THREADS"]

Array = npt.NDArray[Any]

THREADS = 64
"""Threads of every scene: two warps."""

_OPERATIONS = (
    ("and or xor", "b32 b64"), ("add", "u32 s32 u64 f32 f64 f16 bf16 f16x2 bf16x2"), ("inc dec", "u32"),
    ("min max", "u32 s32 u64 s64"), ("exch", "b32 b64 b128"), ("cas", "b16 b32 b64 b128"),
)  # fmt: skip
_VECTORS = (
    ("add", "v2 v4", "f32"),
    ("add min max", "v2 v4", "f16 bf16 f16x2 bf16x2"),
    ("add min max", "v8", "f16 bf16"),
)
_CONTENDED = (
    ("and or xor", "b32 b64"),
    ("add", "u32 s32 u64 f32 f64 f16 bf16x2"),
    ("inc dec", "u32"),
    ("min max", "u32 s32 u64 s64"),
)


def _bits(type_: str) -> int:
    return 32 if type_.endswith("x2") else int(type_.lstrip("bsuf"))


def _register(type_: str) -> str:
    if type_ in ("f32", "f64"):
        return type_
    return f"b{_bits(type_)}"


def _dtype(type_: str) -> np.dtype[Any]:
    """Floats are compared as floats, so that a NaN is a NaN; NumPy has no bf16, whose inputs have none."""
    names = {"f16": "f2", "f16x2": "f2", "f32": "f4", "f64": "f8"}
    return np.dtype(names.get(type_) or f"u{min(_bits(type_), 64) // 8}")


def _values(type_: str, count: int, rng: np.random.Generator) -> Array:
    """Random bits, many of them special; ``count`` values of the type, as bytes of its dtype."""
    words = rng.integers(0, 256, count * _bits(type_) // 8, np.uint8)
    if type_ == "f32":
        special = np.array([0.0, -0.0, 1e-40, -1e-40, 1.2e-38, 3e38, np.inf, np.nan, 1.0, 2.0**-24], np.float32)
        return np.where(rng.random(count) < 0.5, rng.choice(special, count), words.view(np.float32)).astype(np.float32)
    if type_.startswith("bf16"):
        halves = words.view(np.uint16)
        return np.where((halves & 0x7F80) == 0x7F80, halves & 0xBFFF, halves).astype(np.uint16).view(_dtype(type_))
    array = words.view(_dtype(type_))
    if array.dtype.kind == "u" and type_[0] in "bsu":
        array[:: count // 16] = rng.integers(0, 3, array[:: count // 16].size)
    return array


def _modifiers(type_: str) -> str:
    return "noftz." if "f16" in type_ else ""


_INDEX = """.reg .b32 i, j, s; .reg .b64 at, off;
.shared .align 16 .b8 mem[2048];
mov.u32 i, %tid.x; mov.b32 s, mem;"""


def _own_places(operation: str, type_: str) -> Scene:
    size, register = _bits(type_) // 8, _register(type_)
    suffix = f"{operation}.{_modifiers(type_)}{type_}"
    operands = "b, c" if operation == "cas" else "b"
    load = f"ld.global.{register}"
    lines = [
        _INDEX, f".reg .{register} a, b, c, d;",
        f"mul.wide.u32 off, i, {size}; mad.lo.u32 s, i, {size}, s;",
        f"add.u64 at, p3, off; {load} b, [at]; add.u64 at, p4, off; {load} c, [at];",
        f"add.u64 at, p0, off; atom.global.{suffix} d, [at], {operands}; add.u64 at, p5, off;",
        f"st.global.{register} [at], d;",
        f"add.u64 at, p1, off; {load} a, [at]; st.shared.{register} [s], a; atom.shared.{suffix} d, [s], {operands};",
        f"ld.shared.{register} a, [s]; st.global.{register} [at], a; add.u64 at, p6, off;",
        f"st.global.{register} [at], d;",
        f"add.u64 at, p2, off; atom.{suffix} d, [at], {operands}; add.u64 at, p7, off; st.global.{register} [at], d;",
    ]  # fmt: skip
    rng = np.random.default_rng(len(suffix) * 1000 + sum(suffix.encode()))
    places = [_values(type_, THREADS, rng) for _ in range(3)]
    second, third = _values(type_, THREADS, rng), _values(type_, THREADS, rng)
    if operation == "cas":
        # Half of the comparisons hold, and both outcomes are in every warp.
        places = [np.where(np.arange(p.size) // max(size // 8, 1) % 2 == 0, second, p).astype(p.dtype) for p in places]
    outs = [np.zeros_like(second) for _ in range(3)]
    arrays = (*places, second, third, *outs)
    return Scene(f"atom.{operation}.{type_}", entry("\n".join(lines), 8), arrays, 1, THREADS)


def _vectors(operation: str, vector: str, type_: str) -> Scene:
    count, size, register = int(vector[1:]), _bits(type_) // 8, _register(type_)
    names = {x: "{" + ", ".join(f"{x}{k}" for k in range(count)) + "}" for x in "bd"}
    suffix = f"{vector}.{type_}.{operation}{'.noftz' if 'f16' in type_ else ''}"
    lines = [_INDEX, f"mul.wide.u32 off, i, {size * count};"]
    lines += [f".reg .{register} {x}{k};" for x in "bd" for k in range(count)]
    lines.append("add.u64 at, p1, off;")
    lines += [f"ld.global.{register} b{k}, [at+{k * size}];" for k in range(count)]
    lines.append(f"add.u64 at, p0, off; atom.global.{suffix} {names['d']}, [at], {names['b']}; add.u64 at, p2, off;")
    lines += [f"st.global.{register} [at+{k * size}], d{k};" for k in range(count)]
    lines.append(f"add.u64 at, p3, off; red.global.{suffix} [at], {names['b']};")
    rng = np.random.default_rng(sum(suffix.encode()))
    a, b = (_values(type_, THREADS * count, rng) for _ in range(2))
    arrays = (a, b, np.zeros_like(a), a.copy())
    return Scene(f"atom.{operation}.{vector}.{type_}", entry("\n".join(lines), 4), arrays, 1, THREADS)


def _small(operation: str, type_: str, rng: np.random.Generator) -> Array:
    """Operands for one place: what comes of them is the same in any order; sums of floats are exact."""
    if operation in ("inc", "dec"):
        return np.full(THREADS, 23, np.uint32)
    if type_ in ("f32", "f64", "f16"):
        return rng.integers(-8, 9, THREADS).astype(_dtype(type_))
    if type_ == "bf16x2":
        return np.where(rng.random(THREADS) < 0.5, 0x3F80BF80, 0xBF803F80).astype(np.uint32)
    return _values(type_, THREADS, rng)


def _one_place(operation: str, type_: str) -> Scene:
    """Places: 0 global, 1 global under a predicate, 2 shared, 3 spread over four."""
    size, register = _bits(type_) // 8, _register(type_)
    suffix = f"{operation}.{_modifiers(type_)}{type_}"
    lines = [
        _INDEX, f".reg .{register} a, b; .reg .pred p, q, first;",
        f"mul.wide.u32 off, i, {size}; add.u64 at, p1, off; ld.global.{register} b, [at];",
        f"red.global.{suffix} [p0], b; and.b32 j, i, 3; setp.ne.u32 p, j, 1; @p red.global.{suffix} [p0+{size}], b;",
        f"setp.eq.u32 first, i, 0; @!first bra READY; ld.global.{register} a, [p0+{2 * size}];",
        f"st.shared.{register} [mem], a;",
        f"READY: bar.sync 0; red.shared.{suffix} [mem], b; setp.gt.u32 q, i, 500; @q red.shared.{suffix} [mem+16], b;",
        f"bar.sync 0; @!first bra REST; ld.shared.{register} a, [mem]; st.global.{register} [p0+{2 * size}], a;",
        f"REST: mul.wide.u32 off, j, {size}; add.u64 at, p0, off; red.global.{suffix} [at+{3 * size}], b;",
    ]  # fmt: skip
    rng = np.random.default_rng(sum(suffix.encode()) + 5)
    arrays = (_small(operation, type_, rng)[:8].copy(), _small(operation, type_, rng))
    return Scene(f"red.{operation}.{type_}", entry("\n".join(lines), 2), arrays, 1, THREADS)


def _each(forms: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    return [(o, t) for operations, types in forms for o in operations.split() for t in types.split()]


SCENES = (
    *(_own_places(operation, type_) for operation, type_ in _each(_OPERATIONS)),
    *(_vectors(o, v, t) for os, vs, ts in _VECTORS for o in os.split() for v in vs.split() for t in ts.split()),
    *(_one_place(operation, type_) for operation, type_ in _each(_CONTENDED)),
)
