"""The fast path of the ``race`` check for stores to global memory, in the emitted code. See ``Line`` in ``across.h``.

It handles rows of a whole warp that fill a line. If the line has not been accessed in this launch, the fast path
records the store. If the same warp last stored there with the same operation, no record is necessary.
"""

from __future__ import annotations

import ctypes

from cujit.devices.cpu.analysis.uniformity import WARP
from cujit.devices.cpu.codegen.builder import Builder, Value
from cujit.devices.cpu.codegen.nodes import BLOCK, WARP_NUMBER
from cujit.devices.cpu.native.checking import Across, Place, StoredLines, Tracker
from cujit.devices.cpu.observe.access_rows import Row

_LARGEST_GRAIN = 4
_RECORD_AT, _LINE_BYTES = 8, 32
"""Where a line has the record of its writer, followed by the mask of the grains."""


def reserve_lines(b: Builder, name: str) -> None:
    """Make room for a ``StoredLines`` in the frame, once in a function."""
    if b.has_entry(name):
        return
    with b.at_entry():
        b.allocate(f"[{ctypes.sizeof(StoredLines)} x i8]", align=16, into=name)
        b.store(Value("zeroinitializer", f"[{ctypes.sizeof(StoredLines)} x i8]"), name)


def may_fill_lines(row: Row) -> bool:
    """Return whether a warp may store one grain a lane, side by side."""
    return not row.spread and row.size <= _LARGEST_GRAIN and row.where.stride == row.size


def is_noted(b: Builder, place: Value, row: Row, lanes: Value, lines: str) -> Value:
    """Emit the fast path, and return whether it handled the store, as an i1."""

    def field(name: str, type_: str = "i32") -> Value:
        return b.load(type_, b.offset(lines, getattr(StoredLines, name).offset))

    def within() -> list[Value]:
        piece = b.load("ptr", b.offset(place, Place.piece.offset))
        own = b.load("i32", b.offset(piece, Tracker.across.offset + Across.own.offset))
        line = b.point("i8", field("lines", "ptr"), b.binary("lshr", offset, b.integer(row.size.bit_length() - 1, 64)))
        thread = b.binary("mul", WARP_NUMBER, b.integer(WARP, 32))
        record = b.resize(b.binary("add", field("record"), thread), 64, signed=False)
        slot = b.binary("or", record, b.integer(0xFFFFFFFF << 32, 64))
        begun = b.compare("icmp eq", b.load("i64", b.offset(place, Place.seen_block.offset)), BLOCK)
        steady = b.binary("and", begun, b.compare("icmp eq", own, field("own")))
        is_new = b.binary("and", steady, b.compare("icmp ne", b.load("i32", line), field("launch")))
        held = b.offset(line, _RECORD_AT)

        def note() -> list[Value]:
            words = [b.resize(field("launch"), 64, signed=False), slot, *[b.integer(0, 64)] * 2]
            for k, word in enumerate(words):
                b.store(word, b.offset(line, k * _LINE_BYTES // len(words)))
            return [b.integer(1, 1)]

        return b.either(
            is_new, note, lambda: [b.binary("and", steady, b.compare("icmp eq", b.load("i64", held), slot))], "new"
        )

    offset = b.binary("sub", row.where.bases[0], field("begin", "i64"))
    inside = b.compare("icmp ult", offset, field("room", "i64"))
    odd = b.binary("and", offset, b.integer(WARP * row.size - 1, 64))
    fills = b.binary("and", inside, b.compare("icmp eq", odd, b.integer(0, 64)))
    fills = b.binary("and", fills, b.compare("icmp eq", lanes, b.integer(-1, 32)))
    return b.either(fills, within, lambda: [b.integer(0, 1)], "fills")[0]
