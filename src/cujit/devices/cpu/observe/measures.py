"""The cost of a kernel as Python objects: by PTX instruction, by source line, and in total.

Any rule that is more than arithmetic on addresses cites its source. ``docs/profile.md`` describes where a GPU counts
differently.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cujit.devices.cpu.ir.program import Op, items_of
from cujit.devices.cpu.native.counting import Count
from cujit.devices.cpu.run.source_map import SourceLine
from cujit.errors import ArgumentError, spell
from cujit.formats.ptx.isa.semantics import Collective, Effect, Lanes, Order
from cujit.values import attributes, dataclass, group_by, replace

SECTOR_BYTES = 32
"""Source: Nsight Compute, Profiling Guide, "L1TEX": a cache line of 128 bytes has four sectors."""

LINE_BYTES = 128
"""Source: as above."""

_WARP = 32


@dataclass(frozen=True)
class Measures:
    """The counts of one instruction, or of several instructions together.

    ``warps`` counts the warps that reached the instruction, and ``active`` counts their active threads. ``threads``
    counts the threads that executed it, because their predicate was true. ``divergent_branches`` counts warps whose
    threads branched to different targets. A request is an instruction of one warp that accesses memory. Requests to
    global memory move ``sectors`` of 32 bytes, and the threads requested ``asked_bytes``. Local memory has the same
    counts. Texture lookups read ``texture_bytes`` of elements, which are in ``texture_sectors``. Shared memory needs
    ``wavefronts``. The number of these that are due to threads with different words of one bank is ``bank_conflicts``.
    For each atomic request to global memory, the word that most threads update determines the contention. ``contended``
    is the sum of these thread counts, and ``most_contended`` is the largest. ``flops`` counts floating-point
    operations, including ``tensor_flops`` of tensor cores. ``barriers`` counts warps that reached a barrier of the
    block.
    """

    warps: int = 0
    active: int = 0
    threads: int = 0
    divergent_branches: int = 0
    requests: int = 0
    sectors: int = 0
    asked_bytes: int = 0
    local_requests: int = 0
    local_sectors: int = 0
    local_bytes: int = 0
    shared_requests: int = 0
    wavefronts: int = 0
    bank_conflicts: int = 0
    shared_bytes: int = 0
    texture_requests: int = 0
    texture_sectors: int = 0
    texture_bytes: int = 0
    contended: int = 0
    most_contended: int = 0
    flops: int = 0
    tensor_flops: int = 0
    barriers: int = 0

    @property
    def moved_bytes(self) -> int:
        """Bytes of the sectors of global memory."""
        return self.sectors * SECTOR_BYTES

    @property
    def sectors_per_request(self) -> float:
        """The average number of global-memory sectors per request, or 0 without requests."""
        return self.sectors / self.requests if self.requests else 0.0

    @property
    def active_lanes(self) -> float:
        """The average number of active threads per warp, or 0 without warps."""
        return self.active / self.warps if self.warps else 0.0

    def __sub__(self, other: Measures) -> Measures:
        """Return the difference of two measures, field by field."""
        pairs = zip(self.values(), other.values(), strict=True)
        return Measures(*(mine - theirs for mine, theirs in pairs))

    def values(self) -> tuple[int, ...]:
        """Every number, in order."""
        return tuple(vars(self).values())

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Measures:
        """Return the measures from the result of ``to_json``.

        Raises:
            ValueError: a value is not a count, or the counts are impossible.
        """
        found = cls(**{name: _count(data[name]) for name in cls.__match_args__ if name in data})
        pairs = ((found.sectors, found.requests), (found.local_sectors, found.local_requests))
        if any(sectors and not requests for sectors, requests in pairs) or found.bank_conflicts > max(
            found.wavefronts - 1, 0
        ):
            raise ValueError("sectors were counted without requests, or conflicts without wavefronts")
        return found

    def to_json(self) -> dict[str, int]:
        """Return the measures that are not 0, by name."""
        return {name: value for name, value in vars(self).items() if value}


_MOST = Measures.__match_args__.index("most_contended")


def added(measures: Iterable[Measures]) -> Measures:
    """Return the sum of measures, with the maximum for ``most_contended``."""
    rows = [Measures(), *measures]
    columns = zip(*(row.values() for row in rows), strict=True)
    return Measures(*(max(column) if k == _MOST else sum(column) for k, column in enumerate(columns)))


@dataclass(frozen=True)
class WarpAccess:
    """The memory that the lanes of a warp accessed together: the first such access of the first block.

    ``lanes`` contains the number, offset, and size in bytes of each lane with an access. In ``global`` memory, offsets
    are from the 128-byte line of the lowest address. In ``shared`` memory, they are from its beginning. In ``local``
    memory, they are from the beginning of the thread's memory. ``block`` is the number of the block.
    """

    space: str
    block: int
    lanes: tuple[tuple[int, int, int], ...]

    def to_json(self) -> dict[str, Any]:
        """Return the access as plain values."""
        return {"space": self.space, "block": self.block, "lanes": [list(lane) for lane in self.lanes]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> WarpAccess:
        """Return the access from the result of ``to_json``."""
        lanes = tuple((_count(lane[0], _WARP), _count(lane[1]), _count(lane[2])) for lane in data["lanes"])
        return cls(_words(data["space"]), _count(data["block"]), lanes)


@dataclass(frozen=True)
class ProfiledInstruction:
    """One PTX instruction: its PTX line, its source line (None: unknown), and its cost.

    ``pipe`` is the SM pipeline for instructions of this kind, and ``type`` is the type of its first operand. For a
    memory access, ``access`` is the name of the access in GPU counters. The names are ``ld``, ``st``, ``atom``,
    ``red``, and for ``cp.async`` ``ldgsts_cache_access`` and ``ldgsts_cache_bypass``. ``access`` is empty for other
    paths. ``space`` is the state space, and ``width_bytes`` is the size of a thread's access. ``stride_bytes`` contains
    the smallest and largest distance between most neighboring threads over all requests. It is None if at most half of
    the requests have such a distance. ``accesses`` contains one access of a warp for each kind of memory.
    ``distinct_sectors`` counts the global-memory sectors that the instruction accessed at all, summed over launches.
    Several instructions may access the same sectors, so their counts can't be added. ``inlined_at`` are the calls
    through which its line was inlined, innermost first. The last call is in the kernel.
    """

    ptx_line: int
    text: str
    source: SourceLine | None
    pipe: str
    type: str
    access: str
    space: str
    width_bytes: int
    stride_bytes: tuple[int, int] | None
    measures: Measures
    accesses: tuple[WarpAccess, ...] = ()
    distinct_sectors: int = 0
    inlined_at: tuple[SourceLine, ...] = ()

    @property
    def reuse(self) -> float:
        """The average number of accesses to each distinct global-memory sector, or 0 without sectors."""
        return _reuse(self.measures, self.distinct_sectors)

    @property
    def words(self) -> list[str]:
        """The words of its name, without the predicate."""
        return next((part for part in self.text.split(" ") if not part.startswith("@")), "").rstrip(";").split(".")

    def to_json(self) -> dict[str, Any]:
        """Return the instruction as plain values."""
        return {
            **attributes(self, "ptx_line text"),
            "source": str(self.source or ""),
            **_calls(self.inlined_at),
            **attributes(self, "pipe type access space width_bytes"),
            "stride_bytes": self.stride_bytes and list(self.stride_bytes),
            "accesses": [access.to_json() for access in self.accesses],
            **self.measures.to_json(),
            **({"distinct_sectors": self.distinct_sectors} if self.distinct_sectors else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ProfiledInstruction:
        """Return the instruction from the result of ``to_json``."""
        stride = data["stride_bytes"]
        measures = Measures.from_json(data)
        return cls(
            _count(data["ptx_line"]),
            _words(data["text"]),
            _line(data["source"]),
            **{name: _words(data[name]) for name in ("pipe", "type", "access", "space")},
            width_bytes=_count(data["width_bytes"]),
            stride_bytes=None if stride is None else (_distance(stride[0]), _distance(stride[1])),
            measures=measures,
            accesses=tuple(map(WarpAccess.from_json, data.get("accesses", ()))),
            distinct_sectors=_distinct(data, measures),
            inlined_at=tuple(call for each in data.get("inlined_at", ()) if (call := _line(each))),
        )


@dataclass(frozen=True)
class ProfiledLine:
    """One source line (None: unknown), and the total cost of the instructions that are compiled from it.

    ``distinct_sectors`` counts the global-memory sectors that the instructions accessed at all, summed over launches. A
    sector that several instructions accessed counts once. ``inlined_at`` are the kernel lines that the instructions
    were inlined at, if these are other lines.
    """

    source: SourceLine | None
    measures: Measures
    distinct_sectors: int = 0
    inlined_at: tuple[SourceLine, ...] = ()

    @property
    def place(self) -> str:
        """The line by the name of its file: ``h.cuh:3, inlined at k.cu:6``; "" if it is not known."""
        return place_of(self.source, self.inlined_at)

    @property
    def reuse(self) -> float:
        """The average number of accesses to each distinct global-memory sector, or 0 without sectors."""
        return _reuse(self.measures, self.distinct_sectors)

    def to_json(self) -> dict[str, Any]:
        """Return the line as plain values."""
        distinct = {"distinct_sectors": self.distinct_sectors} if self.distinct_sectors else {}
        return {"source": str(self.source or ""), **_calls(self.inlined_at), **self.measures.to_json(), **distinct}


def _calls(places: Sequence[SourceLine]) -> dict[str, list[str]]:
    return {"inlined_at": list(map(str, places))} if places else {}


def place_of(source: SourceLine | None, calls: Sequence[SourceLine]) -> str:
    """Return the text for a source line and the first line that calls it, without directories."""
    names = [f"{Path(each.file).name}:{each.line}" for each in (*([source] if source else []), *calls[:1])]
    more = f" and {len(calls) - 1} more" if len(calls) > 1 else ""
    return ", inlined at ".join(names) + more


def calls_in(rows: Iterable[ProfiledInstruction]) -> tuple[SourceLine, ...]:
    """List the lines of the kernel at which the lines of instructions were inlined."""
    return tuple(sorted({row.inlined_at[-1] for row in rows if row.inlined_at}))


def in_order(source: SourceLine | None) -> tuple[bool, SourceLine]:
    """Return the sort key of a source line: by file and number, with unknown lines first."""
    return source is not None, source or SourceLine("", 0)


def _reuse(measures: Measures, distinct: int) -> float:
    return measures.sectors / distinct if distinct else 0.0


@dataclass(frozen=True)
class ProfiledKernel:
    """The cost of a kernel's launches so far. ``blocks``, ``warps``, and ``threads`` are totals over all launches.

    ``name`` is the name in the source, and ``lowered_name`` is the name in the image. ``distinct_sectors`` counts the
    global-memory sectors that were accessed at all, summed over launches. At least this number must come from the L2
    cache or memory. ``block_sectors`` counts them by block. An ideal L1 cache that keeps nothing between blocks loads
    this number. ``line_sectors`` are the distinct sectors of each line that accesses any, which ``lines()`` includes.
    """

    name: str
    launches: int
    instructions: tuple[ProfiledInstruction, ...]
    distinct_sectors: int
    block_sectors: int
    blocks: int
    warps: int
    threads: int
    lowered_name: str = ""
    line_sectors: tuple[tuple[SourceLine | None, int], ...] = ()

    @property
    def totals(self) -> Measures:
        """All instructions together."""
        return added(each.measures for each in self.instructions)

    def lines(self) -> tuple[ProfiledLine, ...]:
        """Return the total cost of each source line, in order of file and line. An unknown line is first."""
        found = group_by((each.source, each) for each in self.instructions)
        distinct = dict(self.line_sectors)
        return tuple(
            ProfiledLine(source, added(row.measures for row in rows), distinct.get(source, 0), calls_in(rows))
            for source, rows in sorted(found.items(), key=lambda each: in_order(each[0]))
        )

    def arithmetic(self) -> dict[tuple[str, str], int]:
        """Count the threads that did something, by pipe and type."""
        found: dict[tuple[str, str], int] = {}
        for each in self.instructions:
            key = each.pipe, each.type
            found[key] = found.get(key, 0) + each.measures.threads
        return {key: count for key, count in sorted(found.items()) if count}

    def metrics(self) -> dict[str, int]:
        """Return the memory-access metrics that Nsight Compute also has, under its names, computed from thread
        addresses.
        """
        found: dict[str, int] = {}
        for name, kinds, count in _METRICS:
            for kind, accesses in kinds.items():
                rows = [row for row in self.instructions if row.access in accesses]
                found[name.format(kind)] = sum(count(row.measures) for row in rows)
        return found

    def metrics_of_ptx(self) -> dict[str, int]:
        """Return metrics that Nsight Compute counts in SASS, counted here in PTX. The values are similar, but not
        equal.
        """
        totals = self.totals
        found = {
            "smsp__inst_executed.sum": totals.warps,
            "smsp__thread_inst_executed.sum": totals.active,
            "smsp__thread_inst_executed_pred_on.sum": totals.threads,
            "smsp__sass_branch_targets_threads_divergent.sum": totals.divergent_branches,
        }
        for letter, type_ in (("f", "f32"), ("d", "f64")):
            for word, opcodes in (("add", ("add", "sub")), ("mul", ("mul",)), ("fma", ("fma", "mad"))):
                rows = [row for row in self.instructions if row.type == type_ and row.words[0] in opcodes]
                name = f"smsp__sass_thread_inst_executed_op_{letter}{word}_pred_on.sum"
                found[name] = sum(row.measures.threads for row in rows)
        for row in self.instructions:
            if row.measures.tensor_flops and (source := _tensor_source(row.words)):
                name = f"sm__ops_path_tensor_src_{source}.sum"
                found[name] = found.get(name, 0) + row.measures.tensor_flops
        return found

    def to_json(self) -> dict[str, Any]:
        """Return the kernel as plain values."""
        return {
            "kernel": self.name,
            **attributes(self, "lowered_name launches"),
            "metrics": self.metrics(),
            "metrics_of_ptx": self.metrics_of_ptx(),
            **attributes(self, "distinct_sectors block_sectors blocks warps threads"),
            "totals": self.totals.to_json(),
            "arithmetic": [{"pipe": p, "type": t, "threads": n} for (p, t), n in self.arithmetic().items()],
            "lines": [row.to_json() for row in self.lines()],
            "instructions": [row.to_json() for row in self.instructions],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ProfiledKernel:
        """Return the kernel from the result of ``to_json``."""
        rows = tuple(ProfiledInstruction.from_json(row) for row in data["instructions"])
        sizes = ("distinct_sectors", "block_sectors", "blocks", "warps", "threads")
        numbers = {name: _count(data[name]) for name in ("launches", *sizes)}
        names = {"name": _words(data["kernel"]), "lowered_name": _words(data["lowered_name"])}
        found = cls(instructions=rows, **numbers, **names)  # type: ignore[arg-type]
        return replace(found, line_sectors=tuple(_line_sectors(data.get("lines", ()), found.lines())))


def check_profiled(kernel: object) -> None:
    """Raise an error if a value is not a kernel of a profile.

    Raises:
        ArgumentError: the value is invalid.
    """
    if not isinstance(kernel, ProfiledKernel):
        raise ArgumentError(f"the profile has no kernel {spell(kernel)}", help="profile.kernels[0]")


# -- what was written, read back: anyone may have written it -----------------------------------------------------

_MOST_COUNTED = 1 << 64
_STEERS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\ud800-\udfff]")


def _count(value: object, end: int = _MOST_COUNTED) -> int:
    """Return the value if it is a valid count.

    Raises:
        ValueError: the value is not a nonnegative int below ``end``.
    """
    if type(value) is not int or not 0 <= value < end:
        raise ValueError(f"expected a nonnegative number below {end}")
    return value


def _line(value: object) -> SourceLine | None:
    """Return the source line in a text, or None if the text contains no line.

    Raises:
        ValueError: the value is invalid.
    """
    file, _, line = _words(value).rpartition(":")
    return SourceLine(file, _count(int(line))) if line else None


def _distinct(data: Mapping[str, Any], measures: Measures) -> int:
    """Return the number of distinct sectors, or 0 if the number is missing.

    Raises:
        ValueError: the value is not a count, or exceeds the number of sectors.
    """
    found = _count(data.get("distinct_sectors", 0))
    if found > measures.sectors:
        raise ValueError("the number of distinct sectors exceeds the number of sectors")
    return found


def _line_sectors(
    written: Iterable[Mapping[str, Any]], lines: Iterable[ProfiledLine]
) -> Iterator[tuple[SourceLine | None, int]]:
    """Yield the number of distinct sectors of each line that has any.

    Raises:
        ValueError: a value is not a count, exceeds the number of sectors, or belongs to an unknown line.
    """
    found = {_line(row["source"]): row for row in written if "distinct_sectors" in row}
    for line in lines:
        distinct = _distinct(found.pop(line.source, {}), line.measures)
        if distinct:
            yield line.source, distinct
    if found:
        raise ValueError("distinct sectors are listed for an unknown line")


def _distance(value: object) -> int:
    """Return the value if it is a valid distance between neighboring threads, in bytes.

    Raises:
        ValueError: the value is not a distance.
    """
    if type(value) is not int or abs(value) >= _MOST_COUNTED:
        raise ValueError("the distance is missing")
    return value


def _words(value: object) -> str:
    """Return a text without terminal control characters.

    Raises:
        ValueError: the value is not a str.
    """
    if not isinstance(value, str):
        raise ValueError(f"expected text, not {type(value).__name__}")
    return _STEERS.sub("\ufffd", value)


# Source: Nsight Compute, Profiling Guide, "Metrics Structure" and "Memory Tables"; the names as `ncu --query-metrics`
# lists them for GPUs of compute capability 7.0 and later.
_PLAIN: dict[str, tuple[str, ...]] = {"ld": ("ld",), "st": ("st",)}
_GLOBAL: dict[str, tuple[str, ...]] = {
    "ld": ("ld", "ldgsts_cache_access", "ldgsts_cache_bypass"), "st": ("st",), "atom": ("atom",), "red": ("red",),
    "ldgsts_cache_access": ("ldgsts_cache_access",),
}  # fmt: skip
"""Source: measured on an H200: a copy to shared memory counts as a load, too."""
_SHARED = {**_PLAIN, "atom": ("atom", "red")}
_METRICS: tuple[tuple[str, dict[str, tuple[str, ...]], Callable[[Measures], int]], ...] = (
    ("l1tex__t_requests_pipe_lsu_mem_global_op_{}.sum", _GLOBAL, lambda m: m.requests),
    ("l1tex__t_sectors_pipe_lsu_mem_global_op_{}.sum", _GLOBAL, lambda m: m.sectors),
    ("l1tex__t_requests_pipe_lsu_mem_local_op_{}.sum", _PLAIN, lambda m: m.local_requests),
    ("l1tex__t_sectors_pipe_lsu_mem_local_op_{}.sum", _PLAIN, lambda m: m.local_sectors),
    ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum", _SHARED, lambda m: m.wavefronts),
    ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{}.sum", _SHARED, lambda m: m.bank_conflicts),
)


# -- what an instruction is ---------------------------------------------------------------------------------

_SPECIAL = ("rcp", "sqrt", "rsqrt", "sin", "cos", "lg2", "ex2", "tanh", "div")
_TENSOR = ("mma", "wgmma")
_TEXTURE = ("tex", "tld4", "suld", "sust", "sured", "txq", "suq")
_WAITS = (Effect.ORDERS, Effect.SYNCHRONISES, Effect.ARRIVES)
_ACCESSES = (Effect.READS, Effect.WRITES, Effect.UPDATES)
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
_GROUP = 4
"""Warps that do one ``wgmma`` together. Source: PTX ISA 9.1, "Asynchronous Warpgroup Level Matrix Instructions"."""


def pipe_of(op: Op) -> str:
    """Return the name of the pipeline that executes an instruction of this kind.

    Source: CUDA C++ Programming Guide, "Arithmetic Instructions": each kind with a separate throughput.
    """
    kind = op.types[0].kind if op.types else ""
    found = next((name for name, is_done in _PIPES if is_done(op)), "")
    if found or kind not in ("f", "bf", "tf") or op.opcode == "mov":
        return found or ("fma" if op.opcode in ("mul", "mad", "mul24", "mad24", "dp4a", "dp2a") else "alu")
    return "half" if "x" in op.type else {64: "fp64", 32: "fma"}.get(op.type.bits, "half")


def _multiplies(op: Op) -> bool:
    return _SHAPE.search(op.name) is not None and (op.opcode in _TENSOR or "mma" in op.modifiers)


_PIPES: tuple[tuple[str, Callable[[Op], bool]], ...] = (
    ("tensor", _multiplies),
    ("texture", lambda op: op.opcode in _TEXTURE),
    ("control", lambda op: op.form.is_jump or op.opcode in ("call", "exit", "ret")),
    ("barrier", lambda op: op.form.collective >= Collective.BLOCK or op.form.meaning.effect in _WAITS),
    ("memory", lambda op: op.form.meaning.effect in _ACCESSES or op.opcode in ("ldmatrix", "stmatrix", "cp")),
    ("warp", lambda op: op.form.meaning.lanes is not Lanes.EACH),
    ("special", lambda op: op.opcode in _SPECIAL),
    ("convert", lambda op: op.opcode == "cvt"),
)
"""The first that fits."""


_TENSOR_SOURCES = {
    "f16": "fp16", "bf16": "bf16_dst_fp32", "tf32": "tf32_dst_fp32", "f64": "fp64", "s8": "int8", "u8": "int8",
    "b1": "int1", "e4m3": "fp8", "e5m2": "fp8",
}  # fmt: skip
"""How counters of compute capability 9.0 call what tensor cores multiply."""
_TYPE = re.compile(r"(?:f|bf|tf|e|s|u|b)\d+\w*")


def _tensor_source(words: Sequence[str]) -> str:
    """Return the element type that a matrix product multiplies: its second type. ``wmma`` omits the
    type if it is f16.
    """
    types = [word for word in words if _TYPE.fullmatch(word)]
    return _TENSOR_SOURCES.get(types[1] if len(types) > 2 else "f16", "")


def flops_of(op: Op) -> int:
    """Count the floating-point operations of one thread: a fused one is two, a packed one as many as it has numbers."""
    kind = op.types[0].kind if op.types else ""
    if kind not in ("f", "bf"):
        return 0
    each = {"add": 1, "sub": 1, "mul": 1, "fma": 2, "mad": 2}.get(op.opcode, 0)
    return each * (int(op.type.rpartition("x")[2]) if "x" in op.type else 1)


def tensor_flops_of(op: Op) -> int:
    """Count the operations of one warp in a product of matrices: a multiplication and an addition for each product."""
    found = _SHAPE.search(op.name)
    if found is None or not _multiplies(op):
        return 0
    m, n, k = map(int, found.groups())
    return 2 * m * n * k // (_GROUP if op.opcode == "wgmma" else 1)


def width_of(op: Op) -> int:
    """Return the bytes that one thread accesses, or 0 if the operation is not a load, a store, or an
    atomic operation.
    """
    if op.opcode not in ("ld", "ldu", "st", "atom", "red") or not op.types:
        return 0
    count = op.form.vector if op.opcode in ("atom", "red") else len(op.results or items_of(op.sources[1]))
    return op.type.bits // 8 * count


_ACCESS = {"ld": "ld", "ldu": "ld", "ldmatrix": "ld", "st": "st", "stmatrix": "st", "red": "red"}
_COPIES = {"ca": "ldgsts_cache_access", "cg": "ldgsts_cache_bypass"}
_REDUCES = ("add", "and", "or", "xor", "min", "max", "inc", "dec")


def access_of(op: Op, *, is_read: bool) -> str:
    """Return the name of an access in GPU counters. An atomic operation with an unused result is a reduction.

    Source: measured on an H200: ``atomicAdd`` without a result is counted as ``red``. ptxas generates ``red`` if the
    operation orders nothing else.
    """
    words = op.modifiers
    if op.opcode == "cp":
        return next((access for word, access in _COPIES.items() if word in words), "")
    if not op.form.types or "async" in words or "bulk" in words:
        return ""
    if op.opcode == "wmma":
        return "ld" if "load" in words else "st" if "store" in words else ""
    if op.opcode == "atom":
        drops = not is_read and not set(_REDUCES).isdisjoint(words) and op.order in (Order.WEAK, Order.RELAXED)
        return "red" if drops else "atom"
    return _ACCESS.get(op.opcode, "")


def stride_of(counts: Sequence[int]) -> tuple[int, int] | None:
    """Return the smallest and largest distance between neighboring threads over all requests, in bytes.

    Return None if at most half of the requests have such a distance.
    """
    requests = counts[Count.REQUESTS] + counts[Count.SHARED_REQUESTS]
    if not counts[Count.FARTHEST] or 2 * counts[Count.STRIDED] <= requests:
        return None
    return (1 << 63) - 1 - counts[Count.NEAREST], counts[Count.FARTHEST] - (1 << 63)


def measures_of(op: Op, counts: Sequence[int], lanes: Sequence[int]) -> Measures:
    """Return the measures of an operation from its counters.

    ``lanes`` are the counters of the first operation that the same lanes reach.
    """
    warps = lanes[Count.WARPS]
    active = _WARP * warps - lanes[Count.MISSING]
    threads = active if op.form.is_jump else active - counts[Count.OFF]
    tensor = tensor_flops_of(op) * warps
    return Measures(
        warps=warps,
        active=active,
        threads=threads,
        divergent_branches=counts[Count.DIVERGENT],
        requests=counts[Count.REQUESTS],
        sectors=counts[Count.SECTORS],
        asked_bytes=counts[Count.BYTES],
        local_requests=counts[Count.LOCAL_REQUESTS],
        local_sectors=counts[Count.LOCAL_SECTORS],
        local_bytes=counts[Count.LOCAL_BYTES],
        shared_requests=counts[Count.SHARED_REQUESTS],
        wavefronts=counts[Count.WAVEFRONTS],
        bank_conflicts=counts[Count.WAVEFRONTS] - counts[Count.PASSES],
        shared_bytes=counts[Count.SHARED_BYTES],
        texture_requests=warps if op.opcode in _TEXTURE else 0,
        texture_sectors=counts[Count.TEXTURE_SECTORS],
        texture_bytes=counts[Count.TEXTURE_BYTES],
        contended=counts[Count.CONTENDED],
        most_contended=counts[Count.MOST],
        flops=flops_of(op) * threads + tensor,
        tensor_flops=tensor,
        barriers=warps if op.form.collective >= Collective.BLOCK else 0,
    )
