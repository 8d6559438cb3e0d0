"""First pass: the body of a kernel, scopes resolved and calls inlined, as one flat ``KernelProgram``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cujit.devices.cpu.layout import aligned, type_bits, variable_align, variable_size
from cujit.devices.cpu.program import (
    FloatConstant,
    Group,
    IntConstant,
    KernelProgram,
    Memory,
    Negation,
    Op,
    Operand,
    Reg,
    Slot,
    Special,
    SymbolAddress,
)
from cujit.devices.cpu.refusals import Refusals
from cujit.devices.cpu.results import has_result, reads_its_result
from cujit.formats.ptx import syntax as ptx

__all__ = ["flatten"]

_MAX_INLINED_OPS = 1_000_000


@dataclass
class _Frame:
    """Names of one scope of one instance of a function."""

    parent: _Frame | None = None
    names: dict[str, Reg | Slot] = field(default_factory=dict)
    ranges: dict[str, tuple[int, int, bool]] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    ret: str | None = None

    def find(self, name: str) -> Reg | Slot | None:
        frame: _Frame | None = self
        while frame is not None:
            if name in frame.names:
                return frame.names[name]
            frame = frame.parent
        return None

    def label(self, name: str) -> str:
        frame: _Frame | None = self
        while frame is not None:
            if name in frame.labels:
                return frame.labels[name]
            frame = frame.parent
        return name

    def table(self, name: str) -> tuple[str, ...] | None:
        frame: _Frame | None = self
        while frame is not None:
            if name in frame.tables:
                return tuple(self.label(t) for t in frame.tables[name])
            frame = frame.parent
        return None


def flatten(module: ptx.Module, entry: ptx.Function, globals_: dict[str, Slot], refusals: Refusals) -> KernelProgram:
    """Make the flat program of one kernel; what cannot be taken over goes to ``refusals``."""
    flattener = _Flattener(module, entry, globals_, refusals)
    flattener.run()
    return flattener.program


class _Flattener:
    def __init__(self, module: ptx.Module, entry: ptx.Function, globals_: dict[str, Slot], refusals: Refusals) -> None:
        self.entry = entry
        self.refusals = refusals
        self.globals = globals_
        self.program = KernelProgram(entry.name)
        self.functions = {f.name: f for f in module.functions if f.body is not None}
        self.declared = {f.name for f in module.functions}
        self.module_shared = {v.name: v for v in module.variables if v.space == "shared"}
        self.shared: dict[str, Slot] = {}
        self.dynamic: list[Slot] = []
        self.call_slots: list[Slot] = []
        self.stack: list[str] = [entry.name]
        self.instances = 0
        self.carry: Reg | None = None

    def run(self) -> None:
        frame = _Frame()
        offset = 0
        for p in self.entry.parameters:
            offset = aligned(offset, variable_align(p))
            frame.names[p.name] = Slot(p.name, "param", variable_size(p), variable_align(p), offset)
            offset += variable_size(p)
        self.program.parameters_size = offset
        self._body(self.entry.body or (), frame, "")
        self.program.ops.append(Op("exit"))
        self._place_call_slots()
        for slot in self.dynamic:
            slot.offset = aligned(self.program.shared_size, slot.align)

    # -- scopes ------------------------------------------------------------------------------------------

    def _body(self, body: Sequence[ptx.Statement], frame: _Frame, prefix: str) -> None:
        for statement in body:
            if isinstance(statement, ptx.Label):
                frame.labels[statement.name] = f"{prefix}{statement.name}"
            elif isinstance(statement, ptx.BranchTargets):
                frame.tables[statement.name] = statement.targets
        for statement in body:
            self._statement(statement, frame, prefix)

    def _statement(self, statement: ptx.Statement, frame: _Frame, prefix: str) -> None:
        if isinstance(statement, ptx.Instruction):
            self._instruction(statement, frame)
        elif isinstance(statement, ptx.Label):
            self.program.ops.append(Op("label", targets=(frame.labels[statement.name],), line=statement.line))
        elif isinstance(statement, ptx.RegisterDecl):
            self._declare(statement, frame)
        elif isinstance(statement, ptx.Variable):
            frame.names[statement.name] = self._variable(statement)
        elif isinstance(statement, ptx.Scope):
            self.instances += 1
            self._body(statement.body, _Frame(frame, ret=frame.ret), f"{prefix}{self.instances}:")

    def _declare(self, decl: ptx.RegisterDecl, frame: _Frame) -> None:
        bits, is_float = type_bits(decl.type), decl.type in ("f32", "f64")
        if decl.vector != 1:
            self.refusals.add(decl.line, f".reg .v{decl.vector} .{decl.type}", "vector registers")
        for name, count in decl.names:
            if count is None:
                frame.names[name] = self.program.register(name, bits, is_float)
            else:
                frame.ranges[name] = (count, bits, is_float)

    def _find(self, name: str, frame: _Frame) -> Reg | Slot | None:
        found = frame.find(name)
        if found is not None:
            return found
        stem = name.rstrip("0123456789")
        scope: _Frame | None = frame
        while scope is not None:
            # %r12 may belong to a range named %r or, in hand-written text, %r1.
            for cut in range(len(stem), len(name)):
                entry = scope.ranges.get(name[:cut])
                if entry is not None and int(name[cut:]) < entry[0] and (name[cut] != "0" or cut == len(name) - 1):
                    reg = self.program.register(name, entry[1], entry[2])
                    scope.names[name] = reg
                    return reg
            scope = scope.parent
        return None

    def _variable(self, v: ptx.Variable) -> Slot:
        slot = Slot(v.name, v.space, variable_size(v), variable_align(v))
        if v.space == "shared":
            self._place_shared(slot, v)
        elif v.space == "local":
            self._place_local(slot)
        elif v.space == "param":
            slot.space = "call"
            self.call_slots.append(slot)
        else:
            self.refusals.add(v.line, f".{v.space} {v.name}", "a variable of this space inside a function")
        return slot

    def _place_shared(self, slot: Slot, v: ptx.Variable) -> None:
        if v.shape == (0,) or v.linkage == "extern":
            slot.dynamic = True
            self.dynamic.append(slot)
        else:
            slot.offset = aligned(self.program.shared_size, slot.align)
            self.program.shared_size = slot.offset + slot.size

    def _place_local(self, slot: Slot) -> None:
        slot.space = "local"
        slot.offset = aligned(self.program.local_size, max(slot.align, 1))
        self.program.local_size = slot.offset + slot.size

    # -- instructions ------------------------------------------------------------------------------------

    def _instruction(self, i: ptx.Instruction, frame: _Frame) -> None:
        if len(self.program.ops) > _MAX_INLINED_OPS:
            self.refusals.add(i.line, i.name, "the kernel is too large once its calls are inlined")
            return
        guard = self._find(i.predicate.register, frame) if i.predicate else None
        negated = i.predicate.negated if i.predicate else False
        if i.predicate and not isinstance(guard, Reg):
            self.refusals.add(i.line, f"@{i.predicate.register}", "an undeclared predicate")
            return
        op = Op(i.opcode, i.modifiers, line=i.line, text=i.name, guard=guard, guard_negated=negated)  # type: ignore[arg-type]
        if i.opcode == "call":
            self._call(i, op, frame)
        elif i.opcode in ("bra", "brx", "ret", "exit"):
            self._branch(i, op, frame)
        else:
            self._plain(i, op, frame)

    def _branch(self, i: ptx.Instruction, op: Op, frame: _Frame) -> None:
        op.modifiers = ()
        if i.opcode == "ret" and frame.ret is not None:
            op.opcode, op.targets = "bra", (frame.ret,)
        elif i.opcode in ("ret", "exit"):
            op.opcode = "exit"
        elif i.opcode == "bra":
            op.targets = (frame.label(_name_of(i.operands[0])),)
        else:
            table = frame.table(_name_of(i.operands[1]))
            if table is None:
                self.refusals.add(i.line, i.name, "a jump table that is not declared by .branchtargets")
                return
            op.sources, op.targets = (self._operand(i.operands[0], i, frame),), table
        self.program.ops.append(op)

    def _plain(self, i: ptx.Instruction, op: Op, frame: _Frame) -> None:
        operands = [self._operand(o, i, frame) for o in i.operands]
        if not has_result(op):
            op.sources = tuple(operands)
        elif operands:
            sources = operands if reads_its_result(op) else operands[1:]
            op.results, op.sources = self._results(operands[0], i), tuple(sources)
            self._carry(op)
        self.program.ops.append(op)

    def _carry(self, op: Op) -> None:
        """Make the carry of extended-precision arithmetic a register like any other."""
        if op.opcode in ("addc", "subc", "madc") or "cc" in op.modifiers:
            if self.carry is None:
                self.carry = self.program.register("CC.CF", 1)
            if op.opcode in ("addc", "subc", "madc"):
                op.sources += (self.carry,)
            if "cc" in op.modifiers:
                op.results += (self.carry,)

    def _results(self, operand: Operand, i: ptx.Instruction) -> tuple[Reg | None, ...]:
        items = operand.items if isinstance(operand, Group) else (operand,)
        results: list[Reg | None] = []
        for item in items:
            if isinstance(item, Reg):
                results.append(item)
            elif isinstance(item, Group):
                results += self._results(item, i)
            elif isinstance(item, Special) and item.name == "_":
                results.append(None)
            else:
                self.refusals.add(i.line, i.name, "a result that is not a register")
        return tuple(results)

    def _operand(self, o: ptx.Operand, i: ptx.Instruction, frame: _Frame) -> Operand:
        if isinstance(o, ptx.Immediate):
            return IntConstant(o.value)
        if isinstance(o, ptx.FloatLiteral):
            return FloatConstant(o.bits, o.width)
        if isinstance(o, ptx.Register):
            return self._register(o.name, i, frame)
        if isinstance(o, ptx.SymbolRef):
            return self._symbol(o, i, frame)
        if isinstance(o, ptx.Address):
            base = None if o.base is None else self._operand(o.base, i, frame)
            if base is None or isinstance(base, (Reg, SymbolAddress)):
                return Memory(base, o.offset, tuple(self._operand(c, i, frame) for c in o.coords))
        if isinstance(o, (ptx.VectorOperand, ptx.PairOperand)):
            items = o.items if isinstance(o, ptx.VectorOperand) else (o.first, o.second)
            return Group(tuple(self._operand(item, i, frame) for item in items))
        if isinstance(o, ptx.Negated):
            return Negation(self._operand(o.item, i, frame))
        self.refusals.add(i.line, i.name, f"an operand of this form ({type(o).__name__})")
        return IntConstant(0)

    def _register(self, name: str, i: ptx.Instruction, frame: _Frame) -> Operand:
        found = self._find(name, frame)
        if isinstance(found, Reg):
            return found
        if isinstance(found, Slot):
            return SymbolAddress(found)
        if name.startswith("%"):
            return Special(name[1:])
        if name == "_":
            return Special("_")
        return self._symbol(ptx.SymbolRef(name), i, frame)

    def _symbol(self, o: ptx.SymbolRef, i: ptx.Instruction, frame: _Frame) -> Operand:
        found = self._find(o.name, frame)
        if isinstance(found, Reg):
            return found
        slot = found or self.globals.get(o.name) or self.shared.get(o.name)
        if slot is None and o.name in self.module_shared:
            slot = self.shared[o.name] = self._variable(self.module_shared[o.name])
        if slot is None:
            why = "function pointers" if o.name in self.declared else f"{o.name} is declared nowhere"
            self.refusals.add(i.line, i.name, why)
            return IntConstant(0)
        return SymbolAddress(slot, o.offset)

    # -- calls -------------------------------------------------------------------------------------------

    def _call(self, i: ptx.Instruction, op: Op, frame: _Frame) -> None:
        at = next((k for k, o in enumerate(i.operands) if not isinstance(o, ptx.RegisterList)), None)
        name = _name_of(i.operands[at]) if at is not None else ""
        callee = self.functions.get(name)
        if at is None or callee is None:
            why = "a function that the CPU device does not have yet" if name in self.declared else "indirect calls"
            self.refusals.add(i.line, f"call {name}", why)
            return
        if name in self.stack:
            self.refusals.add(i.line, f"call {name}", "recursion")
            return
        results = [x for o in i.operands[:at] if isinstance(o, ptx.RegisterList) for x in o.items]
        arguments = [x for o in i.operands[at + 1 :] if isinstance(o, ptx.RegisterList) for x in o.items]
        if len(results) != len(callee.results) or len(arguments) != len(callee.parameters):
            self.refusals.add(i.line, f"call {name}", "a number of arguments that is not the function's")
            return
        self.instances += 1
        prefix = f"{name}#{self.instances}:"
        inner = _Frame(ret=f"{prefix}return")
        for formal, actual in zip((*callee.results, *callee.parameters), (*results, *arguments), strict=True):
            self._bind(formal, self._operand(actual, i, frame), inner, is_result=formal in callee.results)
        skip = f"{prefix}skip"
        if op.guard is not None:
            guard = Op("bra", targets=(skip,), guard=op.guard, guard_negated=not op.guard_negated, line=i.line)
            self.program.ops.append(guard)
        self.stack.append(name)
        self._body(callee.body or (), inner, prefix)
        self.stack.pop()
        self.program.ops.append(Op("label", targets=(f"{prefix}return",)))
        for formal, actual in zip(callee.results, results, strict=True):
            self._return(inner.names[formal.name], self._operand(actual, i, frame), formal)
        self.program.ops.append(Op("label", targets=(skip,)))

    def _bind(self, formal: ptx.Variable, actual: Operand, inner: _Frame, *, is_result: bool) -> None:
        """Give a formal parameter its place: the caller's own slot, or a register that takes the value."""
        if isinstance(actual, SymbolAddress) and formal.space == "param":
            inner.names[formal.name] = actual.slot
            return
        bits = type_bits(formal.type)
        reg = self.program.register(formal.name, bits, formal.type in ("f32", "f64"))
        if formal.space == "param":
            slot = Slot(formal.name, "call", variable_size(formal), variable_align(formal))
            self.call_slots.append(slot)
            inner.names[formal.name] = slot
            if not is_result:
                place = Memory(SymbolAddress(slot))
                self.program.ops.append(Op("st", ("param", f"b{bits}"), sources=(place, actual)))
            return
        inner.names[formal.name] = reg
        if not is_result:
            self.program.ops.append(Op("mov", (_bits_type(bits),), (reg,), (actual,)))

    def _return(self, place: Reg | Slot, actual: Operand, formal: ptx.Variable) -> None:
        if isinstance(actual, Reg):
            bits = type_bits(formal.type)
            if isinstance(place, Slot):
                source = Memory(SymbolAddress(place))
                self.program.ops.append(Op("ld", ("param", f"b{bits}"), (actual,), (source,)))
            else:
                self.program.ops.append(Op("mov", (_bits_type(bits),), (actual,), (place,)))

    def _place_call_slots(self) -> None:
        """Give the parameters of calls registers where every access agrees, else a place in local memory."""
        uses: dict[int, list[tuple[Op, int, int]]] = {id(s): [] for s in self.call_slots}
        taken: set[int] = set()
        for op in self.program.ops:
            for source in op.sources:
                _note_use(op, source, uses, taken)
        for slot in self.call_slots:
            accesses = uses[id(slot)]
            if id(slot) in taken or not _disjoint({(o, n) for _, o, n in accesses}):
                self._place_local(slot)
                for op, _, _ in accesses:
                    op.modifiers = tuple("local" if m.startswith("param") else m for m in op.modifiers)
            else:
                self._promote(slot, accesses)

    def _promote(self, slot: Slot, accesses: list[tuple[Op, int, int]]) -> None:
        cells: dict[int, Reg] = {}
        for op, offset, size in accesses:
            count = _vector_of(op)
            width = size // count
            regs = []
            for k in range(count):
                at = offset + k * width
                if at not in cells:
                    cells[at] = self.program.register(f"{slot.name}+{at}", 8 * width, False)
                regs.append(cells[at])
            kind = next(m for m in reversed(op.modifiers) if m[0] in "bsuf" and m[-1].isdigit())
            if op.opcode == "ld":
                op.opcode, op.modifiers, op.sources = "param.get", (kind,), (Group(tuple(regs)),)
            else:
                op.opcode, op.modifiers, op.results, op.sources = (
                    "param.put",
                    (kind,),
                    tuple(regs),
                    op.sources[1:],
                )


def _bits_type(bits: int) -> str:
    return "pred" if bits == 1 else f"b{bits}"


def _name_of(operand: ptx.Operand) -> str:
    return getattr(operand, "name", "")


def _vector_of(op: Op) -> int:
    return next((int(m[1:]) for m in op.modifiers if m in ("v2", "v4", "v8")), 1)


def _note_use(op: Op, source: Operand, uses: dict[int, list[tuple[Op, int, int]]], taken: set[int]) -> None:
    """Note an access to a call slot, or that its address is taken."""
    if isinstance(source, Memory) and isinstance(source.base, SymbolAddress) and op.opcode in ("ld", "st"):
        slot = source.base.slot
        if id(slot) in uses:
            size = type_bits(op.modifiers[-1]) // 8 * _vector_of(op)
            uses[id(slot)].append((op, source.base.offset + source.offset, size))
    elif isinstance(source, SymbolAddress) and id(source.slot) in uses:
        taken.add(id(source.slot))
    elif isinstance(source, Group):
        for item in source.items:
            _note_use(op, item, uses, taken)


def _disjoint(ranges: set[tuple[int, int]]) -> bool:
    """Whether accesses (offset, size) are equal or apart, vectors included."""
    end = 0
    for offset, size in sorted(ranges):
        if offset < end:
            return False
        end = offset + size
    return True
