"""Integer arithmetic; what works on bits is in ``bits``.

PTX ISA 9.1: "Integer Arithmetic Instructions", "Extended-Precision …".
"""

from __future__ import annotations

from cujit.devices.cpu.codegen.builder import Value, int_type, type_width
from cujit.devices.cpu.codegen.registry import Rules
from cujit.devices.cpu.codegen.warp import WarpEmitter
from cujit.devices.cpu.instructions.bits import integer_type
from cujit.devices.cpu.instructions.bits import register as register_bits
from cujit.devices.cpu.ir.program import Op

__all__ = ["register"]


def register(rules: Rules) -> None:
    """Add the rules of this family."""
    register_bits(rules)
    rules.on("add|sub .INT", _add)
    rules.on("add|sub .sat .s32|u32", _add_saturated)
    rules.on("add|sub .cc .INT", _add_carry)
    rules.on("addc|subc", _add_carry)
    rules.on("mul .INT", _multiply)
    rules.on("mad .INT", _multiply_add)
    rules.on("mad|mad24 .sat .s32", _multiply_add_saturated)
    rules.on("mad .cc .INT", _multiply_add_carry)
    rules.on("madc", _multiply_add_carry)
    rules.on("mul|mad .wide .INT", _multiply_wide)
    rules.on("mul24|mad24", _multiply24)
    rules.on("div|rem .INT", _divide)
    rules.on("abs|neg .SIGNED", _negate)
    rules.on("min|max .INT", _extreme)
    rules.on("sad", _sad)
    rules.on("dp4a", _dot4)
    rules.on("dp2a", _dot2)


# -- addition and multiplication --------------------------------------------------------------------------


def _add(e: WarpEmitter, op: Op) -> None:
    t, _, _ = integer_type(op)
    e.put(op, e.builder.binary(op.opcode, e.source(op, 0, t), e.source(op, 1, t)))


def _add_saturated(e: WarpEmitter, op: Op) -> None:
    sign = op.type.kind
    e.put(op, e.builder.intrinsic(f"{sign}{op.opcode}.sat", e.source(op, 0, "i32"), e.source(op, 1, "i32")))


def _add_carry(e: WarpEmitter, op: Op) -> None:
    """``add.cc addc sub.cc subc``: the carry is a register of its own, the last result and the last source.

    It is the adder's in all of them, and a difference adds the complement and one: the carry out of ``sub.cc`` is set
    where nothing is borrowed. Source: measured on an H200; the manual calls it borrow, and leaves its sense open.
    """
    b = e.builder
    t, bits, _ = integer_type(op)
    x, y = e.source(op, 0, t), e.source(op, 1, t)
    if op.opcode.startswith("sub"):
        y = b.binary("xor", y, b.integer(-1, bits))
    total = b.binary("add", x, y)
    carry = b.compare("icmp ult", total, x)
    if op.opcode != "add":
        carry_in = b.integer(1, bits) if op.opcode == "sub" else b.resize(e.source(op, 2, "i1"), bits, signed=False)
        again = b.binary("add", total, carry_in)
        total, carry = again, b.binary("or", carry, b.compare("icmp ult", again, total))
    e.put(op, total)
    if "cc" in op.modifiers:
        e.put(op, carry, 1)


def _product(e: WarpEmitter, x: Value, y: Value, *, high: bool, signed: bool) -> Value:
    b = e.builder
    if not high:
        return b.binary("mul", x, y)
    bits = type_width(x.type)
    if bits < 64:
        wide = b.binary("mul", b.resize(x, 2 * bits, signed), b.resize(y, 2 * bits, signed))
        return b.resize(b.binary("lshr", wide, b.integer(bits, 2 * bits)), bits, signed)
    return _high64(e, x, y, signed)


def _high64(e: WarpEmitter, x: Value, y: Value, signed: bool) -> Value:
    """Upper half of a 64-bit product from four 32-bit ones; a signed one is the unsigned one corrected."""
    b = e.builder
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


def _multiply(e: WarpEmitter, op: Op) -> None:
    t, _, signed = integer_type(op)
    e.put(op, _product(e, e.source(op, 0, t), e.source(op, 1, t), high="hi" in op.modifiers, signed=signed))


def _multiply_add(e: WarpEmitter, op: Op) -> None:
    t, _, signed = integer_type(op)
    product = _product(e, e.source(op, 0, t), e.source(op, 1, t), high="hi" in op.modifiers, signed=signed)
    e.put(op, e.builder.binary("add", product, e.source(op, 2, t)))


def _multiply_add_saturated(e: WarpEmitter, op: Op) -> None:
    """``mad.hi.sat mad24.hi.sat``: the sum is clamped to the range of s32."""
    b = e.builder
    x, y = e.source(op, 0, "i32"), e.source(op, 1, "i32")
    high = (
        _product(e, x, y, high=True, signed=True) if op.opcode == "mad" else _product24(e, x, y, high=True, signed=True)
    )
    e.put(op, b.intrinsic("sadd.sat", high, e.source(op, 2, "i32")))


def _multiply_add_carry(e: WarpEmitter, op: Op) -> None:
    b = e.builder
    t, bits, signed = integer_type(op)
    x, y, z = (e.source(op, k, t) for k in range(3))
    product = _product(e, x, y, high="hi" in op.modifiers, signed=signed)
    total = b.binary("add", product, z)
    carry = b.compare("icmp ult", total, product)
    if op.opcode == "madc":
        again = b.binary("add", total, b.resize(e.source(op, 3, "i1"), bits, signed=False))
        total, carry = again, b.binary("or", carry, b.compare("icmp ult", again, total))
    e.put(op, total)
    if "cc" in op.modifiers:
        e.put(op, carry, 1)


def _multiply_wide(e: WarpEmitter, op: Op) -> None:
    b = e.builder
    t, bits, signed = integer_type(op)
    x, y = (b.resize(e.source(op, k, t), 2 * bits, signed) for k in range(2))
    product = b.binary("mul", x, y)
    if op.opcode == "mad":
        product = b.binary("add", product, e.source(op, 2, int_type(2 * bits)))
    e.put(op, product)


def _multiply24(e: WarpEmitter, op: Op) -> None:
    x, y = e.source(op, 0, "i32"), e.source(op, 1, "i32")
    result = _product24(e, x, y, high="hi" in op.modifiers, signed=integer_type(op)[2])
    e.put(op, e.builder.binary("add", result, e.source(op, 2, "i32")) if op.opcode == "mad24" else result)


def _product24(e: WarpEmitter, x: Value, y: Value, *, high: bool, signed: bool) -> Value:
    """Multiply the low 24 bits: bits 0 to 31 of the 48-bit product, or 16 to 47."""
    b = e.builder

    def low24(value: Value) -> Value:
        up = b.binary("shl", value, b.integer(8, 32))
        return b.resize(b.binary("ashr" if signed else "lshr", up, b.integer(8, 32)), 64, signed)

    product = b.binary("mul", low24(x), low24(y))
    if high:
        product = b.binary("lshr", product, b.integer(16, 64))
    return b.resize(product, 32, signed)


def _divide(e: WarpEmitter, op: Op) -> None:
    """Divide without trapping; by zero both quotient and remainder are all ones, as GPUs give (read on an H200)."""
    b = e.builder
    t, bits, signed = integer_type(op)
    x, y = e.source(op, 0, t), e.source(op, 1, t)
    quotient = _quotient_by_double(e, x, y, signed) if bits <= 32 else _quotient64(e, x, y, signed)
    zero = b.compare("icmp eq", y, b.integer(0, bits))
    if op.opcode == "div":
        e.put(op, b.select(zero, b.integer(-1, bits), quotient))
    else:
        rest = b.binary("sub", x, b.binary("mul", quotient, y))
        e.put(op, b.select(zero, b.integer(-1, bits), rest))


def _quotient_by_double(e: WarpEmitter, x: Value, y: Value, signed: bool) -> Value:
    """Divide 32-bit integers exactly in f64: the rounded quotient of two such integers truncates to the right one."""
    b = e.builder
    bits = type_width(x.type)
    to, back = ("sitofp", "fptosi.sat") if signed else ("uitofp", "fptoui.sat")
    divisor = b.select(b.compare("icmp eq", y, b.integer(0, bits)), b.integer(1, bits), y)
    ratio = b.binary("fdiv", b.cast(to, x, "double"), b.cast(to, divisor, "double"))
    # INT_MIN / -1 wraps to INT_MIN, as two's complement arithmetic does: take it through 64 bits.
    return b.resize(b.intrinsic(back, ratio, result="i64"), bits, signed)


def _quotient64(e: WarpEmitter, x: Value, y: Value, signed: bool) -> Value:
    b = e.builder
    one, zero = b.integer(1, 64), b.integer(0, 64)
    bad = b.compare("icmp eq", y, zero)
    if not signed:
        return b.binary("udiv", x, b.select(bad, one, y))
    minus = b.compare("icmp eq", y, b.integer(-1, 64))
    safe = b.binary("sdiv", x, b.select(b.binary("or", bad, minus), one, y))
    return b.select(minus, b.binary("sub", zero, x), safe)


def _negate(e: WarpEmitter, op: Op) -> None:
    b = e.builder
    t, bits, _ = integer_type(op)
    x = e.source(op, 0, t)
    if op.opcode == "abs":
        e.put(op, b.intrinsic("abs", x, flag=b.integer(0, 1)))
    else:
        e.put(op, b.binary("sub", b.integer(0, bits), x))


def _extreme(e: WarpEmitter, op: Op) -> None:
    b = e.builder
    t, bits, signed = integer_type(op)
    x = b.intrinsic(f"{'s' if signed else 'u'}{op.opcode}", e.source(op, 0, t), e.source(op, 1, t))
    if "relu" in op.modifiers:
        x = b.intrinsic("smax", x, b.integer(0, bits))
    e.put(op, x)


def _sad(e: WarpEmitter, op: Op) -> None:
    b = e.builder
    t, _, signed = integer_type(op)
    x, y = e.source(op, 0, t), e.source(op, 1, t)
    sign = "s" if signed else "u"
    distance = b.binary("sub", b.intrinsic(f"{sign}max", x, y), b.intrinsic(f"{sign}min", x, y))
    e.put(op, b.binary("add", distance, e.source(op, 2, t)))


# -- dot products -----------------------------------------------------------------------------------------


def _dot4(e: WarpEmitter, op: Op) -> None:
    _dot(e, op, [(k, k) for k in range(4)], 8, 8)


def _dot2(e: WarpEmitter, op: Op) -> None:
    first = 2 if "hi" in op.modifiers else 0
    _dot(e, op, [(0, first), (1, first + 1)], 16, 8)


def _dot(e: WarpEmitter, op: Op, pairs: list[tuple[int, int]], a_bits: int, b_bits: int) -> None:
    b = e.builder
    signs = [t.is_signed for t in op.types]

    def part(index: int, k: int, bits: int) -> Value:
        up = b.binary("shl", e.source(op, index, "i32"), b.integer(32 - bits * (k + 1), 32))
        return b.binary("ashr" if signs[index] else "lshr", up, b.integer(32 - bits, 32))

    total = e.source(op, 2, "i32")
    for i, j in pairs:
        total = b.binary("add", total, b.binary("mul", part(0, i, a_bits), part(1, j, b_bits)))
    e.put(op, total)
