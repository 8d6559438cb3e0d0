"""Uniformity: what is the same in all lanes of a warp, what counts up with the lane, and where lanes part.

    mov.u32 a, %ctaid.x;                   a is uniform: one scalar
    mad.lo.u32 i, a, 256, %tid.x;          i is affine with stride 1: the scalar of lane 0
    and.b32 j, i, 3;                 ->    j varies: a vector of 32
    setp.lt.u32 p, i, n;                   p varies,
    @p bra END;                            so that the branch may part lanes

A register is *uniform* (one scalar for the warp), *affine* (``base + stride x lane``, kept as the scalar base) or
varying (a vector). Widening an affine 32-bit value is affine only if it does not wrap inside the warp; where that is
not known, the register is *guarded*: it keeps the vector too, and one bit that tells at run time whether the short form
holds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from cujit.devices.cpu.analysis.dataflow import (
    bits_of,
    count_ways,
    find_non_reconverging,
    immediate_postdominators,
    joined,
    live_in,
    mark_sides,
    polling_loops,
    reach,
    solve,
    written_once,
)
from cujit.devices.cpu.ir.cfg import BasicBlock, ControlFlowGraph, Loop
from cujit.devices.cpu.ir.program import (
    WARP,
    IntConstant,
    KernelProgram,
    MemoryOperand,
    Negation,
    Op,
    Operand,
    OperandGroup,
    Reg,
    Special,
    registers_in,
)
from cujit.devices.shapes import Dim3
from cujit.values import NamedTuple, dataclass, field, replace

__all__ = [
    "UNIFORM",
    "VARYING",
    "WARP",
    "Divergence",
    "Shape",
    "analyse",
    "constant_of",
    "inactive_in",
    "is_divergent_branch",
    "low_bits",
    "masked_in",
    "operand_shape",
]


@dataclass(frozen=True)
class Shape:
    """``stride`` between neighbouring lanes (0: uniform; None: varying); ``guarded``: true only if checked.

    ``align`` is a power of two that divides the value of the first lane. Lanes may lie in rows of ``row`` lanes (as
    ``tid.x`` does in a block 16 threads wide): then ``stride`` is that within a row, and every row has a base of its
    own.
    """

    stride: int | None
    guarded: bool = False
    align: int = 1
    row: int = WARP

    @property
    def is_uniform(self) -> bool:
        """Whether one scalar holds it."""
        return self.stride == 0 and self.row == WARP

    @property
    def is_flat(self) -> bool:
        """Whether it is the same in all lanes of a row."""
        return self.stride == 0

    @property
    def first_lanes(self) -> range:
        """The first lane of each row."""
        return range(0, WARP, self.row)

    @property
    def is_affine(self) -> bool:
        """Whether a scalar base and a stride hold it."""
        return bool(self.stride)

    @property
    def length(self) -> int:
        """How much more the last lane of a row has than its first; 0 where that is not known."""
        return (self.stride or 0) * (self.row - 1)

    @property
    def never_wraps(self) -> bool:
        """Whether no lane of a row wraps where its first does not: they lie between two multiples of ``align``."""
        return self.is_flat or 0 < self.length < self.align

    @property
    def step(self) -> int:
        """The stride of what counts through the whole warp, whatever its numbers; 0 of all else."""
        return 0 if self.guarded or self.row != WARP else self.stride or 0

    def spans(self, size: int) -> bool:
        """Whether all lanes lie between two neighbouring multiples of ``size``, a power of two."""
        return self.step != 0 and self.never_wraps and self.align <= size


UNIFORM = Shape(0)
VARYING = Shape(None)


@dataclass
class Divergence:
    """What ``analyse`` finds.

    ``shapes`` by register number; ``constants`` are registers with one known value; ``masked`` by position: the
    registers that lanes inactive elsewhere still need, so that a write there must leave those lanes alone;
    ``inactive`` by position: where lanes may wait while the block runs, as bits of positions; ``non_reconverging`` are
    the positions that the lanes of a warp may pass at different times, whatever the shapes (see ``progress``);
    ``lazy`` are guarded registers, by number, whose vectors nobody reads while their short forms hold.
    """

    shapes: list[Shape]
    constants: dict[int, int]
    masked: list[int] = field(default_factory=list)
    inactive: list[int] = field(default_factory=list)
    non_reconverging: int = 0
    lazy: frozenset[int] = frozenset()


def analyse(program: KernelProgram, graph: ControlFlowGraph, block: Dim3) -> Divergence:
    """Find shapes and divergence of a kernel for blocks of the size ``block``."""
    live = live_in(graph)
    ipdom = immediate_postdominators(graph)
    polls = polling_loops(graph)
    constants = _constants(graph)
    forced = 0
    while True:
        shapes = _shapes(program, graph, block, constants, forced)
        inactive = inactive_in(graph, shapes, ipdom)
        divergent_polls = [loop for loop in polls if _lanes_part(graph, loop, shapes, inactive)]
        barriers = [b.position for b in graph.blocks if _waits_in_part(b, shapes)]
        non_reconverging = find_non_reconverging(graph, inactive, divergent_polls, barriers)
        needed = {mask: joined(live[p] for p in bits_of(mask)) for mask in set(inactive)}
        masked = [needed[mask] for mask in inactive]
        more = masked_in(graph, masked)
        if not more & ~forced:
            return Divergence(shapes, constants, masked, inactive, non_reconverging, _lazy(graph, shapes))
        forced |= more


def masked_in(graph: ControlFlowGraph, masked: Sequence[int]) -> int:
    """Find the registers that are written while lanes that still need them wait elsewhere, as bits of their numbers."""
    return joined(masked[b.position] & op.writes for b in graph.blocks for op in b.ops)


def _lazy(graph: ControlFlowGraph, shapes: list[Shape]) -> frozenset[int]:
    """Find the guarded registers that are only addresses of loads and stores, or lead to such.

    mul.wide.u32 o, i, 4;                o and a are scalars; only if i wraps inside the warp, which is one bit,
    add.u64 a, p, o;               ->    the vectors of o and a are made, for a gather
    ld.global.f32 x, [a];
    """
    lazy = {k for k, shape in enumerate(shapes) if shape.guarded}

    def discard(op: Op) -> bool:
        before = len(lazy)
        leads = op.result is not None and op.result.index in lazy
        base = op.memory.base if op.form.is_load or op.opcode == "st" else None
        if not leads:
            lazy.difference_update(r.index for r in op.read_registers() if r is not base)
        if op.opcode == "st":
            lazy.difference_update(r.index for source in op.sources[1:] for r in registers_in(source))
        return before != len(lazy)

    solve(graph.ops if lazy else (), discard)
    return frozenset(lazy)


# -- where lanes part -------------------------------------------------------------------------------------


def inactive_in(graph: ControlFlowGraph, shapes: list[Shape], ipdom: list[int] | None = None) -> list[int]:
    """Find where lanes may wait while a block runs: on the other sides of every branch that parted them from it.

    Past a budget, and of branches with many sides, lanes count as waiting on all sides: that costs masks alone.
    """
    inactive, everywhere, steps = [0] * len(graph.blocks), 0, 0
    ipdom = ipdom or immediate_postdominators(graph)
    successors = graph.successors()
    for b in graph.blocks:
        if not is_divergent_branch(b, shapes):
            continue
        sides = sorted(set(b.successors))
        meet = ipdom[b.position]
        if steps > _MOST_STEPS:
            everywhere = -1
            break
        if len(sides) > _MOST_SIDES:
            passed = reach(joined(1 << s for s in sides), meet, successors)
            everywhere, steps = everywhere | 1 << meet | passed, steps + count_ways(passed, successors)
            continue
        steps += mark_sides(inactive, sides, meet, successors)
    for p in bits_of(everywhere := everywhere & ((1 << graph.exit) - 1)):
        inactive[p] |= everywhere
    return inactive


_MOST_SIDES, _MOST_STEPS = 64, 400_000
"""Sides of one branch that are looked at each, and ways from position to position that are passed for all branches."""


def is_divergent_branch(block: BasicBlock, shapes: list[Shape]) -> bool:
    """Return whether lanes may go different ways after a block."""
    branch = block.branch
    if branch is None or len(set(block.successors)) < 2:
        return False
    return any(not shapes[r.index].is_uniform for r in branch.read_registers())


def _lanes_part(graph: ControlFlowGraph, loop: Loop, shapes: list[Shape], inactive: list[int]) -> bool:
    """Return whether lanes of a warp may leave a loop at different times, or be elsewhere while others are in it."""
    if any(inactive[loop.head : loop.last + 1]):
        return True
    inside = graph.blocks[loop.head : loop.last + 1]
    leaving = (b for b in inside if any(s not in loop for s in b.successors))
    return any(is_divergent_branch(b, shapes) for b in leaving)


def _waits_in_part(block: BasicBlock, shapes: list[Shape]) -> bool:
    """Return whether a block begins with a barrier at which some lanes of a warp wait and others do not."""
    guard = None if block.barrier is None else block.barrier.guard
    return guard is not None and not shapes[guard.index].is_uniform


# -- shapes of registers ----------------------------------------------------------------------------------


def _constants(graph: ControlFlowGraph) -> dict[int, int]:
    """Find registers that are written once, with an integer."""
    found: dict[int, int] = {}
    for index, op in written_once(graph).items():
        if op.opcode == "mov" and op.guard is None and isinstance(op.sources[0], IntConstant):
            found[index] = op.sources[0].value
    return found


def _shapes(
    program: KernelProgram, graph: ControlFlowGraph, block: Dim3, constants: dict[int, int], forced: int
) -> list[Shape]:
    ops = [op for op in graph.ops if op.written]
    written = joined(op.writes for op in ops)
    # A register that is never written is zero everywhere; compilers leave such in where a value does not matter.
    known: list[Shape | None] = [None if written >> r.index & 1 else UNIFORM for r in program.registers]
    for index in bits_of(forced):
        known[index] = VARYING

    def widen(op: Op) -> bool:
        changed = False
        for result in op.written:
            before = known[result.index]
            if before != VARYING:
                shape = _join(before, _result_shape(op, known, block, constants, program.local_size))
                known[result.index] = _as_one_of(op, shape)
                changed |= known[result.index] != before
        return changed

    solve(ops, widen)
    # What is left begins nowhere, as ``a`` and ``b`` of ``L: add a, b, 1; atom b, [a], 1; bra L``: it is zero at first.
    if None in known:
        known[:] = (s if s is not None else UNIFORM for s in known)
        solve(ops, widen)
    return [s for s in known if s is not None]


def _as_one_of(op: Op, shape: Shape | None) -> Shape | None:
    """Shape of a result beside others: they are made at once, each as a scalar of the warp, or as a vector."""
    return shape if op.result is not None or shape is None or shape.is_uniform else VARYING


def _join(a: Shape | None, b: Shape | None) -> Shape | None:
    if a is None or b is None:
        return a if b is None else b
    if a.stride != b.stride or a.stride is None:
        return VARYING
    return Shape(a.stride, a.guarded or b.guarded, min(a.align, b.align), min(a.row, b.row))


def operand_shape(operand: Operand, known: Sequence[Shape | None], block: Dim3) -> Shape:
    """Shape of an operand (of memory: of its address); a register not met yet counts as uniform."""
    if isinstance(operand, Reg):
        return known[operand.index] or UNIFORM
    if isinstance(operand, Special):
        return special_shape(operand.name, block)
    if isinstance(operand, OperandGroup):
        return UNIFORM if all(operand_shape(i, known, block).is_uniform for i in operand.items) else VARYING
    inner = (
        operand.base if isinstance(operand, MemoryOperand) else operand.item if isinstance(operand, Negation) else None
    )
    return UNIFORM if inner is None else operand_shape(inner, known, block)


_MOST_ALIGN = 1 << 30


def _align_of(number: int) -> int:
    """Largest power of two that divides a number; a large one for 0."""
    return min(number & -number, _MOST_ALIGN) if number else _MOST_ALIGN


_SHORTEST_ROW = 8
"""Lanes of a row that is worth a base of its own: below, a vector is no larger than the bases."""


def special_shape(name: str, block: Dim3) -> Shape:
    """Shape of a special register in blocks of this size."""
    if name == "tid.x":
        if block.x % WARP == 0 or block.y * block.z == 1:
            return Shape(1, align=WARP)
        return Shape(1, align=_MOST_ALIGN, row=block.x) if _is_row(block.x) else VARYING
    if name in ("tid.y", "tid.z"):
        size = block.x if name == "tid.y" else block.x * block.y
        alone = block.y == 1 if name == "tid.y" else block.z == 1
        if size % WARP == 0 or alone:
            return UNIFORM
        return Shape(0, row=size) if _is_row(size) else VARYING
    if name == "laneid":
        return Shape(1, align=_MOST_ALIGN)
    if name.startswith("ntid."):
        return Shape(0, align=_align_of(getattr(block, name[-1], 1)))
    return VARYING if name.startswith("lanemask") else UNIFORM


def _is_row(lanes: int) -> bool:
    return lanes >= _SHORTEST_ROW and WARP % lanes == 0


def _result_shape(
    op: Op, known: list[Shape | None], block: Dim3, constants: dict[int, int], local_size: int
) -> Shape | None:
    for reg in op.read_registers():
        if known[reg.index] is None and reg not in op.results and reg.index not in constants:
            return None
    numbers = [constant_of(s, constants) for s in op.sources]
    shapes = [
        operand_shape(source, known, block) if number is None else Shape(0, align=_align_of(number))
        for source, number in zip(op.sources, numbers, strict=True)
    ]
    made = _made_shape(_Read(op, numbers, shapes), local_size)
    if op.guard is None:
        return made
    guard = known[op.guard.index] or UNIFORM
    return UNIFORM if guard.is_uniform and made.is_uniform else VARYING


class _Read(NamedTuple):
    """An operation with what is known of its sources: the numbers that they always are, and their shapes."""

    op: Op
    numbers: list[int | None]
    shapes: list[Shape]


_Rule: TypeAlias = Callable[[_Read], Shape | None]


def _made_shape(read: _Read, local_size: int) -> Shape:
    """Shape of what an operation makes in the lanes that its guard lets do it."""
    op, shapes = read.op, read.shapes
    if op.form.is_load:
        return UNIFORM if shapes[0].is_uniform and op.space != "local" else VARYING
    if op.form.is_per_lane:
        return UNIFORM if _is_same_for_all(read) else VARYING
    if op.opcode == "cvta" and op.space == "local":
        sign = -1 if "to" in op.modifiers else 1
        return _linear([(shapes[0], 1), (Shape(sign * local_size), 1)])
    affine = _affine_result(read)
    if all(s.is_flat for s in shapes):
        return _flat_shape(read, affine)
    return affine or _aligned_result(read) or VARYING


def _is_same_for_all(read: _Read) -> bool:
    """Whether an operation of all lanes together gives each the same: votes, reductions, and the value of one lane."""
    op, numbers = read.op, read.numbers
    if op.guard is not None or "sync" not in op.modifiers:
        return False
    if numbers[-1] is None or numbers[-1] & 0xFFFFFFFF != 0xFFFFFFFF:
        return False
    if op.opcode == "shfl" and "idx" in op.modifiers:
        return numbers[1] is not None and numbers[2] is not None and numbers[2] & 0x1F1F == 0x1F
    return op.opcode in ("vote", "redux")


def _flat_shape(read: _Read, affine: Shape | None) -> Shape:
    """Shape of what is made of values that are the same in all lanes of a row."""
    row = min((s.row for s in read.shapes), default=WARP)
    return Shape(0, align=1 if affine is None else affine.align, row=row)


# -- what depends on the upper or on the lower bits of a value that counts up between two multiples ------------


def _aligned_result(read: _Read) -> Shape | None:
    """Shape of such a result; None for all others."""
    op = read.op
    rule = _ALIGNED.get(op.opcode)
    if rule is None or len(op.sources) != 2 or op.result is None or op.modifiers[-1] not in ("u32", "s32", "b32"):
        return None
    return rule(read)


def _quotient(read: _Read) -> Shape | None:
    first, by = read.shapes[0], read.numbers[1]
    if by is None or not 0 <= by < 32:
        return None
    return UNIFORM if first.spans(1 << by) else _row_shape(first, 1 << by, 0)


def _masked(read: _Read) -> Shape | None:
    if read.numbers == [None, None]:
        return _masked_at_run_time(read.shapes)
    if read.numbers[1] is None:
        return None
    first, mask = read.shapes[0], read.numbers[1] & 0xFFFFFFFF
    if mask & (mask + 1) == 0:
        return _rest(first, mask + 1)
    size = _align_of(mask)
    return UNIFORM if first.spans(size) and mask == 0x100000000 - size else None


def _rest(first: Shape, size: int) -> Shape | None:
    if 0 < first.step * (WARP - 1) < size <= first.align:
        return Shape(first.stride, align=_MOST_ALIGN)
    return _row_shape(first, size, first.stride)


def _row_shape(first: Shape, size: int, stride: int | None) -> Shape | None:
    """Shape of the quotient (``stride`` 0) or the rest by ``size`` of a value that counts up through its multiples."""
    if not first.step or first.align % size or size % first.step:
        return None
    row = size // first.step
    return Shape(stride, align=_MOST_ALIGN if stride else 1, row=row) if row > 0 and _is_row(row) else None


def _masked_at_run_time(shapes: list[Shape]) -> Shape | None:
    """Shape of a value that counts up, under a mask known at run time: its low bits may all stay (see ``low_bits``)."""
    first, mask = sorted(shapes, key=lambda s: s.is_uniform)
    if not mask.is_uniform or first.step <= 0:
        return None
    return Shape(first.stride, guarded=True) if first.align > low_bits(first) else None


def low_bits(shape: Shape) -> int:
    """The bits, all ones from the lowest on, in which the lanes of a value that counts up differ."""
    return (1 << shape.length.bit_length()) - 1


_LOW = {"lt", "ge", "lo", "hs"}
_HIGH = {"le", "gt", "ls", "hi"}


def _compared(read: _Read) -> Shape | None:
    first, other = read.shapes[0], read.numbers[1]
    if other is None or len(read.op.modifiers) != 2:
        return None
    word = read.op.modifiers[0]
    bound = other + 1 if word in _HIGH else other if word in _LOW else 1
    return UNIFORM if first.spans(_align_of(bound)) else None


_ALIGNED: Mapping[str, _Rule] = {"shr": _quotient, "and": _masked, "setp": _compared}

# -- what stays affine ------------------------------------------------------------------------------------


def _affine_result(read: _Read) -> Shape | None:
    """Shape of the operations that keep an affine value affine; None for all others."""
    rule, result = _AFFINE.get(read.op.opcode), read.op.result
    if rule is None or result is None or any(s.stride is None for s in read.shapes):
        return None
    if result.bits not in (32, 64) or result.is_float or not _PLAIN.issuperset(read.op.form.words):
        return None
    return rule(read)


_PLAIN = frozenset(
    {"lo", "wide", "to", "const", "global", "local", "shared", "shared::cta", "shared::cluster", "param"}
)
"""What leaves the sum, or product, what it is. With another word, such as ``sat`` or ``cc``, it is not it alone."""


def _sum(read: _Read, sign: int = 1) -> Shape | None:
    return _linear([(read.shapes[0], 1), (read.shapes[1], sign)]) if read.op.type.is_one_integer else None


def _shifted(read: _Read) -> Shape | None:
    by = read.numbers[1]
    return _linear([(read.shapes[0], 1 << by)]) if by is not None and 0 <= by < 31 else None


def _product(read: _Read) -> Shape | None:
    part, (first, second) = read.op.modifiers[0], read.shapes[:2]
    if part not in ("lo", "wide"):
        return None
    a, b = (_factor(read.op, number) for number in read.numbers[:2])
    if b is not None:
        product = _linear([(first, b)])
    elif a is not None:
        product = _linear([(second, a)])
    elif first.is_flat and second.is_flat:
        product = Shape(0, align=min(first.align * second.align, _MOST_ALIGN), row=min(first.row, second.row))
    else:
        return None
    return product if part == "lo" or product.is_flat else _wide(read, product)


def _factor(op: Op, number: int | None) -> int | None:
    """Return a known factor, as the number that its type makes of it if the product is wider."""
    if number is None or op.modifiers[0] != "wide":
        return number
    size = 1 << op.type.bits
    return (number + size // 2) % size - size // 2 if op.type.is_signed else number % size


def _wide(read: _Read, product: Shape) -> Shape | None:
    """Shape of a product that is wider than its factors: it is affine only if the one that counts does not wrap."""
    result = read.op.result
    if result is None or result.bits != 64 or product.stride is None:
        return None
    return _widened(product, read.shapes[0] if read.shapes[0].stride else read.shapes[1])


def _widened(shape: Shape, source: Shape) -> Shape:
    return replace(shape, guarded=source.guarded or not source.never_wraps)


def _product_and_sum(read: _Read) -> Shape | None:
    product = _product(read)
    return product and _linear([(product, 1), (read.shapes[2], 1)])


def _converted(read: _Read) -> Shape | None:
    source, types = read.shapes[0], read.op.types
    if len(types) != 2 or not all(type_.is_one_integer for type_ in types):
        return None
    wide, narrow = types[0].bits, types[1].bits
    if wide == 64 and narrow == 32:
        return _widened(source, source)
    return source if {wide, narrow} <= {32, 64} else None


_AFFINE: Mapping[str, _Rule] = {
    **dict.fromkeys(("mov", "cvta"), lambda read: read.shapes[0]),
    "cvt": _converted,
    "add": _sum,
    "sub": functools.partial(_sum, sign=-1),
    "neg": lambda read: _linear([(read.shapes[0], -1)]) if read.op.type.is_one_integer else None,
    "mul": _product,
    "mad": _product_and_sum,
    "shl": _shifted,
}


def constant_of(operand: Operand, constants: Mapping[int, int]) -> int | None:
    """Return the number that an operand is, or that its register always contains. None if there is none."""
    if isinstance(operand, IntConstant):
        return operand.value
    return constants.get(operand.index) if isinstance(operand, Reg) else None


def _linear(terms: list[tuple[Shape, int]]) -> Shape:
    """Shape of a sum of shapes with factors; varying where a stride is unknown or a guarded sum cancels."""
    stride = 0
    for shape, factor in terms:
        if shape.stride is None:
            return VARYING
        stride += shape.stride * factor
    guarded = any(s.guarded for s, _ in terms)
    if abs(stride) >= 1 << 31 or (guarded and stride == 0):
        return VARYING
    align = min(min(s.align * _align_of(factor), _MOST_ALIGN) for s, factor in terms)
    return Shape(stride, guarded, align, min(s.row for s, _ in terms))
