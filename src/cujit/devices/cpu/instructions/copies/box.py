"""The walk through a box of a tensor: its rows, and the pieces or elements of a row, as code of one function.

The function has the parameters ``%map``, ``%shared`` and ``%origin`` (i64: addresses of the map, of the box, and of the
cluster's shared memory) and the coordinates ``%c0`` and on (i32). PTX ISA 9.1, 5.5 "Tensors".
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from cujit.devices.cpu.codegen.builder import Builder, Value
from cujit.devices.cpu.instructions.atomics import Atomic
from cujit.devices.cpu.instructions.copies.bulk import count_loop
from cujit.devices.cpu.run.tensormap import CLOSED, ROUNDED, field_offset

__all__ = ["Box", "Im2col", "is_one_of", "load_field"]

_PIECE = 16
"""Bytes that are copied at a time; a swizzle exchanges pieces of this size, and what goes out is cut at them."""
_TF32_DROPS = 13
"""Bits of a float's fraction that TF32 does not have."""
_TF32_NAN = 0x7FFFE000
"""What a load of TF32 makes of every NaN. Source: measured on an H200."""
_FILL = (0xF7, 0x7F)
"""Bytes, in turn, of the NaNs that lie outside of a tensor, whatever their type. Source: measured on an H200."""


def is_one_of(f: Builder, number: Value, numbers: Collection[int]) -> Value:
    """Whether an i8 is one of a few small numbers."""
    set_ = f.integer(sum(1 << n for n in numbers), 32)
    bit = f.binary("lshr", set_, f.binary("and", f.cast("zext", number, "i32"), f.integer(31, 32)))
    return f.cast("trunc", bit, "i1")


def load_field(f: Builder, map_: Value, name: str, type_: str, index: int = 0) -> Value:
    """Load a field of the map at an address (i64)."""
    size = int(type_[1:]) // 8
    at = f.cast("inttoptr", f.binary("add", map_, f.integer(field_offset(name) + index * size, 64)), "ptr")
    return f.load(type_, at, align=size)


Row = Callable[[Value, Value, Value, Value, Value], None]
"""Work of one row of the box, as five i64: ``work(row, address of its element 0, inside, first element, size)``.

``inside`` is an i1: whether the row is in the tensor; ``size`` is the tensor's along the row.
"""


class Box:
    """Emits the walk through a box: its rows, and the pieces or elements of a row."""

    def __init__(self, f: Builder, rank: int) -> None:
        self.f, self.rank = f, rank
        self.map = Value("%map", "i64")
        field = self.field
        self.element = field("element_bytes", "i8")
        self.fill = field("fill", "i8")
        self.base = field("global_address", "i64")
        self.mask = self._swizzle_mask(field("swizzle", "i8"))
        self.rounds = is_one_of(f, load_field(f, self.map, "element", "i8"), ROUNDED)
        self.first = [f.cast("sext", Value(f"%c{k}", "i32"), "i64") for k in range(rank)]
        # A size of 0 stands for 2**32.
        self.sizes = [self._or(field("sizes", "i32", k), 1 << 32) for k in range(rank)]
        self.steps = [self._or(field("element_strides", "i32", k), 1) for k in range(rank)]
        self.strides = [field("strides", "i64", k) for k in range(rank - 1)]
        self.counts = self.counted()
        self.row_bytes = f.binary("mul", self.counts[0], self.element)
        # In shared memory a row takes the whole span of a swizzle. Source: measured on an H200.
        span = f.binary("add", self.mask, f.integer(_PIECE, 64))
        self.pitch = f.intrinsic("umax", span, self.row_bytes)
        self.rows = f.integer(1, 64)
        for count in self.counts[1:]:
            self.rows = f.binary("mul", self.rows, count)
        self.bytes = f.binary("mul", self.rows, self.row_bytes)
        self.limit = self._limit()

    def field(self, name: str, type_: str = "i32", index: int = 0, *, signed: bool = False) -> Value:
        """Load a field of the map, as an i64."""
        return self.f.cast("sext" if signed else "zext", load_field(self.f, self.map, name, type_, index), "i64")

    def counted(self) -> list[Value]:
        """Count the elements along each axis of the box.

        Along the innermost one every element is taken. Source: PTX ISA 9.1, 5.5.3.2 "Traversal-Stride".
        """
        box = [self.field("box", "i32", k) for k in range(self.rank)]
        return [box[0], *(self._ceiling(n, s) for n, s in zip(box[1:], self.steps[1:], strict=True))]

    def _or(self, value: Value, other: int) -> Value:
        f = self.f
        return f.select(f.compare("icmp eq", value, f.integer(0, 64)), f.integer(other, 64), value)

    def _ceiling(self, number: Value, step: Value) -> Value:
        f = self.f
        return f.binary("udiv", f.binary("add", number, f.binary("sub", step, f.integer(1, 64))), step)

    def _swizzle_mask(self, mode: Value) -> Value:
        """Bits 4 and up of an address that change with bits 7 and up: one for 32 bytes, two for 64, three for 128.

        Source: PTX ISA 9.1, 5.5.6 "Swizzling Modes": 16-byte pieces of rows of 128 bytes, by the number of the row.
        """
        f = self.f
        place = f.binary("shl", f.binary("and", mode, f.integer(3, 64)), f.integer(3, 64))
        masks = f.binary("lshr", f.integer(0x70301000, 64), place)
        return f.binary("and", masks, f.integer(0x70, 64))

    def _limit(self) -> Value:
        """Where what may be written ends: behind the last element where nothing behind it is the array's."""
        f = self.f
        end = f.binary("add", self.base, f.binary("mul", self.sizes[0], self.element))
        for size, stride in zip(self.sizes[1:], self.strides, strict=True):
            end = f.binary("add", end, f.binary("mul", f.binary("sub", size, f.integer(1, 64)), stride))
        closed = f.binary("and", self.field("mark", "i64"), f.integer(CLOSED, 64))
        return f.select(f.compare("icmp ne", closed, f.integer(0, 64)), end, f.integer(-1, 64))

    def _end_of_pieces(self, size: Value) -> Value:
        """Bytes of the tensor's row up to the end of its last piece.

        What goes out to a piece that begins in the row goes to all of it. Source: measured on an H200.
        """
        f = self.f
        end = f.binary("add", f.binary("mul", size, self.element), f.integer(_PIECE - 1, 64))
        return f.binary("and", end, f.integer(-_PIECE, 64))

    def place(self, offset: Value) -> Value:
        """Give the address in shared memory of a byte of the box."""
        f = self.f
        origin = Value("%origin", "i64")
        at = f.binary("sub", f.binary("add", Value("%shared", "i64"), offset), origin)
        moved = f.binary("xor", at, f.binary("and", f.binary("lshr", at, f.integer(3, 64)), self.mask))
        return f.binary("add", moved, origin)

    def each_row(self, work: Row) -> None:
        """Go through the rows; ``work`` gets what it needs to know of one."""
        f = self.f

        def row(number: Value) -> None:
            rest, address = number, self.base
            inside = f.integer(1, 1)
            for k, stride in enumerate(self.strides, start=1):
                index = f.binary("urem", rest, self.counts[k])
                rest = f.binary("udiv", rest, self.counts[k])
                at = f.binary("add", self.first[k], f.binary("mul", index, self.steps[k]))
                address = f.binary("add", address, f.binary("mul", at, stride))
                # An index below zero is very large as an unsigned number.
                inside = f.binary("and", inside, f.compare("icmp ult", at, self.sizes[k]))
            work(number, address, inside, self.first[0], self.sizes[0])

        count_loop(f, self.rows, row)

    def _if(self, condition: Value, then: Callable[[], None], otherwise: Callable[[], None]) -> None:
        f = self.f
        yes, no, done = f.label("yes"), f.label("no"), f.label("done")
        f.branch(condition, yes, no)
        for label, emit in ((yes, then), (no, otherwise)):
            f.start(label)
            emit()
            f.jump(done)
        f.start(done)

    def copy_row(self, inward: bool, row: Value, address: Value, inside: Value, first: Value, size: Value) -> None:
        """Copy a row in pieces: whole where the piece is in the tensor, else byte by byte."""
        f = self.f
        start = f.binary("mul", row, self.pitch)
        end = f.binary("mul", size, self.element) if inward else self._end_of_pieces(size)
        begin = f.binary("mul", first, self.element)

        def piece(number: Value) -> None:
            offset = f.binary("mul", number, f.integer(_PIECE, 64))
            left = f.binary("sub", self.row_bytes, offset)
            at = f.binary("add", begin, offset)
            last = f.binary("add", at, f.integer(_PIECE, 64))
            whole = f.compare("icmp sge", at, f.integer(0, 64))
            whole = f.binary("and", whole, f.compare("icmp sle", last, end))
            whole = f.binary("and", whole, f.compare("icmp uge", left, f.integer(_PIECE, 64)))
            there = f.binary("add", address, at)
            if not inward:
                there_ends = f.binary("add", there, f.integer(_PIECE, 64))
                whole = f.binary("and", whole, f.compare("icmp ule", there_ends, self.limit))
            here = self.place(f.binary("add", start, offset))

            def all_of_it() -> None:
                from_, to = (there, here) if inward else (here, there)
                self._copy(from_, to, "<4 x i32>")

            def by_bytes() -> None:
                count = f.intrinsic("umin", left, f.integer(_PIECE, 64))
                count_loop(f, count, lambda k: self._byte(inward, k, there, here, at, end, inside))

            self._if(f.binary("and", whole, inside), all_of_it, by_bytes)
            if inward:
                self._if(f.binary("and", self.rounds, inside), lambda: self._round(here, at, end), lambda: None)

        pieces = f.binary("udiv", f.binary("add", self.row_bytes, f.integer(_PIECE - 1, 64)), f.integer(_PIECE, 64))
        count_loop(f, pieces, piece)

    def _round(self, here: Value, at: Value, end: Value) -> None:
        """Round the numbers of a piece that are in the tensor to TF32.

        Source: PTX ISA 9.1, 5.5.1 "Tensor Dimension, size and format": rounded to nearest even.
        """
        f = self.f
        pointer = f.cast("inttoptr", here, "ptr")
        for k in range(_PIECE // 4):
            place = f.point("i32", pointer, f.integer(k, 64))
            x = f.load("i32", place, align=4)
            odd = f.binary("and", f.binary("lshr", x, f.integer(_TF32_DROPS, 32)), f.integer(1, 32))
            half = f.binary("add", odd, f.integer((1 << _TF32_DROPS - 1) - 1, 32))
            rounded = f.binary("and", f.binary("add", x, half), f.integer(-1 << _TF32_DROPS, 32))
            size = f.binary("and", x, f.integer(0x7FFFFFFF, 32))
            is_nan = f.compare("icmp ugt", size, f.integer(0x7F800000, 32))
            y = f.select(is_nan, f.integer(_TF32_NAN, 32), rounded)
            is_in = f.compare("icmp ult", f.binary("add", at, f.integer(4 * k, 64)), end)
            f.store(f.select(is_in, y, x), place, align=4)

    def _byte(self, inward: bool, k: Value, there: Value, here: Value, at: Value, end: Value, inside: Value) -> None:
        f = self.f
        index = f.binary("add", at, k)
        is_in = f.binary("and", inside, f.compare("icmp ult", index, end))
        there, here = f.binary("add", there, k), f.binary("add", here, k)
        if not inward:
            is_in = f.binary("and", is_in, f.compare("icmp ult", there, self.limit))

        def copy() -> None:
            self._copy(*((there, here) if inward else (here, there)), "i8")

        def fill() -> None:
            if inward:
                f.store(self._filling(k), f.cast("inttoptr", here, "ptr"))

        self._if(is_in, copy, fill)

    def _filling(self, k: Value) -> Value:
        """A byte of what lies outside of the tensor: zero, or of a NaN."""
        f = self.f
        is_low = f.compare("icmp eq", f.binary("and", k, f.integer(1, 64)), f.integer(0, 64))
        nan = f.select(is_low, *(f.integer(byte, 8) for byte in _FILL))
        return f.select(f.compare("icmp eq", self.fill, f.integer(0, 64)), f.integer(0, 8), nan)

    def _copy(self, from_: Value, to: Value, type_: str) -> None:
        f = self.f
        source, target = (f.cast("inttoptr", v, "ptr") for v in (from_, to))
        f.store(f.load(type_, source, align=1), target, align=1)

    def reduce_row(self, form: Atomic, row: Value, address: Value, inside: Value, first: Value, size: Value) -> None:
        """Reduce the elements of a row that are in the tensor's pieces."""
        f = self.f
        bytes_ = form.bits // 8
        start, end = f.binary("mul", row, self.pitch), self._end_of_pieces(size)

        def element(k: Value) -> None:
            at = f.binary("mul", f.binary("add", first, k), f.integer(bytes_, 64))
            there = f.binary("add", address, at)

            def apply() -> None:
                here = self.place(f.binary("add", start, f.binary("mul", k, f.integer(bytes_, 64))))
                operand = form.load(f, f.cast("inttoptr", here, "ptr"))
                form.apply(f, f.cast("inttoptr", there, "ptr"), [operand])

            is_in = f.binary("and", inside, f.compare("icmp ult", at, end))
            is_in = f.binary("and", is_in, f.compare("icmp ult", there, self.limit))
            self._if(is_in, apply, lambda: None)

        count_loop(f, self.counts[0], element)


class Im2col(Box):
    """Emits the walk through pixels: channels are a row, and each pixel is a row of its own.

    Source: PTX ISA 9.1, 5.5.4 "im2col mode".
    """

    def counted(self) -> list[Value]:
        """Count channels and pixels."""
        return [self.field("box", "i32", k) for k in range(2)]

    def each_row(self, work: Row) -> None:
        """Go from pixel to pixel: along W, H, D and then N; what an axis does not have any more the next one gets."""
        f, rank = self.f, self.rank
        space = range(1, rank - 1)
        offsets = [f.cast("sext", Value(f"%c{rank + k - 1}", "i32"), "i64") for k in space]
        low = [self.field("lower", "i16", k - 1, signed=True) for k in space]
        high = [f.binary("add", self.sizes[k], self.field("upper", "i16", k - 1, signed=True)) for k in space]
        places = []
        for first in self.first[1:]:
            places.append(f.allocate("i64"))
            f.store(first, places[-1])

        def pixel(number: Value) -> None:
            now = [f.load("i64", place) for place in places]
            address, inside = self.base, f.integer(1, 1)
            shifts = [*offsets, f.integer(0, 64)]
            for at, shift, size, stride in zip(now, shifts, self.sizes[1:], self.strides, strict=True):
                at = f.binary("add", at, shift)
                address = f.binary("add", address, f.binary("mul", at, stride))
                inside = f.binary("and", inside, f.compare("icmp ult", at, size))
            work(number, address, inside, self.first[0], self.sizes[0])
            goes_on = f.integer(1, 1)
            for k, place in enumerate(places):
                step = f.select(goes_on, self.steps[k + 1] if k < len(low) else f.integer(1, 64), f.integer(0, 64))
                then = f.binary("add", now[k], step)
                if k < len(low):
                    goes_on = f.binary("and", goes_on, f.compare("icmp sge", then, high[k]))
                    then = f.select(goes_on, low[k], then)
                f.store(then, place)

        count_loop(f, self.rows, pixel)
