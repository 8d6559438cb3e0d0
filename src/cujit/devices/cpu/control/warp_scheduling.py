"""Loops over memory in which warps take turns, so that the warps read long pieces of memory.

    for (i = first; i < n; i += all)           walk.1:  loads the kept values of this warp; continues at all.1
        sum += x[i];                           all.1:   an iteration of the loop
                                       ->      all.again.1: every 8 iterations, keeps sum, i and the loop; warp.end
                                               round.end: all warps again, while some have iterations left

A grid-stride loop jumps from a short piece of memory to a distant piece. If each warp ran its whole loop alone, the
processor would see no pattern in the reads, and the pieces would use few sets of its cache. With turns, a block reads a
piece of 1 KiB at 8 places, then at the next places. If blocks have no shared memory, several blocks read longer pieces
together. If warps have stacks, they switch stacks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from cujit.devices.cpu.analysis.dataflow import live_in
from cujit.devices.cpu.analysis.uniformity import WARP
from cujit.devices.cpu.codegen.builder import Builder, Value
from cujit.devices.cpu.codegen.nodes import BLOCK, STATE, WARP_NUMBER
from cujit.devices.cpu.codegen.warp import ALL_LANES, WarpEmitter, forms_of
from cujit.devices.cpu.control.regions import RegionBoundary, load_kept, store_kept, type_kept
from cujit.devices.cpu.ir.cfg import Loop
from cujit.devices.cpu.ir.program import Reg
from cujit.values import dataclass, field

_TURNS = 8
"""Turns before the next warp goes on.

Source: measured on an Emerald Rapids with blocks of 8 warps that go 256 KiB a turn: 4 turns take up to 1.3 times as
long, 16 as long. With stacks, on a Zen 5, 64 warps that go 8 KiB a turn take 0.2 of the time of all turns at once with
4, 0.3 with 8 and 0.5 with 16, to which changing stacks adds.
"""

_WARPS = 128
"""Warps that take turns, of several blocks where these are small: what they read in a turn is 16 KiB for words.

Source: measured as above: ``y[i] += a * x[i]`` takes 0.42 of the time of all turns at once, with 32 warps 0.48, with 8
0.65.
"""

_MOST_KEPT_BYTES = 1 << 16
"""What all of them keep, which is to stay in the second cache."""

_AT, _MORE, _ENDED = "%walk.at", "%walk.more", -1
"""In which loop each warp goes on, or that it has ended; and whether any has turns left."""

_FIRST = Value("%walk.first", "i1")
"""Whether warps begin: it is the first round. What has few turns costs no more then."""

_GROUP = Value("%group", "i64")
"""The first block of those whose warps take turns."""


@dataclass(frozen=True)
class Walks:
    """The loops in which warps take turns. ``kept`` maps the head of each loop to the registers that are read after the
    head.

    Warps of ``blocks`` blocks take turns with each other.
    """

    kept: Mapping[int, Sequence[Reg]] = field(default_factory=dict)
    blocks: int = 1


NO_WALKS = Walks()
"""No loop in which warps take turns."""


def find_walks(e: WarpEmitter, parts: bool, together: Container[int], boundary: RegionBoundary | None) -> Walks:
    """Find innermost loops that iterate over global memory, without effects that other blocks see before the loops end.

    The other parameters are as in a ``ControlPlan``.
    """
    loops = _innermost(e, together) if _may_take_turns(e, parts, boundary) else []
    kept = _kept(e, [loop.head for loop in loops if _goes_over_memory(e, loop)], boundary)
    if e.suspends or not kept:
        return Walks(kept)
    warps, room = e.warps, _MOST_KEPT_BYTES // max(1, *(_bytes_of(e, each) for each in kept.values()))
    blocks = 1 if boundary is not None or _has_shared(e) else max(1, min(room, _WARPS) // warps)
    return Walks(kept, blocks) if 1 < warps * blocks <= room else NO_WALKS


def _may_take_turns(e: WarpEmitter, parts: bool, boundary: RegionBoundary | None) -> bool:
    """Return whether there are blocks for warps whose lanes are all active, and the state of such a warp is private."""
    uneven = e.block.volume % WARP != 0 or (boundary is not None and boundary.fission.keeps_masks)
    shares = e.counts_lanes or (boundary is None and e.program.local_size > 0)
    return not (e.watched or e.is_function or (uneven and not parts)) and (e.suspends or not shares)


def _innermost(e: WarpEmitter, together: Container[int]) -> list[Loop]:
    outer = {loop.parent for loop in e.graph.loops}
    return [loop for loop in e.graph.loops if loop not in outer and loop.head in together]


def _kept(e: WarpEmitter, heads: Sequence[int], boundary: RegionBoundary | None) -> dict[int, list[Reg]]:
    """Return, for the head of each loop, the registers that are read after the head, including reads
    in later regions.
    """
    if not heads:
        return {}
    live, later = live_in(e.graph), 0 if boundary is None else boundary.handed_on
    registers = [reg for reg in e.program.registers if reg.index not in e.divergence.constants]
    return {head: [reg for reg in registers if (live[head] | later) >> reg.index & 1] for head in heads}


def _goes_over_memory(e: WarpEmitter, loop: Loop) -> bool:
    """Return whether all lanes of the warp access adjacent elements, at a different place in each iteration of a loop.

    A loop with an operation that other threads can observe does not count.
    """
    ops = [op for b in e.graph.blocks[loop.head : loop.last + 1] for op in b.ops]
    moved = {r for op in ops for r in op.written}
    accesses = [op for op in ops if op.opcode in ("ld", "st") and op.space in ("global", "generic")]
    places = [(op.memory.base, op.type.bits // 8) for op in accesses]
    found = any(base in moved and e.operand_shape(base).stride == size for base, size in places)
    return found and not any(op.form.tells_others and (e.suspends or op.space != "shared") for op in ops)


def _has_shared(e: WarpEmitter) -> bool:
    return e.program.shared_size > 0 or any(op.space == "shared" for op in e.program.ops)


def _bytes_of(e: WarpEmitter, kept: Iterable[Reg]) -> int:
    return sum(reg.bits * (WARP if form == "v" else 1) for reg in kept for form, _ in _forms(e, reg)) // 8


def _forms(e: WarpEmitter, reg: Reg) -> list[tuple[str, str]]:
    """List the forms of a register that must be kept. Lent vectors are already in memory."""
    return [(form, type_) for form, type_ in forms_of(e, reg) if form != "v" or reg.index not in e.lent]


# -- in a warp --------------------------------------------------------------------------------------------


def yield_warp(e: WarpEmitter, walks: Walks, head: int) -> None:
    """Let the other warps run every few iterations, at the head of a loop. Then start another iteration."""
    b, again = e.builder, f"all.{head}"
    turns = b.binary("add", b.read("walk.turns", "i32"), b.integer(1, 32))
    b.write("walk.turns", turns)
    some_turns = b.binary("and", turns, b.integer(_TURNS - 1, 32))
    b.only_if(b.compare("icmp eq", some_turns, b.integer(0, 32)), again, "pass")
    if e.suspends:
        b.call("cujit_pass", "void", STATE, WARP_NUMBER)
        b.jump(again)
        return
    for reg in walks.kept[head]:
        for form, type_ in _forms(e, reg):
            store_kept(e, reg, form, _place(e, walks, f"%walk.{reg.index}.{form}", type_kept(type_)))
    b.store(b.integer(head, 32), _place(e, walks, _AT, "i32"))
    b.store(b.integer(1, 32), _MORE)
    b.jump("warp.end")


def resume(e: WarpEmitter, walks: Walks, masks: Iterable[str]) -> None:
    """Resume a warp in the loop in which it let other warps run. Code emitted after this call is for warps that start.

    All lanes of a resumed warp are active, so each of ``masks`` is set to all lanes.
    """
    b = e.builder
    b.reserve(_MORE, "i32")
    b.branch(_FIRST, "walk.begin", "walk.on")
    b.start("walk.on")
    at = _place(e, walks, _AT, "i32")
    number = b.load("i32", at)
    b.store(b.integer(_ENDED, 32), at)
    b.switch(number, ((head, f"walk.{head}") for head in walks.kept), "warp.end")
    for head, kept in walks.kept.items():
        b.start(f"walk.{head}")
        for mask in masks:
            b.write(mask, ALL_LANES)
        for reg in kept:
            for form, type_ in _forms(e, reg):
                load_kept(e, reg, form, type_, _place(e, walks, f"%walk.{reg.index}.{form}", type_kept(type_)))
        b.jump(f"all.{head}")
    b.start("walk.begin")


def _place(e: WarpEmitter, walks: Walks, name: str, type_: str) -> Value:
    """Return a pointer to a value that this warp keeps, in an array for all warps that take turns."""
    b, number = e.builder, WARP_NUMBER
    if walks.blocks > 1:
        before = b.cast("trunc", b.binary("sub", BLOCK, _GROUP), "i32")
        number = b.binary("add", b.binary("mul", before, b.integer(e.warps, 32)), WARP_NUMBER)
    b.reserve(name, f"[{walks.blocks * e.warps} x {type_}]")
    return b.point(type_, name, number)


# -- around the warps -------------------------------------------------------------------------------------


@contextlib.contextmanager
def in_rounds(b: Builder, e: WarpEmitter, walks: Walks, behind: str) -> Iterator[str]:
    """Repeat the code emitted in this context, which runs all warps, while any warp has iterations left.

    Yield the label to which the code branches at its end.
    """
    before, size = b.here, b.integer(4 * walks.blocks * e.warps, 64)
    b.call("llvm.memset.p0.i64", "void", Value(_AT, "ptr"), b.integer(_ENDED, 8), size, b.integer(0, 1))
    b.start("round")
    b.phi(_FIRST, ("true", before), ("false", "round.end"), into=_FIRST.text)
    b.store(b.integer(0, 32), _MORE)
    yield "round.end"
    b.start("round.end")
    b.branch(b.compare("icmp ne", b.load("i32", _MORE), b.integer(0, 32)), "round", behind)


@contextlib.contextmanager
def in_groups(
    b: Builder, e: WarpEmitter, walks: Walks, first: Value, limit: Value, behind: str
) -> Iterator[tuple[Value, Value, str]]:
    """Put the code emitted in this context into a loop over groups of blocks.

    Yield the first block of the group, the end of the group, and the label to which the code branches at its end. If
    warps of several blocks do not take turns, there is one group.
    """
    before = b.here
    if walks.blocks == 1:
        yield first, limit, behind
        return
    b.start("group.start")
    b.phi(_GROUP, (first, before), ("%group.next", "group.end"), into=_GROUP.text)
    end = b.intrinsic("umin", b.binary("add", _GROUP, b.integer(walks.blocks, 64)), limit)
    b.binary("add", end, b.integer(0, 64), into="%group.next")
    with in_rounds(b, e, walks, "group.end") as round_end:
        yield _GROUP, end, round_end
    b.start("group.end")
    b.branch(b.compare("icmp ult", end, limit), "group.start", behind)
