"""A launch that the host ended: where its blocks and warps stood."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from cujit.devices.cpu.native.structures import Block, FaultKind, Stand, Stands, State
from cujit.devices.cpu.run.deadlock import ranges, waiting
from cujit.devices.cpu.run.launch import Launch, release

__all__ = ["ENDED", "Report", "let_go", "report"]

ENDED = (FaultKind.CANCELLED, FaultKind.TIMEOUT, FaultKind.INTERRUPTED)
"""Launches that the host ended."""

_MOST = 8
"""Places that a message lists."""

_NO_BLOCK = (1 << 64) - 1


class Report(NamedTuple):
    """What is said: ``text``, what to try, and the number of the first block and its PTX line (0: not known)."""

    text: str
    help: str
    block: int | None
    line: int


def report(launch: Launch, words_of: Callable[[int], str], line_of: Callable[[int], int]) -> Report:
    """Say where the threads of a launch stood.

    ``words_of`` describes a line of the PTX, ``line_of`` finds that of an address in the machine code (0: not known).
    """
    stands = Stands.from_address(launch.stands) if launch.stands else Stands()
    each = stands.each[: min(stands.count, len(stands.each))]
    places = [place for stand in each for place in _places(stand, launch, words_of, line_of)]
    told = [f"    {place.text}" for place in places[:_MOST]]
    more = [f"    and {len(places) - _MOST} more"] if len(places) > _MOST else []
    begun = min(launch.begun, launch.blocks)
    left = launch.blocks - begun
    counts = [f"    {left} of {launch.blocks} blocks had not begun"] if left else []
    first = next((place for place in places if place.line), next(iter(places), None))
    return Report(
        "\n".join([_why(launch), *told, *more, *counts]),
        _help(launch, any(place.waits for place in places)),
        None if first is None else first.block,
        0 if first is None else first.line,
    )


def let_go(launch: Launch) -> None:
    """Give back the memory of what was noted."""
    if not launch.stands:
        return
    stands = Stands.from_address(launch.stands)
    for stand in stands.each[: min(stands.count, len(stands.each))]:
        release(stand.blocks)
    release(launch.stands)
    launch.stands = 0


class _Place(NamedTuple):
    """Where some warps of a block stood; ``waits`` tells that they wait for something that others do."""

    text: str
    block: int
    line: int
    waits: bool


def _why(launch: Launch) -> str:
    if launch.fault_kind == FaultKind.TIMEOUT:
        return f"it ran longer than timeout_s={launch.timeout_ns / 1e9:g}"
    return "it was cancelled" if launch.fault_kind == FaultKind.CANCELLED else "it was interrupted"


def _help(launch: Launch, waits: bool) -> str:
    if waits and launch.together == 1 and launch.blocks > 1:
        return (
            "blocks begin in the order of their numbers: one that waits for a later one waits for ever, unless all run "
            "side by side: kernel.prepare(grid, block, cooperative=True)"
        )
    return "see what ends the loop, and whether anybody writes what it waits for; or give the launch more time"


def _places(
    stand: Stand, launch: Launch, words_of: Callable[[int], str], line_of: Callable[[int], int]
) -> Iterator[_Place]:
    """List where the warps stood that a thread ran; of a thread that runs no block nothing."""
    line = line_of(stand.pc) if stand.pc else 0
    if not stand.blocks:
        if stand.block != _NO_BLOCK:
            warp = f", warp {stand.warp}" if stand.warp >= 0 else ""
            yield _Place(f"block {launch.place(stand.block)}{warp} ran{_at(line, words_of)}", stand.block, line, False)
        return
    for block in (Block * stand.count).from_address(stand.blocks):
        running = block.running if block.number == stand.block and stand.pc else None
        yield from _of_block(block, running, line, launch, words_of)


def _of_block(
    block: Block, running: int | None, line: int, launch: Launch, words_of: Callable[[int], str]
) -> Iterator[_Place]:
    """List where the warps of one block stood; ``running`` is the one that ran, at ``line``."""
    name = f"block {launch.place(block.number)}"
    if running is not None:
        warp = block.warp[running]
        spins = warp.state == State.SPINNING
        where = _at(line or (warp.line if spins else 0), words_of)
        yield _Place(f"{name}, warp {running} ran{where}", block.number, line or warp.line * spins, spins)
    spinning: dict[int, list[int]] = {}
    for number in range(block.warps):
        if number != running and block.warp[number].state == State.SPINNING:
            spinning.setdefault(block.warp[number].line, []).append(number)
    for at, warps in spinning.items():
        who = f"warp{'s' * (len(warps) > 1)} {ranges(warps)} look{'s' * (len(warps) == 1)} again and again"
        yield _Place(f"{name}, {who}{_at(at, words_of)}", block.number, at, True)
    for text, at in waiting(block, words_of, running):
        yield _Place(f"{name}, {text}", block.number, at, True)


def _at(line: int, words_of: Callable[[int], str]) -> str:
    return f" at {words_of(line)}" if line else ""
