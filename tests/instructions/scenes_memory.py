"""Scenes of loads and stores: every width, vector form, order, scope and hint, in global and shared memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from instructions.scene import Scene, entry

__all__ = ["FORMS", "SCENES", "THREADS"]

Array = npt.NDArray[Any]

THREADS = 64
_ORDERED = (
    ("volatile", "volatile"), ("relaxed.gpu", "relaxed.gpu"), ("acquire.gpu", "release.gpu"),
    ("acquire.cta", "release.cta"),
    ("relaxed.sys", "relaxed.sys"), ("acquire.cluster", "release.cluster"), ("weak", "weak"),
)  # fmt: skip
_HINTED = (
    ("ca", "wb"), ("cg", "cg"), ("cs", "cs"), ("lu", "wb"), ("cv", "wt"), ("L1::evict_last", "L1::no_allocate"),
    ("L1::no_allocate.L2::128B", "L1::evict_first"), ("L1::evict_unchanged.L2::64B", "L1::evict_unchanged"),
    ("L2::256B", "L1::evict_normal"), ("L2::cache_hint", "L2::cache_hint"),
)  # fmt: skip

_VECTORS = (("b32", 2), ("b32", 4), ("b64", 2), ("b8", 4), ("b16", 2))
_SPACES = ("global", "shared")

FORMS = (
    *(("b32", 1, load, store, "global") for load, store in (*_ORDERED, *_HINTED)),
    *((t, 1, *words, space) for t in ("b8", "b16", "b64", "b128") for words in _ORDERED[:3] for space in _SPACES),
    *((*vector, *words, "global") for vector in _VECTORS for words in (_ORDERED[0], _ORDERED[2])),
    *((type_, 1, "acquire.cta", "release.cta", "generic") for type_ in ("b32", "f64", "b128")),
    ("b32", 1, "nc", "wb", "global"), ("b32", 4, "nc.L1::no_allocate.L2::cache_hint", "L2::cache_hint", "global"),
    ("b32", 1, "mmio.relaxed.sys", "mmio.relaxed.sys", "global"), ("b128", 1, "weak", "weak", "shared"),
)  # fmt: skip
"""Type, vector length, words of the load, words of the store, space."""


def name_of(type_: str, count: int, load: str, store: str, space: str) -> str:
    """Name of a form's scene."""
    vector = f".v{count}" if count > 1 else ""
    return f"ld.{load}.st.{store}.{space}{vector}.{type_}"


def _scene(type_: str, count: int, load: str, store: str, space: str) -> Scene:
    """Each thread reads its own place and another's, which lie together, apart and at one address, and writes them."""
    bits = int(type_[1:])
    size = bits // 8 * count
    register = {8: "b16"}.get(bits, type_)
    vector = f".v{count}" if count > 1 else ""
    names = {x: [f"{x}{k}" for k in range(count)] for x in "xyz"}
    sets = {x: "{" + ", ".join(v) + "}" if count > 1 else v[0] for x, v in names.items()}
    dot = "" if space == "generic" else f".{space}"
    policy = ", pol" if "cache_hint" in load else ""
    to_policy = ", pol" if "cache_hint" in store else ""
    ld, st = _mnemonic("ld", load, dot, vector, type_), _mnemonic("st", store, dot, vector, type_)
    first, second = ("s", "u") if space == "shared" else ("at", "to")
    lines = [
        ".reg .b32 i, j, s, u; .reg .b64 at, to, off, pol; .reg .pred odd; .shared .align 16 .b8 mem[4096];",
        *(f".reg .{register} {n};" for v in names.values() for n in v),
        "createpolicy.fractional.L2::evict_first.b64 pol, 1.0; mov.u32 i, %tid.x; mov.b32 s, mem;",
        "mad.lo.u32 s, i, 16, s;",
        f"mul.wide.u32 off, i, {size}; add.u64 at, p0, off; add.u64 to, p1, off; and.b32 j, i, 1;",
        "setp.eq.u32 odd, j, 1;",
    ]  # fmt: skip
    if space == "shared":
        lines += [f"ld.global{vector}.{type_} {sets['x']}, [at]; {st} [s], {sets['x']}; {ld} {sets['y']}, [s];",
                  f"st.global{vector}.{type_} [to], {sets['y']};"]  # fmt: skip
    else:
        lines += [f"{ld} {sets['x']}, [{first}]{policy}; {st} [{second}], {sets['x']}{to_policy};"]
        # Places apart, under a predicate, and one place for all.
        lines += [f"xor.b32 j, i, 21; mul.wide.u32 off, j, {size}; add.u64 at, p0, off; add.u64 to, p2, off;",
                  f"@odd {ld} {sets['y']}, [at]{policy}; @odd {st} [to], {sets['y']}{to_policy};",
                  f"{ld} {sets['z']}, [p0+{size}]{policy}; {st} [p3], {sets['z']}{to_policy};"]  # fmt: skip
    data = np.random.default_rng(size).integers(0, 256, THREADS * size, np.uint8)
    arrays = (data, np.zeros_like(data), np.zeros_like(data), np.zeros(size, np.uint8))
    return Scene(name_of(type_, count, load, store, space), entry("\n".join(lines), 4), arrays, 1, THREADS)


def _mnemonic(opcode: str, words: str, space: str, vector: str, type_: str) -> str:
    """Put the space where the manual has it: behind the order and the scope, before the cache's words."""
    front = [
        w
        for w in words.split(".")
        if w in ("weak", "volatile", "mmio", "relaxed", "acquire", "release", "cta", "cluster", "gpu", "sys")
    ]
    back = [w for w in words.split(".") if w not in front]
    return ".".join([opcode, *front]) + space + "".join(f".{w}" for w in back) + f"{vector}.{type_}"


SCENES = tuple(_scene(*form) for form in FORMS)
