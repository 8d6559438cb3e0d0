"""What atomic operations make of a value in memory: ``step(old, operand) -> new``, for one lane, on integers.

PTX ISA 9.1, "Parallel Synchronization and Communication Instructions: atom", "red".
"""

from __future__ import annotations

from collections.abc import Sequence

from cujit.devices.cpu.emit.builder import Builder, Value, float_type

__all__ = ["NATIVE", "REDUCE", "emit_step", "identity"]

NATIVE = {
    ("add", "s"): "add", ("add", "u"): "add", ("and", "b"): "and", ("or", "b"): "or", ("xor", "b"): "xor",
    ("exch", "b"): "xchg", ("min", "s"): "min", ("max", "s"): "max", ("min", "u"): "umin", ("max", "u"): "umax",
}  # fmt: skip
"""The operations that LLVM's ``atomicrmw`` has, by operation and kind of type."""

REDUCE = {
    "add": "add", "and": "and", "or": "or", "xor": "xor", "min": "smin", "max": "smax", "umin": "umin", "umax": "umax",
}  # fmt: skip
"""The intrinsic ``llvm.vector.reduce.*`` of an ``atomicrmw`` whose order does not matter."""

_COMPARE = {"min": "slt", "max": "sgt", "umin": "ult", "umax": "ugt"}
_CANONICAL = {"f16": 0x7FFF, "bf16": 0x7FFF}


def identity(rmw: str, bits: int) -> int:
    """The operand that leaves every value as it is."""
    every = (1 << bits) - 1
    return {"and": every, "min": every >> 1, "max": 1 << (bits - 1), "umin": every}.get(rmw, 0)


def emit_step(f: Builder, operation: str, type_: str, old: Value, operands: Sequence[Value], ftz: bool) -> Value:
    """Emit the new value; straight code without branches. ``ftz`` has ``add.f32`` flush subnormal numbers."""
    b = operands[0]
    if operation == "cas":
        return f.select(f.compare("icmp eq", old, b), operands[1], old)
    if operation == "exch":
        return b
    if operation == "inc":
        wraps = f.compare("icmp uge", old, b)
        return f.select(wraps, f.integer(0, 32), f.binary("add", old, f.integer(1, 32)))
    if operation == "dec":
        zero, above = f.compare("icmp eq", old, f.integer(0, 32)), f.compare("icmp ugt", old, b)
        return f.select(f.binary("or", zero, above), b, f.binary("sub", old, f.integer(1, 32)))
    if type_.endswith("x2"):
        return _pair(f, operation, type_.removesuffix("x2"), old, b)
    if type_[0] in "bf" and type_.endswith("f16"):
        return _half(f, operation, type_, old, b)
    if type_[0] == "f":
        return _float_add(f, int(type_[1:]), old, b, ftz)
    rmw = NATIVE[operation, type_[0]]
    if rmw in _COMPARE:
        return f.select(f.compare(f"icmp {_COMPARE[rmw]}", old, b), old, b)
    return f.binary(rmw, old, b)


def _float_add(f: Builder, bits: int, old: Value, b: Value, ftz: bool) -> Value:
    """Add floats; NaNs come out as the GPU's canonical one."""
    kind = float_type(bits)
    x, y = (f.bits_as(_flushed(f, v) if ftz else v, kind) for v in (old, b))
    total = f.binary("fadd", x, y)
    word = f.bits_as(total, f"i{bits}")
    word = _flushed(f, word) if ftz else word
    if bits == 64:
        return word
    nan = f.compare("fcmp uno", total, total)
    return f.select(nan, f.integer(0x7FFFFFFF, bits), word)


def _flushed(f: Builder, word: Value) -> Value:
    """Make a subnormal number zero of the same sign; ``word`` holds an f32."""
    exponent = f.binary("and", word, f.integer(0x7F800000, 32))
    small = f.compare("icmp eq", exponent, f.integer(0, 32))
    return f.select(small, f.binary("and", word, f.integer(1 << 31, 32)), word)


def _pair(f: Builder, operation: str, type_: str, old: Value, b: Value) -> Value:
    """Do an operation on both halves of 32 bits."""
    whole = f.integer(0, 32)
    for at in (0, 16):
        x, y = (f.cast("trunc", f.binary("lshr", v, f.integer(at, 32)), "i16") for v in (old, b))
        part = f.cast("zext", _half(f, operation, type_, x, y), "i32")
        whole = f.binary("or", whole, f.binary("shl", part, f.integer(at, 32)))
    return whole


def _half(f: Builder, operation: str, type_: str, old: Value, b: Value) -> Value:
    """Add f16 or bf16 in f32, which then rounds as if it were exact; or take the smaller or larger number.

    Source for the rounding: S. Figueroa, "When is double rounding innocuous?", SIGNUM 30 (1995): 24 >= 2 * 11 + 2.
    """
    x, y = (_widened(f, type_, v) for v in (old, b))
    if operation == "add":
        result = f.binary("fadd", x, y)
    else:
        result = f.intrinsic({"min": "minimumnum", "max": "maximumnum"}[operation], x, y)
    nan = f.compare("fcmp uno", result, result)
    return f.select(nan, f.integer(_CANONICAL[type_], 16), _narrowed(f, type_, result))


def _widened(f: Builder, type_: str, word: Value) -> Value:
    if type_ == "f16":
        return f.cast("fpext", f.bits_as(word, "half"), "float")
    return f.bits_as(f.binary("shl", f.cast("zext", word, "i32"), f.integer(16, 32)), "float")


def _narrowed(f: Builder, type_: str, value: Value) -> Value:
    """Round an f32, not a NaN, to the nearest number, ties to even."""
    if type_ == "f16":
        return f.bits_as(f.cast("fptrunc", value, "half"), "i16")
    word = f.bits_as(value, "i32")
    last = f.binary("and", f.binary("lshr", word, f.integer(16, 32)), f.integer(1, 32))
    rounded = f.binary("add", word, f.binary("add", last, f.integer(0x7FFF, 32)))
    return f.cast("trunc", f.binary("lshr", rounded, f.integer(16, 32)), "i16")
