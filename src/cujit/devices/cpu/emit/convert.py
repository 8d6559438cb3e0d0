"""``cvt`` between integers, f16, bf16, f32 and f64.

PTX ISA 9.1: "Data Movement and Conversion Instructions: cvt", "cvt.pack". Rounding is exact in every mode, from
64-bit integers and to f16, too. f16 and bf16 are held as 16-bit integers and computed in f32.
"""

from __future__ import annotations

from cujit.devices.cpu.emit.builder import Builder, Value, float_type, int_type, type_width
from cujit.devices.cpu.emit.registry import INTEGERS, Rules, types_of
from cujit.devices.cpu.emit.rounding import (
    ROUNDINGS,
    as_bits,
    canonical,
    flush,
    integer_as_float,
    is_nan,
    magnitude,
    narrow,
    number,
    rounding_of,
    saturate,
    signed,
)
from cujit.devices.cpu.emit.warp import WarpEmitter
from cujit.devices.cpu.program import Op

__all__ = ["register"]

_INTEGERS = " ".join(INTEGERS)
_HALVES = "f16 bf16"
_TO_INTEGER = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
"""Roundings to an integral value, and the LLVM intrinsics that do them."""
_LARGEST = {"f16": 65504.0, "bf16": float.fromhex("0x1.FEp127"), "tf32": float.fromhex("0x1.FFCp127")}
"""The largest finite numbers, for ``.satfinite``."""


def register(rules: Rules) -> None:
    """Add the rules of this family."""
    to_integer = [" ".join(_TO_INTEGER)]
    rules.on("cvt", _INTEGERS, _INTEGERS, modifiers="sat")(_integer_to_integer)
    for floats, integers in (("f16 f32 f64", _INTEGERS), ("bf16", "s16 s32 s64 u16 u32 u64")):
        rules.on("cvt", floats, integers, modifiers=f"{ROUNDINGS} ftz sat")(_integer_to_float)
        rules.on("cvt", integers, floats, modifiers="ftz sat", choices=to_integer)(_float_to_integer)
    for type_ in (*_HALVES.split(), "f32", "f64"):
        rules.on("cvt", type_, type_, modifiers="ftz sat", choices=to_integer)(_float_to_float)
        rules.on("cvt", type_, type_, modifiers="ftz sat")(_float_to_float)
    rules.on("cvt", "f32", _HALVES, modifiers=f"{ROUNDINGS} ftz sat")(_float_to_float)
    rules.on("cvt", "f64", f"{_HALVES} f32", modifiers=f"{ROUNDINGS} ftz sat")(_float_to_float)
    rules.on("cvt", "f32", "f64", modifiers="ftz sat", choices=[ROUNDINGS])(_float_to_float)
    narrower = "ftz sat relu satfinite"
    rules.on("cvt", "f16", "bf16 f32 f64", modifiers=narrower, choices=[ROUNDINGS])(_float_to_float)
    rules.on("cvt", "bf16", "f16 f32 f64", modifiers=narrower, choices=[ROUNDINGS])(_float_to_float)
    rules.on("cvt", "f16x2 bf16x2", "f32", modifiers="relu satfinite", choices=["rn rz"])(_pair)
    rules.on("cvt", "tf32", "f32", modifiers="relu satfinite", choices=["rna rn rz"])(_tensor_float)
    rules.on("cvt", "u16 s16", "s32", choices=["pack", "sat"])(_pack)
    rules.on("cvt", "u8 s8", "s32", "b32", choices=["pack", "sat"])(_pack)


# -- sources and results ----------------------------------------------------------------------------------


def _integer_source(e: WarpEmitter, op: Op, name: str) -> Value:
    return e.source(op, 0, int_type(int(name[1:])))


def _put_integer(e: WarpEmitter, op: Op, value: Value, is_signed: bool) -> None:
    """Write an integer to a register that may be wider: signed ones fill it with their sign."""
    reg = op.results[0]
    if reg is not None:
        e.put(op, e.builder.resize(value, max(reg.bits, type_width(value.type)), is_signed))


def _float_source(e: WarpEmitter, op: Op, name: str, index: int = 0) -> Value:
    """Read a source as ``double`` if it is f64, else as ``float``; ``.ftz`` flushes an f32."""
    b = e.builder
    if name == "f64":
        return e.source(op, index, "double")
    if name == "f32":
        x = e.source(op, index, "float")
        return flush(b, x) if "ftz" in op.modifiers else x
    bits = e.source(op, index, "i16")
    if name == "f16":
        return b.cast("fpext", b.bits_as(bits, "half"), "float")
    wide = b.resize(bits, 32, signed=False)
    return b.bits_as(b.binary("shl", wide, b.integer(16, 32)), "float")


def _rounded(b: Builder, x: Value, name: str, mode: str) -> Value:
    """Round an f32 or f64 to a type; 16-bit types come as integers. NaNs of f64 keep their sign and payload."""
    if name in ("f32", "f64"):
        to = float_type(int(name[1:]))
        if x.type == to:
            return x
        return b.cast("fpext", x, to) if to == "double" else narrow(b, x, None, mode)
    keeps = x.type == "double"
    if keeps:
        x = narrow(b, x, None, "odd")
    if name == "f16":
        short = narrow(b, x, None, mode, "half")
        return as_bits(b, short if keeps else canonical(b, short))
    bits = _without_low_bits(b, x, 16, mode, None if keeps else 0x7FFF0000)
    return b.resize(b.binary("lshr", bits, b.integer(16, 32)), 16, signed=False)


def _without_low_bits(b: Builder, x: Value, count: int, mode: str, nan: int | None) -> Value:
    """Round an f32 to fewer fraction bits, as an i32; a carry out of the fraction rightly raises the exponent.

    NaNs become ``nan``, or are cut.
    """
    exact = bits = as_bits(b, x)
    low, unit = (1 << count) - 1, b.integer(1, 32)
    if mode == "rn":
        last = b.binary("and", b.binary("lshr", bits, b.integer(count, 32)), unit)
        bits = b.binary("add", bits, b.binary("add", last, b.integer(low >> 1, 32)))
    elif mode == "rna":
        bits = b.binary("add", bits, b.integer(1 << (count - 1), 32))
    elif mode in ("rm", "rp"):
        outward = b.compare("icmp slt" if mode == "rm" else "icmp sge", bits, b.integer(0, 32))
        bits = b.binary("add", bits, b.select(outward, b.integer(low, 32), b.integer(0, 32)))
    bits = b.select(is_nan(b, x), exact if nan is None else b.integer(nan, 32), bits)
    return b.binary("and", bits, b.integer(~low, 32))


def _limited(b: Builder, op: Op, x: Value, name: str) -> Value:
    """Apply ``.sat``, ``.relu`` and ``.satfinite``: all can be done before rounding, their bounds being exact."""
    zero = number(b, 0.0, x.type)
    if "sat" in op.modifiers:
        x = saturate(b, x)
    if "relu" in op.modifiers:
        x = b.select(b.compare("fcmp ole", x, zero), zero, x)
    if "satfinite" in op.modifiers:
        largest = number(b, _LARGEST[name.removesuffix("x2")], x.type)
        x = b.select(b.compare("fcmp ogt", magnitude(b, x), largest), signed(b, largest, x), x)
    return x


def _put_float(e: WarpEmitter, op: Op, x: Value, name: str) -> None:
    """Round, flush an f32 that asks for it, and write."""
    b = e.builder
    result = _rounded(b, x, name, rounding_of(op))
    e.put(op, flush(b, result) if name == "f32" and "ftz" in op.modifiers else result)


# -- integers ---------------------------------------------------------------------------------------------


def _bounds(name: str) -> tuple[int, int]:
    bits = int(name[1:])
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if name[0] == "s" else (0, (1 << bits) - 1)


def _clamped(b: Builder, x: Value, name: str, to: str) -> Value:
    """Clamp a value of the integer type ``name`` to what ``to`` can hold."""
    bits, sign = int(name[1:]), name[0]
    (low, high), (lowest, highest) = _bounds(name), _bounds(to)
    if lowest > low:
        x = b.intrinsic(f"{sign}max", x, b.integer(lowest, bits))
    if highest < high:
        x = b.intrinsic(f"{sign}min", x, b.integer(highest, bits))
    return x


def _integer_to_integer(e: WarpEmitter, op: Op) -> None:
    b = e.builder
    to, name = types_of(op)
    x = _integer_source(e, op, name)
    if "sat" in op.modifiers:
        x = _clamped(b, x, name, to)
    _put_integer(e, op, b.resize(x, int(to[1:]), name[0] == "s"), to[0] == "s")


def _integer_to_float(e: WarpEmitter, op: Op) -> None:
    b = e.builder
    to, name = types_of(op)
    x, is_signed = _integer_source(e, op, name), name[0] == "s"
    if to in ("f32", "f64"):
        value = integer_as_float(b, x, is_signed, rounding_of(op), float_type(int(to[1:])))
    else:
        value = integer_as_float(b, x, is_signed, "odd", "float")
    _put_float(e, op, _limited(b, op, value, to), to)


def _float_to_integer(e: WarpEmitter, op: Op) -> None:
    """Round, then clamp; NaN gives 0, but the highest bit alone where one of the types has 64 bits."""
    b = e.builder
    to, name = types_of(op)
    is_signed, bits = to[0] == "s", int(to[1:])
    x = _float_source(e, op, name)
    mode = next(m for m in op.modifiers if m in _TO_INTEGER)
    whole = x if mode == "rzi" else b.intrinsic(_TO_INTEGER[mode], x)
    wide = max(bits, 32)
    convert = "fptosi.sat" if is_signed else "fptoui.sat"
    value = b.intrinsic(convert, whole, result=int_type(wide))
    value = b.resize(_clamped(b, value, f"{to[0]}{wide}", to), bits, is_signed)
    if name == "f64" or bits == 64:
        value = b.select(is_nan(b, x), b.integer(1 << (bits - 1), bits), value)
    _put_integer(e, op, value, is_signed)


# -- floats -----------------------------------------------------------------------------------------------


def _float_to_float(e: WarpEmitter, op: Op) -> None:
    b = e.builder
    to, name = types_of(op)
    x = _float_source(e, op, name)
    mode = next((m for m in op.modifiers if m in _TO_INTEGER), None)
    if mode is not None:
        x = b.intrinsic(_TO_INTEGER[mode], x)
    _put_float(e, op, _limited(b, op, x, to), to)


def _pair(e: WarpEmitter, op: Op) -> None:
    """Round two numbers into the halves of a register, the first into the upper one."""
    b = e.builder
    to = types_of(op)[0]
    halves = []
    for index in range(2):
        x = _limited(b, op, _float_source(e, op, "f32", index), to)
        halves.append(b.resize(_rounded(b, x, to.removesuffix("x2"), rounding_of(op)), 32, signed=False))
    e.put(op, b.binary("or", b.binary("shl", halves[0], b.integer(16, 32)), halves[1]))


def _tensor_float(e: WarpEmitter, op: Op) -> None:
    """Round to tf32: an f32 with a fraction of 10 bits."""
    b = e.builder
    x = _limited(b, op, _float_source(e, op, "f32"), "tf32")
    mode = "rna" if "rna" in op.modifiers else rounding_of(op)
    e.put(op, _without_low_bits(b, x, 13, mode, 0x7FFFE000))


def _pack(e: WarpEmitter, op: Op) -> None:
    """Clamp two integers and set them side by side, the second lowest; bytes move the third source up by two."""
    b = e.builder
    to = types_of(op)[0]
    bits = int(to[1:])
    parts = []
    for index in range(2):
        x = _clamped(b, e.source(op, index, "i32"), "s32", to)
        parts.append(b.binary("and", x, b.integer((1 << bits) - 1, 32)))
    result = b.binary("or", b.binary("shl", parts[0], b.integer(bits, 32)), parts[1])
    if bits == 8:
        result = b.binary("or", result, b.binary("shl", e.source(op, 2, "i32"), b.integer(16, 32)))
    e.put(op, result)
