"""How the blocks of a kernel are emitted, found before any code is: who waits where, and which blocks come twice.

red.shared.add.u32 [r], 1;         lanes may part behind block 0, so that it comes twice: with a mask of its lanes,
setp.lt.u32 p, t, n;         ->    and for warps whose lanes are all active. There the operation is cut in two,
@p bra ELSE;                       atom.put and atom.run, the second behind setp; and the first and the last lane
…                                  compare for all, because t counts up with the lane
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
    """How the blocks of a kernel, of a region of one (which has a ``boundary``), or of a function are emitted.

    ``polls`` are polling loops by their heads, each with its line and what alone ends it; ``first_separate`` is the
    first position that lanes may pass at different times. ``equivalent`` tells by position of an earlier block
    with the same lanes.

    Lanes wait at barriers where they are ``parking``, for their partners where they are ``gathering``; each of
    ``meetings`` are places that may take part in one exchange. ``strips`` are the loops that are strip-mined.

    ``parts`` tells whether lanes may part. ``together`` are the blocks once more, by position, for warps whose lanes
    are all active: none where it is not worth it. ``ends`` are comparisons of these blocks that the first and the last
    lane decide, ``wholes`` the positions at which it is looked whether a warp is whole. ``walks`` are the
    loops in which such a warp lets others go on every few turns.
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
    """Plan what ``e`` is to emit; where somebody watches, every operation is done in the simplest way."""
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
    """Put loads and stores that are more than weak between fences; those of 16 bytes are that by themselves.

    Before what a warpgroup does together its warps meet.
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
    """Make the operation by which the warps of a warpgroup meet: warps that come to different forms do not."""
    form = IntConstant(zlib.crc32(op.name.encode()))
    return Op(form_of("warpgroup.meet"), (), (form,), op.guard, guard_negated=op.guard_negated, line=op.line)


# -- places of one exchange -------------------------------------------------------------------------------


def _meetings(
    sites: Sequence[BasicBlock], equivalent: Sequence[int | None], constants: Mapping[int, int]
) -> list[list[BasicBlock]]:
    """Find places of the same operation that may take part in one exchange: their masks may be equal.

    Source: CUDA C++ Programming Guide, "Warp Shuffle Functions" and its neighbours: the lanes that a mask names have
    to execute the same operation with the same mask; the manual does not ask that it stands in one place. Where all
    lanes pass all places in turn, they wait at each for the last of them: ``equivalent`` is of ``control_equivalent``.
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
    """Return whether lanes may diverge, and the blocks for warps whose lanes are all active, if those are worth it.

    Where it is counted which lanes have not exited, that is in loops alone, in which nobody waits: at no position that
    is ``bound`` to others.
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
    """Find where lanes may all be together again, or begin together: where ways meet, and at the heads of loops."""
    blocks = [b for b in e.graph.blocks if b.position in together]
    heads = {loop.head for loop in e.graph.loops} if e.counts_lanes else ()
    meets = (not e.divergence.inactive[b.position] and len(b.predecessors) != 1 for b in blocks)
    return frozenset(b.position for b, m in zip(blocks, meets, strict=True) if m or b.position in heads)


def _sunk(e: WarpEmitter, block: BasicBlock) -> BasicBlock:
    """Split atomic operations: they collect their operands in place, and run after operations that only compute.

    They read from memory what the lanes hand over, which is quicker some time after it was written. Operations of one
    name wait for each other, those of different names come in their order.
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
    """Find the branches that the first and the last lane of a row decide: what they compare counts up in between."""
    for block in blocks:
        op = _comparison(block)
        shapes = [] if op is None else [e.operand_shape(s) for s in op.sources]
        known = all(s.stride is not None and not s.guarded for s in shapes)
        if op is not None and known and not all(s.is_uniform for s in shapes):
            yield block.position, op


def _comparison(block: BasicBlock) -> Op | None:
    """Find the comparison of 32-bit integers in this block that decides its branch, if what it read still stands."""
    guard, written = None if block.branch is None else block.branch.guard, 0
    for op in () if guard is None else reversed(block.ops[:-1]):
        if guard in op.written:
            plain = op.opcode == "setp" and op.guard is None and op.result is not None and len(op.modifiers) == 2
            good = plain and op.modifiers[0] in ORDERS and op.modifiers[1] in ("s32", "u32")
            return op if good and not op.reads & written else None
        written |= op.writes
    return None
