"""The state that kernels of one signature share on a device: their layout, and the types of arrays and structures that
fit.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping
from typing import Any

from cujit.devices.backend import PlainTarget, Target
from cujit.devices.device import Device
from cujit.devices.launcher.cpython import BYTES, Callables, is_supported
from cujit.devices.launcher.layout import Layout, layout_of
from cujit.devices.launcher.library import Library, library_or_none
from cujit.devices.launcher.scalars import numpy_scalars
from cujit.devices.launcher.state import LaunchState
from cujit.devices.shapes import LaunchShape, Limits
from cujit.forks import Lock
from cujit.signature import Parameter, Signature
from cujit.values import ready

ASLEEP = ctypes.c_uint64(0)
"""The word of a launch that is not bound yet; nobody writes it."""

_UNKNOWN = 1
"""The address of no object."""

NO_DTYPE = -1000
"""The code of no dtype of torch."""

_MOST_KEPT = 1024
_MOST_BY_ID = 64
"""Signatures that are found without a look at their parameters. The kernels of a library share a few."""


@functools.cache
def _words(count: int) -> type[ctypes.Array[ctypes.c_uint64]]:
    return ctypes.c_uint64 * count


class Learned:
    """The parameters of a signature on one device, and the dtypes and types that fit each parameter.

    A value that fits one kernel fits all kernels of the signature, so these kernels share this object.
    """

    def __init__(self, layout: Layout, device: Device) -> None:
        count = max(len(layout.fields), 1)
        self.layout = layout
        self.tensors = (ctypes.c_int32 * count)(*[NO_DTYPE] * count)
        self._dtypes = _words(count)(*[_UNKNOWN] * count)
        self._types = _words(count)(*[_UNKNOWN] * count)
        self._kept: list[object] = [None] * count
        self._kinds: list[object] = [None] * count
        self._ordinal = device.ordinal if device.is_gpu else None
        self._device = id(device)
        self._templates: dict[tuple[str, int], bytes] = {}
        self._lock = Lock()

    def dtype(self, index: int, dtype: object) -> None:
        """Remember the dtype of an array that fits, and keep it alive, so that no other object can have its address."""
        with self._lock:
            self._dtypes[index] = _UNKNOWN
            self._kept[index] = dtype
            self._dtypes[index] = id(dtype)

    def structure(self, index: int, layout: tuple[type, object] | None) -> None:
        """Remember and keep the type of a structure that fits, and its dtype if the type doesn't
        determine the dtype.
        """
        if layout is None:
            return
        self.kind(index, None)
        self.dtype(index, layout[1])
        self.kind(index, layout[0])

    def kind(self, index: int, kind: object) -> None:
        """Remember and keep the object that fitting values have in common, such as their type. None
        clears the object.
        """
        with self._lock:
            self._types[index] = _UNKNOWN
            self._kinds[index] = kind
            self._types[index] = _UNKNOWN if kind is None else id(kind)

    def fill(self, state: LaunchState, library: Library, submit: str) -> None:
        """Write the values that all launches of such kernels share into a state. ``submit`` names the function that
        starts launches.
        """
        layout = self.layout
        state.device, state.submit = self._device, library.address(submit)
        state.scalars = ctypes.addressof(numpy_scalars())
        is_gpu = self._ordinal is not None
        state.tensor_device_type, state.tensor_device_index = (1, self._ordinal) if is_gpu else (0, -1)
        state.alive, state.known = ctypes.addressof(ASLEEP), ctypes.addressof(self._dtypes)
        state.known_types, state.known_tensors = ctypes.addressof(self._types), ctypes.addressof(self.tensors)
        state.fields, state.count, state.size = layout.address, len(layout.fields), layout.size

    def template(self, library: Library, submit: str, fields: Mapping[str, int], complete: Any) -> int:
        """Return the address of the state from which launches are copied. ``fields`` contains the target of the
        launches.
        """
        key = submit, fields["context"]
        made = self._templates.get(key)
        if made is None:
            state = LaunchState(complete=id(complete), **fields)
            self.fill(state, library, submit)
            made = self._templates.setdefault(key, bytes(state))
        return id(made) + BYTES


def warm() -> None:
    """Load the launcher and its argument readers before the first launch needs them."""
    if is_supported() and library_or_none() is not None:
        from cujit.devices.launcher.cubin import CubinKernelFacts  # start-up: for a GPU

        numpy_scalars()
        ready(Callables, CubinKernelFacts, Layout, LaunchShape, Limits, Parameter, PlainTarget, Signature, Target)


def learned_of(device: Device, signature: Signature, *, takes_ints: bool = False) -> Learned | None:
    """Return the launch data that kernels with one signature share on a device.

    Return None if the signature is too large for native code. The device caches up to ``_MOST_KEPT`` results.
    """
    same, by_id = (id(signature), takes_ints), device.learned_by_id
    known = by_id.get(same)
    if known is not None:
        return known[1]  # type: ignore[no-any-return]
    kept, key = device.learned, (signature, takes_ints)
    found: Learned | None = kept.get(key)
    if found is None:
        layout = layout_of(signature, takes_ints=takes_ints)
        if layout is None:
            return None
        if len(kept) >= _MOST_KEPT:
            kept.clear()
        found = kept.setdefault(key, Learned(layout, device))
    if len(by_id) >= _MOST_BY_ID:
        by_id.clear()
    by_id[same] = signature, found
    return found
