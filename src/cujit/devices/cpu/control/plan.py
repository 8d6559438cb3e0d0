"""The plan for emitting the blocks of a kernel, made before any code: where lanes wait, and which blocks are
duplicated.

    red.shared.add.u32 [r], 1;         lanes may diverge after block 0, so it is emitted twice: with a mask, and for
    setp.lt.u32 p, t, n;         ->    warps whose lanes are all active. The second copy splits the operation into
    @p bra ELSE;                       atom.put and atom.run, which follows setp. Only the first and the last lane
    …                                  compare, because t increases with the lane.
"""

from __future__ import annotations

import zlib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from cujit.devices.cpu.analysis.dataflow import awaited, bits_of, control_equivalent, polling_loops
from cujit.devices.cpu.analysis.uniformity import constant_of, is_divergent_branch
from cujit.devices.cpu.codegen.warp import WarpEmitter
from cujit.devices.cpu.control.regions import RegionBoundary
from cujit.devices.cpu.control.strips import Strip, find_strips
from cujit.devices.cpu.control.warp_scheduling import Walks, find_walks
from cujit.devices.cpu.instructions.atomics import may_wait
from cujit.devices.cpu.ir.cfg import BasicBlock, ControlFlowGraph, Loop
from cujit.devices.cpu.ir.program import IntConstant, Op
from cujit.formats.ptx.isa.semantics import Collective, Trait, form_of
from cujit.values import dataclass, replace

_LONGEST_TWICE = 1500
"""Operations of a kernel whose blocks are emitted twice: with masks, and for warps whose lanes are all active."""

ORDERS = {"lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
"""Comparisons that hold in a stretch of lanes from the first on or up to the last, as LLVM has them.

Source: PTX ISA 9.1, "setp", "Comparisons" (``lo`` to ``hs`` are unsigned).
"""


@dataclass(frozen=True)
class ControlPlan:
    """The plan for the blocks of a kernel, of a function, or of one region, which has a ``boundary``.

    ``polls`` maps the head of each polling loop to its line and to the only event that ends the loop.
    ``first_separate`` is the first position that lanes may pass at different times. ``equivalent`` contains, for each
    position, the position of an earlier block with the same lanes, or None.

    Lanes wait at the barriers in ``parking``, and wait for their partners in ``gathering``. Each of ``meetings`` is a
    list of places that may take part in one exchange. ``strips`` are the strip-mined loops.

    ``parts`` is whether lanes may diverge. ``together`` maps positions to copies of blocks for warps whose lanes are
    all active. It is empty if copies are not worthwhile. ``ends`` are comparisons in these blocks that the first and
    last lane decide. ``wholes`` are the positions that check whether all lanes are active. ``walks`` are the loops in
    which such a warp lets other warps run every few iterations.
    """

    boundary: RegionBoundary | None
    polls: Mapping[int, tuple[int, int]]
    first_separate: int
    equivalent: Sequence[int | None]
    parking: Sequence[BasicBlock]
    gathering: Sequence[BasicBlock]
    meetings: Sequence[Sequence[BasicBlock]]
    strips: Mapping[int, Strip]
    parts: bool
    together: Mapping[int, BasicBlock]
    wholes: frozenset[int]
    walks: Walks
    ends: Mapping[int, Op]


def make_plan(e: WarpEmitter, boundary: RegionBoundary | None) -> ControlPlan:
    """Return the plan for the code that ``e`` emits. With observers, every operation is emitted in the simplest way."""
    blocks, non_reconverging = e.graph.blocks, frozenset(bits_of(e.divergence.non_reconverging))
    polls = {loop.head: (_line_of(e.graph, loop), awaited(e.graph, loop)) for loop in polling_loops(e.graph)}
    equivalent, first_separate = control_equivalent(e.graph), min(non_reconverging, default=e.graph.exit)
    # Behind that position no two blocks need to have the same lanes; and lanes may exit in a function.
    keeps = 0 if e.program.called else first_separate
    sites = [b for b in blocks if b.site is not None and b.position in non_reconverging]
    bound = non_reconverging | polls.keys()
    parts, together = _together(e, bound)
    return ControlPlan(
        boundary, polls, first_separate, [*equivalent[:keeps], *[None] * (len(blocks) - keeps)],
        parking=[b for b in sites if b.ops[0].form.is_barrier],
        gathering=[b for b in sites if not b.ops[0].form.is_barrier and b.ops[0].form.needs_others],
        meetings=_meetings(sites, equivalent, e.divergence.constants),
        strips={} if e.watched else find_strips(e, bound),
        parts=parts, together=together, wholes=_wholes(e, together) if parts else frozenset(),
        walks=find_walks(e, parts, together, boundary),
        ends=dict(_ends(e, together.values())),
    )  # fmt: skip


def _line_of(graph: ControlFlowGraph, loop: Loop) -> int:
    """Return the line that identifies a loop: the line of the operation that polls, if there is one."""
    ops = [op for block in graph.blocks[loop.head : loop.last + 1] for op in block.ops]
    return next((op.line for op in ops if op.form.is_poll), ops[-1].line)


def fenced(graph: ControlFlowGraph) -> ControlFlowGraph:
    """Put strong loads and stores between fences, except 16-byte accesses, which need no fences.

    Before each operation of a warpgroup, insert an operation that synchronizes its warps.
    """
    blocks = [replace(b, ops=[each for op in b.ops for each in _fenced(op)]) for b in graph.blocks]
    return replace(graph, blocks=blocks)


def _fenced(op: Op) -> Sequence[Op]:
    if op.form.collective is Collective.WARPGROUP:
        return _meeting_of(op), op
    if op.opcode not in ("ld", "ldu", "st") or not op.form.is_strong or op.type == "b128":
        return (op,)
    begin, end = (Op(form_of(f"access.{what}", *op.modifiers), line=op.line) for what in ("begin", "end"))
    return begin, op, end


def _meeting_of(op: Op) -> Op:
    """Create the operation that synchronizes the warps of a warpgroup. Warps at operations of different forms do not
    meet.
    """
    form = IntConstant(zlib.crc32(op.name.encode()))
    return Op(form_of("warpgroup.meet"), (), (form,), op.guard, guard_negated=op.guard_negated, line=op.line)


# -- places of one exchange -------------------------------------------------------------------------------


def _meetings(
    sites: Sequence[BasicBlock], equivalent: Sequence[int | None], constants: Mapping[int, int]
) -> list[list[BasicBlock]]:
    """Find places of the same operation that may take part in one exchange, because their masks may be equal.

    Source: CUDA C++ Programming Guide, "Warp Shuffle Functions" and the sections next to it: the lanes that a mask
    names have to execute the same operation with the same mask. The manual does not require one place. If all lanes
    pass all places in turn, the lanes wait at each place for the last lane. ``equivalent`` is the result of
    ``control_equivalent``.
    """
    same: dict[tuple[str, ...], list[BasicBlock]] = {}
    for block in sites:
        if block.ops[0].form.names_members:
            same.setdefault((block.ops[0].opcode, *block.ops[0].modifiers), []).append(block)
    passed = [p if earlier is None else earlier for p, earlier in enumerate(equivalent)]
    found: list[list[BasicBlock]] = []
    for places in same.values():
        if len({passed[block.position] for block in places}) > 1:
            by_mask: dict[int | None, list[BasicBlock]] = {}
            for block in places:
                mask = constant_of(block.ops[0].sources[-1], constants)
                by_mask.setdefault(None if mask is None else mask & 0xFFFFFFFF, []).append(block)
            found += [places] if None in by_mask else [some for some in by_mask.values() if len(some) > 1]
    return found


# -- warps whose lanes are all active ---------------------------------------------------------------------


def _together(e: WarpEmitter, bound: Container[int]) -> tuple[bool, dict[int, BasicBlock]]:
    """Return whether lanes may diverge, and the blocks to duplicate for warps whose lanes are all active, if
    worthwhile.

    If exited lanes are counted, only loops in which no lane waits are duplicated: loops without a position in
    ``bound``.
    """
    parts = any(is_divergent_branch(b, e.divergence.shapes) for b in e.graph.blocks)
    simple = any(observer.begin_region is None for observer in e.observers)
    if simple or (parts and len(e.graph.ops) > _LONGEST_TWICE):
        return parts, {}
    if e.counts_lanes:
        free = parts and not e.watched and not e.is_function
        blocks = [b for b in e.graph.blocks if free and b.loop is not None and _is_free(_inside(e, b.loop), bound)]
    else:
        blocks = e.graph.blocks
    return parts, {b.position: b if e.watched else _sunk(e, b) for b in blocks}


def _inside(e: WarpEmitter, loop: Loop) -> list[BasicBlock]:
    return e.graph.blocks[loop.head : loop.last + 1]


def _is_free(blocks: Sequence[BasicBlock], bound: Container[int]) -> bool:
    calls = any(op.opcode == "call.function" for b in blocks for op in b.ops)
    return not calls and all(b.site is None and b.position not in bound for b in blocks)


def _wholes(e: WarpEmitter, together: Container[int]) -> frozenset[int]:
    """Return the positions at which all lanes may be active together.

    These are blocks at which control flow merges and, if exited lanes are counted, loop heads.
    """
    blocks = [b for b in e.graph.blocks if b.position in together]
    heads = {loop.head for loop in e.graph.loops} if e.counts_lanes else ()
    meets = (not e.divergence.inactive[b.position] and len(b.predecessors) != 1 for b in blocks)
    return frozenset(b.position for b, m in zip(blocks, meets, strict=True) if m or b.position in heads)


def _sunk(e: WarpEmitter, block: BasicBlock) -> BasicBlock:
    """Split atomic operations: one part collects operands in place, and the other part runs after pure computations.

    The second part reads the lanes' operands from memory, which is faster some time after the write. Operations of the
    same name are delayed together. Operations of different names keep their order.
    """
    ops: list[Op] = []
    late: list[Op] = []
    for op in block.ops:
        waits = may_wait(op, e.program, e.divergence)
        if Trait.NARROW not in op.form.meaning.traits and not (waits and late and late[0].modifiers == op.modifiers):
            ops += late
            late.clear()
        if waits:
            sources = (*op.sources, IntConstant(len(late)))
            op, run = (Op(form_of(f"atom.{half}", *op.modifiers), (), sources, line=op.line) for half in ("put", "run"))
            late.append(run)
        ops.append(op)
    return replace(block, ops=[*ops, *late])


def _ends(e: WarpEmitter, blocks: Iterable[BasicBlock]) -> Iterator[tuple[int, Op]]:
    """Yield the positions and comparisons of branches that the first and last lane of a row decide.

    The compared values change by a fixed stride from lane to lane.
    """
    for block in blocks:
        op = _comparison(block)
        shapes = [] if op is None else [e.operand_shape(s) for s in op.sources]
        known = all(s.stride is not None and not s.guarded for s in shapes)
        if op is not None and known and not all(s.is_uniform for s in shapes):
            yield block.position, op


def _comparison(block: BasicBlock) -> Op | None:
    """Return the comparison of 32-bit integers in this block that decides its branch.

    Return None if there is none, or if the block changes the compared values before the branch.
    """
    guard, written = None if block.branch is None else block.branch.guard, 0
    for op in () if guard is None else reversed(block.ops[:-1]):
        if guard in op.written:
            plain = op.opcode == "setp" and op.guard is None and op.result is not None and len(op.modifiers) == 2
            good = plain and op.modifiers[0] in ORDERS and op.modifiers[1] in ("s32", "u32")
            return op if good and not op.reads & written else None
        written |= op.writes
    return None
