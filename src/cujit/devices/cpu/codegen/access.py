"""Loads and stores of a warp as values: what the lanes access and where, before it is chosen how that is done.

``memory`` chooses, by a table for each. For example, ``ld.shared.v2.f32 {a, b}, [r+8]`` with an ``r`` that
counts up by 8 with the lane is a ``Gather`` of two ``float`` at a ``Place`` with one base and the stride 8; as its
lanes lie side by side, it becomes one load of a vector.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cujit.devices.cpu.analysis.patterns import VectorAccess
from cujit.devices.cpu.analysis.uniformity import WARP
from cujit.devices.cpu.codegen.builder import Builder, Value, float_type, int_type, type_width
from cujit.devices.cpu.ir.program import Op
from cujit.devices.cpu.native import lanes
from cujit.formats.ptx.isa.semantics import Type

__all__ = [
    "Gather",
    "Place",
    "Scatter",
    "addresses",
    "dealt",
    "element_type",
    "joined",
    "native_lanes",
    "repeated",
    "short_name",
]


@dataclass(frozen=True)
class Place:
    """Where the lanes access memory, in addresses (i64) of this process.

    ``bases`` are those of the first lane of each row of lanes, and ``stride`` is from lane to lane within a row;
    ``lanes`` has one for each, and is always right. Where there is ``holds``, it tells at run time whether the bases
    are. With ``vectors`` the one base is where they begin.
    """

    bases: tuple[Value, ...] = ()
    stride: int = 0
    lanes: Value | None = None
    holds: Value | None = None
    vectors: VectorAccess | None = None

    @property
    def is_uniform(self) -> bool:
        """Whether all lanes access the same."""
        return len(self.bases) == 1 and self.stride == 0 and self.vectors is None

    def every_lane(self, b: Builder) -> Value:
        """Give each lane's address."""
        if self.lanes is not None:
            return self.lanes
        return b.binary("add", self.bases[0], b.lanes([k * self.stride for k in range(WARP)], 64))


@dataclass(frozen=True)
class Gather:
    """A load: ``count`` neighbouring elements for every lane that runs.

    ``mask`` are those lanes; of a uniform place it may be one i1, whether there are any. The space, the order and
    hints are those of ``op``.
    """

    op: Op
    place: Place
    element: str
    count: int
    mask: Value

    @property
    def element_bytes(self) -> int:
        """Bytes of an element, by which it is aligned."""
        return type_width(self.element) // 8

    @property
    def bytes(self) -> int:
        """Bytes of a lane's elements."""
        return self.element_bytes * self.count

    @property
    def row_bytes(self) -> int:
        """Bytes of the elements of a row of lanes."""
        return self.bytes * (WARP // len(self.place.bases))

    @property
    def is_contiguous(self) -> bool:
        """Whether the lanes of each row access what lies side by side."""
        return bool(self.place.bases) and self.place.stride == self.bytes

    @property
    def is_whole(self) -> bool:
        """Whether all lanes run for certain."""
        return self.mask.constant


@dataclass(frozen=True)
class Scatter(Gather):
    """A store of as many ``values``.

    It is ``nontemporal`` where it may go past the cache, and ``blends`` where memory of lanes that do not run may be
    read and written back.
    """

    values: tuple[Value, ...] = ()
    nontemporal: bool = False
    blends: bool = False


def element_type(type_: Type) -> str:
    """LLVM type that a PTX type has in memory."""
    return float_type(type_.bits) if type_.kind == "f" and type_.bits >= 32 else int_type(type_.bits)


def short_name(element: str) -> str:
    """Name a type as intrinsics do."""
    return {"float": "f32", "double": "f64"}.get(element, element)


# -- an address for each lane ------------------------------------------------------------------------------


def addresses(b: Builder, g: Gather) -> Iterator[Value]:
    """Give each lane's address of one element after the other; lanes that do not run have that of idle memory."""
    every = g.place.every_lane(b)
    for k in range(g.count):
        at = b.binary("add", every, b.integer(k * g.element_bytes, 64)) if k else every
        yield at if g.is_whole else b.select(g.mask, at, b.vector(Value("%idle.int", "i64")))


def native_lanes(b: Builder, kind: str, bits: int) -> str:
    """Declare the function that gathers or scatters elements of so many bits, and name it."""
    name = lanes.name_of(kind, bits)
    b.module.declared.setdefault(name, lanes.declared(kind, bits))
    return f"@{name}"


# -- vectors of several elements a lane -------------------------------------------------------------------


def joined(b: Builder, parts: list[Value], width: int) -> Value:
    """One vector of several, each of ``width`` elements, one behind the other."""
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [b.shuffle(first, second, range(2 * width)) for first, second in pairs]
        width *= 2
    return parts[0]


def dealt(b: Builder, values: list[Value]) -> Value:
    """One vector with the lanes' elements in memory order."""
    whole, count = joined(b, values, WARP), len(values)
    if count == 1:
        return whole
    return b.shuffle(whole, None, [(k % count) * WARP + k // count for k in range(WARP * count)])


def repeated(b: Builder, mask: Value, count: int, row: int = 0, rows: int = 1) -> Value:
    """The part of a mask that is for one of ``rows`` rows, with every lane's bit ``count`` times in a row."""
    width = WARP // rows
    if mask.constant or (count == 1 and rows == 1):
        return Value(mask.text, f"<{width * count} x i1>", constant=mask.constant)
    return b.shuffle(mask, None, [row * width + k // count for k in range(width * count)])
