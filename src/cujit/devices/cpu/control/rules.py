"""The whole table: every family's rules, and the check of a program against them."""

from __future__ import annotations

from collections.abc import Iterable

from cujit.devices.cpu.codegen.registry import NOT_YET, Rules, reason
from cujit.devices.cpu.codegen.special import SPECIAL_REGISTERS
from cujit.devices.cpu.frontend.operands import mismatch
from cujit.devices.cpu.instructions import (
    atomics,
    blocks,
    calls,
    compare,
    convert,
    floating,
    halves,
    integer,
    mbarrier,
    memory,
    textures,
    video,
    warpwide,
)
from cujit.devices.cpu.instructions.copies import bulk, tensor
from cujit.devices.cpu.instructions.matrix import mma, move, tensor_memory
from cujit.devices.cpu.ir.program import UNKNOWN_OPERAND, KernelProgram, Op, Operand, Special, parts_of
from cujit.devices.cpu.ir.refusals import Refusals
from cujit.forks import once
from cujit.formats.ptx.isa.table import special_register

_FAMILIES = (
    memory, integer, floating, compare, convert, halves, video, atomics, warpwide, blocks,
    mbarrier, bulk, tensor, mma, move, tensor_memory, textures, calls,
)  # fmt: skip


@once
def all_rules() -> Rules:
    """Build the table of rules, once."""
    rules = Rules()
    for family in _FAMILIES:
        family.register(rules)
    return rules


_GROUPS = frozenset({"cta_group::1", "cta_group::2"})


def check(program: KernelProgram, refusals: Refusals) -> None:
    """Record every operation without a rule, and every operand that a rule cannot read."""
    rules = all_rules()
    for op in program.ops:
        if op.form.is_jump:
            continue
        rule = rules.find(op)
        if rule is None:
            why = calls.refusal_of(op.modifiers[0]) if op.opcode == "call.extern" else reason(op.form) or NOT_YET
            refusals.add(op.line, op.text or op.name, why)
            continue
        wrong = mismatch(op)
        if wrong is not None:
            refusals.mistake(op.line, op.text or op.name, *wrong)
        if not rule.takes_parts(op.parts):
            refusals.mistake(op.line, op.text or op.name, "a part of a register, or one with its sign changed")
        for source in op.sources:
            _check_operand(op, source, refusals)
        # Registers of other sizes than the ISA's are not there.
        for reg in (*op.read_registers(), *op.written):
            if reg.bits not in (1, 8, 16, 32, 64, 128):
                refusals.add(op.line, op.text or op.name, f"registers of {reg.bits} bits")


def check_groups(programs: Iterable[KernelProgram], refusals: Refusals) -> None:
    """Record an error if a kernel has tensor-memory instructions for one block and others for a pair of blocks.

    Source: PTX ISA 9.1, "tcgen05.alloc"; ptxas 13.0.
    """
    tensor = [op for program in programs for op in program.ops if op.opcode == "tcgen05"]
    first = {group: op for group in _GROUPS for op in reversed(tensor) if group in op.modifiers}
    if len(first) > 1:
        before, wrong = sorted(first.values(), key=lambda op: op.line)
        (group,) = _GROUPS.intersection(before.modifiers)
        why = f"a kernel has one .cta_group in all of its tcgen05 instructions, and line {before.line} has .{group}"
        refusals.mistake(wrong.line, wrong.text or wrong.name, why, f"Write .{group} here, or the other group there.")


def _check_operand(op: Op, operand: Operand, refusals: Refusals) -> None:
    if isinstance(operand, Special) and operand.name not in SPECIAL_REGISTERS and operand != UNKNOWN_OPERAND:
        if special_register(f"%{operand.name}") is None:
            refusals.mistake(op.line, op.text or op.name, f"%{operand.name} is declared nowhere")
        else:
            refusals.add(op.line, f"%{operand.name}", "a special register that the CPU device does not have yet")
    for part in parts_of(operand):
        _check_operand(op, part, refusals)
