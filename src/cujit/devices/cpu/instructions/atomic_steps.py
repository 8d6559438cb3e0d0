"""What atomic operations make of a value in memory: ``step(old, operand) -> new``, for one lane, on integers.

PTX ISA 9.1, "Parallel Synchronization and Communication Instructions: atom", "red".
"""

from __future__ import annotations

from collections.abc import Sequence

from cujit.devices.cpu.codegen.builder import Builder, Value, float_type
from cujit.devices.cpu.codegen.rounding import canonical, flush, quiet_if_nan
from cujit.devices.cpu.instructions.small_formats import half_bits, value_of

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


def identity(rmw: str, bits: int) -> int:
    """The operand that leaves every value as it is."""
    every = (1 << bits) - 1
    return {"and": every, "min": every >> 1, "max": 1 << (bits - 1), "umin": every}.get(rmw, 0)


def emit_step(f: Builder, operation: str, type_: str, old: Value, operands: Sequence[Value], by_cache: bool) -> Value:
    """Emit the new value; straight code without branches. ``by_cache``: see ``_float_add``."""
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
        return _float_add(f, int(type_[1:]), old, b, by_cache)
    rmw = NATIVE[operation, type_[0]]
    if rmw in _COMPARE:
        return f.select(f.compare(f"icmp {_COMPARE[rmw]}", old, b), old, b)
    return f.binary(rmw, old, b)


def _float_add(f: Builder, bits: int, old: Value, b: Value, by_cache: bool) -> Value:
    """Add floats. The cache, which does it in global memory, flushes subnormal f32 and gives NaNs of f64 as they are.

    In shared memory a loop of instructions does it. Of two NaNs the cache gives the new one, the loop the old one.
    Source: measured on an H200.
    """
    kind = float_type(bits)
    x, y = (f.bits_as(v, kind) for v in (old, b))
    if bits == 32:
        total = flush(f, f.binary("fadd", flush(f, x), flush(f, y))) if by_cache else f.binary("fadd", x, y)
        return f.as_bits(canonical(f, total))
    total = f.as_bits(f.binary("fadd", x, y))
    if by_cache:
        return f.select(f.is_nan(y), b, f.select(f.is_nan(x), old, total))
    return f.as_bits(quiet_if_nan(f, x, f.bits_as(total, kind)))


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
    x, y = (value_of(f, v, type_) for v in (old, b))
    if operation == "add":
        result = f.binary("fadd", x, y)
    else:
        result = f.intrinsic({"min": "minimumnum", "max": "maximumnum"}[operation], x, y)
    return half_bits(f, result, type_)
