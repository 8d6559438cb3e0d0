"""``cvt`` and ``cvt.pack`` between all types, one by one, in pairs and in fours; arithmetic on integers in these.

PTX ISA 9.1: "Data Movement and Conversion Instructions: cvt", "cvt.pack"; "Integer Arithmetic Instructions: add",
"min", "max", "neg". Rounding is exact in every mode, from 64-bit integers and to f16, too. f16 and bf16 are held as
16-bit integers and computed in f32. The first source of several always becomes the upper member.
"""

from __future__ import annotations

from collections.abc import Sequence

from cujit.devices.cpu.codegen.builder import Builder, Value, float_type, int_type, type_width
from cujit.devices.cpu.codegen.registry import Rules
from cujit.devices.cpu.codegen.rounding import (
    SCALE,
    canonical,
    flush,
    flush_by,
    integer_as_float,
    narrow,
    rounding_of,
    saturate,
)
from cujit.devices.cpu.codegen.warp import WarpEmitter
from cujit.devices.cpu.instructions.halves import split_halves
from cujit.devices.cpu.instructions.small_formats import (
    FORMATS,
    Format,
    half_bits,
    rounded_code,
    stochastic_code,
    upper_bits,
    value_of,
    value_of_code,
    value_of_exponent,
    without_low_bits,
)  # fmt: skip
from cujit.devices.cpu.ir.program import Op, OperandGroup
from cujit.formats.ptx.isa.semantics import Type

_TO_INTEGER = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
"""Roundings to an integral value, and the LLVM intrinsics that do them."""
_LARGEST = {"tf32": float.fromhex("0x1.FFCp127"), **{name: f.largest for name, f in FORMATS.items()}}
"""The largest finite numbers, for ``.satfinite``."""
_SMALL = "e4m3x2|e5m2x2|e2m3x2|e3m2x2|e2m1x2"


def register(rules: Rules) -> None:
    """Add the rules of this family."""
    rules.on("cvt .WHOLE .WHOLE", _integer_to_integer)
    rules.on("cvt .f16|bf16|f32|f64 .WHOLE", _integer_to_float)
    rules.on("cvt .WHOLE .f16|bf16|f32|f64", _float_to_integer)
    rules.on("cvt .f16|bf16|f32|f64 .f16|bf16|f32|f64", _float_to_float)
    rules.on("cvt .tf32", _tensor_float)
    rules.on("cvt .f16x2|bf16x2 .f32", _to_halves)
    rules.on("cvt .rs .TYPE .f32", _stochastic)
    rules.on(f"cvt .{_SMALL}", _to_small)
    rules.on(f"cvt .f16x2|bf16x2 .{_SMALL}", _from_small)
    rules.on("cvt .ue5m3x2", _to_unsigned)
    rules.on("cvt .f16x2|bf16x2 .ue5m3x2", _from_small)
    rules.on("cvt .ue8m0x2", _to_exponents)
    rules.on("cvt .bf16x2 .ue8m0x2", _from_exponents)
    rules.on("cvt .s2f6x2", _to_fixed)
    rules.on("cvt .bf16x2 .s2f6x2", _from_fixed)
    rules.on("cvt .pack .TYPE .s32", _pack)
    rules.on("add|sub|min|max|neg .u16x2|s16x2|u8x4|s8x4", _integer_parts)


# -- sources and results ----------------------------------------------------------------------------------


def _put_integer(e: WarpEmitter, op: Op, value: Value, is_signed: bool) -> None:
    """Write an integer to a register that may be wider. A signed integer is sign-extended."""
    reg = op.result
    if reg is not None:
        e.put(op, e.builder.resize(value, max(reg.bits, type_width(value.type)), is_signed))


def _float_source(e: WarpEmitter, op: Op, name: str, index: int = 0) -> Value:
    """Read an f64 source as ``double``, and any other source as ``float``. ``.ftz`` flushes an f32."""
    b = e.builder
    if name == "f64":
        return e.source(op, index, "double")
    if name == "f32":
        x = e.source(op, index, "float")
        # sm_90 does not flush what becomes an f16, although the manual says so.
        return flush(b, x) if "ftz" in op.modifiers and op.type != "f16" else x
    return value_of(b, e.source(op, index, "i16"), name)


def _rounded(b: Builder, x: Value, name: str, mode: str) -> Value:
    """Round an f32 or f64 to a type. Results of 16-bit types are integers. NaNs of f64 keep their sign and payload."""
    if name in ("f32", "f64"):
        to = float_type(int(name[1:]))
        if x.type == to:
            return x
        return b.cast("fpext", x, to) if to == "double" else narrow(b, x, None, mode)
    if mode == "rn" and x.type == "float":
        return half_bits(b, x, name)
    keeps = x.type == "double"
    if keeps:
        x = narrow(b, x, None, "odd")
    if name == "f16":
        short = narrow(b, x, None, mode, "half")
        return b.as_bits(short if keeps else canonical(b, short))
    return upper_bits(b, x, mode, None) if keeps else upper_bits(b, x, mode)


def _limited(b: Builder, op: Op, x: Value, name: str) -> Value:
    """Apply ``.sat``, ``.relu``, and ``.satfinite``. Their bounds are exact, so they can be applied before rounding."""
    zero = b.number(0.0, x.type)
    if "sat" in op.modifiers:
        x = saturate(b, x)
    if "relu" in op.modifiers:
        x = b.select(b.compare("fcmp ole", x, zero), zero, x)
    if "satfinite" in op.modifiers:
        x = _saturated(b, x, _LARGEST[name.removesuffix("x2")])
    return x


def _put_float(e: WarpEmitter, op: Op, x: Value, name: str) -> None:
    """Round a value, flush an f32 result with ``.ftz``, and write the result."""
    b, mode = e.builder, rounding_of(op)
    result = _rounded(b, x, name, mode)
    if "pzo" in op.modifiers:
        result = _positive_zero(b, op, result)
    if name == "f32" and "ftz" in op.modifiers:
        larger = b.binary("fmul", x, b.number(SCALE, x.type))
        result = flush_by(b, _rounded(b, larger, name, mode), result)
    e.put(op, result)


# -- integers ---------------------------------------------------------------------------------------------


def _bounds(name: Type) -> tuple[int, int]:
    bits = name.bits
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if name.is_signed else (0, (1 << bits) - 1)


def _clamped(b: Builder, x: Value, name: Type, to: Type) -> Value:
    """Clamp a value of the integer type ``name`` to the range of ``to``."""
    bits, sign = name.bits, name.kind
    (low, high), (lowest, highest) = _bounds(name), _bounds(to)
    if lowest > low:
        x = b.intrinsic(f"{sign}max", x, b.integer(lowest, bits))
    if highest < high:
        x = b.intrinsic(f"{sign}min", x, b.integer(highest, bits))
    return x


def _integer_to_integer(e: WarpEmitter, op: Op) -> None:
    b = e.builder
    to, name = op.types
    x = e.source(op, 0, int_type(name.bits))
    if "sat" in op.modifiers:
        x = _clamped(b, x, name, to)
    _put_integer(e, op, b.resize(x, to.bits, name.is_signed), to.is_signed)


def _integer_to_float(e: WarpEmitter, op: Op) -> None:
    b = e.builder
    to, name = op.types
    mode, wide = (rounding_of(op), float_type(to.bits)) if to in ("f32", "f64") else ("odd", "float")
    value = integer_as_float(b, e.source(op, 0, int_type(name.bits)), name.is_signed, mode, wide)
    _put_float(e, op, _limited(b, op, value, to), to)


def _float_to_integer(e: WarpEmitter, op: Op) -> None:
    """Round a float, then clamp it to the integer type.

    NaN becomes 0, or only the highest bit is set if either type has 64 bits.
    """
    b = e.builder
    to, name = op.types
    is_signed, bits = to.is_signed, to.bits
    x = _float_source(e, op, name)
    mode = next(m for m in op.modifiers if m in _TO_INTEGER)
    whole = x if mode == "rzi" else b.intrinsic(_TO_INTEGER[mode], x)
    wide = max(bits, 32)
    value = b.intrinsic("fptosi.sat" if is_signed else "fptoui.sat", whole, result=int_type(wide))
    value = b.resize(_clamped(b, value, Type(f"{to.kind}{wide}"), to), bits, is_signed)
    if name == "f64" or bits == 64:
        value = b.select(b.is_nan(x), b.integer(1 << (bits - 1), bits), value)
    _put_integer(e, op, value, is_signed)


# -- floats -----------------------------------------------------------------------------------------------


def _float_to_float(e: WarpEmitter, op: Op) -> None:
    b = e.builder
    to, name = op.types
    x = _float_source(e, op, name)
    mode = next((m for m in op.modifiers if m in _TO_INTEGER), None)
    if mode is not None:
        x = b.intrinsic(_TO_INTEGER[mode], x)
    if to == "f64" and "ftz" in op.modifiers:
        x = canonical(b, x)  # what flushes is arithmetic
    _put_float(e, op, _limited(b, op, x, to), to)


def _tensor_float(e: WarpEmitter, op: Op) -> None:
    """Round to tf32: an f32 with a fraction of 10 bits; ``rna`` cuts NaNs, and its ``.satfinite`` lowers them, too.

    Source: the manual leaves these NaNs open; they are what sm_90 makes of them, in code that ptxas writes for it.
    """
    b = e.builder
    x = _float_source(e, op, "f32")
    if "rna" not in op.modifiers:
        result = without_low_bits(b, _limited(b, op, x, "tf32"), 13, rounding_of(op), 0x7FFFE000)
        e.put(op, _positive_zero(b, op, result))
        return
    infinite = b.compare("fcmp ueq", b.magnitude(x), b.number(float("inf"), "float"))
    whole = b.binary("add", b.as_bits(x), b.select(infinite, b.integer(0, 32), b.integer(1 << 12, 32)))
    result = b.binary("and", whole, b.integer(~0x1FFF, 32))
    if "satfinite" in op.modifiers:
        size = b.binary("and", result, b.integer(0x7FFFFFFF, 32))
        beyond = b.compare("icmp uge", size, b.integer(0x7F800000, 32))
        result = b.select(beyond, b.binary("sub", result, b.integer(1 << 13, 32)), result)
    e.put(op, result)


# -- packing ----------------------------------------------------------------------------------------------


def _packed(b: Builder, parts: Sequence[Value], width: int) -> Value:
    """Pack i32 values ``width`` bits apart, with the first value in the highest bits. Each value must fit into
    ``width`` bits.
    """
    result = parts[0]
    for part in parts[1:]:
        result = b.binary("or", b.binary("shl", result, b.integer(width, 32)), part)
    return result


def _put_packed(e: WarpEmitter, op: Op, parts: Sequence[Value], width: int) -> None:
    """Write integers of any width as one register of ``width`` bits each."""
    b = e.builder
    result = _packed(b, [b.resize(p, 32, signed=False) for p in parts], width)
    e.put(op, b.resize(result, len(parts) * width, signed=False))


def _two_values(e: WarpEmitter, op: Op) -> tuple[list[Value], int]:
    """Read two f32 sources, or one pair of halves, as f32, the upper one first; and count the sources read."""
    b, name = e.builder, op.types[1]
    if name == "f32":
        return [_float_source(e, op, name, k) for k in range(2)], 2
    low, high = split_halves(b, e.source(op, 0, "i32"))
    return [value_of(b, part, name.removesuffix("x2")) for part in (high, low)], 1


# -- floats -----------------------------------------------------------------------------------------------


def _to_halves(e: WarpEmitter, op: Op) -> None:
    b, name = e.builder, op.type.removesuffix("x2")
    values = [_limited(b, op, _float_source(e, op, "f32", k), name) for k in range(2)]
    _put_packed(e, op, [_positive_zero(b, op, _rounded(b, x, name, rounding_of(op))) for x in values], 16)


def _to_small(e: WarpEmitter, op: Op) -> None:
    b, f, mode = e.builder, FORMATS[op.types[0][:4]], rounding_of(op)
    values, _ = _two_values(e, op)
    codes = [rounded_code(b, _limited(b, op, x, f.name), f, mode) for x in values]
    _put_packed(e, op, [_positive_zero(b, op, code, f.bits) for code in codes], f.field)


def _positive_zero(b: Builder, op: Op, bits: Value, width: int = 0) -> Value:
    """With ``.pzo``, convert a result of -0 to +0. ``width`` is the width of the number if it differs from the value's
    width.
    """
    if "pzo" not in op.modifiers:
        return bits
    own = type_width(bits.type)
    is_negative = b.compare("icmp eq", bits, b.integer(1 << ((width or own) - 1), own))
    return b.select(is_negative, b.integer(0, own), bits)


def _to_unsigned(e: WarpEmitter, op: Op) -> None:
    """Round magnitudes. A value above the largest number becomes NaN, or the largest number with ``.satfinite`` or
    ``.rz``.

    Infinity becomes NaN in every rounding mode, except with ``.satfinite``. Source: cuda_fp8.hpp of CUDA 13.5,
    ``__nv_cvt_bfloat16raw_to_ue5m3``.
    """
    b, f, mode = e.builder, FORMATS["ue5m3"], rounding_of(op)
    values, _ = _two_values(e, op)
    parts = []
    for x in map(b.magnitude, values):
        code = rounded_code(b, _saturated(b, x, f.largest), f, mode)
        if "satfinite" not in op.modifiers:
            limit = {"rn": f.largest + 2.0**12, "rp": f.largest, "rz": float.fromhex("0x1.FFFFFEp127")}[mode]
            beyond = b.compare("fcmp ogt", x, b.number(limit, "float"))
            code = b.select(beyond, b.integer(f.from_nan, 32), code)
        parts.append(code)
    _put_packed(e, op, parts, 8)


def _saturated(b: Builder, x: Value, largest: float) -> Value:
    """Clamp to ±largest; NaN stays."""
    most = b.number(largest, x.type)
    return b.select(b.compare("fcmp ogt", b.magnitude(x), most), b.signed(most, x), x)


def _from_small(e: WarpEmitter, op: Op) -> None:
    b, f = e.builder, FORMATS[op.types[1].removesuffix("x2")]
    codes = b.resize(e.source(op, 0, int_type(2 * f.field)), 32, signed=False)
    upper = b.binary("lshr", codes, b.integer(f.field, 32))
    values = [value_of_code(b, code, f) for code in (upper, codes)]
    values = _scaled(e, op, 1, "fmul", values)
    to = op.type.removesuffix("x2")
    _put_packed(e, op, [half_bits(b, _limited(b, op, x, to), to) for x in values], 16)


def _stochastic(e: WarpEmitter, op: Op) -> None:
    b = e.builder
    f = FORMATS[op.types[0][:-2]]
    first = op.sources[0]
    sources = first.items if isinstance(first, OperandGroup) else op.sources[:2]
    randoms = _random_parts(b, e.read(op.sources[-1], "i32"), f)
    values = [_limited(b, op, e.read(source, "float"), f.name) for source in sources]
    codes = [stochastic_code(b, x, f, random) for x, random in zip(values, randoms, strict=True)]
    _put_packed(e, op, codes, f.field)


def _random_parts(b: Builder, bits: Value, f: Format) -> list[Value]:
    """Share out random bits, as i32: one half a number for halves; for smaller formats, two numbers share 16 bits.

    Source: PTX ISA 9.1, "cvt", figures "Random bits layout"; that the first of two has its bits in reverse order is
    what others saw on sm_100.
    """
    low, high = b.binary("and", bits, b.integer(0xFFFF, 32)), b.binary("lshr", bits, b.integer(16, 32))
    if f.bits == 16:
        kept = b.integer((1 << f.random_bits) - 1, 32)
        return [b.binary("and", part, kept) for part in (high, low)]
    if f.field == 4:
        bytes_ = [b.binary("and", b.binary("lshr", part, b.integer(s, 32)), b.integer(0xFF, 32))
                  for s in (8, 0) for part in (high, low)]  # fmt: skip
        high, low = (_packed(b, bytes_[k : k + 2], 8) for k in (0, 2))
    shares = []
    for part in (high, low):
        mirrored = b.binary("lshr", b.intrinsic("bitreverse", part), b.integer(16, 32))
        shares += [mirrored, part]
    return shares


# -- exponents alone, and fixed point ---------------------------------------------------------------------


def _to_exponents(e: WarpEmitter, op: Op) -> None:
    """Return the power of two in a magnitude, or the next power of two with ``.rp``. Values of at most 2^-127 become 0.

    Overflow and infinity become the NaN 0xff, or 0xfe with ``.satfinite``. Source: cuda_fp8.hpp of CUDA 13,
    ``__nv_cvt_bfloat16raw_to_e8m0``.
    """
    b = e.builder
    values, _ = _two_values(e, op)
    _put_packed(e, op, [_exponent_code(b, op, x) for x in values], 8)


def _exponent_code(b: Builder, op: Op, x: Value) -> Value:
    size = b.as_bits(b.magnitude(x))
    code = b.binary("lshr", size, b.integer(23, 32))
    if "rp" in op.modifiers:
        fraction = b.binary("and", size, b.integer(0x7FFFFF, 32))
        some = b.compare("icmp ne", fraction, b.integer(0, 32))
        large = b.compare("icmp ugt", size, b.integer(0x400000, 32))
        code = b.binary("add", code, b.resize(b.binary("and", some, large), 32, signed=False))
    limit = 0xFE if "satfinite" in op.modifiers else 0xFF
    return b.select(b.is_nan(x), b.integer(0xFF, 32), b.intrinsic("umin", code, b.integer(limit, 32)))


def _powers(b: Builder, pair: Value) -> list[Value]:
    """Read two ue8m0 in an i16 as f32, the upper one first; 0xff is NaN, 0 is 2^-127."""
    wide = b.resize(pair, 32, signed=False)
    codes = [b.binary("and", b.binary("lshr", wide, b.integer(shift, 32)), b.integer(0xFF, 32)) for shift in (8, 0)]
    return [value_of_exponent(b, code) for code in codes]


def _from_exponents(e: WarpEmitter, op: Op) -> None:
    b = e.builder
    _put_packed(e, op, [half_bits(b, x, "bf16") for x in _powers(b, e.source(op, 0, "i16"))], 16)


def _scaled(e: WarpEmitter, op: Op, index: int, operation: str, values: list[Value]) -> list[Value]:
    """Multiply or divide values by the scale factors in a source, if the operation has scale factors."""
    if "scaled::n2::ue8m0" not in op.form.words:
        return values
    scales = _powers(e.builder, e.source(op, index, "i16"))
    return [e.builder.binary(operation, x, s) for x, s in zip(values, scales, strict=True)]


def _to_fixed(e: WarpEmitter, op: Op) -> None:
    """Divide by the scale factor, then round to units of 1/64 in a signed byte. NaN becomes the largest number."""
    b = e.builder
    values, count = _two_values(e, op)
    codes = []
    for x in _scaled(e, op, count, "fdiv", values):
        units = b.intrinsic("roundeven", b.binary("fmul", x, b.number(64.0, "float")))
        code = b.intrinsic("fptosi.sat", units, result="i32")
        code = _clamped(b, code, Type("s32"), Type("u8" if "relu" in op.modifiers else "s8"))
        code = b.intrinsic("smin", code, b.integer(127, 32))
        code = b.select(b.is_nan(x), b.integer(127, 32), code)
        codes.append(b.binary("and", code, b.integer(0xFF, 32)))
    _put_packed(e, op, codes, 8)


def _from_fixed(e: WarpEmitter, op: Op) -> None:
    """Read signed bytes in units of 1/64 as bf16, times the scale factor."""
    b = e.builder
    pair = e.source(op, 0, "i16")
    bytes_ = [b.resize(b.binary("lshr", pair, b.integer(shift, 16)), 8, signed=False) for shift in (8, 0)]
    values = [b.binary("fmul", b.cast("sitofp", byte, "float"), b.number(1 / 64, "float")) for byte in bytes_]
    values = _scaled(e, op, 1, "fmul", values)
    _put_packed(e, op, [half_bits(b, _limited(b, op, x, "bf16"), "bf16") for x in values], 16)


# -- integers ---------------------------------------------------------------------------------------------


def _pack(e: WarpEmitter, op: Op) -> None:
    """Clamp two integers and set them side by side, the second lowest; a third source is moved up by both."""
    b = e.builder
    to, bits = op.type, op.type.bits
    parts = []
    for index in range(2):
        x = _clamped(b, e.source(op, index, "i32"), Type("s32"), to)
        parts.append(b.binary("and", x, b.integer((1 << bits) - 1, 32)))
    result = _packed(b, parts, bits)
    if bits < 16:
        result = b.binary("or", result, b.binary("shl", e.source(op, 2, "i32"), b.integer(2 * bits, 32)))
    e.put(op, result)


def _integer_parts(e: WarpEmitter, op: Op) -> None:
    """Add, subtract, negate, or take the minimum or maximum in each half or byte. ``.relu`` replaces negative results
    by 0.
    """
    b, bits = e.builder, 16 if op.type.endswith("x2") else 8
    words = [e.source(op, k, "i32") for k in range(len(op.sources))]
    opcode = "sub" if op.opcode == "neg" else op.opcode
    if op.opcode == "neg":
        words.insert(0, b.integer(0, 32))
    parts = []
    for at in range(32 - bits, -1, -bits):
        moved = [b.binary("lshr", word, b.integer(at, 32)) if at else word for word in words]
        x, y = (b.resize(word, bits, signed=False) for word in moved)
        saturated = ".sat" if "sat" in op.modifiers else ""
        wraps = opcode in ("add", "sub") and not saturated
        result = b.binary(opcode, x, y) if wraps else b.intrinsic(f"{op.type.kind}{opcode}{saturated}", x, y)
        parts.append(b.intrinsic("smax", result, b.integer(0, bits)) if "relu" in op.modifiers else result)
    _put_packed(e, op, parts, bits)
