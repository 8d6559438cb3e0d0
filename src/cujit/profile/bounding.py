"""Bounds: the minimum time that each unit of a GPU needs for the counted work."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from cujit.devices.cpu.observe.measures import (
    SECTOR_BYTES,
    Measures,
    ProfiledInstruction,
    ProfiledKernel,
    check_profiled,
)
from cujit.devices.cpu.run.source_map import SourceLine
from cujit.devices.device import Device
from cujit.profile.peaks import REQUESTS, SECTORS, SHUFFLES, SLOTS, SPECIAL, WAVEFRONTS, Peaks, peaks
from cujit.values import NamedTuple, attributes, dataclass, replace

_WARP = 32

NOT_MODELLED = (
    "latency and occupancy; SM load imbalance; texture units, local memory, atomic units and contention; integer "
    "arithmetic, conversions and moves, which ptxas merges; clock rates above the published one"
)
"""What a bound knows nothing of, and a launch pays for."""


@dataclass(frozen=True)
class Bound:
    """A lower bound of the launch time in ``seconds``, from the work of one ``unit`` of the GPU.

    The unit processes at most ``per_second`` of the counted quantity ``what``, and its work is ``amount``. ``share`` is
    the part of ``amount`` at ``line``, which is None if unknown. ``cause`` is set if a line causes unnecessary work.
    ``assumes`` names the condition under which the bound holds, if any.
    """

    unit: str
    amount: float
    what: str
    per_second: float
    line: SourceLine | None
    share: float
    cause: str = ""
    assumes: str = ""

    @property
    def seconds(self) -> float:
        """The bound."""
        return self.amount / self.per_second

    @property
    def place(self) -> str:
        """The file name and the line number, or an empty string if the line is unknown."""
        return f"{Path(self.line.file).name}:{self.line.line}" if self.line is not None else ""

    def __str__(self) -> str:
        line = f", {self.share:.0%} of it at {self.place}" if self.place else ""
        cause = f", {self.cause}" if self.cause else ""
        assumes = f", if {self.assumes}" if self.assumes else ""
        return f"{self.unit}, a lower bound of {micros(self.seconds)}{line}{cause}{assumes}"

    def to_json(self) -> dict[str, Any]:
        """Return the bound as plain values."""
        return {
            "unit": self.unit,
            "bound_s": self.seconds,
            **attributes(self, "amount what per_second"),
            "line": str(self.line or ""),
            **attributes(self, "share cause assumes"),
        }


@dataclass(frozen=True)
class KernelBounds:
    """Lower bounds of the time of a kernel's launches by unit of a GPU, tightest first.

    ``flops_per_byte`` is the arithmetic intensity by the distinct sectors of global memory. ``flops_per_l1_byte`` is
    the same by all moved sectors. Each is None if no sectors are moved. ``unknown`` names the operations without a
    throughput in the table.
    """

    kernel: str
    gpu: Peaks
    bounds: tuple[Bound, ...]
    flops: int
    flops_per_byte: float | None
    flops_per_l1_byte: float | None
    unknown: tuple[str, ...]

    @property
    def tightest(self) -> Bound | None:
        """The highest lower bound, or None without bounds."""
        return self.bounds[0] if self.bounds else None

    @property
    def seconds(self) -> float:
        """The time of the tightest bound, or 0 without bounds."""
        return self.bounds[0].seconds if self.bounds else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the bounds as plain values."""
        return {
            "gpu": self.gpu.name,
            "clock_mhz": self.gpu.clock_mhz,
            "bounds": [bound.to_json() for bound in self.bounds],
            "flops_per_byte": self.flops_per_byte,
            "flops_per_l1_byte": self.flops_per_l1_byte,
            "unknown": list(self.unknown),
            "not_modelled": NOT_MODELLED,
        }

    def __str__(self) -> str:
        where = f"{self.kernel} on {self.gpu}, {self.gpu.clock_mhz:,} MHz"
        return f"{where}: {self.tightest or 'no lower bound, because the launch used no unit that cujit models'}"


def micros(seconds: float) -> str:
    """Write a time in three figures."""
    number, unit = (seconds * 1e6, "µs") if seconds < 1 else (seconds, "s")
    rounded = float(f"{number:.3g}")
    return f"{rounded:,.0f} {unit}" if rounded >= 1000 else f"{rounded:g} {unit}"


def bounds(kernel: ProfiledKernel, on: str | Device) -> KernelBounds:
    """Return lower bounds of the time that all launches of a profiled kernel need on a GPU. No GPU is needed.

    Args:
        kernel: the counts of a kernel, from ``Profile.kernels``.
        on: a GPU by its name (``"H200"``), or one of this machine.

    Raises:
        ArgumentError: ``kernel`` is not a profiled kernel.
        ArchError: no GPU has this name, or its clock and bandwidths are not in the table.

    Example::

        profile = cujit.profile.Profile()
        profiled = cujit.cpu(profile=profile)
        cujit.jit(CODE, names=["axpy<float>"], device=profiled, name="axpy.cu")["axpy<float>"][1, 32](2.0, x, y, 32)
        print(cujit.profile.bounds(profile.kernels[0], "H200"))
    """
    check_profiled(kernel)
    gpu = peaks(on)
    kernel = merged(kernel)
    unknown: dict[str, None] = {}
    found = [*_of_memory(kernel, gpu), *_of_units(kernel, gpu, unknown)]
    ranked = sorted((bound for bound in found if bound.amount), key=lambda bound: -bound.seconds)
    total = kernel.totals
    moved = kernel.distinct_sectors * SECTOR_BYTES
    return KernelBounds(
        kernel.name,
        gpu,
        tuple(ranked),
        total.flops,
        total.flops / moved if moved else None,
        total.flops / total.moved_bytes if total.moved_bytes else None,
        tuple(unknown),
    )


# -- what ptxas makes one of ----------------------------------------------------------------------------------------

_ADDRESS = re.compile(r"\[([^\]+]+)(?:\+(-?\d{1,18}))?\]")
_WIDEST_BYTES = 16


def merged(kernel: ProfiledKernel) -> ProfiledKernel:
    """Merge accesses to adjacent words of shared memory, because ptxas may merge them.

    Only the access with the most wavefronts keeps its counts.

    The merged access delivers all words that the single accesses read from a bank. It therefore needs at least as many
    wavefronts as each of them. An access of 8 bytes was counted for each half of a warp, and both halves may read the
    same words.

    Source: measured with the ptxas of CUDA 13: it merges ``ld`` and ``st`` of 4 and 8 bytes of shared memory with one
    base. It merges no accesses to global memory, and no volatile or shorter ones.
    """
    rows = list(kernel.instructions)
    for window in _windows(rows):
        kept = max(window, key=lambda k: rows[k].measures.wavefronts)
        for k in window:
            m = rows[k].measures
            waves = 0 if k != kept else m.wavefronts if rows[k].width_bytes == 4 else (m.wavefronts + 1) // 2
            requests = m.shared_requests if k == kept else 0
            merged = replace(m, shared_requests=requests, wavefronts=waves, bank_conflicts=0)
            rows[k] = replace(rows[k], measures=merged)
    return replace(kernel, instructions=tuple(rows))


def _windows(rows: Sequence[ProfiledInstruction]) -> list[list[int]]:
    """Find accesses that may become one, by number: of 16 bytes together at most."""
    bases: dict[tuple[str, int, str], list[tuple[int, int]]] = {}
    for k, row in enumerate(rows):
        where = _ADDRESS.search(row.text)
        may = row.measures.shared_requests and row.words[0] in ("ld", "st") and "volatile" not in row.words
        if where is not None and may and row.width_bytes in (4, 8):
            key = row.words[0], row.width_bytes, where[1]
            bases.setdefault(key, []).append((int(where[2] or 0), k))
    found: list[list[int]] = []
    for places in bases.values():
        first = min(places)[0] - _WIDEST_BYTES
        for offset, k in sorted(places):
            if offset - first >= _WIDEST_BYTES:
                first = offset
                found.append([])
            found[-1].append(k)
    return [window for window in found if len(window) > 1]


# -- memory and caches --------------------------------------------------------------------------------------------


def _of_memory(kernel: ProfiledKernel, gpu: Peaks) -> list[Bound]:
    """Return bounds from the minimum traffic to memory and to the L2 cache. The source lines are unknown."""
    size = f" of {gpu.l2_mib} MiB" if gpu.l2_mib else ""
    cold = f"the L2 cache{size} contains none of the data at the start, and all results are written back"
    rows = [("memory", kernel.distinct_sectors, gpu.memory_bytes_per_s, cold)]
    if gpu.l2_bytes:
        own = "the L1 cache keeps no data from block to block"
        rows.append(("L2 cache", kernel.block_sectors, gpu.l2_bytes * gpu.clock_mhz * 1e6, own))
    return [
        Bound(unit, sectors * SECTOR_BYTES, "bytes", rate, None, 0, assumes=assumes)
        for unit, sectors, rate, assumes in rows
    ]


def _most(
    rows: Iterable[ProfiledInstruction], count: Callable[[ProfiledInstruction], float]
) -> tuple[SourceLine | None, float]:
    """Return the known line with the highest count, and its share of the total.

    Return None and 0 if no known line has a count.
    """
    found: dict[SourceLine | None, float] = {}
    for row in rows:
        found[row.source] = found.get(row.source, 0) + count(row)
    total, known = sum(found.values()), {line: n for line, n in found.items() if line is not None and n}
    if not known:
        return None, 0.0
    line = max(known, key=lambda line: known[line])
    return line, known[line] / total


def _at(kernel: ProfiledKernel, line: SourceLine | None) -> Measures:
    """Return the measures of a line."""
    return next((each.measures for each in kernel.lines() if line and each.source == line), Measures())


def _scattered(kernel: ProfiledKernel, line: SourceLine | None) -> str:
    here = _at(kernel, line)
    wasted = here.moved_bytes > 2 * here.asked_bytes
    return f"{here.sectors_per_request:.3g} sectors a request" if wasted else ""


def _conflicting(kernel: ProfiledKernel, line: SourceLine | None) -> str:
    here = _at(kernel, line)
    return (
        f"{here.wavefronts / (here.wavefronts - here.bank_conflicts):.3g}-way bank conflicts"
        if here.bank_conflicts
        else ""
    )


# -- parts of a multiprocessor ------------------------------------------------------------------------------------


class _ExecutionUnit(NamedTuple):
    """A unit of an SM: its maximum throughput per clock cycle, and the work of each instruction for it."""

    name: str
    what: str
    each: float
    amount: Callable[[ProfiledInstruction], float]
    saved: float = 0
    """So many of these ptxas may make a part of others."""

    cause: Callable[[ProfiledKernel, SourceLine | None], str] | None = None


def _of_units(kernel: ProfiledKernel, gpu: Peaks, unknown: dict[str, None]) -> list[Bound]:
    rows = kernel.instructions
    merged = {name: _mergeable(rows, name) for name in _TYPES}
    arithmetic = (("f32", gpu.fp32), ("f64", gpu.fp64), ("f16", gpu.fp16))
    units = [
        _ExecutionUnit("L1 cache", "sectors", SECTORS, lambda row: row.measures.sectors, cause=_scattered),
        _ExecutionUnit(
            "shared memory", "wavefronts", WAVEFRONTS, lambda row: row.measures.wavefronts, cause=_conflicting
        ),
        _ExecutionUnit("load/store unit", "requests", REQUESTS, _requests),
        _ExecutionUnit(
            "shuffles", "threads", SHUFFLES, lambda row: _WARP * row.measures.warps * (row.words[0] == "shfl")
        ),
        _ExecutionUnit("special functions", "results", SPECIAL, special_results),
        *(
            _ExecutionUnit(
                f"arithmetic of {name}", "results", each, functools.partial(type_results, name=name), merged[name]
            )
            for name, each in arithmetic
        ),
        *_tensor_units(rows, gpu, unknown),
        _ExecutionUnit("issue slots", "warp instructions", SLOTS, _issued, sum(merged.values()) / _WARP),
    ]
    return [_bound(kernel, unit, gpu) for unit in units]


def _bound(kernel: ProfiledKernel, unit: _ExecutionUnit, gpu: Peaks) -> Bound:
    amount = sum(map(unit.amount, kernel.instructions)) - unit.saved
    line, share = _most(kernel.instructions, unit.amount)
    cause = unit.cause(kernel, line) if unit.cause else ""
    return Bound(unit.name, amount, unit.what, gpu.per_second(unit.each, kernel.blocks), line, share, cause)


def _requests(row: ProfiledInstruction) -> int:
    return row.measures.requests + row.measures.shared_requests


def _lanes(row: ProfiledInstruction) -> int:
    """Return the lanes that an instruction uses: active threads if predicated, otherwise all lanes of its warps.

    ptxas may branch around a predicated instruction.
    """
    return row.measures.threads if row.text.startswith("@") else _WARP * row.measures.warps


def special_results(row: ProfiledInstruction) -> int:
    """Return the lanes of an instruction that uses the special unit, or 0 for other instructions.

    Divisions by a constant and approximate divisions count as 0.

    Source: measured with the ptxas of CUDA 13: approximate divisions by one number share its reciprocal, rounded ones
    do not.
    """
    is_counted = row.pipe == "special" and row.type in _SPECIAL_TYPES
    if row.words[0] == "div":
        is_counted = is_counted and "%" in row.text.rpartition(",")[2] and not _ROUNDINGS.isdisjoint(row.words)
    return _lanes(row) if is_counted else 0


_ROUNDINGS = frozenset(("rn", "rz", "rm", "rp", "rna", "rs"))
_SPECIAL_TYPES = ("f16", "f16x2", "bf16", "bf16x2", "f32", "f64")
_TYPES = {"f32": ("f32", "f32x2"), "f64": ("f64",), "f16": ("f16", "f16x2", "bf16", "bf16x2")}


def type_results(row: ProfiledInstruction, name: str) -> int:
    """Count the results of additions and multiplications on numbers of a type."""
    if row.type not in _TYPES[name] or row.words[0] not in ("add", "sub", "mul", "fma", "mad"):
        return 0
    return _lanes(row) * (2 if row.type.endswith("x2") else 1)


def _mergeable(rows: Iterable[ProfiledInstruction], name: str) -> int:
    """Count the sums or products, whichever are fewer, that ptxas may make a part of the others.

    Source: PTX ISA 9.1, "Floating Point Instructions: add": without a rounding, the two may become one.
    """
    free = [row for row in rows if _ROUNDINGS.isdisjoint(row.words)]
    sums = sum(type_results(row, name) for row in free if row.words[0] in ("add", "sub"))
    return min(sums, sum(type_results(row, name) for row in free if row.words[0] == "mul"))


def _issued(row: ProfiledInstruction) -> float:
    """Return the minimum number of issued instructions, which ptxas neither merges nor removes."""
    packed = 2 if row.type.endswith("x2") else 1
    arithmetic = sum(type_results(row, name) for name in _TYPES) / packed + special_results(row)
    matrices = row.measures.warps if row.measures.tensor_flops or row.words[0] == "shfl" else 0
    return arithmetic / _WARP + _requests(row) + matrices


# -- tensor cores -------------------------------------------------------------------------------------------------


def _tensor_units(rows: Iterable[ProfiledInstruction], gpu: Peaks, unknown: dict[str, None]) -> list[_ExecutionUnit]:
    """Return the tensor cores by factor type. Types without a throughput in the table are added to ``unknown``."""
    found = dict.fromkeys(_factor(row) for row in rows if row.measures.tensor_flops)
    unknown.update((f"products of matrices of {type_}", None) for type_ in found if type_ not in gpu.tensor)
    return [
        _ExecutionUnit(
            f"tensor cores, {type_}", "operations", gpu.tensor[type_], functools.partial(_dense_flops, factor=type_)
        )
        for type_ in found
        if type_ in gpu.tensor
    ]


_NUMBER = frozenset(
    ("f16", "bf16", "tf32", "f64", "f32", "s32", "s8", "u8", "s4", "u4", "b1", "e4m3", "e5m2", "e3m2", "e2m3", "e2m1")
)


def _factor(row: ProfiledInstruction) -> str:
    """Return the type of the first factor, which is the second named type. ``wmma`` omits it for f16.

    Source: PTX ISA 9.1, "Warp Level Matrix Multiply-Accumulate Instructions".
    """
    types = [word for word in row.words if word in _NUMBER]
    return types[1] if len(types) > 2 else "f16"


def _dense_flops(row: ProfiledInstruction, factor: str) -> float:
    """Return the number of operations on a type. Only half of them count for a sparse factor."""
    if _factor(row) != factor:
        return 0
    is_sparse = not {"sp", "sp::ordered_metadata"}.isdisjoint(row.words)
    return row.measures.tensor_flops / 2 if is_sparse else row.measures.tensor_flops
