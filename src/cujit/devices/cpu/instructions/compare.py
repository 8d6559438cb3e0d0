"""Comparison and selection of numbers of every type: ``setp set selp slct``.

PTX ISA 9.1: "Comparison and Selection Instructions", "Half Precision Comparison Instructions".
"""

from __future__ import annotations

from cujit.devices.cpu.codegen.builder import Builder, Value, float_type, int_type, type_width
from cujit.devices.cpu.codegen.registry import Rules
from cujit.devices.cpu.codegen.rounding import flush
from cujit.devices.cpu.codegen.warp import WarpEmitter
from cujit.devices.cpu.instructions.halves import join_halves, split_halves, values_of
from cujit.devices.cpu.instructions.small_formats import half_bits
from cujit.devices.cpu.ir.program import Op
from cujit.formats.ptx.isa.semantics import Type
from cujit.values import replace

JOINS = ("and", "or", "xor")
"""What a comparison may be joined with another predicate by."""
_TRUE = {"f16": 0x3C00, "f16x2": 0x3C00, "bf16": 0x3F80, "bf16x2": 0x3F80, "f32": 0x3F800000}
"""Bits of 1 in each half, or in the whole, of what ``set`` gives as a float."""


def register(rules: Rules) -> None:
    """Add the rules of this family."""
    rules.on("setp", _set_predicates)
    rules.on("set", _set)
    rules.on("set .u8x4|s8x4|u16x2|s16x2", _set_parts)
    rules.on("selp", _select)
    rules.on("slct", _select_by_sign)


def _type_of(type_: Type) -> str:
    """Return the LLVM type of values that are compared or selected, except half-precision values."""
    return float_type(type_.bits) if type_.kind == "f" else int_type(type_.bits)


# -- comparison -------------------------------------------------------------------------------------------


def compared_in(e: WarpEmitter, op: Op) -> list[Value]:
    """Compare the first two sources. For a pair, return two results, with the result of the lower members first."""
    b, name = e.builder, op.types[-1]
    compare = next(m for m in op.form.words if m not in (*JOINS, "ftz"))
    if name.startswith(("f16", "bf16")):
        found = [values_of(b, op, name.removesuffix("x2"), bits) for bits in _members(e, op, name)]
    else:
        found = [[e.source(op, k, _type_of(name)) for k in range(2)]]
        if name == "f32" and "ftz" in op.modifiers:
            found = [[flush(b, x) for x in found[0]]]
    kind = _float_comparison(compare) if "f" in name else _integer_comparison(compare, name.is_signed)
    return [b.compare(kind, *values) for values in found]


def _members(e: WarpEmitter, op: Op, name: str) -> list[list[Value]]:
    """Read the first two sources as i16. Return one list of sources, or two lists for a pair, with the lower members
    first.
    """
    if not name.endswith("x2"):
        return [[e.source(op, k, "i16") for k in range(2)]]
    split = [split_halves(e.builder, e.source(op, k, "i32")) for k in range(2)]
    return [list(parts) for parts in zip(*split, strict=True)]


def _float_comparison(name: str) -> str:
    """Name LLVM's comparison: ``ltu`` is true for NaN, ``lt`` is not."""
    if name in ("num", "nan"):
        return "fcmp ord" if name == "num" else "fcmp uno"
    return f"fcmp u{name[:2]}" if len(name) == 3 else f"fcmp o{name}"


def _integer_comparison(name: str, is_signed: bool) -> str:
    name = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(name, name)
    return f"icmp {name}" if name in ("eq", "ne") else f"icmp {'s' if is_signed else 'u'}{name}"


def _combine(e: WarpEmitter, op: Op, result: Value) -> Value:
    """Join a comparison with the third source by the ``and``, ``or`` or ``xor`` of the mnemonic, if there is one."""
    joins = [m for m in op.form.words if m in JOINS]
    return e.builder.binary(joins[0], result, e.source(op, 2, "i1")) if joins else result


def _set_predicates(e: WarpEmitter, op: Op) -> None:
    """Write ``p`` and, if present, ``q``: the negated comparison, or the comparison of the upper members of a pair."""
    compared = compared_in(e, op)
    for k in range(len(op.results)):
        own = compared[k] if k < len(compared) else e.builder.invert(compared[0])
        e.put(op, _combine(e, op, own), k)


def _set(e: WarpEmitter, op: Op) -> None:
    """Write all ones or 1.0 if the comparison is true, otherwise 0. For a pair, write a result to each half.

    A predicate guards only the comparison. The code from ptxas converts the result in any case. Source: an H200.
    """
    b, (to, name) = e.builder, op.types
    width = 16 if name.endswith("x2") or to in ("f16", "bf16") else to.bits
    one, zero = b.integer(_TRUE.get(to, -1), width), b.integer(0, width)
    chosen = [b.select(_combine(e, op, each), one, zero) for each in compared_in(e, op)]
    result = chosen[0] if len(chosen) == 1 else join_halves(b, *chosen)
    bits = 16 if name.bits == 16 else 32
    if op.guard is not None and op.result is not None and len(chosen) == 1 and op.result.bits >= bits:
        width = op.result.bits
        left = _converted(b, to, b.resize(e.read(op.result, int_type(width)), bits, signed=True))
        result = b.select(e.guard(op), b.resize(result, width, signed=True), b.resize(left, width, signed=True))
        op = replace(op, guard=None)
    e.put(op, result)


def _set_parts(e: WarpEmitter, op: Op) -> None:
    """Compare the halves or bytes of two words. Write all ones to each part with a true comparison, otherwise 0."""
    b, bits = e.builder, 16 if op.type.endswith("x2") else 8
    kind = _integer_comparison(op.form.words[0], op.type.is_signed)
    result = b.integer(0, 32)
    for at in range(0, 32, bits):
        parts = [
            b.resize(b.binary("lshr", e.source(op, k, "i32"), b.integer(at, 32)), bits, signed=False) for k in range(2)
        ]
        part = b.select(b.compare(kind, *parts), b.integer(((1 << bits) - 1) << at, 32), b.integer(0, 32))
        result = b.binary("or", result, part)
    e.put(op, result)


def _converted(b: Builder, to: Type, old: Value) -> Value:
    """Interpret the bits of a result as a truth value, as ptxas does. For a float result, convert their magnitude to a
    float.
    """
    if to not in _TRUE:
        return old
    zero = b.integer(0, type_width(old.type))
    x = b.cast("sitofp", b.select(b.compare("icmp slt", old, zero), b.binary("sub", zero, old), old), "float")
    return b.as_bits(x) if to == "f32" else half_bits(b, x, to)


# -- selection --------------------------------------------------------------------------------------------


def _select(e: WarpEmitter, op: Op) -> None:
    type_ = _type_of(op.type)
    e.put(op, e.builder.select(e.source(op, 2, "i1"), e.source(op, 0, type_), e.source(op, 1, type_)))


def _select_by_sign(e: WarpEmitter, op: Op) -> None:
    """Select the first source if the third is at least 0, otherwise the second. NaN counts as below 0, and -0 counts as
    0.
    """
    b, type_ = e.builder, _type_of(op.type)
    by = e.source(op, 2, _type_of(op.types[1]))
    if "ftz" in op.modifiers:
        by = flush(b, by)
    zero = b.number(0.0, "float") if by.type == "float" else b.integer(0, 32)
    chosen = b.compare("fcmp oge" if by.type == "float" else "icmp sge", by, zero)
    e.put(op, b.select(chosen, e.source(op, 0, type_), e.source(op, 1, type_)))
