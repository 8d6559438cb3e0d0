"""``ldmatrix``, ``stmatrix``, ``movmatrix``, ``wmma.load``, ``wmma.store``. PTX ISA 9.1, the sections of these names.

A matrix of eight rows of 16 bytes is one register: lane ``4 * g + t`` has bytes ``4 * t`` to ``4 * t + 3`` of row g.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from cujit.devices.cpu.analysis.uniformity import WARP
from cujit.devices.cpu.codegen.builder import Value
from cujit.devices.cpu.codegen.registry import Rules
from cujit.devices.cpu.codegen.warp import WarpEmitter
from cujit.devices.cpu.instructions.matrix import frames
from cujit.devices.cpu.instructions.memory import address_in
from cujit.devices.cpu.ir.program import Op
from cujit.devices.cpu.native.structures import Fragment
from cujit.values import dataclass


def register(rules: Rules) -> None:
    """Add the rules of this family."""
    rules.on("ldmatrix", _load)
    rules.on("stmatrix", _store)
    rules.on("movmatrix", _turn)
    rules.on("wmma .load|store", _move_fragment)


@contextlib.contextmanager
def when_any_lane(e: WarpEmitter, op: Op) -> Iterator[None]:
    """Make the code emitted in this context run only if any lane does the operation."""
    b = e.builder
    with contextlib.nullcontext() if op.guard is None else b.when(b.any_lane(b.vector(e.lanes(op))), "matrix"):
        yield
        e.write_results()


def one_of(e: WarpEmitter, op: Op, value: Value) -> Value:
    """Return the value that all lanes have, from the first lane that runs."""
    b = e.builder
    return b.extract(value, b.first_lane(b.vector(e.lanes(op)))) if value.lanes else value


def _addresses(e: WarpEmitter, op: Op) -> Value:
    """Return a pointer to the addresses of all lanes. Lanes that do not run have the address of unused memory."""
    b = e.builder
    own = b.vector(address_in(e, op.memory, op.space))
    return b.in_memory("%matrix.rows", b.select(b.vector(e.lanes(op)), own, b.vector(Value("%idle.int", "i64"))))


def _load(e: WarpEmitter, op: Op) -> None:
    """Emit ``ldmatrix``: load rows of 16 bytes. ``.b6x16_p32`` and ``.b4x16_p64`` specify packed codes
    of 6 or 4 bits.
    """
    with when_any_lane(e, op):
        frames.put_all(e, op, load_rows(e, op, _addresses(e, op)))


def load_rows(e: WarpEmitter, op: Op, addresses: Value) -> list[Value]:
    """Load the rows of ``ldmatrix`` from ``addresses``, and return the registers."""
    b, columns = e.builder, "m16n16" in op.modifiers
    bits = 6 if "b6x16_p32" in op.modifiers else 4 if "b4x16_p64" in op.modifiers else 8
    count = _count(op)
    numbers = [b.integer(n, 32) for n in ((count, bits) if columns else (count, bits, "trans" in op.modifiers))]
    name, made = f"load{'_columns' * columns}", ["i32"] * (2 * count if columns else count)
    return frames.call_of(b, name, [], made, (), [addresses, *numbers])


def _store(e: WarpEmitter, op: Op) -> None:
    """Emit ``stmatrix``, the reverse of ``ldmatrix``. The row of a lane that does not run is not stored."""
    with when_any_lane(e, op):
        store_rows(e, op, _addresses(e, op), frames.words_of(e, op, 1, _count(op)))


def store_rows(e: WarpEmitter, op: Op, addresses: Value, words: list[Value]) -> None:
    """Store registers as ``stmatrix`` does, to rows at ``addresses``."""
    b, count, by_bytes = e.builder, _count(op), "b8" in op.modifiers
    flags = [b.integer(n, 32) for n in (count, "trans" in op.modifiers and not by_bytes, by_bytes)]
    frames.call_of(b, "store", words, [], (), [addresses, *flags])


def _count(op: Op) -> int:
    return next(int(m[1:]) for m in op.modifiers if m in ("x1", "x2", "x4"))


def _turn(e: WarpEmitter, op: Op) -> None:
    """Transpose eight rows of eight halves."""
    frames.put_all(e, op, [turned(e, *frames.words_of(e, op, 0, 1))])


def turned(e: WarpEmitter, own: Value) -> Value:
    """Transpose eight rows of eight halves, a register of each lane."""
    b, frame = e.builder, frames.frame_of(e.builder, 1)
    b.store(own, frame)
    b.call("cujit_matrix_turn", "void", frame)
    return b.load("i32", frame, lanes=WARP)


# -- wmma.load and wmma.store -----------------------------------------------------------------------------

# Which element is in which lane the manual leaves open. Here a fragment is the tiles of ``mma`` one after the other: A
# by 16 rows (8 if there are no more) in the order of its registers, B by eight columns, C and D by both. Fragments of
# f16 have more registers than elements: what is over repeats them.


@dataclass(frozen=True)
class MemoryLines:
    """The lines of a matrix in memory: where the first begins, and from there to the next (i64, in bytes)."""

    base: Value
    stride: Value
    lines: int
    line_bytes: int
    element_bytes: int


def _fragment(op: Op, matrix: str, type_: str) -> Fragment:
    """Return the layout of one matrix: rows of A, C, and D, or columns of B.

    Elements smaller than a byte are counted in bytes, and single bits are counted in words.
    """
    m, n, k = frames.shape_of(op)
    is_sum = matrix in ("c", "d")
    bits = 32 if type_ in ("f32", "s32") else frames.element_bits(type_)
    packed = max(1, 8 // bits)
    return Fragment(
        lines=n if matrix == "b" else m,
        width=n if is_sum else (k // 32 if type_ == "b1" else k) // packed,
        halves=1 if matrix == "b" else min(2, m // 8),
        block=8 if is_sum else 4 * max(1, 32 // bits) // packed,
        bytes=max(1, bits // 8),
        sums=is_sum and bits >= 32,
        straight=("col" if matrix == "b" else "row") in op.modifiers,
    )


def _registers(fragment: Fragment, type_: str) -> int:
    """Count the registers that hold a fragment once."""
    return int(fragment.lines * fragment.width * fragment.bytes // (WARP * (8 if type_ == "f64" else 4)))


def fragment_words(op: Op, matrix: str, type_: str) -> int:
    """Count the registers of a fragment that are written.

    Source: PTX ISA 9.1, "Matrix Fragments for WMMA": eight registers of f16 pairs for every A and B.
    """
    return 8 if type_ == "f16" and matrix in ("a", "b") else _registers(_fragment(op, matrix, type_), type_)


def memory_lines(e: WarpEmitter, op: Op) -> MemoryLines:
    """Return which memory ``wmma.load`` or ``wmma.store`` accesses."""
    fragment = _fragment(op, _matrix_of(op), op.type)
    b, stride_at = e.builder, 1 if "load" in op.modifiers else 2
    lines, width = fragment.lines, fragment.width
    if not fragment.straight:
        lines, width = width, lines
    stride = b.integer(width * fragment.bytes, 64)
    if len(op.sources) > stride_at:
        bits = 1 if op.type == "b1" else 4 if op.type in ("s4", "u4") else 8 * fragment.bytes
        elements = b.resize(e.source(op, stride_at, "i32"), 64, signed=True)
        stride = b.binary("lshr", b.binary("mul", elements, b.integer(bits, 64)), b.integer(3, 64))
    base = one_of(e, op, address_in(e, op.memory, op.space))
    return MemoryLines(base, one_of(e, op, stride), lines, width * fragment.bytes, fragment.bytes)


def _matrix_of(op: Op) -> str:
    return next(m for m in op.modifiers if m in ("a", "b", "c", "d"))


def _move_fragment(e: WarpEmitter, op: Op) -> None:
    """Load or store a fragment."""
    matrix, loads = _matrix_of(op), "load" in op.modifiers
    word, count = frames.word_type(op.type), _registers(_fragment(op, matrix, op.type), op.type)
    with when_any_lane(e, op):
        words = [] if loads else frames.words_of(e, op, 1, count, word)
        place = memory_lines(e, op)
        found = move_lines(e, op, place.base, place.stride, words, word)
        if loads:
            frames.put_all(e, op, found)


def move_lines(e: WarpEmitter, op: Op, base: Value, stride: Value, words: Sequence[Value], type_: str) -> list[Value]:
    """Store registers as ``wmma.store`` does, or load registers as ``wmma.load`` does, at ``base``. Return loaded
    registers.
    """
    b, matrix, loads = e.builder, _matrix_of(op), "load" in op.modifiers
    fragment = _fragment(op, matrix, op.type)
    count, size = _registers(fragment, op.type), WARP * (8 if op.type == "f64" else 4)
    frame = frames.frame_of(b, count, type_)
    for k, value in enumerate(words):
        b.store(value, b.offset(frame, k * size), align=size)
    stores = b.integer(not loads, 32)
    b.call("cujit_matrix_move", "void", frames.constant_of(b, fragment), base, stride, frame, stores)
    if not loads:
        return []
    found = [b.load(type_, b.offset(frame, k * size), lanes=WARP, align=size) for k in range(count)]
    return [found[k % count] for k in range(fragment_words(op, matrix, op.type))]
