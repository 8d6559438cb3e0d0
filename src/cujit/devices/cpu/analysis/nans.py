"""Where the NaNs of f32 arithmetic get the bits that GPUs give them.

    add.f32 a, x, y;                       a may hold any NaN: only arithmetic reads it
    mul.f32 b, a, a;                 ->    b may, too
    st.global.f32 [p], b;                  what is stored is 0x7fffffff where b is a NaN

An instruction that computes an f32 gives one NaN, 0x7fffffff, whatever the NaNs that go in; the processor gives others.
What is made of a NaN by more arithmetic does not depend on its bits, so that a register that has nothing but such
results may hold any NaN, and the right one is put in its place where the bits can be seen: where the register is
stored, moved into one that has other values too, or read as an integer. Most code sees none but what it stores.

Source: measured on an H200; the manual leaves the bits open.
"""

from __future__ import annotations

import functools

from cujit.devices.cpu.analysis.dataflow import closure
from cujit.devices.cpu.ir.program import (
    FloatConstant,
    Group,
    IntConstant,
    KernelProgram,
    Op,
    Operand,
    Reg,
    registers_in,
)
from cujit.formats.ptx.isa.semantics import Trait

__all__ = ["gives_one_nan", "registers_of_any_nan", "sees_bits"]

_CHANGES_VALUE = frozenset({"ftz", "rni", "rzi", "rmi", "rpi"})
"""With one of these, a conversion from f32 to f32 is more than a move."""


def gives_one_nan(op: Op) -> bool:
    """Whether the result is an f32 whose only NaN is that of GPUs."""
    types = op.types
    if not types or types[0] != "f32":
        return False
    if op.opcode == "cvt":
        if types[1] == "bf16":
            return "ftz" in op.modifiers
        return types[1] == "f16" or (types[1] == "f32" and not _CHANGES_VALUE.isdisjoint(op.modifiers))
    return Trait.COMPUTES in op.form.meaning.traits


def sees_bits(op: Op) -> bool:
    """Whether what an operation does may depend on the bits of a NaN among its sources."""
    types = op.types
    if not types or types[-1] != "f32" or "xorsign" in op.modifiers:
        return True
    if op.opcode == "cvt":
        return types[0] in ("f64", "tf32") or (types[0] == "f32" and not gives_one_nan(op))
    traits = op.form.meaning.traits
    return not (Trait.COMPARES in traits or (Trait.COMPUTES in traits and len(types) == 1))


def registers_of_any_nan(program: KernelProgram) -> frozenset[int]:
    """List the registers, by number, that have nothing but results of f32 arithmetic, and copies of these."""
    fixed: set[int] = set()
    computed: set[int] = set()
    copies: dict[int, list[int]] = {}
    for op in program.ops:
        copied = _copied(op)
        for reg in op.written:
            if gives_one_nan(op):
                computed.add(reg.index)
            elif copied is None or any(_may_be_nan(source) for source in copied):
                fixed.add(reg.index)
            else:
                for source in registers_in(Group(copied)):
                    copies.setdefault(source.index, []).append(reg.index)
    spread = functools.partial(closure, step=lambda reg: copies.get(reg, ()))
    return frozenset(spread(computed) - spread(fixed))


def _copied(op: Op) -> tuple[Operand, ...] | None:
    """What may become the result as it is; None for an operation that makes something of it."""
    copies = Trait.COPIES in op.form.meaning.traits and len(op.results) == 1
    if not copies or op.types[-1:] not in (("f32",), ("b32",)):
        return None
    return op.sources[:2] if op.opcode == "selp" else op.sources


def _may_be_nan(operand: Operand) -> bool:
    """Whether an operand that is copied may be a NaN with bits of its own; of registers that is found out later."""
    if isinstance(operand, Reg):
        return operand.bits != 32
    if isinstance(operand, IntConstant):
        return operand.value & 0x7FFFFFFF > 0x7F800000
    if isinstance(operand, FloatConstant):
        infinity = 0x7F800000 if operand.width == 32 else 0x7FF0000000000000
        return operand.bits & ((1 << (operand.width - 1)) - 1) > infinity
    return True
