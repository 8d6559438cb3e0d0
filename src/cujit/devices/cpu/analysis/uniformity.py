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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from cujit.devices.cpu.analysis.dataflow import (
    bits_of,
    find_non_reconverging,
    immediate_postdominators,
    joined,
    live_in,
    polling_loops,
    reach,
    solve,
    written_once,
)
from cujit.devices.cpu.ir.cfg import Block, Graph, Loop
from cujit.devices.cpu.ir.program import (
    WARP,
    Group,
    IntConstant,
    KernelProgram,
    Memory,
    Negation,
    Op,
    Operand,
    Reg,
    Special,
    registers_in,
)
from cujit.devices.shapes import Dim3

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
    def never_wraps(self) -> bool:
        """Whether no lane of a row wraps where its first does not: they lie between two multiples of ``align``."""
        return self.is_flat or 0 < (self.stride or 0) * (self.row - 1) < self.align

    def spans(self, size: int) -> bool:
        """Whether all lanes lie between two neighbouring multiples of ``size``, a power of two."""
        if not self.stride or self.guarded or self.row != WARP:
            return False
        return self.never_wraps and self.align <= size


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


def analyse(program: KernelProgram, graph: Graph, block: Dim3) -> Divergence:
    """Find shapes and divergence of a kernel for blocks of the size ``block``."""
    live = live_in(graph)
    ipdom = immediate_postdominators(graph)
    polls = polling_loops(graph)
    constants = _constants(graph)
    forced = 0
    while True:
        shapes = _shapes(program, graph, block, constants, forced)
        inactive = inactive_in(graph, shapes, ipdom)
        apart = [loop for loop in polls if _lanes_part(graph, loop, shapes, inactive)]
        barriers = [b.position for b in graph.blocks if _waits_in_part(b, shapes)]
        non_reconverging = find_non_reconverging(graph, inactive, apart, barriers)
        masked = [joined(live[p] for p in bits_of(mask)) for mask in inactive]
        more = masked_in(graph, masked)
        if not more & ~forced:
            return Divergence(shapes, constants, masked, inactive, non_reconverging, _lazy(graph, shapes))
        forced |= more


def masked_in(graph: Graph, masked: Sequence[int]) -> int:
    """Find the registers that are written while lanes that still need them wait elsewhere, as bits of their numbers."""
    return joined(masked[b.position] & op.writes for b in graph.blocks for op in b.ops)


def _lazy(graph: Graph, shapes: list[Shape]) -> frozenset[int]:
    """Find the guarded registers that are only addresses of loads and stores, or lead to such.

    mul.wide.u32 o, i, 4;                o and a are scalars; only if i wraps inside the warp, which is one bit,
    add.u64 a, p, o;               ->    the vectors of o and a are made, for a gather
    ld.global.f32 x, [a];
    """
    lazy = {k for k, shape in enumerate(shapes) if shape.guarded}

    def discard(op: Op) -> bool:
        before = len(lazy)
        leads = len(op.results) == 1 and not lazy.isdisjoint(r.index for r in op.written)
        address = op.sources[0] if op.form.is_load or op.opcode == "st" else None
        base = address.base if isinstance(address, Memory) else None
        if not leads:
            lazy.difference_update(r.index for r in op.read_registers() if r is not base)
        if op.opcode == "st":
            lazy.difference_update(r.index for source in op.sources[1:] for r in registers_in(source))
        return before != len(lazy)

    solve(graph.ops, discard)
    return frozenset(lazy)


# -- where lanes part -------------------------------------------------------------------------------------


def inactive_in(graph: Graph, shapes: list[Shape], ipdom: list[int] | None = None) -> list[int]:
    """Find where lanes may wait while a block runs: on the other sides of every branch that parted them from it."""
    inactive = [0] * len(graph.blocks)
    ipdom = ipdom or immediate_postdominators(graph)
    successors = graph.successors()
    for b in graph.blocks:
        if not is_divergent_branch(b, shapes):
            continue
        sides = sorted(set(b.successors))
        meet = ipdom[b.position]
        passed = {s: reach(1 << s, meet, successors) for s in sides}
        at_meet = 0 if meet == graph.exit else 1 << meet
        for s in sides:
            elsewhere = (at_meet | joined(passed[other] for other in sides if other != s)) & ~(1 << graph.exit)
            for p in bits_of(passed[s] & ~(1 << graph.exit)):
                inactive[p] |= elsewhere
    return inactive


def is_divergent_branch(block: Block, shapes: list[Shape]) -> bool:
    """Tell whether lanes may go different ways behind a block."""
    branch = block.branch
    if branch is None or len(set(block.successors)) < 2:
        return False
    return any(not shapes[r.index].is_uniform for r in branch.read_registers())


def _lanes_part(graph: Graph, loop: Loop, shapes: list[Shape], inactive: list[int]) -> bool:
    """Tell whether lanes of a warp may leave a loop at different times, or be elsewhere while others are in it."""
    if any(inactive[loop.head : loop.last + 1]):
        return True
    inside = graph.blocks[loop.head : loop.last + 1]
    leaving = (b for b in inside if any(s not in loop for s in b.successors))
    return any(is_divergent_branch(b, shapes) for b in leaving)


def _waits_in_part(block: Block, shapes: list[Shape]) -> bool:
    """Tell whether a block begins with a barrier at which some lanes of a warp wait and others do not."""
    site = block.site
    guard = site.guard if site is not None and site.form.is_barrier else None
    return guard is not None and not shapes[guard.index].is_uniform


# -- shapes of registers ----------------------------------------------------------------------------------


def _constants(graph: Graph) -> dict[int, int]:
    """Find registers that are written once, with an integer."""
    found: dict[int, int] = {}
    for index, op in written_once(graph).items():
        if op.opcode == "mov" and op.guard is None and isinstance(op.sources[0], IntConstant):
            found[index] = op.sources[0].value
    return found


def _shapes(program: KernelProgram, graph: Graph, block: Dim3, constants: dict[int, int], forced: int) -> list[Shape]:
    ops = graph.ops
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
                known[result.index] = _join(before, _result_shape(op, known, block, constants, program.local_size))
                changed |= known[result.index] != before
        return changed

    solve(ops, widen)
    return [s if s is not None else UNIFORM for s in known]


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
    if isinstance(operand, Group):
        return UNIFORM if all(operand_shape(i, known, block).is_uniform for i in operand.items) else VARYING
    inner = operand.base if isinstance(operand, Memory) else operand.item if isinstance(operand, Negation) else None
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
    shapes = [_source_shape(s, known, block, constants) for s in op.sources]
    made = _made_shape(op, shapes, constants, local_size)
    if op.guard is None:
        return made
    guard = known[op.guard.index] or UNIFORM
    return UNIFORM if guard.is_uniform and made.is_uniform else VARYING


def _made_shape(op: Op, shapes: list[Shape], constants: dict[int, int], local_size: int) -> Shape:
    """Shape of what an operation makes in the lanes that its guard lets do it."""
    if op.form.is_load:
        return UNIFORM if shapes[0].is_uniform and op.space != "local" else VARYING
    if op.form.is_per_lane:
        return UNIFORM if _is_same_for_all(op, constants) else VARYING
    if op.opcode == "cvta" and op.space == "local":
        sign = -1 if "to" in op.modifiers else 1
        return _linear([(shapes[0], 1), (Shape(sign * local_size), 1)])
    found = _affine_result(op, shapes, constants)
    if all(s.is_flat for s in shapes):
        row = min((s.row for s in shapes), default=WARP)
        if row != WARP and len(op.results) > 1:
            return VARYING
        return Shape(0, align=found.align if found is not None else 1, row=row)
    return found or _aligned_result(op, shapes, constants) or VARYING


def _source_shape(operand: Operand, known: Sequence[Shape | None], block: Dim3, constants: dict[int, int]) -> Shape:
    value = constant_of(operand, constants)
    return operand_shape(operand, known, block) if value is None else Shape(0, align=_align_of(value))


def _is_same_for_all(op: Op, constants: dict[int, int]) -> bool:
    """Whether an operation of all lanes together gives each the same: votes, reductions, and the value of one lane."""
    if op.guard is not None or "sync" not in op.modifiers:
        return False
    members = constant_of(op.sources[-1], constants)
    if members is None or members & 0xFFFFFFFF != 0xFFFFFFFF:
        return False
    if op.opcode == "shfl" and "idx" in op.modifiers:
        by, clamp = constant_of(op.sources[1], constants), constant_of(op.sources[2], constants)
        return by is not None and clamp is not None and clamp & 0x1F1F == 0x1F
    return op.opcode in ("vote", "redux")


_LOW = {"lt", "ge", "lo", "hs"}
_HIGH = {"le", "gt", "ls", "hi"}


def _aligned_result(op: Op, shapes: list[Shape], constants: dict[int, int]) -> Shape | None:
    """Shape of what depends on the upper or on the lower bits of a value that counts up between two multiples."""
    if op.opcode == "and" and len(op.sources) == 2 and op.modifiers[-1] == "b32":
        masked = _masked_shape(op, shapes, constants)
        if masked is not None:
            return masked
    other = constant_of(op.sources[1], constants) if len(op.sources) == 2 and len(op.results) == 1 else None
    if other is None or op.modifiers[-1] not in ("u32", "s32", "b32"):
        return None
    first = shapes[0]
    if op.opcode == "shr":
        if not 0 <= other < 32:
            return None
        return UNIFORM if first.spans(1 << other) else _row_shape(first, 1 << other, 0)
    if op.opcode == "and":
        mask = other & 0xFFFFFFFF
        size = _align_of(mask) if mask & (mask + 1) else mask + 1
        if mask + 1 == size:
            keeps = first.stride is not None and not first.guarded and first.row == WARP
            if keeps and 0 < (first.stride or 0) * (WARP - 1) < size <= first.align:
                return Shape(first.stride, align=_MOST_ALIGN)
            return _row_shape(first, size, first.stride)
        return UNIFORM if first.spans(size) and mask == 0x100000000 - size else None
    if op.opcode == "setp" and len(op.modifiers) == 2:
        bound = other + 1 if op.modifiers[0] in _HIGH else other if op.modifiers[0] in _LOW else 1
        return UNIFORM if first.spans(_align_of(bound)) else None
    return None


def _masked_shape(op: Op, shapes: list[Shape], constants: dict[int, int]) -> Shape | None:
    """Shape of a value that counts up, under a mask known at run time: its low bits may all stay (see ``low_bits``)."""
    if any(constant_of(s, constants) is not None for s in op.sources):
        return None
    first, mask = sorted(shapes, key=lambda s: s.is_uniform)
    if not mask.is_uniform or first.guarded or first.row != WARP or not first.stride or first.stride < 0:
        return None
    return Shape(first.stride, guarded=True) if first.align > low_bits(first) else None


def low_bits(shape: Shape) -> int:
    """The bits, all ones from the lowest on, in which the lanes of a value that counts up differ."""
    return (1 << ((shape.stride or 0) * (WARP - 1)).bit_length()) - 1


def _row_shape(first: Shape, size: int, stride: int | None) -> Shape | None:
    """Shape of the quotient (``stride`` 0) or the rest by ``size`` of a value that counts up through its multiples."""
    if not first.stride or first.guarded or first.row != WARP or first.align % size or size % first.stride:
        return None
    row = size // first.stride
    return Shape(stride, align=_MOST_ALIGN if stride else 1, row=row) if row > 0 and _is_row(row) else None


def _affine_result(op: Op, shapes: list[Shape], constants: dict[int, int]) -> Shape | None:
    """Shape of the operations that keep an affine value affine; None for all others."""
    if any(s.stride is None for s in shapes) or len(op.results) != 1 or op.results[0] is None:
        return None
    if op.results[0].bits not in (32, 64) or op.results[0].is_float or "sat" in op.modifiers or "cc" in op.modifiers:
        return None
    if op.opcode in ("mov", "cvta") and not isinstance(op.sources[0], Group):
        return shapes[0]
    if op.opcode in ("add", "sub") and op.type.is_one_integer:
        return _linear([(shapes[0], 1), (shapes[1], 1 if op.opcode == "add" else -1)])
    if op.opcode == "neg" and op.type.is_one_integer:
        return _linear([(shapes[0], -1)])
    if op.opcode == "shl":
        count = constant_of(op.sources[1], constants)
        return _linear([(shapes[0], 1 << count)]) if count is not None and 0 <= count < 31 else None
    if op.opcode in ("mul", "mad") and op.modifiers[0] in ("lo", "wide"):
        return _product_shape(op, shapes, constants)
    if op.opcode == "cvt":
        return _converted(op, shapes[0])
    return None


def _product_shape(op: Op, shapes: list[Shape], constants: dict[int, int]) -> Shape | None:
    a, b = (_factor(op, source, constants) for source in op.sources[:2])
    if b is not None:
        product = _linear([(shapes[0], b)])
    elif a is not None:
        product = _linear([(shapes[1], a)])
    elif shapes[0].is_flat and shapes[1].is_flat:
        align = min(shapes[0].align * shapes[1].align, _MOST_ALIGN)
        product = Shape(0, align=align, row=min(shapes[0].row, shapes[1].row))
    else:
        return None
    if op.modifiers[0] == "wide" and product is not None and not product.is_flat:
        if op.results[0] is None or op.results[0].bits != 64 or product.stride is None:
            return None
        factor = shapes[0] if shapes[0].stride else shapes[1]
        product = replace(product, guarded=factor.guarded or not factor.never_wraps)
    if op.opcode == "mad" and product is not None:
        return _linear([(product, 1), (shapes[2], 1)])
    return product


def _factor(op: Op, source: Operand, constants: dict[int, int]) -> int | None:
    """Give a factor that is known, as the number that its type makes of it where the product is wider."""
    number = constant_of(source, constants)
    if number is None or op.modifiers[0] != "wide":
        return number
    size = 1 << op.type.bits
    return (number + size // 2) % size - size // 2 if op.type.is_signed else number % size


def _converted(op: Op, source: Shape) -> Shape | None:
    if len(op.types) != 2 or not all(type_.is_one_integer for type_ in op.types):
        return None
    wide, narrow = op.types[0].bits, op.types[1].bits
    if wide == 64 and narrow == 32:
        return replace(source, guarded=source.guarded or not source.never_wraps)
    return source if {wide, narrow} <= {32, 64} else None


def constant_of(operand: Operand, constants: Mapping[int, int]) -> int | None:
    """Give the number that an operand is, or that its register always has; None where there is none."""
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
