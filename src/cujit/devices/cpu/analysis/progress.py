"""Where lanes of one warp must be able to go on without each other.

    AGAIN: ld.volatile.u32 x, [flag];      the loop polls: it may wait for what another lane stores,
        setp.eq.u32 p, x, 0;         ->    so that lanes do not converge in it,
        @p bra AGAIN;                      nor behind it
        st.global.u32 [q], x;

Lanes wait at a barrier or a ``.sync`` operation for lanes that took another way, and a loop that polls memory may wait
for what another lane of the same warp writes later on. So behind such a place the order of blocks does not keep lanes
together: they are *loose* from there on, and every position that they can reach may be passed at different times.
"""

from __future__ import annotations

from collections.abc import Sequence

from cujit.devices.cpu.ir.cfg import Block, Graph, Loop
from cujit.devices.cpu.ir.program import Op, Reg

__all__ = ["bits_of", "loosen", "needs_stack", "polling_loops", "same_operations"]


def needs_stack(graph: Graph) -> bool:
    """Tell whether a warp needs a stack of its own: it may stop half-way and let others run, or takes memory of it."""
    ops = [op for block in graph.blocks for op in block.ops]
    return any(op.form.is_barrier or op.opcode == "alloca" for op in ops) or bool(polling_loops(graph))


def bits_of(mask: int) -> list[int]:
    """List the bits that are set in a mask."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


def loosen(graph: Graph, waiting: list[int], polls: Sequence[Loop], barriers: Sequence[int]) -> int:
    """Find the positions that lanes pass at different times; add them to where lanes wait.

    ``polls`` are polling loops that not all lanes are in at a time, ``barriers`` positions of barriers that some
    lanes wait at and others pass by.
    """
    starts = 0
    for position in barriers:
        starts |= 1 << position
    for block in graph.blocks:
        if block.site is not None and waiting[block.position]:
            starts |= 1 << block.position | waiting[block.position]
    for loop in polls:
        for position in range(loop.head, loop.last + 1):
            starts |= 1 << position
    loose = _reachable(graph, starts)
    for position in bits_of(loose):
        waiting[position] |= loose
    return loose


def _reachable(graph: Graph, starts: int) -> int:
    successors = graph.successors()
    seen = starts
    todo = bits_of(starts)
    while todo:
        for s in successors[todo.pop()]:
            if s != graph.exit and not seen >> s & 1:
                seen |= 1 << s
                todo.append(s)
    return seen


def same_operations(sites: Sequence[Block], twins: Sequence[int | None]) -> list[list[Block]]:
    """Find places of the same operation at which lanes may wait for each other, each at its own.

    Source: CUDA C++ Programming Guide, "Warp Shuffle Functions" and its neighbours: the lanes that a mask names have
    to execute the same operation with the same mask; the manual does not ask that it stands in one place. Where all
    lanes pass all places in turn, they wait at each for the last of them: ``twins`` are as of ``control_equivalent``.
    """
    found: dict[tuple[str, ...], list[Block]] = {}
    for block in sites:
        if block.site is not None and block.site.form.names_members:
            found.setdefault((block.site.opcode, *block.site.modifiers), []).append(block)
    passed = [p if twin is None else twin for p, twin in enumerate(twins)]
    return [places for places in found.values() if len({passed[block.position] for block in places}) > 1]


def polling_loops(graph: Graph) -> list[Loop]:
    """Find the loops that end when another thread writes something: their way out depends on memory read anew."""
    return [loop for loop in graph.loops if _polls(graph.blocks[loop.head : loop.last + 1], loop)]


def _polls(inside: list[Block], loop: Loop) -> bool:
    ops = [op for block in inside for op in block.ops]
    if any(op.opcode == "nanosleep" for op in ops):
        return True
    polled = [op for op in ops if op.form.is_poll and not _is_retry(op, ops)]
    called = any(op.opcode == "call.function" for op in ops)
    if not polled and not called:
        return False
    deciding = _slice(inside, loop, ops)
    if called and any(r in deciding for op in ops if _is_result(op) for r in op.results if r is not None):
        return True
    return any(r in deciding for op in polled for r in op.results if r is not None)


def _is_result(op: Op) -> bool:
    """Tell whether an operation may read what a function gave: it may have looked at memory that others write."""
    return op.opcode == "ld" and op.space == "local"


def _slice(inside: list[Block], loop: Loop, ops: list[Op]) -> set[Reg]:
    """Collect the registers that the decision to leave the loop depends on."""
    deciding: set[Reg] = set()
    for block in inside:
        branch = block.branch
        if branch is not None and any(s not in loop for s in block.successors):
            deciding.update(branch.read_registers())
    return _depends_on(deciding, ops)


def _depends_on(registers: set[Reg], ops: list[Op]) -> set[Reg]:
    """Add the registers that some operations compute these from."""
    found = set(registers)
    changed = True
    while changed:
        changed = False
        for op in ops:
            if any(r in found for r in op.results if r is not None):
                new = set(op.read_registers()) - found
                if new:
                    found |= new
                    changed = True
    return found


def _is_retry(op: Op, ops: list[Op]) -> bool:
    """Tell whether it is a ``cas`` that tries again with what it found: somebody always succeeds.

    One that compares with anything else is a lock, and waits for another thread.
    """
    if op.opcode != "atom" or "cas" not in op.modifiers:
        return False
    compared = op.sources[1]
    return isinstance(compared, Reg) and bool(set(op.results) & _origins(compared, ops))


def _origins(register: Reg, ops: list[Op]) -> set[Reg | None]:
    """Collect the registers that a value is made from inside a loop, itself included."""
    found: set[Reg | None] = {register}
    todo = [register]
    while todo:
        reg = todo.pop()
        for op in ops:
            if reg in op.results:
                new = set(op.read_registers()) - found
                found |= new
                todo += new
    return found
