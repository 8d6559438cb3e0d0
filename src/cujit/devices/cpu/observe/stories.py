"""The finding of a check as the actions of two threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cujit.devices.cpu.native.checking import Access, Code
from cujit.devices.cpu.native.structures import FaultKind
from cujit.errors import counted
from cujit.errors.stories import Story, StoryStep

if TYPE_CHECKING:
    from cujit.devices.cpu.observe.findings import CheckedRun
    from cujit.devices.cpu.run.launch import Launch
    from cujit.devices.cpu.run.source_map import Lines

_ALONE = (Code.LEFT, Code.ENDED, Code.NOT_BEGUN)
"""Races with a block that does nothing at that time: there is one thread only."""

_COPIES = (Code.UNWRITTEN, Code.UNREAD)


def story_of(launch: Launch, run: CheckedRun, lines: Lines) -> Story | None:
    """Return a race as the actions of two threads, or None if the launch failed for a reason without two threads."""
    code = Code(launch.fault_more[2]) if launch.fault_kind == FaultKind.RACE else None
    if code is None or code in _ALONE:
        return None
    size, flags, _, other, there, extra = launch.fault_more
    block, line = launch.fault_block, there
    if code in _COPIES or code is Code.ACROSS:
        block = other >> 32
    elif code in (Code.FAR, Code.FAR_UNFENCED):
        block, line = other >> 32, there & 0xFFFFFFFF
    here = f"thread {run.shape.block.place(launch.fault_thread)}"
    who = f"thread {run.shape.block.place(other & 0xFFFFFFFF)}"
    if block != launch.fault_block:
        here += f" of block {launch.place(launch.fault_block)}"
        who += f" of block {launch.place(block)}"
    if code is Code.DIFFERENT:
        line = launch.fault_line
    steps = (
        StoryStep(0, _first(code, extra, flags), _place(lines, line)),
        StoryStep(1, f"{_verb(flags)} {counted(size, 'byte')} there", _place(lines, launch.fault_line)),
    )
    alike = block == launch.fault_block and (other & 0xFFFFFFFF) // 32 == launch.fault_thread // 32
    return Story((who, here), steps, _missing(code, alike=alike), 1)


def _place(lines: Lines, line: int) -> str:
    """Name the line in the file of the kernel: of code that is inlined from a header, the line that calls it."""
    chain = lines.chain_of(line)
    source = next((each for each in chain if each.file == chain[-1].file), None)
    return f"PTX line {line}" if source is None else str(source).rpartition("/")[2]


def _first(code: Code, extra: int, flags: int) -> str:
    """Return a description of the earlier access. ``extra`` and ``flags`` are from the check."""
    if code in _COPIES:
        return "starts an asynchronous copy"
    if code is Code.ACROSS:
        return f"{_verb(extra)} global memory"
    return f"{_verb(flags if code is Code.DIFFERENT else extra)} byte {extra >> 32:,} of shared memory"


def _verb(flags: int) -> str:
    if flags & Access.STRONG and flags & Access.READ and flags & Access.WRITE:
        return "atomically updates"
    return "writes" if flags & Access.WRITE else "reads"


def _missing(code: Code, *, alike: bool) -> str:
    words = {
        **dict.fromkeys(_COPIES, "missing: a wait for the copy"),
        Code.FAR: "missing: cluster.sync()",
        Code.ACROSS: "missing: synchronization between the blocks",
        **dict.fromkeys((Code.UNFENCED, Code.FAR_UNFENCED), "missing: fence.proxy.async"),
        Code.OUTRUN: "missing: wgmma.wait_group",
        Code.DIFFERENT: "at the same time",
    }
    return words.get(code, "missing: __syncwarp()" if alike else "missing: __syncthreads()")
