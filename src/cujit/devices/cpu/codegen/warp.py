"""The body of a kernel for one warp: its registers and the values that operations read and write."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

from cujit.devices.cpu.analysis.body import Body, gives_one_nan, sees_bits
from cujit.devices.cpu.analysis.uniformity import UNIFORM, VARYING, WARP, Divergence, Shape, low_bits, operand_shape
from cujit.devices.cpu.codegen.builder import Builder, Value, int_type, storage_type, type_width
from cujit.devices.cpu.codegen.nodes import BLOCK, FIRST_THREAD, LAUNCH
from cujit.devices.cpu.codegen.outlining import LEAST, Often
from cujit.devices.cpu.codegen.rounding import canonical
from cujit.devices.cpu.codegen.special import RegisterRead, special_value
from cujit.devices.cpu.ir.program import FloatConstant, IntConstant, Negation, Op, Operand, Reg, Special, SymbolAddress
from cujit.devices.cpu.native.structures import FaultKind
from cujit.devices.cpu.run.launch import WINDOW_BITS, field_offset
from cujit.devices.shapes import Dim3
from cujit.errors import CujitError
from cujit.forks import cached_property
from cujit.values import dataclass, field

if TYPE_CHECKING:
    from cujit.devices.cpu.analysis.patterns import VectorAccess
    from cujit.devices.cpu.ir.cfg import ControlFlowGraph
    from cujit.devices.cpu.ir.program import KernelProgram

__all__ = [
    "ALL_LANES", "MASK", "Handler", "Observer", "WarpEmitter", "element_of", "forms_of", "storage_type",
]  # fmt: skip

MASK = f"<{WARP} x i1>"
ALL_LANES = Value("splat (i1 true)", "i1", WARP, True)

Handler: TypeAlias = "Callable[[WarpEmitter, Op], Value | None]"
"""Emits one operation; gives the lanes that go on where some may exit."""


class Observer(Protocol):
    """Called while code is emitted, for every operation in the order of a block.

    ``e.mask`` are the lanes that come to the operation, whatever its predicate says. After a jump there is nothing to
    do; after a barrier come the lanes that it lets go on, maybe in several places.
    """

    def before(self, e: WarpEmitter, op: Op) -> None:
        """Emit what runs before an operation."""

    def after(self, e: WarpEmitter, op: Op) -> None:
        """Emit what runs after it, in the lanes that still go on."""

    def shadow_of(self, e: WarpEmitter, reg: Reg) -> tuple[str, str, int] | None:
        """Name the variable that is kept beside a register, its type and lanes; None where there is none."""

    @property
    def begin_region(self) -> Callable[[WarpEmitter, int], None] | None:
        """What emits what runs where a warp begins a region of a kernel that is cut at its barriers, by its number.

        Barriers come to nobody then. It is None where every operation is to be emitted in the simplest way.
        """


@dataclass(frozen=True, eq=False)
class WarpEmitter:
    """Emits one kernel, or a part of it, for one block shape into a ``Builder``.

    It never changes: what is emitted for other lanes, or elsewhere, is emitted by another one, see ``within``.

    ``parameters`` are those of the kernel that are read, by offset and type; ``frame`` loads them before all else.
    ``lent`` tells where the vectors of registers are, by number, that stay in memory, ``results`` are those of the
    operation that a rule emits, each with its form. ``vectors`` are those in which a load or store of shared memory
    finds all that it accesses. ``suspends``: every warp has a stack of its own. ``often`` is of the whole module.

    ``mask`` are the lanes that run the block at ``position``. With a ``lane``, registers are read and written as the
    one scalar that they are there; without, vectors of them have ``width`` lanes. ``moved`` begins the names of
    variables of registers, by number, that are called otherwise than usual. ``sees_bits`` tells whether what is read is
    read for its bits, those of NaNs as well; not so in most arithmetic.
    """

    body: Body
    graph: ControlFlowGraph
    divergence: Divergence
    block: Dim3
    handler_of: Callable[[Op], Handler]
    builder: Builder
    observers: Sequence[Observer] = ()
    vectors: Mapping[Op, VectorAccess] = field(default_factory=dict)
    suspends: bool = False
    is_function: bool = False
    parameters: dict[tuple[int, str], Value] = field(default_factory=dict)
    lent: dict[int, Value] = field(default_factory=dict)
    results: list[tuple[Reg, str, Value]] = field(default_factory=list)
    often: Often = field(default_factory=Often)
    mask: Value = ALL_LANES
    position: int = 0
    lane: int | None = None
    width: int = WARP
    moved: Mapping[int, str] = field(default_factory=dict)
    sees_bits: bool = True

    def within(self, **other: object) -> WarpEmitter:
        """Return an emitter of the same code with ``other`` fields."""
        made = object.__new__(WarpEmitter)
        vars(made).update(vars(self), **other)
        return made

    @property
    def program(self) -> KernelProgram:
        """The operations and registers of all the kernel."""
        return self.body.program

    @cached_property
    def any_nan(self) -> frozenset[int]:
        """Registers, by number, in which any NaN may stand for the one that GPUs give."""
        return frozenset() if self.observers else self.body.any_nan

    # -- the whole ---------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Write the initial values of registers that do not start as zero."""
        b = self.builder
        for reg in self.program.registers:
            if self.shape(reg).guarded:
                b.write(f"r{reg.index}.g", b.integer(1, 1))
                if reg.index in self.divergence.lazy:
                    b.write(f"r{reg.index}.v", Value("poison", storage_type(reg), WARP))

    def fault(self, kind: int, line: Value, address: Value, lane: Value | None = None) -> None:
        """End the launch with a fault; the code that follows is not reached.

        ``lane`` is that of the thread which cannot go on (an i32; the warp's first without).
        """
        b = self.builder
        first = FIRST_THREAD
        thread = first if lane is None else b.binary("add", first, lane)
        b.call("cujit_fault", "void", LAUNCH, b.integer(int(kind), 32), BLOCK, thread, line, address)
        b.unreachable()

    def _need_cluster(self, op: Op) -> None:
        """End a launch that names no cluster, if a lane comes to an operation that needs one."""
        b = self.builder
        size = b.load("i32", b.offset(LAUNCH, field_offset("cluster_x")))
        lanes = b.binary("and", self.lanes_of(op), b.vector(b.compare("icmp eq", size, b.integer(0, 32))))
        with b.when(b.any_lane(lanes), "unclustered"):
            self.fault(FaultKind.NO_CLUSTER, b.integer(op.line, 32), b.integer(0, 64), b.first_lane(lanes))

    # -- lanes -------------------------------------------------------------------------------------------

    @property
    def warps(self) -> int:
        """Count the warps of a block."""
        return -(-self.block.volume // WARP)

    @property
    def reconverges(self) -> bool:
        """Whether the lanes that pass here do so at one time, as far as the shapes let them."""
        return not self.divergence.non_reconverging >> self.position & 1

    @property
    def counts_lanes(self) -> bool:
        """Whether it is kept which lanes have not exited."""
        return self.suspends or bool(self.divergence.non_reconverging)

    def live(self) -> Value:
        """Read the lanes that have not exited; without early exits those that began."""
        return self.builder.read("live", "i1", lanes=WARP) if self.counts_lanes else self.mask

    def lanes_of(self, op: Op) -> Value:
        """Find the lanes that do an operation, as a vector."""
        return self.builder.vector(self.lanes(op))

    def note_progress(self) -> None:
        """Request one more scan of the blocks: lanes have left, so the other lanes need not wait for them."""
        if self.divergence.non_reconverging:
            self.builder.write("progress", self.builder.integer(1, 1))

    # -- operations --------------------------------------------------------------------------------------

    @property
    def watched(self) -> bool:
        """Whether somebody watches: then every operation is emitted for itself."""
        return bool(self.observers)

    def before(self, op: Op) -> None:
        """Notify the observers that an operation comes, in the lanes of ``mask``."""
        self.builder.come_to(op.line)
        for observer in self.observers:
            observer.before(self, op)

    def after(self, op: Op) -> None:
        """Notify the observers that an operation was done."""
        for observer in self.observers:
            observer.after(self, op)

    def emit_op(self, op: Op) -> WarpEmitter:
        """Emit one operation in the lanes of the current block, and what those who watch want around it.

        What follows is emitted by the one that comes back: some lanes may have exited.
        """
        self.before(op)
        then = self._emit_op(op)
        then.after(op)
        return then

    def _emit_op(self, op: Op) -> WarpEmitter:
        # What lanes do together needs the values of all of them.
        shape = VARYING if op.form.is_per_lane else self._result_shape(op)
        # The difference of two affine values is uniform: it, too, is computed from their bases.
        if shape.stride is None or (shape.is_uniform and not self._counts(op)):
            return self._handle(op)
        for row in self.each_row(shape):
            row._handle(op)
        if shape.guarded:
            self._emit_guarded(op)
        return self

    def _result_shape(self, op: Op) -> Shape:
        """Shape of the one result; several are made of what is the same in all lanes, or in vectors."""
        return VARYING if op.result is None else self.shape(op.result)

    def _counts(self, op: Op) -> bool:
        """Whether an operation reads what counts up with the lane."""
        return any(self.operand_shape(s).is_affine for s in op.sources if isinstance(s, Reg | Special))

    def _emit_guarded(self, op: Op) -> None:
        """Find out whether the bases that an operation made are right, and make the vector: of a lazy one if not."""
        result, holds = op.result, self._holds(op)
        assert result is not None
        self.builder.write(f"r{result.index}.g", holds)
        is_lazy = result.index in self.divergence.lazy
        with self.builder.when(holds, "wraps", holds=False) if is_lazy else contextlib.nullcontext():
            self._handle(op)

    def each_row(self, shape: Shape) -> list[WarpEmitter]:
        """Return emitters that read and write registers as the scalars in the first lane of each row."""
        return [self.within(lane=lane) for lane in shape.first_lanes]

    def _holds(self, op: Op) -> Value:
        """Whether the short form of a guarded result is right: those of its sources are, and nothing wraps here."""
        b = self.builder
        holds = b.integer(1, 1)
        for source in op.sources:
            if isinstance(source, Reg) and self.shape(source).guarded:
                holds = b.binary("and", holds, self.base_holds(source))
        if op.opcode == "and":
            holds = b.binary("and", holds, self._keeps_low_bits(op))
        widened = op.opcode == "cvt" or "wide" in op.modifiers
        for source in op.sources[: 2 if "wide" in op.modifiers else 1] if widened else ():
            shape = self.operand_shape(source)
            if shape.stride and not (shape.guarded and type_width(self._type_of(source)) == 64):
                holds = b.binary("and", holds, self._does_not_wrap(source, shape, op.modifiers[-1]))
        return holds

    def _keeps_low_bits(self, op: Op) -> Value:
        """Whether a mask leaves the bits alone in which the lanes of a value that counts up differ."""
        b = self.builder
        mask, counting = sorted(op.sources, key=lambda s: not self.operand_shape(s).is_uniform)
        low = b.integer(low_bits(self.operand_shape(counting)), 32)
        return b.compare("icmp eq", b.binary("and", self.read(mask, "i32"), low), low)

    def _type_of(self, operand: Operand) -> str:
        return storage_type(operand) if isinstance(operand, Reg) else "i32"

    def _does_not_wrap(self, source: Operand, shape: Shape, type_: str) -> Value:
        """Whether a 32-bit affine value stays within its type from the first lane of each row to the last."""
        b, sign = self.builder, type_[0]
        reach = (shape.stride or 0) * (shape.row - 1)
        low, high = (-(1 << 31), (1 << 31) - 1) if sign == "s" else (0, (1 << 32) - 1)
        holds = b.integer(1, 1)
        for row in self.each_row(shape):
            base = row.read(source, "i32")
            if reach > 0:
                one = b.compare(f"icmp {sign}le", base, b.integer(high - reach, 32))
            else:
                one = b.compare(f"icmp {sign}ge", base, b.integer(low - reach, 32))
            holds = b.binary("and", holds, one)
        return holds

    # -- registers ---------------------------------------------------------------------------------------

    def shape(self, reg: Reg) -> Shape:
        """Shape of a register."""
        return self.divergence.shapes[reg.index]

    def operand_shape(self, operand: Operand | None) -> Shape:
        """Shape of an operand that is a register, a special register or a constant."""
        return UNIFORM if operand is None else operand_shape(operand, self.divergence.shapes, self.block)

    def read(self, operand: Operand, type_: str) -> Value:
        """Read an operand as a value of that type: a scalar where it is uniform, else a vector."""
        b = self.builder
        if isinstance(operand, Reg):
            known = self.divergence.constants.get(operand.index)
            value = self._load(operand) if known is None else b.integer(known, operand.bits)
            if self.sees_bits and operand.index in self.any_nan:
                value = canonical(b, self._as(value, "float"))
            return self._as(value, type_)
        if isinstance(operand, IntConstant):
            return self._integer_constant(operand.value, type_)
        if isinstance(operand, FloatConstant):
            width = type_width(type_)
            return self._as(b.real(rounded_bits(operand, width), width), type_)
        if isinstance(operand, Negation):
            return b.binary("xor", self.read(operand.item, "i1"), b.integer(1, 1))
        if isinstance(operand, Special):
            return self._as(special_value(RegisterRead(b, self.program, self.block, self.lane), operand.name), type_)
        assert isinstance(operand, SymbolAddress), operand
        return self._as(self.symbol(operand), type_)

    def _integer_constant(self, value: int, type_: str) -> Value:
        b = self.builder
        if type_ in ("float", "double", "half"):
            return b.real(value, type_width(type_))
        return b.integer(value, type_width(type_))

    def variable(self, reg: Reg, form: str) -> str:
        """Name the variable that is a register in one of its forms (see ``forms_of``)."""
        return f"{self.moved.get(reg.index, 'r')}{reg.index}.{form}"

    def base_holds(self, reg: Reg) -> Value:
        """Whether the bases of a guarded register are right."""
        return self.builder.read(f"r{reg.index}.g", "i1")

    def _load(self, reg: Reg) -> Value:
        b, shape = self.builder, self.shape(reg)
        if self.lane is not None or shape.is_uniform:
            return self._load_base(reg)
        if shape.stride is not None and not shape.guarded:
            return self._spread(reg)
        every = self._load_vector(reg)
        if reg.index not in self.divergence.lazy:
            return every
        return b.select(self.base_holds(reg), self._spread(reg), every)

    def _load_base(self, reg: Reg) -> Value:
        """Read the scalar that a register is in ``lane``; a varying one is a vector all the same."""
        b, shape, type_ = self.builder, self.shape(reg), storage_type(reg)
        if shape.stride is None:
            return self._load_vector(reg)
        row, column = divmod(self.lane or 0, shape.row)
        base = b.read(self.variable(reg, base_form(row)), type_)
        far = column * shape.stride
        return b.binary("add", base, b.integer(far, reg.bits)) if far else base

    def _load_vector(self, reg: Reg) -> Value:
        b, type_ = self.builder, storage_type(reg)
        if reg.index in self.lent:
            return b.load(type_, self.lent[reg.index], lanes=self.width)
        return b.read(self.variable(reg, "v"), type_, lanes=self.width)

    def _spread(self, reg: Reg) -> Value:
        """Make the vector that a base for each row and a stride stand for."""
        b, shape, type_ = self.builder, self.shape(reg), storage_type(reg)
        bases = [b.read(f"r{reg.index}.{base_form(k)}", type_) for k in range(len(shape.first_lanes))]
        every = b.rows(bases)
        if not shape.stride:
            return every
        return b.binary("add", every, b.lanes([k % shape.row * shape.stride for k in range(WARP)], reg.bits))

    def _as(self, value: Value, type_: str) -> Value:
        """Convert a value's low bits to another type. Wider integers are filled with zeros."""
        if value.type == type_:
            return value
        b = self.builder
        width, wanted = type_width(value.type), type_width(type_)
        as_int = b.bits_as(value, int_type(width))
        if width != wanted:
            as_int = b.resize(as_int, wanted, signed=False)
        return b.bits_as(as_int, type_)

    def source(self, op: Op, index: int, type_: str) -> Value:
        """Read source ``index`` of an operation."""
        return self.read(op.sources[index], type_)

    def guard(self, op: Op) -> Value:
        """Read the predicate of an operation, its negation applied; true where it has none."""
        if op.guard is None:
            return self.builder.integer(1, 1)
        value = self.read(op.guard, "i1")
        return self.builder.binary("xor", value, self.builder.integer(1, 1)) if op.guard_negated else value

    def lanes(self, op: Op) -> Value:
        """Return the lanes in which an operation runs: the lanes of the block in which its predicate is true."""
        return (
            self.mask
            if op.guard is None
            else self.builder.binary("and", self.mask, self.builder.vector(self.guard(op)))
        )

    def put(self, op: Op, value: Value, index: int = 0) -> None:
        """Write result ``index`` of an operation, and preserve the old value in lanes that must keep it."""
        reg = op.results[index]
        if reg is None:
            return
        b, shape, type_ = self.builder, self.shape(reg), storage_type(reg)
        if gives_one_nan(op) and reg.index not in self.any_nan:
            value = canonical(b, value)
        value = self._as(value, type_)
        if self.lane is not None:
            self.results.append((reg, base_form(self.lane // shape.row), value))
            return
        if op.guard is not None:
            value = b.select(self.guard(op), value, self._load(reg))
        if shape.is_uniform:
            if value.lanes:
                raise CujitError(
                    f"{op.name} (line {op.line}) writes a vector to a uniform register, which is a bug in cujit",
                    help="report this bug with the PTX",
                    code="internal",
                )
            self.results.append((reg, "b", value))
            return
        value = b.vector(value, self.width)
        if not self.mask.constant and self.divergence.masked[self.position] >> reg.index & 1:
            value = b.select(self.mask, value, self._load(reg))
        self.results.append((reg, "v", value))

    def write(self, reg: Reg, form: str, value: Value) -> None:
        """Write a register in one of its forms."""
        if form == "v" and reg.index in self.lent:
            self.builder.store(value, self.lent[reg.index])
        else:
            self.builder.write(self.variable(reg, form), value)

    def _handle(self, op: Op) -> WarpEmitter:
        """Emit an operation, and write its results after all reads of its sources, predicate, and old values.

        Some arithmetic does not depend on the bits of NaNs. Neither does a copy to a register that may contain any NaN.
        """
        if op.form.needs_cluster:
            self._need_cluster(op)
        handler = self.handler_of(op)
        copies = op.result is not None and op.result.index in self.any_nan and not gives_one_nan(op)
        e = self.within(sees_bits=False) if self.any_nan and (copies or not sees_bits(op)) else self
        if self.often.knows(op.opcode) and e._call_often(op):
            return self
        begin = len(self.builder.body)
        lanes = handler(e, op)
        if len(self.builder.body) - begin >= LEAST and len(self.results) == 1:
            e._outline(op, begin)
        self.write_results()
        return self if lanes is None else self.within(mask=lanes)

    def _call_often(self, op: Op) -> bool:
        """Emit an operation as a call, if one of its kind was emitted so before."""
        found = self._kind(op)
        value = None if found is None else self.often.call(self.builder, op.opcode, *found)
        if value is None:
            return False
        (result,) = op.written
        self.write(result, "b" if self.shape(result).is_uniform else "v", value)
        return True

    def _outline(self, op: Op, begin: int) -> None:
        """Turn an emitted operation into a call, if it makes many nodes and there are many such."""
        ((reg, form, value),) = self.results
        called = self.often.outline(self.builder, begin, op.opcode, value)
        if called is None:
            return
        self.results[:] = [(reg, form, called)]
        if (found := self._kind(op)) is not None:
            self.often.note(self.builder.body[-1], called, op.opcode, *found)

    def _kind(self, op: Op) -> tuple[Hashable, list[Value]] | None:
        """Return a key of the arithmetic of an operation on whole registers, and the values that the operation may
        read.

        The key covers registers in variables, numbers, and whether lanes must keep old values. Return None if the
        arithmetic depends on anything else.
        """
        about: list[Hashable] = []
        numbers: dict[int, int] = {}
        values = [self.mask]
        for operand in (*op.sources, *op.results, op.guard):
            if not isinstance(operand, Reg):
                if not (operand is None or isinstance(operand, IntConstant | FloatConstant)):
                    return None
                about.append(operand)
                continue
            index, shape = operand.index, self.shape(operand)
            if self.lane is not None or index in self.lent or not (shape.is_uniform or shape.stride is None):
                return None
            known = self.divergence.constants.get(index)
            number = numbers.setdefault(index, len(numbers))
            about.append((number, operand.type, shape.is_uniform, index in self.any_nan, known))
            if known is None:
                values.append(self._load(operand))
        (result,) = op.written
        keeps = self.divergence.masked[self.position] >> result.index & 1
        how = (op.modifiers, op.parts, op.guard_negated, self.mask.constant, keeps, self.width, self.sees_bits)
        return (how, *about), values

    def write_results(self) -> None:
        """Write the pending results of ``put``.

        An emitter that sets results on only some control-flow paths must write the results on these paths.
        """
        for result in self.results:
            self.write(*result)
        self.results.clear()

    # -- addresses ---------------------------------------------------------------------------------------

    def symbol(self, symbol: SymbolAddress) -> Value:
        """Return the address of a variable in its state space, as i64.

        The address is an offset for shared and local variables, and otherwise a real address. For a shared variable,
        the bits above the offset may contain the rank of the block in its cluster, as on an H200.
        """
        b, slot = self.builder, symbol.slot
        offset = b.integer(slot.offset + symbol.offset, 64)
        if slot.space == "shared" and self.suspends:
            rank = b.cast("zext", Value("%cluster.rank", "i32"), "i64")
            return b.binary("add", b.binary("shl", rank, b.integer(WINDOW_BITS, 64)), offset)
        if slot.space in ("shared", "local"):
            return offset
        base = Value("%module.int" if slot.space in ("global", "const") else "%params.int", "i64")
        return b.binary("add", base, offset)

    def parameter(self, offset: int, type_: str) -> Value:
        """Return the value of a kernel parameter. The emitted code loads each parameter once, before all other code."""
        return self.parameters.setdefault((offset, type_), Value(f"%param.{offset}.{type_}", type_))

    def load_parameters(self, b: Builder) -> None:
        """Emit the loads of the parameters that the code emitted so far reads."""
        for (offset, type_), value in self.parameters.items():
            b.load(type_, b.offset("%params", offset), align=1, into=value.text)


def rounded_bits(constant: FloatConstant, width: int) -> int:
    """Return the bits of a constant as a float of ``width`` bits. Decimal constants are f64, and are rounded to the
    width.

    Source: PTX ISA 9.1, "Floating-Point Constants".
    """
    if constant.width == width:
        return constant.bits
    value = struct.unpack("<d" if constant.width == 64 else "<f", constant.bits.to_bytes(constant.width // 8, "little"))
    real = np.array(value[0]).astype(np.dtype(f"f{width // 8}"))
    return int(real.view(np.dtype(f"u{width // 8}")))


def base_form(row: int) -> str:
    """Name the form that keeps the base of a row."""
    return f"b{row or ''}"


def element_of(reg: Reg, form: str) -> str:
    """LLVM type of a register, or of its elements, in one of its forms."""
    return "i1" if form == "g" else storage_type(reg)


def forms_of(e: WarpEmitter, reg: Reg) -> list[tuple[str, str]]:
    """List the forms in which a register is stored, with their types.

    ``b``, ``b1``, … are a scalar or the base of each row. ``v`` is a vector, and ``g`` is whether the bases are valid.
    """
    shape, type_ = e.shape(reg), storage_type(reg)
    forms = []
    if shape.stride is not None:
        forms += [(base_form(k), type_) for k in range(len(shape.first_lanes))]
    if shape.stride is None or shape.guarded:
        forms.append(("v", f"<{WARP} x {type_}>"))
    if shape.guarded:
        forms.append(("g", "i1"))
    return forms
