"""How far the lanes of an integer lie apart, where that is known before the kernel runs, whatever the pattern.

    mov.u32 t, %tid.x;                     t: 0 1 2 3 4 …, above a multiple of 32
    and.b32 a, t, 3;                 ->    a: 0 1 2 3 0 1 2 3 …
    shl.b32 b, a, 4;                       b: 0 16 32 48 0 16 …
    ld.shared.f32 x, [b];                  two vectors of 32 bytes hold all that the lanes load

``tid.x & 3`` or ``2 * tid.x - (tid.x & 7)`` neither count up nor are the same in all lanes. But a warp begins at a
multiple of 32, so that what the low bits of each lane do is known.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence

from cujit.devices.cpu.analysis.dataflow import solve, written_once
from cujit.devices.cpu.analysis.uniformity import WARP, Divergence, constant_of, special_shape
from cujit.devices.cpu.ir.cfg import ControlFlowGraph
from cujit.devices.cpu.ir.program import MemoryOperand, Op, Operand, Reg, Special, SymbolAddress
from cujit.devices.shapes import Dim3
from cujit.values import dataclass

_WORD = 1 << 32


@dataclass(frozen=True)
class Pattern:
    """In each lane one of ``offsets`` more than a number, the same for all, that ``align`` divides; modulo 2^32.

    ``align`` is a power of two, and the least offset is below it.
    """

    align: int
    offsets: tuple[int, ...]

    @property
    def number(self) -> int | None:
        """What all lanes have, if that is known."""
        return self.offsets[0] if self.align == _WORD and len(set(self.offsets)) == 1 else None


def pattern_of(align: int, offsets: Sequence[int]) -> Pattern:
    """Make a pattern of any offsets."""
    align = min(align, _WORD)
    whole = min(offsets) // align * align
    return Pattern(align, tuple(x - whole for x in offsets))


def number_in_all(number: int) -> Pattern:
    """Make the pattern of one number that all lanes have; see ``Pattern.number``."""
    return pattern_of(_WORD, [number] * WARP)


def find_patterns(
    graph: ControlFlowGraph, divergence: Divergence, block: Dim3, masked: int, known: Mapping[int, Pattern]
) -> dict[int, Pattern]:
    """Find the patterns of the registers of 32 bits that are written once, in all lanes together.

    ``masked`` are those that are not, as bits of their numbers: some lanes keep what they had. Some may be ``known``.
    """
    once = [(r, op) for r, op in written_once(graph).items() if not masked >> r & 1]
    found = dict(known)

    def find(written: tuple[int, Op]) -> bool:
        index, op = written
        pattern = None if index in found else _result(op, found, divergence, block)
        if pattern is not None:
            found[index] = pattern
        return pattern is not None

    solve(once, find)
    return found


def patterns_from(
    ops: Iterable[Op],
    start: Mapping[int, Pattern],
    always: Mapping[int, Pattern],
    divergence: Divergence,
    block: Dim3,
) -> dict[int, Pattern]:
    """Find the patterns of what operations write, one after the other, because of those that registers ``start`` with.

    Those that hold ``always`` are known as well; what is found without ``start`` is not in it.
    """
    values, found = dict(start), dict[int, Pattern]()
    for op in ops:
        because = any(r.index in values for r in op.read_registers())
        pattern = _result(op, {**always, **values}, divergence, block) if because else None
        for r in op.written:
            values.pop(r.index, None)
            found.pop(r.index, None)
            if pattern is not None:
                values[r.index] = found[r.index] = pattern
    return found


_WHOLE = frozenset({"lo", "u32", "s32", "b32"})


def _result(op: Op, found: Mapping[int, Pattern], divergence: Divergence, block: Dim3) -> Pattern | None:
    """Find the pattern of what an operation writes."""
    rule = _RULES.get(op.opcode)
    if rule is None or op.guard is not None or op.result is None or not _WHOLE.issuperset(op.modifiers):
        return None
    sources = [_source(s, found, divergence, block) for s in op.sources]
    return None if None in sources else rule(*sources)


def _sum(a: Pattern, b: Pattern) -> Pattern:
    return pattern_of(min(a.align, b.align), [x + y for x, y in zip(a.offsets, b.offsets, strict=True)])


def _difference(a: Pattern, b: Pattern) -> Pattern:
    return _sum(a, _times(b, -1))


def _times(a: Pattern, factor: int) -> Pattern:
    return pattern_of(a.align * (factor & -factor) or _WORD, [x * factor for x in a.offsets])


def _product(a: Pattern, b: Pattern) -> Pattern | None:
    if b.number is not None:
        return _times(a, b.number)
    return _times(b, a.number) if a.number is not None else None


def _product_and_sum(a: Pattern, b: Pattern, c: Pattern) -> Pattern | None:
    product = _product(a, b)
    return None if product is None else _sum(product, c)


def _bitwise(do: Callable[[int, int], int], a: Pattern, b: Pattern) -> Pattern | None:
    """Combine the low bits, in which neither of the two numbers has any."""
    align = min(a.align, b.align)
    a, b = pattern_of(align, a.offsets), pattern_of(align, b.offsets)
    if max(*a.offsets, *b.offsets) >= align:
        return None
    return pattern_of(align, [do(x, y) for x, y in zip(a.offsets, b.offsets, strict=True)])


def _shifted_up(a: Pattern, by: Pattern) -> Pattern | None:
    return _times(a, 1 << by.number) if by.number is not None and by.number < 32 else None


def _shifted_down(a: Pattern, by: Pattern) -> Pattern | None:
    if by.number is None or by.number >= 32 or max(a.offsets) >= a.align or not a.align >> by.number:
        return None
    return pattern_of(a.align >> by.number, [x >> by.number for x in a.offsets])


_RULES: Mapping[str, Callable[..., Pattern | None]] = {
    "mov": lambda a: a,
    "add": _sum,
    "sub": _difference,
    "mul": _product,
    "mad": _product_and_sum,
    "shl": _shifted_up,
    "shr": _shifted_down,
    "and": functools.partial(_bitwise, operator.and_),
    "or": functools.partial(_bitwise, operator.or_),
    "xor": functools.partial(_bitwise, operator.xor),
}
"""What makes the pattern of a result of those of the sources, by opcode."""


def _source(operand: Operand, found: Mapping[int, Pattern], divergence: Divergence, block: Dim3) -> Pattern | None:
    number = constant_of(operand, divergence.constants)
    if isinstance(operand, SymbolAddress) and operand.slot.space == "shared":
        number = operand.slot.offset + operand.offset
    if number is not None:
        return number_in_all(number)
    if isinstance(operand, Reg):
        if operand.index in found:
            return found[operand.index]
        shape = divergence.shapes[operand.index]
    elif isinstance(operand, Special):
        shape = special_shape(operand.name, block)
        if operand.name == "tid.x" and shape.row != WARP:
            return pattern_of(shape.align, [k % shape.row for k in range(WARP)])
    else:
        return None
    if shape.stride is None or shape.guarded or shape.row != WARP:
        return None
    return pattern_of(shape.align, [k * shape.stride for k in range(WARP)])


# -- vectorized accesses of shared memory: in vectors that hold all that the lanes access at a pattern ----------

_VECTOR_BYTES = 32
"""Bytes of one vector, as large as most processors have them; lanes that lie in a row have one for all."""

_MOST = 8
"""Most vectors of an access: they are shorter than what surrounds the shared memory of a block."""

_TYPES = frozenset({"b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64"})


@dataclass(frozen=True)
class VectorAccess:
    """Vectors that hold what the lanes access: the first begins ``start`` bytes from the first lane's base register.

    ``used`` are the numbers of the vectors that some lane accesses; ``places`` tell for each lane which element
    it has of these, put together. Vectors have ``per_vector`` elements of ``size`` bytes.
    """

    size: int
    start: int
    per_vector: int
    used: tuple[int, ...]
    places: tuple[int, ...]

    @property
    def vector_bytes(self) -> int:
        """Bytes of a vector."""
        return self.per_vector * self.size


def vector_access(op: Op, patterns: Mapping[int, Pattern]) -> VectorAccess | None:
    """Find the vectors of a plain load or store of one element of shared memory; None where it has none."""
    if op.opcode not in ("ld", "st") or len(op.modifiers) != 2:
        return None
    memory = op.sources[0]
    if op.space != "shared" or not op.form.types or op.type not in _TYPES or not isinstance(memory, MemoryOperand):
        return None
    reg = op.result if op.opcode == "ld" else op.sources[1]
    if not isinstance(reg, Reg) or reg.bits != op.type.bits or not isinstance(memory.base, Reg):
        return None
    pattern = patterns.get(memory.base.index)
    if pattern is None:
        return None
    access = _laid_out(pattern, memory.offset, reg.bits // 8)
    if access is not None and op.opcode == "st" and len(set(access.places)) < WARP:
        return None
    return access


def _laid_out(pattern: Pattern, offset: int, size: int) -> VectorAccess | None:
    """Lay vectors over the lanes' addresses, from a multiple of their size on where that is known."""
    offsets = [x + offset for x in pattern.offsets]
    first = min(offsets)
    if max(offsets) - first >= _MOST * _VECTOR_BYTES or all(x == first for x in offsets):
        return None
    if all(x == first + k * size for k, x in enumerate(offsets)):
        return VectorAccess(size, first - pattern.offsets[0], WARP, (0,), tuple(range(WARP)))
    if pattern.align >= _VECTOR_BYTES:
        first -= first % _VECTOR_BYTES
    if any((x - first) % size for x in offsets):
        return None
    vectors = [(x - first) // _VECTOR_BYTES for x in offsets]
    used = tuple(sorted(set(vectors)))
    if len(used) > _MOST:
        return None
    per_vector = _VECTOR_BYTES // size
    places = [
        used.index(v) * per_vector + (x - first) % _VECTOR_BYTES // size for v, x in zip(vectors, offsets, strict=True)
    ]
    return VectorAccess(size, first - pattern.offsets[0], per_vector, used, tuple(places))


def by_rows(load: Op, access: VectorAccess, pattern: Pattern) -> VectorAccess:
    """Make a load that spans two rows of lanes load both, if rows begin at multiples of their size.

    What stores one of them then hands it on in registers. A processor takes a load out of one store that is not done
    yet, and waits for two.
    """
    row = WARP * access.size
    misalignment = access.start % row // access.size
    is_row = load.opcode == "ld" and access.per_vector == WARP and 2 * row <= _MOST * _VECTOR_BYTES
    if not is_row or pattern.align < row or pattern.offsets[0] % row or not misalignment:
        return access
    return VectorAccess(
        access.size, access.start // row * row, WARP, (0, 1), tuple(range(misalignment, misalignment + WARP))
    )
