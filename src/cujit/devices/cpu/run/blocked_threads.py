"""The positions of a launch's blocks and warps when the launch deadlocked or the host ended it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator

from cujit.devices.cpu.native.structures import (
    AT_CLUSTER,
    AT_PHASE,
    BARRIERS,
    GROUP_WARPS,
    MBARRIER_BYTES,
    MBARRIER_BYTES_AT,
    MBARRIER_COUNT,
    MBARRIER_NEXT_AT,
    MBARRIER_PHASE_AT,
    Block,
    FaultKind,
    Meeting,
    Stand,
    Stands,
    State,
)
from cujit.devices.cpu.run.launch import Launch, release
from cujit.devices.shapes import WARP
from cujit.errors import counted
from cujit.errors.stories import Story, StoryStep
from cujit.values import NamedTuple, group_by

_MOST = 8
"""Places that a message lists."""

# -- nobody goes on: who waits where ------------------------------------------------------------------------


def stuck(launch: Launch, words_of: Callable[[int], str]) -> str | None:
    """Describe which threads wait, at which lines, and for which barrier or lanes. Return None for other faults.

    ``words_of`` describes a line of the PTX.
    """
    if launch.fault_kind == FaultKind.LANES_APART:
        places = (Meeting * (Launch.fault_more.size // ctypes.sizeof(Meeting))).from_buffer_copy(launch.fault_more)
        lane_lines = _split_lanes([(launch.fault_thread // 32, place) for place in places], words_of)
        found = [f"    {text}" for text, _ in lane_lines]
        return "\n".join(["lanes of one warp wait for each other at different .sync operations:", *found])
    if launch.fault_kind == FaultKind.WARPS_APART:
        return _split_warps(launch, words_of)
    if launch.fault_kind != FaultKind.DEADLOCK or not launch.fault_more[0]:
        return None
    blocks = (Block * launch.fault_more[1]).from_address(launch.fault_more[0])
    names = [f"block {launch.place(block.number)}, " if len(blocks) > 1 else "" for block in blocks]
    both = list(zip(names, blocks, strict=True))
    found = [f"    {name}{text}" for name, block in both for text in _polling(block, words_of)]
    found += [f"    {name}{text}" for name, block in both for text, _ in _waiting(block, words_of)]
    release(launch.fault_more[0])
    launch.fault_more[0] = 0
    return "\n".join(["every remaining thread is waiting, and none can continue:", *_first_of(found)])


def _split_warps(launch: Launch, words_of: Callable[[int], str]) -> str:
    """Describe which warps of a warpgroup wait, which have exited, and how many warps there are."""
    (waiting, line, done, warps, *_), warp = launch.fault_more, launch.fault_thread // WARP
    first = warp // GROUP_WARPS * GROUP_WARPS
    last = first + GROUP_WARPS - 1
    found = [f"warp {warp} reached {words_of(launch.fault_line)}"] if launch.fault_line else []
    if waiting:
        found.insert(0, f"{_warps(first, waiting)} waited at {words_of(line)}")
    if done:
        found.append(f"{_warps(first, done)} exited")
    if last >= warps:
        found.append(f"the block has {warps} warp{'s' * (warps > 1)}")
    what = f"the warps of a warpgroup, warps {first}-{last}, did not all reach the same instruction:"
    return "\n".join([what, *(f"    {text}" for text in found)])


def _warps(first: int, bits: int) -> str:
    warps = [first + k for k in range(GROUP_WARPS) if bits >> k & 1]
    return _named("warp", warps)


def _first_of(lines: list[str]) -> list[str]:
    return lines if len(lines) <= _MOST else [*lines[:_MOST], f"    and {len(lines) - _MOST} more"]


def _waiting(block: Block, words_of: Callable[[int], str], but: int | None = None) -> list[tuple[str, int]]:
    """Describe the waiting threads of a block, grouped by place, and return each description with its line.

    ``but`` is a warp to skip.
    """
    warps = [w for w in range(block.warps) if block.warp[w].state == State.WAITING and w != but]
    places = _at_barriers(block, warps)
    exited = f"; {block.exited} have exited" if block.exited else ""
    lines = [
        (f"threads {ranges(threads)} at {_barrier(block, number)}{exited}: {words_of(line)}", line)
        for (number, line), threads in places.items()
    ]
    polling = [w for w in range(block.warps) if block.warp[w].state == State.SPINNING and w != but]
    return lines + _split_lanes([(w, place) for w in warps + polling for place in block.warp[w].apart], words_of)


def _at_barriers(block: Block, warps: Iterable[int]) -> dict[tuple[int, int], list[int]]:
    """Group the threads of warps that wait at barriers, by the barrier and the line."""
    places: dict[tuple[int, int], list[int]] = {}
    for warp in warps:
        state = block.warp[warp]
        threads = places.setdefault((state.barrier, state.line), [])
        threads += [32 * warp + lane for lane in range(32) if state.lanes >> lane & 1]
    return places


def story_of(launch: Launch, place_of: Callable[[int], str]) -> Story | None:
    """Describe a deadlock as two groups of threads and the operations that they wait for.

    Return None for other faults and for a single group. ``place_of`` returns the place of a line of the PTX.
    """
    sides: list[tuple[str, str, int]] = []
    if launch.fault_kind == FaultKind.LANES_APART:
        meetings = (Meeting * (Launch.fault_more.size // ctypes.sizeof(Meeting))).from_buffer_copy(launch.fault_more)
        meant = _meeting_threads([(launch.fault_thread // 32, meeting) for meeting in meetings])
        sides = [(_named("thread", threads), "wait for other lanes", line) for (line, _), threads in meant.items()]
    elif launch.fault_kind == FaultKind.DEADLOCK and launch.fault_more[0]:
        block = (Block * launch.fault_more[1]).from_address(launch.fault_more[0])[0]
        waiting = [w for w in range(block.warps) if block.warp[w].state == State.WAITING]
        for (number, line), threads in _at_barriers(block, waiting).items():
            sides.append((_named("thread", threads), f"wait at {_barrier(block, number).partition(',')[0]}", line))
        sides += [(counted(block.exited, "other thread"), "exited", 0)] * bool(block.exited)
    if len(sides) < 2:
        return None
    steps = [StoryStep(k, does, place_of(line) if line else "") for k, (_, does, line) in enumerate(sides[:2])]
    return Story((sides[0][0], sides[1][0]), tuple(steps), "neither can continue", 2)


def _barrier(block: Block, number: int) -> str:
    """Describe the barrier with a number from ``Warp.barrier``, and how many threads or warps have arrived."""
    if number >= BARRIERS:
        group = block.warpgroups[number - BARRIERS]
        return f"a warpgroup instruction, where {group.warps.bit_count()} of {GROUP_WARPS} warps have arrived"
    if number < 0:
        return "the cluster barrier" if number == AT_CLUSTER else "barriers"
    barrier = block.barriers[number]
    wanted = barrier.expected or block.threads - block.exited
    return f"barrier {number}, where {barrier.arrived} of {wanted} threads have arrived"


def _polling(block: Block, words_of: Callable[[int], str]) -> Iterator[str]:
    """Describe the polling threads of a deadlock, and the mbarrier phase or write that they wait for."""
    waiting = [(n, block.warp[n]) for n in range(block.warps) if block.warp[n].state == State.SPINNING]
    for (line, at, place, word), warps in group_by(
        ((w.line, w.barrier, w.seen, w.tested) if w.barrier == AT_PHASE else (w.line, w.barrier, 0, 0), n)
        for n, w in waiting
    ).items():
        phase = f"at the mbarrier at byte {place:,} of shared memory, whose phase {word >> MBARRIER_PHASE_AT}"
        where = f"{phase} {_lacking(word)}" if at == AT_PHASE else "in a loop that a write to shared memory ends"
        threads = [32 * n + lane for n in warps for lane in range(32) if block.warp[n].lanes >> lane & 1]
        whole = len(threads) == 32 * len(warps)
        yield f"{_named('warp', warps) if whole else _named('thread', threads)} {where}: {words_of(line)}"


def _lacking(word: int) -> str:
    """Describe the missing or excess arrivals and bytes of an mbarrier's phase."""
    arrivals, bytes_ = word & MBARRIER_COUNT, word >> MBARRIER_BYTES_AT & MBARRIER_BYTES
    arrivals -= (MBARRIER_COUNT + 1) * (arrivals > word >> MBARRIER_NEXT_AT & MBARRIER_COUNT)
    bytes_ -= (MBARRIER_BYTES + 1) * (bytes_ > MBARRIER_BYTES >> 1)
    found = [(arrivals, "arrival"), (bytes_, "byte")]
    lacks = [counted(number, noun) for number, noun in found if number > 0]
    more = [counted(-number, noun) for number, noun in found if number < 0]
    parts = [f"lacks {' and '.join(lacks)}"] * bool(lacks) + [f"got {' and '.join(more)} too many"] * bool(more)
    return " but ".join(parts)


def _split_lanes(places: Iterable[tuple[int, Meeting]], words_of: Callable[[int], str]) -> list[tuple[str, int]]:
    """Describe the places where lanes wait for other lanes of their warp, each with its line.

    ``places`` pairs the numbers of warps with places.
    """
    return [
        (f"threads {ranges(numbers)}{_with(members)}: {words_of(line)}", line)
        for (line, members), numbers in _meeting_threads(places).items()
    ]


def _meeting_threads(places: Iterable[tuple[int, Meeting]]) -> dict[tuple[int, int], list[int]]:
    """Return the threads that wait for other lanes of their warp, grouped by line and member mask."""
    threads: dict[tuple[int, int], list[int]] = {}
    for warp, place in places:
        if place.lanes:
            here = threads.setdefault((place.line, place.members), [])
            here += [32 * warp + lane for lane in range(32) if place.lanes >> lane & 1]
    return threads


def _with(members: int) -> str:
    return f", with the lanes of mask {members:#010x}" if members else ""


def _named(noun: str, numbers: list[int]) -> str:
    """Return a noun and its numbers as ranges, such as ``warps 0-1``."""
    return f"{noun}{'s' * (len(numbers) > 1)} {ranges(numbers)}"


def ranges(numbers: list[int]) -> str:
    """Write numbers as ranges: 0-31, 40."""
    spans: list[list[int]] = []
    for n in sorted(numbers):
        if spans and n == spans[-1][1] + 1:
            spans[-1][1] = n
        else:
            spans.append([n, n])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in spans)


# -- the host ended it --------------------------------------------------------------------------------------

ENDED = (FaultKind.CANCELLED, FaultKind.TIMEOUT, FaultKind.INTERRUPTED)
"""Launches that the host ended."""

_NO_BLOCK = (1 << 64) - 1


class BlockedState(NamedTuple):
    """A description of blocked threads: ``text``, a hint, the first block, and the block's PTX line (0 if unknown)."""

    text: str
    help: str
    block: int | None
    line: int


def report(launch: Launch, words_of: Callable[[int], str], line_of: Callable[[int], int]) -> BlockedState:
    """Describe the positions of a launch's threads when the launch ended.

    ``words_of`` describes a line of the PTX. ``line_of`` returns the PTX line of an address in the machine code, or 0
    if unknown.
    """
    stands = Stands.from_address(launch.stands) if launch.stands else Stands()
    each = stands.each[: min(stands.count, len(stands.each))]
    places = [place for stand in each for place in _places(stand, launch, words_of, line_of)]
    lines_of_places = _first_of([f"    {place.text}" for place in places])
    begun = min(launch.begun, launch.blocks)
    left = launch.blocks - begun
    counts = [f"    {left} of {launch.blocks} blocks had not started"] if left else []
    first = next((place for place in places if place.line), next(iter(places), None))
    return BlockedState(
        "\n".join([_why(launch), *lines_of_places, *counts]),
        _help(launch, any(place.waits for place in places)),
        None if first is None else first.block,
        0 if first is None else first.line,
    )


def let_go(launch: Launch) -> None:
    """Release the memory of the recorded positions."""
    if not launch.stands:
        return
    stands = Stands.from_address(launch.stands)
    for stand in stands.each[: min(stands.count, len(stands.each))]:
        release(stand.blocks)
    release(launch.stands)
    launch.stands = 0


class _Place(NamedTuple):
    """The place of some warps of a block. ``waits`` is whether the warps wait for other threads."""

    text: str
    block: int
    line: int
    waits: bool


def _why(launch: Launch) -> str:
    if launch.fault_kind == FaultKind.TIMEOUT:
        return f"it ran longer than timeout_s={launch.timeout_ns / 1e9:g}"
    return "it was canceled" if launch.fault_kind == FaultKind.CANCELLED else "it was interrupted"


def _help(launch: Launch, waits: bool) -> str:
    if waits and launch.together == 1 and launch.blocks > 1:
        return (
            "blocks start in order, so a block that waits for a later block waits forever; to run all blocks at the "
            "same time, use kernel.prepare(grid, block, cooperative=True)"
        )
    return "check which write ends the loop, and whether a thread makes it; or increase timeout_s"


def _places(
    stand: Stand, launch: Launch, words_of: Callable[[int], str], line_of: Callable[[int], int]
) -> Iterator[_Place]:
    """Yield the places of the warps that a native thread ran, or nothing if the thread ran no block."""
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
    spinning = [n for n in range(block.warps) if n != running and block.warp[n].state == State.SPINNING]
    for at, warps in group_by((block.warp[n].line, n) for n in spinning).items():
        who = f"{_named('warp', warps)} poll{'s' * (len(warps) == 1)} memory"
        yield _Place(f"{name}, {who}{_at(at, words_of)}", block.number, at, True)
    for text, at in _waiting(block, words_of, running):
        yield _Place(f"{name}, {text}", block.number, at, True)


def _at(line: int, words_of: Callable[[int], str]) -> str:
    return f" at {words_of(line)}" if line else ""
