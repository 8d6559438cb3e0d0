"""The usual loading of a cubin, in native code. Native code also finds the cubin's kernels and the facts that their
launches need.
"""

from __future__ import annotations

import ctypes
from typing import Any

from cujit.arch import Arch
from cujit.devices.cuda.context import GpuContext
from cujit.devices.cuda.driver_module import DriverModule
from cujit.devices.cuda.launching import driver_entries
from cujit.devices.cuda.module import CudaModule
from cujit.devices.jit_options import JitOptions
from cujit.devices.launcher.cpython import BYTES, index_by, is_supported, native_function
from cujit.devices.launcher.entry import LaunchEntry, LoadedImage
from cujit.devices.launcher.library import library_or_none
from cujit.devices.launcher.state import CubinCalls, KeepsLaunches, ModuleSlots
from cujit.devices.shapes import Limits
from cujit.devices.streams import DeviceLike
from cujit.errors import DriverError
from cujit.values import attributes


class PlainCubins:
    """Native functions for the cubins of one GPU.

    ``load(image, given)`` loads the bytes of a cubin and returns a ``Module``. The module's image keeps ``given``,
    which is an Artifact or the bytes. ``find(module, lowered, patterns)`` returns a ``Kernel``. ``patterns`` contains
    the launch patterns of such kernels, by parameters. Both functions return None if the Python implementation is
    needed.
    """

    def __init__(self, load: Any, find: Any, keep: object) -> None:
        self.load, self.find, self._keep = load, find, keep


def plain_cubins(
    context: GpuContext, arch: Arch, limits: Limits, device: DeviceLike, patterns: object
) -> PlainCubins | None:
    """Create the native functions for a GPU. Return None without native code, or if the driver lacks a function.

    ``patterns`` are for kernels with known parameter sizes only. The device keeps the patterns.
    """
    native = library_or_none() if is_supported() else None
    if native is None:
        return None
    try:
        entries = driver_entries(context.driver)
    except DriverError:  # which the first launch tells
        return None
    originals = {
        "module": _Original(ModuleSlots.made),
        "image": _Original(LoadedImage, device=device, options=JitOptions()),
        "loaded": _Original(CudaModule, _rows=None, _limits=limits, arch=arch),
        "handle": _Original(DriverModule, context=context, is_loaded=True, _logs=None),
        "entry": _Original(LaunchEntry, _takes_ints=False),
        "kernel": _Original(KeepsLaunches.made, _last=None, _last_shape=None),
    }
    calls = bytes(
        CubinCalls(
            load=entries.load_module,
            get_function=entries.get_function,
            context=int(context.handle),
            **attributes(entries, "get_context set_context push_context pop_context"),
            **{name: id(original.words) + BYTES for name, original in originals.items()},
            names=id(context.ring.names),
            patterns=id(patterns),
            number=arch.number,
            max_threads=limits.max_threads,
            shared_bytes=limits.shared_bytes,
        )
    )
    originals["image"].set(_calls=calls)
    index_by(ModuleSlots.made, native.address("item"), "name")
    load = native_function("load", native.address("load"), calls, is_fast=True)
    find = native_function("find", native.address("kernel"), calls, is_fast=True)
    return PlainCubins(load.call, find.call, (load, find, calls, originals))


class _Original:
    """The words of an object that native code copies. Only these slots of the object are set.

    Other code may find the object, and add a weak reference or a ``__dict__``. The copied words contain neither.
    """

    def __init__(self, cls: type, **slots: object) -> None:
        self._made: object = object.__new__(cls)
        self.words = bytes(cls.__basicsize__)  # of which nobody else knows: a type of ctypes takes longer to make
        self.set(**slots)

    def set(self, **slots: object) -> None:
        """Set slots, and copy the object's words, before other code can find the object."""
        for name, value in slots.items():
            setattr(self._made, name, value)
        ctypes.memmove(id(self.words) + BYTES, id(self._made), len(self.words))
