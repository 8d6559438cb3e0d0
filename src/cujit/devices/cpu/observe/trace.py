"""Traces: every instruction that one thread executes, with the values that it reads and writes."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cujit.artifact.reading import quoted_lines
from cujit.devices.cpu.analysis.body import Body
from cujit.devices.cpu.analysis.uniformity import WARP
from cujit.devices.cpu.codegen.builder import Value, int_type, type_width
from cujit.devices.cpu.codegen.nodes import LAUNCH
from cujit.devices.cpu.codegen.warp import storage_type
from cujit.devices.cpu.ir.decoding import TracedValue, kinds_of, spelled, type_for
from cujit.devices.cpu.ir.program import MemoryOperand, Op, Operand, Reg, Special, parts_of
from cujit.devices.cpu.native.structures import TRACE_DONE, TraceState
from cujit.devices.cpu.observe.watching import WatchedKernel
from cujit.devices.cpu.run.launch import Launch, field_offset, release
from cujit.devices.cpu.run.source_map import Lines, SourceLine
from cujit.devices.shapes import Dim3, HostExtent, LaunchShape
from cujit.devices.watch import Sources
from cujit.errors import KernelFaultError, OptionError, spell
from cujit.forks import Lock, cached_property
from cujit.formats.mangling import demangle
from cujit.values import NamedTuple, dataclass, field, replace

if TYPE_CHECKING:
    from cujit.devices.cpu.codegen.warp import WarpEmitter

_LIMIT = 100_000
"""Instructions that a trace keeps; each takes about 50 bytes, and a line of text."""

_NOWHERE = (1 << 64) - 1
"""The number of no block; and the highest address."""


@dataclass(frozen=True)
class Step:
    """One instruction that the thread reached.

    ``ptx_line`` counts from 1. ``source`` is the line of CUDA source, or None. ``reads`` are the values before the
    instruction, and ``writes`` are the values after it. ``writes`` is empty if the thread could not continue. ``ran``
    is False if the predicate of the instruction was false.
    """

    text: str
    ptx_line: int
    source: SourceLine | None
    reads: tuple[TracedValue, ...]
    writes: tuple[TracedValue, ...]
    ran: bool = True

    def __str__(self) -> str:
        reads, writes = (", ".join(map(str, values)) for values in (self.reads, self.writes))
        jumps = self.text.split(" ")[-2:-1] in (["bra"], ["bra.uni"])
        state = writes if self.ran else "not taken" if jumps else "not done"
        arrow = " -> " if reads and state else "-> " if state else ""
        return f"{self.ptx_line:>7}  {self.text:<44}  {reads}{arrow}{state}".rstrip()


@dataclass(frozen=True)
class TracedLaunch:
    """One launch from the perspective of the traced thread. Indices are ``(x, y, z)``.

    ``dropped`` counts the instructions beyond the limit of the trace. ``fault`` is the reason why the launch ended
    early, or an empty string. ``missing`` is the reason why the launch doesn't contain the thread, or an empty string.
    """

    kernel: str
    shape: LaunchShape
    block: tuple[int, int, int]
    thread: tuple[int, int, int]
    records: npt.NDArray[np.uint64] = field(repr=False, compare=False)
    table: _StepTable = field(repr=False, compare=False)
    dropped: int = 0
    fault: str = ""
    missing: str = ""

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """Every instruction, in order."""
        return tuple(self.table.steps(self.records.tolist()))

    def lines(self) -> Iterator[str]:
        """Yield the trace as text: each source line where it changes, and the instructions."""
        block, thread = (":".join(map(str, index)) for index in (self.block, self.thread))
        yield f"{self.kernel}: block {block}, thread {thread}"
        if self.missing:
            yield f"  {self.missing}"
        last: SourceLine | None = None
        for step in self.steps:
            if step.source is not None and step.source != last:
                last = step.source
                yield self.table.line_of(last)
            yield str(step)
        if self.dropped:
            yield f"  … and {self.dropped:,} instructions more, beyond the trace's limit"
        if self.fault:
            yield "  the launch ended early: " + self.fault.replace("\n", "\n  ")

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def to_json(self) -> dict[str, Any]:
        """Return the launch as plain values."""
        steps = [
            {
                "ptx_line": step.ptx_line,
                "text": step.text,
                "source": None if step.source is None else str(step.source),
                "ran": step.ran,
                "reads": [value.to_json() for value in step.reads],
                "writes": [value.to_json() for value in step.writes],
            }
            for step in self.steps
        ]
        return {"block": self.block, "thread": self.thread, "dropped": self.dropped, "steps": steps}


class Trace:
    """Trace of all instructions that one thread executes: ``cujit.cpu(trace=cujit.Trace(block=2, thread=5))``.

    ``str(trace)`` returns the trace as text. ``trace.launches`` contains the values.

    Args:
        block: index of the block, as ``(x, y, z)`` or as a linear number.
        thread: index of the thread in the block, in the same form.
        limit: maximum number of instructions to keep, over all launches.

    Raises:
        OptionError: an index or the limit is negative or not a number.

    Example::

        trace = cujit.Trace(thread=3)
        traced = cujit.load(ptx, cujit.cpu(trace=trace))["axpy<float>"]
        traced[1, 32](2.0, x, y, 32)
        assert trace.steps[-1].text == "ret"
    """

    def __init__(self, block: int | Sequence[int] = 0, thread: int | Sequence[int] = 0, *, limit: int = _LIMIT) -> None:
        self.block = _place(block, "block")
        self.thread = _place(thread, "thread")
        self.limit = _number(limit, "limit")
        self.launches: list[TracedLaunch] = []
        self._left = self.limit
        self._lock = Lock()
        self.sources = Sources()

    @property
    def steps(self) -> tuple[Step, ...]:
        """The instructions of all launches."""
        return tuple(step for launch in self.launches for step in launch.steps)

    def missing(self, shape: LaunchShape) -> str:
        """Return the reason why a launch doesn't contain the thread, or an empty string if it does."""
        _, no_block = _linear(self.block, shape.grid, "block")
        _, no_thread = _linear(self.thread, shape.block, "thread")
        return no_block or no_thread

    def clear(self) -> None:
        """Drop the traced instructions, so that the trace can record new instructions.

        Example::

            trace = cujit.Trace()
            trace.clear()
            assert trace.steps == ()
        """
        with self._lock:
            self.launches.clear()
            self._left = self.limit

    def __str__(self) -> str:
        return "\n".join(map(str, self.launches))

    def __repr__(self) -> str:
        return f"Trace(block={self.block}, thread={self.thread}, limit={self.limit})"

    # -- what the device calls ---------------------------------------------------------------------------

    options = ("lineinfo",)

    def watch(self, name: str, body: Body, lines: Lines) -> _TracedKernel:
        """Begin with a kernel."""
        return _TracedKernel(self, demangle(name) or name, _StepTable(body, lines, self.sources.copy()))

    def take(self, wanted: int) -> int:
        """Reserve at most ``wanted`` of the remaining instructions, and return the number of reserved instructions."""
        with self._lock:
            taken = min(wanted, self._left)
            self._left -= taken
            return taken

    def keep(self, launch: TracedLaunch, unused: int) -> None:
        """Add a launch to the trace, and release the instructions that the launch reserved but did not use."""
        with self._lock:
            self._left += unused
            self.launches.append(launch)


def _place(index: int | Sequence[int], what: str) -> tuple[int, ...]:
    """Read an index of one to three numbers."""
    numbers = tuple(index) if isinstance(index, list | tuple) else (index,)
    if not 1 <= len(numbers) <= 3:
        raise OptionError(f"the {what} of a trace must be one to three numbers, not {spell(index)}")
    return tuple(_number(n, what) for n in numbers)


def _number(value: object, what: str) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__") or (number := operator.index(value)) < 0:
        raise OptionError(f"the {what} of a trace must be a number of at least 0, not {spell(value)}")
    return number


def _linear(place: tuple[int, ...], sizes: Dim3, what: str) -> tuple[int, str]:
    """Return the linear number of an index, and an empty string or the reason why the index is out of range."""
    there = "x".join(map(str, sizes))
    if len(place) == 1:
        (number,) = place
        if number < sizes.volume:
            return number, ""
        return 0, f"there is no {what} {number}: there are {sizes.volume} ({there})"
    x, y, z = (*place, 0)[:3]
    if x < sizes.x and y < sizes.y and z < sizes.z:
        return x + sizes.x * (y + sizes.y * z), ""
    return 0, f"there is no {what} {':'.join(map(str, place))}: there are {there}"


class _TracedKernel(WatchedKernel):
    """One kernel that is traced."""

    def __init__(self, trace: Trace, name: str, table: _StepTable) -> None:
        self._trace = trace
        self._name = name
        self._table = table

    def observer(self) -> _Tracer:
        """Return the observer that instruments the kernel."""
        return _Tracer(self._table.numbers)

    @contextlib.contextmanager
    def running(self, launch: Launch, shape: LaunchShape, extents: Sequence[HostExtent] = ()) -> Iterator[None]:
        """Trace the thread during a launch, and keep the records even if the launch fails."""
        del extents
        block, _ = _linear(self._trace.block, shape.grid, "block")
        thread, _ = _linear(self._trace.thread, shape.block, "thread")
        missing = self._trace.missing(shape)
        left = 0 if missing else self._trace.take(self._trace.limit)
        state = TraceState(_NOWHERE if missing else block, thread // WARP, thread % WARP, left=left)
        launch.trace = ctypes.addressof(state)
        fault = ""
        try:
            yield
        except KernelFaultError as e:
            fault = e.message
            raise
        finally:
            launch.trace = 0
            traced = TracedLaunch(
                self._name,
                shape,
                shape.grid.place(block),
                shape.block.place(thread),
                _taken(state),
                self._table,
                int(state.dropped),
                fault,
                missing,
            )
            self._trace.keep(traced, int(state.left))


def _taken(state: TraceState) -> npt.NDArray[np.uint64]:
    """Return a copy of the records, and release their memory."""
    records = np.empty(state.used, np.uint64)
    if state.records:
        ctypes.memmove(records.ctypes.data, state.records, records.nbytes)
        release(state.records)
        state.records = 0
    return records


class _StepTable:
    """The operations of a kernel by number, with the information that steps need about each operation."""

    def __init__(self, body: Body, lines: Lines, sources: Sources) -> None:
        self.ops = [op for each in body.bodies for block in each.graph.blocks for op in block.ops]
        self.numbers = {op: k for k, op in enumerate(self.ops)}
        self._lines = lines
        self._sources = sources
        self._plan = functools.cache(self._planned)

    @cached_property
    def _kinds(self) -> dict[Reg, str]:
        return kinds_of(self.ops)

    def line_of(self, source: SourceLine) -> str:
        """Return a source line with its location. The text of the line is omitted if it is unknown."""
        known = self._sources.find(source.file)
        lines = quoted_lines(source.file) if known is None else known.text.splitlines()
        text = lines[source.line - 1].strip() if source.line <= len(lines) else ""
        return f"{source.file if known is None else known.shown}:{source.line}: {text}".rstrip()

    def steps(self, words: list[int]) -> list[Step]:
        """Return the steps in records.

        The values that an operation wrote follow its own record. If it calls functions, their records are in between.
        """
        found: list[Step] = []
        last: dict[int, int] = {}
        at = 0
        while at < len(words):
            number, count = words[at] & 0xFFFF_FFFF, words[at] >> 32
            values = words[at + 1 : at + 1 + count]
            at += 1 + count
            if number & TRACE_DONE:
                number &= ~TRACE_DONE
                k = last[number]
                found[k] = self._ended(found[k], number, values)
            else:
                last[number] = len(found)
                found.append(self._begun(number, values))
        return found

    def _begun(self, number: int, words: list[int]) -> Step:
        op, text, source, shown, _ = self._plan(number)
        bits = _bits(shown, words)
        reads = tuple(
            TracedValue(each.name, each.type, (value + each.offset) & _NOWHERE if each.offset else value)
            for each, value in zip(shown, bits, strict=True)
        )
        holds = next((bool(value) for each, value in zip(shown, bits, strict=True) if each.operand is op.guard), True)
        return Step(text, op.line, source, reads, (), op.guard is None or holds != op.guard_negated)

    def _ended(self, step: Step, number: int, words: list[int]) -> Step:
        shown = self._plan(number).writes
        writes = (
            TracedValue(each.name, each.type, value) for each, value in zip(shown, _bits(shown, words), strict=True)
        )
        return replace(step, writes=tuple(writes))

    def _planned(self, number: int) -> _TracePlan:
        op = self.ops[number]
        source = self._lines.source_of(op.line)
        return _TracePlan(
            op,
            spelled(op),
            source if source is not None and source.line else None,
            tuple(self._read(op, operand) for operand in _read_by(op)),
            tuple(_Shown(reg.name, type_for(op, reg, is_result=True, kinds=self._kinds), 0, reg) for reg in op.written),
        )

    def _read(self, op: Op, operand: Reg | Special) -> _Shown:
        if isinstance(operand, Special):
            return _Shown(f"%{operand.name}", "u64", 0, operand)
        memory = next((s for s in op.sources if isinstance(s, MemoryOperand) and s.base is operand), None)
        if memory is None:
            return _Shown(operand.name, type_for(op, operand, is_result=False, kinds=self._kinds), 0, operand)
        name = f"[{operand.name}{f'{memory.offset:+d}' if memory.offset else ''}]"
        return _Shown(name, "address", memory.offset, operand)


class _Shown(NamedTuple):
    """The display of a value: its name, its type, and the offset added to the value."""

    name: str
    type: str
    offset: int
    operand: Reg | Special


class _TracePlan(NamedTuple):
    """How the records of one operation are read."""

    op: Op
    text: str
    source: SourceLine | None
    reads: tuple[_Shown, ...]
    writes: tuple[_Shown, ...]


def _bits(shown: Sequence[_Shown], words: list[int]) -> list[int]:
    """Return the bits of each value, combined from its words."""
    found, at = [], 0
    for each in shown:
        size = _words_of(each.operand)
        found.append(sum(word << (64 * k) for k, word in enumerate(words[at : at + size])))
        at += size
    return found


# -- the code that leaves the records ---------------------------------------------------------------------

# Special registers whose value is another one at each look.
_TICKING = ("clock", "clock_hi", "clock64", "globaltimer", "globaltimer_lo", "globaltimer_hi")


def _read_by(op: Op) -> tuple[Reg | Special, ...]:
    """Return the recorded operands that an operation reads, without duplicates: its predicate, registers, special
    registers.
    """
    guard = () if op.guard is None else (op.guard,)
    return tuple(dict.fromkeys([*guard, *(each for source in op.sources for each in _recorded(source))]))


def _recorded(operand: Operand) -> list[Reg | Special]:
    if isinstance(operand, Reg) or (isinstance(operand, Special) and operand.name not in _TICKING):
        return [operand]
    return [each for part in parts_of(operand) for each in _recorded(part)]


def _words_of(operand: Reg | Special) -> int:
    """Return the number of 8-byte words in a value."""
    return -(-operand.bits // 64) if isinstance(operand, Reg) else 1


class _Tracer:
    """Instrumentation that records the steps of one kernel, for one compilation. ``numbers`` are the numbers of
    operations.

    The traced thread records the values of its registers before and after each operation. Other warps only test whether
    they contain the traced thread.
    """

    begin_region = None

    def __init__(self, numbers: Mapping[Op, int]) -> None:
        self._numbers = numbers
        recorded = [sum(map(_words_of, items)) for op in numbers for items in (_read_by(op), op.written)]
        self._most_words = max([1, *recorded])

    def before(self, e: WarpEmitter, op: Op) -> None:
        """Emit code that records the number of an operation and the values that the operation reads."""
        number = self._numbers.get(op)
        if number is not None:
            self._record(e, number, _read_by(op))

    def shadow_of(self, e: WarpEmitter, reg: Reg) -> None:
        """Return None, because traces keep no data about registers."""
        del e, reg

    def after(self, e: WarpEmitter, op: Op) -> None:
        """Emit code that records the values that an operation wrote."""
        number = self._numbers.get(op)
        if number is not None and op.written:
            self._record(e, number | TRACE_DONE, op.written)

    def _record(self, e: WarpEmitter, number: int, operands: Sequence[Reg | Special]) -> None:
        b = e.builder
        self._begin(e)
        done = b.label("traced")
        in_block = b.compare("icmp eq", Value("%block", "i64"), Value("%trace.block", "i64"))
        in_warp = b.compare("icmp eq", Value("%warp", "i32"), Value("%trace.warp", "i32"))
        b.only_if(b.binary("and", in_block, in_warp), done, "trace.warp")
        lane = Value("%trace.lane", "i32")
        comes = b.cast("trunc", b.binary("lshr", b.word(e.mask), lane), "i1")
        b.only_if(comes, done, "trace.thread")
        words = [word for operand in operands for word in _words(e, operand, lane)]
        for k, word in enumerate(words):
            at = b.point("i64", "%trace.values", b.integer(k, 64))
            b.store(word, at)
        count, values = b.integer(len(words), 32), Value("%trace.values", "ptr")
        b.call("cujit_trace", "void", LAUNCH, b.integer(number, 32), count, values)
        b.start(done)

    def _begin(self, e: WarpEmitter) -> None:
        """Emit code that loads the identity of the traced thread, once per function."""
        if e.builder.has_entry("%trace.values"):
            return
        e.builder.reserve("%trace.values", f"[{self._most_words} x i64]")
        b = e.builder
        with b.at_entry():
            at = b.offset(LAUNCH, field_offset("trace"), into="%trace.state.at")
            state = b.load("ptr", at, into="%trace.state")
            for name, type_ in (("block", "i64"), ("warp", "i32"), ("lane", "i32")):
                at = b.offset(state, getattr(TraceState, name).offset, into=f"%trace.{name}.at")
                b.load(type_, at, into=f"%trace.{name}")


def _words(e: WarpEmitter, operand: Reg | Special, lane: Value) -> list[Value]:
    """Read an operand in one lane, as words of 64 bits, the lowest first."""
    b = e.builder
    value = e.read(operand, storage_type(operand) if isinstance(operand, Reg) else "i64")
    one = b.extract(value, lane) if value.lanes else value
    width = type_width(one.type)
    bits = b.bits_as(one, int_type(width))
    if width <= 64:
        return [b.resize(bits, 64, signed=False)]
    shifted = [bits, *(b.binary("lshr", bits, b.integer(64 * k, width)) for k in range(1, _words_of(operand)))]
    return [b.resize(part, 64, signed=False) for part in shifted]
