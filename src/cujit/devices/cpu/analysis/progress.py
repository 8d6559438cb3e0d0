"""Where lanes of one warp must be able to go on without each other.

    AGAIN: ld.volatile.u32 x, [flag];      the loop polls: it may wait for what another lane stores,
        setp.eq.u32 p, x, 0;         ->    so that lanes do not converge in it,
        @p bra AGAIN;                      nor behind it
        st.global.u32 [q], x;

Lanes wait at a barrier or a ``.sync`` operation for lanes that took another way, and a loop that polls memory may wait
for what another lane of the same warp writes later on. So behind such a place the order of blocks does not keep lanes
together: they do not reconverge from there on, and every position that they can reach may be passed at different
times.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cujit.devices.cpu.analysis.dataflow import bits_of, closure, joined, reach
from cujit.devices.cpu.ir.cfg import Block, Graph, Loop
from cujit.devices.cpu.ir.program import Op, Reg

__all__ = ["find_non_reconverging", "polling_loops"]


def find_non_reconverging(graph: Graph, inactive: list[int], polls: Sequence[Loop], barriers: Sequence[int]) -> int:
    """Find the positions that lanes pass at different times; add them to where lanes wait.

    ``polls`` are polling loops that not all lanes are in at a time, ``barriers`` positions of barriers that some
    lanes wait at and others pass by.
    """
    inside = [position for loop in polls for position in range(loop.head, loop.last + 1)]
    starts = joined(1 << position for position in (*barriers, *inside))
    for block in graph.blocks:
        if block.site is not None and inactive[block.position]:
            starts |= 1 << block.position | inactive[block.position]
    found = reach(starts, graph.exit, graph.successors())
    for position in bits_of(found):
        inactive[position] |= found
    return found


def polling_loops(graph: Graph) -> list[Loop]:
    """Find the loops that end when another thread writes something: their way out depends on memory read anew."""
    return [loop for loop in graph.loops if _polls(graph.blocks[loop.head : loop.last + 1], loop)]


def _polls(inside: list[Block], loop: Loop) -> bool:
    ops = [op for block in inside for op in block.ops]
    if any(op.opcode == "nanosleep" for op in ops):
        return True
    polled = [op for op in ops if op.form.is_poll and not _is_retry(op, ops)]
    if any(op.opcode == "call.function" for op in ops):
        # What a function gave may be memory that others write, which it looked at.
        polled += [op for op in ops if op.opcode == "ld" and op.space == "local"]
    leaving = (b.branch for b in inside if b.branch is not None and any(s not in loop for s in b.successors))
    deciding = _origins((r for branch in leaving for r in branch.read_registers()), ops) if polled else set()
    return any(r in deciding for op in polled for r in op.written)


def _origins(registers: Iterable[Reg], ops: Sequence[Op]) -> set[Reg]:
    """Collect the registers that some are made from by operations of a loop, themselves included."""
    made_from: dict[Reg, list[Reg]] = {}
    for op in ops:
        for r in op.written:
            made_from.setdefault(r, []).extend(op.read_registers())
    return closure(registers, lambda reg: made_from.get(reg, ()))


def _is_retry(op: Op, ops: list[Op]) -> bool:
    """Tell whether it is a ``cas`` that tries again with what it found: somebody always succeeds.

    One that compares with anything else is a lock, and waits for another thread.
    """
    if op.opcode != "atom" or "cas" not in op.modifiers:
        return False
    compared = op.sources[1]
    return isinstance(compared, Reg) and not _origins([compared], ops).isdisjoint(op.written)
