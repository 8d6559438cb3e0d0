"""Integers: arithmetic; counts and fields of bits, logic, shifts, and the bytes of words.

PTX ISA 9.1: "Integer Arithmetic Instructions", "Extended-Precision …", "Logic and Shift Instructions", "Data Movement
and Conversion Instructions: prmt".
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from cujit.devices.cpu.codegen.builder import Builder, Value, int_type, type_width
from cujit.devices.cpu.codegen.memory import native_lanes
from cujit.devices.cpu.codegen.registry import Rules
from cujit.devices.cpu.codegen.warp import Handler, WarpEmitter
from cujit.devices.cpu.ir.program import WARP, IntConstant, Op

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
    rules.on("add|sub .INT", computed(_add))
    rules.on("add|sub .cc .INT", _add_carry)
    rules.on("addc|subc", _add_carry)
    rules.on("mul|mad .INT", _multiply)
    rules.on("mul24|mad24|madc", _multiply)
    rules.on("clmad", computed(_multiply_carryless))
    rules.on("div|rem .INT", computed(_divide))
    rules.on("abs|neg .SIGNED", computed(_negate))
    rules.on("min|max .INT", computed(_extreme))
    rules.on("sad", computed(_sad))
    rules.on("dp4a|dp2a", computed(_dot))
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


_SPACED = 0x1111111111111111
"""Every fourth bit of 64."""


def _multiply_carryless(b: Builder, op: Op, x: Value, y: Value, z: Value) -> Value:
    """Multiply polynomials over single bits, select the lower or upper 64 bits of the product, and add ``z`` by
    ``xor``.

    The upper half is the bit-reversed lower half of the product of the bit-reversed factors, shifted by one bit.
    """
    if "hi" not in op.modifiers:
        return b.binary("xor", _low_carryless(b, x, y), z)
    mirrored = _low_carryless(b, *(b.intrinsic("bitreverse", v) for v in (x, y)))
    upper = b.binary("lshr", b.intrinsic("bitreverse", mirrored), b.integer(1, 64))
    return b.binary("xor", upper, z)


def _low_carryless(b: Builder, x: Value, y: Value) -> Value:
    """Multiply integers with bits that are spaced so widely that no sum of bits reaches the next bit. A sum is at most
    16.

    Source: Pornin, "Constant-Time Crypto" (BearSSL): a sum of 16 occurs only in the highest place, where it overflows.
    """
    parts = [[b.binary("and", v, b.integer(_SPACED << k, 64)) for k in range(4)] for v in (x, y)]
    result = None
    for place in range(4):
        products = [b.binary("mul", parts[0][k], parts[1][(place - k) % 4]) for k in range(4)]
        total = functools.reduce(lambda one, other: b.binary("xor", one, other), products)
        kept = b.binary("and", total, b.integer(_SPACED << place & (1 << 64) - 1, 64))
        result = kept if result is None else b.binary("or", result, kept)
    assert result is not None
    return result


def computed(part: Callable[..., Value], *types: str) -> Handler:
    """Return a handler that computes one result by calling ``part`` with a builder, the operation, and its sources.

    The sources are read as the LLVM types ``types``. If a type is empty or missing, the source is read as an integer of
    the operation's last type.
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


# -- addition and multiplication --------------------------------------------------------------------------


def _add(b: Builder, op: Op, x: Value, y: Value) -> Value:
    if "sat" in op.modifiers:
        return b.intrinsic(f"{op.type.kind}{op.opcode}.sat", x, y)
    return b.binary(op.opcode, x, y)


def _add_carry(e: WarpEmitter, op: Op) -> None:
    """Emit ``add.cc``, ``addc``, ``sub.cc``, or ``subc``. The carry is a separate register: the last result and last
    source.

    The carry is the carry of the adder in all four instructions. A difference adds the complement and one, so
    ``sub.cc`` sets the carry if nothing is borrowed. Source: measured on an H200. The manual calls the carry borrow and
    does not specify its sense.
    """
    b, bits = e.builder, op.types[-1].bits
    x, y = (e.source(op, k, int_type(bits)) for k in range(2))
    if op.opcode.startswith("sub"):
        y = b.binary("xor", y, b.integer(-1, bits))
    _put_sum(e, op, x, y, b.integer(1, 1) if op.opcode == "sub" else None)


def _put_sum(e: WarpEmitter, op: Op, x: Value, y: Value, carry: Value | None = None) -> None:
    """Add two values and the carry-in, if any. Write the sum, and the carry-out if the operation has ``.cc``."""
    b = e.builder
    total = b.binary("add", x, y)
    if op.opcode in ("addc", "subc", "madc"):
        carry = e.source(op, len(op.sources) - 1, "i1")
    if carry is None and "cc" not in op.modifiers:
        e.put(op, total)
        return
    carried = b.compare("icmp ult", total, x)
    if carry is not None:
        again = b.binary("add", total, b.resize(carry, type_width(x.type), signed=False))
        total, carried = again, b.binary("or", carried, b.compare("icmp ult", again, total))
    e.put(op, total)
    if "cc" in op.modifiers:
        e.put(op, carried, 1)


def _multiply(e: WarpEmitter, op: Op) -> None:
    """``mul mad madc mul24 mad24``: a half of the product or all of it; plus an addend, clamped or with carries."""
    b, bits, signed = e.builder, op.types[-1].bits, op.types[-1].is_signed
    x, y = (e.source(op, k, int_type(bits)) for k in range(2))
    if "wide" in op.modifiers:
        bits *= 2
        product = b.binary("mul", b.resize(x, bits, signed), b.resize(y, bits, signed))
    else:
        by = _product24 if op.opcode.endswith("24") else _product
        product = by(b, x, y, high="hi" in op.modifiers, signed=signed)
    if op.opcode.startswith("mul"):
        e.put(op, product)
    elif "sat" in op.modifiers:  # of s32 alone
        e.put(op, b.intrinsic("sadd.sat", product, e.source(op, 2, "i32")))
    else:
        _put_sum(e, op, product, e.source(op, 2, int_type(bits)))


def _product(b: Builder, x: Value, y: Value, *, high: bool, signed: bool) -> Value:
    if not high:
        return b.binary("mul", x, y)
    bits = type_width(x.type)
    if bits < 64:
        wide = b.binary("mul", b.resize(x, 2 * bits, signed), b.resize(y, 2 * bits, signed))
        return b.resize(b.binary("lshr", wide, b.integer(bits, 2 * bits)), bits, signed)
    return _high64(b, x, y, signed)


def _high64(b: Builder, x: Value, y: Value, signed: bool) -> Value:
    """Upper half of a 64-bit product from four 32-bit ones; a signed one is the unsigned one corrected."""
    half, low = b.integer(32, 64), b.integer(0xFFFFFFFF, 64)
    x0, x1 = b.binary("and", x, low), b.binary("lshr", x, half)
    y0, y1 = b.binary("and", y, low), b.binary("lshr", y, half)
    middle = b.binary("add", b.binary("mul", x1, y0), b.binary("lshr", b.binary("mul", x0, y0), half))
    cross = b.binary("add", b.binary("mul", x0, y1), b.binary("and", middle, low))
    high = b.binary("add", b.binary("mul", x1, y1), b.binary("lshr", middle, half))
    high = b.binary("add", high, b.binary("lshr", cross, half))
    if signed:
        sign = b.integer(63, 64)
        high = b.binary("sub", high, b.binary("and", b.binary("ashr", x, sign), y))
        high = b.binary("sub", high, b.binary("and", b.binary("ashr", y, sign), x))
    return high


def _product24(b: Builder, x: Value, y: Value, *, high: bool, signed: bool) -> Value:
    """Multiply the low 24 bits: bits 0 to 31 of the 48-bit product, or 16 to 47."""
    product = b.binary("mul", *(b.resize(field(b, v, 0, 24, signed), 64, signed) for v in (x, y)))
    if high:
        product = b.binary("lshr", product, b.integer(16, 64))
    return b.resize(product, 32, signed)


def _divide(b: Builder, op: Op, x: Value, y: Value) -> Value:
    """Divide without trapping. For a division by zero, quotient and remainder are all ones, as on a GPU (read on an
    H200).
    """
    bits = type_width(x.type)
    result = (_quotient_by_double if bits <= 32 else _quotient64)(b, x, y, op.type.is_signed)
    if op.opcode == "rem":
        result = b.binary("sub", x, b.binary("mul", result, y))
    return b.select(b.compare("icmp eq", y, b.integer(0, bits)), b.integer(-1, bits), result)


def _quotient_by_double(b: Builder, x: Value, y: Value, signed: bool) -> Value:
    """Divide 32-bit integers exactly in f64: the rounded quotient of two such integers truncates to the right one."""
    bits = type_width(x.type)
    bad = b.compare("icmp eq", y, b.integer(0, bits))
    if signed:  # INT_MIN / -1 wraps to INT_MIN, as two's complement arithmetic does, and as INT_MIN / 1 is
        least = b.compare("icmp eq", x, b.integer(1 << bits - 1, bits))
        bad = b.binary("or", bad, b.binary("and", least, b.compare("icmp eq", y, b.integer(-1, bits))))
    to, back = ("sitofp", "fptosi") if signed else ("uitofp", "fptoui")
    divisor = b.select(bad, b.integer(1, bits), y)
    ratio = b.binary("fdiv", b.cast(to, x, "double"), b.cast(to, divisor, "double"))
    return b.resize(b.cast(back, ratio, "i32"), bits, signed)


def _quotient64(b: Builder, x: Value, y: Value, signed: bool) -> Value:
    one, zero = b.integer(1, 64), b.integer(0, 64)
    bad = b.compare("icmp eq", y, zero)
    if not signed:
        return _quotients(b, x, b.select(bad, one, y), signed, y.constant)
    minus = b.compare("icmp eq", y, b.integer(-1, 64))  # x / -1 is -x / 1, which is there for the least number too
    x = b.select(minus, b.binary("sub", zero, x), x)
    return _quotients(b, x, b.select(b.binary("or", bad, minus), one, y), signed, y.constant)


def _quotients(b: Builder, x: Value, y: Value, signed: bool, is_number: bool) -> Value:
    """Divide, a whole warp by a function of the run-time: 32 divisions are more code than the rest of many kernels."""
    kind = "sdiv" if signed else "udiv"
    if WARP not in (x.lanes, y.lanes) or is_number:  # LLVM multiplies instead of dividing by a number
        return b.binary(kind, x, y)
    return b.invoke(native_lanes(b, kind, 64), "i64", b.vector(x), b.vector(y), lanes=WARP)


def _negate(b: Builder, op: Op, x: Value) -> Value:
    if op.opcode == "abs":
        return b.intrinsic("abs", x, flag=b.integer(0, 1))
    return b.binary("sub", b.integer(0, type_width(x.type)), x)


def _extreme(b: Builder, op: Op, x: Value, y: Value) -> Value:
    x = b.intrinsic(f"{op.type.kind}{op.opcode}", x, y)
    return b.intrinsic("smax", x, b.integer(0, type_width(x.type))) if "relu" in op.modifiers else x


def _sad(b: Builder, op: Op, x: Value, y: Value, z: Value) -> Value:
    sign = op.type.kind
    distance = b.binary("sub", b.intrinsic(f"{sign}max", x, y), b.intrinsic(f"{sign}min", x, y))
    return b.binary("add", distance, z)


def _dot(b: Builder, op: Op, x: Value, y: Value, total: Value) -> Value:
    """``dp4a``: four bytes times four bytes; ``dp2a``: two halves times two bytes, the lower ones or the upper ones."""
    count, first = int(op.opcode[2]), 2 if "hi" in op.modifiers else 0
    bits, (of_x, of_y) = 32 // count, (t.is_signed for t in op.types)
    for k in range(count):
        factors = field(b, x, bits * k, bits, of_x), field(b, y, 8 * (first + k), 8, of_y)
        total = b.binary("add", total, b.binary("mul", *factors))
    return total


# -- bits -------------------------------------------------------------------------------------------------


def _count(b: Builder, op: Op, x: Value) -> Value:
    if op.opcode == "brev":
        return b.intrinsic("bitreverse", x)
    return b.resize(b.intrinsic("ctpop", x) if op.opcode == "popc" else _leading_zeros(b, x), 32, signed=False)


def _leading_zeros(b: Builder, x: Value) -> Value:
    return b.intrinsic("ctlz", x, flag=b.integer(0, 1))


def _find_bit(b: Builder, op: Op, x: Value) -> Value:
    """Return the position of the highest set bit, or of the highest clear bit of a negative number.

    Return all ones if there is no such bit.
    """
    bits = type_width(x.type)
    if op.type.is_signed:
        x = b.binary("xor", x, b.binary("ashr", x, b.integer(bits - 1, bits)))
    zeros = b.resize(_leading_zeros(b, x), 32, signed=False)
    none = b.compare("icmp eq", zeros, b.integer(bits, 32))
    at = zeros if "shiftamt" in op.modifiers else b.binary("sub", b.integer(bits - 1, 32), zeros)
    return b.select(none, b.integer(-1, 32), at)


def _find_nth_bit(b: Builder, _op: Op, mask: Value, base: Value, offset: Value) -> Value:
    """Find the n-th set bit from a base, upward for a positive n and downward for a negative n. For 0, test only the
    base.

    Return all ones if there is no such bit. A base above 31 is undefined. Here, its low 5 bits are used.
    """
    base = b.binary("and", base, b.integer(31, 32))
    zero, one, ones = b.integer(0, 32), b.integer(1, 32), b.integer(-1, 32)
    down = b.compare("icmp slt", offset, zero)
    mask = b.select(down, b.intrinsic("bitreverse", mask), mask)
    base = b.select(down, b.binary("xor", base, b.integer(31, 32)), base)
    wanted = b.binary("shl", b.select(b.compare("icmp eq", offset, zero), one, ones), base)
    mask = b.binary("and", mask, wanted)
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
    """Return positions and lengths of a bit field: their low bytes for a 32-bit field, and all their bits for a 64-bit
    field.

    Source: PTX ISA 9.1, "bfe", "bfi", specifies the byte for both widths. All 32 bits count for 64-bit fields, as
    measured on an H200.
    """
    return [v if op.types[-1].bits == 64 else b.binary("and", v, b.integer(0xFF, 32)) for v in values]


def _clamped(b: Builder, value: Value, most: int) -> Value:
    return b.intrinsic("umin", value, b.integer(most, 32))


def _shift_left(b: Builder, x: Value, count: Value) -> Value:
    """Shift left by a 32-bit count. If the count is at least the width, the result is 0."""
    bits = type_width(x.type)
    far = b.compare("icmp ugt", count, b.integer(bits - 1, 32))
    near = b.binary("shl", x, b.resize(_clamped(b, count, bits - 1), bits, signed=False))
    return b.select(far, b.integer(0, bits), near)


def _shift_right(b: Builder, x: Value, count: Value, signed: bool) -> Value:
    """Shift right by a 32-bit count. If the count is at least the width, the result is 0, or copies of the sign if
    ``signed``.
    """
    bits = type_width(x.type)
    near = b.binary("ashr" if signed else "lshr", x, b.resize(_clamped(b, count, bits - 1), bits, signed=False))
    if signed:
        return near
    return b.select(b.compare("icmp ugt", count, b.integer(bits - 1, 32)), b.integer(0, bits), near)


def _low_mask(b: Builder, length: Value, bits: int) -> Value:
    """Return a mask of the ``length`` lowest bits. If ``length`` is at least the width, the mask has all bits."""
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
    """Emit any function of three bits. The lookup table contains the value for a, b, c at bit 4a + 2b + c."""
    table = op.sources[3]
    assert isinstance(table, IntConstant)
    return _of_bits(b, table.value & 0xFF, inputs[:3])


def _of_bits(b: Builder, table: int, inputs: Sequence[Value]) -> Value:
    """Compute a bitwise function by its truth table. The upper half of the table applies if the first input is set.

    The general form is ``low ^ (x & (low ^ high))``. Shorter forms are used if the halves are equal or opposite, or if
    one half is all zeros or all ones.
    """
    every = (1 << (1 << len(inputs))) - 1
    if table in (0, every):
        return b.integer(-bool(table), 32)
    (x, *rest), half = inputs, 1 << (len(inputs) - 1)
    most = every >> half
    high, low = table >> half, table & most
    if high == low:
        return _of_bits(b, low, rest)
    if low == high ^ most:
        return _joined(b, "xor", x, _of_bits(b, low, rest))
    if low in (0, most):
        x = x if not low else _joined(b, "xor", x, b.integer(-1, 32))
        return _joined(b, "or" if low else "and", x, _of_bits(b, high, rest))
    if high == most:
        return _joined(b, "or", x, _of_bits(b, low, rest))
    change = _joined(b, "and", x, _of_bits(b, low ^ high, rest))
    return _joined(b, "xor", _of_bits(b, low, rest), change)


def _joined(b: Builder, how: str, x: Value, y: Value) -> Value:
    """Combine two values bitwise. Return ``x`` without an operation for ``x & all``, ``x ^ 0``, and ``x | 0``."""
    if y.constant and (how, y.text) in (("and", "-1"), ("xor", "0"), ("or", "0")):
        return x
    return b.binary(how, x, y)


def _shift(b: Builder, op: Op, x: Value, count: Value) -> Value:
    bits, signed, distance = type_width(x.type), op.type.is_signed, op.sources[1]
    if isinstance(distance, IntConstant) and 0 <= distance.value < bits:
        opcode = "shl" if op.opcode == "shl" else "ashr" if signed else "lshr"
        return b.binary(opcode, x, b.integer(distance.value, bits))
    return _shift_left(b, x, count) if op.opcode == "shl" else _shift_right(b, x, count, signed)


def _funnel_shift(b: Builder, op: Op, low: Value, high: Value, count: Value) -> Value:
    left = "l" in op.modifiers
    shifted = b.intrinsic("fshl" if left else "fshr", high, low, count)
    if "clamp" in op.modifiers:
        far = b.compare("icmp ugt", count, b.integer(31, 32))
        shifted = b.select(far, low if left else high, shifted)
    return shifted


def _permute_by_table(b: Builder, op: Op, low: Value, high: Value, index: Value) -> Value:
    """Permute bytes by the selectors of a mode. The low two bits of the third source select the row of the mode's
    table.
    """
    rows = _PERMUTATIONS[op.form.words[0]]
    packed = b.integer(sum(row << 16 * k for k, row in enumerate(rows)), 64)
    index = b.resize(b.binary("and", index, b.integer(3, 32)), 64, signed=False)
    row = b.binary("lshr", packed, b.binary("shl", index, b.integer(4, 64)))
    return _permute(b, op, low, high, b.resize(row, 32, signed=False))


def _permute(b: Builder, _op: Op, low: Value, high: Value, selectors: Value) -> Value:
    """Select four of eight bytes. If bit 3 of a selector is set, copies of the byte's sign bit replace the byte."""
    low, high, selectors = (b.resize(v, 64, signed=False) for v in (low, high, selectors))
    both = b.binary("or", low, b.binary("shl", high, b.integer(32, 64)))
    result = b.integer(0, 32)
    for k in range(4):
        selector = b.binary("lshr", selectors, b.integer(4 * k, 64))
        bit = b.binary("shl", b.binary("and", selector, b.integer(7, 64)), b.integer(3, 64))
        byte = b.resize(b.binary("lshr", both, bit), 8, signed=False)
        sign = b.binary("ashr", byte, b.integer(7, 8))
        replicates = b.compare("icmp ne", b.binary("and", selector, b.integer(8, 64)), b.integer(0, 64))
        chosen = b.resize(b.select(replicates, sign, byte), 32, signed=False)
        result = b.binary("or", result, b.binary("shl", chosen, b.integer(8 * k, 32)))
    return result
