"""Calls, which are inlined if possible and otherwise emitted as machine-code calls, and their parameters.

    { .param .b32 in, out;                 mov.b32 x, 5           (x is the parameter name in the function)
      st.param.b32 [in], 5;          ->    add.u32 y, x, 1
      call (out), successor, (in);         mov.b32 r, y
      ld.param.b32 r, [out]; }

A parameter of a call is a ``.param`` variable of the caller. It becomes registers if all accesses to it use the same
pieces. Otherwise, and for calls that are not inlined, it is in the caller's local memory. The parameters of one call
that is not inlined are adjacent in memory, results first. The called function receives their address.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias

from cujit.devices.cpu.frontend.callgraph import CallGraph, target_name
from cujit.devices.cpu.frontend.layout import SharedMemory, placed, slot_of, variable_size
from cujit.devices.cpu.ir.program import (
    IntConstant,
    KernelProgram,
    MemoryOperand,
    MemorySlot,
    Op,
    Operand,
    OperandGroup,
    Reg,
    SymbolAddress,
    items_of,
    type_bits,
)
from cujit.devices.cpu.ir.refusals import Refusals
from cujit.devices.cpu.run.mappings import aligned
from cujit.forks import cached_property
from cujit.formats.ptx import syntax as ptx
from cujit.formats.ptx.isa.semantics import form_of
from cujit.values import NamedTuple, dataclass, field, group_by, replace

MOST_CALLED = 100_000
"""Functions that the calls of a kernel may lead to, counted at each call: one by address may lead to each that fits."""

_Pieces: TypeAlias = list[tuple[int, int]]
"""Offset and size of each element that an access reads or writes."""


@dataclass
class JumpTable:
    """The labels of a ``.branchtargets``; ``index`` and ``label`` are of the jump that all further ones share."""

    names: tuple[str, ...]
    is_used: bool = False
    index: Reg | None = None
    label: str = ""


@dataclass
class Frame:
    """The meanings of names in one scope of one instance of a function, including names of the enclosing scopes.

    A vector register is the group of its elements. ``ranges`` are numbered registers that no operand has named yet.
    ``ret`` is the label after an inlined function.
    """

    names: ChainMap[str, Reg | MemorySlot | OperandGroup] = field(default_factory=ChainMap)
    ranges: ChainMap[str, tuple[int, str]] = field(default_factory=ChainMap)
    labels: ChainMap[str, str] = field(default_factory=ChainMap)
    tables: ChainMap[str, JumpTable] = field(default_factory=ChainMap)
    prototypes: ChainMap[str, ptx.CallPrototype] = field(default_factory=ChainMap)
    ret: str | None = None

    def inner(self) -> Frame:
        """Make the frame of a scope inside."""
        return Frame(
            self.names.new_child(),
            self.ranges.new_child(),
            self.labels.new_child(),
            self.tables.new_child(),
            self.prototypes.new_child(),
            self.ret,
        )


class _CallSite(NamedTuple):
    """A call: ``given`` are the destinations of its results, ``taken`` are its arguments, and ``i`` is
    the instruction.
    """

    given: list[Operand]
    taken: list[Operand]
    i: ptx.Instruction


class Calls:
    """A kernel or function that is being flattened, and its calls. ``stack`` contains the functions that are being
    inlined.
    """

    def __init__(
        self,
        shared: SharedMemory,
        graph: CallGraph,
        entry: ptx.Function,
        globals_: dict[str, MemorySlot],
        refusals: Refusals,
    ) -> None:
        self.entry = entry
        self.shared = shared
        self.graph = graph
        self.globals = globals_
        self.refusals = refusals
        self.program = KernelProgram(entry.name)
        self.stack: list[str] = [entry.name]
        self.instances = 0
        self._slots: list[MemorySlot] = []
        self._arguments: Reg | None = None
        self.carry: Reg | None = None

    def operand(self, o: ptx.Operand, i: ptx.Instruction, frame: Frame) -> Operand:
        """Convert an operand to its flat form."""
        raise NotImplementedError

    def body(self, body: Sequence[ptx.Statement], frame: Frame, prefix: str) -> None:
        """Flatten statements. ``prefix`` makes their labels different from the labels of other instances."""
        raise NotImplementedError

    def emit(self, form: str, results: tuple[Reg, ...] = (), sources: tuple[Operand, ...] = (), line: int = 0) -> None:
        """Append an operation that does not occur in the PTX text."""
        self.program.ops.append(Op(form_of(*form.split(".")), results, sources, line=line))

    def mark(self, name: str) -> None:
        """Append a label."""
        self.program.ops.append(Op(form_of("label"), targets=(name,)))

    def mistake(self, i: ptx.Instruction, why: str, help: str = "") -> None:
        """Note that an instruction is wrong."""
        self.refusals.mistake(i.line, i.name, why, help)

    def place_local(self, slot: MemorySlot) -> None:
        """Place a variable in the local memory of a thread."""
        slot.space = "local"
        self.program.local_size = placed(slot, self.program.local_size)

    def add(self, slot: MemorySlot) -> MemorySlot:
        """Record the slot of a call parameter, and return the slot."""
        slot.space = "call"
        self._slots.append(slot)
        return slot

    # -- a function that is called, from inside --------------------------------------------------------------

    def take_arguments(self, function: ptx.Function, frame: Frame) -> None:
        """Bind the formal parameters of a function to the memory at ``%arguments``, which the caller filled."""
        arguments = self._arguments = self.program.register("%arguments", "b64")
        self.program.ops.append(Op(form_of("call.arguments"), results=(arguments,)))
        results = _scalars(function.results)
        for slot, formal in side_by_side((*results, *_scalars(function.parameters))):
            if formal.space == "reg":
                reg = frame.names[formal.name] = self.program.register(formal.name, formal.type)
                if formal not in results:
                    self.emit(f"ld.b{reg.bits}", (reg,), (MemoryOperand(arguments, slot.offset),))
            else:
                frame.names[formal.name] = slot
        _gather(frame, (*function.results, *function.parameters))
        # Results in registers are stored where the function ends, wherever it returns from.
        if any(formal.space == "reg" for formal in function.results):
            frame.ret = "return:"

    def give_results(self, function: ptx.Function, frame: Frame) -> None:
        """Store the results that a function has in registers. A kernel has no results."""
        if frame.ret is None or self._arguments is None:
            return
        self.mark(frame.ret)
        for slot, formal in side_by_side(_scalars(function.results)):
            reg = frame.names[formal.name]
            if isinstance(reg, Reg):
                self.emit(f"st.b{reg.bits}", (), (MemoryOperand(self._arguments, slot.offset), reg))

    # -- calls -------------------------------------------------------------------------------------------

    def call(self, i: ptx.Instruction, op: Op, frame: Frame) -> None:
        """Convert a call to its flat form: inlined code or a call operation."""
        at = next((k for k, o in enumerate(i.operands) if not isinstance(o, ptx.RegisterList)), None)
        if at is None:
            self.mistake(i, "a call of nothing")
            return
        lists = [
            [x for o in operands if isinstance(o, ptx.RegisterList) for x in o.items]
            for operands in (i.operands[:at], i.operands[at + 1 :])
        ]
        given, taken = ([each for x in items for each in items_of(self.operand(x, i, frame))] for items in lists)
        site = _CallSite(given, taken, i)
        name = target_name(i.operands[at])
        callee = self.graph.find(name)
        self.instances += 1
        skip = f"skip#{self.instances}"
        if op.guard is not None:
            over = Op(form_of("bra"), targets=(skip,), guard=op.guard, guard_negated=not op.guard_negated, line=op.line)
            self.program.ops.append(over)
        if callee is not None:
            self._call_function(callee, site)
        elif name in self.graph.declared:
            self._call_extern(name, site)
        else:
            prototype = frame.prototypes.get(target_name(i.operands[-1]))
            self._call_by_address(self.operand(i.operands[at], i, frame), prototype, site)
        self.mark(skip)

    def _call_function(self, callee: ptx.Function, site: _CallSite) -> None:
        results, parameters = _scalars(callee.results), _scalars(callee.parameters)
        if len(site.given) != len(results) or len(site.taken) != len(parameters):
            self.mistake(site.i, f"{callee.name}: a number of arguments that is not the function's")
        elif callee.name in self.graph.out_of_line:
            self._call_out_of_line((callee.name,), None, (*results, *parameters), site)
        else:
            self._inline(callee, site)

    def _inline(self, callee: ptx.Function, site: _CallSite) -> None:
        prefix = f"{callee.name}#{self.instances}:"
        inner = Frame(ret=f"{prefix}return")
        formals, count = (*_scalars(callee.results), *_scalars(callee.parameters)), len(site.given)
        places = [*map(self._place, formals, (*site.given, *site.taken))]
        inner.names.update(zip((formal.name for formal in formals), places, strict=True))
        for place, actual in zip(places[count:], site.taken, strict=True):
            self._copy(place, actual, place)
        _gather(inner, (*callee.results, *callee.parameters))
        self.stack.append(callee.name)
        self.body(callee.body or (), inner, prefix)
        self.stack.pop()
        self.mark(f"{prefix}return")
        for place, actual in zip(places, site.given, strict=False):
            self._copy(actual, place, place)

    def _place(self, formal: ptx.Variable, actual: Operand) -> Reg | MemorySlot:
        """Return the place of a formal parameter: the caller's slot, or a new slot or register for the value."""
        if formal.space != "param":
            return self.program.register(formal.name, formal.type)
        return actual.slot if isinstance(actual, SymbolAddress) else self.add(slot_of(formal))

    def _copy(self, to: Operand | MemorySlot, from_: Operand | MemorySlot, formal: Reg | MemorySlot) -> None:
        """Copy a parameter to or from its place ``formal``.

        The other side of the copy is a register, a number, a call slot, or local memory.
        """
        to, from_ = (each.slot if isinstance(each, SymbolAddress) else each for each in (to, from_))
        if isinstance(to, MemorySlot):
            self._fill(to, from_, formal)
        elif isinstance(to, Reg) and isinstance(from_, MemorySlot):
            for at, size in _pieces(formal):
                self._load(to, from_, at, size)
        elif isinstance(to, Reg) and not isinstance(from_, MemorySlot):
            bits = 8 * formal.size if isinstance(formal, MemorySlot) else formal.bits
            self.emit("mov.pred" if bits == 1 else f"mov.b{bits}", (to,), (from_,))

    def _fill(self, to: MemorySlot, from_: Operand | MemorySlot, formal: Reg | MemorySlot) -> None:
        if not isinstance(from_, MemorySlot):
            for at, size in _pieces(formal):
                self._store(to, at, size, from_)
        elif from_ is not to:
            for at, size in _pieces(formal, at_once=False):
                part = self.program.register(formal.name, f"b{8 * size}")
                self._load(part, from_, at, size)
                self._store(to, at, size, part)

    def _load(self, part: Reg, slot: MemorySlot, at: int, size: int) -> None:
        self.emit(f"ld.{_space(slot)}.b{8 * size}", (part,), (MemoryOperand(SymbolAddress(slot), at),))

    def _store(self, slot: MemorySlot, at: int, size: int, part: Operand) -> None:
        self.emit(f"st.{_space(slot)}.b{8 * size}", (), (MemoryOperand(SymbolAddress(slot), at), part))

    # -- calls that stay calls ------------------------------------------------------------------------------

    def _call_extern(self, name: str, site: _CallSite) -> None:
        """Call a function that the device provides, with parameters and results in registers."""
        sizes = [actual.slot.size for actual in (*site.given, *site.taken) if isinstance(actual, SymbolAddress)]
        odd = next((size for size in sizes if size not in (1, 2, 4, 8)), None)
        if odd is not None and "cuda" not in name:
            self.mistake(site.i, f"{name} takes and gives no {odd} bytes at a time")
            return
        if odd is not None:  # of the run-time of devices, which is refused by its name, whatever it takes
            site = site._replace(given=[], taken=[])
        sources, results = ([self._as_register(actual) for actual in actuals] for actuals in (site.taken, site.given))
        for reg, actual in zip(sources, site.taken, strict=True):
            if isinstance(actual, SymbolAddress):
                self._copy(reg, actual, actual.slot)
        call = Op(form_of("call.extern", name), tuple(results), tuple(sources), line=site.i.line, text=f"call {name}")  # type: ignore[arg-type]
        self.program.ops.append(call)
        for actual, reg in zip(site.given, results, strict=True):
            if isinstance(actual, SymbolAddress):
                self._copy(actual, reg, actual.slot)

    def _as_register(self, actual: Operand) -> Operand:
        """Return a register that represents a slot."""
        if not isinstance(actual, SymbolAddress):
            return actual
        return self.program.register(actual.slot.name, f"b{8 * actual.slot.size}")

    def _call_by_address(self, target: Operand, prototype: ptx.CallPrototype | None, site: _CallSite) -> None:
        if prototype is None or not isinstance(target, Reg):
            self.mistake(site.i, "a call by address without .callprototype")
            return
        results, parameters = _scalars(prototype.results), _scalars(prototype.parameters)
        if len(site.given) != len(results) or len(site.taken) != len(parameters):
            self.mistake(site.i, "a number of arguments that is not the prototype's")
            return
        formals = (*results, *parameters)
        fitting = self._by_sizes.get(tuple(map(variable_size, formals)), [])
        if len(self.program.called) <= MOST_CALLED:  # past that the kernel is refused
            self._call_out_of_line(tuple(fitting), target, formals, site)

    @cached_property
    def _by_sizes(self) -> dict[tuple[int, ...], list[str]]:
        """The functions whose address is taken, grouped by the sizes of their results and parameters."""
        functions = (self.graph.functions[name] for name in self.graph.by_address)
        return group_by((tuple(map(variable_size, _scalars((*f.results, *f.parameters)))), f.name) for f in functions)

    def _call_out_of_line(
        self, names: tuple[str, ...], target: Reg | None, formals: tuple[ptx.Variable, ...], site: _CallSite
    ) -> None:
        """Store the parameters in adjacent local memory, and call one of the functions."""
        places = [slot for slot, _ in side_by_side(formals)]
        end = max([1, *(slot.offset + slot.size for slot in places)])
        record = MemorySlot("arguments", "local", aligned(end, 16), 16)
        self.place_local(record)
        for slot in places:
            slot.space, slot.offset = "local", slot.offset + record.offset
        results = len(site.given)
        for slot, actual in zip(places[results:], site.taken, strict=True):
            self._copy(slot, actual, slot)
        sources: tuple[Operand, ...] = (SymbolAddress(record),)
        if target is not None:
            sources += (target, *(SymbolAddress(self.globals[name]) for name in names))
        called = Op(form_of("call.function"), (), sources, targets=names, line=site.i.line, text=site.i.name)
        self.program.ops.append(called)
        self.program.called += names
        for slot, actual in zip(places, site.given, strict=False):
            self._copy(actual, slot, slot)

    # -- places ------------------------------------------------------------------------------------------

    def place_slots(self) -> None:
        """Assign the parameters of calls to registers if every access agrees, otherwise to local memory."""
        self._point_at_arguments()
        if not self._slots:
            return
        values = (each for op in self.program.ops for source in op.sources for each in items_of(source))
        taken = {value.slot for value in values if isinstance(value, SymbolAddress)}
        uses: dict[MemorySlot, list[tuple[Op, _Pieces]]] = {slot: [] for slot in self._slots}
        for slot, op, pieces in self._accesses():
            uses.get(slot, []).append((op, pieces))
        for slot, accesses in uses.items():
            if slot in taken or not _disjoint({piece for _, pieces in accesses for piece in pieces}):
                self._demote(slot, accesses)
            else:
                self._promote(slot, accesses)

    def _accesses(self) -> Iterator[tuple[MemorySlot, Op, _Pieces]]:
        """Yield each load and store of a variable, with the offsets and sizes of its elements."""
        for op in self.program.ops:
            width = type_bits(op.type) // 8 if op.opcode in ("ld", "st") and op.types else 0
            for source in op.sources if width else ():  # st.bulk has no type, and stores to no parameter
                if isinstance(source, MemoryOperand) and isinstance(source.base, SymbolAddress):
                    start = source.base.offset + source.offset
                    yield source.base.slot, op, [(start + k * width, width) for k in range(op.form.vector)]

    def _demote(self, slot: MemorySlot, accesses: list[tuple[Op, _Pieces]]) -> None:
        self.place_local(slot)
        for op, _ in accesses:
            move_to_local(op)

    def _point_at_arguments(self) -> None:
        """Replace the formal parameters of a function that is called by addresses from ``%arguments`` on."""
        if self._arguments is None:
            return
        ops: list[Op] = []
        for op in self.program.ops:
            op.sources = tuple(self._pointed(op, source, self._arguments, ops) for source in op.sources)
            ops.append(op)
        self.program.ops = ops

    def _pointed(self, op: Op, source: Operand, arguments: Reg, ops: list[Op]) -> Operand:
        """Replace one operand; an address that is used as a value is computed before, into ``ops``.

        Source: PTX ISA 9.1, "mov": the address of a parameter of a function is one of the local space.
        """
        if isinstance(source, MemoryOperand) and isinstance(source.base, SymbolAddress) and _is_argument(source.base):
            op.form = form_of(op.opcode, *(m for m in op.modifiers if not m.startswith("param")))
            return MemoryOperand(arguments, source.base.slot.offset + source.base.offset + source.offset)
        if isinstance(source, SymbolAddress) and _is_argument(source):
            generic, local = (self.program.register(source.slot.name, "b64") for _ in range(2))
            at = IntConstant(source.slot.offset + source.offset)
            ops.append(Op(form_of("add", "u64"), (generic,), (arguments, at), line=op.line))
            ops.append(Op(form_of("cvta", "to", "local", "u64"), (local,), (generic,), line=op.line))
            return local
        return source

    def _promote(self, slot: MemorySlot, accesses: list[tuple[Op, _Pieces]]) -> None:
        parts = dict.fromkeys(piece for _, pieces in accesses for piece in pieces)
        cells = {at: self.program.register(f"{slot.name}+{at}", f"b{8 * width}") for at, width in parts}
        for op, pieces in accesses:
            regs = tuple(cells[at] for at, _ in pieces)
            if op.opcode == "ld":
                op.form, op.sources = form_of("param.get", op.type), (OperandGroup(regs),)
            else:
                op.form, op.results, op.sources = form_of("param.put", op.type), regs, op.sources[1:]


def _scalars(formals: Sequence[ptx.Variable]) -> tuple[ptx.Variable, ...]:
    """Replace each formal parameter that is a vector register by one parameter per element."""
    found: list[ptx.Variable] = []
    for formal in formals:
        if formal.space == "reg" and formal.vector > 1:
            found += [replace(formal, name=f"{formal.name}.{c}", vector=1) for c in "xyzw"[: formal.vector]]
        else:
            found.append(formal)
    return tuple(found)


def _gather(frame: Frame, formals: Sequence[ptx.Variable]) -> None:
    """Bind the name of each vector parameter to the group of its elements."""
    for formal in formals:
        if formal.space == "reg" and formal.vector > 1:
            elements = (frame.names[each.name] for each in _scalars((formal,)))
            frame.names[formal.name] = OperandGroup(tuple(each for each in elements if isinstance(each, Reg)))


def side_by_side(formals: Iterable[ptx.Variable], space: str = "argument") -> list[tuple[MemorySlot, ptx.Variable]]:
    """Assign adjacent places to the parameters of a call or kernel, and return their slots."""
    found, end = [], 0
    for formal in formals:
        slot = slot_of(formal, space)
        end = placed(slot, end)
        found.append((slot, formal))
    return found


_WHOLE = (1, 2, 4, 8, 16)
"""Bytes of what one register may hold."""


def _pieces(formal: Reg | MemorySlot, *, at_once: bool = True) -> Iterator[tuple[int, int]]:
    """Cut a parameter into the largest pieces that fit, each by offset and size; into one where a register holds it."""
    at, size = 0, formal.size if isinstance(formal, MemorySlot) else formal.bits // 8
    piece = size
    if isinstance(formal, MemorySlot) and not (at_once and size in _WHOLE):
        piece = min(8, formal.align)
    while at < size:
        while at + piece > size:
            piece //= 2
        yield at, piece
        at += piece


def _space(slot: MemorySlot) -> str:
    return "local" if slot.space == "local" else "param"


def move_to_local(op: Op) -> None:
    """Redirect an access to parameters to the local space."""
    op.form = form_of(op.opcode, *("local" if m.startswith("param") else m for m in op.modifiers))


def _is_argument(address: SymbolAddress) -> bool:
    return address.slot.space == "argument"


def _disjoint(ranges: set[tuple[int, int]]) -> bool:
    """Return whether different accesses (offset, size) never overlap."""
    return all(start + size <= behind for (start, size), (behind, _) in pairwise(sorted(ranges)))
