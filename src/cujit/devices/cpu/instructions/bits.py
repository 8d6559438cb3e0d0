"""Bits of integers: counts, fields, logic, shifts, and the bytes of words.

PTX ISA 9.1: "Integer Arithmetic Instructions", "Logic and Shift Instructions", "Data Movement and Conversion
Instructions: prmt".
"""

from __future__ import annotations

from cujit.devices.cpu.codegen.builder import Value, int_type, type_width
from cujit.devices.cpu.codegen.registry import Rules
from cujit.devices.cpu.codegen.warp import WarpEmitter
from cujit.devices.cpu.ir.program import IntConstant, Op

__all__ = ["integer_type", "register"]


_PERMUTATIONS = {
    "f4e": (0x3210, 0x4321, 0x5432, 0x6543),
    "b4e": (0x5670, 0x6701, 0x7012, 0x0123),
    "rc8": (0x0000, 0x1111, 0x2222, 0x3333),
    "ecl": (0x3210, 0x3211, 0x3222, 0x3333),
    "ecr": (0x0000, 0x1110, 0x2210, 0x3210),
    "rc16": (0x1010, 0x3232, 0x1010, 0x3232),
}
"""The bytes that each mode of ``prmt`` picks for the selectors 0 to 3, as selectors of the general form.

Source: PTX ISA 9.1, "Data Movement and Conversion Instructions: prmt", the table of modes.
"""


def register(rules: Rules) -> None:
    """Add the rules of this family."""
    rules.on("popc|clz|brev", _count)
    rules.on("fns", _find_nth_bit)
    rules.on("bfind", _find_bit)
    rules.on("bfe", _extract_field)
    rules.on("bfi", _insert_field)
    rules.on("bmsk", _bit_mask)
    rules.on("szext", _extend_field)
    rules.on("and|or|xor", _logic)
    rules.on("not", _not)
    rules.on("cnot", _logical_not)
    rules.on("lop3", _lop3)
    rules.on("lop3 .or|and", _lop3_tested)
    rules.on("shl|shr", _shift)
    rules.on("shf", _funnel_shift)
    rules.on("prmt", _permute)
    rules.on(f"prmt .{'|'.join(_PERMUTATIONS)}", _permute_by_table)


def integer_type(op: Op) -> tuple[str, int, bool]:
    """LLVM type, width in bits and signedness of the operation's last type."""
    type_ = op.types[-1]
    return int_type(type_.bits), type_.bits, type_.is_signed


# -- bits -------------------------------------------------------------------------------------------------


def _count(e: WarpEmitter, op: Op) -> None:
    b = e.builder
    t, _, _ = integer_type(op)
    x = e.source(op, 0, t)
    if op.opcode == "brev":
        e.put(op, b.intrinsic("bitreverse", x))
    elif op.opcode == "popc":
        e.put(op, b.resize(b.intrinsic("ctpop", x), 32, signed=False))
    else:
        e.put(op, b.resize(b.intrinsic("ctlz", x, flag=b.integer(0, 1)), 32, signed=False))


def _find_bit(e: WarpEmitter, op: Op) -> None:
    """Find the highest bit that is set (for a negative number: clear); all ones where there is none."""
    b = e.builder
    t, bits, signed = integer_type(op)
    x = e.source(op, 0, t)
    if signed:
        x = b.binary("xor", x, b.binary("ashr", x, b.integer(bits - 1, bits)))
    zeros = b.resize(b.intrinsic("ctlz", x, flag=b.integer(0, 1)), 32, signed=False)
    none = b.compare("icmp eq", zeros, b.integer(bits, 32))
    at = zeros if "shiftamt" in op.modifiers else b.binary("sub", b.integer(bits - 1, 32), zeros)
    e.put(op, b.select(none, b.integer(-1, 32), at))


def _find_nth_bit(e: WarpEmitter, op: Op) -> None:
    """Find the n-th bit that is set, from a base upwards, downwards for a negative n, or at the base alone for 0.

    All ones where there is none. A base beyond 31 is undefined; its low 5 bits count.
    """
    b = e.builder
    mask, offset = e.source(op, 0, "i32"), e.source(op, 2, "i32")
    base = b.binary("and", e.source(op, 1, "i32"), b.integer(31, 32))
    zero, one, ones = b.integer(0, 32), b.integer(1, 32), b.integer(-1, 32)
    down = b.compare("icmp slt", offset, zero)
    mask = b.select(down, b.intrinsic("bitreverse", mask), mask)
    base = b.select(down, b.binary("xor", base, b.integer(31, 32)), base)
    asked = b.binary("shl", b.select(b.compare("icmp eq", offset, zero), one, ones), base)
    mask = b.binary("and", mask, asked)
    count = b.intrinsic("umax", b.intrinsic("abs", offset, flag=b.integer(0, 1)), one)
    missing = b.compare("icmp ult", b.intrinsic("ctpop", mask), count)
    at = _nth_bit(e, mask, count)
    at = b.select(down, b.binary("xor", at, b.integer(31, 32)), at)
    e.put(op, b.select(missing, ones, at))


def _nth_bit(e: WarpEmitter, mask: Value, count: Value) -> Value:
    """Position of bit number ``count`` (from 1) that is set, found by halves."""
    b, at = e.builder, e.builder.integer(0, 32)
    for half in (16, 8, 4, 2, 1):
        below = b.intrinsic("ctpop", b.binary("and", mask, b.integer((1 << half) - 1, 32)))
        above = b.compare("icmp ult", below, count)
        step = b.select(above, b.integer(half, 32), b.integer(0, 32))
        count = b.binary("sub", count, b.select(above, below, b.integer(0, 32)))
        mask, at = b.binary("lshr", mask, step), b.binary("add", at, step)
    return at


def _extent(e: WarpEmitter, op: Op, index: int) -> Value:
    """Read a position or length of a field: its low byte where the field is one of 32 bits, all of it for 64.

    Source: PTX ISA 9.1, "bfe", "bfi", has the byte for both; that all 32 bits count for 64 was measured on an H200.
    """
    value = e.source(op, index, "i32")
    return value if integer_type(op)[1] == 64 else e.builder.binary("and", value, e.builder.integer(0xFF, 32))


def _clamped(e: WarpEmitter, value: Value, most: int) -> Value:
    return e.builder.intrinsic("umin", value, e.builder.integer(most, 32))


def _shift_left(e: WarpEmitter, x: Value, count: Value) -> Value:
    """Shift by a 32-bit count; counts of the width or more give 0."""
    b, bits = e.builder, type_width(x.type)
    far = b.compare("icmp ugt", count, b.integer(bits - 1, 32))
    near = b.binary("shl", x, b.resize(_clamped(e, count, bits - 1), bits, signed=False))
    return b.select(far, b.integer(0, bits), near)


def _shift_right(e: WarpEmitter, x: Value, count: Value, signed: bool) -> Value:
    """Shift by a 32-bit count; counts of the width or more give 0, or the sign."""
    b, bits = e.builder, type_width(x.type)
    near = b.binary("ashr" if signed else "lshr", x, b.resize(_clamped(e, count, bits - 1), bits, signed=False))
    if signed:
        return near
    return b.select(b.compare("icmp ugt", count, b.integer(bits - 1, 32)), b.integer(0, bits), near)


def _low_mask(e: WarpEmitter, length: Value, bits: int) -> Value:
    """As many low bits as ``length`` says; all from the width on."""
    b = e.builder
    return b.binary("sub", _shift_left(e, b.integer(1, bits), length), b.integer(1, bits))


def _extract_field(e: WarpEmitter, op: Op) -> None:
    b = e.builder
    t, bits, signed = integer_type(op)
    x, start, length = e.source(op, 0, t), _extent(e, op, 1), _extent(e, op, 2)
    if not signed:
        e.put(op, b.binary("and", _shift_right(e, x, start, signed=False), _low_mask(e, length, bits)))
        return
    top = _clamped(e, b.binary("sub", b.intrinsic("uadd.sat", start, length), b.integer(1, 32)), bits - 1)
    left = b.binary("sub", b.integer(bits - 1, 32), top)
    field = _shift_right(e, _shift_left(e, x, left), b.intrinsic("uadd.sat", left, start), signed=True)
    empty = b.compare("icmp eq", length, b.integer(0, 32))
    e.put(op, b.select(empty, b.integer(0, bits), field))


def _insert_field(e: WarpEmitter, op: Op) -> None:
    b = e.builder
    t, bits, _ = integer_type(op)
    x, into, start, length = e.source(op, 0, t), e.source(op, 1, t), _extent(e, op, 2), _extent(e, op, 3)
    mask = _shift_left(e, _low_mask(e, length, bits), start)
    field = b.binary("and", _shift_left(e, x, start), mask)
    rest = b.binary("and", into, b.binary("xor", mask, b.integer(-1, bits)))
    e.put(op, b.binary("or", field, rest))


def _wrapped(e: WarpEmitter, op: Op, index: int) -> Value:
    value = e.source(op, index, "i32")
    return e.builder.binary("and", value, e.builder.integer(31, 32)) if "wrap" in op.modifiers else value


def _bit_mask(e: WarpEmitter, op: Op) -> None:
    start, length = _wrapped(e, op, 0), _wrapped(e, op, 1)
    e.put(op, _shift_left(e, _low_mask(e, length, 32), start))


def _extend_field(e: WarpEmitter, op: Op) -> None:
    b = e.builder
    _, _, signed = integer_type(op)
    x, length = e.source(op, 0, "i32"), _clamped(e, _wrapped(e, op, 1), 32)
    unused = b.binary("sub", b.integer(32, 32), length)
    field = _shift_right(e, _shift_left(e, x, unused), unused, signed)
    if signed:
        field = b.select(b.compare("icmp eq", unused, b.integer(32, 32)), b.integer(0, 32), field)
    e.put(op, field)


# -- logic and shifts -------------------------------------------------------------------------------------


def _logic(e: WarpEmitter, op: Op) -> None:
    t, _, _ = integer_type(op)
    e.put(op, e.builder.binary(op.opcode, e.source(op, 0, t), e.source(op, 1, t)))


def _not(e: WarpEmitter, op: Op) -> None:
    t, bits, _ = integer_type(op)
    e.put(op, e.builder.binary("xor", e.source(op, 0, t), e.builder.integer(-1, bits)))


def _logical_not(e: WarpEmitter, op: Op) -> None:
    b = e.builder
    t, bits, _ = integer_type(op)
    zero = b.compare("icmp eq", e.source(op, 0, t), b.integer(0, bits))
    e.put(op, b.resize(zero, bits, signed=False))


def _lop3(e: WarpEmitter, op: Op) -> None:
    e.put(op, _lop3_result(e, op))


def _lop3_tested(e: WarpEmitter, op: Op) -> None:
    """Write also a predicate: whether any bit is set, joined with the last source."""
    b = e.builder
    result, predicate = _lop3_result(e, op), e.source(op, 4, "i1")
    some = b.compare("icmp ne", result, b.integer(0, 32))
    e.put(op, result)
    e.put(op, b.binary(op.form.words[0], some, predicate), 1)


def _lop3_result(e: WarpEmitter, op: Op) -> Value:
    """Any function of three bits: the look-up table has the value for a, b, c at bit 4a + 2b + c."""
    b = e.builder
    table = op.sources[3]
    assert isinstance(table, IntConstant)
    ones = b.integer(-1, 32)
    inputs = [e.source(op, k, "i32") for k in range(3)]
    inverse = [b.binary("xor", x, ones) for x in inputs]
    result = b.integer(0, 32)
    for row in range(8):
        if table.value >> row & 1:
            x, y, z = (inputs[k] if row >> (2 - k) & 1 else inverse[k] for k in range(3))
            result = b.binary("or", result, b.binary("and", b.binary("and", x, y), z))
    return result


def _shift(e: WarpEmitter, op: Op) -> None:
    t, bits, signed = integer_type(op)
    x = e.source(op, 0, t)
    count = op.sources[1]
    if isinstance(count, IntConstant) and 0 <= count.value < bits:
        opcode = "shl" if op.opcode == "shl" else "ashr" if signed else "lshr"
        e.put(op, e.builder.binary(opcode, x, e.builder.integer(count.value, bits)))
    elif op.opcode == "shl":
        e.put(op, _shift_left(e, x, e.read(count, "i32")))
    else:
        e.put(op, _shift_right(e, x, e.read(count, "i32"), signed))


def _funnel_shift(e: WarpEmitter, op: Op) -> None:
    b = e.builder
    low, high, count = (e.source(op, k, "i32") for k in range(3))
    left = "l" in op.modifiers
    shifted = b.intrinsic("fshl" if left else "fshr", high, low, count)
    if "clamp" in op.modifiers:
        far = b.compare("icmp ugt", count, b.integer(31, 32))
        shifted = b.select(far, low if left else high, shifted)
    e.put(op, shifted)


def _permute(e: WarpEmitter, op: Op) -> None:
    e.put(op, _bytes_picked(e, op, e.source(op, 2, "i32")))


def _permute_by_table(e: WarpEmitter, op: Op) -> None:
    """Look the selectors of a mode up by the low two bits of the third source."""
    b = e.builder
    rows = _PERMUTATIONS[op.form.words[0]]
    packed = b.integer(sum(row << 16 * k for k, row in enumerate(rows)), 64)
    index = b.resize(b.binary("and", e.source(op, 2, "i32"), b.integer(3, 32)), 64, signed=False)
    row = b.binary("lshr", packed, b.binary("shl", index, b.integer(4, 64)))
    e.put(op, _bytes_picked(e, op, b.resize(row, 32, signed=False)))


def _bytes_picked(e: WarpEmitter, op: Op, selectors: Value) -> Value:
    """Pick four of eight bytes; a selector's bit 3 asks for the byte's sign instead."""
    b = e.builder
    low, high = (b.resize(e.source(op, k, "i32"), 64, signed=False) for k in range(2))
    both = b.binary("or", low, b.binary("shl", high, b.integer(32, 64)))
    selectors = b.resize(selectors, 64, signed=False)
    result = b.integer(0, 32)
    for k in range(4):
        selector = b.binary("lshr", selectors, b.integer(4 * k, 64))
        bit = b.binary("shl", b.binary("and", selector, b.integer(7, 64)), b.integer(3, 64))
        byte = b.resize(b.binary("lshr", both, bit), 8, signed=False)
        sign = b.binary("ashr", byte, b.integer(7, 8))
        asked = b.compare("icmp ne", b.binary("and", selector, b.integer(8, 64)), b.integer(0, 64))
        chosen = b.resize(b.select(asked, sign, byte), 32, signed=False)
        result = b.binary("or", result, b.binary("shl", chosen, b.integer(8 * k, 32)))
    return result
