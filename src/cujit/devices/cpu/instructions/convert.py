"""``cvt`` between integers, f16, bf16, tf32, f32 and f64; pairs and smaller formats are in ``packed``.

PTX ISA 9.1: "Data Movement and Conversion Instructions: cvt". Rounding is exact in every mode, from 64-bit integers
and to f16, too. f16 and bf16 are held as 16-bit integers and computed in f32.
"""

from __future__ import annotations

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
from cujit.devices.cpu.instructions.small_formats import FORMATS, half_bits, upper_bits, value_of, without_low_bits
from cujit.devices.cpu.ir.program import Op
from cujit.formats.ptx.isa.semantics import Type

__all__ = ["clamped", "float_source", "limited", "register", "rounded"]

_TO_INTEGER = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
"""Roundings to an integral value, and the LLVM intrinsics that do them."""
_LARGEST = {"tf32": float.fromhex("0x1.FFCp127"), **{name: f.largest for name, f in FORMATS.items()}}
"""The largest finite numbers, for ``.satfinite``."""


def register(rules: Rules) -> None:
    """Add the rules of this family."""
    rules.on("cvt .WHOLE .WHOLE", _integer_to_integer)
    rules.on("cvt .f16|bf16|f32|f64 .WHOLE", _integer_to_float)
    rules.on("cvt .WHOLE .f16|bf16|f32|f64", _float_to_integer)
    rules.on("cvt .f16|bf16|f32|f64 .f16|bf16|f32|f64", _float_to_float)
    rules.on("cvt .tf32", _tensor_float)


# -- sources and results ----------------------------------------------------------------------------------


def _put_integer(e: WarpEmitter, op: Op, value: Value, is_signed: bool) -> None:
    """Write an integer to a register that may be wider: signed ones fill it with their sign."""
    reg = op.results[0]
    if reg is not None:
        e.put(op, e.builder.resize(value, max(reg.bits, type_width(value.type)), is_signed))


def float_source(e: WarpEmitter, op: Op, name: str, index: int = 0) -> Value:
    """Read a source as ``double`` if it is f64, else as ``float``; ``.ftz`` flushes an f32."""
    b = e.builder
    if name == "f64":
        return e.source(op, index, "double")
    if name == "f32":
        x = e.source(op, index, "float")
        # sm_90 does not flush what becomes an f16, although the manual says so.
        return flush(b, x) if "ftz" in op.modifiers and op.type != "f16" else x
    return value_of(b, e.source(op, index, "i16"), name)


def rounded(b: Builder, x: Value, name: str, mode: str) -> Value:
    """Round an f32 or f64 to a type; 16-bit types come as integers. NaNs of f64 keep their sign and payload."""
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


def limited(b: Builder, op: Op, x: Value, name: str) -> Value:
    """Apply ``.sat``, ``.relu`` and ``.satfinite``: all can be done before rounding, their bounds being exact."""
    zero = b.number(0.0, x.type)
    if "sat" in op.modifiers:
        x = saturate(b, x)
    if "relu" in op.modifiers:
        x = b.select(b.compare("fcmp ole", x, zero), zero, x)
    if "satfinite" in op.modifiers:
        largest = b.number(_LARGEST[name.removesuffix("x2")], x.type)
        x = b.select(b.compare("fcmp ogt", b.magnitude(x), largest), b.signed(largest, x), x)
    return x


def _put_float(e: WarpEmitter, op: Op, x: Value, name: str) -> None:
    """Round, flush an f32 that asks for it, and write."""
    b, mode = e.builder, rounding_of(op)
    result = rounded(b, x, name, mode)
    if name == "f32" and "ftz" in op.modifiers:
        larger = b.binary("fmul", x, b.number(SCALE, x.type))
        result = flush_by(b, rounded(b, larger, name, mode), result)
    e.put(op, result)


# -- integers ---------------------------------------------------------------------------------------------


def _bounds(name: Type) -> tuple[int, int]:
    bits = name.bits
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if name.is_signed else (0, (1 << bits) - 1)


def clamped(b: Builder, x: Value, name: Type, to: Type) -> Value:
    """Clamp a value of the integer type ``name`` to what ``to`` can hold."""
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
        x = clamped(b, x, name, to)
    _put_integer(e, op, b.resize(x, to.bits, name.is_signed), to.is_signed)


def _integer_to_float(e: WarpEmitter, op: Op) -> None:
    b = e.builder
    to, name = op.types
    mode, wide = (rounding_of(op), float_type(to.bits)) if to in ("f32", "f64") else ("odd", "float")
    value = integer_as_float(b, e.source(op, 0, int_type(name.bits)), name.is_signed, mode, wide)
    _put_float(e, op, limited(b, op, value, to), to)


def _float_to_integer(e: WarpEmitter, op: Op) -> None:
    """Round, then clamp; NaN gives 0, but the highest bit alone where one of the types has 64 bits."""
    b = e.builder
    to, name = op.types
    is_signed, bits = to.is_signed, to.bits
    x = float_source(e, op, name)
    mode = next(m for m in op.modifiers if m in _TO_INTEGER)
    whole = x if mode == "rzi" else b.intrinsic(_TO_INTEGER[mode], x)
    wide = max(bits, 32)
    value = b.intrinsic("fptosi.sat" if is_signed else "fptoui.sat", whole, result=int_type(wide))
    value = b.resize(clamped(b, value, Type(f"{to.kind}{wide}"), to), bits, is_signed)
    if name == "f64" or bits == 64:
        value = b.select(b.is_nan(x), b.integer(1 << (bits - 1), bits), value)
    _put_integer(e, op, value, is_signed)


# -- floats -----------------------------------------------------------------------------------------------


def _float_to_float(e: WarpEmitter, op: Op) -> None:
    b = e.builder
    to, name = op.types
    x = float_source(e, op, name)
    mode = next((m for m in op.modifiers if m in _TO_INTEGER), None)
    if mode is not None:
        x = b.intrinsic(_TO_INTEGER[mode], x)
    if to == "f64" and "ftz" in op.modifiers:
        x = canonical(b, x)  # what flushes is arithmetic
    _put_float(e, op, limited(b, op, x, to), to)


def _tensor_float(e: WarpEmitter, op: Op) -> None:
    """Round to tf32: an f32 with a fraction of 10 bits; ``rna`` cuts NaNs, and its ``.satfinite`` lowers them, too.

    Source: the manual leaves these NaNs open; they are what sm_90 makes of them, in code that ptxas writes for it.
    """
    b = e.builder
    x = float_source(e, op, "f32")
    if "rna" not in op.modifiers:
        e.put(op, without_low_bits(b, limited(b, op, x, "tf32"), 13, rounding_of(op), 0x7FFFE000))
        return
    infinite = b.compare("fcmp ueq", b.magnitude(x), b.number(float("inf"), "float"))
    whole = b.binary("add", b.as_bits(x), b.select(infinite, b.integer(0, 32), b.integer(1 << 12, 32)))
    result = b.binary("and", whole, b.integer(~0x1FFF, 32))
    if "satfinite" in op.modifiers:
        size = b.binary("and", result, b.integer(0x7FFFFFFF, 32))
        beyond = b.compare("icmp uge", size, b.integer(0x7F800000, 32))
        result = b.select(beyond, b.binary("sub", result, b.integer(1 << 13, 32)), result)
    e.put(op, result)
