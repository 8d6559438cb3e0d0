"""Calls that the emulator's own thread makes for threads that Python doesn't know: see ``native/promises.c``."""

from __future__ import annotations

import ctypes

from cujit.emulator import promised
from cujit.emulator.entries import ENTRIES
from cujit.emulator.linking import late_image, late_link
from cujit.emulator.machine import for_c, guarded, in_c
from cujit.emulator.modules import late
from cujit.emulator.process import emulation, say
from cujit.emulator.results import RefusedCall, Result
from cujit.emulator.structures import Promise, PromiseCall
from cujit.forks import once

_CALLS = {
    PromiseCall.MODULE_DATA: "cuModuleLoadData",
    PromiseCall.MODULE_FAT_BINARY: "cuModuleLoadFatBinary",
    PromiseCall.MODULE_DATA_EX: "cuModuleLoadDataEx",
    PromiseCall.MODULE_FILE: "cuModuleLoad",
    PromiseCall.LIBRARY_DATA: "cuLibraryLoadData",
    PromiseCall.LIBRARY_FILE: "cuLibraryLoadFromFile",
    PromiseCall.FUNCTION: "cuModuleGetFunction",
    PromiseCall.KERNEL: "cuLibraryGetKernel",
    PromiseCall.KERNEL_FUNCTION: "cuKernelGetFunction",
    PromiseCall.MODULE_UNLOAD: "cuModuleUnload",
    PromiseCall.LIBRARY_UNLOAD: "cuLibraryUnload",
    PromiseCall.FUNCTION_LOAD: "cuFuncLoad",
    PromiseCall.FUNCTION_ATTRIBUTE: "cuFuncSetAttribute",
    PromiseCall.KERNEL_ATTRIBUTE: "cuKernelSetAttribute",
    PromiseCall.FUNCTION_CACHE: "cuFuncSetCacheConfig",
    PromiseCall.FUNCTION_BANKS: "cuFuncSetSharedMemConfig",
    PromiseCall.KERNEL_CACHE: "cuKernelSetCacheConfig",
    PromiseCall.LINK: "cuLinkCreate",
    PromiseCall.LINK_DATA: "cuLinkAddData",
    PromiseCall.LINK_FILE: "cuLinkAddFile",
    PromiseCall.LINKED: "cuLinkComplete",
    PromiseCall.LINK_END: "cuLinkDestroy",
}

_begin = in_c("promises_begin", None, *[ctypes.c_void_p] * 4)


def _do(at: int) -> int:
    promise = Promise.from_address(at)
    return ENTRIES[_CALLS[PromiseCall(promise.call)]].answer_words(promise.arguments)


def _register(at: int) -> int:
    """Put what was made behind the handle that its caller has, or keep the reason why nothing was."""
    promise = Promise.from_address(at)
    result, call = Result(promise.answer), PromiseCall(promise.call)
    if result and promise.handle:
        promised.refuse(promise.handle, RefusedCall(result, emulation().words(result)))
    elif result:
        say(f"{_CALLS[call]} reported success early, and then failed: {emulation().words(result) or result.sentence}")
    elif call is PromiseCall.LINK:
        late_link(promise.handle, promise.made)
    elif call is PromiseCall.LINKED:
        late_image(promise.handle, promise.made, promise.arguments[0])
    elif promise.handle:
        late(promise.handle, promise.made)
    return 0


@once
def prepare() -> tuple[object, ...]:
    """Register the functions that C calls, before the first call. The returned objects must stay alive."""
    pointers = [ENTRIES[_CALLS[call]].pointer() for call in PromiseCall]
    guards = (ctypes.c_uint64 * len(pointers))(
        *(guarded(_CALLS[call], pointer) for call, pointer in zip(PromiseCall, pointers, strict=True))
    )
    does, registers = (
        for_c(ctypes.c_int32, (ctypes.c_uint64,), body, Result.DEINITIALIZED) for body in (_do, _register)
    )
    known = ctypes.cast(ctypes.pythonapi.PyGILState_GetThisThreadState, ctypes.c_void_p)
    _begin(guards, does, registers, known)
    return guards, pointers, does, registers
