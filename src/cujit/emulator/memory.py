"""Memory in Python: its total size, and the information that the checks of the CPU device have about it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np

from cujit.devices.cpu.run.launch import HostBlock, live_blocks
from cujit.emulator import contexts
from cujit.emulator.device import total_bytes
from cujit.emulator.graph_memory import HeldPlace
from cujit.emulator.machine import in_c
from cujit.emulator.process import emulation, say
from cujit.emulator.results import Result
from cujit.errors import KernelFaultError

_end_context = in_c("memory_end_context", None, ctypes.c_uint64, ctypes.c_uint32)


def prepare() -> None:
    """Set how much memory there is, and which functions check accesses to it, before the first call."""
    memory = emulation().native.state.memory
    memory.total = total_bytes()
    if emulation().settings.check:
        memory.on_new, memory.on_free, memory.on_write, memory.on_copy = (
            ctypes.cast(function, ctypes.c_void_p).value for function in (_ON_NEW, _ON_FREE, _ON_WRITE, _ON_COPY)
        )


@contexts.at_end
def _ended(context: int, is_primary: bool) -> None:
    _end_context(context, is_primary)


# -- for checks of accesses ---------------------------------------------------------------------------------


_BLOCKS: dict[int, object] = {}
"""What was allocated, registered or mapped and is still there, by its address."""


def _on_new(address: int, size: int, _kind: int) -> None:
    memory, device = emulation().native.state.memory, emulation().device
    if memory.begin <= address < memory.end:
        _BLOCKS[address] = block = HostBlock(size, (address, HeldPlace.of(address)))
        device.allocated(block)
    else:
        _BLOCKS[address] = [device.adopt(begin, end - begin) for begin, end in _unknown(address, address + size)]


def _unknown(begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of memory that the checks do not know. They know arrays of ``cujit.cpu()`` in this process."""
    for address, size in sorted(live_blocks()):
        if size and address < end and begin < address + size:
            if begin < address:
                yield begin, address
            begin = address + size
    if begin < end:
        yield begin, end


def _on_free(address: int) -> None:
    del _BLOCKS[address]


def _on_write(address: int, size: int) -> None:
    emulation().device.written(address, size)


def _on_copy(to: int, source: int, size: int) -> None:
    """Before a copy: the host must not see what nobody wrote, and memory of the device takes it over."""
    memory, device = emulation().native.state.memory, emulation().device
    if memory.begin <= to < memory.end:
        device.copied(to, source, size)
        return
    try:
        device.read(source, size, np.dtype(np.uint8))
    except KernelFaultError as e:
        say(str(e))
        contexts.fail(Result.LAUNCH_FAILED, str(e))


_ON_NEW: Any = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32)(_on_new)
_ON_FREE: Any = ctypes.CFUNCTYPE(None, ctypes.c_uint64)(_on_free)
_ON_WRITE: Any = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_uint64)(_on_write)
_ON_COPY: Any = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64)(_on_copy)
