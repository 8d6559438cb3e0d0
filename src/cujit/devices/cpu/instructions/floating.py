"""Floating-point arithmetic and tests of f32 and f64.

PTX ISA 9.1: "Floating-Point Instructions". Results are exact in every
rounding. ``.ftz`` is done per instruction. NaNs: f32 gives one, see ``nans``; f64 keeps payloads. Which of several
NaNs goes on in a sum, product or fused multiply-add to nearest is left to the processor: to choose it makes a loop of
these take 2.7 times as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cujit.devices.cpu.codegen.builder import Builder, Value, float_type, type_width
from cujit.devices.cpu.codegen.registry import Rules
from cujit.devices.cpu.codegen.rounding import (
    arithmetic,
    canonical,
    flush,
    flush_result,
    quiet_if_nan,
    rounding_of,
    saturate,
    with_payload,
)
from cujit.devices.cpu.codegen.warp import WarpEmitter
from cujit.devices.cpu.ir.program import Op
from cujit.formats.ptx.isa.semantics import form_of

__all__ = ["register"]


def register(rules: Rules) -> None:
    """Add the rules of this family."""
    rules.on("add|sub|mul|fma .f32|f64", _arithmetic)
    rules.on("mad|div|rcp|sqrt .RND .f32", _arithmetic)
    # Without a rounding, of PTX 1.0 to 1.3: to nearest, f32 flushed. Source: PTX ISA 9.1, their notes; ptxas 13.5 for
    # ``.version 1.3``.
    rules.on("mad|div|rcp|sqrt .f64", _arithmetic)
    rules.on("mad .f32", _flushed)
    rules.on("add|sub|mul|fma .f32x2", _packed)
    rules.on("abs|neg .f32|f64", _sign_change)
    rules.on("min|max .f32|f64", _extreme)
    rules.on("copysign", _copy_sign)
    rules.on("testp", _test)


def _sources(e: WarpEmitter, op: Op) -> list[Value]:
    """Read all sources as the operation's last type, flushed where it says so."""
    type_ = float_type(op.types[-1].bits)
    values = [e.source(op, k, type_) for k in range(len(op.sources))]
    return [flush(e.builder, v) for v in values] if "ftz" in op.modifiers else values


# -- arithmetic -------------------------------------------------------------------------------------------


def _result(b: Builder, op: Op, values: Sequence[Value]) -> Value:
    """Compute from flushed sources; flush and saturate as the operation says."""
    opcode = "fma" if op.opcode == "mad" else op.opcode
    mode = rounding_of(op)
    result = arithmetic(b, opcode, values, mode)
    if "ftz" in op.modifiers:
        result = flush_result(b, opcode, values, mode, result)
    if result.type == "double" and mode != "rn":
        result = with_payload(b, opcode, values, result)
    return saturate(b, result) if "sat" in op.modifiers else result


def _flushed(e: WarpEmitter, op: Op) -> None:
    _arithmetic(e, replace(op, form=form_of(op.opcode, "ftz", *op.modifiers)))


def _arithmetic(e: WarpEmitter, op: Op) -> None:
    e.put(op, _result(e.builder, op, _sources(e, op)))


def _packed(e: WarpEmitter, op: Op) -> None:
    """Work on the two halves of 64-bit registers."""
    b = e.builder
    both = [e.source(op, k, "i64") for k in range(len(op.sources))]
    halves = []
    for shift in (0, 32):
        parts = [b.resize(b.binary("lshr", v, b.integer(shift, 64)), 32, signed=False) for v in both]
        values = [b.bits_as(p, "float") for p in parts]
        if "ftz" in op.modifiers:
            values = [flush(b, v) for v in values]
        halves.append(b.resize(b.as_bits(canonical(b, _result(b, op, values))), 64, signed=False))
    e.put(op, b.binary("or", halves[0], b.binary("shl", halves[1], b.integer(32, 64))))


def _sign_change(e: WarpEmitter, op: Op) -> None:
    """Change or clear the sign; a NaN of f64 keeps it, and becomes quiet, as in any arithmetic."""
    b = e.builder
    (x,) = _sources(e, op)
    width = type_width(x.type)
    sign = b.integer(1 << (width - 1), width)
    changed = b.magnitude(x) if op.opcode == "abs" else b.bits_as(b.binary("xor", b.as_bits(x), sign), x.type)
    e.put(op, quiet_if_nan(b, x, changed) if width == 64 else changed)


def _copy_sign(e: WarpEmitter, op: Op) -> None:
    sign, size = _sources(e, op)
    e.put(op, e.builder.signed(size, sign))


def _extreme(e: WarpEmitter, op: Op) -> None:
    """Find the smaller or larger of two or three numbers, -0 below +0; a NaN loses, or with ``.NaN`` wins."""
    b = e.builder
    values = _sources(e, op)
    signs = [b.sign_of(v) for v in values]
    if "abs" in op.modifiers:
        values = [b.magnitude(v) for v in values]
    propagates = "NaN" in op.modifiers
    name = f"{op.opcode}imum" if propagates else f"{op.opcode}imumnum"
    result = values[0]
    for value in values[1:]:
        extreme = b.intrinsic(name, result, value)
        if value.type == "double":
            # Of two NaNs the second goes on.
            extreme = b.select(b.is_nan(result), quiet_if_nan(b, value, value), extreme)
        result = extreme
    if "xorsign" in op.modifiers:
        # The magnitude of two numbers has a clear sign; a NaN takes no sign.
        bits = b.binary("or", b.as_bits(result), b.binary("xor", signs[0], signs[1]))
        result = b.select(b.is_nan(result), result, b.bits_as(bits, result.type))
    e.put(op, result)


# -- tests ----------------------------------------------------------------------------------------------

_CLASSES = {
    "finite": 0x1F8, "infinite": 0x204, "number": 0x3FC, "notanumber": 0x003, "normal": 0x168, "subnormal": 0x090,
}  # fmt: skip
"""Kinds of numbers as LLVM numbers them; zeros count as normal. Source: LLVM Language Reference, "llvm.is.fpclass"."""


def _test(e: WarpEmitter, op: Op) -> None:
    """Tell what kind of number it is."""
    b, (x,) = e.builder, _sources(e, op)
    name = f"llvm.is.fpclass.{f'v{b.width}' if x.is_vector else ''}f{type_width(x.type)}"
    e.put(op, b.call(name, "i1", x, b.integer(_CLASSES[op.form.words[0]], 32), vector=x.is_vector))
