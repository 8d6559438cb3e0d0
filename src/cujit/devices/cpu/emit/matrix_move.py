"""``ldmatrix``, ``stmatrix`` and ``movmatrix``. PTX ISA 9.1, the sections of these names.

A matrix of eight rows of 16 bytes is one register: lane ``4 * g + t`` has bytes ``4 * t`` to ``4 * t + 3`` of row g.
"""

from __future__ import annotations

from collections.abc import Callable

from cujit.devices.cpu.emit.builder import Builder, Value
from cujit.devices.cpu.emit.matrix_frame import at, scratch
from cujit.devices.cpu.emit.matrix_product import definer
from cujit.devices.cpu.emit.matrix_tiles import put_all, words_of
from cujit.devices.cpu.emit.memory import address_in
from cujit.devices.cpu.emit.registry import Rules
from cujit.devices.cpu.emit.warp import WarpEmitter
from cujit.devices.cpu.program import Memory, Op
from cujit.devices.cpu.shapes import WARP

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

_SHARED = "shared shared::cta"
_COUNTS = "x1 x2 x4"


def register(rules: Rules) -> None:
    """Add the rules of these instructions."""
    plain = f"sync aligned {_SHARED}"
    rules.on("ldmatrix", "b16", modifiers=f"{plain} trans", choices=["m8n8", _COUNTS], memory=True)(_load)
    packs = ["m8n16", _COUNTS, "b8x16", "b6x16_p32 b4x16_p64"]
    rules.on("ldmatrix", modifiers=plain, choices=packs, memory=True)(_load)
    rules.on("ldmatrix", "b8", modifiers=plain, choices=["m16n16", "x1 x2", "trans"], memory=True)(_load_bytes)
    packs = ["m16n16", "x1 x2", "trans", "b8x16", "b6x16_p32 b4x16_p64"]
    rules.on("ldmatrix", modifiers=plain, choices=packs, memory=True)(_load_bytes)
    rules.on("stmatrix", "b16", modifiers=f"{plain} trans", choices=["m8n8", _COUNTS], memory=True)(_store)
    rules.on("movmatrix", "b16", modifiers="sync aligned", choices=["m8n8", "trans"])(_move)


def when_any_lane(e: WarpEmitter, op: Op) -> str:
    """Begin a block that runs only if a lane does the operation; give the label that has to follow it."""
    b = e.builder
    done = b.label("matrix.done")
    if op.guard is None:
        b.line(f"br label %{done}.go")
    else:
        b.line(f"br i1 {b.any_lane(b.vector(e.lanes(op))).text}, label %{done}.go, label %{done}")
    b.start(f"{done}.go")
    return done


def finish(e: WarpEmitter, done: str) -> None:
    """End the block that ``when_any_lane`` began."""
    e.write_results()
    e.builder.line(f"br label %{done}")
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


def load_row(b: Builder, address: str, source: str = "b8") -> str:
    """Load 16 bytes from an address (i64) as <16 x i8>; codes of 6 or 4 bits are put into a byte each.

    Source: PTX ISA 9.1, "ldmatrix", "Optional Decompression".
    """
    pointer = b.assign(f"inttoptr i64 {address} to ptr")
    if source == "b8":
        return b.assign(f"load <16 x i8>, ptr {pointer}, align 1")
    bits = int(source[1:])
    packed = b.assign(f"load i{16 * bits}, ptr {pointer}, align 1")
    codes = b.assign(f"bitcast i{16 * bits} {packed} to <16 x i{bits}>")
    return b.assign(f"zext <16 x i{bits}> {codes} to <16 x i8>")


def joined(b: Builder, parts: list[str], count: int, element: str) -> str:
    """Join vectors of ``count`` elements (a power of two of them) into one."""
    while len(parts) > 1:
        order = ", ".join(f"i32 {k}" for k in range(2 * count))
        half = f"<{count} x {element}>"
        parts = [
            b.assign(f"shufflevector {half} {x}, {half} {y}, <{2 * count} x i32> <{order}>")
            for x, y in zip(parts[::2], parts[1::2], strict=True)
        ]
        count *= 2
    return parts[0]


def rows_of(b: Builder, whole: str, count: int, width: int, element: str) -> list[str]:
    """Cut a vector into ``count`` of ``width`` elements: the reverse of ``joined``."""
    full = f"<{count * width} x {element}>"
    cut = []
    for k in range(count):
        order = ", ".join(f"i32 {k * width + n}" for n in range(width))
        cut.append(b.assign(f"shufflevector {full} {whole}, {full} poison, <{width} x i32> <{order}>"))
    return cut


def transposed_halves(b: Builder, rows: list[str]) -> list[str]:
    """Transpose eight rows, each a vector of eight i16: by twos, fours and eights."""
    eight = "<8 x i16>"

    def mix(x: str, y: str, group: int, upper: int) -> str:
        picks = []
        for k in range(0, 4, group):
            own = [4 * upper + k + n for n in range(group)]
            picks += own + [8 + p for p in own]
        order = ", ".join(f"i32 {p}" for p in picks)
        return b.assign(f"shufflevector {eight} {x}, {eight} {y}, <8 x i32> <{order}>")

    pairs = [mix(rows[k], rows[k + 1], 1, u) for k in range(0, 8, 2) for u in (0, 1)]
    fours = [mix(pairs[4 * q + h], pairs[4 * q + h + 2], 2, u) for q in (0, 1) for h in (0, 1) for u in (0, 1)]
    return [mix(fours[k], fours[k + 4], 4, u) for k in range(4) for u in (0, 1)]


def turned_word(b: Builder, words: str) -> str:
    """Transpose eight rows of eight halves that are one register."""
    halves = b.assign(f"bitcast <{WARP} x i32> {words} to <64 x i16>")
    turned = joined(b, transposed_halves(b, rows_of(b, halves, 8, 8, "i16")), 8, "i16")
    return b.assign(f"bitcast <64 x i16> {turned} to <{WARP} x i32>")


def _address_of(b: Builder, lane: int) -> str:
    return b.assign(f"extractelement <{WARP} x i64> %addresses, i32 {lane}")


# -- ldmatrix ---------------------------------------------------------------------------------------------


def _load(e: WarpEmitter, op: Op) -> None:
    """``m8n8`` and ``m8n16``: lanes 8k to 8k + 7 have the addresses of the rows of matrix k."""
    count, source, trans = _count(op), _source_format(op), "trans" in op.modifiers

    def body(b: Builder) -> None:
        for k in range(count):
            rows = [load_row(b, _address_of(b, 8 * k + r), source) for r in range(8)]
            whole = joined(b, rows, 16, "i8")
            words = b.assign(f"bitcast <128 x i8> {whole} to <{WARP} x i32>")
            _keep(b, turned_word(b, words) if trans else words, k)

    _load_by(e, op, f"matrix.load.{source}.x{count}{'.trans' if trans else ''}", count, body)


def _load_bytes(e: WarpEmitter, op: Op) -> None:
    """``m16n16.trans``: bytes by columns; the first register has columns 0 to 7, the second the others."""
    count, source = _count(op), _source_format(op)

    def body(b: Builder) -> None:
        for k in range(count):
            rows = [load_row(b, _address_of(b, 16 * k + r), source) for r in range(16)]
            whole = joined(b, rows, 16, "i8")
            for half in range(2):
                order = ", ".join(f"i32 {16 * r + 8 * half + g}" for g in range(8) for r in range(16))
                text = f"shufflevector <256 x i8> {whole}, <256 x i8> poison, <128 x i32> <{order}>"
                _keep(b, b.assign(f"bitcast <128 x i8> {b.assign(text)} to <{WARP} x i32>"), 2 * k + half)

    _load_by(e, op, f"matrix.load.bytes.{source}.x{count}", 2 * count, body)


def _keep(b: Builder, words: str, k: int) -> None:
    there = b.assign(f"getelementptr i8, ptr %to, i64 {4 * WARP * k}")
    b.line(f"store <{WARP} x i32> {words}, ptr {there}")


def _load_by(e: WarpEmitter, op: Op, name: str, registers: int, body: Callable[[Builder], None]) -> None:
    b = e.builder
    definer(b)(name, f"ptr %to, <{WARP} x i64> %addresses", body)
    done = when_any_lane(e, op)
    to = scratch(b, "moved", 4 * WARP * registers)
    b.line(f"call void @{name}(ptr {to}, <{WARP} x i64> {_addresses(e, op).text})")
    found = [b.assign(f"load <{WARP} x i32>, ptr {at(b, to, 4 * WARP * k)}") for k in range(registers)]
    put_all(e, op, [Value(text, "i32", True) for text in found])
    finish(e, done)


# -- stmatrix and movmatrix -------------------------------------------------------------------------------


def _store(e: WarpEmitter, op: Op) -> None:
    """The reverse of ``ldmatrix``; a row whose lane does not run is not stored."""
    b = e.builder
    count, trans = _count(op), "trans" in op.modifiers
    done = when_any_lane(e, op)
    parameters = ", ".join(f"<{WARP} x i32> %words{k}" for k in range(count))

    def body(b: Builder) -> None:
        for k in range(count):
            words = turned_word(b, f"%words{k}") if trans else f"%words{k}"
            for r, row in enumerate(rows_of(b, words, 8, 4, "i32")):
                pointer = b.assign(f"inttoptr i64 {_address_of(b, 8 * k + r)} to ptr")
                b.line(f"store <4 x i32> {row}, ptr {pointer}, align 1")

    name = f"matrix.store.x{count}{'.trans' if trans else ''}"
    definer(b)(name, f"<{WARP} x i64> %addresses, {parameters}", body)
    words = ", ".join(f"<{WARP} x i32> {word.text}" for word in words_of(e, op, 1, count))
    b.line(f"call void @{name}(<{WARP} x i64> {_addresses(e, op).text}, {words})")
    finish(e, done)


def _move(e: WarpEmitter, op: Op) -> None:
    """Transpose eight rows of eight halves."""
    b = e.builder

    words = f"<{WARP} x i32>"
    definer(b)("matrix.turn", f"{words} %words", lambda inner: turned_word(inner, "%words"), words)
    (own,) = words_of(e, op, 0, 1)
    put_all(e, op, [Value(b.assign(f"call {words} @matrix.turn({words} {own.text})"), "i32", True)])
