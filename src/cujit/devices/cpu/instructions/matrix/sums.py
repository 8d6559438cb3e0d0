"""Which sums of floats follow a tensor core bit for bit, and how: calls of ``cujit_matrix_sum``.

The machine that is followed, whatever the target, is that of sm_90: see ``runtime/matrix.c`` for its rule.
"""

from __future__ import annotations

from dataclasses import dataclass

from cujit.devices.cpu.analysis.uniformity import WARP
from cujit.devices.cpu.codegen.builder import Builder, Value
from cujit.devices.cpu.codegen.rounding import canonical
from cujit.devices.cpu.instructions.matrix.product import at, scratch

__all__ = ["Alignment", "Layout", "aligned", "mma_alignment", "wgmma_alignment", "wmma_alignment"]

Layout = str
"""Where strips go: ``order``: in the order of k; ``bytes``: of every word, bytes 0 and 1 into one group of strips and
bytes 2 and 3 into another; ``chunks``: of every eight elements in the order of k, the first four and the others."""

_LEAST = {"f16": -14, "e5m2": -14, "e4m3": -6, "bf16": -126, "tf32": -126, "f32": -126}
"""Least exponent of a normal number of a format."""
_NO_NUMBER = 0x7F800001
"""Bits that no element of A has when it is unpacked."""
_STRIP = 4 * WARP


@dataclass(frozen=True)
class Alignment:
    """How one instruction is summed: in ``groups`` of strips one after the other, each a sum of the machine.

    With ``apart`` they begin at 0, and C is added at the end as ``add.rn`` does. ``least`` are the least exponents of
    A, B and C. Elements of a ``sparse`` A that are not stored are -0, and none else: what they meet in B, be it
    infinite, is not looked at. ``zero_counts`` where a C of 0 has its least exponent, and not none.
    """

    least: tuple[int, int, int]
    halves: bool
    groups: int = 1
    apart: bool = False
    width: int = 25
    mask: int = -1
    layout: Layout = "order"
    sparse: bool = False
    zero_counts: bool = True


def mma_alignment(types: tuple[str, str, str, str], *, sparse: bool) -> Alignment | None:
    """Tell how ``mma`` of these types (A, B, C, D) is summed; None where no machine was measured.

    Source of the two groups of 8-bit floats: the machine code of ptxas 13.0 for sm_90, which makes f16 of them.
    """
    a, b, c, d = types
    if a in ("e4m3", "e5m2") and b in ("e4m3", "e5m2"):
        least = (_LEAST["f16"], _LEAST["f16"], _LEAST[d])
        layout = "chunks" if sparse else "bytes"
        return Alignment(least, d == "f16", groups=2, apart=True, layout=layout, sparse=sparse)
    return _plain(a, b, c, d, sparse)


def wmma_alignment(types: tuple[str, str, str, str]) -> Alignment | None:
    """Tell how ``wmma.mma`` is summed: tf32 in two steps of four; f16 C of an f32 D is made f32 first.

    Source: the machine code of ptxas 13.0 for sm_90.
    """
    a, b, c, d = types
    if a == "tf32":
        return Alignment((_LEAST[a], _LEAST[b], _LEAST[c]), False, groups=2)
    return _plain(a, b, c, d)


def wgmma_alignment(types: tuple[str, str, str, str], *, sparse: bool) -> Alignment | None:
    """Tell how ``wgmma`` is summed."""
    a, b, c, d = types
    if a in ("e4m3", "e5m2"):
        least = (_LEAST[a], _LEAST[b], _LEAST[c])
        return Alignment(
            least, d == "f16", width=13, mask=-1 if d == "f16" else ~0x3FF, sparse=sparse, zero_counts=False
        )
    return _plain(a, b, c, d, sparse)


def _plain(a: str, b: str, c: str, d: str, sparse: bool = False) -> Alignment | None:
    if a not in ("f16", "bf16", "tf32"):
        return None
    halves = c == d == "f16"
    return Alignment((_LEAST[a], _LEAST[b], _LEAST["f16" if halves else "f32"]), halves, sparse=sparse)


def aligned(b: Builder, how: Alignment, left: Value, right: Value, strips: int, c: list[Value]) -> list[Value]:
    """Sum a tile: A's strips at ``left`` (those of each half together), B's columns at ``right``, and C as f32.

    Where D is f16, so are the results: f32 that become f16 without another rounding.
    """
    total = [b.vector(b.real(0, 32)) for _ in c] if how.apart else c
    size = strips // how.groups
    for group in range(how.groups):
        total = _group(b, how, (left, right), (strips, group * size, size), total)
    return [canonical(b, b.binary("fadd", x, y)) for x, y in zip(total, c, strict=True)] if how.apart else total


def _group(
    b: Builder, how: Alignment, matrices: tuple[Value, Value], strips: tuple[int, int, int], c: list[Value]
) -> list[Value]:
    """Make one sum; ``strips`` are how many a half has, the first of the group, and how many the group has."""
    place = scratch(b, "d", len(c) * _STRIP)
    for k, value in enumerate(c):
        b.store(value, at(b, place, k * _STRIP), align=_STRIP)
    least = [(127 + exponent) << 23 for exponent in how.least]
    zero = least[2] if how.zero_counts else 0
    numbers = [strips[2], *least, zero, how.width, how.mask, int(how.halves), -(1 << 31) if how.sparse else _NO_NUMBER]
    arguments = [Value(str(number), "i32", constant=True) for number in numbers]
    for half in range(len(c) // 2):
        own = at(b, place, 2 * half * _STRIP)
        own_left = at(b, matrices[0], (half * strips[0] + strips[1]) * _STRIP)
        own_right = at(b, matrices[1], strips[1] * _STRIP)
        b.call("cujit_matrix_sum", "void", own, own_left, own_right, *arguments)
    sums = [b.load("float", at(b, place, k * _STRIP), vector=True, align=_STRIP) for k in range(len(c))]
    if not how.halves:
        return sums
    # What rounds to 0 is +0.
    halves = [b.cast("fpext", b.cast("fptrunc", x, "half"), "float") for x in sums]
    return [b.binary("fadd", x, b.real(0, 32)) for x in halves]
