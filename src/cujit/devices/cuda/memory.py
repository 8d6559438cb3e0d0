"""Memory of a GPU: allocation, pools, and page-locked memory of the host.

Arrays go when Python drops them, at any moment. So that this spoils no capture of a stream into a graph, memory is
allocated and freed in the relaxed mode of captures.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from cujit.devices.cuda.context import GpuContext
from cujit.devices.cuda.launching import driver_entries
from cujit.devices.launcher.cpython import is_supported, native_function
from cujit.devices.launcher.library import Library, library_or_none
from cujit.devices.launcher.state import MemoryCalls
from cujit.devices.streams import Allocation, PinnedMemory
from cujit.errors import DriverError
from cujit.forks import register_reset, single_flight_cache
from cujit.toolchain.driver import Driver
from cujit.values import attributes


class _Block(Allocation):
    """Memory that is released when this object is deleted.

    At the end of the process, the object releases nothing, because the driver may already be closed. The system then
    frees all memory of the process.
    """

    __slots__ = ("_blocks",)

    def __init__(self, address: int, size: int, blocks: Blocks) -> None:
        self.address, self.size, self.owner, self.stream, self._blocks = address, size, None, None, blocks

    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_ending():
            try:  # noqa: SIM105 - suppress takes as long as all the rest
                self._blocks.give(self.address, self.size)
            except Exception:  # nobody's business any more, as of a dead context
                pass


class NativeMemory:
    """Native functions that call the driver for the memory of a context.

    ``get`` and ``put`` allocate and release memory. ``upload``, ``download``, and ``fill`` write or read bytes.
    ``place`` and ``clear`` are for new memory that no stream uses yet. Neither waits for its work, but ``settle`` does.
    """

    def __init__(self, context: GpuContext, library: Library) -> None:
        functions = " ".join(field[0] for field in MemoryCalls._fields_ if field[0] not in ("context", "ring"))
        entries = attributes(driver_entries(context.driver), functions)
        calls = bytes(MemoryCalls(context=int(context.handle), ring=context.ring.address, **entries))
        self._keep: list[object] = [calls]

        def function(name: str, *, is_fast: bool) -> Any:
            made = native_function(name, library.address(name), calls, is_fast=is_fast)
            self._keep.append(made)
            return made.call

        self.get, self.put, self.settle = (function(name, is_fast=False) for name in ("get", "put", "settle"))
        self.upload, self.download, self.fill, self.place, self.clear, self.pieces = (
            function(name, is_fast=True) for name in ("upload", "download", "fill", "place", "clear", "pieces")
        )


@single_flight_cache(64)
def native_memory(context: GpuContext) -> NativeMemory | None:
    """Return the native functions for a context's memory, or None to leave the calls to Python."""
    library = library_or_none() if is_supported() else None
    return None if library is None else NativeMemory(context, library)


def _get(context: GpuContext, size: int) -> int:
    """Allocate ``size`` bytes from the driver, and return the address.

    Raises:
        DriverError: the driver refused.
    """
    native = native_memory(context)
    if native is None:
        with relaxed(context):
            return int(context.call("cuMemAlloc", size))
    address = native.get(size)
    if address < 0:
        raise context.refused("cuMemAlloc", -address)
    return int(address)


def _put(context: GpuContext, address: int) -> None:
    """Return memory to the driver, which waits for all work first.

    Raises:
        DriverError: the driver refused.
    """
    native = native_memory(context)
    if native is None:
        with relaxed(context):
            context.call("cuMemFree", address)
    elif status := native.put(address):
        raise context.refused("cuMemFree", status)


_SMALL_BYTES = 64 << 10
_KEPT_BYTES = 4 << 20
_WAITING = 32


class Blocks:
    """Memory of a context for arrays outside of streams. Small blocks are kept for later arrays.

    A released small block waits until no work can use it. The driver waits for all work before it frees memory.
    Therefore, when one of ``_WAITING`` blocks is freed, the other blocks can be reused. Each kept block has at most
    ``_SMALL_BYTES``, and all kept blocks together have at most ``_KEPT_BYTES``. A block is reused only for arrays of
    exactly its size.

    Source: CUDA C++ Programming Guide, "Implicit Synchronization"; CUDA Driver API manual, ``cuMemFree``.
    """

    def __init__(self, context: GpuContext) -> None:
        self._context = context
        self._most_bytes = 0 if context.driver.is_emulated else _SMALL_BYTES  # its checks look at what is freed
        self._ready: dict[int, list[int]] = {}
        self._waiting: list[tuple[int, int]] = []
        self._kept_bytes = 0
        register_reset(self)

    def allocate(self, size: int) -> Allocation:
        """Allocate ``size`` bytes, aligned to at least 256. The address is never 0.

        Source: CUDA Driver API manual, ``cuMemAlloc``; CUDA C++ Programming Guide, "Device Memory Accesses".

        Raises:
            DriverError: the GPU is out of memory.
        """
        try:
            address = self._ready[size].pop()
        except (KeyError, IndexError):
            return self._new(size)
        self._kept_bytes -= size
        return _Block(address, size, self)

    def _new(self, size: int) -> Allocation:
        if size == 0:
            return Allocation(0, 0)
        try:
            return _Block(_get(self._context, size), size, self)
        except DriverError:
            if not self._kept_bytes:
                raise
        self.trim()
        return _Block(_get(self._context, size), size, self)

    def give(self, address: int, size: int) -> None:
        """Return a block to the free blocks, or to the driver if too much memory would be kept.

        Raises:
            DriverError: the driver reported an error.
        """
        if size > self._most_bytes or self._kept_bytes > _KEPT_BYTES - size:
            _put(self._context, address)
            return
        self._kept_bytes += size
        self._waiting.append((address, size))
        if len(self._waiting) >= _WAITING:
            self._settle()

    def _settle(self) -> None:
        """Free one of the blocks that wait, and have the others serve again."""
        waiting, self._waiting = self._waiting, []
        if not waiting:  # another thread was faster
            return
        try:
            _put(self._context, waiting.pop()[0])
        except DriverError:  # a dead context
            self.after_fork()
            raise
        for address, size in waiting:
            self._ready.setdefault(size, []).append(address)
        # Counted anew, as threads change the count without a lock.
        self._kept_bytes = sum(size * len(addresses) for size, addresses in list(self._ready.items()))

    def trim(self) -> None:
        """Return all unused blocks to the driver.

        Raises:
            DriverError: the driver reported an error.
        """
        ready, self._ready, waiting, self._waiting = self._ready, {}, self._waiting, []
        blocks = [*waiting, *((address, size) for size, addresses in ready.items() for address in addresses)]
        self._kept_bytes = 0
        for address, _ in blocks:
            _put(self._context, address)

    def after_fork(self) -> None:
        """Forget the blocks, in a forked child: the driver refuses to work there."""
        self._ready, self._waiting, self._kept_bytes = {}, [], 0


@single_flight_cache(64)
def blocks_of(context: GpuContext) -> Blocks:
    """Return the blocks of a context."""
    return Blocks(context)


@contextmanager
def relaxed(context: GpuContext) -> Iterator[Driver]:
    """Call the driver with calls allowed that a capture, of this thread or another one, would otherwise forbid.

    Source: CUDA Driver API manual, ``cuThreadExchangeStreamCaptureMode``.
    """
    with context as driver:
        mode = driver.bindings.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        before = driver.call("cuThreadExchangeStreamCaptureMode", mode)
        try:
            yield driver
        finally:
            driver.attempt("cuThreadExchangeStreamCaptureMode", before)


def _release(context: GpuContext, function: str, *arguments: Any) -> None:
    """Call a driver function that frees memory, and ignore errors. Errors are expected if the context is dead or the
    process ends.
    """
    try:
        with relaxed(context) as driver:
            driver.attempt(function, *arguments)
    except Exception:
        return


# -- in the order of a stream -----------------------------------------------------------------------------


class _PooledBlock:
    """An object that keeps pool memory allocated. An Allocation of the pool refers to the object."""

    __slots__ = ("__weakref__",)


class MemoryPool:
    """GPU memory that is allocated and freed in stream order.

    The pool is separate, because the default pool belongs to every library in the process. It keeps ``keep_bytes`` of
    freed memory. Otherwise, the driver would return all freed memory to the system at each synchronization, and the
    next allocation would be slow. Plain allocations of this process, by any library, can still use the kept memory.
    Other processes can't.

    Sources: CUDA Driver API manual, ``CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`` and ``cuMemPoolDestroy`` (memory that is in
    use outlives its pool); NVIDIA developer blog, "Using the NVIDIA CUDA Stream-Ordered Memory Allocator", part 1.

    Raises:
        DriverError: the driver reported an error.
    """

    def __init__(self, context: GpuContext, keep_bytes: int) -> None:
        self.context = context
        bindings = context.driver.bindings
        properties = bindings.CUmemPoolProps()
        properties.allocType = bindings.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        properties.handleTypes = bindings.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_NONE
        properties.location.type = bindings.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        properties.location.id = int(context.device)
        threshold = bindings.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
        with relaxed(context) as driver:
            self.handle: Any = driver.call("cuMemPoolCreate", properties)
            weakref.finalize(self, _release, context, "cuMemPoolDestroy", self.handle).atexit = False
            driver.call("cuMemPoolSetAttribute", self.handle, threshold, bindings.cuuint64_t(keep_bytes))

    def allocate(self, size: int, stream: int, late: list[int], queue: object) -> tuple[int, object]:
        """Allocate ``size`` bytes in a stream. Return their address, and an object that frees them in the stream when
        the object is deleted.

        The object keeps ``queue`` alive. If the stream is being captured, the address can't be freed, and is added to
        ``late``.

        Source: CUDA Driver API manual, ``cuMemAllocFromPoolAsync`` and ``cuMemFreeAsync`` (256 bytes, as
        ``cuMemAlloc``).

        Raises:
            DriverError: the GPU is out of memory.
        """
        address = int(self.context.call("cuMemAllocFromPoolAsync", size, self.handle, stream))
        block = _PooledBlock()
        weakref.finalize(block, _free_in, self.context, address, stream, late, queue).atexit = False
        return address, block

    def trim(self, keep_bytes: int) -> None:
        """Release unused memory to the system, except for ``keep_bytes``.

        Raises:
            DriverError: the driver reported an error.
        """
        with relaxed(self.context) as driver:
            driver.call("cuMemPoolTrimTo", self.handle, keep_bytes)


def _free_in(context: GpuContext, address: int, stream: int, late: list[int], _queue: object) -> None:
    late.append(address)
    free_late(context, stream, late)


def free_late(context: GpuContext, stream: int, late: list[int]) -> None:
    """Free the addresses in ``late`` in a stream, unless it is being captured."""
    with suppress(Exception):  # a dead context, or another thread that was faster
        while late and not is_capturing(context, stream):
            _release(context, "cuMemFreeAsync", late.pop(), stream)


def is_capturing(context: GpuContext, stream: int) -> bool:
    """Return whether work in a stream is captured into a graph. A failed capture also counts until the capture ends.

    Raises:
        DriverError: the driver reported an error.
    """
    none = context.driver.bindings.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE
    return bool(context.call("cuStreamIsCapturing", stream) != none)


# -- of the host ------------------------------------------------------------------------------------------


def pin(context: GpuContext, size: int) -> PinnedMemory:
    """Allocate ``size`` bytes of page-locked host memory, which every GPU of the process can copy from and to.

    Raises:
        DriverError: the host is out of memory.
    """
    flags = context.driver.bindings.CU_MEMHOSTALLOC_PORTABLE
    with relaxed(context):
        address = int(context.call("cuMemHostAlloc", size, flags))
    memory = PinnedMemory(address, size, None)
    weakref.finalize(memory, _unpin, context, address, memory.users).atexit = False
    return memory


def _unpin(context: GpuContext, address: int, users: Mapping[int, Any]) -> None:
    """Free page-locked memory after the last copies from and to it."""
    for event in list(users.values()):
        with suppress(Exception):  # a dead context, where nothing is copied any more
            event.synchronize()
    _release(context, "cuMemFreeHost", address)


def address_of(data: memoryview) -> int:
    """Return the address of bytes."""
    return int(np.frombuffer(data, np.uint8).__array_interface__["data"][0])


# -- fills ------------------------------------------------------------------------------------------------


def repeat(context: GpuContext, address: int, pattern: bytes, count: int, stream: int) -> None:
    """Write ``pattern`` ``count`` times, in a stream.

    The driver fills with words of 1, 2 and 4 bytes; a longer pattern is as many fills, each of one word at a stride.

    Source: CUDA Driver API manual, ``cuMemsetD8Async`` to ``cuMemsetD2D32Async``.
    """
    size = len(pattern)
    for width in (1, 2, 4):
        if address % width == 0 and size % width == 0 and pattern == pattern[:width] * (size // width):
            word = int.from_bytes(pattern[:width], "little")
            context.call(f"cuMemsetD{8 * width}Async", address, word, size // width * count, stream)
            return
    width = next(width for width in (4, 2, 1) if size % width == 0 and address % width == 0)
    for start in range(0, size, width):
        word = int.from_bytes(pattern[start : start + width], "little")
        context.call(f"cuMemsetD2D{8 * width}Async", address + start, size, word, 1, count, stream)
