"""Scenes of wmma (every shape, type and layout), of ldmatrix, stmatrix and movmatrix.

The result of wmma does not depend on what is in which lane, which the manual leaves open.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from instructions.scene import Scene, entry
from instructions.scenes_matrix import bits_of, codes_for, integers, values_of

__all__ = ["SCENES", "Wmma", "moves", "wmma_forms"]

Array = npt.NDArray[Any]

_BIG = ((16, 16, 16), (32, 8, 16), (8, 32, 16))
_CELLS = {"f16": np.float16, "f32": np.float32, "f64": np.float64, "s32": np.int32}
_REGISTERS = {"f32": ".f32", "f64": ".f64"}


@dataclass(frozen=True)
class Wmma:
    """One form of wmma: loads, product, store; ``layouts`` of A, B, C and D."""

    shape: tuple[int, int, int]
    d: str
    a: str
    b: str
    c: str
    layouts: tuple[str, str, str, str]
    words: str = ""
    space: str = ".global"
    stride: bool = True

    @property
    def name(self) -> str:
        """What the scene is called."""
        parts = ["wmma", "m{}n{}k{}".format(*self.shape), self.d, self.a, self.b, self.c, *self.layouts]
        return "_".join(
            [*parts, self.words.strip(".").replace(".", "_"), "stride" if self.stride else "dense"]
        ).replace("__", "_")

    def _size(self, matrix: str) -> tuple[int, int]:
        m, n, k = self.shape
        return {"a": (m, k), "b": (k, n), "c": (m, n), "d": (m, n)}[matrix]

    def _leading(self, matrix: str) -> int:
        """Elements from line to line of memory."""
        lines, width = self._size(matrix)
        along = width if self._layout(matrix) == "row" else lines
        bits = bits_of(self._type(matrix)) if self._type(matrix) != "b1" else 1
        return along + (128 // bits if self.stride else 0)

    def _layout(self, matrix: str) -> str:
        return self.layouts["abcd".index(matrix)]

    def _type(self, matrix: str) -> str:
        return {"a": self.a, "b": self.b, "c": self.c, "d": self.d}[matrix]

    def _count(self, matrix: str) -> int:
        rows, columns = self._size(matrix)
        type_ = self._type(matrix)
        if matrix in "cd":
            return rows * columns // (64 if type_ == "f16" else 32)
        if type_ == "f16":
            return 8
        return max(
            1, rows * columns * (1 if type_ == "b1" else bits_of(type_)) // (1024 * (2 if type_ == "f64" else 1))
        )

    def operands(self) -> dict[str, Array]:
        """Codes of A and B, numbers of C, as matrices."""
        rng = np.random.default_rng(np.frombuffer(self.name.encode().ljust(96, b"\0")[:96], np.uint32))
        found = {x: codes_for(self._type(x), self._size(x), rng) for x in "ab"}
        large = "satfinite" in self.words
        found["c"] = (
            integers(self._size("c"), large, rng) if self.c == "s32" else rng.integers(-16, 17, self._size("c")) * 0.25
        )
        return found

    def memory(self, matrix: str, codes: Array) -> Array:
        """Lay a matrix out in memory; what is between its lines is not zero."""
        type_ = self._type(matrix)
        lines = codes if self._layout(matrix) == "row" else codes.T
        if matrix in "cd":
            whole = np.full((len(lines), self._leading(matrix)), 7, _CELLS[type_])
            whole[:, : lines.shape[1]] = lines
            return whole
        whole = np.full((len(lines), self._leading(matrix)), 1, np.uint64)
        whole[:, : lines.shape[1]] = lines
        bits = bits_of(type_) if type_ != "b1" else 1
        if bits < 8:
            parts = whole.reshape(len(lines), -1, 8 // bits) << np.arange(0, 8, bits, dtype=np.uint64)
            return np.asarray(parts.sum(2), np.uint8)
        return whole.astype(np.dtype(f"u{bits // 8}"))

    def exact(self) -> Array:
        """D in memory, by exact arithmetic."""
        o = self.operands()
        a, b = values_of(o["a"], self.a), values_of(o["b"], self.b)
        if self.a == "b1":
            both = o["a"][:, :, None] ^ o["b"][None] if "xor" in self.words else o["a"][:, :, None] & o["b"][None]
            d = both.sum(1).astype(np.int64) + o["c"]
        else:
            d = a @ b + o["c"]
        if self.d == "s32":
            d = np.clip(d, -(2**31), 2**31 - 1) if "satfinite" in self.words else (d + 2**31) % 2**32 - 2**31
        return self.memory("d", d)

    def scene(self) -> Scene:
        """One warp that does it once."""
        o = self.operands()
        arrays = (*(self.memory(x, o[x]) for x in "abc"), np.full_like(self.exact(), 7))
        shape = "m{}n{}k{}".format(*self.shape)
        lines, groups = [".reg .b32 s;"], {}
        for k, x in enumerate("abcd"):
            type_ = self._type(x)
            lines.append(f".reg {_REGISTERS.get(type_, '.b32')} r{x}<{self._count(x)}>;")
            groups[x] = "{" + ", ".join(f"r{x}{n}" for n in range(self._count(x))) + "}"
            if x != "d":
                lines.append(f"mov.u32 s, {self._leading(x)};")
                how = f"{x}.sync.aligned.{self._layout(x)}.{shape}{self.space}.{type_}"
                lines.append(f"wmma.load.{how} {groups[x]}, [p{k}]{', s' if self.stride else ''};")
        types = f"{self.d}.{self.c}" if self.a == "f16" else f"{self.d}.{self.a}.{self.b}.{self.c}"
        combine = f"{self.words}" if self.a == "b1" else ""
        tail = self.words if self.a != "b1" else ""
        mnemonic = f"wmma.mma{combine}.sync.aligned.{self.layouts[0]}.{self.layouts[1]}.{shape}.{types}{tail}"
        lines.append(f"{mnemonic} {groups['d']}, {groups['a']}, {groups['b']}, {groups['c']};")
        lines.append(f"mov.u32 s, {self._leading('d')};")
        how = f"{self._layout('d')}.{shape}{self.space}.{self.d}"
        lines.append(f"wmma.store.d.sync.aligned.{how} [p3], {groups['d']}{', s' if self.stride else ''};")
        return Scene(self.name, entry("\n".join(lines), 4), arrays, 1, 32)


def wmma_forms() -> list[Wmma]:
    """List shapes and types, each with layouts in turn."""
    turns = [
        ("row", "col", "row", "row"),
        ("col", "row", "col", "row"),
        ("row", "row", "row", "col"),
        ("col", "col", "col", "col"),
    ]
    forms: list[Wmma] = []
    for shape in _BIG:
        for k, layouts in enumerate(turns):
            d, c = [("f32", "f32"), ("f16", "f16"), ("f32", "f16"), ("f16", "f32")][k]
            forms.append(Wmma(shape, d, "f16", "f16", c, layouts, stride=k % 2 == 0, space=["", ".global"][k // 2]))
            forms.append(Wmma(shape, "f32", "bf16", "bf16", "f32", layouts))
            forms.append(
                Wmma(shape, "s32", "su"[k % 2] + "8", "su"[k % 2] + "8", "s32", layouts, [".satfinite", ""][k // 2])
            )
    for k, layouts in enumerate(turns):
        forms.append(Wmma((16, 16, 8), "f32", "tf32", "tf32", "f32", layouts, stride=k > 1))
        forms.append(Wmma((8, 8, 4), "f64", "f64", "f64", "f64", layouts, [".rn", ""][k // 2]))
    for k in range(2):
        layouts = ("row", "col", *(("row", "col"), ("col", "row"))[k])
        forms.append(Wmma((8, 8, 32), "s32", "su"[k] + "4", "su"[k] + "4", "s32", layouts, ["", ".satfinite"][k]))
        forms.append(Wmma((8, 8, 128), "s32", "b1", "b1", "s32", layouts, [".xor.popc", ".and.popc"][k], stride=k > 0))
    return forms


# -- ldmatrix, stmatrix, movmatrix ------------------------------------------------------------------------

_COPY = """
.reg .b32 t, at, to, r<8>; .reg .b64 i, j, q0, q1; .reg .pred few;
mov.u32 t, %tid.x; mul.wide.u32 i, t, 64; add.u64 q0, p0, i; mul.wide.u32 j, t, 4; add.u64 q1, p1, j;
mov.u32 at, data; mad.lo.u32 to, t, 64, at;
"""


def _moving(name: str, count: int, body: str, out: int, target: str = "sm_90") -> Scene:
    """A warp that has 2048 bytes in shared memory: each lane loads ``count`` words with its own row address."""
    rng = np.random.default_rng(len(name) * 7919)
    data = rng.integers(0, 256, 2048).astype(np.uint8)
    fill = "\n".join(
        f"ld.global.v4.b32 {_group(4)}, [q0+{16 * k}]; st.shared.v4.b32 [to+{16 * k}], {_group(4)};" for k in range(4)
    )
    # Rows in no order, 16 bytes each.
    address = "mul.lo.u32 to, t, 5; add.u32 to, to, 3; and.b32 to, to, 31; mad.lo.u32 to, to, 48, at;"
    store = "\n".join(f"st.global.b32 [q1+{128 * k}], r{k};" for k in range(count))
    text = f"{_COPY}{fill}\nbar.warp.sync -1;\n{address}\n{body}\n{store}"
    outside = ".shared .align 16 .b8 data[2048];"
    ptx = entry(text, 2, outside=outside, target=target, version="8.8")
    return Scene(name, ptx, (data, np.zeros((out, 32), np.uint32)), 1, 32, target=target)


def _group(count: int) -> str:
    return "{" + ", ".join(f"r{k}" for k in range(count)) + "}"


def moves() -> list[Scene]:
    """Scenes of what moves fragments: name, count of registers and transposition are told by the names."""
    found = []
    more = f"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {_group(4)}, [to];"
    back = "bar.warp.sync -1; mad.lo.u32 to, t, 64, at;" + "".join(
        f"ld.shared.v4.b32 {_group(4)}, [to+{16 * k}];"
        + "".join(f"st.global.b32 [q1+{128 * (4 * k + n)}], r{n};" for n in range(4))
        for k in range(4)
    )
    for count in (1, 2, 4):
        for trans in ("", ".trans"):
            load = f"ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {_group(count)}, [to];"
            found.append(_moving(f"ldmatrix_x{count}{trans[:6].replace('.', '_')}", count, load, count))
            store = f"{more} stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [to], {_group(count)};"
            found.append(_moving(f"stmatrix_x{count}{trans.replace('.', '_')}", 0, store + back, 16))
    offset = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {r0}, [to+16]; movmatrix.sync.aligned.m8n8.trans.b16 r0, r0;"
    found.append(_moving("movmatrix", 1, offset, 1))
    # A guard that is false for all lanes reads nothing; the address is nowhere.
    none = "setp.gt.u32 few, t, 40; mov.b32 r0, 5; @few ldmatrix.sync.aligned.m8n8.x1.shared.b16 {r0}, [p0];"
    found.append(_moving("ldmatrix_never", 1, none, 1))
    for count in (1, 2, 4):
        for packing in ("b6x16_p32", "b4x16_p64"):
            load = f"ldmatrix.sync.aligned.m8n16.x{count}.shared.b8x16.{packing} {_group(count)}, [to];"
            found.append(_moving(f"ldmatrix_m8n16_x{count}_{packing}", count, load, count, "sm_120a"))
    for count in (1, 2):
        load = f"ldmatrix.sync.aligned.m16n16.x{count}.trans.shared.b8 {_group(2 * count)}, [to];"
        found.append(_moving(f"ldmatrix_m16n16_x{count}", 2 * count, load, 2 * count, "sm_120a"))
    for count in (1, 2, 4):
        store = f"{more} stmatrix.sync.aligned.m16n8.x{count}.trans.shared.b8 [to], {_group(count)};"
        found.append(_moving(f"stmatrix_m16n8_x{count}", 0, store + back, 16, "sm_100a"))
    return found


SCENES: tuple[Scene, ...] = (*(form.scene() for form in wmma_forms()), *moves())
