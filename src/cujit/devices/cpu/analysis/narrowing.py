"""Addresses of shared memory in 32 bits, however wide a compiler made them.

    mov.u64 base, tile;                      mov.u32 base', tile
    mul.wide.u32 at, i, 4;             ->    mul.lo.u32 at', i, 4
    add.s64 p, base, at;                     add.s32 p', base', at'
    ld.shared.f32 x, [p+128];                ld.shared.f32 x, [p'+128]

A GPU reads 32 bits of an address of shared memory, as that has no more. NVRTC 13.0 computes it in 64, NVRTC 13.5, NVCC
and Triton do so in 32. What later stages know of integers they know of 32 bits: which lanes meet in a word, and which
offsets lie side by side. What no address needs any more goes away.

Source: measured on an H200 (``tests/devices/cpu/test_narrowing.py``): the upper half of such an address counts for
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from cujit.devices.cpu.analysis.dataflow import writers_of
from cujit.devices.cpu.ir.program import IntConstant, KernelProgram, Op, Operand, Reg, SymbolAddress
from cujit.formats.ptx.isa.semantics import Form, form_of
from cujit.values import closure, replace

_WIDE = 64
_ACCESSES = ("ld", "st", "atom", "red", "ldmatrix", "stmatrix")

_NARROW = {
    **{f"{name}.{sign}64": f"{name}.{sign}32" for name in ("mov", "add", "sub", "mul.lo", "mad.lo") for sign in "us"},
    **{f"{name}.wide.{sign}32": f"{name}.lo.{sign}32" for name in ("mul", "mad") for sign in "us"},
    **{f"{name}.b64": f"{name}.b32" for name in ("mov", "shl", "and", "or", "xor", "not", "selp")},
    **{f"selp.{sign}64": f"selp.{sign}32" for sign in "us"},
    **{f"cvt.{to}64.{sign}32": "mov.b32" for to in "us" for sign in "us"},
}  # fmt: skip
"""What computes the lower half of a result from lower halves, by what computes the whole."""

_CUT = form_of("cvt", "u32", "u64")


def narrowed(program: KernelProgram) -> KernelProgram:
    """Make the program that accesses shared memory by addresses of 32 bits; the same one where it does so already."""
    functions = {name: narrowed(each) for name, each in program.functions.items()}
    bases = {reg.index for op in program.ops if (reg := _wide_base(op)) is not None}
    if not bases and all(functions[name] is each for name, each in program.functions.items()):
        return program
    forms = {op: form for op in program.ops if (form := _narrow(op)) is not None}
    writers = writers_of(forms)
    behind = closure(bases, lambda reg: (r.index for op in writers.get(reg, ()) for r in _wide_sources(op)))
    new = replace(program, registers=list(program.registers), functions=functions)
    halves = {index: new.register(f"{program.registers[index].name}.low", "b32") for index in sorted(behind)}
    new.ops = list(_rewritten([_rebased(op, halves) for op in program.ops], forms, halves))
    return new


def _wide_base(op: Op) -> Reg | None:
    """The register of 64 bits by which an operation accesses shared memory."""
    if op.opcode not in _ACCESSES or op.space != "shared":
        return None
    base = op.memory.base
    return base if isinstance(base, Reg) and base.bits == _WIDE else None


def _narrow(op: Op) -> Form | None:
    """The form that computes the lower half of a result from lower halves, if there is one."""
    name = _NARROW.get(op.name)
    if name is None or op.result is None or any(op.parts) or not all(map(_has_low, op.sources)):
        return None
    return form_of(*name.split("."))


def _has_low(source: Operand) -> bool:
    in_shared = isinstance(source, SymbolAddress) and source.slot.space == "shared"
    return in_shared or isinstance(source, (Reg, IntConstant))


def _wide_sources(op: Op) -> list[Reg]:
    return [source for source in op.sources if isinstance(source, Reg) and source.bits == _WIDE]


def _rebased(op: Op, halves: Mapping[int, Reg]) -> Op:
    """Access shared memory by the lower half of a register."""
    base = _wide_base(op)
    if base is None:
        return op
    return replace(op, sources=(replace(op.memory, base=halves[base.index]), *op.sources[1:]))


def _rewritten(ops: Sequence[Op], forms: Mapping[Op, Form], halves: Mapping[int, Reg]) -> Iterator[Op]:
    """Compute the halves; a result that no narrow form computes is cut behind its operation."""
    kept = _still_read(ops, forms, halves)
    for op in ops:
        made, form = [reg for reg in op.written if reg.index in halves], forms.get(op)
        if form is None or op.result is None or not made or op.result.index in kept:
            yield op
        for reg in made:
            sources = (reg,) if form is None else tuple(_low(source, halves) for source in op.sources)
            half = (halves[reg.index],)
            yield replace(op, form=form or _CUT, results=half, sources=sources, targets=(), parts=(), text="")


def _low(source: Operand, halves: Mapping[int, Reg]) -> Operand:
    if isinstance(source, IntConstant):
        return IntConstant((source.value + (1 << 31)) % (1 << 32) - (1 << 31))
    return halves[source.index] if isinstance(source, Reg) and source.bits == _WIDE else source


def _still_read(ops: Sequence[Op], forms: Mapping[Op, Form], halves: Mapping[int, Reg]) -> set[int]:
    """List the registers, by number, whose upper halves somebody reads."""
    replaced = {op for op in forms if op.result is not None and op.result.index in halves}
    read = {reg.index for op in ops if op not in replaced for reg in op.read_registers()}
    writers = writers_of(replaced)
    return closure(read, lambda reg: (r.index for op in writers.get(reg, ()) for r in op.read_registers()))
