"""Scenes of extended-precision arithmetic: chains of ``.cc`` operations of every type, mixed and unmixed.

Each chain is a fixed random walk over all operations; what every one of them gives is stored, and after each the
carry as ``addc`` reads it.
"""

from __future__ import annotations

import numpy as np

from instructions.scene import Scene, entry

__all__ = ["SCENES"]

_THREADS, _CHAINS, _LENGTH, _INPUTS = 32, 12, 10, 6
_OPERATIONS = (
    "add.cc", "sub.cc", "addc", "addc.cc", "subc", "subc.cc", "mad.lo.cc", "mad.hi.cc",
    "madc.lo", "madc.lo.cc", "madc.hi", "madc.hi.cc",
)  # fmt: skip
_CORNERS = (0, 1, 2, 3, 5, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF)
_START = (
    ".reg .b32 i, c, d, x<6>; .reg .b64 at, off, to, y<6>, e; .reg .pred odd;\n"
    "mov.u32 i, %tid.x; and.b32 c, i, 1; setp.ne.u32 odd, c, 0; mul.wide.u32 off, i, 8;\n"
    "add.u64 at, p0, off; add.u64 to, p1, off;\n"
)


def _step(name: str, type_: str, rng: np.random.Generator, guard: str) -> str:
    """One operation on inputs taken at random, its result and the carry after it stored."""
    wide = type_.endswith("64")
    register, result = ("y", "e") if wide else ("x", "d")
    count = 3 if name.startswith("mad") else 2
    operands = ", ".join(f"{register}{k}" for k in rng.integers(0, _INPUTS, count))
    lines = f"{guard}{name}.{type_} {result}, {operands}; addc.u32 c, 0, 0;\n"
    far = 8 * _THREADS
    store = f"st.global.b{type_[1:]} [to], {result}; add.u64 to, to, {far}; "
    # What follows must not touch the carry: plain additions do not.
    return lines + store + f"st.global.b32 [to], c; add.u64 to, to, {far};\n"


def _scene(name: str, types: tuple[str, ...], seed: int) -> Scene:
    rng = np.random.default_rng(seed)
    body = [_START]
    body += [f"ld.global.b64 y{k}, [at+{k * 8 * _THREADS}]; cvt.u32.u64 x{k}, y{k};\n" for k in range(_INPUTS)]
    body.append("mov.b32 d, 0; mov.b64 e, 0;\n")
    for _ in range(_CHAINS):
        # A chain begins with a carry of its own, which no assembler knows beforehand.
        body.append(f"add.cc.u32 c, x{rng.integers(0, _INPUTS)}, x{rng.integers(0, _INPUTS)};\n")
        for _ in range(_LENGTH):
            guard = "@odd " if rng.integers(0, 8) == 0 else ""
            body.append(_step(str(rng.choice(_OPERATIONS)), str(rng.choice(types)), rng, guard))
    low, high = (rng.choice(_CORNERS, (_INPUTS, _THREADS)).astype(np.uint64) for _ in range(2))
    wild = rng.integers(0, 1 << 64, (_INPUTS, _THREADS), np.uint64)
    inputs = np.where(rng.integers(0, 4, wild.shape) == 0, wild, high << np.uint64(32) | low)
    out = np.zeros((2 * _CHAINS * _LENGTH, _THREADS), np.uint64)
    return Scene(f"carry_{name}", entry("".join(body), 2), (inputs, out), 1, _THREADS)


SCENES = (
    *(_scene(type_, (type_,), k) for k, type_ in enumerate(("u32", "s32", "u64", "s64"))),
    _scene("mixed", ("u32", "s32", "u64", "s64"), 7),
)
