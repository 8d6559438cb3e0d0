"""Reads of registers that ``tcgen05.ld`` may not have written yet: no ``tcgen05.wait::ld`` is sure to come before them.

        tcgen05.ld.… {a}, [t];
    @p  tcgen05.wait::ld.…;
        tcgen05.unwaited LINE;           <- added; at run time it sees whether the warp has waited
        add.f32 b, a, a;

Compilers move arithmetic over the wait: Triton's kernels convert registers before it. Where a wait follows in the same
basic block, a read counts as one that the source has behind the wait.

PTX ISA 9.1, 9.7.16.6.4.2 "Asynchronous tcgen05 instructions and their completion".
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from cujit.devices.cpu.analysis.dataflow import solve
from cujit.devices.cpu.ir.cfg import BasicBlock, ControlFlowGraph
from cujit.devices.cpu.ir.program import IntConstant, Op, bits_in, registers_in
from cujit.formats.ptx.isa.semantics import form_of

_MOVES = ("mov", "mov.join", "mov.split")
"""Opcodes of operations that only give registers another name."""

_State = dict[int, int]
"""The registers that may still be loaded, as bits, by the line of their load."""


def watch_loads(ops: list[Op], graph: ControlFlowGraph) -> bool:
    """Add an operation before each read that may come too early. Return whether there are any."""
    if not any(_loads(op) for op in ops):
        return False
    early = _early_reads(graph)
    if early:
        ops[:] = [each for op in ops for each in (*(_watch(op, line) for line in early.get(id(op), ())), op)]
    return bool(early)


def _loads(op: Op) -> bool:
    return op.opcode == "tcgen05" and "ld" in op.modifiers


def _watch(op: Op, line: int) -> Op:
    sources = (IntConstant(line),)
    guard, negated = op.guard, op.guard_negated
    return Op(form_of("tcgen05.unwaited"), (), sources, guard, negated, line=op.line, text=op.text)


def _early_reads(graph: ControlFlowGraph) -> dict[int, list[int]]:
    """List, by the identity of an operation, the lines of loads whose results it may read too early."""
    after: list[_State] = [{} for _ in graph.blocks]

    def before(position: int) -> _State:
        state: _State = {}
        for p in graph.blocks[position].predecessors:
            for line, registers in after[p].items():
                state[line] = state.get(line, 0) | registers
        return state

    def transfer(position: int) -> bool:
        state = before(position)
        _pass(graph.blocks[position].ops, state, {}, -1)
        was, after[position] = after[position], state
        return was != state

    solve(range(len(graph.blocks)), transfer)
    found: dict[int, list[int]] = {}
    for block in graph.blocks:
        _pass(block.ops, before(block.position), found, _last_wait(graph, block))
    return found


def _last_wait(graph: ControlFlowGraph, block: BasicBlock) -> int:
    """Return the place of the last wait in a block; the end of the block if one follows on the only way on."""
    last = max((k for k, op in enumerate(block.ops) if _waits(op)), default=-1)
    while len(block.successors) == 1 and block.successors[0] != graph.exit:
        block = graph.blocks[block.successors[0]]
        if len(block.predecessors) > 1 or block.barrier is not None:
            break
        if any(_waits(op) for op in block.ops):
            return sys.maxsize
    return last


def _waits(op: Op) -> bool:
    return op.opcode == "tcgen05" and "wait::ld" in op.modifiers and op.guard is None


def _pass(ops: Sequence[Op], state: _State, found: dict[int, list[int]], last: int) -> None:
    """Follow operations, and note those behind the last wait that read what may still be loaded."""
    for k, op in enumerate(ops):
        read = bits_in(reg for source in op.sources for reg in registers_in(source))
        read |= bits_in([op.guard] if op.guard is not None else [])
        lines = [line for line, registers in state.items() if registers & read]
        moves = op.opcode in _MOVES
        if lines and not moves and k > last:
            found[id(op)] = lines
        if _waits(op):
            state.clear()
        elif op.guard is None:
            for line in state:
                state[line] &= ~op.writes
        for line in lines if moves else ():
            state[line] |= op.writes
        if _loads(op):
            state[op.line] = state.get(op.line, 0) | op.writes
