"""``wmma``: fragments by whole matrices. PTX ISA 9.1, "Matrix multiply-accumulate operation using wmma".

Which element is in which lane the manual leaves open. Here a fragment is the tiles of ``mma`` one after the other: A
by 16 rows (8 if there are no more) in the order of its registers, B by eight columns, C and D by both. Fragments of
f16 have more registers than elements: what is over repeats them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cujit.devices.cpu.analysis.uniformity import WARP
from cujit.devices.cpu.codegen.builder import Builder, Value, type_width
from cujit.devices.cpu.codegen.registry import Rules
from cujit.devices.cpu.codegen.warp import WarpEmitter
from cujit.devices.cpu.instructions.matrix.elements import element_bits, strips_in, word_type
from cujit.devices.cpu.instructions.matrix.mma import kinds_of
from cujit.devices.cpu.instructions.matrix.move import finish, joined, one_of, rows_of, transposed_halves, when_any_lane
from cujit.devices.cpu.instructions.matrix.product import at, in_function, scratch
from cujit.devices.cpu.instructions.matrix.sums import wmma_alignment
from cujit.devices.cpu.instructions.matrix.tiles import (
    c_type,
    columns,
    d_words,
    put_all,
    rows,
    shape_of,
    tile,
    words_of,
)
from cujit.devices.cpu.instructions.memory import address_in
from cujit.devices.cpu.ir.program import Memory, Op

__all__ = ["MemoryLines", "memory_lines", "register"]


def register(rules: Rules) -> None:
    """Add the rules of this family."""
    rules.on("wmma .load", _load)
    rules.on("wmma .store", _store)
    rules.on("wmma .mma", _mma)


@dataclass(frozen=True)
class _Fragment:
    """One matrix of a wmma: ``lines`` rows of A, C and D, or columns of B; ``width`` steps of k, or columns.

    ``halves`` is how many groups of eight lines a tile has. Single bits count as words of 32.
    """

    type_: str
    lines: int
    width: int
    halves: int
    is_sum: bool = False

    @property
    def block_width(self) -> int:
        """Elements of a line that one block has: a register of A or B, eight columns of C or D."""
        return 8 if self.is_sum else 4 * strips_in(self.type_)

    def blocks(self) -> list[tuple[int, int]]:
        """List line and element where each block begins, in the order of registers."""
        step = 8 * self.halves
        return [
            (line + 8 * half, start)
            for line in range(0, self.lines, step)
            for start in range(0, self.width, self.block_width)
            for half in range(self.halves)
        ]

    @property
    def words(self) -> int:
        """Registers of a block."""
        return d_words(self.type_, 1) if self.is_sum else 1

    @property
    def registers(self) -> int:
        """Registers of the whole fragment."""
        own = len(self.blocks()) * self.words
        # Source: PTX ISA 9.1, "Matrix Fragments for WMMA": eight registers of f16 pairs for every A and B.
        return 8 if self.type_ == "f16" and not self.is_sum else own


def _fragment(op: Op, matrix: str, type_: str) -> _Fragment:
    m, n, k = shape_of(op)
    halves = min(2, m // 8)
    if matrix in ("c", "d"):
        return _Fragment(type_, m, n, halves, True)
    steps = k // 32 if type_ == "b1" else k
    return _Fragment(type_, m, steps, halves) if matrix == "a" else _Fragment(type_, n, steps, 1)


# -- memory -----------------------------------------------------------------------------------------------


def _is_straight(op: Op, matrix: str) -> bool:
    """Whether a line of the fragment is contiguous in memory."""
    return ("col" if matrix == "b" else "row") in op.modifiers


def _element(type_: str) -> str:
    """LLVM type of the elements as memory moves them; those below a byte go by words."""
    return {"f64": "double", "f32": "float", "f16": "i16"}.get(type_) or f"i{max(8, element_bits(type_))}"


@dataclass(frozen=True)
class _Place:
    """Where a matrix is: an address (i64), and the bytes from line to line of memory."""

    base: Value
    stride: Value

    def of(self, e: WarpEmitter, line: int, offset: int) -> Value:
        """Address of the byte ``offset`` in a line of memory."""
        b = e.builder
        far = b.binary("add", self.base, b.integer(offset, 64))
        return b.binary("add", far, b.binary("mul", self.stride, b.integer(line, 64))) if line else far


def _place(e: WarpEmitter, op: Op, fragment: _Fragment, straight: bool, stride_at: int) -> _Place:
    b = e.builder
    memory = op.sources[0]
    assert isinstance(memory, Memory)
    bits = _bits(fragment.type_)
    if len(op.sources) > stride_at:
        elements = b.resize(e.source(op, stride_at, "i32"), 64, signed=True)
    else:
        elements = b.integer((fragment.width if straight else fragment.lines) * (32 if bits == 1 else 1), 64)
    stride = b.binary("lshr", b.binary("mul", elements, b.integer(bits, 64)), b.integer(3, 64))
    return _Place(one_of(e, op, address_in(e, memory, op.space)), one_of(e, op, stride))


def _bits(type_: str) -> int:
    return {"b1": 1, "f32": 32, "s32": 32}.get(type_, element_bits(type_))


def _offset_in(fragment: _Fragment, straight: bool, line: int, start: int) -> tuple[int, int]:
    """Line of memory and byte in it, where a block begins."""
    across, along = (line, start) if straight else (start, line)
    bits = 32 if fragment.type_ == "b1" else _bits(fragment.type_)
    return across, along * bits // 8


@dataclass(frozen=True)
class MemoryLines:
    """The lines of a matrix in memory: where the first begins, and from there to the next (i64, in bytes)."""

    base: Value
    stride: Value
    lines: int
    line_bytes: int
    element_bytes: int


def memory_lines(e: WarpEmitter, op: Op) -> MemoryLines:
    """Tell which memory ``wmma.load`` or ``wmma.store`` accesses."""
    matrix = next(m for m in op.modifiers if m in ("a", "b", "c", "d"))
    fragment, straight = _fragment(op, matrix, op.type), _is_straight(op, matrix)
    place = _place(e, op, fragment, straight, 1 if "load" in op.modifiers else 2)
    lines, width = (fragment.lines, fragment.width) if straight else (fragment.width, fragment.lines)
    bits = 32 if fragment.type_ == "b1" else _bits(fragment.type_)
    return MemoryLines(place.base, place.stride, lines, width * bits // 8, max(bits // 8, 1))


def _load(e: WarpEmitter, op: Op) -> None:
    matrix = next(m for m in op.modifiers if m in ("a", "b", "c"))
    fragment, straight = _fragment(op, matrix, op.type), _is_straight(op, matrix)
    name = _load_function(e, fragment, straight)
    b = e.builder
    word = c_type(fragment.type_) if fragment.is_sum else word_type(fragment.type_)
    size = WARP * type_width(word) // 8 * fragment.words
    done = when_any_lane(e, op)
    place = _place(e, op, fragment, straight, 1)
    to = scratch(b, "moved", size * len(fragment.blocks()))
    for k, (line, start) in enumerate(fragment.blocks()):
        address = place.of(e, *_offset_in(fragment, straight, line, start))
        b.invoke(f"@{name}", "void", at(b, to, k * size), address, place.stride)
    count = fragment.words * len(fragment.blocks())
    each = size // fragment.words
    found = [b.load(word, at(b, to, k * each), vector=True) for k in range(count)]
    put_all(e, op, [found[k % count] for k in range(fragment.registers)])
    finish(e, done)


def _store(e: WarpEmitter, op: Op) -> None:
    fragment, straight = _fragment(op, "d", op.type), _is_straight(op, "d")
    name = _store_function(e, fragment, straight)
    b = e.builder
    word = c_type(fragment.type_)
    done = when_any_lane(e, op)
    words = words_of(e, op, 1, fragment.registers, word)
    place = _place(e, op, fragment, straight, 2)
    for k, (line, start) in enumerate(fragment.blocks()):
        address = place.of(e, *_offset_in(fragment, straight, line, start))
        own = words[k * fragment.words : (k + 1) * fragment.words]
        b.invoke(f"@{name}", "void", address, place.stride, *own)
    finish(e, done)


# -- blocks -----------------------------------------------------------------------------------------------


def _lines(b: Builder, count: int) -> list[Value]:
    """Pointers to neighbouring lines, from ``%address`` on."""
    pointers = [b.cast("inttoptr", Value("%address", "i64"), "ptr")]
    for _ in range(count - 1):
        pointers.append(b.point("i8", pointers[-1], Value("%stride", "i64")))
    return pointers


def _load_function(e: WarpEmitter, fragment: _Fragment, straight: bool) -> str:
    """Define ``(ptr to, i64 address, i64 stride)``: loads the registers of one block."""
    element, width = _block(fragment)

    def body(b: Builder) -> None:
        count, length = (8, width) if straight else (width, 8)
        vector = f"<{length} x {element}>"
        lines = [b.load(vector, p, align=_align(element)) for p in _lines(b, count)]
        if not straight and element == "i16":
            lines, straight_now = transposed_halves(b, lines), True
        else:
            straight_now = straight
        whole = joined(b, lines, length)
        order = [(g * width + k) if straight_now else (k * 8 + g) for g in range(8) for k in range(width)]
        for k, part in enumerate(_registers(b, fragment, whole, order)):
            b.store(part, b.offset("%to", k * WARP * type_width(part.type) // 8))

    how = "straight" if straight else "across"
    name = f"matrix.block.load.{element}.{'sum' if fragment.words == 2 else 'words'}.{how}"
    return e.builder.define(name, "ptr %to, i64 %address, i64 %stride", body)


def _block(fragment: _Fragment) -> tuple[str, int]:
    """Type and number of the elements of a line of a block, as memory moves them."""
    element = "i32" if fragment.type_ == "s32" else _element(fragment.type_)
    if fragment.type_ in ("s4", "u4"):
        return element, fragment.block_width // 2
    return element, fragment.block_width


def _align(element: str) -> int:
    return type_width(element) // 8


def _registers(b: Builder, fragment: _Fragment, whole: Value, order: list[int]) -> list[Value]:
    """Deal out a block, whose elements by lines are at ``order``, to its registers."""
    if fragment.words == 2:
        return [b.shuffle(whole, None, order[parity::2]) for parity in (0, 1)]
    if order != list(range(len(order))):
        whole = b.shuffle(whole, None, order)
    return [b.reinterpret(whole, word_type(fragment.type_), WARP)]


def _store_function(e: WarpEmitter, fragment: _Fragment, straight: bool) -> str:
    """Define ``(i64 address, i64 stride, registers…)``: stores one block of C or D."""
    element, _ = _block(fragment)
    word = c_type(fragment.type_)

    def body(b: Builder) -> None:
        if fragment.words == 1:
            lines = rows_of(b, b.reinterpret(Value("%words0", "i32", True), "i16", 64), 8, 8)
            lines = lines if straight else transposed_halves(b, lines)
        else:
            # Element (g, 2t + p) is lane 4g + t of register p.
            cells = [(g, n) if straight else (n, g) for g in range(8) for n in range(8)]
            picks = [WARP * (n % 2) + 4 * g + n // 2 for g, n in cells]
            first, second = (Value(f"%words{k}", word, True) for k in range(2))
            lines = rows_of(b, b.shuffle(first, second, picks), 8, 8)
        for line, pointer in zip(lines, _lines(b, 8), strict=True):
            b.store(line, pointer, align=_align(element))

    data = ", ".join(f"<{WARP} x {word}> %words{k}" for k in range(fragment.words))
    name = f"matrix.block.store.{element}.{'straight' if straight else 'across'}"
    return e.builder.define(name, f"i64 %address, i64 %stride, {data}", body)


# -- products ---------------------------------------------------------------------------------------------


def _mma(e: WarpEmitter, op: Op) -> None:
    types = op.types
    a_type, b_type = ("f16", "f16") if len(types) == 2 else types[1:3]
    kinds = kinds_of(op, a_type, b_type)
    kinds = replace(kinds, alignment=wmma_alignment((a_type, b_type, kinds.c, kinds.d)))
    a, b, c = _fragment(op, "a", a_type), _fragment(op, "b", b_type), _fragment(op, "c", kinds.c)
    left = words_of(e, op, 0, a.registers, word_type(a_type))
    right = words_of(e, op, 1, b.registers, word_type(b_type))
    sums = words_of(e, op, 2, c.registers, c_type(kinds.c))
    steps, halves = a.width // a.block_width, a.halves

    def body(inner: Builder, values: list[Value]) -> list[Value]:
        own = [values[: len(left)], values[len(left) : -len(sums)], values[-len(sums) :]]
        size = d_words(kinds.c, halves)
        right_at = [columns(inner, b_type, own[1][n * steps : (n + 1) * steps], f"b{n}") for n in range(b.lines // 8)]
        found: list[Value] = []
        for block in range(a.lines // (8 * halves)):
            left_at = rows(inner, a_type, own[0][block * steps * halves : (block + 1) * steps * halves], halves)
            for column in right_at:
                c_own, own[2] = own[2][:size], own[2][size:]
                found += tile(inner, kinds, left_at, column, steps * strips_in(a_type), c_own)
        return found

    made = [c_type(kinds.d)] * _fragment(op, "d", kinds.d).registers
    put_all(e, op, in_function(e.builder, op.name, [*left, *right, *sums], made, body))
