"""Scenes of wgmma: every type, layout in shared memory, swizzle, sign, and sparse A."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from instructions.scene import Scene, entry
from instructions.scenes_matrix import bits_of, codes_for, integers, pack, pack_sums, thinned, values_of

__all__ = ["SCENES", "Wgmma", "wgmma_forms"]

Array = npt.NDArray[Any]

_PATTERN = {0: 16, 1: 128, 2: 64, 3: 32}
"""Bytes of a line of the pattern, by the mode in the descriptor."""


@dataclass(frozen=True)
class _Stored:
    """A matrix in shared memory: bytes from its start, and the descriptor but for the address."""

    image: Array
    descriptor: int
    start: int


def _swizzled(address: Array, line: int) -> Array:
    """Source: PTX ISA 9.1, "Strides": Swizzle<n, 4, 3> of byte addresses."""
    return np.asarray(address ^ ((address >> 7 & (line // 16 - 1)) << 4))


def _store(rows: Array, mode: int, across: bool, first_chunk: int) -> _Stored:
    """Lay out rows of bytes (a row of A or column of B: its steps of k), or, ``across``, of 16-bit elements.

    Source: PTX ISA 9.1, "Strides", the canonical layouts; strides are chosen so that there is room between parts.
    """
    line, count = _PATTERN[mode], len(rows)
    start = 16 * first_chunk if mode else 0
    if across:
        elements = np.ascontiguousarray(rows).view(np.uint16)
        mn, k = np.indices(elements.shape)
        per_line = line // 2
        inner = mn % per_line * 2 + k % 8 * line
        part = 8 * line
        groups = count // per_line
        step_k = part * int(groups)
        address = inner + mn // per_line * part + k // 8 * step_k
        leading, stride = (step_k, part) if mode == 0 else (part, step_k)
        size = step_k * (elements.shape[1] // 8)
        image = np.full(size, 0x11, np.uint8)
        at = _swizzled(np.asarray(address), line)
        for half in range(2):
            image[at + half] = (elements >> 8 * half) & 0xFF
        return _Stored(image, _descriptor(leading, stride, mode), 0)
    row, byte = np.indices(rows.shape)
    if mode == 0:
        leading, stride = 128 * (count // 8) + 128, 128
        address = row % 8 * 16 + row // 8 * stride + byte // 16 * leading + byte % 16
        size = leading * (rows.shape[1] // 16)
    else:
        leading, stride = 16, 8 * line + 1024
        address = row % 8 * line + row // 8 * stride + byte + start
        size = stride * (count // 8)
    image = np.full(size, 0x11, np.uint8)
    image[_swizzled(np.asarray(address), line)] = rows
    return _Stored(image, _descriptor(leading, stride, mode), start)


def _descriptor(leading: int, stride: int, mode: int) -> int:
    return (leading >> 4) << 16 | (stride >> 4) << 32 | mode << 62


@dataclass(frozen=True)
class Wgmma:
    """One form of wgmma.mma_async."""

    n: int
    k: int
    d: str
    a: str
    b: str
    modes: tuple[int, int] = (1, 1)
    across: tuple[bool, bool] = (False, False)
    registers: bool = False
    signs: tuple[int, int] = (1, 1)
    keeps: bool = True
    words: str = ""
    sparse: bool = False
    selector: int = 0
    first_chunk: int = 0

    @property
    def name(self) -> str:
        """What the scene is called."""
        a = "registers" if self.registers else f"{self.modes[0]}{'t' if self.across[0] else ''}"
        b = f"{self.modes[1]}{'t' if self.across[1] else ''}"
        parts = [
            f"wgmma_n{self.n}k{self.k}",
            self.d,
            self.a,
            self.b,
            a,
            b,
            "{}{}".format(*self.signs).replace("-", "m"),
        ]
        more = [self.words.strip("."), "" if self.keeps else "fresh", f"sp{self.selector}" if self.sparse else ""]
        return "_".join([*parts, *(m for m in more if m), str(self.first_chunk)])

    def operands(self) -> dict[str, Array]:
        """Codes of A (64 by k) and B (n by k), numbers of D."""
        rng = np.random.default_rng(np.frombuffer(self.name.encode().ljust(96, b"\0")[:96], np.uint32))
        found = {"a": codes_for(self.a, (64, self.k), rng), "b": codes_for(self.b, (self.n, self.k), rng)}
        large = "satfinite" in self.words
        shape = (64, self.n)
        found["d"] = integers(shape, large, rng) if self.d == "s32" else rng.integers(-16, 17, shape) * 0.25
        if self.sparse:
            parts = [thinned(self.a, self.selector, found["a"][16 * w : 16 * w + 16], rng) for w in range(4)]
            found |= {key: np.concatenate([p[key] for p in parts]) for key in ("a", "stored", "meta")}
        return found

    def exact(self) -> Array:
        """D in registers of 128 threads, by exact arithmetic; an H200 cuts f32 sums of 8-bit floats to 14 bits."""
        o = self.operands()
        if self.a == "b1":
            product = (o["a"][:, None, :] & o["b"][None]).sum(2).astype(np.int64)
        else:
            product = values_of(o["a"], self.a) @ values_of(o["b"], self.b).T * (self.signs[0] * self.signs[1])
        d = product + (o["d"] if self.keeps else 0)
        if self.d == "s32":
            d = np.clip(d, -(2**31), 2**31 - 1) if "satfinite" in self.words else (d + 2**31) % 2**32 - 2**31
            d = d.astype(np.int64)
        if self.d == "f32" and self.a in ("e4m3", "e5m2"):
            d = (d.astype(np.float32).view(np.uint32) & np.uint32(0xFFFFFC00)).view(np.float32)
        return _in_registers(d, self.d)

    def scene(self) -> Scene:
        """A warpgroup that does it once. Every warp copies all of the shared memory, so that any order is right."""
        o = self.operands()
        a = o.get("stored", o["a"])
        left = _store(_bytes(a, self.a), self.modes[0], self.across[0], self.first_chunk)
        right = _store(_bytes(o["b"], self.b), self.modes[1], self.across[1], self.first_chunk)
        middle = -(-len(left.image) // 1024) * 1024
        image = np.zeros(-(-(middle + len(right.image)) // 1024) * 1024, np.uint8)
        image[: len(left.image)], image[middle : middle + len(right.image)] = left.image, right.image
        arrays = [image, _in_registers(o["d"], self.d)]
        if self.registers:
            arrays.append(np.concatenate([pack(a[16 * w : 16 * w + 16], self.a, 2) for w in range(4)], 1))
        if self.sparse:
            arrays.append(o["meta"].reshape(1, 128))
        arrays.append(np.zeros_like(self.exact()))
        body = self._body(arrays, left.descriptor | left.start >> 4, right.descriptor | (middle + right.start) >> 4)
        outside = f".shared .align 1024 .b8 data[{len(image)}];" if len(image) <= 48 << 10 else ""
        outside = outside or ".extern .shared .align 1024 .b8 data[];"
        dynamic = len(image) if outside.startswith(".extern") else 0
        ptx = entry(body, len(arrays), target="sm_90a", outside=outside)
        return Scene(self.name, ptx, tuple(arrays), 1, 128, shared_bytes=dynamic, target="sm_90a")

    def _body(self, arrays: list[Array], a: int, b: int) -> str:
        last = len(arrays) - 1
        f = {"f32": "f32"}.get(self.d, "b32")
        lines = [
            ".reg .b32 t, at, to, w, n, c; .reg .b64 j, i, da, db, base; .reg .pred more, keep;",
            f".reg .{f} d<{len(arrays[1])}>; .reg .b32 ra<4>, m;",
            "mov.u32 t, %tid.x; mul.wide.u32 j, t, 4; and.b32 n, t, 31; mul.lo.u32 n, n, 4;",
            "mov.u32 at, data; mov.u32 c, 0; mul.wide.u32 i, n, 1; add.u64 i, i, p0; add.u32 n, n, at;",
            "LOOP: cvt.u64.u32 base, c; add.u64 base, base, i; ld.global.b32 w, [base];",
            "add.u32 to, n, c; st.shared.b32 [to], w;",
            f"add.u32 c, c, 128; setp.lt.u32 more, c, {len(arrays[0])}; @more bra LOOP;",
            *(f".reg .b64 q{k}; add.u64 q{k}, p{k}, j;" for k in range(1, last + 1)),
            *(f"ld.global.{f} d{k}, [q1+{512 * k}];" for k in range(len(arrays[1]))),
        ]
        at = 2
        if self.registers:
            lines += [f"ld.global.b32 ra{k}, [q{at}+{512 * k}];" for k in range(4)]
            at += 1
        if self.sparse:
            lines.append(f"ld.global.b32 m, [q{at}];")
        lines += [
            "shr.u32 w, at, 4; cvt.u64.u32 db, w;",
            f"add.u64 da, db, {a:#x}; add.u64 db, db, {b:#x};",
            f"setp.ne.u32 keep, {int(self.keeps)}, 0;",
            "fence.proxy.async; bar.sync 0; wgmma.fence.sync.aligned;",
            self._instruction(len(arrays[1])),
            "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;",
            *(f"st.global.{f} [q{last}+{512 * k}], d{k};" for k in range(len(arrays[1]))),
        ]
        return "\n".join(lines)

    def _instruction(self, count: int) -> str:
        d = "{" + ", ".join(f"d{k}" for k in range(count)) + "}"
        types = f"{self.d}.{self.a}.{self.b}{self.words}"
        operands = [d, "{ra0, ra1, ra2, ra3}" if self.registers else "da", "db"]
        operands += ["m", str(self.selector)] if self.sparse else []
        operands.append("keep")
        if self.a in ("f16", "bf16", "tf32", "e4m3", "e5m2"):
            operands += [str(s) for s in self.signs]
        if self.a in ("f16", "bf16"):
            operands += [str(int(x)) for x in self.across[self.registers :]]
        sp = ".sp" if self.sparse else ""
        return f"wgmma.mma_async{sp}.sync.aligned.m64n{self.n}k{self.k}.{types} {', '.join(operands)};"


def _bytes(codes: Array, type_: str) -> Array:
    """Rows of codes as rows of bytes."""
    if type_ == "b1":
        return np.packbits(codes.astype(np.uint8), axis=1, bitorder="little")
    words = codes.astype(np.dtype(f"u{bits_of(type_) // 8}"))
    return np.ascontiguousarray(words).view(np.uint8)


def _in_registers(d: Array, type_: str) -> Array:
    """D of 64 rows in registers: (registers, 128 threads)."""
    warps = []
    for w in range(4):
        tiles = [pack_sums(d[16 * w : 16 * w + 16, 8 * n : 8 * n + 8], type_) for n in range(d.shape[1] // 8)]
        warps.append(np.concatenate(tiles))
    return np.concatenate(warps, 1)


def wgmma_forms() -> list[Wgmma]:
    """List types, layouts and signs."""
    forms = [
        Wgmma(64, 16, "f32", "f16", "f16", (mode, 3 - mode), across)
        for mode in range(4)
        for across in ((False, False), (True, False), (False, True), (True, True))
    ]
    forms += [Wgmma(64, 16, "f32", "f16", "f16", (mode, mode), first_chunk=2) for mode in (1, 2)]
    forms += [
        Wgmma(32, 16, "f32", "bf16", "bf16", (2, 2), (False, turned), True, (-1, 1), k == 0)
        for k, turned in enumerate((False, True))
    ]
    forms += [Wgmma(8, 16, "f16", "f16", "f16", signs=(-1, -1)), Wgmma(256, 16, "f32", "f16", "f16")]
    forms += [Wgmma(24, 8, "f32", "tf32", "tf32", (1, 2), registers=r, signs=(1, -1)) for r in (False, True)]
    for a, b in (("e4m3", "e4m3"), ("e5m2", "e4m3")):
        forms += [Wgmma(16, 32, d, a, b, (0, 3), registers=d == "f16") for d in ("f16", "f32")]
    forms += [
        Wgmma(24, 32, "s32", "s8", "u8", words=".satfinite"),
        Wgmma(16, 32, "s32", "u8", "s8", (3, 2), registers=True),
    ]
    forms += [Wgmma(16, 256, "s32", "b1", "b1", (3, 0), words=".and.popc")]
    for selector in range(2):
        forms += [Wgmma(16, 32, "f32", t, t, (1, 1), sparse=True, selector=selector) for t in ("f16", "bf16")]
        forms.append(Wgmma(16, 16, "f32", "tf32", "tf32", (1, 1), registers=True, sparse=True, selector=selector))
    forms += [Wgmma(16, 64, "s32", "s8", "s8", (3, 2), sparse=True), Wgmma(16, 64, "f32", "e4m3", "e5m2", sparse=True)]
    forms.append(Wgmma(64, 32, "f32", "f16", "f16", (1, 1), (True, True), sparse=True))
    return forms


SCENES: tuple[Scene, ...] = tuple(form.scene() for form in wgmma_forms())
