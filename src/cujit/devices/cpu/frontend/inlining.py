"""Calls: inlined where that can be, else left to machine code; and the parameters of both.

    { .param .b32 in, out;                 mov.b32 x, 5           (what the function calls x)
      st.param.b32 [in], 5;          ->    add.u32 y, x, 1
      call (out), successor, (in);         mov.b32 r, y
      ld.param.b32 r, [out]; }

A parameter of a call is a variable of the caller (``.param``). Where every access to it agrees it becomes registers;
else, and for calls that are not inlined, it lies in the caller's local memory. A function that is not inlined finds
its parameters there: all of one call lie side by side, results first, and the function gets their address.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from cujit.devices.cpu.frontend.callgraph import CallGraph, target_name
from cujit.devices.cpu.frontend.layout import variable_align, variable_size
from cujit.devices.cpu.frontend.scopes import Frame
from cujit.devices.cpu.ir.program import (
    Group,
    IntConstant,
    KernelProgram,
    Memory,
    Op,
    Operand,
    Reg,
    Slot,
    SymbolAddress,
    type_bits,
)
from cujit.devices.cpu.ir.refusals import Refusals
from cujit.devices.cpu.ir.semantics import form_of
from cujit.devices.cpu.run.allocations import aligned
from cujit.formats.ptx import syntax as ptx

__all__ = ["Calls"]


class Caller(Protocol):
    """The kernel or function that calls, as far as it is flat by now; ``stack`` are those that are being inlined."""

    program: KernelProgram
    graph: CallGraph
    globals: dict[str, Slot]
    refusals: Refusals
    instances: int
    stack: list[str]

    def operand(self, o: ptx.Operand, i: ptx.Instruction, frame: Frame) -> Operand:
        """Take over an operand."""

    def body(self, body: Sequence[ptx.Statement], frame: Frame, prefix: str) -> None:
        """Take over statements; ``prefix`` makes their labels differ from those of other instances."""

    def place_local(self, slot: Slot) -> None:
        """Give a variable its place in local memory."""


class Calls:
    """The calls of one kernel or function."""

    def __init__(self, flattener: Caller) -> None:
        self.flattener = flattener
        self.slots: list[Slot] = []
        self.arguments: Reg | None = None

    @property
    def _ops(self) -> list[Op]:
        return self.flattener.program.ops

    def add(self, slot: Slot) -> None:
        """Take up a parameter of a call."""
        slot.space = "call"
        self.slots.append(slot)

    # -- a function that is called, from inside --------------------------------------------------------------

    def take_arguments(self, function: ptx.Function, frame: Frame) -> None:
        """Let the formal parameters of a function be what its caller left: memory at ``%arguments``."""
        arguments = self.flattener.program.register("%arguments", "b64")
        self.arguments = arguments
        self._ops.append(Op(form_of("call.arguments"), results=(arguments,)))
        offset = 0
        results = _scalars(function.results)
        for formal in (*results, *_scalars(function.parameters)):
            offset = aligned(offset, variable_align(formal))
            slot = Slot(formal.name, "argument", variable_size(formal), variable_align(formal), offset)
            if formal.space == "reg":
                reg = self._register(formal)
                frame.names[formal.name] = reg
                if formal not in results:
                    self._ops.append(Op(form_of("ld", f"b{reg.bits}"), (reg,), (Memory(arguments, offset),)))
            else:
                frame.names[formal.name] = slot
            offset += variable_size(formal)
        _gather(frame, (*function.results, *function.parameters))
        # Results in registers are stored where the function ends, wherever it returns from.
        if any(formal.space == "reg" for formal in function.results):
            frame.ret = "return:"

    def give_results(self, function: ptx.Function, frame: Frame) -> None:
        """Store the results that a function has in registers."""
        if frame.ret is None or self.arguments is None:
            return
        self._ops.append(Op(form_of("label"), targets=(frame.ret,)))
        offset = 0
        for formal in _scalars(function.results):
            offset = aligned(offset, variable_align(formal))
            reg = frame.names[formal.name]
            if isinstance(reg, Reg):
                self._ops.append(Op(form_of("st", f"b{reg.bits}"), sources=(Memory(self.arguments, offset), reg)))
            offset += variable_size(formal)

    # -- calls -------------------------------------------------------------------------------------------

    def call(self, i: ptx.Instruction, op: Op, frame: Frame) -> None:
        """Take over a call."""
        at = next((k for k, o in enumerate(i.operands) if not isinstance(o, ptx.RegisterList)), None)
        if at is None:
            self.flattener.refusals.mistake(i.line, i.name, "a call of nothing")
            return
        results = [x for o in i.operands[:at] if isinstance(o, ptx.RegisterList) for x in o.items]
        arguments = [x for o in i.operands[at + 1 :] if isinstance(o, ptx.RegisterList) for x in o.items]
        given = _spread(self.flattener.operand(x, i, frame) for x in results)
        taken = _spread(self.flattener.operand(x, i, frame) for x in arguments)
        name = target_name(i.operands[at])
        callee = self.flattener.graph.find(name)
        skip = self._skip(op)
        if callee is not None:
            self._call_function(callee, given, taken, i)
        elif name in self.flattener.graph.declared:
            self._call_extern(name, given, taken, i)
        else:
            prototype = frame.prototype(target_name(i.operands[-1]))
            self._call_by_address(self.flattener.operand(i.operands[at], i, frame), prototype, given, taken, i)
        self._ops.append(Op(form_of("label"), targets=(skip,)))

    def _skip(self, op: Op) -> str:
        """Jump over a guarded call; give the label behind it."""
        self.flattener.instances += 1
        skip = f"skip#{self.flattener.instances}"
        if op.guard is not None:
            jump = Op(form_of("bra"), targets=(skip,), guard=op.guard, guard_negated=not op.guard_negated, line=op.line)
            self._ops.append(jump)
        return skip

    def _call_function(
        self, callee: ptx.Function, given: list[Operand], taken: list[Operand], i: ptx.Instruction
    ) -> None:
        results, parameters = _scalars(callee.results), _scalars(callee.parameters)
        if len(given) != len(results) or len(taken) != len(parameters):
            why = "a number of arguments that is not the function's"
            self.flattener.refusals.mistake(i.line, i.name, f"{callee.name}: {why}")
        elif callee.name in self.flattener.graph.out_of_line:
            self._call_out_of_line((callee.name,), None, (*results, *parameters), given, taken, i)
        else:
            self._inline(callee, given, taken)

    def _inline(self, callee: ptx.Function, given: list[Operand], taken: list[Operand]) -> None:
        flattener = self.flattener
        prefix = f"{callee.name}#{flattener.instances}:"
        inner = Frame(ret=f"{prefix}return")
        results = _scalars(callee.results)
        for formal, actual in zip((*results, *_scalars(callee.parameters)), (*given, *taken), strict=True):
            self._bind(formal, actual, inner, is_result=formal in results)
        _gather(inner, (*callee.results, *callee.parameters))
        flattener.stack.append(callee.name)
        flattener.body(callee.body or (), inner, prefix)
        flattener.stack.pop()
        self._ops.append(Op(form_of("label"), targets=(f"{prefix}return",)))
        for formal, actual in zip(results, given, strict=True):
            self._return(inner.names[formal.name], actual, formal)

    def _bind(self, formal: ptx.Variable, actual: Operand, inner: Frame, *, is_result: bool) -> None:
        """Give a formal parameter its place: the caller's own slot, or a register that takes the value."""
        if isinstance(actual, SymbolAddress) and formal.space == "param":
            inner.names[formal.name] = actual.slot
            return
        if formal.space == "param":
            slot = self._temporary(formal)
            inner.names[formal.name] = slot
            if not is_result:
                self._ops.append(
                    Op(form_of("st", "param", _bits(formal)), sources=(Memory(SymbolAddress(slot)), actual))
                )
            return
        reg = self._register(formal)
        inner.names[formal.name] = reg
        if not is_result:
            self._ops.append(Op(form_of("mov", _move(reg.bits)), (reg,), (actual,)))

    def _register(self, formal: ptx.Variable) -> Reg:
        return self.flattener.program.register(formal.name, formal.type)

    def _temporary(self, formal: ptx.Variable) -> Slot:
        slot = Slot(formal.name, "call", variable_size(formal), variable_align(formal))
        self.slots.append(slot)
        return slot

    def _return(self, place: Reg | Slot, actual: Operand, formal: ptx.Variable) -> None:
        if isinstance(actual, Reg):
            if isinstance(place, Slot):
                source = Memory(SymbolAddress(place))
                self._ops.append(Op(form_of("ld", "param", _bits(formal)), (actual,), (source,)))
            else:
                self._ops.append(Op(form_of("mov", _move(type_bits(formal.type))), (actual,), (place,)))

    # -- calls that stay calls ------------------------------------------------------------------------------

    def _call_extern(self, name: str, given: list[Operand], taken: list[Operand], i: ptx.Instruction) -> None:
        """Call a function that comes with the device: parameters and result as registers."""
        sizes = [actual.slot.size for actual in (*given, *taken) if isinstance(actual, SymbolAddress)]
        odd = next((size for size in sizes if size not in (1, 2, 4, 8)), None)
        if odd is not None:
            self.flattener.refusals.mistake(i.line, i.name, f"{name} takes and gives no {odd} bytes at a time")
            return
        sources = tuple(self._as_register(a) for a in taken)
        results = tuple(self._result_register(g) for g in given)
        self._ops.append(Op(form_of("call.extern", name), results, sources, line=i.line, text=f"call {name}"))
        for actual, reg in zip(given, results, strict=True):
            if isinstance(actual, SymbolAddress):
                place = Memory(SymbolAddress(actual.slot))
                self._ops.append(Op(form_of("st", "param", f"b{reg.bits}"), sources=(place, reg)))

    def _as_register(self, actual: Operand) -> Operand:
        if not isinstance(actual, SymbolAddress):
            return actual
        reg = self.flattener.program.register(actual.slot.name, f"b{8 * actual.slot.size}")
        self._ops.append(Op(form_of("ld", "param", f"b{reg.bits}"), (reg,), (Memory(SymbolAddress(actual.slot)),)))
        return reg

    def _result_register(self, actual: Operand) -> Reg:
        if isinstance(actual, Reg):
            return actual
        assert isinstance(actual, SymbolAddress)
        return self.flattener.program.register(actual.slot.name, f"b{8 * actual.slot.size}")

    def _call_by_address(
        self,
        target: Operand,
        prototype: ptx.CallPrototype | None,
        given: list[Operand],
        taken: list[Operand],
        i: ptx.Instruction,
    ) -> None:
        if prototype is None or not isinstance(target, Reg):
            self.flattener.refusals.mistake(i.line, i.name, "a call by address without .callprototype")
            return
        formals = _scalars((*prototype.results, *prototype.parameters))
        if len(given) != len(_scalars(prototype.results)) or len(given) + len(taken) != len(formals):
            self.flattener.refusals.mistake(i.line, i.name, "a number of arguments that is not the prototype's")
            return
        fitting = [n for n in self.flattener.graph.by_address if self._fits(n, formals)]
        self._call_out_of_line(tuple(fitting), target, formals, given, taken, i)

    def _fits(self, name: str, formals: tuple[ptx.Variable, ...]) -> bool:
        """Tell whether a function takes and gives what a prototype says."""
        f = self.flattener.graph.functions[name]
        own = _scalars((*f.results, *f.parameters))
        return [variable_size(v) for v in own] == [variable_size(v) for v in formals]

    def _call_out_of_line(
        self,
        names: tuple[str, ...],
        target: Reg | None,
        formals: tuple[ptx.Variable, ...],
        given: list[Operand],
        taken: list[Operand],
        i: ptx.Instruction,
    ) -> None:
        """Put the parameters side by side into local memory, and call one of the functions."""
        record = Slot("arguments", "local", 0, 16)
        places: list[Slot] = []
        for formal in formals:
            offset = aligned(record.size, variable_align(formal))
            places.append(Slot(formal.name, "local", variable_size(formal), variable_align(formal), offset))
            record.size = offset + variable_size(formal)
        record.size = aligned(max(record.size, 1), 16)
        self.flattener.place_local(record)
        for place in places:
            assert place.offset is not None
            assert record.offset is not None
            place.offset += record.offset
        inputs = list(zip(places[len(given) :], taken, formals[len(given) :], strict=True))
        for place, actual, formal in inputs:
            self._copy(SymbolAddress(place), actual, formal)
        sources: tuple[Operand, ...] = (SymbolAddress(record),)
        if target is not None:
            sources += (target, *(SymbolAddress(self.flattener.globals[name]) for name in names))
        called = Op(form_of("call.function"), (), sources, targets=names, line=i.line, text=i.name)
        self._ops.append(called)
        self.flattener.program.called += names
        for place, actual, formal in zip(places, given, formals, strict=False):
            self._copy(actual, SymbolAddress(place), formal)

    def _copy(self, to: Operand, from_: Operand, formal: ptx.Variable) -> None:
        """Copy a parameter between registers, slots of calls, and local memory, in the largest pieces that fit."""
        size, at = variable_size(formal), 0
        piece = min(8, variable_align(formal), size) if size else 0
        while at < size:
            while at + piece > size:
                piece //= 2
            kind = f"b{8 * piece}"
            value = from_
            if isinstance(from_, SymbolAddress):
                reg = self.flattener.program.register(formal.name, f"b{8 * piece}")
                space = "local" if from_.slot.space == "local" else "param"
                source = Memory(SymbolAddress(from_.slot), at)
                result = to if isinstance(to, Reg) else reg
                self._ops.append(Op(form_of("ld", space, kind), (result,), (source,)))
                value = result
            if isinstance(to, SymbolAddress):
                space = "local" if to.slot.space == "local" else "param"
                self._ops.append(Op(form_of("st", space, kind), sources=(Memory(SymbolAddress(to.slot), at), value)))
            at += piece

    # -- places ------------------------------------------------------------------------------------------

    def place_slots(self) -> None:
        """Give the parameters of calls registers where every access agrees, else a place in local memory."""
        self._point_at_arguments()
        uses: dict[int, list[tuple[Op, int, int]]] = {id(s): [] for s in self.slots}
        taken: set[int] = set()
        for op in self._ops:
            for source in op.sources:
                _note_use(op, source, uses, taken)
        for slot in self.slots:
            accesses = uses[id(slot)]
            if id(slot) in taken or not _disjoint({piece for access in accesses for piece in _pieces(*access)}):
                self.flattener.place_local(slot)
                for op, _, _ in accesses:
                    op.form = form_of(op.opcode, *("local" if m.startswith("param") else m for m in op.modifiers))
            else:
                self._promote(slot, accesses)

    def _point_at_arguments(self) -> None:
        """Replace the formal parameters of a function that is called by addresses from ``%arguments`` on."""
        if self.arguments is None:
            return
        ops: list[Op] = []
        for op in self._ops:
            op.sources = tuple(self._pointed(op, source, self.arguments, ops) for source in op.sources)
            ops.append(op)
        self.flattener.program.ops = ops

    def _pointed(self, op: Op, source: Operand, arguments: Reg, ops: list[Op]) -> Operand:
        """Replace one operand; an address that is used as a value is computed before, into ``ops``."""
        if isinstance(source, Memory) and isinstance(source.base, SymbolAddress) and _is_argument(source.base):
            op.form = form_of(op.opcode, *(m for m in op.modifiers if not m.startswith("param")))
            return Memory(arguments, (source.base.slot.offset or 0) + source.base.offset + source.offset)
        if isinstance(source, SymbolAddress) and _is_argument(source):
            reg = self.flattener.program.register(source.slot.name, "b64")
            at = IntConstant((source.slot.offset or 0) + source.offset)
            ops.append(Op(form_of("add", "u64"), (reg,), (arguments, at), line=op.line))
            return reg
        return source

    def _promote(self, slot: Slot, accesses: list[tuple[Op, int, int]]) -> None:
        cells: dict[int, Reg] = {}
        for op, offset, size in accesses:
            regs = []
            for at, width in _pieces(op, offset, size):
                if at not in cells:
                    cells[at] = self.flattener.program.register(f"{slot.name}+{at}", f"b{8 * width}")
                regs.append(cells[at])
            if op.opcode == "ld":
                op.form, op.sources = form_of("param.get", op.type), (Group(tuple(regs)),)
            else:
                op.form, op.results, op.sources = form_of("param.put", op.type), tuple(regs), op.sources[1:]


def _scalars(formals: Sequence[ptx.Variable]) -> tuple[ptx.Variable, ...]:
    """Take formal parameters that are vectors in registers for as many of one element."""
    found: list[ptx.Variable] = []
    for formal in formals:
        if formal.space == "reg" and formal.vector > 1:
            found += [replace(formal, name=f"{formal.name}.{c}", vector=1) for c in "xyzw"[: formal.vector]]
        else:
            found.append(formal)
    return tuple(found)


def _gather(frame: Frame, formals: Sequence[ptx.Variable]) -> None:
    """Let the elements of formal parameters that are vectors be found by the vector's name."""
    for formal in formals:
        if formal.space == "reg" and formal.vector > 1:
            elements = (frame.names[each.name] for each in _scalars((formal,)))
            frame.vectors[formal.name] = tuple(each for each in elements if isinstance(each, Reg))


def _spread(actuals: Iterable[Operand]) -> list[Operand]:
    """Take vectors among the arguments of a call apart."""
    return [each for actual in actuals for each in (actual.items if isinstance(actual, Group) else (actual,))]


def _is_argument(address: SymbolAddress) -> bool:
    return address.slot.space == "argument"


def _bits(formal: ptx.Variable) -> str:
    return f"b{type_bits(formal.type)}"


def _move(bits: int) -> str:
    return "pred" if bits == 1 else f"b{bits}"


def _note_use(op: Op, source: Operand, uses: dict[int, list[tuple[Op, int, int]]], taken: set[int]) -> None:
    """Note an access to a call slot, or that its address is taken."""
    if isinstance(source, Memory) and isinstance(source.base, SymbolAddress) and op.opcode in ("ld", "st"):
        slot = source.base.slot
        if id(slot) in uses:
            size = type_bits(op.type) // 8 * op.form.vector
            uses[id(slot)].append((op, source.base.offset + source.offset, size))
    elif isinstance(source, SymbolAddress) and id(source.slot) in uses:
        taken.add(id(source.slot))
    elif isinstance(source, Group):
        for item in source.items:
            _note_use(op, item, uses, taken)


def _pieces(op: Op, offset: int, size: int) -> list[tuple[int, int]]:
    """Offset and size of each element that an access reads or writes."""
    count = op.form.vector
    width = size // count
    return [(offset + k * width, width) for k in range(count)]


def _disjoint(ranges: set[tuple[int, int]]) -> bool:
    """Whether accesses (offset, size) are equal or apart."""
    end = 0
    for offset, size in sorted(ranges):
        if offset < end:
            return False
        end = offset + size
    return True
