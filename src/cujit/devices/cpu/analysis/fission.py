"""Barrier fission: a kernel is cut at its barriers into regions, so that no warp has to stop half-way.

    mul.lo.u32 y, x, x;                    for each warp: mul; st.shared; y is kept       (region 0)
    st.shared.u32 [s], x;            ->    for each warp: ld.shared; add                  (region 1)
    bar.sync 0;
    ld.shared.u32 z, [t];
    add.u32 z, z, y;

A *region* is what a warp runs from one barrier (or the beginning) to the next. All warps of a block run a region one
after the other, then the next region follows: a loop over warps for each, and no stack but the thread's own. A
barrier for all threads of a block is met when every warp that has not exited has come to one, whichever it is, so
that this is right for every kernel whose barriers are all like that and whose warps come to them whole.

What all threads of a block have in common is kept once, and a branch on it sends all warps one way:

    ld.param.u32 n, [count];               n is common
    setp.gt.u32 p, n, 8;             ->    p is,
    @p bra END;                            so that all warps take one way
    shr.u32 w, %tid.x, 5;                  w is not: it is uniform, but another in each warp

A register is *common* where all warps that come to the next barrier have the same value in it; a branch is where it
sends all of them one way. Lanes that will never come to a barrier again do not count: they leave for good.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cujit.devices.cpu.analysis.body import Body
from cujit.devices.cpu.analysis.dataflow import (
    bits_of,
    immediate_postdominators,
    joined,
    live_in,
    polling_loops,
    reach,
    solve,
    turned,
    written_once,
)
from cujit.devices.cpu.analysis.patterns import (
    Pattern,
    find_patterns,
    number_in_all,
    pattern_of,
    patterns_from,
    vector_access,
)
from cujit.devices.cpu.analysis.uniformity import (
    VARYING,
    WARP,
    Divergence,
    constant_of,
    inactive_in,
    is_divergent_branch,
    masked_in,
)
from cujit.devices.cpu.ir.cfg import BasicBlock, ControlFlowGraph, part_of
from cujit.devices.cpu.ir.program import MemoryOperand, Op, Operand, Reg, Special, SymbolAddress, bits_in, parts_of
from cujit.devices.shapes import Dim3
from cujit.forks import cached_property
from cujit.formats.ptx.isa.semantics import Collective, Trait
from cujit.values import dataclass, field, replace

_MOST_REGIONS = 60
_MOST_COPIES = 3
"""How many times as many operations the regions may have as the kernel: blocks that two regions pass are in both."""

_MOST_KEPT_BYTES = 256 << 10
"""Most bytes of registers that are kept over barriers: they lie on the thread's stack."""


@dataclass(frozen=True)
class Region:
    """One region: its blocks, and ``live``, the registers whose values it or a later one needs, by number.

    ``rematerialised`` are operations that make again, from what never changes, what it reads of the registers not kept.
    ``following`` tells by the position of a barrier which region begins behind it.
    ``patterns`` are those of the registers that addresses of shared memory begin with.
    ``if_converted`` are stores that stood behind a branch which parted lanes, and now have a guard.
    ``choice`` is a register, common to the block, for whose values at its beginning there are ``versions`` of it.
    """

    number: int
    graph: ControlFlowGraph
    divergence: Divergence
    live: tuple[int, ...]
    rematerialised: tuple[Op, ...]
    following: dict[int, int]
    patterns: Mapping[int, Pattern]
    if_converted: frozenset[Op] = frozenset()
    choice: int | None = None
    versions: Mapping[int, Region] = field(default_factory=dict)

    @cached_property
    def written(self) -> int:
        """The registers that it writes, as bits of their numbers."""
        return joined(op.writes for op in self.graph.ops)

    @cached_property
    def touched(self) -> int:
        """The registers that it writes or reads, as bits of their numbers."""
        return joined(op.writes | op.reads for op in self.graph.ops) | joined(op.writes for op in self.rematerialised)


@dataclass(frozen=True)
class Fission:
    """A kernel in regions; the first one begins the block. ``kept`` are the registers that any of them begins with."""

    regions: tuple[Region, ...]
    blockwide: Blockwide
    kept: tuple[Reg, ...]

    @property
    def keeps_masks(self) -> bool:
        """Whether the lanes that go on are kept: some may have exited."""
        return self.blockwide.leaves or not self.blockwide.together


def fission(body: Body, divergence: Divergence, block: Dim3) -> Fission | None:
    """Fission a kernel at its barriers for blocks of the size ``block``; None where that would not be right."""
    regions = _Cut(body.graph, divergence).regions() if _may_split(body, divergence) else []
    if not regions or _take_too_much(regions, body.graph) or any(map(_loses_values, regions)):
        return None
    kept = [body.program.registers[r] for r in sorted({r for region in regions for r in region.live})]
    warps = (block.volume + WARP - 1) // WARP
    if warps * WARP * sum(reg.bits // 8 or 4 for reg in kept) > _MOST_KEPT_BYTES:
        return None
    common = find_common(body.graph, block)
    search = _Search(body.graph, divergence, block, regions)
    regions = [replace(region, patterns=search.patterns) for region in regions]
    if common.together:
        regions = [_with_versions(region, common, search) for region in regions]
    return Fission(tuple(map(_if_converted, regions)), common, tuple(kept))


def _may_split(body: Body, divergence: Divergence) -> bool:
    """Whether all synchronisation is by one barrier for all threads, to which warps come whole."""
    ops = body.graph.ops
    numbers = {_number(op, divergence) for op in ops if op.form.collective >= Collective.BLOCK}
    groups = any(op.form.collective is Collective.WARPGROUP for op in ops)
    if groups or len(numbers) != 1 or None in numbers or any(Trait.STACK in op.form.meaning.traits for op in ops):
        return False
    divergent = divergence.non_reconverging or polling_loops(body.graph)
    return not (body.functions or body.clears or body.uses_cluster or body.needs_stacks or divergent)


def _number(op: Op, divergence: Divergence) -> int | None:
    """Return the number of a barrier for all threads. None if that is not known, or it is another barrier."""
    if "sync" not in op.modifiers or op.guard is not None or len(op.sources) != 1:
        return None
    return constant_of(op.sources[0], divergence.constants)


class _Cut:
    """A kernel cut at its barriers. ``behind`` tells by the position of a barrier which region begins behind it."""

    def __init__(self, graph: ControlFlowGraph, divergence: Divergence) -> None:
        self.graph, self.divergence = graph, divergence
        barriers = {b.position: b.successors[0] for b in graph.blocks if b.barrier is not None}
        self.starts = [0, *dict.fromkeys(start for start in barriers.values() if start != graph.exit)]
        number = {start: k for k, start in enumerate(self.starts) if k}
        self.behind = {position: number.get(start, -1) for position, start in barriers.items()}
        self.live = live_in(graph)
        self.rematerialisable = _rematerialisable(graph, divergence)

    def regions(self) -> list[Region]:
        """Make all regions, the one that begins the block first."""
        return [self._region(k, start) for k, start in enumerate(self.starts)]

    def _region(self, k: int, start: int) -> Region:
        part, whole = part_of(self.graph, start, self.behind)
        inactive = inactive_in(part, self.divergence.shapes)
        masked = [joined(self.live[whole[p]] for p in bits_of(mask)) for mask in inactive]
        own = replace(self.divergence, masked=masked, inactive=inactive)
        following = {p: self.behind[old] for p, old in enumerate(whole) if old in self.behind}
        first = bits_of(self.live[start]) if k else []
        kept = tuple(r for r in first if r not in self.rematerialisable)
        read = joined(op.reads for op in part.ops)
        again = dict.fromkeys(op for r in first if read >> r & 1 for op in self.rematerialisable.get(r, ()))
        return Region(k, part, own, kept, tuple(again), following, {})


def _take_too_much(regions: Sequence[Region], graph: ControlFlowGraph) -> bool:
    ops = sum(len(region.graph.ops) for region in regions)
    return len(regions) > _MOST_REGIONS or ops > _MOST_COPIES * len(graph.ops) + 100


def _loses_values(region: Region) -> bool:
    """Whether lanes that wait would lose what is in a register that all lanes share."""
    masked = masked_in(region.graph, region.divergence.masked)
    return any(region.divergence.shapes[r] != VARYING for r in bits_of(masked))


# -- what all threads of a block have in common ------------------------------------------------------------

_COMMON_SPECIALS = ("ctaid.", "nctaid.", "ntid.", "nwarpid", "smid", "nsmid", "gridid")
_COMMON_SPACES = ("param", "const")


@dataclass(frozen=True)
class Blockwide:
    """``differing`` are the registers that may differ between the threads of a block, as bits of their numbers.

    ``together``: all warps that go on come to the same barrier each time. ``leaves``: some lanes may exit while
    others come to another barrier.
    """

    differing: int
    together: bool
    leaves: bool


def find_common(graph: ControlFlowGraph, block: Dim3) -> Blockwide:
    """Analyse a kernel for blocks of the size ``block``."""
    ipdom = immediate_postdominators(graph)
    successors = graph.successors()
    barriers = joined(1 << b.position for b in graph.blocks if b.barrier is not None)
    goes_on = reach(barriers, graph.exit, turned(successors))
    differing = separate = 0

    def spread(b: BasicBlock) -> bool:
        nonlocal differing, separate
        before = differing, separate
        for op in b.ops:
            if separate >> b.position & 1 or _differs(op, differing, block):
                differing |= op.writes
        ways = _ways(b, differing)
        if (ways & goes_on).bit_count() > 1:
            separate |= reach(ways, ipdom[b.position], successors)
        return before != (differing, separate)

    solve(graph.blocks, spread)
    parted = [_ways(b, differing) for b in graph.blocks]
    return Blockwide(differing, not separate & barriers, any(ways & goes_on not in (0, ways) for ways in parted))


def _ways(b: BasicBlock, differing: int) -> int:
    """Return the successors of a block at whose branch threads may diverge, as bits. 0 if all
    threads go the same way.
    """
    parts = b.branch is not None and b.branch.reads & differing and len(set(b.successors)) > 1
    return joined(1 << s for s in b.successors) if parts else 0


def _differs(op: Op, differing: int, block: Dim3) -> bool:
    if op.form.is_per_lane or (op.form.is_load and op.space not in _COMMON_SPACES):
        return True
    if op.opcode == "cvta" and op.space == "local":
        return True
    return bool(op.reads & differing) or any(_special_differs(s, block) for s in op.sources)


def _special_differs(operand: Operand, block: Dim3) -> bool:
    if isinstance(operand, Special):
        if operand.name.startswith("tid."):
            return bool(getattr(block, operand.name[-1], 1) != 1)
        return not operand.name.startswith(_COMMON_SPECIALS)
    return any(_special_differs(part, block) for part in parts_of(operand))


# -- versions ---------------------------------------------------------------------------------------------

EVERY = 32
"""The version for multiples of this, which comes with those for some values."""

_CHOICES = {value: number_in_all(value) for value in (1, 2, 4, 8, 16)} | {EVERY: pattern_of(EVERY, [0] * WARP)}
"""Values of a register for which regions get versions: how far apart in a warp lanes exchange what they have. The
register begins with these patterns."""

_MOST_IN_VERSIONS = 100
"""Operations of a region that gets some."""


class _Search:
    """What it takes to find patterns in a kernel that is cut into regions; ``patterns`` are those that hold always.

    ``masked``, ``once`` and ``words`` are registers, as bits: those in which lanes keep what they had, those that are
    written at one place, and integers of 32 bits.
    """

    def __init__(self, graph: ControlFlowGraph, divergence: Divergence, block: Dim3, regions: Iterable[Region]) -> None:
        self.graph, self.divergence, self.block = graph, divergence, block
        self.masked = masked_in(graph, divergence.masked)
        self.masked |= joined(masked_in(region.graph, region.divergence.masked) for region in regions)
        self.once = joined(1 << index for index in written_once(graph))
        self.words = bits_in(r for op in graph.ops for r in op.written if r.bits == 32 and not r.is_float)
        self.patterns = find_patterns(graph, divergence, block, self.masked, {})

    def beginning_with(self, region: Region, start: Mapping[int, Pattern]) -> Mapping[int, Pattern]:
        """Find the patterns in a region whose registers begin with some."""
        made = patterns_from(region.graph.blocks[0].ops, start, self.patterns, self.divergence, self.block)
        known = {r: p for r, p in made.items() if self.once >> r & 1}
        fixed = self.masked
        for r in region.live:
            known.pop(r, None)
            fixed |= 1 << r
            if r in self.patterns:
                known[r] = self.patterns[r]
        return find_patterns(self.graph, self.divergence, self.block, fixed, known)


def _with_versions(region: Region, common: Blockwide, search: _Search) -> Region:
    """Return a region with versions for values of a register, if these determine how lanes access shared memory.

    xor.b32 a, t, d;                     switch d: 4: call region.1.4, where lanes 0 to 3 load what 4 to 7 stored:
    shl.b32 a, a, 2;               ->              two vectors and a constant shuffle; 8: call region.1.8; …
    ld.shared.f32 x, [a];                          else call region.1, which gathers
    """
    ops = region.graph.ops
    if region.graph.blocks[0].predecessors or len(ops) > _MOST_IN_VERSIONS:
        return region

    def vectorized(r: Region) -> int:
        return sum(vector_access(op, r.patterns) is not None for op in ops)

    for index in region.live:
        same = region.divergence.shapes[index].is_uniform and not common.differing >> index & 1
        if same and search.words >> index & 1:
            versions = {}
            for value, pattern in _CHOICES.items():
                version = replace(region, patterns=search.beginning_with(region, {index: pattern}))
                if vectorized(version) <= vectorized(region):
                    break  # nearly every register tells nothing, whatever it is
                versions[value] = version
            else:
                return replace(region, choice=index, versions=versions)
    return region


# -- stores behind a branch -------------------------------------------------------------------------------


def _if_converted(region: Region) -> Region:
    """Return a region whose stores have guards instead of divergent branches, in the versions too.

            ld.shared.f32 x, [s];           ld.shared.f32 x, [s];
            @p bra SKIP;              ->    @!p st.shared.f32 [s], y;
            st.shared.f32 [s], y;           add.f32 …
      SKIP: add.f32 …

    That is for blocks of nothing but stores to vectors that are loaded before the branch: these are written back where
    no lane runs.
    """
    region = replace(region, versions={value: _if_converted(version) for value, version in region.versions.items()})
    blocks = [replace(b, ops=list(b.ops)) for b in region.graph.blocks]
    stores: list[Op] = []
    for b in blocks:
        side = _side_of(b, blocks, region.patterns) if is_divergent_branch(b, region.divergence.shapes) else None
        if side is not None:
            branch = b.ops.pop()
            negated = branch.guard_negated != (side.position == b.successors[1])
            own = [replace(op, guard=branch.guard, guard_negated=negated) for op in side.ops if op.opcode == "st"]
            b.ops += own
            b.successors = side.successors
            stores += own
    if not stores:
        return region
    graph, whole = part_of(ControlFlowGraph(blocks, []), 0, ())
    masked = [region.divergence.masked[p] for p in whole]
    divergence = replace(region.divergence, masked=masked, inactive=inactive_in(graph, region.divergence.shapes))
    following = {p: region.following[old] for p, old in enumerate(whole) if old in region.following}
    return replace(region, graph=graph, divergence=divergence, following=following, if_converted=frozenset(stores))


def _side_of(block: BasicBlock, blocks: list[BasicBlock], patterns: Mapping[int, Pattern]) -> BasicBlock | None:
    """Find the stores that lanes pass on one side of a branch, if there is nothing else on either."""
    if block.ops[-1].opcode != "bra" or len(block.successors) != 2:
        return None
    for position, other in (block.successors, block.successors[::-1]):
        if position == len(blocks):
            continue
        side = blocks[position]
        if side.successors == (other,) and side.predecessors == [block.position]:
            ops = [op for op in side.ops if op.opcode != "bra"]
            if ops and all(op.opcode == "st" and _is_loaded(op, block, patterns) for op in ops):
                return side
    return None


def _is_loaded(store: Op, block: BasicBlock, patterns: Mapping[int, Pattern]) -> bool:
    """Whether a block loads the vectors of a store, so that it is where something may be written back."""
    access = vector_access(store, patterns)
    place = store.sources[0]
    if access is None or not isinstance(place, MemoryOperand):
        return False
    loaded = False
    for op in block.ops:
        if place.base in op.results:
            loaded = False
        if op.opcode == "ld" and op.guard is None and op.sources[0] == place and vector_access(op, patterns) == access:
            loaded = True
    return loaded


_MOST_REMADE = 12
"""Operations that a register may take to be made again: more cost more than to keep it."""


def _rematerialisable(graph: ControlFlowGraph, divergence: Divergence) -> dict[int, tuple[Op, ...]]:
    """Find the registers that are written once, from constants and special registers that never change.

    mov.u32 t, %tid.x;                   both regions begin with mov.u32 t and shl.b32 s,
    shl.b32 s, t, 2;               ->    and neither t nor s is kept
    bar.sync 0;
    ld.shared.f32 x, [s];
    """
    once = [(r, op) for r, op in written_once(graph).items() if divergence.shapes[r] != VARYING]
    found: dict[int, tuple[Op, ...]] = {}

    def find(written: tuple[int, Op]) -> bool:
        index, op = written
        before = None if index in found else _sources_remade(op, found)
        if before is not None and len(before) < _MOST_REMADE:
            found[index] = (*before, op)
            return True
        return False

    solve(once, find)
    return found


_STEADY = ("tid.", "ntid.", "ctaid.", "nctaid.", "laneid", "warpid")


def _sources_remade(op: Op, found: Mapping[int, tuple[Op, ...]]) -> tuple[Op, ...] | None:
    """List what makes the sources of an operation again; None where it cannot be done again."""
    parameter = op.opcode == "ld" and op.space == "param"
    if not (parameter or Trait.CHEAP in op.form.meaning.traits) or op.guard is not None or op.result is None:
        return None
    before: dict[Op, None] = {}
    for source in op.sources:
        remade = _remade(source, found)
        if remade is None:
            return None
        before |= dict.fromkeys(remade)
    return tuple(before)


def _remade(operand: Operand, found: Mapping[int, tuple[Op, ...]]) -> tuple[Op, ...] | None:
    """List what makes an operand again: nothing if it is always there."""
    if isinstance(operand, Reg):
        return found.get(operand.index)
    if isinstance(operand, Special):
        return () if operand.name.startswith(_STEADY) else None
    if isinstance(operand, MemoryOperand):
        return () if isinstance(operand.base, SymbolAddress) and operand.base.slot.space == "param" else None
    return None if parts_of(operand) else ()
