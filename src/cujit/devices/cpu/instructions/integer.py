"""Integer arithmetic; what works on bits is in ``bits``.

PTX ISA 9.1: "Integer Arithmetic Instructions", "Extended-Precision …".
"""

from __future__ import annotations

from cujit.devices.cpu.codegen.builder import Builder, Value, int_type, type_width
from cujit.devices.cpu.codegen.registry import Rules
from cujit.devices.cpu.codegen.warp import WarpEmitter
from cujit.devices.cpu.instructions.bits import computed, field
from cujit.devices.cpu.instructions.bits import register as register_bits
from cujit.devices.cpu.ir.program import Op

__all__ = ["register"]


def register(rules: Rules) -> None:
    """Add the rules of this family."""
    register_bits(rules)
    rules.on("add|sub .INT", computed(_add))
    rules.on("add|sub .cc .INT", _add_carry)
    rules.on("addc|subc", _add_carry)
    rules.on("mul|mad .INT", _multiply)
    rules.on("mul24|mad24|madc", _multiply)
    rules.on("div|rem .INT", computed(_divide))
    rules.on("abs|neg .SIGNED", computed(_negate))
    rules.on("min|max .INT", computed(_extreme))
    rules.on("sad", computed(_sad))
    rules.on("dp4a|dp2a", computed(_dot))


# -- addition and multiplication --------------------------------------------------------------------------


def _add(b: Builder, op: Op, x: Value, y: Value) -> Value:
    if "sat" in op.modifiers:
        return b.intrinsic(f"{op.type.kind}{op.opcode}.sat", x, y)
    return b.binary(op.opcode, x, y)


def _add_carry(e: WarpEmitter, op: Op) -> None:
    """``add.cc addc sub.cc subc``: the carry is a register of its own, the last result and the last source.

    It is the adder's in all of them, and a difference adds the complement and one: the carry out of ``sub.cc`` is set
    where nothing is borrowed. Source: measured on an H200; the manual calls it borrow, and leaves its sense open.
    """
    b, bits = e.builder, op.types[-1].bits
    x, y = (e.source(op, k, int_type(bits)) for k in range(2))
    if op.opcode.startswith("sub"):
        y = b.binary("xor", y, b.integer(-1, bits))
    _put_sum(e, op, x, y, b.integer(1, 1) if op.opcode == "sub" else None)


def _put_sum(e: WarpEmitter, op: Op, x: Value, y: Value, carry: Value | None = None) -> None:
    """Add, and the carry where one comes in; write the one that goes out where it is asked for."""
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
    """Divide without trapping; by zero both quotient and remainder are all ones, as GPUs give (read on an H200)."""
    bits = type_width(x.type)
    result = (_quotient_by_double if bits <= 32 else _quotient64)(b, x, y, op.type.is_signed)
    if op.opcode == "rem":
        result = b.binary("sub", x, b.binary("mul", result, y))
    return b.select(b.compare("icmp eq", y, b.integer(0, bits)), b.integer(-1, bits), result)


def _quotient_by_double(b: Builder, x: Value, y: Value, signed: bool) -> Value:
    """Divide 32-bit integers exactly in f64: the rounded quotient of two such integers truncates to the right one."""
    bits = type_width(x.type)
    to, back = ("sitofp", "fptosi.sat") if signed else ("uitofp", "fptoui.sat")
    divisor = b.select(b.compare("icmp eq", y, b.integer(0, bits)), b.integer(1, bits), y)
    ratio = b.binary("fdiv", b.cast(to, x, "double"), b.cast(to, divisor, "double"))
    # INT_MIN / -1 wraps to INT_MIN, as two's complement arithmetic does: take it through 64 bits.
    return b.resize(b.intrinsic(back, ratio, result="i64"), bits, signed)


def _quotient64(b: Builder, x: Value, y: Value, signed: bool) -> Value:
    one, zero = b.integer(1, 64), b.integer(0, 64)
    bad = b.compare("icmp eq", y, zero)
    if not signed:
        return b.binary("udiv", x, b.select(bad, one, y))
    minus = b.compare("icmp eq", y, b.integer(-1, 64))
    safe = b.binary("sdiv", x, b.select(b.binary("or", bad, minus), one, y))
    return b.select(minus, b.binary("sub", zero, x), safe)


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
