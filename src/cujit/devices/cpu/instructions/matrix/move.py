"""``ldmatrix``, ``stmatrix`` and ``movmatrix``. PTX ISA 9.1, the sections of these names.

A matrix of eight rows of 16 bytes is one register: lane ``4 * g + t`` has bytes ``4 * t`` to ``4 * t + 3`` of row g.
"""

from __future__ import annotations

from collections.abc import Callable

from cujit.devices.cpu.analysis.uniformity import WARP
from cujit.devices.cpu.codegen.builder import Builder, Value
from cujit.devices.cpu.codegen.registry import Rules
from cujit.devices.cpu.codegen.warp import WarpEmitter
from cujit.devices.cpu.instructions.matrix.product import at, scratch
from cujit.devices.cpu.instructions.matrix.tiles import put_all, words_of
from cujit.devices.cpu.instructions.memory import address_in
from cujit.devices.cpu.ir.program import Memory, Op

__all__ = [
    "finish",
    "joined",
    "load_row",
    "one_of",
    "register",
    "rows_of",
    "transposed_halves",
    "turned_word",
    "when_any_lane",
]

_COUNTS = "x1 x2 x4"


def register(rules: Rules) -> None:
    """Add the rules of this family."""
    rules.on("ldmatrix", _load)
    rules.on("ldmatrix .m16n16", _load_bytes)
    rules.on("stmatrix", _store)
    rules.on("movmatrix", _move)


def when_any_lane(e: WarpEmitter, op: Op) -> str:
    """Begin a block that runs only if a lane does the operation; give the label that has to follow it."""
    b = e.builder
    done = b.label("matrix.done")
    if op.guard is None:
        b.jump(f"{done}.go")
    else:
        b.branch(b.any_lane(b.vector(e.lanes(op))), f"{done}.go", done)
    b.start(f"{done}.go")
    return done


def finish(e: WarpEmitter, done: str) -> None:
    """End the block that ``when_any_lane`` began."""
    e.write_results()
    e.builder.jump(done)
    e.builder.start(done)


def one_of(e: WarpEmitter, op: Op, value: Value) -> Value:
    """Give the value that all lanes have, from the first that runs."""
    b = e.builder
    return b.extract(value, b.first_lane(b.vector(e.lanes(op)))) if value.is_vector else value


def _addresses(e: WarpEmitter, op: Op) -> Value:
    """Addresses of all lanes; lanes that do not run have memory that nobody minds."""
    b = e.builder
    memory = op.sources[0]
    assert isinstance(memory, Memory)
    space = op.space
    own = b.vector(address_in(e, memory, space))
    return b.select(b.vector(e.lanes(op)), own, b.vector(Value("%idle.int", "i64")))


def _count(op: Op) -> int:
    return next(int(m[1:]) for m in op.modifiers if m in _COUNTS.split())


def _source_format(op: Op) -> str:
    """How a row's sixteen bytes lie in memory: ``b8``, or packed as ``b6`` and ``b4``."""
    return next((m[:2] for m in op.modifiers if m in ("b6x16_p32", "b4x16_p64")), "b8")


# -- rows -------------------------------------------------------------------------------------------------


def load_row(b: Builder, address: Value, source: str = "b8") -> Value:
    """Load 16 bytes from an address (i64) as <16 x i8>; codes of 6 or 4 bits are put into a byte each.

    Source: PTX ISA 9.1, "ldmatrix", "Optional Decompression".
    """
    pointer = b.cast("inttoptr", address, "ptr")
    if source == "b8":
        return b.load("<16 x i8>", pointer, align=1)
    bits = int(source[1:])
    packed = b.load(f"i{16 * bits}", pointer, align=1)
    return b.cast("zext", b.reinterpret(packed, f"i{bits}", 16), "<16 x i8>")


def joined(b: Builder, parts: list[Value], count: int) -> Value:
    """Join vectors of ``count`` elements (a power of two of them) into one."""
    while len(parts) > 1:
        parts = [b.shuffle(x, y, range(2 * count)) for x, y in zip(parts[::2], parts[1::2], strict=True)]
        count *= 2
    return parts[0]


def rows_of(b: Builder, whole: Value, count: int, width: int) -> list[Value]:
    """Cut a vector into ``count`` of ``width`` elements: the reverse of ``joined``."""
    return [b.shuffle(whole, None, range(k * width, k * width + width)) for k in range(count)]


def transposed_halves(b: Builder, rows: list[Value]) -> list[Value]:
    """Transpose eight rows, each a vector of eight i16: by twos, fours and eights."""

    def mix(x: Value, y: Value, group: int, upper: int) -> Value:
        picks = []
        for k in range(0, 4, group):
            own = [4 * upper + k + n for n in range(group)]
            picks += own + [8 + p for p in own]
        return b.shuffle(x, y, picks)

    pairs = [mix(rows[k], rows[k + 1], 1, u) for k in range(0, 8, 2) for u in (0, 1)]
    fours = [mix(pairs[4 * q + h], pairs[4 * q + h + 2], 2, u) for q in (0, 1) for h in (0, 1) for u in (0, 1)]
    return [mix(fours[k], fours[k + 4], 4, u) for k in range(4) for u in (0, 1)]


def turned_word(b: Builder, words: Value) -> Value:
    """Transpose eight rows of eight halves that are one register."""
    halves = b.reinterpret(words, "i16", 64)
    return b.reinterpret(joined(b, transposed_halves(b, rows_of(b, halves, 8, 8)), 8), "i32", WARP)


def _address_of(b: Builder, lane: int) -> Value:
    return b.extract(Value("%addresses", "i64", True), b.integer(lane, 32))


# -- ldmatrix ---------------------------------------------------------------------------------------------


def _load(e: WarpEmitter, op: Op) -> None:
    """``m8n8`` and ``m8n16``: lanes 8k to 8k + 7 have the addresses of the rows of matrix k."""
    count, source, trans = _count(op), _source_format(op), "trans" in op.modifiers

    def body(b: Builder) -> None:
        for k in range(count):
            rows = [load_row(b, _address_of(b, 8 * k + r), source) for r in range(8)]
            words = b.reinterpret(joined(b, rows, 16), "i32", WARP)
            _keep(b, turned_word(b, words) if trans else words, k)

    _load_by(e, op, f"matrix.load.{source}.x{count}{'.trans' if trans else ''}", count, body)


def _load_bytes(e: WarpEmitter, op: Op) -> None:
    """``m16n16.trans``: bytes by columns; the first register has columns 0 to 7, the second the others."""
    count, source = _count(op), _source_format(op)

    def body(b: Builder) -> None:
        for k in range(count):
            rows = [load_row(b, _address_of(b, 16 * k + r), source) for r in range(16)]
            whole = joined(b, rows, 16)
            for half in range(2):
                picks = [16 * r + 8 * half + g for g in range(8) for r in range(16)]
                _keep(b, b.reinterpret(b.shuffle(whole, None, picks), "i32", WARP), 2 * k + half)

    _load_by(e, op, f"matrix.load.bytes.{source}.x{count}", 2 * count, body)


def _keep(b: Builder, words: Value, k: int) -> None:
    b.store(words, b.offset("%to", 4 * WARP * k))


def _load_by(e: WarpEmitter, op: Op, name: str, registers: int, body: Callable[[Builder], None]) -> None:
    b = e.builder
    b.define(name, f"ptr %to, <{WARP} x i64> %addresses", body)
    done = when_any_lane(e, op)
    to = scratch(b, "moved", 4 * WARP * registers)
    b.invoke(f"@{name}", "void", to, _addresses(e, op))
    put_all(e, op, [b.load("i32", at(b, to, 4 * WARP * k), vector=True) for k in range(registers)])
    finish(e, done)


# -- stmatrix and movmatrix -------------------------------------------------------------------------------


def _store(e: WarpEmitter, op: Op) -> None:
    """The reverse of ``ldmatrix``; a row whose lane does not run is not stored."""
    b = e.builder
    count, layout = _count(op), "bytes" if "b8" in op.modifiers else "trans" if "trans" in op.modifiers else "rows"
    done = when_any_lane(e, op)
    parameters = ", ".join(f"<{WARP} x i32> %words{k}" for k in range(count))

    def body(b: Builder) -> None:
        for k in range(count):
            for r, row in enumerate(_stored_rows(b, Value(f"%words{k}", "i32", True), layout)):
                b.store(row, b.cast("inttoptr", _address_of(b, 8 * k + r), "ptr"), align=1)

    b.define(f"matrix.store.x{count}.{layout}", f"<{WARP} x i64> %addresses, {parameters}", body)
    words = words_of(e, op, 1, count)
    b.invoke(f"@matrix.store.x{count}.{layout}", "void", _addresses(e, op), *words)
    finish(e, done)


def _stored_rows(b: Builder, words: Value, layout: str) -> list[Value]:
    """Make the eight rows of 16 bytes that one register is stored as.

    ``bytes``: the matrix has 16 rows of 8 bytes, and each column is stored as a row. Lane ``4 * g + t`` has of rows g
    (its bytes 0 and 1) and g + 8 (2 and 3) columns 2t and 2t + 1, as it has C of an mma.m16n8.
    Source: CUTLASS 4, ``copy_traits_sm100.hpp``, ``SM100_U8x4_STSM_T``; the manual has it in a picture.
    """
    if layout != "bytes":
        return rows_of(b, turned_word(b, words) if layout == "trans" else words, 8, 4)
    own = b.reinterpret(words, "i8", 4 * WARP)
    picks = [[4 * (4 * g + n // 2) + n % 2 + 2 * half for half in (0, 1) for g in range(8)] for n in range(8)]
    return [b.shuffle(own, None, column) for column in picks]


def _turn(b: Builder) -> Value:
    return turned_word(b, Value("%words", "i32", True))


def _move(e: WarpEmitter, op: Op) -> None:
    """Transpose eight rows of eight halves."""
    b = e.builder

    words = f"<{WARP} x i32>"
    b.define("matrix.turn", f"{words} %words", _turn, words)
    (own,) = words_of(e, op, 0, 1)
    put_all(e, op, [b.invoke("@matrix.turn", "i32", own, vector=True)])
