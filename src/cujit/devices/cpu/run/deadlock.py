"""Launches in which nobody goes on: who waits where."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable

from cujit.devices.cpu.native.structures import Block, FaultKind, Meeting, State
from cujit.devices.cpu.run.launch import Launch, release

__all__ = ["explain", "ranges", "waiting"]

_MOST = 8
"""Groups of waiting threads that a message lists."""


def explain(launch: Launch, words_of: Callable[[int], str]) -> str | None:
    """Say which threads wait at which line, for what barrier or lanes; None for other faults.

    ``words_of`` describes a line of the PTX.
    """
    if launch.fault_kind == FaultKind.LANES_APART:
        places = (Meeting * (Launch.fault_more.size // ctypes.sizeof(Meeting))).from_buffer_copy(launch.fault_more)
        apart = _apart([(launch.fault_thread // 32, place) for place in places], words_of)
        found = [f"    {text}" for text, _ in apart]
        return "\n".join(["lanes of one warp wait for each other at different .sync operations:", *found])
    if launch.fault_kind != FaultKind.DEADLOCK or not launch.fault_more[0]:
        return None
    blocks = (Block * launch.fault_more[1]).from_address(launch.fault_more[0])
    found = [f"    {text}" for block in blocks for text, _ in waiting(block, words_of)]
    release(launch.fault_more[0])
    launch.fault_more[0] = 0
    more = [f"    and {len(found) - _MOST} more"] if len(found) > _MOST else []
    return "\n".join(["every thread that is left waits, and none can go on:", *found[:_MOST], *more])


def waiting(block: Block, words_of: Callable[[int], str], but: int | None = None) -> list[tuple[str, int]]:
    """Describe the warps of a block that wait, ``but`` one: those at the same place together, each with its line."""
    warps = [w for w in range(block.warps) if block.warp[w].state == State.WAITING and w != but]
    places: dict[tuple[int, int], list[int]] = {}
    for warp in warps:
        state = block.warp[warp]
        threads = places.setdefault((state.barrier, state.line), [])
        threads += [32 * warp + lane for lane in range(32) if state.lanes >> lane & 1]
    exited = f"; {block.exited} have exited" if block.exited else ""
    lines = []
    for (number, line), threads in places.items():
        at = f"barrier {number}" if number >= 0 else "barriers"
        if number >= 0:
            barrier = block.barriers[number]
            wanted = barrier.expected or block.threads - block.exited
            at += f", where {barrier.arrived} of {wanted} threads have arrived"
        lines.append((f"threads {ranges(threads)} at {at}{exited}: {words_of(line)}", line))
    return lines + _apart([(w, place) for w in warps for place in block.warp[w].apart], words_of)


def _apart(places: Iterable[tuple[int, Meeting]], words_of: Callable[[int], str]) -> list[tuple[str, int]]:
    """Describe the places where lanes of a warp wait for others of it; the warp's number comes with each."""
    threads: dict[tuple[int, int], list[int]] = {}
    for warp, place in places:
        if place.lanes:
            here = threads.setdefault((place.line, place.members), [])
            here += [32 * warp + lane for lane in range(32) if place.lanes >> lane & 1]
    return [
        (f"threads {ranges(numbers)}, with the lanes of mask {members:#010x}: {words_of(line)}", line)
        for (line, members), numbers in threads.items()
    ]


def ranges(numbers: list[int]) -> str:
    """Write numbers as ranges: 0-31, 40."""
    spans: list[list[int]] = []
    for n in sorted(numbers):
        if spans and n == spans[-1][1] + 1:
            spans[-1][1] = n
        else:
            spans.append([n, n])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in spans)
