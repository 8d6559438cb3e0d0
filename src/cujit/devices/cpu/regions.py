"""Cutting a kernel at its barriers, so that no warp has to stop half-way.

A *region* is what a warp runs from one barrier (or the beginning) to the next. All warps of a block run a region one
after the other, then the next region follows: a loop over warps for each, and no stack but the thread's own. A
barrier for all threads of a block is met when every warp that has not exited has come to one, whichever it is, so
that this is right for every kernel whose barriers are all like that and whose warps come to them whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from cujit.devices.base import Dim3
from cujit.devices.cpu.blockwide import Blockwide, find_common
from cujit.devices.cpu.body import Body
from cujit.devices.cpu.cfg import Graph, part_of
from cujit.devices.cpu.liveness import live_in
from cujit.devices.cpu.program import FloatConstant, IntConstant, Memory, Op, Operand, Reg, Special, SymbolAddress
from cujit.devices.cpu.progress import bits_of, polling_loops
from cujit.devices.cpu.shapes import VARYING, WARP, Divergence, waits_in
from cujit.devices.cpu.sites import is_barrier

__all__ = ["Cut", "Region", "cut"]

_MOST_REGIONS = 60
_MOST_COPIES = 3
"""How many times as many operations the regions may have as the kernel: blocks that two regions pass are in both."""

_MOST_KEPT_BYTES = 256 << 10
"""Most bytes of registers that are kept over barriers: they lie on the thread's stack."""

_NEEDS_A_STACK = frozenset({"call.function", "call.exit", "call.arguments", "alloca", "stacksave", "stackrestore"})


@dataclass(frozen=True)
class Region:
    """One region: its blocks, and ``live``, the registers whose values it or a later one needs, by number.

    ``written`` and ``touched`` are the registers that it writes, and writes or reads, as bits of their numbers.
    ``remade`` are operations that make again, from what never changes, what it reads of the registers not kept.
    ``following`` tells by the position of a barrier which region begins behind it.
    """

    number: int
    graph: Graph
    divergence: Divergence
    live: tuple[int, ...]
    written: int
    touched: int
    remade: tuple[Op, ...]
    following: dict[int, int]


@dataclass(frozen=True)
class Cut:
    """A kernel in regions; the first one begins the block. ``kept`` are the registers that any of them begins with."""

    regions: tuple[Region, ...]
    blockwide: Blockwide
    kept: tuple[Reg, ...]


def cut(body: Body, divergence: Divergence, block: Dim3) -> Cut | None:
    """Cut a kernel at its barriers for blocks of the size ``block``; None where that would not be right."""
    graph = body.graph
    barriers = [b for b in graph.blocks if b.site is not None and is_barrier(b.site)]
    if not barriers or not _may_cut(body, divergence):
        return None
    live = live_in(graph)
    remakes = _remakes(graph, divergence)
    starts = [0, *dict.fromkeys(b.successors[0] for b in barriers if b.successors[0] != graph.exit)]
    number = {start: k for k, start in enumerate(starts) if k}
    stops = {b.position for b in barriers}
    regions = []
    for k, start in enumerate(starts):
        region = _region(k, start, graph, stops, number, live, divergence, remakes)
        if region is None:
            return None
        regions.append(region)
    everything = sum(len(b.ops) for r in regions for b in r.graph.blocks)
    if len(regions) > _MOST_REGIONS or everything > _MOST_COPIES * sum(len(b.ops) for b in graph.blocks) + 100:
        return None
    kept = [body.program.registers[r] for r in sorted({r for region in regions for r in region.live})]
    warps = (block.volume + WARP - 1) // WARP
    if warps * WARP * sum(max(reg.bits // 8, 1) for reg in kept) > _MOST_KEPT_BYTES:
        return None
    return Cut(tuple(regions), find_common(graph, block), tuple(kept))


def _may_cut(body: Body, divergence: Divergence) -> bool:
    """Whether all synchronisation is by one barrier for all threads, to which warps come whole."""
    if (
        body.functions
        or body.clears
        or body.uses_cluster
        or body.program.called
        or divergence.loose
        or polling_loops(body.graph)
    ):
        return False
    ops = [op for b in body.graph.blocks for op in b.ops]
    if any(op.opcode in _NEEDS_A_STACK or "shared::cluster" in op.modifiers for op in ops):
        return False
    waits = [op for op in ops if op.opcode in ("bar", "barrier") and "warp" not in op.modifiers]
    if not all(_is_plain(op) for op in waits):
        return False
    numbers = {_number(op, divergence) for op in waits}
    return len(numbers) == 1 and None not in numbers


def _is_plain(op: Op) -> bool:
    others = {"cluster", "red", "arrive"}
    return "sync" in op.modifiers and others.isdisjoint(op.modifiers) and op.guard is None and len(op.sources) == 1


def _number(op: Op, divergence: Divergence) -> int | None:
    operand: Operand = op.sources[0]
    if isinstance(operand, Reg):
        return divergence.constants.get(operand.index)
    return operand.value if isinstance(operand, IntConstant) else None


def _region(
    k: int,
    start: int,
    graph: Graph,
    stops: set[int],
    number: dict[int, int],
    live: list[int],
    divergence: Divergence,
    remakes: Mapping[int, tuple[Op, ...]],
) -> Region | None:
    """Make one region; None where lanes that wait would lose what is in a register that all lanes share."""
    part, whole = part_of(graph, start, stops)
    waiting = waits_in(part, divergence.shapes)
    blend = []
    written = touched = 0
    for b in part.blocks:
        needed = 0
        for p in bits_of(waiting[b.position]):
            needed |= live[whole[p]]
        blend.append(needed)
        for op in b.ops:
            for r in op.results:
                if r is not None:
                    written |= 1 << r.index
                    if needed >> r.index & 1 and divergence.shapes[r.index] != VARYING:
                        return None
            for r in op.read_registers():
                touched |= 1 << r.index
    following = {p: number.get(graph.blocks[old].successors[0], -1) for p, old in enumerate(whole) if old in stops}
    own = replace(divergence, blend=blend, waiting=waiting)
    first = bits_of(live[start]) if k else []
    remade = dict.fromkeys(op for r in first if touched >> r & 1 for op in remakes.get(r, ()))
    for op in remade:
        touched |= sum(1 << r.index for r in op.results if r is not None)
    kept = tuple(r for r in first if r not in remakes)
    return Region(k, part, own, kept, written, touched | written, tuple(remade), following)


# Operations that depend on nothing but their sources.
_PURE = frozenset({"mov", "add", "sub", "mul", "mad", "shl", "shr", "and", "or", "neg", "cvt", "cvta"})
_MOST_REMADE = 12
"""Operations that a register may take to be made again: more cost more than to keep it."""


def _remakes(graph: Graph, divergence: Divergence) -> dict[int, tuple[Op, ...]]:
    """Find the registers that are written once, from constants and special registers that never change."""
    writers: dict[int, list[Op]] = {}
    for b in graph.blocks:
        for op in b.ops:
            for r in op.results:
                if r is not None:
                    writers.setdefault(r.index, []).append(op)
    found: dict[int, tuple[Op, ...]] = {}
    again = True
    while again:
        again = False
        for index, ops in writers.items():
            if index in found or len(ops) > 1 or divergence.shapes[index] == VARYING:
                continue
            before = _sources_remade(ops[0], found)
            if before is not None and len(before) < _MOST_REMADE:
                found[index] = (*before, ops[0])
                again = True
    return found


def _sources_remade(op: Op, found: Mapping[int, tuple[Op, ...]]) -> tuple[Op, ...] | None:
    """List what makes the sources of an operation again; None where it cannot be done again."""
    parameter = op.opcode == "ld" and "param" in op.modifiers
    if not (op.opcode in _PURE or parameter) or op.guard is not None or len(op.results) != 1 or "cc" in op.modifiers:
        return None
    before: dict[Op, None] = {}
    for s in op.sources:
        if isinstance(s, Reg):
            if s.index not in found:
                return None
            before |= dict.fromkeys(found[s.index])
        elif isinstance(s, Special):
            if not s.name.startswith(_STEADY):
                return None
        elif isinstance(s, Memory):
            if not (parameter and isinstance(s.base, SymbolAddress) and s.base.slot.space == "param"):
                return None
        elif not isinstance(s, IntConstant | FloatConstant | SymbolAddress):
            return None
    return tuple(before)


_STEADY = ("tid.", "ntid.", "ctaid.", "nctaid.", "laneid", "warpid")
