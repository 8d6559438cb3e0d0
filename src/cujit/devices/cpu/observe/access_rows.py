"""Accesses with lanes in rows, by one operation or several, in the form that native code reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cujit.devices.cpu.analysis.uniformity import WARP
from cujit.devices.cpu.codegen.builder import Builder, Value
from cujit.devices.cpu.codegen.memory import LaneAddresses as Where
from cujit.devices.cpu.ir.program import Op
from cujit.devices.cpu.native.checking import Access, Space
from cujit.devices.cpu.observe.access_sites import Batch, MemoryAccess, bytes_of, element_bytes
from cujit.values import dataclass

if TYPE_CHECKING:
    from cujit.devices.cpu.codegen.warp import WarpEmitter


@dataclass(frozen=True, eq=False)
class Row:
    """The access of lanes in rows by one operation or several. ``members`` are the offsets and PTX lines of the
    operations.
    """

    op: Op
    where: Where
    size: int
    flags: int
    members: tuple[tuple[int, int], ...]

    @property
    def lanes(self) -> int:
        """Lanes of a row."""
        return WARP // len(self.where.bases)

    @property
    def align(self) -> int:
        """The required alignment of the addresses, in bytes."""
        return 1 << (self.flags >> 24)

    @property
    def spread(self) -> int:
        """The largest offset of a member."""
        return max(offset for offset, _ in self.members)

    @property
    def together(self) -> int:
        """The bytes that a lane accesses by all members, if these are adjacent in the lane's own part, otherwise 0."""
        places, whole = [offset for offset, _ in self.members], self.size * len(self.members)
        side_by_side = [*range(places[0], places[0] + whole, self.size)] == places
        return whole if len(places) > 1 and side_by_side and whole <= abs(self.where.stride) else 0

    @property
    def is_near(self) -> bool:
        """Whether several lanes of a row may access the same word, each by another member."""
        return len(self.members) > 1 and self.spread < abs(self.where.stride) * self.lanes

    @property
    def reach(self) -> int:
        """Bytes from the first that a row accesses to the last."""
        return abs(self.where.stride) * (self.lanes - 1) + self.size + self.spread

    @property
    def is_plain(self) -> bool:
        """Whether the access is a weak read or a weak write of shared memory."""
        kind = self.flags & (Access.READ | Access.WRITE | Access.STRONG | (Access.ACQUIRE | Access.RELEASE))
        return self.space is Space.SHARED and kind in (Access.READ, Access.WRITE)

    @property
    def is_weak(self) -> bool:
        """Whether an access is neither atomic nor an order for others."""
        return not self.flags & (Access.STRONG | Access.LOOKS | Access.ACQUIRE | Access.RELEASE)

    @property
    def space(self) -> Space:
        """The space that the operation names."""
        return Space(self.flags >> 8 & 15)

    def site(self, b: Builder, flags: int) -> Value:
        """Emit a constant that describes the access for native code, and return a pointer to the constant."""
        # Python 3.10 writes flags by their names.
        counts = (self.size, int(flags), self.spread, len(self.members), self.together, int(self.is_near))
        numbers = [(self.where.stride, 64), *((n, 32) for n in counts),
                   *((n, 32) for member in self.members for n in member)]  # fmt: skip
        name = ".".join(["check.site", *(str(number) for number, _ in numbers)])
        return b.module.constant(name, [b.integer(*number) for number in numbers])


def row_of(batch: Batch, ops: Sequence[Op], where: Where, space: Space) -> Row:
    """Return the access of some operations of a batch, which are all loads or all stores."""
    op, size = ops[0], bytes_of(ops[0])
    members = tuple(sorted((each.memory.offset - batch.offset, each.line) for each in ops))
    access = Access.WRITE if op.opcode == "st" else Access.READ
    touch = MemoryAccess(where, size, access, space, element_bytes(op), size)
    return Row(op, where, size, touch.flags, members)


def are_disjoint(e: WarpEmitter, touch: MemoryAccess, size: int) -> Value | None:
    """Return whether no two lanes write different values to one place, as an i1, or None if this is unknown."""
    b, (first, *others), stride = e.builder, touch.where.bases, touch.where.stride
    if not others and not stride and not any(value.lanes for value in touch.values):
        return b.integer(1, 1)
    if abs(stride) < size:
        return None
    reach, disjoint = (WARP // (1 + len(others)) - 1) * abs(stride) + size, b.integer(1, 1)
    for before, base in zip((first, *others), others, strict=False):
        one = b.compare("icmp sge", b.binary("sub", base, before), b.integer(reach, 64))
        disjoint = b.binary("and", disjoint, one)
    return disjoint
