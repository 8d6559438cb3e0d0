"""Descriptions of the findings of checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cujit.devices.cpu.native.checking import Access, Code, Space, Watch
from cujit.devices.cpu.native.structures import FaultKind
from cujit.devices.cpu.run.blocked_threads import ranges
from cujit.values import NamedTuple

if TYPE_CHECKING:
    from cujit.devices.cpu.run.launch import Launch
    from cujit.devices.cpu.run.source_map import Lines
    from cujit.devices.shapes import LaunchShape


class CheckedRun(NamedTuple):
    """One checked launch: its shape, a function that describes an address range, and the data that
    machine code reads.
    """

    shape: LaunchShape
    place_of: Callable[[int, int, tuple[int, int, str] | None], str]
    watch: Watch
    stored: Callable[[int], str]
    """Says how a raw value came into memory, by the number of the store."""


def finding_of(launch: Launch, run: CheckedRun, lines: Lines) -> str | None:
    """Return the description of a check's finding, or None if the launch failed for another reason."""
    if launch.fault_kind not in (FaultKind.MEMORY, FaultKind.RACE, FaultKind.SYNC, FaultKind.INIT):
        return None
    code = Code(launch.fault_more[2])
    if launch.fault_kind == FaultKind.MEMORY:
        return _memory(launch, run, code)
    if launch.fault_kind == FaultKind.INIT:
        return _init(launch, run, code, lines)
    return _race(launch, run, code, lines) if launch.fault_kind == FaultKind.RACE else _sync(launch, run, code, lines)


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
    what = f"{_doing(flags)} {_bytes(size)} at {launch.fault_address:#x}"
    if code is Code.MISALIGNED:
        align = launch.fault_more[5]
        return (
            f"Misaligned {what}, which is {_bytes(launch.fault_address % align)} past a multiple of {align}; "
            f"{_place(launch, run, 0)}"
        )
    where = _place(launch, run, launch.fault_more[5])
    return f"Invalid {what}{', which was freed' * (code is Code.FREED)}: {where}"


def _place(launch: Launch, run: CheckedRun, shared: int) -> str:
    """Describe the location of an access within its memory space."""
    size, flags = launch.fault_more[0], launch.fault_more[1]
    space = flags >> 8 & 15
    address = launch.fault_address
    offset = (address - shared + (1 << 63)) % (1 << 64) - (1 << 63)
    if space in (Space.SHARED, Space.CLUSTER) or (shared and 0 <= offset < run.watch.shared_stride):
        have = run.watch.shared_limit
        return f"byte {offset:,} of shared memory (the block has {have:,} bytes)"
    if space == Space.LOCAL:
        return f"local memory (each thread has {run.watch.local_bytes:,} bytes)"
    if address < 1 << 12:
        return "a null pointer, or an offset from one"
    gap, block = launch.fault_more[3], launch.fault_more[4]
    if launch.fault_kind == FaultKind.MEMORY and block:
        words = f"the {block:,}-byte block from the kernel's malloc"
        if not gap:
            return f"in or just past the end of {words}"
        return run.place_of(address, size, (address - gap - block, block, words))
    return run.place_of(address, size, None)


def words_outside(launch: Launch, run: CheckedRun, kernel: str, lines: Lines) -> str:
    """Describe which access of a launch was the first outside of a view, and how many such accesses there were."""
    watch = run.watch
    what = f"{_doing(watch.outside_flags)} {_bytes(watch.outside_size)}"
    line, source = watch.outside_line, lines.origin_of(watch.outside_line)
    others = f" (and {watch.outside - 1:,} more such accesses)" if watch.outside > 1 else ""
    return (
        f"kernel {kernel}, block {launch.place(watch.outside_block)}, thread "
        f"{run.shape.block.place(watch.outside_thread)}: {_article(what)} outside the view passed to the kernel"
        f"{others}: {run.place_of(watch.outside_address, watch.outside_size, None)}\n"
        f"  at PTX line {line}: {lines.text_of(line)}" + (f"\n  from {source}" if source else "")
    )


# -- memory never written ---------------------------------------------------------------------------------

_DECIDED = {
    Code.BRANCH: "a branch depends on it",
    Code.ADDRESS: "an address depends on it",
    Code.PREDICATE: "the predicate of a memory access depends on it",
    Code.STORED: "it is stored where other threads can read it",
    Code.PRINTED: "it is printed",
}


def _init(launch: Launch, run: CheckedRun, code: Code, lines: Lines) -> str:
    size = launch.fault_more[0]
    words = f"a read of {_bytes(size)} that {'was' if size == 1 else 'were'} never written"
    words += f": {_place(launch, run, launch.fault_more[5])}"
    line = launch.fault_more[4]
    if code not in _DECIDED:
        return words
    source = lines.origin_of(line)
    there = f"\n  PTX line {line}: {lines.text_of(line).strip()}" + (f"\n  from {source}" if source else "")
    return f"{words}; {_DECIDED[code]}{there}{run.stored(launch.fault_more[3])}\n  loaded"


# -- races ------------------------------------------------------------------------------------------------


def _awaited(launch: Launch, run: CheckedRun, code: Code, lines: Lines) -> str:
    """Describe which asynchronous copy no thread has waited for, and which instruction would wait for it."""
    size, flags, _, issuer, line, offset = launch.fault_more
    if code is Code.LEFT:
        wait = _wait_for(lines.text_of(launch.fault_line))
        does = "writes" if "mbarrier" in wait else "reads"
        return f"a race: the block ends while an asynchronous copy still {does} its shared memory; {wait} is missing"
    what = f"a race: {_article(_doing(flags))} {_bytes(size)} at byte {offset:,} of shared memory"
    does = "writes" if code is Code.UNWRITTEN else "reads"
    kind = "a product" if ".mma" in lines.text_of(line) else "an asynchronous copy"
    why = f"{kind} still {does}: no thread has waited for it with {_wait_for(lines.text_of(line))}"
    who, block = f"thread {run.shape.block.place(issuer & 0xFFFFFFFF)}", issuer >> 32
    if block != launch.fault_block:
        who += f" of block {launch.place(block)}"
    return _against(f"{what}, which {why}", who, line, launch, run, lines)


def _against(what: str, who: str, line: int, launch: Launch, run: CheckedRun, lines: Lines) -> str:
    """Return the description of a race with the other access, by ``who`` at a PTX line, and the thread
    of this access.
    """
    source = lines.origin_of(line)
    there = f"\n  {who} at PTX line {line}: {lines.text_of(line)}" + (f"\n  from {source}" if source else "")
    return f"{what}{there}\n  against thread {run.shape.block.place(launch.fault_thread)}"


def _wait_for(text: str) -> str:
    """Name the instruction that waits for the copy of a line."""
    if "tcgen05" in text:
        return "mbarrier.try_wait on the mbarrier of a tcgen05.commit"
    if "mbarrier::complete_tx" in text:
        return "mbarrier.try_wait on its barrier"
    if ".bulk" in text:
        return "cp.async.bulk.wait_group.read"
    return "cp.async.wait_group"


def _race(launch: Launch, run: CheckedRun, code: Code, lines: Lines) -> str:
    size, flags, _, other, line, extra = launch.fault_more
    if code in (Code.UNWRITTEN, Code.UNREAD, Code.LEFT):
        return _awaited(launch, run, code, lines)
    if code in (Code.FAR, Code.FAR_UNFENCED, Code.ENDED, Code.NOT_BEGUN):
        return _between(launch, run, code, lines)
    if code is Code.ACROSS:
        return _across(launch, run, lines)
    who = f"thread {run.shape.block.place(other)}"
    if code is Code.REGISTERS:
        if not line:
            return "a race: no wgmma.fence comes before this product"
        first = "a race: no wgmma.fence comes between this product and an access to its registers"
        return _against(first, who, line, launch, run, lines)
    offset = extra >> 32
    if code is Code.UNMADE:
        missing = "no fence.mbarrier_init or fence.proxy.async in between"
        first = f"a race: a copy signals the mbarrier at byte {offset:,} of shared memory, which {who} initialized with"
        return _against(f"{first} {missing}", who, line, launch, run, lines)
    at = f"{_bytes(size)} at byte {offset:,} of shared memory"
    if code is Code.DIFFERENT:
        return f"a race: this thread and {who} write different values to {at} in the same instruction"
    missing = "no __syncwarp() or barrier" if launch.fault_thread // 32 == other // 32 else "no barrier"
    if code is Code.UNFENCED:
        missing = "no fence.proxy.async"
    if code is Code.UNTOLD:
        missing = "no __syncwarp() before another lane of its warp arrived at an mbarrier"
    before = "wrote" if extra & Access.WRITE else "read"
    first = f"a race: {_article(_doing(flags))} {at}, which {who} {before} with {missing} in between"
    if code is Code.OUTRUN:
        first = f"a race: a product reads {at} until wgmma.wait_group, but {who} wrote to it before that"
    elif any("wgmma.mma_async" in lines.text_of(each) for each in (line, launch.fault_line)):
        first += "; a product reads its operands until wgmma.wait_group"
    return _against(first, who, line, launch, run, lines)


def _between(launch: Launch, run: CheckedRun, code: Code, lines: Lines) -> str:
    """Return the description of an unordered access to a block's shared memory by another block of the cluster."""
    size, flags, _, other, there, extra = launch.fault_more
    what = f"a race: {_article(_doing(flags))} {_bytes(size)} at byte {extra >> 32:,} of shared memory"
    what += "" if there >> 32 == launch.fault_block else f" of block {launch.place(there >> 32)}"
    if code is Code.NOT_BEGUN:
        return f"{what}, which might not have started"
    if code is Code.ENDED:
        return f"{what}, which might have ended: it waits for nothing after this access"
    who = f"thread {run.shape.block.place(other & 0xFFFFFFFF)} of block {launch.place(other >> 32)}"
    before = "wrote" if extra & Access.WRITE else "read"
    missing = "fence.proxy.async" if code is Code.FAR_UNFENCED else "cluster barrier"
    first = f"{what}, which {who} {before} with no {missing} in between"
    if extra & Access.RELAXED and code is Code.FAR:
        first += ", or with no fence before barrier.cluster.arrive.relaxed"
    return _against(first, who, there & 0xFFFFFFFF, launch, run, lines)


def _across(launch: Launch, run: CheckedRun, lines: Lines) -> str:
    """Return the description of a global-memory access that is unordered with an access by another block."""
    size, flags, _, other, line, before = launch.fault_more
    where = run.place_of(launch.fault_address, 1, None)
    who = f"thread {run.shape.block.place(other & 0xFFFFFFFF)} of block {launch.place(other >> 32)}"
    does = "updated atomically" if _doing(before).startswith("atomic") else "wrote" if before & Access.WRITE else "read"
    what = f"a race between blocks: {_article(_doing(flags))} {_bytes(size)} {where}"
    first = f"{what}, which {who} {does} without synchronization between the two blocks"
    return _against(first, who, line, launch, run, lines)


# -- synchronisation --------------------------------------------------------------------------------------


def _lanes(mask: int) -> str:
    lanes = [k for k in range(32) if mask >> k & 1]
    return f"lane {lanes[0]}" if len(lanes) == 1 else f"lanes {ranges(lanes)}"


def _sync(launch: Launch, run: CheckedRun, code: Code, lines: Lines) -> str:
    other = f"thread {run.shape.block.place(launch.fault_more[3])}"
    if code is Code.SKIPPED:
        return f"{other} skips a barrier that this thread waits at: all threads that have not exited must reach it"
    if code is Code.ELSEWHERE:
        what = f"this thread waits at another barrier than {other}: all threads of a block must reach the same one"
        return _against(what, other, launch.fault_more[4], launch, run, lines)
    mask, extra = launch.fault_more[3] & 0xFFFFFFFF, launch.fault_more[5] & 0xFFFFFFFF
    lane = launch.fault_thread % 32
    words = {
        Code.NOT_NAMED: f"the member mask {mask:#010x} does not include the calling lane, {lane}",
        Code.MISSING: f"the member mask {mask:#010x} includes {_lanes(extra)} (exited, or not in the block)",
        Code.NO_ORIGIN: f"a shuffle reads {_lanes(extra)} (exited, or not in the block)",
        Code.NUMBER: f"barrier {extra} does not exist: barriers are numbered 0 to 15",
        Code.COUNT: f"a barrier for {extra} threads, which is not a multiple of 32",
        Code.PART: (
            f"only {_lanes(mask)} of the warp reach a barrier that all lanes must reach together; "
            f"missing: {_lanes(extra)}"
        ),
    }
    return words[code]
