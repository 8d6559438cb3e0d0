"""The launcher's native code, one shared object for each processor architecture.

``make native`` builds it without Python's headers and links it against no library. Each process loads it once. This
module fills in three tables with the addresses and numbers of this interpreter. So one build supports every version in
``cpython.VERSIONS``.
"""

from __future__ import annotations

import array
import ctypes
import os
from collections.abc import Callable, Iterable, Mapping

from cujit.artifact import ImageKind
from cujit.devices.arguments.pointers import Pointer
from cujit.devices.arrays.array import DeviceArray
from cujit.devices.launcher.cpython import (
    BYTES,
    NativeCall,
    address_of,
    basic_size_offset,
    native_function,
    object_type_offset,
    slot_offset,
)
from cujit.devices.launcher.liveness import PROCESS
from cujit.devices.launcher.scalars import scalar_offset
from cujit.devices.launcher.state import (
    EntrySlots,
    HandleSlots,
    ImageSlots,
    KeepsLaunches,
    LaunchSlots,
    LoadedSlots,
    ModuleSlots,
)
from cujit.errors import MissingError
from cujit.forks import cached_property, once
from cujit.values.hashing import use_native
from cujit.values.native import LOADED
from cujit.workers.package_files import data_path

NATIVE = data_path("devices", "launcher", "native")

FUNCTIONS = (
    "PyLong_AsLongLongAndOverflow",
    "PyLong_AsUnsignedLongLong",
    "PyLong_AsDouble",
    "PyLong_FromLong",
    "PyFloat_AsDouble",
    "PyBytes_AsString",
    "PyObject_VectorcallDict",
    "PyObject_CallMethodObjArgs",
    "PyObject_GetAttr",
    "PyObject_GetBuffer",
    "PyBuffer_Release",
    "PyErr_Occurred",
    "PyErr_Clear",
    "PyDict_GetItem",
    "PyTuple_Size",
    "PyTuple_GetItem",
    "PyUnicode_Compare",
    "PyType_GenericAlloc",
    "PyBytes_FromStringAndSize",
    "PyWeakref_NewRef",
    "PyDict_SetItem",
    "PyDict_Size",
    "PyBytes_Size",
    "PyDict_New",
    "PyUnicode_FromStringAndSize",
    "PyUnicode_AsUTF8AndSize",
    "PyLong_FromUnsignedLongLong",
    "PyFloat_FromDouble",
    "PyDictProxy_New",
    "PyTuple_Pack",
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
    "Py_IncRef",
    "Py_DecRef",
)
"""The functions of CPython that ``native/launcher.h`` declares, in the order of the table."""

OBJECTS: Mapping[str, object] = {
    "None": None,
    "True": True,
    "False": False,
    "zero": 0,
    "int": int,
    "float": float,
    "str": str,
    "tuple": tuple,
    "dict": dict,
    "bytes": bytes,
    "fix": "_fix",
    "look_up": "_look_up",
    "dtype": "dtype",
    "kind": "kind",
    "data": "data",
    "arch": "arch",
    "names": "names",
    "signatures": "signatures",
    "log": "log",
    "name": "name",
    "tool": "tool",
    "provenance": "provenance",
    "places": "places",
    "cubin": ImageKind.CUBIN,
    "empty": (),
    "DeviceArray": DeviceArray,
    "Pointer": Pointer,
}
"""Objects that live as long as the process. CPython has one object for each int from -5 to 256.

Source: CPython manual, "Integer Objects", ``PyLong_FromLong``.
"""

PLACES: Mapping[str, Callable[[], int]] = {
    "type": object_type_offset,
    "basic_size": basic_size_offset,
    "scalar": scalar_offset,
    "kernel_entry": lambda: slot_offset(KeepsLaunches, "_entry"),
    "kernel_launches": lambda: slot_offset(KeepsLaunches, "_launches"),
    "kernel_last": lambda: slot_offset(KeepsLaunches, "_last"),
    "kernel_last_shape": lambda: slot_offset(KeepsLaunches, "_last_shape"),
    "kernel_pattern": lambda: slot_offset(KeepsLaunches, "_pattern"),
    "module_image": lambda: slot_offset(ModuleSlots, "_image"),
    "module_kernels": lambda: slot_offset(ModuleSlots, "_kernels"),
    "module_load_s": lambda: slot_offset(ModuleSlots, "load_s"),
    "image_given": lambda: slot_offset(ImageSlots, "_given"),
    "image_calls": lambda: slot_offset(ImageSlots, "_calls"),
    "image_word": lambda: slot_offset(ImageSlots, "_word"),
    "image_loaded": lambda: slot_offset(ImageSlots, "loaded"),
    "loaded_module": lambda: slot_offset(LoadedSlots, "_module"),
    "loaded_data": lambda: slot_offset(LoadedSlots, "_data"),
    "loaded_rows": lambda: slot_offset(LoadedSlots, "_rows"),
    "handle_handle": lambda: slot_offset(HandleSlots, "_handle"),
    "handle_is_loaded": lambda: slot_offset(HandleSlots, "is_loaded"),
    "entry_image": lambda: slot_offset(EntrySlots, "image"),
    "entry_lowered": lambda: slot_offset(EntrySlots, "lowered"),
    "launch_entry": lambda: slot_offset(LaunchSlots, "_entry"),
    "launch_kernel": lambda: slot_offset(LaunchSlots, "_kernel"),
    "launch_options": lambda: slot_offset(LaunchSlots, "_options"),
    "launch_prepared": lambda: slot_offset(LaunchSlots, "_prepared"),
    "launch_shape": lambda: slot_offset(LaunchSlots, "_shape"),
    "launch_state": lambda: slot_offset(LaunchSlots, "_state"),
    "launch_stream": lambda: slot_offset(LaunchSlots, "_stream"),
    "launch_stream_owner": lambda: slot_offset(LaunchSlots, "stream_owner"),
    "launch_waits": lambda: slot_offset(LaunchSlots, "_waits"),
    "bytes": lambda: BYTES,
    "process": lambda: ctypes.addressof(PROCESS),
    "pointer_address": lambda: slot_offset(Pointer, "address"),
    "array_address": lambda: slot_offset(DeviceArray, "_address"),
    "array_allocation": lambda: slot_offset(DeviceArray, "_allocation"),
    "array_device": lambda: slot_offset(DeviceArray, "device"),
    "array_dtype": lambda: slot_offset(DeviceArray, "dtype"),
    "array_nbytes": lambda: slot_offset(DeviceArray, "nbytes"),
}
"""Where objects have their type, attributes and values, in bytes; each is found in an object of this interpreter.

``process`` is the address of the number that the words of open modules have.
"""


HITS = ("contains", "entry", "key", "record")
"""What the cache calls for a hit."""


class Library:
    """The loaded shared object. It is never unloaded: launches refer to its functions by address."""

    def __init__(self, path: str) -> None:
        """Load ``path`` and fill in its tables.

        Raises:
            MissingError: there is no such file, the system does not load it, this interpreter hides its functions, or
                another interpreter of the process has filled in the tables.
        """
        try:
            self._library = ctypes.PyDLL(path)
            functions = [address_of(name) for name in FUNCTIONS]
            interpreter = ctypes.PYFUNCTYPE(ctypes.c_uint64)(("PyInterpreterState_Get", ctypes.pythonapi))()
        except (OSError, AttributeError) as e:
            raise MissingError(f"can't load the launcher: {e}") from e
        self._addresses: dict[str, int] = {}
        owner = ctypes.c_uint64.in_dll(self._library, "cujit_interpreter")
        if owner.value not in (0, interpreter):
            raise MissingError("another interpreter in this process uses the launcher, and interpreters can't share it")
        owner.value = interpreter
        self._fill("functions", functions)
        self._fill("objects", map(id, OBJECTS.values()))
        self._fill("places", (find() for find in PLACES.values()))
        self.digest = native_function("digest", self.address("digest"), None, is_fast=True)
        """Returns the SHA-256 of the pieces that it is called with, or None without the processor's instructions."""
        self.hits = {name: native_function(name, self.address(name), None, is_fast=True) for name in HITS}

    @cached_property
    def relocate(self) -> NativeCall:
        """The native function that writes addresses into code, equivalent to ``object_loader.relocate``."""
        return native_function("relocate", self.address("relocate"), None, is_fast=True)

    def _fill(self, table: str, words: Iterable[int]) -> None:
        data = array.array("Q", words).tobytes()
        ctypes.memmove(self.address(table), data, len(data))

    def address(self, name: str) -> int:
        """Return the address of the function, or the table, ``cujit_name``."""
        found = self._addresses.get(name)
        if found is None:
            found = ctypes.cast(self._library[f"cujit_{name}"], ctypes.c_void_p).value or 0
            self._addresses[name] = found
        return found


@once
def library() -> Library:
    """Return the launcher for this processor, and load it at the first call.

    Raises:
        MissingError: the launcher can't be loaded, as in ``Library``.
    """
    found = Library(f"{NATIVE}/{os.uname().machine}/launcher.so")
    use_native(found.digest.call)
    LOADED.update({name: function.call for name, function in found.hits.items()})
    return found


@once
def library_or_none() -> Library | None:
    """Return the launcher, or None if it can't be loaded.

    If it can't be loaded, an event reports the reason, and launches run in Python.
    """
    try:
        return library()
    except MissingError as e:
        from cujit.events.hub import emit  # start-up: most processes load it
        from cujit.events.values import Fallback  # start-up: as above

        emit(Fallback, "devices", "launches", "the launcher written in Python", e.message)
        return None
