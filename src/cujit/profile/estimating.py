"""Estimates of the share of time on a GPU that a kernel saves by following a piece of advice.

A model adds up the work of a GPU's units, before and after. Its parameters outside the table of peaks were fitted to
the times of an H200, for the twenty tuning pairs of ``benchmarks/advice_pairs.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from cujit.devices.cpu.observe.measures import SECTOR_BYTES, Measures, ProfiledInstruction, ProfiledKernel
from cujit.devices.cpu.run.source_map import SourceLine
from cujit.profile.bounding import merged, special_results, type_results
from cujit.profile.peaks import SLOTS, SPECIAL, WAVEFRONTS, Peaks
from cujit.values import replace

_WARP = 32
_BLOCK = 256
"""Threads of a block that the advice about partial warps names."""

_POWER = 1.5
"""Units overlap in part: their times add up as powers of this. 1 would be none of it, infinity a bound."""

# Measured on an H200, by the pairs to tune.
_BLOCKS = 0.83
"""Blocks that a GPU starts in a clock cycle."""
_REQUEST_CYCLES = 1.8
_LOCAL_CYCLES = 1.0
"""Clock cycles of a multiprocessor for a request to global memory, and for a sector of local memory."""
_ATOMIC_CYCLES = 1.5
"""Clock cycles between two updates of one word."""
_MEMORY_SECTORS = 2
"""Sectors that memory moves where one is wanted: it has 64 bytes at once."""
_CONVERSIONS = 16
"""Numbers that a multiprocessor makes double or single precision of in a clock cycle."""
_ISSUED = 0.5
"""Machine instructions that ptxas makes of one of the PTX: it merges many, above all those of addresses."""
_MERGED = 0.5
"""Accesses to shared memory that it makes of one: it merges neighbours."""
_ROOT_STEPS = 10
"""Operations on doubles for a root or a quotient."""


def saving(kernel: ProfiledKernel, rule: str, line: SourceLine | None, gpu: Peaks) -> float:
    """Estimate which share of a kernel's time on a GPU advice saves, if the launch fills that GPU: 0 to 1."""
    before = _seconds(kernel, gpu)
    return max(0.0, 1 - _seconds(_FOLLOWED[rule](kernel, line), gpu) / before) if before else 0.0


# -- time ---------------------------------------------------------------------------------------------------------


def _seconds(kernel: ProfiledKernel, gpu: Peaks) -> float:
    """Estimate the time of a launch that fills a GPU and whose data don't fit into the L2 cache."""
    kernel = merged(kernel)
    rows, clock = kernel.instructions, gpu.clock_mhz * 1e6
    wasted = min(kernel.block_sectors - kernel.distinct_sectors, sum(_excess(row.measures) for row in rows))
    moved = kernel.distinct_sectors + _MEMORY_SECTORS * max(wasted, 0)
    parts = [
        kernel.blocks / _BLOCKS / clock,
        moved * SECTOR_BYTES / gpu.memory_bytes_per_s,
        kernel.block_sectors * SECTOR_BYTES / (gpu.l2_bytes * clock) if gpu.l2_bytes else 0.0,
        _ATOMIC_CYCLES * sum(map(_updates, rows)) / clock,
        *(cycles / gpu.per_second(1) for cycles in _cycles(rows, kernel.totals, gpu)),
    ]
    return float(sum(part**_POWER for part in parts) ** (1 / _POWER))


def _cycles(rows: Iterable[ProfiledInstruction], totals: Measures, gpu: Peaks) -> list[float]:
    """List the clock cycles of each unit of one multiprocessor."""
    special = {row: special_results(row) for row in rows}
    roots = sum(count for row, count in special.items() if row.type == "f64")
    doubles = sum(type_results(row, "f64") for row in rows) + _ROOT_STEPS * roots
    return [
        _REQUEST_CYCLES * totals.requests,
        _LOCAL_CYCLES * totals.local_sectors,
        totals.wavefronts / WAVEFRONTS,
        _ISSUED * totals.warps / SLOTS,
        (sum(special.values()) - roots) / SPECIAL,
        doubles / gpu.fp64,
        _WARP * sum(row.measures.warps for row in rows if _is_widening(row)) / _CONVERSIONS,
    ]


def _excess(m: Measures) -> int:
    return max(m.sectors - _ideal(m), 0)


def _ideal(m: Measures) -> int:
    return max(m.requests, -(-m.asked_bytes // SECTOR_BYTES))


def _updates(row: ProfiledInstruction) -> int:
    """Return the number of serialized updates.

    ptxas merges the updates of a warp into one if all its threads update the same word.

    Source: measured on an H200: pairs "sum" and "largest".
    """
    m = row.measures
    return m.requests if m.contended == m.threads else m.contended


def _is_widening(row: ProfiledInstruction) -> bool:
    return row.words[0] == "cvt" and "f64" in row.words and "f32" in row.words


# -- what remains once advice is followed ---------------------------------------------------------------------------


def _with_rows(
    kernel: ProfiledKernel,
    is_meant: Callable[[ProfiledInstruction], bool],
    change: Callable[[ProfiledInstruction], ProfiledInstruction],
) -> ProfiledKernel:
    rows = (change(row) if is_meant(row) else row for row in kernel.instructions)
    return replace(kernel, instructions=tuple(rows))


def _measured(row: ProfiledInstruction, **changed: int) -> ProfiledInstruction:
    return replace(row, measures=replace(row.measures, **changed))


def _coalesced(kernel: ProfiledKernel, line: SourceLine | None) -> ProfiledKernel:
    found = _with_rows(
        kernel,
        lambda row: row.source == line and row.measures.requests > 0,
        lambda row: _measured(row, sectors=min(_ideal(row.measures), row.measures.sectors)),
    )
    fewer = kernel.totals.sectors - found.totals.sectors
    needed = found.totals.sectors
    distinct, of_blocks = (
        min(count, max(count - fewer, needed)) for count in (kernel.distinct_sectors, kernel.block_sectors)
    )
    return replace(found, distinct_sectors=distinct, block_sectors=of_blocks)


def _vectorized(kernel: ProfiledKernel, line: SourceLine | None) -> ProfiledKernel:
    def change(row: ProfiledInstruction) -> ProfiledInstruction:
        m = row.measures
        times = min(16, max(map(abs, row.stride_bytes or (0,)))) // row.width_bytes or 1
        sectors = max(1, _ideal(m) // times)
        return _measured(row, requests=m.requests // times, warps=m.warps // times, sectors=sectors)

    return _with_rows(kernel, lambda row: row.source == line and row.measures.requests > 0, change)


def _staged(kernel: ProfiledKernel, _: SourceLine | None) -> ProfiledKernel:
    """Return a profile in which the repeated loads of a block use shared memory."""
    kept = min(1, kernel.block_sectors / max(kernel.totals.sectors, 1))

    def change(row: ProfiledInstruction) -> ProfiledInstruction:
        m = row.measures
        requests = round(m.requests * kept)
        again = m.requests - requests
        return _measured(
            row,
            requests=requests,
            sectors=round(m.sectors * kept),
            shared_requests=again,
            wavefronts=round(again * _MERGED),
        )

    return _with_rows(kernel, lambda row: row.access == "ld" and row.measures.requests > 0, change)


def _in_registers(kernel: ProfiledKernel, _: SourceLine | None) -> ProfiledKernel:
    return _with_rows(
        kernel, lambda row: row.measures.local_requests > 0, lambda row: replace(row, measures=Measures())
    )


def _spread(kernel: ProfiledKernel, line: SourceLine | None) -> ProfiledKernel:
    return _with_rows(
        kernel,
        lambda row: row.source == line,
        lambda row: _measured(row, wavefronts=row.measures.wavefronts - row.measures.bank_conflicts, bank_conflicts=0),
    )


def _aggregated(kernel: ProfiledKernel, line: SourceLine | None) -> ProfiledKernel:
    return _with_rows(
        kernel,
        lambda row: row.source == line and row.access in ("atom", "red"),
        lambda row: _measured(row, contended=row.measures.requests, wavefronts=row.measures.shared_requests),
    )


def _full_warps(kernel: ProfiledKernel, _: SourceLine | None) -> ProfiledKernel:
    """Count as few warps for each instruction as hold its threads."""
    each = kernel.threads / max(kernel.warps, 1)
    return _with_rows(
        kernel,
        lambda row: row.measures.warps > 0,
        lambda row: _measured(row, warps=round(row.measures.active / each)),
    )


def _whole_blocks(kernel: ProfiledKernel, _: SourceLine | None) -> ProfiledKernel:
    full = kernel.threads / max(_WARP * kernel.warps, 1)

    def change(row: ProfiledInstruction) -> ProfiledInstruction:
        m = row.measures
        return _measured(
            row,
            warps=round(m.warps * full),
            requests=round(m.requests * full),
            shared_requests=round(m.shared_requests * full),
            wavefronts=round(m.wavefronts * full),
        )

    blocks = min(kernel.blocks, -(-kernel.threads // _BLOCK))
    return replace(_with_rows(kernel, lambda row: row.measures.warps > 0, change), blocks=blocks)


def _single_precision(kernel: ProfiledKernel, line: SourceLine | None) -> ProfiledKernel:
    return _with_rows(
        kernel,
        lambda row: row.source == line and ("f64" in row.words),
        lambda row: replace(row, measures=Measures()) if _is_widening(row) else _narrowed(row),
    )


def _narrowed(row: ProfiledInstruction) -> ProfiledInstruction:
    return replace(row, text=row.text.replace(".f64", ".f32"), type="f32")


_FOLLOWED: Mapping[str, Callable[[ProfiledKernel, SourceLine | None], ProfiledKernel]] = {
    "uncoalesced": _coalesced,
    "misaligned": _coalesced,
    "narrow": _vectorized,
    "redundant": _staged,
    "local_memory": _in_registers,
    "bank_conflicts": _spread,
    "contended_atomics": _aggregated,
    "divergence": _full_warps,
    "double_precision": _single_precision,
    "partial_warps": _whole_blocks,
}
