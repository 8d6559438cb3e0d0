"""Loads that the emulator's own thread does for threads that Python doesn't know: see ``native/loads.c``."""

from __future__ import annotations

import ctypes

from cujit.emulator.entries import ENTRIES
from cujit.emulator.machine import for_c, guarded, in_c
from cujit.emulator.modules import late
from cujit.emulator.process import emulation
from cujit.emulator.results import RefusedCall, Result
from cujit.emulator.structures import Load, LoadCall
from cujit.forks import once

_CALLS = {
    LoadCall.MODULE_DATA: "cuModuleLoadData",
    LoadCall.MODULE_FAT_BINARY: "cuModuleLoadFatBinary",
    LoadCall.MODULE_DATA_EX: "cuModuleLoadDataEx",
    LoadCall.MODULE_FILE: "cuModuleLoad",
    LoadCall.LIBRARY_DATA: "cuLibraryLoadData",
    LoadCall.LIBRARY_FILE: "cuLibraryLoadFromFile",
}

_begin = in_c("loads_begin", None, *[ctypes.c_void_p] * 4)


def _do(at: int) -> int:
    load = Load.from_address(at)
    entry = ENTRIES[_CALLS[LoadCall(load.call)]]
    return entry.answer(*load.arguments[: len(entry.types)])


def _register(at: int) -> int:
    """Put what was loaded behind the handle that its caller has, or keep the reason why nothing was."""
    load = Load.from_address(at)
    result = Result(load.answer)
    refused = RefusedCall(result, emulation().words(result)) if result else None
    late(load.handle, load.made, refused)
    return 0


@once
def prepare() -> tuple[object, ...]:
    """Register the functions that C calls, before the first call. The returned objects must stay alive."""
    pointers = [ENTRIES[_CALLS[call]].pointer() for call in LoadCall]
    guards = (ctypes.c_uint64 * len(pointers))(
        *(guarded(_CALLS[call], pointer) for call, pointer in zip(LoadCall, pointers, strict=True))
    )
    does, registers = (
        for_c(ctypes.c_int32, (ctypes.c_uint64,), body, Result.DEINITIALIZED) for body in (_do, _register)
    )
    known = ctypes.cast(ctypes.pythonapi.PyGILState_GetThisThreadState, ctypes.c_void_p)
    _begin(guards, does, registers, known)
    return guards, pointers, does, registers
