"""Memory of a GPU: allocation, copies and fills."""

from __future__ import annotations

import weakref

import numpy as np

from cujit.devices.base import Allocation
from cujit.devices.cuda.context import Context

__all__ = ["allocate", "download", "fill", "upload"]


class _Block:
    """What an Allocation owns; the memory is freed when it goes."""

    __slots__ = ("__weakref__",)


def allocate(context: Context, size: int) -> Allocation:
    """Get ``size`` bytes, aligned to 256 at least; none of them has the address 0.

    The driver finishes all work before it frees memory, so an array may go while a kernel still uses it.

    Source: CUDA Driver API manual, ``cuMemAlloc`` and ``cuMemFree``;
    CUDA C++ Programming Guide, "Device Memory Accesses" (256 bytes).

    Raises:
        DriverError: the GPU has no such memory left.
    """
    if size == 0:
        return Allocation(0, 0)
    address = int(context.call("cuMemAlloc", size))
    block = _Block()
    # Not at exit: the process gives its memory back as a whole, and the driver may be gone by then.
    weakref.finalize(block, context.release, "cuMemFree", address).atexit = False
    return Allocation(address, size, block)


def upload(context: Context, address: int, data: memoryview) -> None:
    """Copy host bytes to the GPU."""
    if data.nbytes:
        source = np.frombuffer(data, np.uint8)
        context.call("cuMemcpyHtoD", address, source.ctypes.data, source.nbytes)


def download(context: Context, data: memoryview, address: int) -> None:
    """Copy bytes of the GPU to the host."""
    if data.nbytes:
        target = np.frombuffer(data, np.uint8)
        context.call("cuMemcpyDtoH", target.ctypes.data, address, target.nbytes)


def fill(context: Context, address: int, size: int, byte: int) -> None:
    """Set bytes of the GPU to one value."""
    if size:
        context.call("cuMemsetD8", address, byte, size)
