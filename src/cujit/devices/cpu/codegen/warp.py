"""The body of a kernel for one warp: its registers and the values that operations read and write."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

from cujit.devices.cpu.analysis.body import Body, gives_one_nan, sees_bits
from cujit.devices.cpu.analysis.uniformity import VARYING, WARP, Divergence, Shape, low_bits, special_shape
from cujit.devices.cpu.codegen.builder import Builder, Value, int_type, storage_type, type_width
from cujit.devices.cpu.codegen.nodes import BLOCK, FIRST_THREAD, LAUNCH, IrModule
from cujit.devices.cpu.codegen.rounding import canonical
from cujit.devices.cpu.codegen.special import special_value
from cujit.devices.cpu.ir.program import FloatConstant, IntConstant, Negation, Op, Operand, Reg, Special, SymbolAddress
from cujit.devices.shapes import Dim3
from cujit.errors import CujitError
from cujit.formats.ptx.isa.semantics import Trait

if TYPE_CHECKING:
    from cujit.devices.cpu.analysis.patterns import VectorAccess
    from cujit.devices.cpu.ir.cfg import Block, Graph

__all__ = [
    "ALL_LANES", "MASK", "Boundary", "Handler", "Observer", "Scan", "WarpEmitter", "element_of", "forms_of",
    "storage_type",
]  # fmt: skip

MASK = f"<{WARP} x i1>"
ALL_LANES = Value("splat (i1 true)", "i1", WARP, True)

Handler: TypeAlias = "Callable[[WarpEmitter, Op], None]"
"""Emits one operation."""


class Observer(Protocol):
    """Called while code is emitted, for every operation in the order of a block.

    ``e.mask`` are the lanes that come to the operation, whatever its predicate says. After a jump there is nothing to
    do; after a barrier come the lanes that it lets go on, maybe in several places.
    """

    def before(self, e: WarpEmitter, op: Op) -> None:
        """Emit what runs before an operation."""

    def after(self, e: WarpEmitter, op: Op) -> None:
        """Emit what runs after it, in the lanes that still go on."""


class Boundary(Protocol):
    """How the code of a part of a kernel begins, and how lanes come to the barriers behind it."""

    def uses(self, reg: Reg) -> bool:
        """Whether this part needs a register."""

    def enter(self, e: WarpEmitter, first_mask: Value) -> Value:
        """Begin, and give the lanes that run."""

    def arrive(self, e: WarpEmitter, block: Block) -> None:
        """End at the barrier of a block."""

    def vector_access(self, op: Op) -> VectorAccess | None:
        """Find the vectors of a load or store; None where it has none."""


class Scan(Protocol):
    """The order of blocks, as far as operations ask: where they are, and which lanes are there (``flow.py``)."""

    position: int
    suspends: bool

    def emit(self, first_mask: Value) -> None:
        """Emit the blocks."""

    def reconverges(self, position: int) -> bool:
        """Tell whether the lanes that pass a position do so at one time, as far as the shapes let them."""

    def lanes_of(self, op: Op) -> Value:
        """Find the lanes that do an operation, as a vector."""

    def live(self) -> Value:
        """Read the lanes that have not exited."""

    def load(self, name: str, type_: str) -> Value:
        """Read a variable of the scan."""

    def note_progress(self) -> None:
        """Have the blocks scanned once more."""


class WarpEmitter:
    """Emits one kernel for one block shape into a ``Builder``."""

    def __init__(
        self,
        body: Body,
        divergence: Divergence,
        block: Dim3,
        handler_of: Callable[[Op], Handler],
        flow_of: Callable[[WarpEmitter], Scan],
        *,
        is_function: bool = False,
        observers: Sequence[Observer] = (),
        graph: Graph | None = None,
        boundary: Boundary | None = None,
        module: IrModule | None = None,
    ) -> None:
        self.body = body
        self.observers = observers
        self.program = body.program
        self.graph = body.graph if graph is None else graph
        self.boundary = boundary
        self.is_function = is_function
        self.divergence = divergence
        self.block = block
        self.handler_of = handler_of
        self.builder = Builder(module, first="warp.start")
        self.mask = ALL_LANES
        """Lanes that run the current block."""
        self.base_form = False
        """Whether registers are read and written as one scalar, their value in ``lane``."""
        self.lane = 0
        self.width = WARP
        """Lanes of the vectors of registers: those of the warp, but where a part of them runs alone."""
        self.moved: dict[int, str] = {}
        """What variables of registers are called, by number, while they are others than usual."""
        self.lent: dict[int, Value] = {}
        """Where the vectors of registers are, by number, that stay in memory."""
        self.sunk: list[tuple[str, str, tuple[Value, ...]]] = []
        """Calls that sink to the end of the block, each with the name of its operation, which looks after them itself;
        they stop at any other operation that does more than to compute."""
        self.any_nan = frozenset() if observers else body.any_nan
        """Registers, by number, in which any NaN may stand for the one that GPUs give."""
        self.seen = True
        """Whether what is read is read for its bits, those of NaNs as well; not so in most arithmetic."""
        self.results: list[tuple[Reg, str, Value]] | None = None
        """The results of the operation that a rule emits, each with its form; None where none does."""
        self.parameters: dict[tuple[int, str], Value] = {}
        """Parameters of the kernel that are read, by offset and type; ``frame`` loads them before all else."""
        self.flow = flow_of(self)

    # -- the whole ---------------------------------------------------------------------------------------

    def emit(self, first_mask: Value) -> None:
        """Emit the body; it begins in the current basic block and ends by a jump to ``warp.end``."""
        self._begin()
        self.flow.emit(first_mask if self.boundary is None else self.boundary.enter(self, first_mask))

    def _begin(self) -> None:
        """Say of registers what they are at first where that is not zero."""
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

    # -- operations --------------------------------------------------------------------------------------

    @property
    def watched(self) -> bool:
        """Whether somebody watches: then every operation is emitted for itself, in the simplest way."""
        return bool(self.observers)

    def before(self, op: Op) -> None:
        """Tell those who watch that an operation comes, in the lanes of ``mask``."""
        self.builder.come_to(op.line)
        for observer in self.observers:
            observer.before(self, op)

    def after(self, op: Op) -> None:
        """Tell those who watch that an operation was done."""
        for observer in self.observers:
            observer.after(self, op)

    def emit_op(self, op: Op) -> None:
        """Emit one operation in the lanes of the current block, and what those who watch want around it."""
        self.before(op)
        self._emit_op(op)
        self.after(op)

    def emit_sunk(self) -> None:
        """Emit the calls that have sunk as far as here."""
        for _, callee, arguments in self.sunk:
            self.builder.invoke(callee, "void", *arguments)
        self.sunk.clear()

    def _emit_op(self, op: Op) -> None:
        if Trait.NARROW not in op.form.meaning.traits and any(name != op.name for name, *_ in self.sunk):
            self.emit_sunk()
        handler = self.handler_of(op)
        result = op.results[0] if op.results else None
        shape = self.shape(result) if result is not None else VARYING
        # The difference of two affine values is uniform: it, too, is computed from their bases.
        counts = any(self.operand_shape(s).is_affine for s in op.sources if isinstance(s, Reg | Special))
        # What lanes do together needs the values of all of them.
        together = op.form.is_per_lane
        if shape.stride is None or together or (shape.is_uniform and not counts):
            self._handle(handler, op)
            return
        for _ in self.each_row(shape):
            self._handle(handler, op)
        if shape.guarded:
            assert result is not None
            holds = self._holds(op)
            self.builder.write(f"r{result.index}.g", holds)
            if result.index in self.divergence.lazy:
                with self.builder.when(holds, "wraps", holds=False):
                    self._handle(handler, op)
            else:
                self._handle(handler, op)

    def each_row(self, shape: Shape) -> Iterator[int]:
        """Have registers read and written as the scalar that they are in the first lane of each row, row by row."""
        self.base_form = True
        for k, self.lane in enumerate(shape.first_lanes):
            yield k
        self.base_form = False
        self.lane = 0

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
        for _ in self.each_row(shape):
            base = self.read(source, "i32")
            if reach > 0:
                one = b.compare(f"icmp {sign}le", base, b.integer(high - reach, 32))
            else:
                one = b.compare(f"icmp {sign}ge", base, b.integer(low - reach, 32))
            holds = b.binary("and", holds, one)
        return holds

    def vector_access(self, op: Op) -> VectorAccess | None:
        """Find the vectors that hold all that a load or store of shared memory accesses; None where there are none."""
        return None if self.boundary is None else self.boundary.vector_access(op)

    # -- registers ---------------------------------------------------------------------------------------

    def shape(self, reg: Reg) -> Shape:
        """Shape of a register."""
        return self.divergence.shapes[reg.index]

    def operand_shape(self, operand: Operand | None) -> Shape:
        """Shape of an operand that is a register, a special register or a constant."""
        if isinstance(operand, Reg):
            return self.shape(operand)
        if isinstance(operand, Special):
            return special_shape(operand.name, self.block)
        return Shape(0)

    def read(self, operand: Operand, type_: str) -> Value:
        """Read an operand as a value of that type: a scalar where it is uniform, else a vector."""
        b = self.builder
        if isinstance(operand, Reg):
            known = self.divergence.constants.get(operand.index)
            value = self._load(operand) if known is None else b.integer(known, operand.bits)
            if self.seen and operand.index in self.any_nan:
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
            return self._as(special_value(self, operand.name), type_)
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
        if self.base_form or shape.is_uniform:
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
        row, column = divmod(self.lane, shape.row)
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
        """Give a value's low bits another type; wider integers are filled with zeros."""
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
        """Find the lanes in which an operation runs: those of the block that its predicate allows."""
        return (
            self.mask
            if op.guard is None
            else self.builder.binary("and", self.mask, self.builder.vector(self.guard(op)))
        )

    def put(self, op: Op, value: Value, index: int = 0) -> None:
        """Write result ``index`` of an operation; lanes that must keep their value keep it."""
        reg = op.results[index]
        if reg is None:
            return
        b, shape, type_ = self.builder, self.shape(reg), storage_type(reg)
        if gives_one_nan(op) and reg.index not in self.any_nan:
            value = canonical(b, value)
        value = self._as(value, type_)
        if self.base_form:
            self._write(reg, base_form(self.lane // shape.row), value)
            return
        if op.guard is not None:
            value = b.select(self.guard(op), value, self._load(reg))
        if shape.is_uniform:
            if value.lanes:
                raise CujitError(
                    f"{op.name} (line {op.line}) gives a vector for a uniform register: a fault of cujit",
                    help="report this, with the PTX",
                )
            self._write(reg, "b", value)
            return
        value = b.vector(value, self.width)
        if not self.mask.constant and self.divergence.masked[self.flow.position] >> reg.index & 1:
            value = b.select(self.mask, value, self._load(reg))
        self._write(reg, "v", value)

    def _write(self, reg: Reg, form: str, value: Value) -> None:
        """Write a result when the operation has read all that it reads: sources, guard and what it leaves alone."""
        if self.results is None:
            self.write(reg, form, value)
        else:
            self.results.append((reg, form, value))

    def write(self, reg: Reg, form: str, value: Value) -> None:
        """Write a register in one of its forms."""
        if form == "v" and reg.index in self.lent:
            self.builder.store(value, self.lent[reg.index])
        else:
            self.builder.write(self.variable(reg, form), value)

    def _sees_bits(self, op: Op) -> bool:
        """Whether an operation sees the bits of NaNs; one that copies them into a register of any NaN does not."""
        result = op.results[0] if op.results else None
        copies = result is not None and result.index in self.any_nan and not gives_one_nan(op)
        return not copies and sees_bits(op)

    def _handle(self, handler: Handler, op: Op) -> None:
        """Have an operation emitted, and write its results."""
        self.seen, self.results = self._sees_bits(op), []
        handler(self, op)
        self.write_results()
        self.seen, self.results = True, None

    def write_results(self) -> None:
        """Write the results that were put; whoever puts them where not every way leads through does it there."""
        for result in self.results or ():
            self.write(*result)
        if self.results:
            self.results.clear()

    # -- addresses ---------------------------------------------------------------------------------------

    def symbol(self, symbol: SymbolAddress) -> Value:
        """Address of a variable in its own space, as i64: offsets for shared and local, real addresses else."""
        b, slot = self.builder, symbol.slot
        assert slot.offset is not None
        offset = b.integer(slot.offset + symbol.offset, 64)
        if slot.space in ("shared", "local"):
            return offset
        base = Value("%module.int" if slot.space in ("global", "const") else "%params.int", "i64")
        return b.binary("add", base, offset)

    def parameter(self, offset: int, type_: str) -> Value:
        """Load a kernel parameter, once, before everything else."""
        return self.parameters.setdefault((offset, type_), Value(f"%param.{offset}.{type_}", type_))

    def load_parameters(self, b: Builder) -> None:
        """Emit the loads of the parameters that the code emitted so far reads."""
        for (offset, type_), value in self.parameters.items():
            b.load(type_, b.offset("%params", offset), align=1, into=value.text)


def rounded_bits(constant: FloatConstant, width: int) -> int:
    """Bits of a constant as a float of ``width`` bits: decimal constants are f64 and rounded to where they stand.

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
    """List what a register is kept in.

    ``b``, ``b1`` … are a scalar or a base of each row, ``v`` is a vector, ``g`` tells whether the bases are right.
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
