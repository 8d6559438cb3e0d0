"""The usual way of a cubin to a GPU, in native code: loaded, and its kernels found with what their launches need."""

from __future__ import annotations

from typing import Any

from cujit.devices.cuda.context import GpuContext
from cujit.devices.cuda.launching import driver_entries
from cujit.devices.launcher.cpython import is_supported, native_function
from cujit.devices.launcher.library import library_or_none
from cujit.devices.launcher.state import CubinCalls
from cujit.devices.shapes import Limits
from cujit.errors import DriverError
from cujit.values import attributes


class PlainCubins:
    """Functions of native code for the cubins of one architecture.

    ``load(image)`` gives what native code read of each kernel (``CubinFacts``), and the ``CUmodule`` under None.
    ``find(module, name, row, patterns, alive, entry, names)`` gives the bytes of the ``LaunchPattern`` of a kernel.
    Both give None where the way that is written in Python is to be taken.
    """

    def __init__(self, load: Any, find: Any, keep: object) -> None:
        self.load, self.find, self._keep = load, find, keep


def plain_cubins(context: GpuContext, number: int, limits: Limits) -> PlainCubins | None:
    """Make the functions for the GPU of a context; None where there is no native code, or the driver lacks some."""
    native = library_or_none() if is_supported() else None
    if native is None:
        return None
    try:
        entries = driver_entries(context.driver)
    except DriverError:  # which the first launch tells
        return None
    calls = bytes(
        CubinCalls(
            load=entries.load_module,
            get_function=entries.get_function,
            context=int(context.handle),
            **attributes(entries, "get_context set_context push_context pop_context"),
            number=number,
            max_threads=limits.max_threads,
            shared_bytes=limits.shared_bytes,
        )
    )
    load = native_function("load", native.address("load"), calls)
    find = native_function("find", native.address("kernel"), calls, is_fast=True)
    return PlainCubins(load.call, find.call, (load, find, calls))
