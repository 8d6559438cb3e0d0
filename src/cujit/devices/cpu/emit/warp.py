"""The body of a kernel for one warp: registers, masks and the order of blocks.

Every block has a mask of the lanes that wait at it. Blocks are visited in scan order; a visited block takes its
lanes, runs, and hands them on. Where the shapes show that no lane can wait in between, a jump is a plain jump.
"""

from __future__ import annotations

import struct

import numpy as np

from cujit.devices.base import Dim3
from cujit.devices.cpu.cfg import Block, Graph, Loop
from cujit.devices.cpu.dominance import control_twins
from cujit.devices.cpu.emit.builder import Builder, Value, float_type, int_type, type_width
from cujit.devices.cpu.emit.registry import Rules
from cujit.devices.cpu.emit.special import special_value
from cujit.devices.cpu.program import (
    FloatConstant,
    IntConstant,
    KernelProgram,
    Negation,
    Op,
    Operand,
    Reg,
    Special,
    SymbolAddress,
)
from cujit.devices.cpu.shapes import VARYING, WARP, Divergence, Shape, special_shape
from cujit.errors import CujitError

__all__ = ["WarpEmitter"]

MASK = f"<{WARP} x i1>"


class WarpEmitter:
    """Emits one kernel for one block shape into a ``Builder``."""

    def __init__(self, program: KernelProgram, graph: Graph, divergence: Divergence, block: Dim3, rules: Rules) -> None:
        self.program = program
        self.graph = graph
        self.divergence = divergence
        self.block = block
        self.rules = rules
        self.builder = Builder()
        self.mask = Value("splat (i1 true)", "i1", True, True)
        """Lanes that run the current block."""
        self.base_form = False
        """Whether affine registers are read and written as their scalar base."""
        self._twins = control_twins(graph)
        self._twin_sources = {t for t in self._twins if t is not None}
        self._parameters: dict[tuple[int, str], Value] = {}
        self._position = 0

    # -- the whole ---------------------------------------------------------------------------------------

    def emit(self, first_mask: Value) -> None:
        """Emit the body; it begins in the current basic block and ends by a jump to ``warp.end``."""
        b = self.builder
        self._allocate()
        for position in range(len(self.graph.blocks)):
            b.line(f"store {MASK} zeroinitializer, ptr %mask.{position}")
        b.line(f"store {MASK} {first_mask.text}, ptr %mask.0")
        b.line("br label %body.0")
        for block in self.graph.blocks:
            self._emit_block(block)
        b.start(f"check.{self.graph.exit}")
        b.line("br label %warp.end")

    def _allocate(self) -> None:
        b = self.builder
        for position in range(len(self.graph.blocks)):
            b.entry.append(f"  %mask.{position} = alloca {MASK}")
            if position in self._twin_sources:
                b.entry.append(f"  %active.{position} = alloca {MASK}")
                b.line(f"store {MASK} zeroinitializer, ptr %active.{position}")
        for reg in self.program.registers:
            shape = self.shape(reg)
            type_ = storage_type(reg)
            forms = []
            if shape.stride is not None:
                forms.append(("b", type_))
            if shape.stride is None or shape.guarded:
                forms.append(("v", f"<{WARP} x {type_}>"))
            if shape.guarded:
                forms.append(("g", "i1"))
            for form, full in forms:
                b.entry.append(f"  %r{reg.index}.{form} = alloca {full}")
                b.line(f"store {full} zeroinitializer, ptr %r{reg.index}.{form}")

    def _emit_block(self, block: Block) -> None:
        b, p = self.builder, block.position
        self._position = p
        twin = self._twins[p]
        b.start(f"check.{p}")
        waiting = b.assign(f"load {MASK}, ptr %mask.{p}")
        if twin != 0:
            some = b.any_lane(Value(waiting, "i1", True))
            b.line(f"br i1 {some.text}, label %body.{p}, label %{self._after(p)}")
        else:
            b.line(f"br label %body.{p}")
        b.start(f"body.{p}")
        place = f"%mask.{p}" if twin is None else f"%active.{twin}"
        self.mask = Value(b.assign(f"load {MASK}, ptr {place}"), "i1", True)
        b.line(f"store {MASK} zeroinitializer, ptr %mask.{p}")
        if p in self._twin_sources:
            b.line(f"store {MASK} {self.mask.text}, ptr %active.{p}")
        for op in block.ops:
            if op is not block.branch:
                self._emit_op(op)
        self._leave(block)
        loop = block.loop
        while loop is not None and loop.last == p:
            self._emit_loop_end(loop)
            loop = loop.parent

    def _after(self, position: int) -> str:
        """Label of what is visited after ``position``: the ends of the loops that end there, or the next block."""
        loop = self.graph.blocks[position].loop
        return f"again.{loop.head}" if loop is not None and loop.last == position else f"check.{position + 1}"

    def _emit_loop_end(self, loop: Loop) -> None:
        b = self.builder
        b.start(f"again.{loop.head}")
        waiting = b.assign(f"load {MASK}, ptr %mask.{loop.head}")
        some = b.any_lane(Value(waiting, "i1", True))
        parent = loop.parent
        outside = (
            f"again.{parent.head}" if parent is not None and parent.last == loop.last else f"check.{loop.last + 1}"
        )
        b.line(f"br i1 {some.text}, label %body.{loop.head}, label %{outside}")

    # -- leaving a block ---------------------------------------------------------------------------------

    def _leave(self, block: Block) -> None:
        branch = block.branch
        if branch is None or (branch.guard is None and branch.opcode != "brx"):
            self._go(block, block.successors[0])
        elif branch.opcode == "brx":
            self._leave_by_table(block, branch)
        else:
            self._leave_by_guard(block, branch)

    def _leave_by_guard(self, block: Block, branch: Op) -> None:
        b = self.builder
        assert branch.guard is not None
        condition = self.guard(branch)
        taken, falls = block.successors[0], block.successors[-1]
        if not condition.is_vector:
            there, here = b.label("taken"), b.label("falls")
            b.line(f"br i1 {condition.text}, label %{there}, label %{here}")
            for label, target in ((there, taken), (here, falls)):
                b.start(label)
                self._go(block, target)
            return
        goes = b.binary("and", self.mask, condition)
        stays = b.binary("and", self.mask, b.binary("xor", condition, b.vector(b.integer(1, 1))))
        self._hand_on(taken, goes)
        self._hand_on(falls, stays)
        b.line(f"br label %{self._after(block.position)}")

    def _leave_by_table(self, block: Block, branch: Op) -> None:
        b = self.builder
        index = self.read(branch.sources[0], "i32")
        left = self.mask
        if branch.guard is not None:
            guard = b.vector(self.guard(branch))
            self._hand_on(
                block.successors[-1], b.binary("and", left, b.binary("xor", guard, b.vector(b.integer(1, 1))))
            )
            left = b.binary("and", left, guard)
        for k, target in enumerate(block.successors[: len(branch.targets)]):
            here = b.compare("icmp eq", b.vector(index), b.integer(k, 32))
            self._hand_on(target, b.binary("and", left, here))
        b.line(f"br label %{self._after(block.position)}")

    def _hand_on(self, target: int, lanes: Value) -> None:
        """Let lanes wait at a block."""
        if target == self.graph.exit:
            return
        b = self.builder
        waiting = Value(b.assign(f"load {MASK}, ptr %mask.{target}"), "i1", True)
        joined = b.binary("or", waiting, lanes)
        b.line(f"store {MASK} {joined.text}, ptr %mask.{target}")

    def _go(self, block: Block, target: int) -> None:
        """Send all lanes of the block to one place, straight there if no lane can wait on the way."""
        b = self.builder
        self._hand_on(target, self.mask)
        if self._way_is_free(block, target):
            label = f"check.{target}" if target == self.graph.exit else f"body.{target}"
        else:
            label = self._after(block.position)
        b.line(f"br label %{label}")

    def _way_is_free(self, block: Block, target: int) -> bool:
        p = block.position
        waiting = self.divergence.waiting[p]
        if target > p:
            between = range(p + 1, target)
        else:
            loop = block.loop
            while loop is not None and loop.head != target:
                loop = loop.parent
            if loop is None:
                return False
            between = range(p + 1, loop.last + 1)
        if any(waiting >> k & 1 for k in between):
            return False
        left = block.loop
        while left is not None and target not in left:
            if waiting >> left.head & 1:
                return False
            left = left.parent
        return target > p or not waiting >> target & 1

    # -- operations --------------------------------------------------------------------------------------

    def _emit_op(self, op: Op) -> None:
        rule = self.rules.find(op)
        assert rule is not None, op.name
        result = op.results[0] if op.results else None
        shape = self.shape(result) if result is not None else VARYING
        # The difference of two affine values is uniform: it, too, is computed from their bases.
        counts = any(self.operand_shape(s).is_affine for s in op.sources if isinstance(s, Reg | Special))
        if shape.stride is None or (shape.is_uniform and not counts):
            rule.handler(self, op)
            return
        self.base_form = True
        rule.handler(self, op)
        self.base_form = False
        if shape.guarded:
            rule.handler(self, op)
            assert result is not None
            self.builder.line(f"store i1 {self._holds(op).text}, ptr %r{result.index}.g")

    def _holds(self, op: Op) -> Value:
        """Whether the short form of a guarded result is right: those of its sources are, and nothing wraps here."""
        b = self.builder
        holds = b.integer(1, 1)
        for source in op.sources:
            if isinstance(source, Reg) and self.shape(source).guarded:
                own = Value(b.assign(f"load i1, ptr %r{source.index}.g"), "i1")
                holds = b.binary("and", holds, own)
        widened = op.opcode == "cvt" or "wide" in op.modifiers
        for source in op.sources[: 2 if "wide" in op.modifiers else 1] if widened else ():
            shape = self.operand_shape(source)
            if shape.stride and not (shape.guarded and type_width(self._type_of(source)) == 64):
                holds = b.binary("and", holds, self._does_not_wrap(source, shape.stride, op.modifiers[-1]))
        return holds

    def _type_of(self, operand: Operand) -> str:
        return storage_type(operand) if isinstance(operand, Reg) else "i32"

    def _does_not_wrap(self, source: Operand, stride: int, type_: str) -> Value:
        """Whether a 32-bit affine value stays within its type from the first lane to the last."""
        self.base_form = True
        base = self.read(source, "i32")
        self.base_form = False
        reach = stride * (WARP - 1)
        low, high = (-(1 << 31), (1 << 31) - 1) if type_[0] == "s" else (0, (1 << 32) - 1)
        b = self.builder
        sign = type_[0]
        if reach > 0:
            return b.compare(f"icmp {sign}le", base, b.integer(high - reach, 32))
        return b.compare(f"icmp {sign}ge", base, b.integer(low - reach, 32))

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
            return self._as(self._load(operand), type_)
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

    def _load(self, reg: Reg) -> Value:
        b, shape, type_ = self.builder, self.shape(reg), storage_type(reg)
        if shape.stride is None or (shape.guarded and not self.base_form):
            return Value(b.assign(f"load <{WARP} x {type_}>, ptr %r{reg.index}.v"), type_, True)
        base = Value(b.assign(f"load {type_}, ptr %r{reg.index}.b"), type_)
        if shape.is_uniform or self.base_form:
            return base
        return b.binary("add", base, b.lanes([k * (shape.stride or 0) for k in range(WARP)], reg.bits))

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
        value = self._as(value, type_)
        if self.base_form:
            b.line(f"store {type_} {value.text}, ptr %r{reg.index}.b")
            return
        if op.guard is not None:
            value = b.select(self.guard(op), value, self._load(reg))
        if shape.is_uniform:
            if value.is_vector:
                raise CujitError(
                    f"{op.name} (line {op.line}) gives a vector for a uniform register: a fault of cujit",
                    help="report this, with the PTX",
                )
            b.line(f"store {type_} {value.text}, ptr %r{reg.index}.b")
            return
        value = b.vector(value)
        if self.divergence.blend[self._position] >> reg.index & 1:
            value = b.select(self.mask, value, self._load(reg))
        b.line(f"store <{WARP} x {type_}> {value.text}, ptr %r{reg.index}.v")

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
        key = (offset, type_)
        if key not in self._parameters:
            name = f"%param.{offset}.{type_}"
            self.builder.entry.append(f"  {name}.at = getelementptr i8, ptr %params, i64 {offset}")
            self.builder.entry.append(f"  {name} = load {type_}, ptr {name}.at, align 1")
            self._parameters[key] = Value(name, type_)
        return self._parameters[key]


def rounded_bits(constant: FloatConstant, width: int) -> int:
    """Bits of a constant as a float of ``width`` bits: decimal constants are f64 and rounded to where they stand.

    Source: PTX ISA 9.1, "Floating-Point Constants".
    """
    if constant.width == width:
        return constant.bits
    value = struct.unpack("<d" if constant.width == 64 else "<f", constant.bits.to_bytes(constant.width // 8, "little"))
    real = np.array(value[0]).astype(np.dtype(f"f{width // 8}"))
    return int(real.view(np.dtype(f"u{width // 8}")))


def storage_type(reg: Reg) -> str:
    """LLVM type that a register is kept in."""
    return float_type(reg.bits) if reg.is_float else int_type(reg.bits)
