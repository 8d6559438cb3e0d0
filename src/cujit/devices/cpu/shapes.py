"""Third pass: what is the same in all lanes of a warp, what counts up with the lane, and where lanes part.

A register is *uniform* (one scalar for the warp), *affine* (``base + stride x lane``, kept as the scalar base) or
varying (a vector). Widening an affine 32-bit value is affine only if it does not wrap inside the warp; such a
register is *guarded*: it keeps the vector too, and one bit that tells at run time whether the short form holds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cujit.devices.base import Dim3
from cujit.devices.cpu.cfg import Graph
from cujit.devices.cpu.dominance import immediate_postdominators
from cujit.devices.cpu.liveness import live_in
from cujit.devices.cpu.program import (
    FloatConstant,
    Group,
    IntConstant,
    KernelProgram,
    Memory,
    Negation,
    Op,
    Operand,
    Reg,
    Special,
)

__all__ = ["UNIFORM", "VARYING", "WARP", "Divergence", "Shape", "analyse"]

WARP = 32
"""Lanes of a warp. Source: PTX ISA 9.1, ``WARP_SZ``."""


@dataclass(frozen=True)
class Shape:
    """``stride`` between neighbouring lanes (0: uniform; None: varying); ``guarded``: true only if checked."""

    stride: int | None
    guarded: bool = False

    @property
    def is_uniform(self) -> bool:
        """Whether one scalar holds it."""
        return self.stride == 0

    @property
    def is_affine(self) -> bool:
        """Whether a scalar base and a stride hold it."""
        return bool(self.stride)


# Opcodes whose results may differ from lane to lane though their sources do not.
_PER_LANE = frozenset(
    {
        "atom", "shfl", "vote", "match", "redux", "activemask", "elect", "mma", "wmma", "wgmma", "ldmatrix",
        "movmatrix", "mbarrier", "alloca", "tex", "tld4", "suld", "barrier", "bar", "call",
    }
)  # fmt: skip

UNIFORM = Shape(0)
VARYING = Shape(None)


@dataclass
class Divergence:
    """What ``analyse`` finds.

    ``shapes`` by register number; ``constants`` are registers with one known value; ``blend`` by position: the
    registers that lanes waiting elsewhere still need, so that a write there must leave those lanes alone;
    ``waiting`` by position: where lanes may wait while the block runs, as bits of positions.
    """

    shapes: list[Shape]
    constants: dict[int, int]
    blend: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)

    def of(self, operand: Operand) -> Shape:
        """Tell the shape of an operand (of a memory operand: of its address)."""
        return _shape(operand, self.shapes, Dim3(1))


def analyse(program: KernelProgram, graph: Graph, block: Dim3) -> Divergence:
    """Find shapes and divergence of a kernel for blocks of the size ``block``."""
    live = live_in(graph)
    ipdom = immediate_postdominators(graph)
    constants = _constants(program, graph)
    forced: set[int] = set()
    while True:
        shapes = _shapes(program, graph, block, constants, forced)
        waiting = _waiting(graph, shapes, ipdom)
        blend = [_live_at(mask, live) for mask in waiting]
        more = {
            r.index
            for b in graph.blocks
            for op in b.ops
            for r in op.results
            if r is not None and blend[b.position] >> r.index & 1
        }
        if more <= forced:
            return Divergence(shapes, constants, blend, waiting)
        forced |= more


def _live_at(positions: int, live: list[int]) -> int:
    registers = 0
    for p in _bits(positions):
        registers |= live[p]
    return registers


def _bits(mask: int) -> list[int]:
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


# -- where lanes part -------------------------------------------------------------------------------------


def _waiting(graph: Graph, shapes: list[Shape], ipdom: list[int]) -> list[int]:
    """Find where lanes may wait while a block runs: on the other sides of every branch that parted them from it."""
    waiting = [0] * len(graph.blocks)
    successors = graph.successors()
    for b in graph.blocks:
        sides = sorted(set(b.successors))
        if len(sides) < 2 or not _parts_lanes(b.branch, shapes):
            continue
        meet = ipdom[b.position]
        reach = {s: _reach(s, meet, successors) for s in sides}
        at_meet = 0 if meet == graph.exit else 1 << meet
        for s in sides:
            elsewhere = at_meet
            for other in sides:
                if other != s:
                    elsewhere |= reach[other]
            elsewhere &= ~(1 << graph.exit)
            for p in _bits(reach[s] & ~(1 << graph.exit)):
                waiting[p] |= elsewhere
    return waiting


def _parts_lanes(branch: Op | None, shapes: list[Shape]) -> bool:
    if branch is None:
        return False
    deciding = [branch.guard] if branch.guard is not None else []
    deciding += [s for s in branch.sources if isinstance(s, Reg)]
    return any(not shapes[r.index].is_uniform for r in deciding)


def _reach(start: int, stop: int, successors: list[list[int]]) -> int:
    """Collect the positions that lanes pass from ``start`` on before ``stop``."""
    if start == stop:
        return 0
    seen = 1 << start
    todo = [start]
    while todo:
        for s in successors[todo.pop()]:
            if s != stop and not seen >> s & 1:
                seen |= 1 << s
                todo.append(s)
    return seen


# -- shapes of registers ----------------------------------------------------------------------------------


def _constants(program: KernelProgram, graph: Graph) -> dict[int, int]:
    """Find registers that are written once, with an integer."""
    writes = [0] * len(program.registers)
    values: dict[int, int] = {}
    for b in graph.blocks:
        for op in b.ops:
            for r in op.results:
                if r is not None:
                    writes[r.index] += 1
                    if op.opcode == "mov" and op.guard is None and isinstance(op.sources[0], IntConstant):
                        values[r.index] = op.sources[0].value
    return {r: v for r, v in values.items() if writes[r] == 1}


def _shapes(
    program: KernelProgram, graph: Graph, block: Dim3, constants: dict[int, int], forced: set[int]
) -> list[Shape]:
    written = {r.index for b in graph.blocks for op in b.ops for r in op.results if r is not None}
    # A register that is never written is zero everywhere; compilers leave such in where a value does not matter.
    known: list[Shape | None] = [None if r.index in written else UNIFORM for r in program.registers]
    for index in forced:
        known[index] = VARYING
    changed = True
    while changed:
        changed = False
        for b in graph.blocks:
            for op in b.ops:
                for result in op.results:
                    if result is None or known[result.index] == VARYING:
                        continue
                    new = _result_shape(op, known, block, constants, program.local_size)
                    joined = _join(known[result.index], new)
                    if joined != known[result.index]:
                        known[result.index] = joined
                        changed = True
    return [s if s is not None else UNIFORM for s in known]


def _join(a: Shape | None, b: Shape | None) -> Shape | None:
    if a is None or b is None:
        return a if b is None else b
    if a.stride != b.stride:
        return VARYING
    return Shape(a.stride, a.guarded or b.guarded)


def _shape(operand: Operand, known: list[Shape] | list[Shape | None], block: Dim3) -> Shape:
    """Shape of an operand; a register not met yet counts as uniform."""
    if isinstance(operand, Reg):
        return known[operand.index] or UNIFORM
    if isinstance(operand, (IntConstant, FloatConstant)):
        return UNIFORM
    if isinstance(operand, Special):
        return special_shape(operand.name, block)
    if isinstance(operand, Memory):
        return _shape(operand.base, known, block) if operand.base is not None else UNIFORM
    if isinstance(operand, Group):
        return UNIFORM if all(_shape(i, known, block).is_uniform for i in operand.items) else VARYING
    if isinstance(operand, Negation):
        return _shape(operand.item, known, block)
    return UNIFORM


def special_shape(name: str, block: Dim3) -> Shape:
    """Shape of a special register in blocks of this size."""
    if name == "tid.x":
        return Shape(1) if block.x % WARP == 0 or block.y * block.z == 1 else VARYING
    if name in ("tid.y", "tid.z"):
        size = block.x if name == "tid.y" else block.x * block.y
        alone = block.y == 1 if name == "tid.y" else block.z == 1
        return UNIFORM if size % WARP == 0 or alone else VARYING
    if name == "laneid":
        return Shape(1)
    return VARYING if name.startswith("lanemask") else UNIFORM


def _result_shape(
    op: Op, known: list[Shape | None], block: Dim3, constants: dict[int, int], local_size: int
) -> Shape | None:
    for reg in op.read_registers():
        if known[reg.index] is None and reg not in op.results and reg.index not in constants:
            return None
    shapes = [_shape(s, known, block) for s in op.sources]
    if op.guard is not None:
        guard = known[op.guard.index] or UNIFORM
        return UNIFORM if guard.is_uniform and all(s.is_uniform for s in shapes) else VARYING
    if op.opcode in ("ld", "ldu"):
        return UNIFORM if shapes[0].is_uniform and "local" not in op.modifiers else VARYING
    if op.opcode in _PER_LANE:
        return VARYING
    if op.opcode == "cvta" and "local" in op.modifiers:
        sign = -1 if "to" in op.modifiers else 1
        return _linear([(shapes[0], 1), (Shape(sign * local_size), 1)])
    if all(s.is_uniform for s in shapes):
        return UNIFORM
    return _affine_result(op, shapes, constants) or VARYING


def _affine_result(op: Op, shapes: list[Shape], constants: dict[int, int]) -> Shape | None:
    """Shape of the operations that keep an affine value affine; None for all others."""
    mods = op.modifiers
    if any(s.stride is None for s in shapes) or len(op.results) != 1 or op.results[0] is None:
        return None
    if op.results[0].bits not in (32, 64) or op.results[0].is_float or "sat" in mods or "cc" in mods:
        return None
    if op.opcode in ("mov", "cvta") and not isinstance(op.sources[0], Group):
        return shapes[0]
    if op.opcode in ("add", "sub") and mods[-1][0] in "sub":
        return _linear([(shapes[0], 1), (shapes[1], 1 if op.opcode == "add" else -1)])
    if op.opcode == "neg" and mods[-1][0] == "s":
        return _linear([(shapes[0], -1)])
    if op.opcode == "shl":
        count = _constant(op.sources[1], constants)
        return _linear([(shapes[0], 1 << count)]) if count is not None and 0 <= count < 31 else None
    if op.opcode in ("mul", "mad") and mods[0] in ("lo", "wide"):
        return _product_shape(op, shapes, constants)
    if op.opcode == "cvt":
        return _converted(op, shapes[0])
    return None


def _product_shape(op: Op, shapes: list[Shape], constants: dict[int, int]) -> Shape | None:
    a, b = _constant(op.sources[0], constants), _constant(op.sources[1], constants)
    if b is not None:
        product = _linear([(shapes[0], b)])
    elif a is not None:
        product = _linear([(shapes[1], a)])
    elif shapes[0].is_uniform and shapes[1].is_uniform:
        product = UNIFORM
    else:
        return None
    if op.modifiers[0] == "wide" and product is not None and not product.is_uniform:
        if op.results[0] is None or op.results[0].bits != 64 or product.stride is None:
            return None
        product = Shape(product.stride, True)
    if op.opcode == "mad" and product is not None:
        return _linear([(product, 1), (shapes[2], 1)])
    return product


def _converted(op: Op, source: Shape) -> Shape | None:
    to, from_ = op.modifiers[-2], op.modifiers[-1]
    if to[0] not in "su" or from_[0] not in "su":
        return None
    wide, narrow = int(to[1:]), int(from_[1:])
    if wide == 64 and narrow == 32:
        return Shape(source.stride, True)
    if wide == 32 and narrow == 64:
        # Whatever wraps in 64 bits is congruent in 32.
        return Shape(source.stride)
    return source if wide == narrow and wide in (32, 64) else None


def _constant(operand: Operand, constants: dict[int, int]) -> int | None:
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
    return Shape(stride, guarded)
