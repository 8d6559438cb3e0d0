"""What a check found, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cujit.devices.cpu.native.structures import Access, Code, FaultKind, Space
from cujit.devices.cpu.run.standing import ranges

if TYPE_CHECKING:
    from cujit.devices.cpu.observe.ledger import CheckedRun
    from cujit.devices.cpu.run.launch import Launch
    from cujit.devices.cpu.run.lines import Lines

__all__ = ["explain"]


def explain(launch: Launch, run: CheckedRun, lines: Lines) -> str | None:
    """Say what a check found; None where the launch failed otherwise."""
    if launch.fault_kind <= FaultKind.CHECK:
        return None
    code = Code(launch.fault_more[2])
    if launch.fault_kind == FaultKind.MEMORY:
        return _memory(launch, run, code)
    if launch.fault_kind == FaultKind.INIT:
        words = f"a read of {_bytes(launch.fault_more[0])} that were never written"
        return f"{words}: {_place(launch, run, launch.fault_more[5])}"
    return _race(launch, run, code, lines) if launch.fault_kind == FaultKind.RACE else _sync(launch, code)


def _bytes(count: int) -> str:
    return "1 byte" if count == 1 else f"{count:,} bytes"


def _doing(flags: int) -> str:
    if flags & Access.STRONG and flags & Access.READ and flags & Access.WRITE:
        return "atomic operation on"
    return "write of" if flags & Access.WRITE else "read of"


def _article(words: str) -> str:
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


# -- memory -----------------------------------------------------------------------------------------------


def _memory(launch: Launch, run: CheckedRun, code: Code) -> str:
    size, flags = launch.fault_more[0], launch.fault_more[1]
    what = f"{_article(_doing(flags))} {_bytes(size)} at {launch.fault_address:#x}"
    if code is Code.MISALIGNED:
        align = launch.fault_more[5]
        return (
            f"{what}, which is no multiple of {align}: {launch.fault_address % align} bytes beyond one; "
            f"{_place(launch, run, 0)}"
        )
    where = _place(launch, run, launch.fault_more[5])
    return f"{what}, which was freed: {where}" if code is Code.FREED else f"{what}, where it has no business: {where}"


def _place(launch: Launch, run: CheckedRun, shared: int) -> str:
    """Say where an access lies in the space that it is in."""
    size, flags = launch.fault_more[0], launch.fault_more[1]
    space = flags >> 8 & 15
    address = launch.fault_address
    offset = (address - shared + (1 << 63)) % (1 << 64) - (1 << 63)
    if space in (Space.SHARED, Space.CLUSTER) or (shared and 0 <= offset < run.watch.shared_stride):
        have = run.watch.shared_limit
        return f"byte {offset:,} of shared memory, of which the block has {have:,} bytes"
    if space == Space.LOCAL:
        return f"local memory, of which a thread has {run.watch.local_bytes:,} bytes"
    if address < 1 << 12:
        return "a null pointer, or an offset from one"
    return run.table.place_of(address, size)


# -- races ------------------------------------------------------------------------------------------------


def _race(launch: Launch, run: CheckedRun, code: Code, lines: Lines) -> str:
    size, flags, _, other, line, extra = launch.fault_more
    offset = extra >> 32
    who = f"thread {run.shape.block.place(other)}"
    at = f"{_bytes(size)} at byte {offset:,} of shared memory"
    if code is Code.DIFFERENT:
        return f"a race: by one instruction it and {who} write different values to {at}"
    warps = launch.fault_thread // 32, other // 32
    missing = "no __syncwarp() or barrier" if warps[0] == warps[1] else "no barrier"
    before = "wrote" if extra & Access.WRITE else "read"
    source = lines.source_of(line)
    there = f"\n  {who} at PTX line {line}: {lines.text_of(line)}" + (f"\n  from {source}" if source else "")
    return f"a race: {_article(_doing(flags))} {at}, which {who} {before} with {missing} in between{there}\n  against"


# -- synchronisation --------------------------------------------------------------------------------------


def _lanes(mask: int) -> str:
    lanes = [k for k in range(32) if mask >> k & 1]
    return f"lane {lanes[0]}" if len(lanes) == 1 else f"lanes {ranges(lanes)}"


def _sync(launch: Launch, code: Code) -> str:
    mask, extra = launch.fault_more[3] & 0xFFFFFFFF, launch.fault_more[5] & 0xFFFFFFFF
    lane = launch.fault_thread % 32
    words = {
        Code.NOT_NAMED: f"the member mask {mask:#010x} does not name the lane that has it, {lane}",
        Code.MISSING: f"the member mask {mask:#010x} names {_lanes(extra)}: exited, or no thread of the block",
        Code.NO_ORIGIN: f"a shuffle takes the value of {_lanes(extra)}: exited, or no thread of the block",
        Code.NUMBER: f"barrier {extra}: there are 16, from 0 to 15",
        Code.COUNT: f"a barrier for {extra} threads, which is no multiple of 32",
        Code.PART: (
            f"only {_lanes(mask)} of the warp come to a barrier that all lanes have to come to together; "
            f"not here: {_lanes(extra)}"
        ),
    }
    return words[code]
