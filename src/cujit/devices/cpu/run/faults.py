"""Exceptions for failed launches, created from the records of machine code."""

from __future__ import annotations

import ctypes
import re
import resource
import sys

from cujit.devices.cpu.native.checking import Code
from cujit.devices.cpu.native.library import install_handlers
from cujit.devices.cpu.native.structures import Assertion, FaultKind, Printed
from cujit.devices.cpu.run import tensor_faults
from cujit.devices.cpu.run.blocked_threads import ENDED, let_go, report, story_of, stuck
from cujit.devices.cpu.run.launch import SYSTEM_BYTES, WINDOW_BITS, Launch, live_blocks, release
from cujit.devices.cpu.run.mappings import is_readable
from cujit.devices.cpu.run.site import FaultSite, no_line, says_nothing
from cujit.devices.shapes import WARP
from cujit.errors import KernelFaultError, counted
from cujit.values import replace

_UNKNOWN_BLOCK, _UNKNOWN_THREAD = (1 << 64) - 1, (1 << 32) - 1

_PAGE = 4096
"""Bytes at the start of memory that no process may use. Source: Linux, Documentation/admin-guide/sysctl/vm.rst,
``mmap_min_addr`` (65536 by default, 4096 at least)."""

_NEAR = 1 << 30
"""Bytes beyond which an allocation is no neighbour of an address."""

# Source: Linux, sigaction(2), si_code: the kernel's own (the address is not told), SEGV_ACCERR, and SI_TKILL.
_SI_KERNEL, _SEGV_ACCERR, _SI_TKILL = 128, 2, -6


def end(launch: Launch, site: FaultSite) -> None:
    """Write a launch's output and raise its error, as ``settle`` describes."""
    try:
        if launch.output:
            _write_printed(launch)
    finally:
        try:
            if any(launch.raised):
                _raise_again(launch, site)
            if launch.fault_kind:
                raise _error(launch, site)
        finally:
            let_go(launch)


def _write_printed(launch: Launch) -> None:
    """Write a launch's output to ``sys.stdout`` in block order, and clear the output.

    If blocks run concurrently, the output is in time order instead, because the blocks may have waited for each other.
    """
    calls = take_printed(launch)
    if launch.together <= 1:
        calls.sort(key=lambda call: call[0])
    if sys.stdout is not None:
        sys.stdout.write(b"".join(text for *_, text in calls).decode(errors="replace"))


def take_printed(launch: Launch) -> list[tuple[int, int, bytes]]:
    """Remove the recorded ``vprintf`` calls from a launch, and return the block, thread, and text of each call, oldest
    first.
    """
    calls = []
    address, launch.output = launch.output, 0
    while address:
        record = Printed.from_address(address)
        text = ctypes.string_at(address + ctypes.sizeof(Printed), record.bytes)
        calls.append((record.block, record.thread, text))
        previous = record.previous
        release(address)
        address = previous
    return calls[::-1]


def _raise_again(launch: Launch, site: FaultSite) -> None:
    """Raise the exception of a signal handler that ran during the launch, with a note about the launch's progress.

    Nothing is compiled or parsed for the note, because an interrupt must not be delayed.
    """
    restore = ctypes.pythonapi.PyErr_Restore
    restore.argtypes, restore.restype = [ctypes.c_void_p] * 3, None
    raised = tuple(launch.raised)
    launch.raised[:] = (0, 0, 0)
    try:
        restore(*raised)  # ctypes looks whether what it called raised
    except BaseException as e:
        found = report(launch, replace(site, source_of=says_nothing).words_of, no_line)
        if sys.version_info >= (3, 11):
            e.add_note(f"kernel {site.kernel}: {found.text}\n  hint: {found.help}")
        raise


_ONCE_MORE = 'run it with cujit.cpu(check="memory"), which names the thread, the access and the allocation'

# What happened, and what to try.
_WORDS: dict[FaultKind, tuple[str, str | None]] = {
    FaultKind.TRAP: ("the kernel executed trap", "check the condition that the code tests before the trap"),
    FaultKind.BREAKPOINT: ("the kernel executed brkpt, but no debugger is attached", "remove the breakpoint"),
    FaultKind.MISALIGNED: ("an access to an address that is not a multiple of its size", _ONCE_MORE),
    FaultKind.STACK_OVERFLOW: (
        "the stack overflowed",
        "make sure that any recursion ends, and keep large arrays in global memory instead of on the stack",
    ),
    FaultKind.ARITHMETIC: ("the processor rejected an arithmetic operation", "report this, with the PTX"),
    FaultKind.ILLEGAL_INSTRUCTION: ("the processor rejected an instruction", "report this, with the PTX"),
    FaultKind.ILLEGAL_CALL: (
        "a call to an address that is not a function of this module with matching parameters",
        "check where the function pointer, or the object with virtual functions, comes from",
    ),
    FaultKind.TENSOR_MAP: (
        "a tensor map that the CPU device didn't create, or whose number of axes or element type doesn't "
        "match the instruction",
        "create it with tensor_map(…) of the device that runs the kernel, with as many axes as the instruction has",
    ),
    FaultKind.BULK_ALIGN: (
        "a bulk copy whose addresses or size, or whose start along a tensor's innermost axis, is not a multiple of "
        "16 bytes, or that ignores more than 15 bytes at an end, or a box of a tensor whose place in shared memory is "
        "not a multiple of 128",
        "use such multiples; on a GPU, other copies end with an illegal instruction, or copy something else",
    ),
    FaultKind.TENSOR_START: (
        "a store or reduction into a tensor that begins before it along the innermost axis",
        "begin at 0 or later; on a GPU, other stores and reductions end with an illegal instruction",
    ),
    FaultKind.NO_CLUSTER: (
        "an instruction that requires a launch with a cluster, but the launch has no cluster",
        "launch with a cluster, even of one block: write kernel.prepare(grid, block, cluster=1)(…), or "
        "declare the kernel __cluster_dims__(1, 1, 1). On a GPU, such a launch ends with an illegal "
        "instruction",
    ),
    FaultKind.DEADLOCK: (
        "every thread waits, and none can continue: not all threads reach a barrier",
        "make sure that no barrier is in code that only some threads reach",
    ),
    FaultKind.LANES_APART: (
        "lanes of one warp wait for each other at different .sync operations",
        "make sure that all lanes in a mask reach the same operation",
    ),
    FaultKind.WARPS_APART: (
        "not all warps of a warpgroup reach the same instruction",
        "have all four warps of a warpgroup execute each wgmma instruction: branch by threadIdx.x / 128 instead of "
        "threadIdx.x / 32, and launch a block whose size is a multiple of 128",
    ),
    FaultKind.NO_MEMORY: (
        "there isn't enough memory for the blocks of a cooperative grid",
        "launch fewer blocks, or threads with less shared and local memory",
    ),
    FaultKind.MEMORY: (
        "an access to unallocated memory",
        "compare the index with the allocated size",
    ),
    FaultKind.RACE: (
        "a race",
        "put __syncthreads() (__syncwarp() within a warp) between the two accesses, or make both atomic",
    ),
    FaultKind.SYNC: (
        "incorrect synchronization",
        "make sure that exactly the threads of a barrier or mask reach it",
    ),
    FaultKind.INIT: (
        "a read of memory that was never written",
        "write the memory first: device.zeros(…) instead of device.empty(…), or a loop over the array",
    ),
}


_WAIT = (
    'wait for the copy first, and then have the threads meet: asm volatile("cp.async.wait_all;" ::: "memory") and '
    "__syncthreads() for cp.async, mbarrier.try_wait for copies that signal an mbarrier and for tcgen05.commit, "
    "cp.async.bulk.wait_group.read 0 for bulk stores"
)


_FENCE = (
    'have the threads that wrote execute asm volatile("fence.proxy.async.shared::cta;" ::: "memory") after they wrote '
    "and before the barrier that the reader waits for"
)


_PRODUCT = (
    'write asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory") after the product and before the barrier or '
    "the arrival that tells others that they may write"
)


_CLUSTER = (
    "have the blocks meet by cooperative_groups::this_cluster().sync(): before the first access to another block's "
    "shared memory, after the last one, and between accesses that depend on each other; or have one block arrive at an "
    "mbarrier that the other one waits for by mbarrier.try_wait"
)

_ACROSS = (
    "split the kernel into two launches, or launch it with cooperative=True and call "
    "cooperative_groups::this_grid().sync() between the two accesses; or call __threadfence() after the first access "
    "and before an atomic operation on a flag that the other block reads by an atomic operation; or use atomicAdd(…) "
    "for both accesses"
)
_OF_RACES = {
    **dict.fromkeys((Code.UNWRITTEN, Code.UNREAD, Code.LEFT), _WAIT),
    **dict.fromkeys((Code.FAR, Code.ENDED, Code.NOT_BEGUN), _CLUSTER),
    **dict.fromkeys((Code.UNFENCED, Code.FAR_UNFENCED), _FENCE),
    Code.OUTRUN: _PRODUCT,
    Code.ACROSS: _ACROSS,
}
"""What to try after races of some kinds."""


def _help(kind: FaultKind, launch: Launch) -> str | None:
    """Return a hint for a fault that a check found, or for lanes or warps that never meet. Return None for other
    faults.
    """
    if kind is FaultKind.RACE and launch.fault_more[2] in _OF_RACES:
        return _OF_RACES[Code(launch.fault_more[2])]
    has_help = kind > FaultKind.CHECK or kind in (FaultKind.LANES_APART, FaultKind.WARPS_APART)
    return _WORDS[kind][1] if has_help else None


def _error(launch: Launch, site: FaultSite) -> KernelFaultError:
    install_handlers()  # whoever told of it first is behind us from now on
    kind = _kind(launch.fault_kind)
    if kind in ENDED:
        return _ended(kind, launch, site)
    block = None if launch.fault_block == _UNKNOWN_BLOCK else launch.place(launch.fault_block)
    thread = None if launch.fault_thread == _UNKNOWN_THREAD else site.block.place(launch.fault_thread)
    story = site.story_of(launch) or story_of(launch, site.place_of)  # before the blocks are released
    explanation = site.explain(launch) or stuck(launch, site.words_of)
    line = launch.fault_line or _line_of_access(kind, launch, site)
    what, help_ = (explanation, _help(kind, launch)) if explanation else _what(kind, launch, site, site.text_of(line))
    where = [f"kernel {site.kernel}" if site.kernel else "a kernel"]
    where += [f"block {block}"] if block is not None else []
    where += [f"thread {thread}"] if thread is not None else _threads(kind, launch, site)
    error = KernelFaultError(
        f"{', '.join(where)}: {what}{_lines(line, site)}",
        kind=kind.name.lower(),
        kernel=site.kernel,
        block=block,
        thread=thread,
        line=line,
        address=launch.fault_address or None,
        help=help_,
    )
    error.source = site.source_of(line) if line else ""
    if story is not None:
        error.tell(story)
    return error


def _ended(kind: FaultKind, launch: Launch, site: FaultSite) -> KernelFaultError:
    """Make the error that describes where a launch stood when the host ended it."""
    found = report(launch, site.words_of, site.line_of)
    error = KernelFaultError(
        f"kernel {site.kernel}: {found.text}",
        kind=kind.name.lower(),
        kernel=site.kernel,
        block=None if found.block is None else launch.place(found.block),
        line=found.line,
        help=found.help,
    )
    error.source = site.source_of(found.line) if found.line else ""
    return error


def _kind(number: int) -> FaultKind:
    try:
        return FaultKind(number)
    except ValueError:
        return FaultKind.CHECK


def _lines(line: int, site: FaultSite) -> str:
    if not line:
        return ""
    text, source = site.text_of(line).strip(), site.source_of(line)
    of = f"\n  from {source}" if source else ""
    return f"\n  at PTX line {line}" + (f": {text}" if text else "") + of


_OF_TEXTURES = re.compile(r"\s*(?:@\S+\s+)?(?:tex|tld4|txq|suld|sust|sured|suq)\.")


def _line_of_access(kind: FaultKind, launch: Launch, site: FaultSite) -> int:
    """Return the PTX line of an invalid access, found by its address in the machine code. Return 0 if it is unknown."""
    return site.line_of(launch.fault_more[0]) if kind is FaultKind.ILLEGAL_ADDRESS and launch.fault_more[0] else 0


def _threads(kind: FaultKind, launch: Launch, site: FaultSite) -> list[str]:
    """Return the threads of the warp that made an invalid access. Machine code doesn't record which of the threads it
    was.
    """
    warp, threads = launch.fault_more[5], site.block.volume
    if kind is not FaultKind.ILLEGAL_ADDRESS or not launch.fault_more[2] or warp * WARP >= threads:
        return []
    first, last = (site.block.place(n) for n in (warp * WARP, min(warp * WARP + WARP, threads) - 1))
    return [f"a thread from {first} to {last}" if first != last else f"thread {first}"]


def _what(kind: FaultKind, launch: Launch, site: FaultSite, text: str) -> tuple[str, str | None]:
    if kind is FaultKind.ASSERT:
        return _assertion(launch), None
    if kind is FaultKind.ILLEGAL_ADDRESS and _OF_TEXTURES.match(text):
        what = f"no texture or surface, and no element of one, is at address {launch.fault_address:#x}"
        return what, "keep textures, surfaces and their memory for as long as kernels use them"
    if kind is FaultKind.ILLEGAL_ADDRESS:
        return _access(launch, site), _without_dynamic(launch, site) or _ONCE_MORE
    if kind is FaultKind.BAD_FREE:
        what = f"free of {launch.fault_address:#x}, which malloc didn't return, or which was already freed"
        return what, "free each malloc block exactly once, and nothing else"
    if kind is FaultKind.TENSOR_MEMORY:
        return tensor_faults.words_of(launch, site.words_of)
    return _WORDS.get(kind, (f"a fault of kind {launch.fault_kind}", None))


def _assertion(launch: Launch) -> str:
    """Return the message that a failed assertion prints on a GPU, and release its record."""
    address = launch.fault_more[0]
    if not address:
        return "an assertion failed"
    record = Assertion.from_address(address)
    texts, at = [], address + ctypes.sizeof(Assertion)
    for size in (record.message, record.file, record.function):
        texts.append(ctypes.string_at(at, size).decode(errors="replace"))
        at += size
    line = record.line
    launch.fault_more[0] = 0
    release(address)
    message, file, function = texts
    return f"assertion `{message}` failed\n  in {file}:{line}: {function}"


def _without_dynamic(launch: Launch, site: FaultSite) -> str | None:
    """Describe how to launch a kernel with dynamic shared memory, if a launch had none."""
    if launch.dynamic_bytes or not site.dynamic or not (_in_windows(launch) or "").startswith("byte"):
        return None
    grid = (launch.grid_x, launch.grid_y, launch.grid_z)
    return (
        "the kernel has an extern __shared__ array, but the launch has no dynamic shared memory: write "
        f"kernel.prepare({grid}, {tuple(site.block)}, shared_bytes=N)(…), where N is the size of the array in "
        "bytes"
    )


def _reach() -> int:
    """Return the number of bytes before and after a window in which an access counts as shared memory, as in
    ``windows.h``.
    """
    return 1 << (31 if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY else WINDOW_BITS)


def _in_windows(launch: Launch) -> str | None:
    """Describe where in shared or local memory an invalid access is. Return None if the access is in neither."""
    address, (shared, local, local_bytes) = launch.fault_address, launch.fault_more[2:5]
    if not shared:
        return None
    window = 1 << WINDOW_BITS
    if local_bytes and local - window < address < local + local_bytes + window:
        return "local memory of the block's threads, beyond the end of an array"
    offset = address - shared + SYSTEM_BYTES
    reach = _reach()
    if not -reach <= offset < launch.together * window + reach:
        return None
    in_block = offset % window if 0 <= offset < launch.together * window else offset
    return f"byte {in_block - SYSTEM_BYTES:,} of shared memory (the block has {launch.shared_bytes:,} bytes)"


def _access(launch: Launch, site: FaultSite) -> str:
    address = launch.fault_address
    code = ctypes.c_int64(launch.fault_more[1]).value
    if code == _SI_TKILL:
        return "an access to unmapped memory; another signal handler consumed the address"
    if code == _SI_KERNEL:
        return "an access to an invalid or misaligned address"
    windows = _in_windows(launch)
    if windows:
        return f"an access to {windows}" if launch.fault_more[0] else f"a write to {windows}"
    near = _neighbour(launch, site)
    what = "read-only memory" if code == _SEGV_ACCERR and is_readable(address) else "no memory"
    where = "; a null pointer, or an offset from one" if address < _PAGE else f"; it lies {near}" if near else ""
    return f"an access to address {address:#x}, where there is {what}{where}"


def _neighbour(launch: Launch, site: FaultSite) -> str:
    """Describe an address relative to the nearest allocation, and which arguments lead there."""
    address = launch.fault_address
    distances = [(max(start - address, address - start - size, 0), start, size) for start, size in live_blocks()]
    distance, start, size = min(distances, default=(_NEAR, 0, 0))
    if distance >= _NEAR:
        return ""
    where = f"{counted(distance, 'byte')} " + ("before" if address < start else "past the end of")
    buffer = f"{size:,} bytes allocated at {start:#x}{_arguments(launch, site, start, size)}"
    return f"{'in' if start <= address < start + size else where} the {buffer}"


def _arguments(launch: Launch, site: FaultSite, start: int, size: int) -> str:
    """Name the arguments that point into an allocation."""
    words = ((k, ctypes.c_uint64.from_address(launch.parameters + offset).value) for k, offset in site.pointers)
    leading = [f"argument {k}" for k, word in words if start <= word <= start + size]
    return f", {' and '.join(leading)}" if leading else ""
