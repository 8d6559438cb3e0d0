"""Bits of integers: counts, fields, logic, shifts, and the bytes of words.

PTX ISA 9.1: "Integer Arithmetic Instructions", "Logic and Shift Instructions", "Data Movement and Conversion
Instructions: prmt".
"""

from __future__ import annotations

from collections.abc import Callable

from cujit.devices.cpu.codegen.builder import Builder, Value, int_type, type_width
from cujit.devices.cpu.codegen.registry import Rules
from cujit.devices.cpu.codegen.warp import Handler, WarpEmitter
from cujit.devices.cpu.ir.program import IntConstant, Op

__all__ = ["computed", "field", "register"]


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
    rules.on("popc|clz|brev", computed(_count))
    rules.on("fns", computed(_find_nth_bit))
    rules.on("bfind", computed(_find_bit))
    rules.on("bfe", computed(_extract_field, "", "i32", "i32"))
    rules.on("bfi", computed(_insert_field, "", "", "i32", "i32"))
    rules.on("bmsk", computed(_bit_mask))
    rules.on("szext", computed(_extend_field))
    rules.on("and|or|xor", computed(lambda b, op, x, y: b.binary(op.opcode, x, y)))
    rules.on("not", computed(lambda b, _, x: b.binary("xor", x, b.integer(-1, type_width(x.type)))))
    rules.on("cnot", computed(_logical_not))
    rules.on("lop3", computed(_lop3))
    rules.on("lop3 .or|and", _lop3_tested)
    rules.on("shl|shr", computed(_shift, "", "i32"))
    rules.on("shf", computed(_funnel_shift))
    rules.on("prmt", computed(_permute))
    rules.on(f"prmt .{'|'.join(_PERMUTATIONS)}", computed(_permute_by_table))


def computed(part: Callable[..., Value], *types: str) -> Handler:
    """Make a handler of what computes one result from a builder, the operation and its sources.

    These are read as ``types``, LLVM's, and as integers of the operation's last type where that is empty or missing.
    """

    def handler(e: WarpEmitter, op: Op) -> None:
        own = int_type(op.types[-1].bits)
        kinds = [*types, *[own] * len(op.sources)]
        e.put(op, part(e.builder, op, *(e.source(op, k, kinds[k] or own) for k in range(len(op.sources)))))

    return handler


def field(b: Builder, word: Value, at: int, bits: int, signed: bool) -> Value:
    """Extract ``bits`` from bit ``at`` on of an i32, and extend them."""
    if bits == 32:
        return word
    up = b.binary("shl", word, b.integer(32 - bits - at, 32))
    return b.binary("ashr" if signed else "lshr", up, b.integer(32 - bits, 32))


# -- bits -------------------------------------------------------------------------------------------------


def _count(b: Builder, op: Op, x: Value) -> Value:
    if op.opcode == "brev":
        return b.intrinsic("bitreverse", x)
    return b.resize(b.intrinsic("ctpop", x) if op.opcode == "popc" else _leading_zeros(b, x), 32, signed=False)


def _leading_zeros(b: Builder, x: Value) -> Value:
    return b.intrinsic("ctlz", x, flag=b.integer(0, 1))


def _find_bit(b: Builder, op: Op, x: Value) -> Value:
    """Find the highest bit that is set (for a negative number: clear); all ones where there is none."""
    bits = type_width(x.type)
    if op.type.is_signed:
        x = b.binary("xor", x, b.binary("ashr", x, b.integer(bits - 1, bits)))
    zeros = b.resize(_leading_zeros(b, x), 32, signed=False)
    none = b.compare("icmp eq", zeros, b.integer(bits, 32))
    at = zeros if "shiftamt" in op.modifiers else b.binary("sub", b.integer(bits - 1, 32), zeros)
    return b.select(none, b.integer(-1, 32), at)


def _find_nth_bit(b: Builder, _op: Op, mask: Value, base: Value, offset: Value) -> Value:
    """Find the n-th bit that is set, from a base upwards, downwards for a negative n, or at the base alone for 0.

    All ones where there is none. A base beyond 31 is undefined; its low 5 bits count.
    """
    base = b.binary("and", base, b.integer(31, 32))
    zero, one, ones = b.integer(0, 32), b.integer(1, 32), b.integer(-1, 32)
    down = b.compare("icmp slt", offset, zero)
    mask = b.select(down, b.intrinsic("bitreverse", mask), mask)
    base = b.select(down, b.binary("xor", base, b.integer(31, 32)), base)
    asked = b.binary("shl", b.select(b.compare("icmp eq", offset, zero), one, ones), base)
    mask = b.binary("and", mask, asked)
    count = b.intrinsic("umax", b.intrinsic("abs", offset, flag=b.integer(0, 1)), one)
    missing = b.compare("icmp ult", b.intrinsic("ctpop", mask), count)
    at = _nth_bit(b, mask, count)
    at = b.select(down, b.binary("xor", at, b.integer(31, 32)), at)
    return b.select(missing, ones, at)


def _nth_bit(b: Builder, mask: Value, count: Value) -> Value:
    """Position of bit number ``count`` (from 1) that is set, found by halves."""
    at = b.integer(0, 32)
    for half in (16, 8, 4, 2, 1):
        below = b.intrinsic("ctpop", b.binary("and", mask, b.integer((1 << half) - 1, 32)))
        above = b.compare("icmp ult", below, count)
        step = b.select(above, b.integer(half, 32), b.integer(0, 32))
        count = b.binary("sub", count, b.select(above, below, b.integer(0, 32)))
        mask, at = b.binary("lshr", mask, step), b.binary("add", at, step)
    return at


def _extents(b: Builder, op: Op, *values: Value) -> list[Value]:
    """Take positions and lengths of a field: their low bytes where the field is one of 32 bits, all of them for 64.

    Source: PTX ISA 9.1, "bfe", "bfi", has the byte for both; that all 32 bits count for 64 was measured on an H200.
    """
    return [v if op.types[-1].bits == 64 else b.binary("and", v, b.integer(0xFF, 32)) for v in values]


def _clamped(b: Builder, value: Value, most: int) -> Value:
    return b.intrinsic("umin", value, b.integer(most, 32))


def _shift_left(b: Builder, x: Value, count: Value) -> Value:
    """Shift by a 32-bit count; counts of the width or more give 0."""
    bits = type_width(x.type)
    far = b.compare("icmp ugt", count, b.integer(bits - 1, 32))
    near = b.binary("shl", x, b.resize(_clamped(b, count, bits - 1), bits, signed=False))
    return b.select(far, b.integer(0, bits), near)


def _shift_right(b: Builder, x: Value, count: Value, signed: bool) -> Value:
    """Shift by a 32-bit count; counts of the width or more give 0, or the sign."""
    bits = type_width(x.type)
    near = b.binary("ashr" if signed else "lshr", x, b.resize(_clamped(b, count, bits - 1), bits, signed=False))
    if signed:
        return near
    return b.select(b.compare("icmp ugt", count, b.integer(bits - 1, 32)), b.integer(0, bits), near)


def _low_mask(b: Builder, length: Value, bits: int) -> Value:
    """As many low bits as ``length`` says; all from the width on."""
    return b.binary("sub", _shift_left(b, b.integer(1, bits), length), b.integer(1, bits))


def _extract_field(b: Builder, op: Op, x: Value, start: Value, length: Value) -> Value:
    bits, (start, length) = type_width(x.type), _extents(b, op, start, length)
    if not op.type.is_signed:
        return b.binary("and", _shift_right(b, x, start, signed=False), _low_mask(b, length, bits))
    top = _clamped(b, b.binary("sub", b.intrinsic("uadd.sat", start, length), b.integer(1, 32)), bits - 1)
    left = b.binary("sub", b.integer(bits - 1, 32), top)
    field = _shift_right(b, _shift_left(b, x, left), b.intrinsic("uadd.sat", left, start), signed=True)
    empty = b.compare("icmp eq", length, b.integer(0, 32))
    return b.select(empty, b.integer(0, bits), field)


def _insert_field(b: Builder, op: Op, x: Value, into: Value, start: Value, length: Value) -> Value:
    bits, (start, length) = type_width(x.type), _extents(b, op, start, length)
    mask = _shift_left(b, _low_mask(b, length, bits), start)
    field = b.binary("and", _shift_left(b, x, start), mask)
    return b.binary("or", field, b.binary("and", into, b.binary("xor", mask, b.integer(-1, bits))))


def _wrapped(b: Builder, op: Op, value: Value) -> Value:
    return b.binary("and", value, b.integer(31, 32)) if "wrap" in op.modifiers else value


def _bit_mask(b: Builder, op: Op, start: Value, length: Value) -> Value:
    return _shift_left(b, _low_mask(b, _wrapped(b, op, length), 32), _wrapped(b, op, start))


def _extend_field(b: Builder, op: Op, x: Value, length: Value) -> Value:
    signed = op.type.is_signed
    unused = b.binary("sub", b.integer(32, 32), _clamped(b, _wrapped(b, op, length), 32))
    field = _shift_right(b, _shift_left(b, x, unused), unused, signed)
    if signed:
        field = b.select(b.compare("icmp eq", unused, b.integer(32, 32)), b.integer(0, 32), field)
    return field


# -- logic and shifts -------------------------------------------------------------------------------------


def _logical_not(b: Builder, _op: Op, x: Value) -> Value:
    bits = type_width(x.type)
    return b.resize(b.compare("icmp eq", x, b.integer(0, bits)), bits, signed=False)


def _lop3_tested(e: WarpEmitter, op: Op) -> None:
    """Write also a predicate: whether any bit is set, joined with the last source."""
    b = e.builder
    result, predicate = _lop3(b, op, *(e.source(op, k, "i32") for k in range(3))), e.source(op, 4, "i1")
    some = b.compare("icmp ne", result, b.integer(0, 32))
    e.put(op, result)
    e.put(op, b.binary(op.form.words[0], some, predicate), 1)


def _lop3(b: Builder, op: Op, *inputs: Value) -> Value:
    """Any function of three bits: the look-up table has the value for a, b, c at bit 4a + 2b + c."""
    table = op.sources[3]
    assert isinstance(table, IntConstant)
    inverse = [b.binary("xor", x, b.integer(-1, 32)) for x in inputs[:3]]
    result = b.integer(0, 32)
    for row in range(8):
        if table.value >> row & 1:
            x, y, z = (inputs[k] if row >> (2 - k) & 1 else inverse[k] for k in range(3))
            result = b.binary("or", result, b.binary("and", b.binary("and", x, y), z))
    return result


def _shift(b: Builder, op: Op, x: Value, count: Value) -> Value:
    bits, signed, said = type_width(x.type), op.type.is_signed, op.sources[1]
    if isinstance(said, IntConstant) and 0 <= said.value < bits:
        opcode = "shl" if op.opcode == "shl" else "ashr" if signed else "lshr"
        return b.binary(opcode, x, b.integer(said.value, bits))
    return _shift_left(b, x, count) if op.opcode == "shl" else _shift_right(b, x, count, signed)


def _funnel_shift(b: Builder, op: Op, low: Value, high: Value, count: Value) -> Value:
    left = "l" in op.modifiers
    shifted = b.intrinsic("fshl" if left else "fshr", high, low, count)
    if "clamp" in op.modifiers:
        far = b.compare("icmp ugt", count, b.integer(31, 32))
        shifted = b.select(far, low if left else high, shifted)
    return shifted


def _permute_by_table(b: Builder, op: Op, low: Value, high: Value, index: Value) -> Value:
    """Look the selectors of a mode up by the low two bits of the third source."""
    rows = _PERMUTATIONS[op.form.words[0]]
    packed = b.integer(sum(row << 16 * k for k, row in enumerate(rows)), 64)
    index = b.resize(b.binary("and", index, b.integer(3, 32)), 64, signed=False)
    row = b.binary("lshr", packed, b.binary("shl", index, b.integer(4, 64)))
    return _permute(b, op, low, high, b.resize(row, 32, signed=False))


def _permute(b: Builder, _op: Op, low: Value, high: Value, selectors: Value) -> Value:
    """Pick four of eight bytes; a selector's bit 3 asks for the byte's sign instead."""
    low, high, selectors = (b.resize(v, 64, signed=False) for v in (low, high, selectors))
    both = b.binary("or", low, b.binary("shl", high, b.integer(32, 64)))
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
