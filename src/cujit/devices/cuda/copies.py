"""Copies between the host and a GPU outside of streams, and fills there.

Large copies go through page-locked memory, piece by piece, and several threads make them: the GPU copies from and to
such memory at the speed of the bus, while one thread that copies memory is five times slower.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from contextlib import suppress
from typing import Any

from cujit.devices.cuda.context import GpuContext
from cujit.devices.cuda.memory import NativeMemory, address_of, native_memory, pin
from cujit.devices.launcher.state import STAGING_BYTES, WANTS_STAGING, LargeCopy
from cujit.devices.processors import allowed_processors
from cujit.errors import DriverError
from cujit.forks import once, register_reset, single_flight_cache
from cujit.threads import start

# What is asked for in no stream is done when these return, so that every stream sees it: streams that do not block
# are not ordered after the default one. Source: CUDA Driver API manual, "API synchronization behavior": a memset, and
# the last piece of a copy from pageable memory, may be under way still when the call returns.
_DEFAULT_STREAM = 0


def upload(context: GpuContext, address: int, data: Any) -> None:
    """Copy host bytes to the GPU."""
    native = native_memory(context)
    if native is None:
        if data.nbytes:
            copy = ("cuMemcpyHtoD", address, address_of(data), data.nbytes)
            context.call_each(copy, ("cuStreamSynchronize", _DEFAULT_STREAM))
        return
    if data.nbytes >= LARGE_BYTES and copies_of(context).copy(native, address, data, is_in=True):
        return
    if status := native.upload(address, data):
        raise context.refused("cuMemcpyHtoD", status)


def place(context: GpuContext, address: int, data: Any) -> None:
    """Copy host bytes to new memory of the GPU, of which no stream knows before ``settle``."""
    native = native_memory(context)
    if native is None or data.nbytes >= LARGE_BYTES:
        upload(context, address, data)
    elif status := native.place(address, data):
        _answered(context, "cuMemcpyHtoD", status)


def download(context: GpuContext, data: Any, address: int) -> None:
    """Copy bytes of the GPU to the host."""
    native = native_memory(context)
    if native is None:
        if data.nbytes:
            context.call("cuMemcpyDtoH", address_of(data), address, data.nbytes)
        return
    if data.nbytes >= LARGE_BYTES and copies_of(context).copy(native, address, data, is_in=False):
        return
    if status := native.download(address, data):
        _answered(context, "cuMemcpyDtoH", status)


def fill(context: GpuContext, address: int, size: int, byte: int) -> None:
    """Set bytes of the GPU to one value."""
    native = native_memory(context)
    if native is not None:
        if status := native.fill(address, size, byte):
            raise context.refused("cuMemsetD8", status)
    elif size:
        context.call_each(("cuMemsetD8", address, byte, size), ("cuStreamSynchronize", _DEFAULT_STREAM))


def clear(context: GpuContext, address: int, size: int) -> None:
    """Set bytes of new memory to 0, of which no stream knows before ``settle``."""
    native = native_memory(context)
    if native is None:
        fill(context, address, size, 0)
    elif status := native.clear(address, size):
        raise context.refused("cuMemsetD8Async", status)


def settle(context: GpuContext) -> None:
    """Wait until all placements and clears of new memory in the default stream are done.

    Raises:
        DriverError: an earlier kernel failed.
    """
    native = native_memory(context)
    if native is not None and (status := native.settle(0)):
        raise context.refused("cuStreamSynchronize", status)


def _answered(context: GpuContext, function: str, status: int) -> None:
    """Allocate page-locked memory for small copies if a copy requests it, otherwise raise the error of the copy."""
    if status != WANTS_STAGING:
        raise context.refused(function, status)
    with suppress(DriverError):  # without, copies take as long as before
        staging = pin(context, STAGING_BYTES)
        unsettled = context.ring.unsettled
        unsettled.used, unsettled.id = 0, context.id
        unsettled.staging = staging.address
        context.ring.staging = staging


# -- large copies -----------------------------------------------------------------------------------------

LARGE_BYTES = 16 << 20
"""Copies of at least so many bytes are made by several threads; to get their memory takes as long as to copy that."""

_PIECE_BYTES = 2 << 20
_FEW_THREADS, _MOST_THREADS = 4, 8
"""Threads that copy: all processors up to 4, and half of the processors up to 8, so that other work goes on.

On the host of an H200 with 16 processors, 4 threads write at 36 to 45 % of the speed of page-locked memory, and 8 at
57 %: each reads 4 to 6 GB/s. Prefetching, several streams, and stores past the caches were no faster there.
"""
_NO_TIMING = 2  # Source: cuda.h, CU_EVENT_DISABLE_TIMING


class _Part:
    """The resources of a thread for its part of a copy: two pieces of page-locked memory, and an event for each."""

    def __init__(self, context: GpuContext, staging: int) -> None:
        self.staging = staging
        self.events = [context.call("cuEventCreate", _NO_TIMING) for _ in range(2)]

    def run(self, native: NativeMemory, copy: LargeCopy, *, is_in: bool) -> None:
        """Copy pieces until none is left. ``copy`` then contains the status."""
        native.pieces(ctypes.addressof(copy), self.staging, *map(int, self.events), is_in)


class LargeCopies:
    """The large copies of a context, one at a time, with at most 8 threads and 32 MiB of page-locked memory.

    The memory is allocated at the first large copy, and then kept.
    """

    def __init__(self, context: GpuContext) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._parts: list[_Part] | None = None
        self._id = 0
        self._memory: object = None
        register_reset(self)

    def copy(self, native: NativeMemory, address: int, data: Any, *, is_in: bool) -> bool:
        """Copy, in the default stream, and wait; False where the driver is to copy: it is as fast, or this is busy.

        Raises:
            DriverError: the driver reported an error.
        """
        host = address_of(data)
        if self._context.driver.is_emulated or self._is_page_locked(host):
            return False
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if self._parts is None or self._id != self._context.id:  # else its memory went with a reset of the device
                self._parts, self._id = self._made(), self._context.id
            if not self._parts:
                return False
            copy = LargeCopy(address=address, host=host, bytes=data.nbytes, piece_bytes=_PIECE_BYTES)
            self._run(native, self._parts, copy, is_in=is_in)
        finally:
            self._lock.release()
        if copy.status:
            raise self._context.refused("cuMemcpyHtoD" if is_in else "cuMemcpyDtoH", copy.status)
        return True

    @staticmethod
    def _run(native: NativeMemory, parts: list[_Part], copy: LargeCopy, *, is_in: bool) -> None:
        """Copy with one thread for each part, this one among them; all have ended when it returns or raises."""
        first, *others = parts
        threads: list[threading.Thread] = []
        try:
            with suppress(RuntimeError):  # no thread can be started: the others copy more
                for part in others:
                    run = functools.partial(part.run, native, copy, is_in=is_in)
                    threads.append(start(run, name="cujit-copy", daemon=True))
            first.run(native, copy, is_in=is_in)
        finally:
            while any(thread.is_alive() for thread in threads):
                with suppress(KeyboardInterrupt):  # it is copied soon
                    for thread in threads:
                        thread.join()

    def _made(self) -> list[_Part]:
        """Return the parts of all threads, with memory and events.

        Return an empty list if only one thread is available, or if page-locked memory can't be allocated.
        """
        count = max(min(_FEW_THREADS, processors()), min(_MOST_THREADS, processors() // 2))
        if count < 2:
            return []
        try:
            memory = pin(self._context, count * 2 * _PIECE_BYTES)
            parts = [_Part(self._context, memory.address + 2 * k * _PIECE_BYTES) for k in range(count)]
        except DriverError:
            return []
        self._memory = memory
        return parts

    def _is_page_locked(self, host: int) -> bool:
        """Return whether the driver knows memory of the host, which it then copies at full speed."""
        which = self._context.driver.bindings.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
        with self._context as driver:
            return not int(driver.attempt("cuPointerGetAttribute", which, host)[0])

    def after_fork(self) -> None:
        """Forget everything, in a forked child: the driver refuses to work there."""
        self._lock, self._parts, self._memory = threading.Lock(), None, None


@single_flight_cache(64)
def copies_of(context: GpuContext) -> LargeCopies:
    """Return the LargeCopies of a context."""
    return LargeCopies(context)


@once
def processors() -> int:
    """Count the processors that this process may keep busy, by its affinity and its control group.

    Source: Linux, "Control Group v2", ``cpu.max``; "CFS Bandwidth Control", ``cpu.cfs_quota_us``.
    """
    count = allowed_processors()
    for quota, period in ((_V2, None), (f"{_V1}quota_us", f"{_V1}period_us")):
        with suppress(OSError, ValueError):
            words = _words(quota) + (_words(period) if period else [])
            if words[0] not in ("max", "-1"):
                count = min(count, max(1, int(words[0]) // int(words[1])))
    return count


_V2 = "/sys/fs/cgroup/cpu.max"
_V1 = "/sys/fs/cgroup/cpu/cpu.cfs_"


def _words(path: str) -> list[str]:
    with open(path, encoding="ascii") as file:
        return file.read().split()
