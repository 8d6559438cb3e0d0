"""Advice about avoidable costs of a kernel: the cause, derived from counts, and a fix.

The rules don't guess: each rule reads counts and the distances between threads. Each threshold has its source.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from cujit.devices.cpu.observe.measures import (
    SECTOR_BYTES,
    Measures,
    ProfiledInstruction,
    ProfiledKernel,
    added,
    calls_in,
    check_profiled,
    place_of,
)
from cujit.devices.cpu.run.source_map import SourceLine
from cujit.devices.device import Device
from cujit.errors import counted
from cujit.profile.estimating import saving
from cujit.profile.peaks import peaks
from cujit.values import dataclass, group_by, replace

_SHARE = 0.1
"""Source: Nsight Compute 2023.1, rule "Shared Memory Conflicts": conflicts of a tenth of all wavefronts."""

_MOST_ALIKE = 4
"""Atomic operations of a request at one word, on average, that are too many: of 32 threads that go to 32 words at
random, 3.5 meet at one (computed)."""

_PASSES = 4
"""Times that a block loads a sector that are too many: a kernel that goes over its data three times, as a softmax does,
stays below."""

_LANES = 0.75
"""Source: Nsight Compute 2021.2, rule "Thread Divergence": fewer than 24 of 32 threads for an instruction."""

_TELLS = 0.01
"""Share of the time below which an estimate has no number."""

_WARP = 32
_BANK_BYTES, _BANKS_BYTES = 4, 128
"""Source: CUDA C++ Programming Guide, "Shared Memory": 32 banks, of 32 bits each."""
_AT_ONCE, _MOST_ELEMENTS = (16, 8, 4, 2), 4
"""Source: CUDA C++ Programming Guide, "Device Memory Accesses": instructions access 1, 2, 4, 8 or 16 bytes;
"Built-in Vector Types": four elements at most."""


@dataclass(frozen=True)
class Advice:
    """An avoidable cost of one line of a kernel: the ``rule``, the ``measured`` value, the cause, and a fix.

    ``line`` is None if the advice is about the whole launch, or if the line is unknown. ``measure`` is the name of the
    measured quantity in ``Measures`` or ``ProfiledKernel``. ``finding`` contains the numbers, and ``cause`` explains
    them. ``saves`` is an estimate: the share of the kernel's time that the fix saves on ``gpu``.

    Example::

        profile = cujit.profile.Profile()
        assert [str(each) for kernel in profile.kernels for each in cujit.profile.advice_for(kernel)] == []
    """

    rule: str
    line: SourceLine | None
    measure: str
    finding: str
    cause: str
    cure: str
    saves: float = 0.0
    gpu: str = ""

    @property
    def estimate(self) -> str:
        """The saving in words; "" if it was not estimated."""
        share = f"about {self.saves:.0%}" if self.saves >= _TELLS else "almost none"
        return f"estimate for {self.gpu}: saves {share} of the run time" if self.gpu else ""

    def __str__(self) -> str:
        return f"{self.finding}: {self.cause}; {self.cure}"

    def to_json(self) -> dict[str, str | float]:
        """Return the advice as plain values."""
        return {**vars(self), "line": str(self.line or ""), "estimate": self.estimate}


def advice_for(kernel: ProfiledKernel, on: str | Device | None = None) -> tuple[Advice, ...]:
    """Return advice about the avoidable costs of a kernel, highest estimate first.

    The tuple is empty if no rule applies.

    Args:
        kernel: the counts of a kernel, from ``Profile.kernels``.
        on: the GPU for which to estimate the savings, by its name or one of this machine. Default: an H200.

    Raises:
        ArgumentError: ``kernel`` is not a profiled kernel.
        ArchError: see ``bounds``.

    Example::

        for kernel in cujit.profile.Profile().kernels:
            for advice in cujit.profile.advice_for(kernel):
                print(advice)
    """
    check_profiled(kernel)
    gpu = peaks("H200" if on is None else on)
    found = (advice for rule in _RULES for advice in rule(kernel))
    estimated = (replace(each, saves=saving(kernel, each.rule, each.line, gpu), gpu=gpu.name) for each in found)
    return tuple(sorted(estimated, key=lambda each: -each.saves))


# -- accesses by line -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Access:
    """The memory accesses of one line with the same kind and width."""

    line: SourceLine | None
    ptx_line: int
    access: str
    width_bytes: int
    stride_bytes: tuple[int, int] | None
    measures: Measures
    calls: tuple[SourceLine, ...]

    @property
    def place(self) -> str:
        """The displayed source location of the accesses."""
        return _place(self.line, self.ptx_line, self.calls)

    @property
    def verb(self) -> str:
        """The verb for the accesses: load, store, or access."""
        return {"ld": "load", "st": "store"}.get(self.access, "access")

    @property
    def ideal_sectors(self) -> int:
        """The minimum number of sectors for the requested bytes, at least one per request."""
        return max(self.measures.requests, -(-self.measures.asked_bytes // SECTOR_BYTES))

    @property
    def excess_sectors(self) -> int:
        """How many sectors are not needed; where threads are side by side, idle ones count as if they did it."""
        needed = self.ideal_sectors
        if self.is_in_a_row:
            needed = max(needed, self.measures.requests * self.width_bytes * _WARP // SECTOR_BYTES)
        return max(self.measures.sectors - needed, 0)

    @property
    def wastes_sectors(self) -> bool:
        """Whether a tenth of the sectors and more are not needed."""
        return self.excess_sectors >= _SHARE * max(self.measures.sectors, 1)

    @property
    def is_in_a_row(self) -> bool:
        """Whether adjacent threads access adjacent addresses, in either direction."""
        return self.stride_bytes in ((self.width_bytes,) * 2, (-self.width_bytes,) * 2)

    @property
    def meets_in_banks(self) -> bool:
        """Whether the distance between neighbours has them meet in banks."""
        return self.farthest > 0 and self.farthest % (2 * max(self.width_bytes, _BANK_BYTES)) == 0

    @property
    def pattern(self) -> str:
        """How far threads are from each other, in words."""
        if self.stride_bytes is None:
            return _IRREGULAR
        least, most = sorted(map(abs, self.stride_bytes))
        return f"adjacent threads access addresses {f'{least:,} to ' if least < most else ''}{most:,} bytes apart"

    @property
    def farthest(self) -> int:
        """The longest distance in bytes between adjacent threads, or 0 if the distances are irregular."""
        return max(map(abs, self.stride_bytes or (0,)))


_IRREGULAR = "adjacent threads access addresses at irregular distances"


def _accesses(rows: Iterable[ProfiledInstruction], key: Callable[[Measures], int]) -> list[_Access]:
    """Return accesses grouped by line, kind, and width, with the highest value of a measure first."""
    found = (((row.source or row.ptx_line, row.access, row.width_bytes), row) for row in rows if key(row.measures))
    made = [_access(alike) for alike in group_by(found).values()]
    return sorted(made, key=lambda each: key(each.measures), reverse=True)


def _access(rows: list[ProfiledInstruction]) -> _Access:
    strides = [row.stride_bytes for row in rows]
    known = [stride for stride in strides if stride is not None]
    stride = (min(least for least, _ in known), max(most for _, most in known)) if known == strides else None
    first = rows[0]
    measures = added(row.measures for row in rows)
    return _Access(first.source, first.ptx_line, first.access, first.width_bytes, stride, measures, calls_in(rows))


def _place(line: SourceLine | None, ptx_line: int, calls: Sequence[SourceLine]) -> str:
    return place_of(line, calls) or f"PTX line {ptx_line}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"


def _moves(access: _Access) -> str:
    m = access.measures
    sectors, requested = _number(m.sectors_per_request), _number(m.asked_bytes / m.requests)
    return f"each warp's {access.verb} at {access.place} moves {sectors} sectors for {requested} bytes"


# -- global memory ----------------------------------------------------------------------------------------------


def _loads_and_stores(kernel: ProfiledKernel) -> list[ProfiledInstruction]:
    return [row for row in kernel.instructions if row.access not in ("atom", "red") and row.measures.requests]


def _global_memory(kernel: ProfiledKernel) -> Iterator[Advice]:
    """Yield advice about sectors that move without being requested: possible vectors, strides, and misalignment.

    Source: CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory", with "Effects of Misaligned Accesses"
    and "Effects of Strided Accesses"; Nsight Compute, rule "Uncoalesced Global Accesses": sectors beyond the ideal.
    """
    rows = _loads_and_stores(kernel)
    pieces = _pieces(rows)
    for alike in pieces:
        yield _vectors(alike)
    known = {row.ptx_line for alike in (*pieces, *_stencils(rows)) for row in alike}
    accesses = _accesses((row for row in rows if row.ptx_line not in known), lambda m: m.sectors)
    excess = sum(access.excess_sectors for access in accesses)
    if excess < _SHARE * kernel.totals.sectors:
        return
    for access in accesses:
        if access.wastes_sectors and access.excess_sectors >= _SHARE * excess:
            yield _misaligned(access) if access.is_in_a_row else _uncoalesced(access)


def _uncoalesced(access: _Access) -> Advice:
    if access.stride_bytes is None:
        cure = "sort the accesses by address, or stage the data through shared memory"
    elif access.farthest <= _BANKS_BYTES:
        cure = "have adjacent threads access adjacent elements (an array for each member of a structure), or stage the "
        cure += "data through shared memory"
    else:
        cure = "swap the indices so that adjacent threads access adjacent elements, or stage the data through shared "
        cure += "memory"
    return Advice("uncoalesced", access.line, "sectors_per_request", _moves(access), access.pattern, cure)


def _misaligned(access: _Access) -> Advice:
    cause = f"adjacent threads access adjacent addresses, but the first address isn't a multiple of {SECTOR_BYTES}"
    cure = "pad each row to a multiple of 32 bytes, and shift the threads instead of the array"
    return Advice("misaligned", access.line, "sectors_per_request", _moves(access), cause, cure)


_ADDRESS = re.compile(r"\[(%\w+)(?:\+(-?\d{1,18}))?\]")


def _by_base(rows: Iterable[ProfiledInstruction]) -> dict[object, dict[int, ProfiledInstruction]]:
    """Find accesses at constant distances from one register."""
    found: dict[object, dict[int, ProfiledInstruction]] = {}
    for row in rows:
        address = _ADDRESS.search(row.text)
        if address is not None and row.stride_bytes is not None:
            key = address[1], row.access, row.width_bytes, row.stride_bytes
            found.setdefault(key, {})[int(address[2] or 0)] = row
    return found


def _pieces(rows: Iterable[ProfiledInstruction]) -> list[list[ProfiledInstruction]]:
    """Return groups of loads or stores that together cover all bytes between adjacent threads."""
    found = []
    for alike in _by_base(rows).values():
        row = next(iter(alike.values()))
        (stride, most), width, first = row.stride_bytes or (0, 0), row.width_bytes, min(alike)
        fills = stride == most == width * len(alike) and width in _VECTORS and width < _at_once(stride)
        if fills and alike.keys() == {*range(first, first + stride, width)}:
            found.append(list(alike.values()))
    return found


def _at_once(stride: int) -> int:
    """Return the first access size of ``_AT_ONCE`` that divides the stride, or 0."""
    return next((size for size in _AT_ONCE if stride % size == 0), 0)


def _vectors(rows: list[ProfiledInstruction]) -> Advice:
    access, many = _access(rows), len(rows)
    at_once = _at_once(access.farthest)
    m = access.measures
    moved, requested = many * m.sectors_per_request, many * m.asked_bytes / m.requests
    finding = f"{many} {access.verb}s of {counted(access.width_bytes, 'byte')} at {access.place} "
    finding += f"move {_number(moved)} sectors per warp for {_number(requested)} bytes"
    cause = f"each thread accesses {access.farthest} adjacent bytes in several instructions"
    cure = f"access {at_once} aligned bytes at once, for example as {_vector(access.width_bytes, at_once)}"
    return Advice("narrow", access.line, "sectors_per_request", finding, cause, cure)


_VECTORS = {1: "uchar", 2: "ushort", 4: "float", 8: "double"}


def _vector(width: int, at_once: int) -> str:
    name, count = _VECTORS[width], at_once // width
    return f"{name}{count}" if count <= _MOST_ELEMENTS else f"uint{at_once // 4}"


def _stencils(rows: Iterable[ProfiledInstruction]) -> list[list[ProfiledInstruction]]:
    """Return groups of accesses to one base of which at least one wastes no sectors.

    The group accesses the extra sectors of the others anyway.
    """
    found = (list(alike.values()) for alike in _by_base(rows).values())
    return [alike for alike in found if not all(_access([row]).wastes_sectors for row in alike)]


def _redundant(kernel: ProfiledKernel) -> Iterator[Advice]:
    """Yield advice about loads that a block repeats.

    Source: CUDA C++ Best Practices Guide, "Shared Memory in Matrix Multiplication (C=AB)".
    """
    accesses = _accesses(_loads_and_stores(kernel), lambda m: m.sectors)
    needed = {access: min(access.ideal_sectors, access.measures.sectors) for access in accesses}
    loads = [access for access in accesses if access.access == "ld" and not access.wastes_sectors]
    times = sum(needed.values()) / max(kernel.block_sectors, 1)
    if times < _PASSES or not loads:
        return
    first = loads[0]
    often = _number(round(times, 1))
    finding = f"a block accesses each of its sectors {often} times, most often by the load at {first.place}"
    cause = "its threads load data again that the block has already loaded"
    cure = "load each tile into shared memory or registers once, and read it there"
    yield Advice("redundant", first.line, "block_sectors", finding, cause, cure)


def _local_memory(kernel: ProfiledKernel) -> Iterator[Advice]:
    """Arrays that are not in registers.

    Source: CUDA C++ Programming Guide, "Device Memory Accesses: Local Memory".
    """
    totals = kernel.totals
    if totals.local_sectors < _SHARE * (totals.sectors + totals.local_sectors) or not totals.local_sectors:
        return
    worst = _accesses(kernel.instructions, lambda m: m.local_sectors)[0]
    of_it = worst.measures.local_sectors
    finding = f"local memory moves {totals.local_sectors:,} sectors, {of_it:,} of them at {worst.place}"
    cause = "an array with computed indices, or whose address is taken, can't be kept in registers"
    cure = "unroll the loops over the array so that each index is a constant, or use shared memory"
    yield Advice("local_memory", worst.line, "local_sectors", finding, cause, cure)


# -- shared memory, atomic operations ---------------------------------------------------------------------------


def _bank_conflicts(kernel: ProfiledKernel) -> Iterator[Advice]:
    """Yield advice about threads that access different words of one bank.

    Source: Nsight Compute, rule "Shared Memory Conflicts"; CUDA C++ Best Practices Guide, "Shared Memory and Memory
    Banks", and "Shared Memory in Matrix Multiplication (C=AAT)" for the additional column.
    """
    rows = [row for row in kernel.instructions if row.access not in ("atom", "red")]
    totals = kernel.totals
    if totals.bank_conflicts < _SHARE * totals.wavefronts:
        return
    for access in _accesses(rows, lambda m: m.bank_conflicts):
        m = access.measures
        if m.bank_conflicts < _SHARE * max(m.wavefronts, totals.bank_conflicts):
            continue
        least, found = ((m.wavefronts - fewer) / m.shared_requests for fewer in (m.bank_conflicts, 0))
        finding = f"each warp's {access.verb} at {access.place} takes {_number(found)} wavefronts of shared memory"
        finding += f" instead of {_number(least)}"
        pattern = access.pattern if access.meets_in_banks else _IRREGULAR
        cause = f"{pattern}, which fall into few of the 32 banks"
        yield Advice("bank_conflicts", access.line, "bank_conflicts", finding, cause, _parted(access))


def _parted(access: _Access) -> str:
    """Describe how to separate threads that conflict in banks."""
    least, most = sorted(map(abs, access.stride_bytes or (0, 0)))
    if not access.meets_in_banks:
        return "spread the addresses of each warp over the banks"
    if least == most >= _BANKS_BYTES:
        more = max(access.width_bytes, _BANK_BYTES)
        return f"pad each row by one {more}-byte element, so that a stride of {most + more:,} bytes uses all 32 banks"
    return "let adjacent threads access adjacent words"


def _contended(kernel: ProfiledKernel) -> Iterator[Advice]:
    """Threads of a warp that update one word, one after the other.

    Source: CUDA C++ Programming Guide, "Atomic Functions", and "Warp Reduce Functions".
    """
    rows = [row for row in kernel.instructions if row.access in ("atom", "red")]
    for access in _accesses(rows, lambda m: m.contended + m.bank_conflicts):
        m = access.measures
        requests, alike = (m.requests, m.contended) if m.contended else (m.shared_requests, m.wavefronts)
        if alike < _MOST_ALIKE * requests:
            continue
        where = "the same word" if m.contended else "one bank of shared memory"
        many = _number(round(alike / requests, 1))
        finding = f"in each warp's atomic operation at {access.place}, {many} threads update {where}"
        cure = "add up within the warp first (__reduce_add_sync or shuffles)"
        if m.contended:
            cure += ", or give each block a copy in shared memory"
        cause = "the updates run one after the other"
        yield Advice("contended_atomics", access.line, "contended", finding, cause, cure)


# -- threads ------------------------------------------------------------------------------------------------------


def _divergence(kernel: ProfiledKernel) -> Iterator[Advice]:
    """Branches that part the threads of a warp.

    Source: CUDA C++ Best Practices Guide, "Branching and Divergence"; Nsight Compute, rule "Thread Divergence".
    """
    totals = kernel.totals
    there = totals.warps * kernel.threads / max(kernel.warps, 1)
    branches = sorted(kernel.lines(), key=lambda line: line.measures.divergent_branches, reverse=True)
    worst = branches[0] if branches else None
    if worst is None or not worst.measures.divergent_branches or totals.active >= _LANES * there:
        return
    jumps = [row for row in kernel.instructions if row.source == worst.source and row.measures.divergent_branches]
    parted, came = worst.measures.divergent_branches, sum(row.measures.warps for row in jumps)
    place = _place(worst.source, jumps[0].ptx_line, worst.inlined_at)
    finding = f"warps diverge at {place}, {parted:,} of {came:,} times"
    cause = f"{100 - 100 * totals.active / there:.0f} % of the kernel's lanes wait for other lanes of their warps"
    cure = "let all threads of a warp take the same branch: assign the work to adjacent threads, or sort it by kind"
    yield Advice("divergence", worst.source, "divergent_branches", finding, cause, cure)


def _partial_warps(kernel: ProfiledKernel) -> Iterator[Advice]:
    """Blocks that are no multiple of a warp.

    Source: CUDA C++ Best Practices Guide, "Thread and Block Heuristics"; Nsight Compute, rule "Launch Configuration".
    """
    if kernel.threads == kernel.warps * _WARP:
        return
    finding = f"warps have {_number(round(kernel.threads / kernel.warps, 1))} of {_WARP} threads on average"
    cause = f"the block size is {_number(round(kernel.threads / kernel.blocks, 1))}, which isn't a multiple of {_WARP}"
    cure = f"launch blocks with a multiple of {_WARP} threads, such as 256, and let surplus threads return early"
    yield Advice("partial_warps", None, "active_lanes", finding, cause, cure)


def _double_precision(kernel: ProfiledKernel) -> Iterator[Advice]:
    """Floats that are widened, computed with and narrowed in one line.

    Source: CUDA C++ Best Practices Guide, "Single vs. Double Precision" and "Math Libraries": constants without an f
    are doubles.
    """
    for line, rows in group_by((row.source, row) for row in kernel.instructions).items():
        doubles = sum(row.measures.threads for row in rows if row.pipe == "fp64")
        widens = any(row.words[0] == "cvt" and row.words[-2:] == ["f64", "f32"] for row in rows)
        narrows = any(row.words[0] == "cvt" and row.words[-2:] == ["f32", "f64"] for row in rows)
        if line is None or not (doubles and widens and narrows):
            continue
        finding = f"{place_of(line, calls_in(rows))} computes {doubles:,} operations in double precision"
        cause = "a constant without the suffix f converts floats to double and the result back to float"
        cure = "write constants such as 2.0f, and call float functions such as sqrtf and expf"
        yield Advice("double_precision", line, "flops", finding, cause, cure)


_RULES = (
    _global_memory,
    _redundant,
    _local_memory,
    _bank_conflicts,
    _contended,
    _divergence,
    _double_precision,
    _partial_warps,
)
