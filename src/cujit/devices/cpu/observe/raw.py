"""Raw values: values loaded from memory that was never written, tracked through registers until they affect a decision.

    ld.shared.u32 a, [s+4];         a is raw in the lanes whose word was never written
    add.u32 b, a, 1;          ->    b is raw in the same lanes
    selp.u32 c, b, 0, p;            c is raw in lanes where p is true and b is raw
    @q bra L;                       a finding, if q is raw in a lane that reaches this branch

A register that may be raw has a shadow variable. Usually, this is a word ``x5`` with one bit for each lane. If single
bits are moved, it is ``y5`` with as many bits as the register, and the unwritten bits are set. Registers that can't
hold raw values have no shadow variable. Memory has the same information by bytes: see ``runtime/written.h``.

Source for the rule: E. Stepanov, K. Serebryany, "MemorySanitizer: fast detector of uninitialized memory use in C++",
2015.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from cujit.devices.cpu.analysis.uniformity import WARP
from cujit.devices.cpu.codegen.builder import Value
from cujit.devices.cpu.instructions import warpwide
from cujit.devices.cpu.instructions.compare import JOINS, compared_in
from cujit.devices.cpu.instructions.matrix import frames, move
from cujit.devices.cpu.instructions.matrix.mma import product_of_fragments
from cujit.devices.cpu.ir.program import (
    IntConstant,
    MemoryOperand,
    Op,
    Operand,
    OperandGroup,
    Reg,
    items_of,
    registers_in,
)
from cujit.devices.cpu.native.checking import Code
from cujit.devices.cpu.observe.access_sites import copies_raw, takes_raw, touches_of
from cujit.formats.ptx.isa.semantics import Effect
from cujit.values import dataclass

if TYPE_CHECKING:
    from cujit.devices.cpu.codegen.warp import WarpEmitter
    from cujit.devices.cpu.ir.program import KernelProgram

_WIDEST = 64
_TABLES = {"and": 0xC0, "or": 0xFC, "xor": 0x3C, "not": 0x0F}
"""What operations on single bits give, as ``lop3`` has it: a bit for each choice of three bits.

Source: PTX ISA 9.1, "lop3": 0xF0, 0xCC and 0xAA stand for the three operands.
"""
_HARMLESS = (Effect.PURE, Effect.CONTROLS, Effect.SIGNALS)
"""Operations by which a raw value does nothing beyond their results; a hint changes no value."""
_ROW_BYTES = 16
"""Bytes of a row of ``ldmatrix`` and ``stmatrix``."""
_COPIES = ("mov", "mov.join", "mov.split")
_MOVES = frozenset({*_TABLES, *_COPIES, "lop3", "shl", "shr", "shf", "prmt", "cvt", "bfe", "ld", "ldu", "movmatrix"})

Raw: TypeAlias = "Value | None"
"""A word (i32), or a vector of bits; None where nothing is raw."""


@dataclass(frozen=True)
class RawRegisters:
    """The numbers of a program's registers that may hold raw values. ``wide`` registers have one shadow bit for each
    bit.
    """

    all: frozenset[int]
    wide: frozenset[int]

    @classmethod
    def of(cls, program: KernelProgram) -> RawRegisters:
        """Return the registers of a program that may hold loaded values, or values computed from them."""
        found: set[int] = set()
        before = -1
        while before != len(found):
            before = len(found)
            for op in program.ops:
                if takes_raw(op) or (_carries(op) and _reads_any(op, found)):
                    found.update(reg.index for reg in op.written)
        registers = [reg for op in program.ops if _moves_bits(op) for reg in (*op.read_registers(), *op.written)]
        moved = {reg.index for reg in registers if 8 <= reg.bits <= _WIDEST and not reg.is_float}
        return cls(frozenset(found), frozenset(found & moved))


def _reads_any(op: Op, registers: Collection[int]) -> bool:
    return any(reg.index in registers for reg in op.read_registers())


def _carries(op: Op) -> bool:
    """Return whether raw values of registers propagate to the operation's results."""
    return op.form.meaning.effect is Effect.PURE or (op.opcode == "wgmma" and bool(op.results))


def _is_store(op: Op) -> bool:
    """Return whether an operation stores the raw bits of its operands in memory."""
    if op.opcode in ("stmatrix", "wmma"):
        return "store" in op.modifiers or op.opcode == "stmatrix"
    return op.opcode == "st" and "async" not in op.modifiers and "bulk" not in op.modifiers


def _has_rows(op: Op) -> bool:
    """Return whether an operation moves rows between memory and matrices. Their raw bits move in the same way."""
    return op.opcode in ("ldmatrix", "stmatrix") or (op.opcode == "wmma" and "mma" not in op.modifiers)


def _places(op: Op) -> list[Reg]:
    """Return the registers that determine the memory that an operation accesses: in brackets, and in descriptors."""
    found = [reg for s in op.sources if isinstance(s, MemoryOperand) for reg in registers_in(s)]
    return found + [s for s in op.sources[1:3] if op.opcode == "wgmma" and isinstance(s, Reg)]


def _moves_bits(op: Op) -> bool:
    """Return whether single bits of a result depend on single bits of a source."""
    return op.opcode in _MOVES and (op.opcode != "cvt" or all(t.is_one_integer for t in op.types))


class RawValues:
    """Instrumentation that tracks raw values through the operations of one program.

    ``call`` emits calls of native code, and ``hand_over`` emits stores to fields of the ``Place``.
    """

    def __init__(self, program: KernelProgram, call: Callable[..., Value], hand_over: Callable[..., None]) -> None:
        self.registers = RawRegisters.of(program)
        self._call, self._hand_over = call, hand_over
        self._pending: list[tuple[Reg, Value]] = []

    # -- what is raw ---------------------------------------------------------------------------------------

    def variable(self, reg: Reg) -> tuple[str, str, int] | None:
        """Return the name, type, and lanes of the shadow variable of a register, or None if the
        register can't be raw.
        """
        if reg.index in self.registers.wide:
            return f"y{reg.index}", f"i{reg.bits}", WARP
        return (f"x{reg.index}", "i32", 0) if reg.index in self.registers.all else None

    def _read(self, e: WarpEmitter, reg: Reg) -> Raw:
        named = self.variable(reg)
        return None if named is None else e.builder.read(named[0], named[1], lanes=named[2])

    def word(self, e: WarpEmitter, operands: Iterable[Operand]) -> Raw:
        """Return the lanes in which any operand is raw, without addresses in brackets."""
        b = e.builder
        found: Raw = None
        for operand in operands:
            for reg in [] if isinstance(operand, MemoryOperand) else registers_in(operand):
                own = self._read(e, reg)
                if own is not None:
                    if own.lanes:
                        own = b.word(b.compare("icmp ne", own, b.integer(0, reg.bits)))
                    found = own if found is None else b.binary("or", found, own)
        return found

    def bits(self, e: WarpEmitter, operand: Operand, width: int) -> Value:
        """Find the raw bits of an operand, as a vector; of a group the first element is the lowest."""
        b = e.builder
        nothing = Value("zeroinitializer", f"i{width}", WARP)
        if isinstance(operand, OperandGroup):
            part = width // len(operand.items)
            for k, item in enumerate(operand.items):
                each = b.resize(self.bits(e, item, part), width, signed=False)
                nothing = b.binary("or", nothing, b.binary("shl", each, b.integer(k * part, width)))
            return nothing
        own = self._read(e, operand) if isinstance(operand, Reg) else None
        if own is None:
            return nothing
        return b.resize(own, width, signed=False) if own.lanes else self._spread(e, own, width)

    def _spread(self, e: WarpEmitter, word: Value, width: int) -> Value:
        return e.builder.cast("sext", e.builder.mask_of(word), f"i{width}")

    # -- what it decides -----------------------------------------------------------------------------------

    def decides(self, e: WarpEmitter, op: Op) -> None:
        """Emit reports of raw values that an operation branches on, or that determine its memory accesses."""
        if takes_raw(op) or copies_raw(op):
            e.builder.store(e.builder.integer(0, 32), "%check.raw")
        guard = () if op.guard is None else (op.guard,)
        effect = op.form.meaning.effect
        if op.form.is_jump:
            self._report(e, op, self.word(e, (*guard, *op.sources)), Code.BRANCH, e.mask)
        elif effect not in _HARMLESS or op.opcode == "call.extern":
            self._report(e, op, self.word(e, guard), Code.PREDICATE, e.mask)
            self._report(e, op, self.word(e, _places(op)), Code.ADDRESS, e.lanes_of(op))
            if op.opcode != "wgmma" and not _is_store(op):
                self._report(e, op, self.word(e, op.sources), Code.STORED, e.lanes_of(op))
        elif op.form.names_members:
            self._report(e, op, self.word(e, op.sources[-1:]), Code.BRANCH, e.lanes_of(op))
        if "vprintf" in op.modifiers:
            formats, arguments = (e.builder.vector(e.source(op, k, "i64")) for k in (0, 1))
            self._hand_over(e, "values", formats)
            self._hand_over(e, "addresses", arguments)
            self._call(e, "cujit_check_printed", e.builder.word(e.lanes_of(op)), e.builder.integer(op.line, 32))

    def _report(self, e: WarpEmitter, op: Op, word: Value | None, code: Code, lanes: Value) -> None:
        if word is None:
            return
        b = e.builder
        here = b.binary("and", word, b.word(lanes))
        with b.when(b.compare("icmp ne", here, b.integer(0, 32)), "raw"):
            self._call(e, "cujit_check_decides", here, b.integer(code, 32), b.integer(op.line, 32))

    def _store(self, e: WarpEmitter, op: Op) -> None:
        """Copy to memory which part of a stored value is raw."""
        items = items_of(op.sources[1])
        word = self.word(e, items)
        if word is None:
            return
        b, (touch,) = e.builder, touches_of(e, op)
        here = b.binary("and", word, b.word(e.lanes_of(op)))
        with b.when(b.compare("icmp ne", here, b.integer(0, 32)), "raw"):
            self._hand_over(e, "addresses", touch.where.every_lane(b))
            for k, item in enumerate(items):
                own, bits = self.word(e, [item]), min(8 * touch.element, 64)
                b.store(own or b.integer(0, 32), b.offset("%check.raw_lanes", 4 * k))
                wide = b.resize(self.bits(e, item, bits), 64, signed=False)
                b.store(wide, b.offset("%check.raw_bits", 8 * WARP * k), align=8)
            size = b.integer(touch.element * len(items), 64)
            self._call(e, "cujit_check_stored", here, size, b.integer(touch.flags, 32), b.integer(op.line, 32))

    # -- rows of matrices ----------------------------------------------------------------------------------

    def _rows(self, e: WarpEmitter, op: Op) -> tuple[Value, int, int]:
        """Emit code that passes the addresses of rows to native code.

        Return a pointer to space for the raw bits of the rows, the number of rows, and the bytes of each row.
        """
        b, (touch,) = e.builder, touches_of(e, op)
        assert isinstance(touch.size, int)
        self._hand_over(e, "addresses", touch.where.every_lane(b))
        count = touch.lanes.bit_count()
        return b.reserve_bytes("%check.shadow", WARP * _ROW_BYTES * 4), count, touch.size

    def _dense(self, e: WarpEmitter, shadow: Value) -> Value:
        """Return a pointer to the addresses of consecutive rows."""
        b = e.builder
        first = b.vector(b.cast("ptrtoint", shadow, "i64"))
        rows = b.binary("add", first, b.lanes([_ROW_BYTES * k for k in range(WARP)], 64))
        return b.in_memory("%matrix.rows", rows)

    def _store_rows(self, e: WarpEmitter, op: Op) -> None:
        """Emit code that copies the raw bits of a matrix to shadow memory, with the same layout as the
        stored matrix.
        """
        items, type_ = items_of(op.sources[1]), "i64" if op.type == "f64" else "i32"
        word = self.word(e, items)
        if word is None:
            return
        b, (touch,) = e.builder, touches_of(e, op)
        with b.when(b.compare("icmp ne", word, b.integer(0, 32)), "raw"):
            shadow, count, size = self._rows(e, op)
            bits = [self.bits(e, item, 64 if op.type == "f64" else 32) for item in items]
            if op.opcode == "wmma":
                move.move_lines(e, op, b.cast("ptrtoint", shadow, "i64"), b.integer(size, 64), bits, type_)
            else:
                move.store_rows(e, op, self._dense(e, shadow), bits)
            numbers = [b.integer(count, 32), b.integer(size, 64), b.integer(touch.flags, 32), b.integer(op.line, 32)]
            self._call(e, "cujit_check_shadow_stored", shadow, *numbers)

    def _find_rows(self, e: WarpEmitter, op: Op) -> None:
        """Emit code that fetches the raw bits of a matrix's rows, before a result overwrites the row addresses."""
        b = e.builder
        with b.when(b.compare("icmp ne", b.load("i32", "%check.raw"), b.integer(0, 32)), "raw"):
            shadow, count, size = self._rows(e, op)
            self._call(e, "cujit_check_shadow", shadow, b.integer(count, 32), b.integer(size, 64))

    def _loaded_rows(self, e: WarpEmitter, op: Op) -> list[Value]:
        """Emit loads of a matrix's raw bits. They are the same as the loads of the matrix, but from other memory."""
        b, shadow = e.builder, e.builder.reserve_bytes("%check.shadow", WARP * _ROW_BYTES * 4)
        if op.opcode == "ldmatrix":
            return move.load_rows(e, op, self._dense(e, shadow))
        size, type_ = touches_of(e, op)[0].size, "i64" if op.type == "f64" else "i32"
        assert isinstance(size, int)
        return move.move_lines(e, op, b.cast("ptrtoint", shadow, "i64"), b.integer(size, 64), (), type_)

    def _copy(self, e: WarpEmitter, op: Op) -> None:
        """Copy to shared memory which part the check of a copy's source found raw."""
        b, touch, size = e.builder, touches_of(e, op)[1], op.sources[2]
        with b.when(b.compare("icmp ne", b.load("i32", "%check.raw"), b.integer(0, 32)), "raw"):
            self._hand_over(e, "addresses", touch.where.every_lane(b))
            lanes, numbers = b.word(e.lanes_of(op)), (b.integer(touch.flags, 32), b.integer(op.line, 32))
            self._call(e, "cujit_check_stored", lanes, e.read(size, "i64"), *numbers)

    # -- what becomes of it --------------------------------------------------------------------------------

    def before(self, e: WarpEmitter, op: Op) -> None:
        """Emit code that determines the raw bits of an operation's results while its sources are available."""
        if _is_store(op):
            (self._store_rows if _has_rows(op) else self._store)(e, op)
        elif takes_raw(op) and _has_rows(op):
            self._find_rows(e, op)
        elif copies_raw(op):
            self._copy(e, op)
        elif not (op.form.is_site or takes_raw(op)):
            self._pending = self._results(e, op)

    def after(self, e: WarpEmitter, op: Op) -> None:
        """Emit code that records the raw bits of an operation's results."""
        if takes_raw(op):
            self._pending = self._loaded(e, op)
        elif op.form.is_site:
            self._pending = self._results(e, op)
        pending, self._pending = self._pending, []
        for reg, value in pending:
            self._write(e, op, reg, value)

    def _write(self, e: WarpEmitter, op: Op, reg: Reg, value: Value) -> None:
        b, named = e.builder, self.variable(reg)
        assert named is not None
        if value.lanes and not named[2]:
            value = b.word(b.compare("icmp ne", value, b.integer(0, _width(value))))
        elif named[2] and not value.lanes:
            value = self._spread(e, value, reg.bits)
        decided = None if op.guard is None else self.word(e, [op.guard])
        if decided is not None:
            also = self._spread(e, decided, reg.bits) if named[2] else decided
            value = b.binary("or", value, also)
            b.write(
                named[0], b.select(e.mask, value, b.read(named[0], named[1], lanes=named[2])) if named[2] else value
            )
        lanes, old = e.lanes_of(op), b.read(named[0], named[1], lanes=named[2])
        if lanes.constant:
            b.write(named[0], value)
        elif named[2]:
            b.write(named[0], b.select(lanes, value, old))
        else:
            mine = b.word(lanes)
            kept = b.binary("and", old, b.binary("xor", mine, b.integer(-1, 32)))
            b.write(named[0], b.binary("or", kept, b.binary("and", value, mine)))

    def _results(self, e: WarpEmitter, op: Op) -> list[tuple[Reg, Value]]:
        written = [reg for reg in op.written if reg.index in self.registers.all]
        if not written:
            return []
        if not _carries(op):
            return [(reg, e.builder.integer(0, 32)) for reg in written]
        is_wide = any(reg.index in self.registers.wide for reg in (*op.read_registers(), *op.written))
        special = (_RULES if is_wide else _BY_WORDS).get(op.opcode)
        values = None if special is None else self._when_ever(e, lambda: special(self, e, op))
        if values is not None:
            return [(reg, value) for reg, value in zip(op.results, values, strict=False) if reg in written]
        word = self.word(e, op.sources)
        return [(reg, e.builder.integer(0, 32) if word is None else word) for reg in written]

    def _when_ever(self, e: WarpEmitter, emit: Callable[[], list[Value] | None]) -> list[Value] | None:
        """Emit code that runs only if any value was ever raw. Return its results, or None if there is no rule."""
        b = e.builder
        ever = b.compare("icmp ne", b.load("i32", "%check.ever"), b.integer(0, 32))
        found: list[Value] | None = None

        def some() -> list[Value]:
            nonlocal found
            found = emit()
            return found or []

        def nothing() -> list[Value]:
            return [Value("zeroinitializer", v.type, v.lanes) if v.lanes else b.integer(0, 32) for v in found or []]

        values = b.either(ever, some, nothing, "raw")
        return None if found is None else values

    def _loaded(self, e: WarpEmitter, op: Op) -> list[tuple[Reg, Value]]:
        """Return the raw bits of a load's elements, as found by the check of the load."""
        b = e.builder
        raw = b.compare("icmp ne", b.load("i32", "%check.raw"), b.integer(0, 32))
        wanted = [(k, reg) for k, reg in enumerate(op.results) if reg is not None and reg.index in self.registers.all]
        bits = op.type.bits

        def some() -> list[Value]:
            if _has_rows(op):
                rows = self._loaded_rows(e, op)
                return [self._fitting(e, reg, rows[k]) for k, reg in wanted]
            found = []
            for k, reg in wanted:
                if reg.index not in self.registers.wide:
                    found.append(b.load("i32", b.offset("%check.raw_lanes", 4 * k)))
                    continue
                own = b.load("i64", b.offset("%check.raw_bits", 8 * WARP * k), lanes=WARP, align=8)
                own = b.resize(own, min(bits, _WIDEST), signed=False)
                found.append(b.resize(own, reg.bits, signed=op.type.is_signed))
            return found

        def nothing() -> list[Value]:
            return [
                Value("zeroinitializer", f"i{reg.bits}", WARP) if reg.index in self.registers.wide else b.integer(0, 32)
                for _, reg in wanted
            ]

        return list(zip([reg for _, reg in wanted], b.either(raw, some, nothing, "raw"), strict=True))

    def _fitting(self, e: WarpEmitter, reg: Reg, bits: Value) -> Value:
        """Convert raw bits to the type of the shadow variable of a register."""
        b = e.builder
        if reg.index in self.registers.wide:
            return b.resize(bits, reg.bits, signed=False)
        return b.word(b.compare("icmp ne", bits, b.integer(0, _width(bits))))


def _width(value: Value) -> int:
    return int(value.type[1:])


# -- rules: what they give for each result, or None where any raw bit makes all of it raw ------------------------


def _table(raw: RawValues, e: WarpEmitter, op: Op) -> list[Value] | None:
    """Return the raw bits of a bitwise operation. A result bit is raw if it could be either 0 or 1."""
    b, width = e.builder, max(op.type.bits, 8)
    if op.type == "pred":
        return _predicates(raw, e, op)
    if len(op.results) > 1:
        return None
    table = (
        op.sources[3].value if op.opcode == "lop3" and isinstance(op.sources[3], IntConstant) else _TABLES[op.opcode]
    )
    could: list[tuple[Value, Value]] = []
    for source in op.sources[:3]:
        value, own = b.vector(e.read(source, f"i{width}")), raw.bits(e, source, width)
        could.append((b.binary("or", b.binary("xor", value, b.integer(-1, width)), own), b.binary("or", value, own)))
    every = Value(f"splat (i{width} -1)", f"i{width}", WARP, True)
    could += [(every, every)] * (3 - len(could))
    results = [Value("zeroinitializer", f"i{width}", WARP)] * 2
    for k in range(8):
        one = b.binary("and", could[0][k >> 2], b.binary("and", could[1][k >> 1 & 1], could[2][k & 1]))
        results[table >> k & 1] = b.binary("or", results[table >> k & 1], one)
    return [b.binary("and", *results)]


def _predicates(raw: RawValues, e: WarpEmitter, op: Op) -> list[Value] | None:
    """Operations on predicates, by words."""
    if op.type != "pred" or op.opcode not in JOINS:
        return None
    b, nothing = e.builder, e.builder.integer(0, 32)
    sides = [(b.word(b.vector(e.read(s, "i1"))), raw.word(e, [s]) or nothing) for s in op.sources[:2]]
    return [_joined(e, op.opcode, *sides)]


def _joined(e: WarpEmitter, join: str, *sides: tuple[Value, Value]) -> Value:
    """Return the raw lanes of two joined predicates, each specified by a word and its raw lanes.

    A raw predicate makes a lane raw unless the other predicate decides the result.
    """
    b = e.builder
    found = b.binary("or", sides[0][1], sides[1][1])
    for value, own in sides if join != "xor" else ():
        could = value if join == "and" else b.binary("xor", value, b.integer(-1, 32))
        found = b.binary("and", found, b.binary("or", could, own))
    return found


def _compare(raw: RawValues, e: WarpEmitter, op: Op) -> list[Value] | None:
    """Return the raw lanes of a comparison.

    The result may be valid despite raw operands. Written bits may prove that two numbers differ, or the joined
    predicate may decide the result.
    """
    b, join = e.builder, [word for word in op.form.words if word in JOINS]
    type_ = op.types[-1]
    equals = not {"eq", "ne"}.isdisjoint(op.form.words) and type_.is_one_integer
    equals &= any(reg.index in raw.registers.wide for reg in op.read_registers())
    if type_.endswith("x2") or not (join or equals):
        return None
    own = raw.word(e, op.sources[:2]) or b.integer(0, 32)
    if equals:
        bits = [raw.bits(e, source, type_.bits) for source in op.sources[:2]]
        differ = b.binary("xor", *(b.vector(e.read(source, f"i{type_.bits}")) for source in op.sources[:2]))
        known = b.binary("and", differ, b.binary("xor", b.binary("or", *bits), b.integer(-1, type_.bits)))
        own = b.binary("and", own, b.word(b.compare("icmp eq", known, b.integer(0, type_.bits))))
    if not join:
        return [own] * len(op.results)
    value, other = b.word(b.vector(compared_in(e, op)[0])), op.sources[2]
    by = b.word(b.vector(e.read(other, "i1"))), raw.word(e, [other]) or b.integer(0, 32)
    values = (value, b.binary("xor", value, b.integer(-1, 32)))
    return [_joined(e, join[0], (each, own), by) for each in values[: len(op.results)]]


def _shift(raw: RawValues, e: WarpEmitter, op: Op) -> list[Value] | None:
    """Shifts move raw bits; by a raw distance all is raw."""
    b, width = e.builder, op.type.bits
    own, by = raw.bits(e, op.sources[0], width), b.vector(e.read(op.sources[1], "i32"))
    fits = b.compare("icmp ult", by, b.integer(width, 32))
    most = b.intrinsic("umin", by, b.integer(width - 1, 32))
    signed = op.opcode == "shr" and op.type.is_signed
    moved = b.binary(
        "shl" if op.opcode == "shl" else "ashr" if signed else "lshr", own, b.resize(most, width, signed=False)
    )
    if not signed:
        moved = b.select(fits, moved, b.integer(0, width))
    word = raw.word(e, op.sources[1:])
    return [moved if word is None else b.binary("or", moved, raw._spread(e, word, width))]


def _funnel(raw: RawValues, e: WarpEmitter, op: Op) -> list[Value] | None:
    """Return the raw bits of a funnel shift, which shifts two words as one 64-bit value.

    A left shift returns the upper half, and a right shift returns the lower half.
    """
    b, left = e.builder, "l" in op.modifiers
    low, high = (b.resize(raw.bits(e, source, 32), 64, signed=False) for source in op.sources[:2])
    both, by = b.binary("or", low, b.binary("shl", high, b.integer(32, 64))), b.vector(e.read(op.sources[2], "i32"))
    by = (
        b.intrinsic("umin", by, b.integer(32, 32))
        if "clamp" in op.modifiers
        else b.binary("and", by, b.integer(31, 32))
    )
    moved = b.binary("shl" if left else "lshr", both, b.resize(by, 64, signed=False))
    result = b.resize(b.binary("lshr", moved, b.integer(32, 64)) if left else moved, 32, signed=False)
    word = raw.word(e, op.sources[2:])
    return [result if word is None else b.binary("or", result, raw._spread(e, word, 32))]


def _permute(raw: RawValues, e: WarpEmitter, op: Op) -> list[Value] | None:
    """Bytes of two words, chosen by a third; the highest bit of a nibble has the sign of a byte fill it."""
    b = e.builder
    if len(op.modifiers) > 1:
        return None
    low, high = (b.resize(raw.bits(e, source, 32), 64, signed=False) for source in op.sources[:2])
    both = b.binary("or", low, b.binary("shl", high, b.integer(32, 64)))
    chosen = b.resize(b.vector(e.read(op.sources[2], "i32")), 64, signed=False)
    found = Value("zeroinitializer", "i64", WARP)
    for k in range(4):
        nibble = b.binary("lshr", chosen, b.integer(4 * k, 64))
        at = b.binary("shl", b.binary("and", nibble, b.integer(7, 64)), b.integer(3, 64))
        byte = b.binary("and", b.binary("lshr", both, at), b.integer(255, 64))
        sign = b.binary("mul", b.binary("lshr", byte, b.integer(7, 64)), b.integer(255, 64))
        fills = b.compare("icmp ne", b.binary("and", nibble, b.integer(8, 64)), b.integer(0, 64))
        found = b.binary("or", found, b.binary("shl", b.select(fills, sign, byte), b.integer(8 * k, 64)))
    word = raw.word(e, op.sources[2:])
    result = b.resize(found, 32, signed=False)
    return [result if word is None else b.binary("or", result, raw._spread(e, word, 32))]


def _move(raw: RawValues, e: WarpEmitter, op: Op) -> list[Value] | None:
    b, width = e.builder, op.type.bits
    if op.type == "pred" or width > _WIDEST or isinstance(op.sources[0], MemoryOperand):
        return None
    own, part = raw.bits(e, op.sources[0], width), width // len(op.results)
    return [
        b.resize(b.binary("lshr", own, b.integer(k * part, width)) if k else own, part, signed=False)
        for k in range(len(op.results))
    ]


def _convert(raw: RawValues, e: WarpEmitter, op: Op) -> list[Value] | None:
    """Between integers: cut, or filled with the sign."""
    b = e.builder
    if len(op.types) != 2 or not all(t.is_one_integer for t in op.types) or "sat" in op.modifiers:
        return None
    to, source = op.types
    own = b.resize(raw.bits(e, op.sources[0], max(source.bits, 8)), source.bits, signed=False)
    made = b.resize(own, to.bits, signed=source.is_signed)
    reg = op.result
    return [made if reg is None else b.resize(made, reg.bits, signed=to.is_signed)]


def _select(raw: RawValues, e: WarpEmitter, op: Op) -> list[Value] | None:
    """Return the raw bits of the selected operand.

    If the predicate is raw, bits that differ between the operands are also raw.
    """
    b, width = e.builder, op.type.bits
    first, second = (raw.bits(e, source, width) for source in op.sources[:2])
    found = b.select(b.vector(e.read(op.sources[2], "i1")), first, second)
    word = raw.word(e, op.sources[2:])
    if word is None:
        return [found]
    differs = b.binary("xor", *(b.vector(e.read(source, f"i{width}")) for source in op.sources[:2]))
    either = b.binary("or", b.binary("or", first, second), differs)
    return [b.binary("or", found, b.binary("and", either, raw._spread(e, word, width)))]


def _select_words(raw: RawValues, e: WarpEmitter, op: Op) -> list[Value] | None:
    b, nothing = e.builder, e.builder.integer(0, 32)
    first, second, by = (raw.word(e, [source]) or nothing for source in op.sources)
    chosen = b.word(b.vector(e.read(op.sources[2], "i1")))
    other = b.binary("xor", chosen, b.integer(-1, 32))
    found = b.binary("or", b.binary("and", chosen, first), b.binary("and", other, second))
    return [b.binary("or", found, by)]


def _extract(raw: RawValues, e: WarpEmitter, op: Op) -> list[Value] | None:
    """Return the raw bits of a zero-extended bit field at a constant position."""
    b, width = e.builder, op.type.bits
    at, size = (warpwide.known(e, source) for source in op.sources[1:3])
    if op.type.is_signed or at is None or size is None or not 0 < size < width or at + size > width:
        return None
    own = b.binary("lshr", raw.bits(e, op.sources[0], width), b.integer(at, width))
    return [b.binary("and", own, b.integer((1 << size) - 1, width))]


def _shuffle(raw: RawValues, e: WarpEmitter, op: Op) -> list[Value] | None:
    """Return the raw lanes of a shuffle.

    A lane is raw if the value in its source lane is raw. It is also raw if its source lane depends on a raw value.
    """
    b, word, by = e.builder, raw.word(e, op.sources[:1]), raw.word(e, op.sources[1:3])
    if (word is None and by is None) or "sync" not in op.modifiers:
        return None
    nothing = b.integer(0, 32)
    raw._hand_over(e, "addresses", b.resize(warpwide.origins(e, op), 64, signed=True))
    taken = nothing if word is None else raw._call(e, "cujit_check_shuffled", word, returned="i32")
    both = taken if by is None else b.binary("or", taken, by)
    return [both, by or nothing][: len(op.results)]


def _together(raw: RawValues, e: WarpEmitter, op: Op) -> list[Value] | None:
    """Return the raw lanes of a result that lanes compute together. All lanes are raw if the input of any lane is raw.

    In a ballot, only the bits of raw lanes are raw.
    """
    b, word = e.builder, raw.word(e, op.sources[:1])
    if word is None:
        return None
    some = b.compare("icmp ne", b.binary("and", word, b.word(e.lanes_of(op))), b.integer(0, 32))
    if "ballot" in op.modifiers:
        return [b.vector(word)]
    return [b.select(some, b.integer(-1, 32), b.integer(0, 32))] * len(op.results)


def _turn(raw: RawValues, e: WarpEmitter, op: Op) -> list[Value] | None:
    return [move.turned(e, raw.bits(e, op.sources[0], 32))]


def _has_fragments(op: Op) -> bool:
    """Return whether the registers of a product have the same layout as those of ``m16n8k16``."""
    if "m8n8k4" in op.modifiers:
        return op.types[0] == "f64"
    return any(word.startswith(("m16n8k", "m8n8k")) for word in op.modifiers)


def _product(raw: RawValues, e: WarpEmitter, op: Op) -> list[Value] | None:
    """Products of matrices: raw rows of A and raw columns of B make raw rows and columns, raw metadata all of it."""
    b = e.builder
    others = raw.word(e, op.sources[3:])
    if op.opcode == "wmma":
        found = _fragment_product(raw, e, op)
    elif _has_fragments(op):
        parts = [[raw.word(e, [item]) for item in items_of(source)] for source in op.sources[:3]]
        found = _tile(raw, e, parts, 2 if "m16" in op.name else 1)[: len(op.results)]
    else:
        word = raw.word(e, op.sources)
        return [b.integer(0, 32) if word is None else _any(e, word)] * len(op.results)
    return found if others is None else [b.binary("or", word, _any(e, others)) for word in found]


def _tile(raw: RawValues, e: WarpEmitter, parts: Sequence[Sequence[Raw]], halves: int) -> list[Value]:
    """Return the raw lanes of a product of A, B, and C registers with the layout of ``m16n8k16``."""
    b = e.builder
    for k, word in enumerate(word for words in parts for word in words):
        b.store(b.resize(word or b.integer(0, 32), 64, signed=False), b.offset("%check.values", 8 * k))
    raw._call(e, "cujit_check_product", *(b.integer(len(words), 32) for words in parts), b.integer(halves, 32))
    return [b.load("i32", b.offset("%check.raw_lanes", 4 * k)) for k in range(len(parts[2]))]


def _fragment_product(raw: RawValues, e: WarpEmitter, op: Op) -> list[Value]:
    """Return the raw lanes of ``wmma.mma``, which consists of consecutive ``mma`` tiles.

    See ``instructions/matrix/move.py``.
    """
    b, product, (d, *ab, c) = e.builder, product_of_fragments(op), op.types
    types = (*(ab or ("f16", "f16")), c)
    sizes = [frames.words_in(product, types[0], of_a=True), frames.words_in(product, types[1], of_a=False),
             frames.sum_words(c, product.halves)]  # fmt: skip
    # What registers of f16 are over repeats the others.
    counts = (sizes[0] * product.blocks, sizes[1] * product.columns, sizes[2] * product.blocks * product.columns)
    items = [items_of(source) for source in op.sources[:3]]
    words = [[raw.word(e, own[k::count]) for k in range(count)] for own, count in zip(items, counts, strict=True)]
    found: list[Value] = []
    for block in range(product.blocks):
        for column in range(product.columns):
            places = (block, column, block * product.columns + column)
            parts = [own[size * n : size * (n + 1)] for own, size, n in zip(words, sizes, places, strict=True)]
            if c == "f16" and d != "f16":
                parts[2] = [word for word in parts[2] for _ in range(2)]
            own = _tile(raw, e, parts, product.halves)
            if d == "f16" and c != "f16":
                own = [b.binary("or", *own[k : k + 2]) for k in range(0, len(own), 2)]
            found += own
    return found


def _warpgroup_product(raw: RawValues, e: WarpEmitter, op: Op) -> list[Value] | None:
    """Return the raw lanes of ``wgmma``. A raw row of A in registers makes the row of D raw.

    If the product is added to D, the earlier raw lanes of D remain raw. Registers have the layout of ``m16n8k16``, in
    steps of eight columns.
    """
    b, at = e.builder, 5 if any(word.startswith("sp") for word in op.modifiers) else 3
    d, a = items_of(op.sources[0]), op.sources[1]
    each = 8 * len(d) // frames.shape_of(op)[1]
    rows = [_in_rows(e, raw.word(e, a.items[half::2] if isinstance(a, OperandGroup) else ())) for half in range(2)]
    keeps, by = b.word(b.vector(e.read(op.sources[at], "i1"))), raw.word(e, op.sources[3 : at + 1])
    found = []
    for k, item in enumerate(d):
        word, own = rows[k % each * 2 // each], raw.word(e, [item])
        for more in (None if own is None else b.binary("and", own, keeps), by):
            word = word if more is None else b.binary("or", word, more)
        found.append(word)
    return found


def _in_rows(e: WarpEmitter, word: Raw) -> Value:
    """Return a word with all four lanes of each matrix row in which any lane has something raw."""
    b = e.builder
    if word is None:
        return b.integer(0, 32)
    for shift in (1, 2):
        word = b.binary("or", word, b.binary("lshr", word, b.integer(shift, 32)))
    return b.binary("mul", b.binary("and", word, b.integer(0x11111111, 32)), b.integer(15, 32))


def _any(e: WarpEmitter, word: Value) -> Value:
    b = e.builder
    return b.select(b.compare("icmp ne", word, b.integer(0, 32)), b.integer(-1, 32), b.integer(0, 32))


_Rule: TypeAlias = Callable[[RawValues, "WarpEmitter", Op], "list[Value] | None"]
_BY_WORDS: dict[str, _Rule] = {
    "selp": _select_words, "shfl": _shuffle, **dict.fromkeys(("vote", "match", "redux"), _together), "mma": _product,
    "wmma": _product, "movmatrix": _turn,
    "wgmma": _warpgroup_product,
    "setp": _compare, "and": _predicates, "or": _predicates,
}  # fmt: skip
"""What holds of registers that have words beside them alone."""
_RULES: dict[str, _Rule] = {
    **dict.fromkeys((*_TABLES, "lop3"), _table),
    "shl": _shift, "shr": _shift, "shf": _funnel, "prmt": _permute, "cvt": _convert, "bfe": _extract,
    **dict.fromkeys(_COPIES, _move),
    **{opcode: rule for opcode, rule in _BY_WORDS.items() if opcode not in _TABLES}, "selp": _select,
}  # fmt: skip
