"""Conversion of statements to one flat list of operations, with resolved names, split vectors, and inlined calls.

{ .reg .b32 x; .reg .v2 .b32 v;        mov.b32 v.x, a
  mov.v2.b32 v, {a, b};                mov.b32 v.y, b
  { .reg .b32 x;                 ->    add.u32 x, v.x, 1      (a different register from the outer x)
    add.u32 x, v.x, 1; }
}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cujit.devices.cpu.frontend.callgraph import target_name
from cujit.devices.cpu.frontend.inlining import MOST_CALLED, Calls, Frame, JumpTable, move_to_local, side_by_side
from cujit.devices.cpu.frontend.layout import (
    RESERVED,
    ModuleLayout,
    SharedMemory,
    inner_name,
    most_static_bytes,
    slot_of,
)
from cujit.devices.cpu.frontend.operands import mismatch, number_out_of_range
from cujit.devices.cpu.ir.program import (
    CLEAR,
    UNKNOWN_OPERAND,
    FloatConstant,
    IntConstant,
    KernelProgram,
    MemoryOperand,
    MemorySlot,
    Negation,
    Op,
    Operand,
    OperandGroup,
    Reg,
    Special,
    SymbolAddress,
    items_of,
)
from cujit.devices.cpu.ir.refusals import UNLINKED, Refusals
from cujit.formats.ptx import syntax as ptx
from cujit.formats.ptx.isa.semantics import UNKNOWN, form_of
from cujit.formats.ptx.isa.table import lookup, special_register
from cujit.values import replace

_RESERVED = "%reserved_smem_offset_"
_MAX_INLINED_OPS = 1_000_000


def flatten(entry: ptx.Function, layout: ModuleLayout, refusals: Refusals) -> KernelProgram:
    """Return the flat program of one kernel. Unsupported parts are recorded in ``refusals``.

    Calls are inlined if possible. Functions that cannot be inlined, such as recursive functions or functions called by
    address, are the ``functions`` of the program. They are flattened in the same way.
    """
    graph, shared = layout.graph, SharedMemory(layout.shared)
    for parameter in entry.parameters:
        if parameter.linkage == "hidden":
            refusals.add(parameter.line, f".hidden .param {parameter.name}", "a parameter that a GPU's driver fills in")
    if any(name == "minperctamemory" for name, _ in entry.directives):
        refusals.add(entry.line, ".minperctamemory", "global memory of each block, which launches here do not have")
    program = Flattener(shared, graph, entry, layout.slots, refusals).run()
    todo, ways = list(program.called), len(program.called)
    while todo and ways <= MOST_CALLED:
        name = todo.pop()
        if name not in program.functions:
            function = Flattener(shared, graph, graph.functions[name], layout.slots, refusals).run()
            program.functions[name] = function
            todo += function.called
            ways += len(function.called)
    if ways > MOST_CALLED:
        refusals.add(entry.line, entry.name, f"more than {MOST_CALLED:,} functions that its calls may lead to")
    most = most_static_bytes(layout.target, entry)
    if shared.static_bytes > most:
        why = f"{shared.static_bytes:,} bytes of static shared memory; a kernel for {layout.target} has {most:,}"
        help = "declare it as .extern .shared .align 16 .b8 memory[]; and give its bytes at the launch."
        refusals.mistake(entry.line, entry.name, why, help)
    shared.finish()
    for each in (program, *program.functions.values()):
        each.shared_size, each.has_dynamic = shared.size, shared.has_dynamic
    if RESERVED in shared.slots:
        program.ops.insert(0, Op(form_of(CLEAR), sources=(SymbolAddress(shared.slots[RESERVED]),)))
    return program


_MOST_WAYS = 5_000
"""Ways of the jumps by tables beyond which jumps by one table are joined."""


class Flattener(Calls):
    """Flattens one kernel, or one function that is called and not inlined."""

    _ways = 0
    """Ways of its jumps by tables."""

    def run(self) -> KernelProgram:
        """Flatten it."""
        frame = Frame()
        if self.entry.is_entry:
            for slot, p in side_by_side(self.entry.parameters, "param"):
                frame.names[p.name] = slot
                self.program.parameters_size = slot.offset + slot.size
        else:
            self.take_arguments(self.entry, frame)
        self.body(self.entry.body or (), frame, "")
        self.give_results(self.entry, frame)
        self.emit("exit")
        self.place_slots()
        return self.program

    # -- scopes ------------------------------------------------------------------------------------------

    def body(self, body: Sequence[ptx.Statement], frame: Frame, prefix: str) -> None:
        """Flatten the statements of a scope. ``prefix`` makes the labels of the scope unique."""
        for statement in body:
            if isinstance(statement, ptx.Label):
                frame.labels[statement.name] = f"{prefix}{statement.name}"
            elif isinstance(statement, ptx.BranchTargets):
                frame.tables[statement.name] = JumpTable(statement.targets)
            elif isinstance(statement, ptx.CallPrototype):
                frame.prototypes[statement.name] = statement
        for statement in body:
            self._statement(statement, frame, prefix)

    def _statement(self, statement: ptx.Statement, frame: Frame, prefix: str) -> None:
        if isinstance(statement, ptx.Instruction):
            self._instruction(statement, frame)
        elif isinstance(statement, ptx.Label):
            self.program.ops.append(Op(form_of("label"), targets=(frame.labels[statement.name],), line=statement.line))
        elif isinstance(statement, ptx.RegisterDecl):
            self._declare(statement, frame)
        elif isinstance(statement, ptx.Variable):
            frame.names[statement.name] = self._variable(statement)
        elif isinstance(statement, ptx.Scope):
            self.instances += 1
            self.body(statement.body, frame.inner(), f"{prefix}{self.instances}:")

    def _declare(self, decl: ptx.RegisterDecl, frame: Frame) -> None:
        for name, count in decl.names:
            if decl.vector != 1:  # its elements are registers of their own
                for each in [name] if count is None else [f"{name}{k}" for k in range(count)]:
                    elements = [self.program.register(f"{each}.{c}", decl.type) for c in "xyzw"[: decl.vector]]
                    frame.names[each] = OperandGroup(tuple(elements))
            elif count is None:
                frame.names[name] = self.program.register(name, decl.type)
            else:
                frame.ranges[name] = (count, decl.type)

    def _find(self, name: str, frame: Frame) -> Reg | MemorySlot | OperandGroup | None:
        found = frame.names.get(name)
        if found is not None:
            return found
        stem = name.rstrip("0123456789")
        for names, ranges in zip(frame.names.maps, frame.ranges.maps, strict=True):
            # %r12 may belong to a range named %r or, in hand-written text, %r1.
            for cut in range(len(stem), len(name)):
                entry = ranges.get(name[:cut])
                if entry is not None and int(name[cut:]) < entry[0] and (name[cut] != "0" or cut == len(name) - 1):
                    reg = names[name] = self.program.register(name, entry[1])
                    return reg
        return None

    def _variable(self, v: ptx.Variable) -> MemorySlot:
        if v.space == "shared":
            return self.shared.place(v)
        slot = slot_of(v)
        if v.space == "local":
            self.place_local(slot)
        elif v.space == "param":
            self.add(slot)
        elif v.space in ("global", "const"):
            return self.globals[inner_name(v)]
        else:
            self.refusals.mistake(v.line, f".{v.space}", "a variable of this space inside a function")
        return slot

    # -- instructions ------------------------------------------------------------------------------------

    def _instruction(self, i: ptx.Instruction, frame: Frame) -> None:
        if len(self.program.ops) > _MAX_INLINED_OPS:
            self.refusals.add(i.line, i.name, "the kernel is too large once its calls are inlined")
            return
        guard = self._find(i.predicate.register, frame) if i.predicate else None
        negated = i.predicate.negated if i.predicate else False
        if i.predicate and not isinstance(guard, Reg):
            self.refusals.mistake(i.line, f"@{i.predicate.register}", "an undeclared predicate")
            return
        op = Op(form_of(i.opcode, *i.modifiers), line=i.line, text=i.name, guard=guard, guard_negated=negated)  # type: ignore[arg-type]
        if i.opcode == "call":
            self.call(i, op, frame)
        elif op.form.is_jump:
            self._branch(i, op, frame)
        else:
            self._plain(i, op, frame)

    def _branch(self, i: ptx.Instruction, op: Op, frame: Frame) -> None:
        opcode = i.opcode
        if len(i.operands) != len(op.form.meaning.reads):
            self.mistake(i, f"{i.opcode} doesn't accept {len(i.operands)} operands")
            return
        if i.opcode == "ret" and frame.ret is not None:
            opcode, op.targets = "bra", (frame.ret,)
        elif i.opcode in ("ret", "exit"):
            if i.opcode == "exit" and not self.entry.is_entry:
                # A thread that ends inside a function leaves the warp, and the function goes on without it.
                leave = Op(form_of("call.exit"), guard=op.guard, guard_negated=op.guard_negated, line=op.line)
                self.program.ops.append(leave)
            opcode = "exit"
        elif i.opcode == "bra":
            op.targets = (frame.labels.get(name := target_name(i.operands[0]), name),)
        else:
            self._branch_by_table(i, op, frame)
            return
        op.form = form_of(opcode)
        self.program.ops.append(op)

    def _branch_by_table(self, i: ptx.Instruction, op: Op, frame: Frame) -> None:
        table = frame.tables.get(target_name(i.operands[1]))
        if table is None:
            self.mistake(i, "a jump table that is not declared by .branchtargets")
            return
        index = self.operand(i.operands[0], i, frame)
        if not isinstance(index, Reg) or index.bits != 32:
            self.mistake(i, "the number of a label that is not a register of 32 bits")
            return
        if table.index is None and not (table.is_used and self._ways + len(table.names) > _MOST_WAYS):
            table.is_used, self._ways = True, self._ways + len(table.names)
            op.form, op.sources, op.targets = form_of("brx"), (index,), _targets(table, frame)
            self.program.ops.append(op)
        else:
            self._share_jump(op, index, table, frame)

    def _share_jump(self, op: Op, index: Reg, table: JumpTable, frame: Frame) -> None:
        """Replace all further jumps through a table by one shared jump, to avoid a number of edges that is quadratic in
        the text.

        For example, ``@p brx.idx i, T;`` becomes ``@p mov.b32 n, i;`` and ``@p bra J;``. The shared jump is ``J:
        brx.idx n, T;``.
        """
        guard, negated, over = op.guard, op.guard_negated, ""
        if table.index is None:
            table.index = self.program.register(f"jump#{len(self.program.registers)}", "b32")
            table.label, over = table.index.name, f"{table.index.name}.over"
            if guard is not None:
                self.program.ops.append(Op(form_of("bra"), targets=(over,), guard=guard, guard_negated=not negated))
                guard, negated = None, False
        about: dict[str, Any] = {"guard": guard, "guard_negated": negated, "line": op.line}
        self.program.ops.append(Op(form_of("mov", "b32"), (table.index,), (index,), **about))
        if not over:
            self.program.ops.append(Op(form_of("bra"), targets=(table.label,), **about))
            return
        self.mark(table.label)
        jump = Op(form_of("brx"), sources=(table.index,), targets=_targets(table, frame), line=op.line, text=op.text)
        self.program.ops.append(jump)
        self.mark(over)

    def _plain(self, i: ptx.Instruction, op: Op, frame: Frame) -> None:
        row = lookup(i)
        if row is None or row.is_open:  # not executed; its operands are not known
            op.form = replace(op.form, meaning=UNKNOWN)
            self.program.ops.append(op)
            return
        operands = [self.operand(o, i, frame) for o in i.operands]
        if i.operands and op.form.has_result and isinstance(i.operands[0], ptx.RegisterSum):
            self.mistake(i, "a result that is not a register")
        parts = tuple(_part(o, frame) for o in i.operands)
        op.parts = parts if any(parts) else ()
        if i.opcode == "mov" and len(operands) == 2 and i.modifiers[:1] in (("v2",), ("v4",)):
            self._move_vector(op, operands[0], operands[1], i)
            return
        self._give_operands(op, operands, i)
        if (frame.ret is not None or not self.entry.is_entry) and _is_by_register(op):
            move_to_local(op)  # as ptxas does: in a function a register has no other address of a parameter
        self._append(op, i)

    def _give_operands(self, op: Op, operands: list[Operand], i: ptx.Instruction) -> None:
        if not op.form.has_result:
            op.sources = tuple(operands)
        elif operands:
            count = op.form.result_operands
            sources = operands if op.form.reads_result else operands[count:]
            op.results, op.sources = self._results(OperandGroup(tuple(operands[:count])), i), tuple(sources)
            self._carry(op)

    def _append(self, op: Op, i: ptx.Instruction) -> None:
        number = number_out_of_range(op)
        wrong = mismatch(op) or _wrong_parts(op)
        if number is not None:
            self.mistake(i, f"{number} is not a number that may stand there")
        elif wrong is None:
            self.program.ops.append(_by_parts(_in_space_of_variable(op)))
        else:  # passes count on operands that fit
            self.mistake(i, *wrong)

    def _move_vector(self, op: Op, target: Operand, source: Operand, i: ptx.Instruction) -> None:
        """Emit a vector move element by element. A scalar source is the first element, and the other
        elements are zero.
        """
        targets, sources = items_of(target), _elements(source, len(items_of(target)))
        if not isinstance(target, OperandGroup) or not len(targets) == len(sources) == op.form.vector:
            self.mistake(i, f"a vector of {len(sources)} for one of {len(targets)}")
        whole = replace(op, form=form_of("mov.vector", *op.modifiers), sources=(source,))
        whole.results = self._results(OperandGroup(targets), i)
        if isinstance(source, OperandGroup) and (wrong := mismatch(whole)):
            self.mistake(i, *wrong)
            return
        if any(source in targets[:k] for k, source in enumerate(sources)):
            sources = tuple(self._kept(op, s) if isinstance(s, Reg) else s for s in sources)
        if not whole.written:
            self.mistake(i, *_NOTHING_KEPT)
        for to, from_ in zip(targets, sources, strict=False):
            if isinstance(to, Reg):
                is_float = isinstance(from_, FloatConstant) and op.type.kind == "f"
                form = form_of("mov", *(op.modifiers[1:] if is_float else (f"b{op.type.bits}",)))
                self._append(Op(form, (to,), (from_,), op.guard, op.guard_negated, line=op.line, text=op.text), i)

    def _kept(self, op: Op, reg: Reg) -> Reg:
        """Copy a register that the next moves write before they read it."""
        copy = self.program.register(reg.name, reg.type)
        self.emit(".".join(("mov", *op.modifiers[1:])), (copy,), (reg,), op.line)
        return copy

    def _carry(self, op: Op) -> None:
        """Make the carry of extended-precision arithmetic a register like any other."""
        meaning = op.form.meaning
        if "C" in meaning.reads or "C" in meaning.writes:
            if self.carry is None:
                self.carry = self.program.register("CC.CF", "pred")
            op.sources += (self.carry,) * meaning.reads.count("C")
            op.results += (self.carry,) * meaning.writes.count("C")

    def _results(self, operand: Operand, i: ptx.Instruction) -> tuple[Reg | None, ...]:
        results: list[Reg | None] = []
        for item in items_of(operand):
            if isinstance(item, Reg):
                results.append(item)
            elif isinstance(item, OperandGroup):
                results += self._results(item, i)
            elif isinstance(item, Special) and item.name == "_":
                results.append(None)
            else:
                self.mistake(i, "a result that is not a register")
        return tuple(results)

    def operand(self, o: ptx.Operand, i: ptx.Instruction, frame: Frame) -> Operand:
        """Convert an operand to its flat form. An operand of an unknown form is refused."""
        if isinstance(o, ptx.Immediate):
            return IntConstant(o.value)
        if isinstance(o, ptx.FloatLiteral):
            return FloatConstant(o.bits, o.width)
        if isinstance(o, ptx.Register):
            return self._register(o.name, i, frame)
        if isinstance(o, ptx.SymbolRef):
            return self._symbol(o, i, frame)
        if isinstance(o, ptx.Address):
            return self._memory(o, i, frame)
        if isinstance(o, ptx.VectorOperand):
            return OperandGroup(tuple(self.operand(item, i, frame) for item in o.items))
        if isinstance(o, ptx.PairOperand):
            return OperandGroup((self.operand(o.first, i, frame), self.operand(o.second, i, frame)))
        if isinstance(o, ptx.ComponentOperand):
            return self._component(o, i, frame)
        if isinstance(o, ptx.RegisterSum):
            return self._sum(o, i, frame)
        if isinstance(o, ptx.Minus):
            return self.operand(o.item, i, frame)
        if isinstance(o, ptx.Negated):
            return Negation(self.operand(o.item, i, frame))
        return self._unknown(o, i)

    def _unknown(self, o: ptx.Operand, i: ptx.Instruction) -> Operand:
        self.refusals.add(i.line, i.name, f"an operand of this form ({type(o).__name__})")
        return UNKNOWN_OPERAND

    def _memory(self, o: ptx.Address, i: ptx.Instruction, frame: Frame) -> Operand:
        base = None if o.base is None else self.operand(o.base, i, frame)
        if base is None or isinstance(base, (Reg, SymbolAddress)):
            return MemoryOperand(base, o.offset, tuple(self.operand(c, i, frame) for c in o.coords))
        return self._unknown(o, i)

    def _sum(self, o: ptx.RegisterSum, i: ptx.Instruction, frame: Frame) -> Operand:
        """Add a number to a register before the instruction that reads the sum."""
        base = self._register(o.base.name, i, frame)
        if not isinstance(base, Reg) or base.is_float or base.bits == 1:
            self.mistake(i, f"{o.base.name} is not a register of integers, to which a number is added")
            return UNKNOWN_OPERAND
        total = self.program.register(base.name, f"b{base.bits}")
        self.emit(f"add.u{base.bits}", (total,), (base, IntConstant(o.offset)), i.line)
        return total

    def _component(self, o: ptx.ComponentOperand, i: ptx.Instruction, frame: Frame) -> Operand:
        found = self._find(o.base.name, frame)
        index = "xyzw".find(o.component) if o.component in "xyzw" else "rgba".find(o.component)
        if not isinstance(found, OperandGroup):
            return found if isinstance(found, Reg) else Special(f"{o.base.name[1:]}.{o.component}")
        if not 0 <= index < len(found.items):
            self.mistake(i, f"{o.base.name} has no element {o.component}")
            return UNKNOWN_OPERAND
        return found.items[index]

    def _register(self, name: str, i: ptx.Instruction, frame: Frame) -> Operand:
        found = self._find(name, frame)
        if found is not None:
            return SymbolAddress(found) if isinstance(found, MemorySlot) else found
        if name.startswith(_RESERVED):
            return self.shared.reserved(name)
        if special_register(name) is not None:
            return Special(name[1:])
        if name == "_":
            return Special("_")
        return self._symbol(ptx.SymbolRef(name), i, frame)

    def _symbol(self, o: ptx.SymbolRef, i: ptx.Instruction, frame: Frame) -> Operand:
        found = self._find(o.name, frame)
        if isinstance(found, Reg | OperandGroup):
            return found
        slot = found or self.globals.get(o.name) or self.shared.slots.get(o.name)
        if slot is None and o.name in self.shared.of_module:
            slot = self.shared.slots[o.name] = self._variable(self.shared.of_module[o.name])
        if slot is None:
            if o.name in self.graph.declared:
                why = "the address of a kernel" if o.name in self.graph.entries else f"{o.name}, {UNLINKED}"
                self.refusals.add(i.line, i.name, why)
                return SymbolAddress(MemorySlot(o.name, "global", 8, 8, 0))
            self.mistake(i, f"{o.name} is declared nowhere")
            return UNKNOWN_OPERAND
        return SymbolAddress(slot, o.offset)


def _is_by_register(op: Op) -> bool:
    """Whether a parameter is loaded or stored by an address in a register."""
    is_param = op.opcode in ("ld", "st") and op.space == "param"
    return is_param and any(isinstance(s, MemoryOperand) and isinstance(s.base, Reg) for s in op.sources)


def _in_space_of_variable(op: Op) -> Op:
    """Set the state space of an operation that specifies none and accesses a shared or local variable by name.

    The name of such a variable is an address in its space, not a generic address. The assembler derives the space from
    the name. It does not for ``wmma.load`` and ``wmma.store``: on an H200, these instructions fault at the bare offset.
    """
    if op.opcode == "wmma":
        return op
    operands = [s for s in op.sources if isinstance(s, MemoryOperand)]
    spaces = {s.base.slot.space if isinstance(s.base, SymbolAddress) else "" for s in operands}
    if spaces in ({"shared"}, {"local"}) and not op.form.spaces and "async" not in op.modifiers:
        op.form = form_of(op.opcode, *spaces, *op.modifiers)
    return op


def _elements(source: Operand, count: int) -> tuple[Operand, ...]:
    """List the elements of the source of a vector move. ``%tid`` and similar registers have four elements, and the last
    is 0.

    Source: PTX ISA 9.1, "Special Registers". For numbers and registers: the code that ptxas 13.5 generates.
    """
    if isinstance(source, OperandGroup):
        return source.items
    if isinstance(source, Special) and "." not in source.name:
        found = special_register(f"%{source.name}")
        if found is not None and found.components:
            return (*(Special(f"{source.name}.{c}") for c in "xyz"), IntConstant(0))
    return (source, *[IntConstant(0)] * (count - 1))


_NOTHING_KEPT = ("a result of which nothing is kept", "name a register in the place of one _.")


def _wrong_parts(op: Op) -> tuple[str, str] | None:
    """Return the error, with a hint, in a move to several parts. Return None if the move has no such error."""
    if op.opcode != "mov" or len(op.results) < 2:
        return None
    if isinstance(op.sources[0], OperandGroup):
        return "parts moved to parts", "join them in a register first, as mov.b64 t, {a, b}; does."
    return None if op.written else _NOTHING_KEPT


def _by_parts(op: Op) -> Op:
    """Return a move of several parts with a separate opcode. For every pass, ``mov`` moves one value unchanged."""
    if op.opcode == "mov" and (len(op.results) > 1 or isinstance(op.sources[0], OperandGroup)):
        op.form = form_of("mov.split" if len(op.results) > 1 else "mov.join", *op.modifiers)
    return op


def _part(operand: ptx.Operand, frame: Frame) -> str:
    """Return the part of a register that an operand names (``h1`` for ``%r1.h1``), with the prefix ``-`` for a
    negation.

    Elements of vectors are not parts.
    """
    if isinstance(operand, ptx.Minus):
        return "-" + _part(operand.item, frame)
    if isinstance(operand, ptx.ComponentOperand) and not isinstance(frame.names.get(operand.base.name), OperandGroup):
        return operand.component
    return ""


def _targets(table: JumpTable, frame: Frame) -> tuple[str, ...]:
    return tuple([frame.labels.get(name, name) for name in table.names])
