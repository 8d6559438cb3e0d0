"""Memory as Python knows it: how much there is, whose it is, and what the checks of the CPU device know of it."""

from __future__ import annotations

import ctypes

from cujit.emulator import contexts, device
from cujit.emulator.machine import in_c
from cujit.emulator.process import emulation

_end_context = in_c("memory_end_context", None, ctypes.c_uint64, ctypes.c_uint32)


def prepare() -> None:
    """Say how much memory there is, before the first call."""
    emulation().native.state.memory.total = device.total_bytes()


@contexts.at_end
def _ended(context: int, is_primary: bool) -> None:
    _end_context(context, is_primary)
