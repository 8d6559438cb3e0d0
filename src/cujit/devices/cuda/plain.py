"""The usual way of a cubin to a GPU, in native code: loaded, and its kernels found with what their launches need."""

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
    """Functions of native code for the cubins of one GPU.

    ``load(image, given)`` loads the bytes of a cubin and returns a ``Module``, whose image keeps ``given``: an Artifact
    or these bytes. ``find(module, lowered, patterns)`` returns a ``Kernel``; ``patterns`` are those of such kernels by
    their parameters. Both return None where the way that is written in Python is to be taken.
    """

    def __init__(self, load: Any, find: Any, keep: object) -> None:
        self.load, self.find, self._keep = load, find, keep


def plain_cubins(
    context: GpuContext, arch: Arch, limits: Limits, device: DeviceLike, patterns: object
) -> PlainCubins | None:
    """Make the functions for a GPU; None where there is no native code, or the driver lacks some.

    ``patterns`` are those of kernels of which only the sizes of the parameters are known. The device keeps them.
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
    """The words of an object that native code copies: an object of a class that has these slots, and nothing else yet.

    Somebody may come upon the object, and give it a weak reference or a ``__dict__``, which the words then lack.
    """

    def __init__(self, cls: type, **slots: object) -> None:
        self._made: object = object.__new__(cls)
        self.words = bytes(cls.__basicsize__)  # of which nobody else knows: a type of ctypes takes longer to make
        self.set(**slots)

    def set(self, **slots: object) -> None:
        """Fill slots, before anybody else has the object."""
        for name, value in slots.items():
            setattr(self._made, name, value)
        ctypes.memmove(id(self.words) + BYTES, id(self._made), len(self.words))
