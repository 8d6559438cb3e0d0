"""Integer arithmetic, logic, shifts, bit fields, comparison and selection.

PTX ISA 9.1: "Integer Arithmetic Instructions", "Extended-Precision …", "Comparison and Selection …", "Logic and
Shift …". Each rule says what its handler takes; each handler one sentence of what the manual asks.
"""

from __future__ import annotations

from cujit.devices.cpu.emit.builder import Value, int_type, type_width
from cujit.devices.cpu.emit.registry import Rules, modifiers_of, types_of
from cujit.devices.cpu.emit.warp import WarpEmitter
from cujit.devices.cpu.program import IntConstant, Op

__all__ = ["register"]

_ALL = "s16 s32 s64 u16 u32 u64"
_B = "b16 b32 b64"
_COMPARE = "eq ne lt le gt ge lo ls hi hs"


def register(rules: Rules) -> None:
    """Add the rules of this family."""
    rules.on("add sub", _ALL, modifiers="")(_add)
    rules.on("add sub", "s32", modifiers="sat")(_add_saturated)
    rules.on("add sub addc subc", "s32 u32 s64 u64", modifiers="cc")(_add_carry)
    rules.on("mul", _ALL, choices=["lo hi"])(_multiply)
    rules.on("mad", _ALL, choices=["lo hi"])(_multiply_add)
    rules.on("mad madc", "s32 u32 s64 u64", modifiers="cc", choices=["lo hi"])(_multiply_add_carry)
    rules.on("mul mad", "s16 u16 s32 u32", choices=["wide"])(_multiply_wide)
    rules.on("mul24 mad24", "s32 u32", choices=["lo hi"])(_multiply24)
    rules.on("div rem", _ALL)(_divide)
    rules.on("abs neg", "s16 s32 s64")(_negate)
    rules.on("min max", _ALL, modifiers="relu")(_extreme)
    rules.on("sad", _ALL)(_sad)
    rules.on("popc clz brev", "b32 b64")(_count)
    rules.on("bfind", "s32 u32 s64 u64", modifiers="shiftamt")(_find_bit)
    rules.on("bfe", "s32 u32 s64 u64")(_extract_field)
    rules.on("bfi", "b32 b64")(_insert_field)
    rules.on("bmsk", "b32", choices=["clamp wrap"])(_bit_mask)
    rules.on("szext", "s32 u32", choices=["clamp wrap"])(_extend_field)
    rules.on("dp4a", "u32 s32", "u32 s32")(_dot4)
    rules.on("dp2a", "u32 s32", "u32 s32", choices=["lo hi"])(_dot2)
    rules.on("and or xor", "b16 b32 b64 pred")(_logic)
    rules.on("not", "b16 b32 b64 pred")(_not)
    rules.on("cnot", _B)(_logical_not)
    rules.on("lop3", "b32")(_lop3)
    rules.on("shl", _B)(_shift)
    rules.on("shr", f"{_ALL} {_B}")(_shift)
    rules.on("shf", "b32", choices=["l r", "clamp wrap"])(_funnel_shift)
    rules.on("prmt", "b32")(_permute)
    rules.on("setp", f"{_ALL} {_B}", modifiers="and or xor", choices=[_COMPARE])(_set_predicate)
    rules.on("set", "u32 s32 f32", f"{_ALL} {_B}", modifiers="and or xor", choices=[_COMPARE])(_set)
    rules.on("selp", f"{_ALL} {_B}")(_select)
    rules.on("slct", f"{_ALL} {_B} f32 f64", "s32")(_select_by_sign)


def _type(op: Op) -> tuple[str, int, bool]:
    """LLVM type, width in bits and signedness of the operation's last type."""
    name = types_of(op)[-1]
    return f"i{name[1:]}", int(name[1:]), name[0] == "s"


# -- addition and multiplication --------------------------------------------------------------------------


def _add(e: WarpEmitter, op: Op) -> None:
    t, _, _ = _type(op)
    e.put(op, e.builder.binary(op.opcode, e.source(op, 0, t), e.source(op, 1, t)))


def _add_saturated(e: WarpEmitter, op: Op) -> None:
    e.put(op, e.builder.intrinsic(f"s{op.opcode}.sat", e.source(op, 0, "i32"), e.source(op, 1, "i32")))


def _add_carry(e: WarpEmitter, op: Op) -> None:
    """``add.cc addc sub.cc subc``: the carry is a register of its own, the last result and the last source."""
    b = e.builder
    t, bits, _ = _type(op)
    x, y = e.source(op, 0, t), e.source(op, 1, t)
    base = op.opcode[:3]
    total = b.binary(base, x, y)
    first = b.compare("icmp ult", total, x) if base == "add" else b.compare("icmp ult", x, y)
    if op.opcode in ("addc", "subc"):
        carry = b.resize(e.source(op, 2, "i1"), bits, signed=False)
        again = b.binary(base, total, carry)
        second = b.compare("icmp ult", again, total) if base == "add" else b.compare("icmp ult", total, carry)
        total, first = again, b.binary("or", first, second)
    e.put(op, total)
    if "cc" in op.modifiers:
        e.put(op, first, 1)


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
    t, _, signed = _type(op)
    e.put(op, _product(e, e.source(op, 0, t), e.source(op, 1, t), high="hi" in op.modifiers, signed=signed))


def _multiply_add(e: WarpEmitter, op: Op) -> None:
    t, _, signed = _type(op)
    product = _product(e, e.source(op, 0, t), e.source(op, 1, t), high="hi" in op.modifiers, signed=signed)
    e.put(op, e.builder.binary("add", product, e.source(op, 2, t)))


def _multiply_add_carry(e: WarpEmitter, op: Op) -> None:
    b = e.builder
    t, bits, signed = _type(op)
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
    t, bits, signed = _type(op)
    x, y = (b.resize(e.source(op, k, t), 2 * bits, signed) for k in range(2))
    product = b.binary("mul", x, y)
    if op.opcode == "mad":
        product = b.binary("add", product, e.source(op, 2, int_type(2 * bits)))
    e.put(op, product)


def _multiply24(e: WarpEmitter, op: Op) -> None:
    """Multiply the low 24 bits; ``lo`` is bits 0 to 31 of the 48-bit product, ``hi`` bits 16 to 47."""
    b = e.builder
    _, _, signed = _type(op)

    def low24(value: Value) -> Value:
        up = b.binary("shl", value, b.integer(8, 32))
        return b.resize(b.binary("ashr" if signed else "lshr", up, b.integer(8, 32)), 64, signed)

    product = b.binary("mul", low24(e.source(op, 0, "i32")), low24(e.source(op, 1, "i32")))
    if "hi" in op.modifiers:
        product = b.binary("lshr", product, b.integer(16, 64))
    result = b.resize(product, 32, signed)
    e.put(op, b.binary("add", result, e.source(op, 2, "i32")) if op.opcode == "mad24" else result)


def _divide(e: WarpEmitter, op: Op) -> None:
    """Divide without trapping; by zero both quotient and remainder are all ones, as GPUs give (read on an H200)."""
    b = e.builder
    t, bits, signed = _type(op)
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
    t, bits, _ = _type(op)
    x = e.source(op, 0, t)
    if op.opcode == "abs":
        e.put(op, b.intrinsic("abs", x, flag="i1 false"))
    else:
        e.put(op, b.binary("sub", b.integer(0, bits), x))


def _extreme(e: WarpEmitter, op: Op) -> None:
    b = e.builder
    t, bits, signed = _type(op)
    x = b.intrinsic(f"{'s' if signed else 'u'}{op.opcode}", e.source(op, 0, t), e.source(op, 1, t))
    if "relu" in op.modifiers:
        x = b.intrinsic("smax", x, b.integer(0, bits))
    e.put(op, x)


def _sad(e: WarpEmitter, op: Op) -> None:
    b = e.builder
    t, _, signed = _type(op)
    x, y = e.source(op, 0, t), e.source(op, 1, t)
    sign = "s" if signed else "u"
    distance = b.binary("sub", b.intrinsic(f"{sign}max", x, y), b.intrinsic(f"{sign}min", x, y))
    e.put(op, b.binary("add", distance, e.source(op, 2, t)))


# -- bits -------------------------------------------------------------------------------------------------


def _count(e: WarpEmitter, op: Op) -> None:
    b = e.builder
    t, _, _ = _type(op)
    x = e.source(op, 0, t)
    if op.opcode == "brev":
        e.put(op, b.intrinsic("bitreverse", x))
    elif op.opcode == "popc":
        e.put(op, b.resize(b.intrinsic("ctpop", x), 32, signed=False))
    else:
        e.put(op, b.resize(b.intrinsic("ctlz", x, flag="i1 false"), 32, signed=False))


def _find_bit(e: WarpEmitter, op: Op) -> None:
    """Find the highest bit that is set (for a negative number: clear); all ones where there is none."""
    b = e.builder
    t, bits, signed = _type(op)
    x = e.source(op, 0, t)
    if signed:
        x = b.binary("xor", x, b.binary("ashr", x, b.integer(bits - 1, bits)))
    zeros = b.resize(b.intrinsic("ctlz", x, flag="i1 false"), 32, signed=False)
    none = b.compare("icmp eq", zeros, b.integer(bits, 32))
    at = zeros if "shiftamt" in op.modifiers else b.binary("sub", b.integer(bits - 1, 32), zeros)
    e.put(op, b.select(none, b.integer(-1, 32), at))


def _byte(e: WarpEmitter, op: Op, index: int) -> Value:
    return e.builder.binary("and", e.source(op, index, "i32"), e.builder.integer(0xFF, 32))


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
    t, bits, signed = _type(op)
    x, start, length = e.source(op, 0, t), _byte(e, op, 1), _byte(e, op, 2)
    if not signed:
        e.put(op, b.binary("and", _shift_right(e, x, start, signed=False), _low_mask(e, length, bits)))
        return
    top = _clamped(e, b.binary("sub", b.binary("add", start, length), b.integer(1, 32)), bits - 1)
    left = b.binary("sub", b.integer(bits - 1, 32), top)
    field = _shift_right(e, _shift_left(e, x, left), b.binary("add", left, start), signed=True)
    empty = b.compare("icmp eq", length, b.integer(0, 32))
    e.put(op, b.select(empty, b.integer(0, bits), field))


def _insert_field(e: WarpEmitter, op: Op) -> None:
    b = e.builder
    t, bits, _ = _type(op)
    x, into, start, length = e.source(op, 0, t), e.source(op, 1, t), _byte(e, op, 2), _byte(e, op, 3)
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
    _, _, signed = _type(op)
    x, length = e.source(op, 0, "i32"), _clamped(e, _wrapped(e, op, 1), 32)
    unused = b.binary("sub", b.integer(32, 32), length)
    e.put(
        op,
        _shift_right(e, _shift_left(e, x, unused), unused, signed) if not signed else _signed_field(e, x, unused),
    )


def _signed_field(e: WarpEmitter, x: Value, unused: Value) -> Value:
    b = e.builder
    field = _shift_right(e, _shift_left(e, x, unused), unused, signed=True)
    return b.select(b.compare("icmp eq", unused, b.integer(32, 32)), b.integer(0, 32), field)


def _dot4(e: WarpEmitter, op: Op) -> None:
    _dot(e, op, [(k, k) for k in range(4)], 8, 8)


def _dot2(e: WarpEmitter, op: Op) -> None:
    first = 2 if "hi" in op.modifiers else 0
    _dot(e, op, [(0, first), (1, first + 1)], 16, 8)


def _dot(e: WarpEmitter, op: Op, pairs: list[tuple[int, int]], a_bits: int, b_bits: int) -> None:
    b = e.builder
    signs = [t[0] == "s" for t in types_of(op)]

    def part(index: int, k: int, bits: int) -> Value:
        up = b.binary("shl", e.source(op, index, "i32"), b.integer(32 - bits * (k + 1), 32))
        return b.binary("ashr" if signs[index] else "lshr", up, b.integer(32 - bits, 32))

    total = e.source(op, 2, "i32")
    for i, j in pairs:
        total = b.binary("add", total, b.binary("mul", part(0, i, a_bits), part(1, j, b_bits)))
    e.put(op, total)


# -- logic and shifts -------------------------------------------------------------------------------------


def _logic_type(op: Op) -> tuple[str, int]:
    name = types_of(op)[-1]
    bits = 1 if name == "pred" else int(name[1:])
    return int_type(bits), bits


def _logic(e: WarpEmitter, op: Op) -> None:
    t, _ = _logic_type(op)
    e.put(op, e.builder.binary(op.opcode, e.source(op, 0, t), e.source(op, 1, t)))


def _not(e: WarpEmitter, op: Op) -> None:
    t, bits = _logic_type(op)
    e.put(op, e.builder.binary("xor", e.source(op, 0, t), e.builder.integer(-1, bits)))


def _logical_not(e: WarpEmitter, op: Op) -> None:
    b = e.builder
    t, bits, _ = _type(op)
    zero = b.compare("icmp eq", e.source(op, 0, t), b.integer(0, bits))
    e.put(op, b.resize(zero, bits, signed=False))


def _lop3(e: WarpEmitter, op: Op) -> None:
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
    e.put(op, result)


def _shift(e: WarpEmitter, op: Op) -> None:
    t, bits, signed = _type(op)
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
    """Pick four of eight bytes; a selector's bit 3 asks for the byte's sign instead."""
    b = e.builder
    low, high = (b.resize(e.source(op, k, "i32"), 64, signed=False) for k in range(2))
    both = b.binary("or", low, b.binary("shl", high, b.integer(32, 64)))
    selectors = b.resize(e.source(op, 2, "i32"), 64, signed=False)
    result = b.integer(0, 32)
    for k in range(4):
        selector = b.binary("lshr", selectors, b.integer(4 * k, 64))
        bit = b.binary("shl", b.binary("and", selector, b.integer(7, 64)), b.integer(3, 64))
        byte = b.resize(b.binary("lshr", both, bit), 8, signed=False)
        sign = b.binary("ashr", byte, b.integer(7, 8))
        asked = b.compare("icmp ne", b.binary("and", selector, b.integer(8, 64)), b.integer(0, 64))
        chosen = b.resize(b.select(asked, sign, byte), 32, signed=False)
        result = b.binary("or", result, b.binary("shl", chosen, b.integer(8 * k, 32)))
    e.put(op, result)


# -- comparison and selection -----------------------------------------------------------------------------


def _comparison(e: WarpEmitter, op: Op) -> Value:
    t, _, signed = _type(op)
    name = modifiers_of(op)[0]
    # lo, ls, hi and hs are the unsigned comparisons, whatever the type.
    name, forced = {"lo": ("lt", True), "ls": ("le", True), "hi": ("gt", True), "hs": ("ge", True)}.get(
        name, (name, False)
    )
    sign = "" if name in ("eq", "ne") else "s" if signed and not forced else "u"
    return e.builder.compare(f"icmp {sign}{name}", e.source(op, 0, t), e.source(op, 1, t))


def combine(e: WarpEmitter, op: Op, result: Value) -> Value:
    """Join a comparison with the third source by the ``and``, ``or`` or ``xor`` of the mnemonic, if there is one."""
    joins = [m for m in modifiers_of(op) if m in ("and", "or", "xor")]
    return e.builder.binary(joins[0], result, e.source(op, 2, "i1")) if joins else result


def put_predicates(e: WarpEmitter, op: Op, compared: Value) -> None:
    """Write ``p`` and, where it is asked for, ``q``, which takes the negated comparison."""
    e.put(op, combine(e, op, compared))
    if len(op.results) > 1:
        e.put(op, combine(e, op, e.builder.binary("xor", compared, e.builder.integer(1, 1))), 1)


def _set_predicate(e: WarpEmitter, op: Op) -> None:
    put_predicates(e, op, _comparison(e, op))


def put_set(e: WarpEmitter, op: Op, holds: Value) -> None:
    """Write the result of ``set``: all ones or 0, or 1.0 or 0.0 for an f32 result."""
    b = e.builder
    if types_of(op)[0] == "f32":
        e.put(op, b.select(holds, b.real(0x3F800000, 32), b.real(0, 32)))
    else:
        e.put(op, b.resize(holds, 32, signed=True))


def _set(e: WarpEmitter, op: Op) -> None:
    put_set(e, op, combine(e, op, _comparison(e, op)))


def _select(e: WarpEmitter, op: Op) -> None:
    t, _, _ = _type(op)
    e.put(op, e.builder.select(e.source(op, 2, "i1"), e.source(op, 0, t), e.source(op, 1, t)))


def _select_by_sign(e: WarpEmitter, op: Op) -> None:
    b = e.builder
    t = int_type(int(types_of(op)[0][1:]))
    positive = b.compare("icmp sge", e.source(op, 2, "i32"), b.integer(0, 32))
    e.put(op, b.select(positive, e.source(op, 0, t), e.source(op, 1, t)))
