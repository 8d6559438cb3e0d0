"""What a driver answers to misuse, by what attributes begin with, in captures, and which entry points it has.

    python misuse.py > answers.jsonl

prints a line of JSON for each case: its name, the number that was answered, and values. It knows ctypes alone, so
that it runs on the driver of a GPU as well as on the emulator. Each group is a process of its own; so is each case that
leaves a process of no use. A case that ends its process answers null and the signal; its group is run again without it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

lib = ctypes.CDLL("libcuda.so.1")
GROUPS: list[Callable[[], None]] = []
RISKS: list[tuple[str, Callable[[], int]]] = []

U64 = ctypes.c_uint64
U32 = ctypes.c_uint32
I32 = ctypes.c_int32
WRONG = 0x1234_5678_9ABC
"""A number that is no handle."""
ENDED: set[str] = set()
"""Cases that ended their process; they are not asked again."""


def by(value: Any) -> Any:
    return ctypes.byref(value)


def said(case: str, answer: int | None, *values: Any) -> None:
    print(json.dumps({"case": case, "answer": answer, "values": list(values)}), flush=True)


def ask(case: str, name: str, *given: Any, out: tuple[Any, ...] = ()) -> int:
    """Call a function; numbers are pointers, handles or sizes. What it wrote is a value, where it succeeded."""
    if case in ENDED:
        return -1
    print(json.dumps({"asked": case}), flush=True)
    answer = int(getattr(lib, name)(*(U64(each) if isinstance(each, int) else each for each in given)))
    said(case, answer, *(each.value for each in out if answer == 0))
    return answer


def call(name: str, *given: Any) -> int:
    return int(getattr(lib, name)(*(U64(each) if isinstance(each, int) else each for each in given)))


def good(name: str, *given: Any) -> None:
    answer = call(name, *given)
    assert answer == 0, (name, answer)


def made(name: str, *given: Any) -> int:
    handle = U64()
    good(name, by(handle), *given)
    return handle.value


def group(body: Callable[[], None]) -> Callable[[], None]:
    GROUPS.append(body)
    return body


def risk(case: str) -> Callable[[Callable[[], int]], Callable[[], int]]:
    """Declare a case that could end the process; it gives the answer."""

    def declare(body: Callable[[], int]) -> Callable[[], int]:
        RISKS.append((case, body))
        return body

    return declare


def start() -> int:
    good("cuInit", U32(0))
    context = made("cuDevicePrimaryCtxRetain", I32(0))
    good("cuCtxSetCurrent", context)
    return context


def in_thread(context: int, work: Callable[[], int]) -> int:
    found: list[int] = []

    def run() -> None:
        call("cuCtxSetCurrent", context)
        found.append(work())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


@group
def the_machine() -> None:
    """What answered: the name of the GPU, and the version of CUDA that its driver speaks."""
    start()
    text, version = ctypes.create_string_buffer(100), I32()
    good("cuDeviceGetName", text, I32(100), I32(0))
    good("cuDriverGetVersion", by(version))
    said("the machine", 0, text.value.decode(), version.value)


# -- start, device, contexts --------------------------------------------------------------------------------


@group
def before_the_start() -> None:
    number, handle = I32(), U64()
    for name in ("cuDeviceGetCount", "cuCtxGetCurrent", "cuCtxGetDevice", "cuCtxPopCurrent_v2", "cuMemGetInfo_v2"):
        ask(f"before cuInit: {name}", name, by(handle), by(handle))
    ask("before cuInit: cuDeviceGet", "cuDeviceGet", by(number), I32(0))
    ask("before cuInit: cuStreamCreate", "cuStreamCreate", by(handle), U32(0))
    ask("before cuInit: cuEventCreate", "cuEventCreate", by(handle), U32(0))
    ask("before cuInit: cuMemAlloc", "cuMemAlloc_v2", by(handle), 16)
    ask("before cuInit: cuGraphCreate", "cuGraphCreate", by(handle), U32(0))
    ask("before cuInit: cuStreamQuery", "cuStreamQuery", 0)
    ask("before cuInit: cuCtxSynchronize", "cuCtxSynchronize")
    ask("before cuInit: cuDriverGetVersion of null", "cuDriverGetVersion", None)
    text = ctypes.c_char_p()
    for error in (0, 1, 700, 12345):
        ask(f"before cuInit: cuGetErrorName {error}", "cuGetErrorName", I32(error), by(text))
    ask("cuInit with flags", "cuInit", U32(1))
    ask("cuInit", "cuInit", U32(0))
    ask("cuInit again", "cuInit", U32(0))
    ask("cuDeviceGetCount of null", "cuDeviceGetCount", None)
    ask("cuDeviceGet of null", "cuDeviceGet", None, I32(0))
    for index in (-1, 99):
        ask(f"cuDeviceGet {index}", "cuDeviceGet", by(number), I32(index))
        ask(f"cuDeviceGetAttribute of device {index}", "cuDeviceGetAttribute", by(number), I32(1), I32(index))
        ask(f"cuDevicePrimaryCtxRetain of device {index}", "cuDevicePrimaryCtxRetain", by(handle), I32(index))
    for attribute in (-1, 0, 9999):
        ask(f"cuDeviceGetAttribute {attribute}", "cuDeviceGetAttribute", by(number), I32(attribute), I32(0))
    ask("cuDeviceGetAttribute of null", "cuDeviceGetAttribute", None, I32(1), I32(0))
    ask("cuDeviceGetName of null", "cuDeviceGetName", None, I32(10), I32(0))
    ask("cuDeviceTotalMem of null", "cuDeviceTotalMem_v2", None, I32(0))
    for name in ("cuMemGetInfo_v2", "cuCtxGetDevice", "cuCtxGetFlags", "cuCtxGetSharedMemConfig"):
        ask(f"no context: {name}", name, by(handle), by(handle))
    ask("no context: cuStreamCreate", "cuStreamCreate", by(handle), U32(0))
    ask("no context: cuEventCreate", "cuEventCreate", by(handle), U32(0))
    ask("no context: cuStreamQuery", "cuStreamQuery", 0)
    ask("no context: cuCtxSynchronize", "cuCtxSynchronize")
    ask("no context: cuMemAlloc", "cuMemAlloc_v2", by(handle), 16)
    ask("no context: cuGraphCreate", "cuGraphCreate", by(handle), U32(0))
    ask("no context: cuCtxPopCurrent", "cuCtxPopCurrent_v2", by(handle))
    ask("no context: cuCtxGetCurrent", "cuCtxGetCurrent", by(handle), out=(handle,))
    ask("cuCtxPushCurrent of null", "cuCtxPushCurrent_v2", 0)
    ask("cuCtxSetCurrent of null", "cuCtxSetCurrent", 0)
    ask("cuCtxDestroy of null", "cuCtxDestroy_v2", 0)
    ask("cuDevicePrimaryCtxRelease of none", "cuDevicePrimaryCtxRelease_v2", I32(0))
    ask("cuDevicePrimaryCtxSetFlags 3", "cuDevicePrimaryCtxSetFlags_v2", I32(0), U32(3))


@group
def attributes_of_the_device() -> None:
    start()
    number = I32()
    for attribute in range(1, 147):
        ask(f"device attribute {attribute}", "cuDeviceGetAttribute", by(number), I32(attribute), I32(0), out=(number,))


@group
def limits_of_a_context() -> None:
    start()
    size, number = U64(), I32()
    for limit in range(9):
        ask(f"cuCtxGetLimit {limit}", "cuCtxGetLimit", by(size), U32(limit))
    ask("cuCtxGetLimit of null", "cuCtxGetLimit", None, U32(0))
    ask("cuCtxGetLimit 99", "cuCtxGetLimit", by(size), U32(99))
    ask("cuCtxSetLimit 99", "cuCtxSetLimit", U32(99), 1)
    least, greatest = I32(), I32()
    ask("priorities", "cuCtxGetStreamPriorityRange", by(least), by(greatest), out=(least, greatest))
    ask("priorities of null", "cuCtxGetStreamPriorityRange", None, None)
    ask("cuCtxGetFlags", "cuCtxGetFlags", by(number))
    ask("cuCtxGetCacheConfig", "cuCtxGetCacheConfig", by(number), out=(number,))
    ask("cuCtxSetCacheConfig 9", "cuCtxSetCacheConfig", U32(9))
    ask("cuCtxGetApiVersion of null", "cuCtxGetApiVersion", 0, by(number))


FAULTS = b""".version 8.0
.target sm_80
.address_size 64
.visible .global .u32 here;
.visible .entry quiet() { ret; }
.visible .entry bounded() .maxntid 64, 1, 1 { ret; }
.visible .entry required() .reqntid 64, 1, 1 { ret; }
.visible .entry wild() { .reg .b64 %a; mov.u64 %a, 64; st.global.u32 [%a], 1; ret; }
.visible .entry crooked(.param .u64 at) {
  .reg .b64 %a; ld.param.u64 %a, [at]; add.u64 %a, %a, 1; st.global.u32 [%a], 1; ret;
}
.visible .entry trapped() { trap; }
.visible .entry far_shared(.param .u64 at) {
  .reg .b32 %a; .reg .b64 %b; ld.param.u64 %b, [at]; cvt.u32.u64 %a, %b; or.b32 %a, %a, 0x1000000;
  st.shared.u32 [%a], 1; ret;
}
.visible .entry null(.param .u64 at) {
  .reg .b32 %v; .reg .b64 %a; .reg .b64 %b; mov.u64 %a, 0; ld.param.u64 %b, [at]; ld.u32 %v, [%a];
  st.global.u32 [%b], %v; ret;
}
.visible .entry too_deep(.param .u64 at) {
  .reg .b32 %v; .reg .b64 %a; ld.param.u64 %a, [at]; or.b64 %a, %a, 0x1000000; ld.local.u32 %v, [%a];
  st.global.u32 [%a], %v; ret;
}
"""
NOTHING = (ctypes.c_void_p * 1)()


@group
def without_a_context() -> None:
    """Which calls a thread can make that has no context: those that name what they are about."""
    start()
    stream, event, module = (
        made("cuStreamCreate", U32(1)),
        made("cuEventCreate", U32(0)),
        made("cuModuleLoadData", ctypes.c_char_p(FAULTS)),
    )
    function = made("cuModuleGetFunction", module, ctypes.c_char_p(b"quiet"))
    one, two = made("cuMemAlloc_v2", 256), made("cuMemAlloc_v2", 256)
    freed, host, pooled = (
        made("cuMemAlloc_v2", 256),
        made("cuMemHostAlloc", 256, U32(0)),
        made("cuMemAllocAsync", 64, stream),
    )
    out, size, number, buffer = U64(), U64(), I32(), ctypes.create_string_buffer(256)
    good("cuEventRecord", event, stream)
    good("cuStreamSynchronize", stream)
    good("cuCtxPopCurrent_v2", by(out))
    shape = [U32(1)] * 6
    for case, name, given in (
        ("cuMemFree", "cuMemFree_v2", (freed,)), ("cuMemFree again", "cuMemFree_v2", (freed,)),
        ("cuMemFree of null", "cuMemFree_v2", (0,)), ("cuMemFreeHost", "cuMemFreeHost", (host,)),
        ("cuMemFreeAsync", "cuMemFreeAsync", (pooled, stream)), ("cuMemcpyHtoD", "cuMemcpyHtoD_v2", (one, buffer, 16)),
        ("cuMemcpyDtoH", "cuMemcpyDtoH_v2", (buffer, one, 16)),
        ("cuMemcpyHtoDAsync", "cuMemcpyHtoDAsync_v2", (one, buffer, 16, stream)),
        ("cuMemcpy", "cuMemcpy", (one, two, 16)),
        ("cuMemsetD8", "cuMemsetD8_v2", (one, ctypes.c_ubyte(0), 16)),
        ("cuMemsetD8Async", "cuMemsetD8Async", (one, ctypes.c_ubyte(0), 16, stream)),
        ("cuMemGetInfo", "cuMemGetInfo_v2", (by(out), by(size))),
        ("cuMemGetAddressRange", "cuMemGetAddressRange_v2", (by(out), by(size), one)),
        ("cuPointerGetAttribute", "cuPointerGetAttribute", (by(out), U32(1), one)),
        ("cuStreamSynchronize", "cuStreamSynchronize", (stream,)), ("cuStreamQuery", "cuStreamQuery", (stream,)),
        ("cuStreamWaitEvent", "cuStreamWaitEvent", (stream, event, U32(0))),
        ("cuStreamGetCtx", "cuStreamGetCtx", (stream, by(out))), ("cuStreamQuery of 0", "cuStreamQuery", (0,)),
        ("cuEventQuery", "cuEventQuery", (event,)), ("cuEventSynchronize", "cuEventSynchronize", (event,)),
        ("cuEventRecord", "cuEventRecord", (event, stream)),
        ("cuLaunchKernel", "cuLaunchKernel", (function, *shape, U32(0), stream, NOTHING, None)),
        ("cuLaunchKernel on 0", "cuLaunchKernel", (function, *shape, U32(0), 0, NOTHING, None)),
        ("cuFuncGetAttribute", "cuFuncGetAttribute", (by(number), U32(0), function)),
        ("cuModuleGetFunction", "cuModuleGetFunction", (by(out), module, ctypes.c_char_p(b"quiet"))),
        ("cuModuleGetGlobal", "cuModuleGetGlobal_v2", (by(out), by(size), module, ctypes.c_char_p(b"here"))),
        ("cuModuleUnload", "cuModuleUnload", (module,)), ("cuEventDestroy", "cuEventDestroy_v2", (event,)),
        ("cuStreamDestroy", "cuStreamDestroy_v2", (stream,)), ("cuMemAlloc", "cuMemAlloc_v2", (by(out), 16)),
        ("cuCtxGetDevice", "cuCtxGetDevice", (by(number),)),
    ):  # fmt: skip
        ask(f"none: {case}", name, *given)


# -- streams and events -------------------------------------------------------------------------------------


@group
def streams() -> None:
    start()
    handle, word, signed, value = U64(), U32(), I32(), (U64 * 8)()
    for flags in (0, 1, 2, 3, 0xFFFFFFFF):
        ask(f"cuStreamCreate with flags {flags}", "cuStreamCreate", by(handle), U32(flags))
    ask("cuStreamCreate of null", "cuStreamCreate", None, U32(0))
    for priority in (-100, -6, -5, -1, 0, 1, 7):
        answer = ask(
            f"cuStreamCreateWithPriority {priority}", "cuStreamCreateWithPriority", by(handle), U32(0), I32(priority)
        )
        if not answer:
            ask(f"priority of a stream of {priority}", "cuStreamGetPriority", handle.value, by(signed), out=(signed,))
    stream = made("cuStreamCreate", U32(1))
    for which, name in ((stream, "made"), (0, "null"), (1, "legacy"), (2, "of the thread")):
        ask(f"cuStreamGetFlags, {name}", "cuStreamGetFlags", which, by(word), out=(word,))
        ask(f"cuStreamGetPriority, {name}", "cuStreamGetPriority", which, by(signed), out=(signed,))
        ask(f"cuStreamIsCapturing, {name}", "cuStreamIsCapturing", which, by(word), out=(word,))
        ask(f"cuStreamGetDevice, {name}", "cuStreamGetDevice", which, by(signed), out=(signed,))
        for call_ in ("cuStreamQuery", "cuStreamSynchronize"):
            ask(f"{call_}, {name}", call_, which)
        for call_ in (
            "cuStreamGetFlags",
            "cuStreamGetPriority",
            "cuStreamIsCapturing",
            "cuStreamGetId",
            "cuStreamGetCtx",
        ):
            ask(f"{call_} of null, {name}", call_, which, None)
    for attribute in range(18):
        value = (U64 * 8)()
        if ask(f"cuStreamGetAttribute {attribute}", "cuStreamGetAttribute", stream, U32(attribute), value) == 0:
            said(f"stream attribute {attribute}", 0, value[0])
    ask("cuStreamGetAttribute of null", "cuStreamGetAttribute", stream, U32(8), None)
    ask("cuStreamSetAttribute of null", "cuStreamSetAttribute", stream, U32(8), None)
    ask("cuStreamSetAttribute 2", "cuStreamSetAttribute", stream, U32(2), value)
    ask("cuStreamDestroy of null", "cuStreamDestroy_v2", 0)
    ask("cuStreamDestroy, legacy", "cuStreamDestroy_v2", 1)
    ask("cuStreamDestroy, of the thread", "cuStreamDestroy_v2", 2)
    ask("cuLaunchHostFunc of null", "cuLaunchHostFunc", stream, None, None)
    ask("cuStreamAddCallback of null", "cuStreamAddCallback", stream, None, None, U32(0))
    memory = made("cuMemAlloc_v2", 64)
    for case, address, flags in (
        ("null", 0, 0),
        ("crooked", memory + 1, 0),
        ("flags 8", memory, 8),
        ("good", memory, 0),
    ):
        ask(f"cuStreamWaitValue32, {case}", "cuStreamWaitValue32_v2", stream, address, U32(0), U32(flags))
        ask(f"cuStreamWriteValue32, {case}", "cuStreamWriteValue32_v2", stream, address, U32(0), U32(flags))
    ask("cuStreamBatchMemOp of none", "cuStreamBatchMemOp_v2", stream, U32(0), None, U32(0))
    ask("cuStreamBatchMemOp with flags", "cuStreamBatchMemOp_v2", stream, U32(1), (U64 * 6)(2, memory), U32(1))
    ask("cuStreamBatchMemOp 77", "cuStreamBatchMemOp_v2", stream, U32(1), (U64 * 6)(77, memory), U32(0))
    ask("cuStreamDestroy", "cuStreamDestroy_v2", stream)


@group
def host_functions() -> None:
    start()
    stream, seen = made("cuStreamCreate", U32(1)), []

    def inside(data: int) -> None:
        del data
        number = I32()
        seen.append(call("cuStreamQuery", stream))
        seen.append(call("cuDeviceGetCount", by(number)))
        seen.append(call("cuCtxSynchronize"))

    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(inside)
    good("cuLaunchHostFunc", stream, function, None)
    good("cuStreamSynchronize", stream)
    said("calls in a host function", 0, *seen)


@group
def events() -> None:
    start()
    handle, time = U64(), ctypes.c_float()
    for flags in (0, 1, 2, 3, 4, 5, 6, 7, 8):
        ask(f"cuEventCreate with flags {flags}", "cuEventCreate", by(handle), U32(flags))
    ask("cuEventCreate of null", "cuEventCreate", None, U32(0))
    stream, other, one, two, quiet = (
        0,
        made("cuStreamCreate", U32(1)),
        *(made("cuEventCreate", U32(k)) for k in (0, 0, 2)),
    )
    ask("cuEventQuery, not recorded", "cuEventQuery", one)
    ask("cuEventSynchronize, not recorded", "cuEventSynchronize", one)
    ask("cuStreamWaitEvent, not recorded", "cuStreamWaitEvent", other, one, U32(0))
    for version in ("cuEventElapsedTime", "cuEventElapsedTime_v2"):
        ask(f"{version}, not recorded", version, by(time), one, two)
    good("cuEventRecord", one, stream)
    good("cuStreamSynchronize", 0)
    for version in ("cuEventElapsedTime", "cuEventElapsedTime_v2"):
        ask(f"{version}, the end not recorded", version, by(time), one, two)
        ask(f"{version}, the same event", version, by(time), one, one, out=(time,))
        ask(f"{version} of null", version, None, one, one)
    good("cuEventRecord", quiet, stream)
    good("cuStreamSynchronize", 0)
    for version in ("cuEventElapsedTime", "cuEventElapsedTime_v2"):
        ask(f"{version}, without timing", version, by(time), one, quiet)
    ask("cuEventQuery, recorded", "cuEventQuery", one)
    for flags in (1, 2):
        ask(f"cuEventRecordWithFlags {flags}", "cuEventRecordWithFlags", one, other, U32(flags))
        ask(f"cuStreamWaitEvent with flags {flags}", "cuStreamWaitEvent", other, one, U32(flags))
    for name in ("cuEventQuery", "cuEventSynchronize", "cuEventDestroy_v2"):
        ask(f"{name} of null", name, 0)
    ask("cuEventRecord of null", "cuEventRecord", 0, other)
    ask("cuStreamWaitEvent of null", "cuStreamWaitEvent", other, 0, U32(0))
    ask("cuEventDestroy", "cuEventDestroy_v2", one)


@group
def events_of_another_context() -> None:
    context = start()
    event, stream = made("cuEventCreate", U32(0)), made("cuStreamCreate", U32(1))
    second = U64()
    good("cuCtxCreate_v4", by(second), None, U32(0), I32(0))
    theirs, own = made("cuStreamCreate", U32(1)), made("cuEventCreate", U32(0))
    time = ctypes.c_float()
    ask("cuEventRecord in a stream of another context", "cuEventRecord", event, theirs)
    ask("cuEventRecord of another context's two", "cuEventRecord", event, stream)
    good("cuEventRecord", own, theirs)
    good("cuStreamSynchronize", theirs)
    good("cuStreamSynchronize", stream)
    ask("cuStreamWaitEvent for another context", "cuStreamWaitEvent", theirs, event, U32(0))
    ask("cuEventElapsedTime over contexts", "cuEventElapsedTime", by(time), event, own)
    ask("cuStreamQuery of another context", "cuStreamQuery", stream)
    ask("cuStreamDestroy of another context", "cuStreamDestroy_v2", stream)
    good("cuCtxDestroy_v2", second.value)
    good("cuCtxSetCurrent", context)


PTX = b""".version 8.0
.target sm_80
.address_size 64
.visible .global .align 4 .u32 counter[4];
.visible .entry one(.param .u64 at, .param .u32 value)
{
  .reg .b32 %r<2>; .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [at]; ld.param.u32 %r1, [value];
  st.global.u32 [%rd1], %r1;
  ret;
}
"""


# -- capture ------------------------------------------------------------------------------------------------


@group
def captures() -> None:
    context = start()
    s, t, blocking = (made("cuStreamCreate", U32(k)) for k in (1, 1, 0))
    e, back, quiet = (made("cuEventCreate", U32(k)) for k in (2, 2, 0))
    time, nothing = ctypes.c_float(), ctypes.CFUNCTYPE(None, ctypes.c_void_p)(id)
    good("cuEventRecord", quiet, t)
    memory = made("cuMemAlloc_v2", 256)
    word, graph, number = U32(), U64(), U64()

    def begin(stream: int = s, mode: int = 0) -> None:
        good("cuStreamBeginCapture_v2", stream, U32(mode))

    def end(case: str, stream: int = s) -> None:
        good("cuStreamIsCapturing", stream, by(word))
        status = word.value
        said(f"{case}: status, end", call("cuStreamEndCapture", stream, by(graph)), status, graph.value != 0)
        with contextlib.suppress(AssertionError):
            good("cuStreamIsCapturing", stream, by(word))
            said(f"{case}: status after the end", 0, word.value)

    for name, stream in (("null", 0), ("legacy", 1)):
        ask(f"cuStreamBeginCapture, {name}", "cuStreamBeginCapture_v2", stream, U32(0))
    ask("cuStreamBeginCapture, mode 3", "cuStreamBeginCapture_v2", s, U32(3))
    ask("cuStreamEndCapture, not captured", "cuStreamEndCapture", s, by(graph))
    ask("cuStreamGetCaptureInfo, not captured", "cuStreamGetCaptureInfo", s, by(word), by(number), out=(word,))
    ask("cuStreamGetCaptureInfo of null", "cuStreamGetCaptureInfo", s, None, by(number))
    ask("cuStreamUpdateCaptureDependencies, not captured", "cuStreamUpdateCaptureDependencies", s, None, 0, U32(0))
    begin()
    end("nothing captured")
    begin(2)
    end("the thread's own stream", 2)
    begin()
    ask("begun twice", "cuStreamBeginCapture_v2", s, U32(0))
    end("begun twice")
    begin()
    ask("cuStreamUpdateCaptureDependencies, flags 2", "cuStreamUpdateCaptureDependencies", s, None, 0, U32(2))
    end("flags of an update")
    for mode in range(3):
        for name in ("cuStreamQuery", "cuStreamSynchronize"):
            begin(mode=mode)
            ask(f"{name} in mode {mode}", name, s)
            end(f"{name} in mode {mode}")
        begin(mode=mode)
        ask(f"cuCtxSynchronize in mode {mode}", "cuCtxSynchronize")
        end(f"cuCtxSynchronize in mode {mode}")
        begin(mode=mode)
        ask(f"cuMemAlloc in mode {mode}", "cuMemAlloc_v2", by(number), 16)
        end(f"cuMemAlloc in mode {mode}")
        begin(mode=mode)
        said(
            f"cuMemAlloc in another thread in mode {mode}",
            in_thread(context, lambda: call("cuMemAlloc_v2", by(number), 16)),
        )
        end(f"cuMemAlloc in another thread in mode {mode}")
        begin(mode=mode)
        said(
            f"end in another thread in mode {mode}",
            in_thread(context, lambda: call("cuStreamEndCapture", s, by(graph))),
        )
        end(f"end in another thread in mode {mode}")
        begin(mode=mode)
        ask(f"cuStreamQuery of another stream in mode {mode}", "cuStreamQuery", t)
        end(f"cuStreamQuery of another stream in mode {mode}")
        begin(mode=mode)
        for name, given in (
            ("cuStreamSynchronize", (t,)), ("cuEventQuery", (quiet,)), ("cuEventSynchronize", (quiet,)),
            # Before somebody records the event again, which may then not be there yet.
            ("cuEventElapsedTime", (by(time), quiet, quiet)),
            ("cuStreamGetFlags", (t, by(word))), ("cuEventRecord", (quiet, t)),
            ("cuStreamWaitEvent", (t, quiet, U32(0))),
            ("cuMemsetD8Async", (memory, ctypes.c_ubyte(1), 16, t)), ("cuMemAllocAsync", (by(number), 16, t)),
            ("cuStreamCreate", (by(number), U32(1))), ("cuEventCreate", (by(number), U32(0))),
            ("cuMemGetInfo_v2", (by(number), by(graph))),
            ("cuModuleLoadData", (by(number), ctypes.c_char_p(PTX))), ("cuCtxGetCurrent", (by(number),)),
            ("cuStreamIsCapturing", (t, by(word))), ("cuLaunchHostFunc", (t, nothing, None)),
        ):  # fmt: skip
            begin_again = call("cuStreamIsCapturing", s, by(word)) or word.value != 1
            if begin_again:
                call("cuStreamEndCapture", s, by(graph))
                begin(mode=mode)
            ask(f"beside a capture in mode {mode}: {name}", name, *given)
            good("cuStreamIsCapturing", s, by(word))
            said(f"beside a capture in mode {mode}: {name}: status", 0, word.value)
        call("cuStreamEndCapture", s, by(graph))
        good("cuStreamSynchronize", t)
        begin(mode=mode)
        said(f"cuStreamQuery in another thread in mode {mode}", in_thread(context, lambda: call("cuStreamQuery", t)))
        end(f"cuStreamQuery in another thread in mode {mode}")
        begin(mode=mode)
        ask(f"cuMemsetD8 in mode {mode}", "cuMemsetD8_v2", memory, ctypes.c_ubyte(1), 16)
        end(f"cuMemsetD8 in mode {mode}")
        begin(mode=mode)
        ask(f"cuMemFree in mode {mode}", "cuMemFree_v2", 0)
        end(f"cuMemFree in mode {mode}")
    begin()
    ask("a set is captured", "cuMemsetD8Async", memory, ctypes.c_ubyte(1), 16, s)
    good("cuEventRecord", e, s)
    ask("cuEventQuery of a captured event", "cuEventQuery", e)
    end("cuEventQuery of a captured event")
    ask("cuEventQuery after the capture", "cuEventQuery", e)
    ask("cuEventSynchronize after the capture", "cuEventSynchronize", e)
    ask("cuStreamWaitEvent after the capture", "cuStreamWaitEvent", t, e, U32(0))
    begin()
    ask("cuStreamAddCallback", "cuStreamAddCallback", s, ctypes.CFUNCTYPE(None)(lambda: None), None, U32(0))
    end("cuStreamAddCallback")
    begin()
    good("cuEventRecord", e, s)
    ask("a stream joins", "cuStreamWaitEvent", t, e, U32(0))
    ask("end in a stream that joined", "cuStreamEndCapture", t, by(graph))
    end("end in a stream that joined")
    begin()
    good("cuEventRecord", e, s)
    good("cuStreamWaitEvent", t, e, U32(0))
    end("joined, without work")
    begin()
    good("cuEventRecord", e, s)
    good("cuStreamWaitEvent", t, e, U32(0))
    good("cuMemsetD8Async", memory, ctypes.c_ubyte(1), 16, t)
    end("not joined again")
    ask("the other stream, not joined again", "cuStreamIsCapturing", t, by(word), out=(word,))
    begin()
    good("cuEventRecord", e, s)
    good("cuStreamWaitEvent", t, e, U32(0))
    good("cuMemsetD8Async", memory, ctypes.c_ubyte(1), 16, t)
    good("cuEventRecord", back, t)
    ask("joined again", "cuStreamWaitEvent", s, back, U32(0))
    end("joined again")
    fresh = made("cuEventCreate", U32(2))
    begin()
    ask("an event that was not recorded", "cuStreamWaitEvent", s, fresh, U32(0))
    end("an event that was not recorded")
    good("cuEventRecord", fresh, t)
    begin()
    ask("an event from outside", "cuStreamWaitEvent", s, fresh, U32(0))
    end("an event from outside")
    begin()
    begin(t)
    good("cuEventRecord", e, t)
    ask("an event of another capture", "cuStreamWaitEvent", s, e, U32(0))
    end("an event of another capture")
    end("an event of another capture, the other", t)
    begin(blocking)
    for name in ("cuStreamQuery", "cuStreamSynchronize"):
        ask(f"{name} of the default stream while a blocking one is captured", name, 0)
    end("the default stream was asked", blocking)
    begin(blocking)
    ask("work on the default stream", "cuMemsetD8Async", memory, ctypes.c_ubyte(1), 16, 0)
    end("work on the default stream", blocking)
    begin(blocking)
    ask("cuStreamIsCapturing of the default stream", "cuStreamIsCapturing", 0, by(word))
    end("cuStreamIsCapturing of the default stream", blocking)
    begin()
    ask("work on the default stream beside a non-blocking one", "cuMemsetD8Async", memory, ctypes.c_ubyte(1), 16, 0)
    end("work on the default stream beside a non-blocking one")
    begin()
    ask("cuStreamDestroy of a captured stream", "cuStreamDestroy_v2", s)
    exchanged = U32(7)
    ask("capture mode 7", "cuThreadExchangeStreamCaptureMode", by(exchanged))
    ask("capture mode of null", "cuThreadExchangeStreamCaptureMode", None)
    exchanged.value = 2
    ask("capture mode of a thread", "cuThreadExchangeStreamCaptureMode", by(exchanged), out=(exchanged,))


# -- graphs -------------------------------------------------------------------------------------------------


@group
def graphs() -> None:
    start()
    handle, count, graph = U64(), U64(), made("cuGraphCreate", U32(0))
    ask("cuGraphCreate of null", "cuGraphCreate", None, U32(0))
    ask("cuGraphCreate with flags", "cuGraphCreate", by(handle), U32(1))

    def node(*before: int) -> int:
        return made("cuGraphAddEmptyNode", graph, (U64 * max(len(before), 1))(*before), len(before))

    a, b = node(), node()
    c = node(a)
    other = made("cuGraphCreate", U32(0))
    alien = made("cuGraphAddEmptyNode", other, None, 0)
    for case, nodes in (("of another graph", (alien,)), ("twice", (a, a))):
        array = (U64 * len(nodes))(*nodes)
        ask(f"a node that waits for one {case}", "cuGraphAddEmptyNode", by(handle), graph, array, len(nodes))
    ask("a node with a count and no list", "cuGraphAddEmptyNode", by(handle), graph, None, 1)
    ask("a node of no graph", "cuGraphAddEmptyNode", by(handle), 0, None, 0)
    ask("cuGraphAddEmptyNode of null", "cuGraphAddEmptyNode", None, graph, None, 0)
    for case, one, two in (("to itself", a, a), ("that is there", a, c), ("over graphs", a, alien), ("good", a, b)):
        ask(f"an edge {case}", "cuGraphAddDependencies", graph, by(U64(one)), by(U64(two)), 1)
    ask("an edge taken that is not there", "cuGraphRemoveDependencies", graph, by(U64(b)), by(U64(c)), 1)
    ask("edges of null", "cuGraphAddDependencies", graph, None, None, 1)
    ask("no edges", "cuGraphAddDependencies", graph, None, None, 0)
    ask("cuGraphGetNodes, count", "cuGraphGetNodes", graph, None, by(count), out=(count,))
    ask("cuGraphGetNodes of null", "cuGraphGetNodes", graph, None, None)
    for room in (0, 2, 5):
        count.value, found = room, (U64 * 6)(*[9] * 6)
        ask(f"cuGraphGetNodes, room for {room}", "cuGraphGetNodes", graph, found, by(count), out=(count,))
        said(
            f"nodes in room for {room}",
            0,
            *(("same" if each == 9 else "null" if not each else "node") for each in found),
        )
    count.value = 5
    ask("cuGraphGetRootNodes", "cuGraphGetRootNodes", graph, (U64 * 6)(), by(count), out=(count,))
    ask("cuGraphGetEdges, one list", "cuGraphGetEdges", graph, (U64 * 6)(), None, by(count))
    executable = U64()
    for wanted in (0, 1, 2, 8, 16):
        ask(f"cuGraphInstantiateWithFlags {wanted}", "cuGraphInstantiateWithFlags", by(executable), graph, wanted)
    ask("cuGraphInstantiate of null", "cuGraphInstantiateWithFlags", None, graph, 0)
    good("cuGraphInstantiateWithFlags", by(executable), graph, 0)
    flags = U64()
    ask("cuGraphExecGetFlags", "cuGraphExecGetFlags", executable.value, by(flags), out=(flags,))
    ask("cuGraphLaunch", "cuGraphLaunch", executable.value, 0)
    ask("cuGraphNodeSetEnabled of an empty node", "cuGraphNodeSetEnabled", executable.value, a, U32(0))
    ask("parameters of a host node of an empty one", "cuGraphHostNodeGetParams", a, (U64 * 4)())
    ask("parameters of a kernel's node of an empty one", "cuGraphKernelNodeGetParams_v2", a, (U64 * 9)())
    ask("the graph of an empty node", "cuGraphChildGraphNodeGetGraph", a, by(handle))
    kind = U32()
    ask("cuGraphNodeGetType", "cuGraphNodeGetType", a, by(kind), out=(kind,))
    ask("cuGraphNodeGetType of null", "cuGraphNodeGetType", a, None)
    ask("a host node of null", "cuGraphAddHostNode", by(handle), graph, None, 0, None)
    ask("a host node without a function", "cuGraphAddHostNode", by(handle), graph, None, 0, (U64 * 2)())
    memory = made("cuMemAlloc_v2", 64)
    for case, words in (
        ("of null", (0, 0, 1 | 4 << 32, 4, 1)), ("of 3 bytes", (memory, 0, 1 | 3 << 32, 4, 1)),
        ("without width", (memory, 0, 1 | 4 << 32, 0, 1)), ("without height", (memory, 0, 1 | 4 << 32, 4, 0)),
        ("crooked", (memory + 1, 0, 1 | 4 << 32, 4, 1)), ("good", (memory, 0, 1 | 4 << 32, 4, 1)),
    ):  # fmt: skip
        context = U64()
        good("cuCtxGetCurrent", by(context))
        words_ = (U64 * 5)(*words)
        ask(f"a set node {case}", "cuGraphAddMemsetNode", by(handle), graph, None, 0, words_, context)
    ask("a free node of other memory", "cuGraphAddMemFreeNode", by(handle), graph, None, 0, memory)
    info = (U64 * 3)()
    ask("an update with more nodes", "cuGraphExecUpdate_v2", executable.value, graph, info)
    said("result of an update with more nodes", 0, info[0] & 0xFFFFFFFF)
    ask("a circle is made", "cuGraphAddDependencies", graph, by(U64(c)), by(U64(a)), 1)
    ask("a circle is instantiated", "cuGraphInstantiateWithFlags", by(executable), graph, 0)
    clone = made("cuGraphClone", other)
    ask("cuGraphNodeFindInClone", "cuGraphNodeFindInClone", by(handle), alien, clone)
    ask("cuGraphNodeFindInClone of another", "cuGraphNodeFindInClone", by(handle), a, clone)
    for name in ("cuGraphDestroy", "cuGraphExecDestroy", "cuGraphDestroyNode"):
        ask(f"{name} of null", name, 0)
    end = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(str)
    for case, function, references, flags_ in (
        ("0 references", end, 0, 1),
        ("flags 0", end, 1, 0),
        ("good", end, 1, 1),
    ):
        ask(f"a user object, {case}", "cuUserObjectCreate", by(handle), 1, function, U32(references), U32(flags_))
    ask("too many references are given back", "cuUserObjectRelease", handle.value, U32(5))
    ask("cuGraphDebugDotPrint to nowhere", "cuGraphDebugDotPrint", other, ctypes.c_char_p(b"/nowhere/x.dot"), U32(0))


# -- memory, modules, launches ------------------------------------------------------------------------------


@group
def memory() -> None:
    start()
    handle, size, byte = U64(), U64(), ctypes.c_ubyte(1)
    ask("cuMemAlloc of no bytes", "cuMemAlloc_v2", by(handle), 0)
    ask("cuMemAlloc of null", "cuMemAlloc_v2", None, 16)
    ask("cuMemAlloc of too much", "cuMemAlloc_v2", by(handle), 1 << 60)
    ask("cuMemFree of null", "cuMemFree_v2", 0)
    ask("cuMemFree of no address of ours", "cuMemFree_v2", WRONG)
    at = made("cuMemAlloc_v2", 64)
    ask("cuMemFree inside", "cuMemFree_v2", at + 16)
    host = made("cuMemAllocHost_v2", 64)
    ask("cuMemFree of host memory", "cuMemFree_v2", host)
    ask("cuMemFreeHost of device memory", "cuMemFreeHost", at)
    for flags in (0, 7, 8):
        ask(f"cuMemHostAlloc with flags {flags}", "cuMemHostAlloc", by(handle), 16, U32(flags))
    for flags in (0, 1, 2, 4):
        ask(f"cuMemAllocManaged with flags {flags}", "cuMemAllocManaged", by(handle), 16, U32(flags))
    ask("cuMemAllocPitch of elements of 3", "cuMemAllocPitch_v2", by(handle), by(size), 10, 10, U32(3))
    ask("cuMemsetD8 of null", "cuMemsetD8_v2", 0, byte, 16)
    ask("cuMemsetD8 of null, no bytes", "cuMemsetD8_v2", 0, byte, 0)
    ask("cuMemsetD32, crooked", "cuMemsetD32_v2", at + 1, U32(1), 4)
    ask("cuMemsetD8 too far", "cuMemsetD8_v2", at, byte, 1 << 40)
    buffer = ctypes.create_string_buffer(64)
    ask("cuMemcpyHtoD to null", "cuMemcpyHtoD_v2", 0, buffer, 16)
    ask("cuMemcpyHtoD from null", "cuMemcpyHtoD_v2", at, None, 16)
    ask("cuMemcpyHtoD, no bytes", "cuMemcpyHtoD_v2", 0, None, 0)
    ask("cuMemcpyDtoH from null", "cuMemcpyDtoH_v2", buffer, 0, 16)
    ask("cuMemcpyDtoD", "cuMemcpyDtoD_v2", at, at + 32, 16)
    base = U64()
    ask("cuMemGetAddressRange", "cuMemGetAddressRange_v2", by(base), by(size), at + 3, out=(size,))
    ask("cuMemGetAddressRange of no address of ours", "cuMemGetAddressRange_v2", by(base), by(size), WRONG)
    for attribute in range(1, 21):
        for case, address in (("device", at), ("host", host)):
            value = (U64 * 8)()
            ask(f"pointer attribute {attribute}, {case}", "cuPointerGetAttribute", value, U32(attribute), address)
    for attribute in (1, 2, 9):
        ask(f"pointer attribute {attribute}, not ours", "cuPointerGetAttribute", (U64 * 8)(), U32(attribute), buffer)
    ask("cuMemHostRegister of null", "cuMemHostRegister_v2", None, 16, U32(0))
    ask("cuMemHostUnregister of what was not", "cuMemHostUnregister", buffer)
    ask("cuMemFree", "cuMemFree_v2", at)
    ask("cuMemFree again", "cuMemFree_v2", at)


@group
def modules_and_launches() -> None:
    start()
    handle, size, number = U64(), U64(), I32()
    for case, image in (
        ("nothing", b""), ("other text", b"hello"), ("a newer version", PTX.replace(b"8.0", b"99.9")),
        ("another machine", PTX.replace(b"sm_80", b"sm_999")), ("an error", PTX.replace(b"ret;", b"ret")),
        ("an ELF without content", b"\x7fELF" + bytes(200)),
    ):  # fmt: skip
        ask(f"cuModuleLoadData of {case}", "cuModuleLoadData", by(handle), ctypes.c_char_p(image))
    ask("cuModuleLoadData of null", "cuModuleLoadData", by(handle), None)
    ask("cuModuleLoad of no file", "cuModuleLoad", by(handle), ctypes.c_char_p(b"/nowhere/x.ptx"))
    module = made("cuModuleLoadData", ctypes.c_char_p(PTX))
    for name in (b"none", b""):
        ask(f"cuModuleGetFunction {name.decode()!r}", "cuModuleGetFunction", by(handle), module, ctypes.c_char_p(name))
        ask(
            f"cuModuleGetGlobal {name.decode()!r}",
            "cuModuleGetGlobal_v2",
            by(handle),
            by(size),
            module,
            ctypes.c_char_p(name),
        )
    ask("cuModuleGetFunction of null", "cuModuleGetFunction", None, module, ctypes.c_char_p(b"one"))
    ask("cuModuleGetFunction of no name", "cuModuleGetFunction", by(handle), module, None)
    ask(
        "cuModuleGetGlobal",
        "cuModuleGetGlobal_v2",
        by(handle),
        by(size),
        module,
        ctypes.c_char_p(b"counter"),
        out=(size,),
    )
    one = made("cuModuleGetFunction", module, ctypes.c_char_p(b"one"))
    for attribute in range(17):
        ask(f"function attribute {attribute}", "cuFuncGetAttribute", by(number), U32(attribute), one, out=(number,))
    for attribute, value in ((0, 1), (8, 1 << 30), (8, -1), (9, 101), (99, 1)):
        ask(f"cuFuncSetAttribute {attribute} {value}", "cuFuncSetAttribute", one, U32(attribute), I32(value))
    offset = U64()
    for index in range(3):
        ask(f"cuFuncGetParamInfo {index}", "cuFuncGetParamInfo", one, index, by(offset), by(size), out=(offset, size))
    memory_ = made("cuMemAlloc_v2", 64)
    at, word = U64(memory_), U32(5)
    values = (ctypes.c_void_p * 2)(ctypes.addressof(at), ctypes.addressof(word))

    def launch(
        case: str, *sizes: int, stream: int = 0, shared: int = 0, parameters: Any = values, extra: Any = None
    ) -> None:
        given = [U32(each) for each in sizes]
        ask(f"cuLaunchKernel, {case}", "cuLaunchKernel", one, *given, U32(shared), stream, parameters, extra)

    launch("good", 1, 1, 1, 1, 1, 1)
    launch("no blocks", 0, 1, 1, 1, 1, 1)
    launch("no threads", 1, 1, 1, 1, 0, 1)
    launch("1025 threads", 1, 1, 1, 1025, 1, 1)
    launch("32 x 33 threads", 1, 1, 1, 32, 33, 1)
    launch("65 deep", 1, 1, 1, 1, 1, 65)
    launch("65536 blocks in y", 1, 65536, 1, 1, 1, 1)
    launch("2^31 blocks in x", 1 << 31, 1, 1, 1, 1, 1)
    launch("49153 bytes", 1, 1, 1, 1, 1, 1, shared=49153)
    launch("too many bytes", 1, 1, 1, 1, 1, 1, shared=1 << 30)
    launch("parameters and extra", 1, 1, 1, 1, 1, 1, extra=(U64 * 5)(1, 0, 2, 0, 0))
    launch("neither parameters nor extra", 1, 1, 1, 1, 1, 1, parameters=None)
    ask("cuOccupancyMaxActiveBlocksPerMultiprocessor of 0 threads", "cuOccupancyMaxActiveBlocksPerMultiprocessor",
        by(number), one, I32(0), 0)  # fmt: skip
    ask("cuCtxSynchronize after refused launches", "cuCtxSynchronize")
    ask("cuModuleUnload", "cuModuleUnload", module)


WAYS = ("wild", "crooked", "trapped", "far_shared", "null", "too_deep")


def entry(name: str, module: list[int] | None = None) -> int:
    if module is None:
        module = []
    module.append(made("cuModuleLoadData", ctypes.c_char_p(FAULTS)))
    return made("cuModuleGetFunction", module[0], ctypes.c_char_p(name.encode()))


def run(function: int, threads: int = 1, stream: int = 0, parameters: Any = NOTHING) -> int:
    return call("cuLaunchKernel", function, *[U32(k) for k in (1, 1, 1, threads, 1, 1, 0)], stream, parameters, None)


@group
def launches_of_a_bounded_kernel() -> None:
    start()
    for name in ("bounded", "required"):
        function = entry(name)
        for threads in (32, 64, 65, 128):
            said(f"{threads} threads of a kernel that is {name}", run(function, threads))
    said("cuCtxSynchronize after too many threads", call("cuCtxSynchronize"))


def _after(way: str) -> None:
    """What is answered once a kernel has failed."""

    def body() -> None:
        start()
        number, word, handle, text = I32(), U32(), U64(), ctypes.create_string_buffer(64)
        event, stream, memory_ = (
            made("cuEventCreate", U32(0)),
            made("cuStreamCreate", U32(1)),
            made("cuMemAlloc_v2", 64),
        )
        modules: list[int] = []
        function = entry(way, modules)
        at = U64(memory_)
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(at))
        said(f"{way}: the launch", run(function, parameters=parameters))
        ask(f"{way}: cuCtxSynchronize", "cuCtxSynchronize")
        for name, given in (
            ("cuCtxSynchronize", ()), ("cuCtxGetCurrent", (by(handle),)), ("cuCtxGetDevice", (by(number),)),
            ("cuCtxGetFlags", (by(word),)), ("cuCtxGetLimit", (by(handle), U32(0))), ("cuCtxSetCacheConfig", (U32(0),)),
            ("cuDeviceGetCount", (by(number),)), ("cuDeviceGetName", (text, I32(64), I32(0))),
            ("cuDeviceGetAttribute", (by(number), I32(1), I32(0))), ("cuMemGetInfo_v2", (by(handle), by(at))),
            ("cuMemAlloc_v2", (by(handle), 16)), ("cuMemAllocHost_v2", (by(handle), 16)),
            ("cuMemAllocAsync", (by(handle), 16, 0)), ("cuMemcpyDtoH_v2", (text, memory_, 16)),
            ("cuMemcpyHtoDAsync_v2", (memory_, text, 16, stream)), ("cuMemsetD8_v2", (memory_, ctypes.c_ubyte(1), 16)),
            ("cuStreamCreate", (by(handle), U32(0))), ("cuStreamQuery", (0,)), ("cuStreamQuery", (stream,)),
            ("cuStreamGetFlags", (stream, by(word))), ("cuStreamSynchronize", (stream,)),
            ("cuStreamIsCapturing", (stream, by(word))), ("cuStreamBeginCapture_v2", (stream, U32(0))),
            ("cuEventCreate", (by(handle), U32(0))), ("cuEventQuery", (event,)), ("cuEventRecord", (event, stream)),
            ("cuEventSynchronize", (event,)), ("cuModuleLoadData", (by(handle), ctypes.c_char_p(FAULTS))),
            ("cuModuleGetFunction", (by(handle), modules[0], ctypes.c_char_p(b"quiet"))),
            ("cuFuncGetAttribute", (by(number), U32(0), function)),
            ("cuPointerGetAttribute", (by(handle), U32(1), memory_)),
            ("cuGraphCreate", (by(handle), U32(0))), ("cuMemFree_v2", (memory_,)), ("cuEventDestroy_v2", (event,)),
            ("cuStreamDestroy_v2", (stream,)), ("cuModuleUnload", (modules[0],)),
        ):  # fmt: skip
            what = " of a stream" if given and given[0] == stream and name == "cuStreamQuery" else ""
            again = " again" if name == "cuCtxSynchronize" else ""
            ask(f"{way}: {name}{what}{again}", name, *given)
        said(f"{way}: another launch", run(function, parameters=parameters))
        ask(f"{way}: cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxReset_v2", I32(0))
        ask(f"{way}: cuMemAlloc after the reset", "cuMemAlloc_v2", by(handle), 16)

    body.__name__ = f"after_{way}"
    GROUPS.append(body)


for _way in WAYS:
    _after(_way)


@group
def pools() -> None:
    start()
    stream, other = made("cuStreamCreate", U32(1)), made("cuStreamCreate", U32(1))
    handle, pool, size = U64(), U64(), U64()
    ask("cuMemAllocAsync", "cuMemAllocAsync", by(handle), 64, stream)
    kept = handle.value
    ask("cuMemAllocAsync of no bytes", "cuMemAllocAsync", by(handle), 0, stream)
    said("cuMemAllocAsync of no bytes: an address", 0, handle.value != 0)
    ask("cuMemAllocAsync of null", "cuMemAllocAsync", None, 64, stream)
    ask("cuMemAllocAsync of too much", "cuMemAllocAsync", by(handle), 1 << 60, stream)
    ask("cuMemFreeAsync inside", "cuMemFreeAsync", kept + 16, stream)
    ask("cuMemFreeAsync of null", "cuMemFreeAsync", 0, stream)
    ask("cuMemFreeAsync of no address of ours", "cuMemFreeAsync", WRONG, stream)
    ask("cuMemFreeAsync on another stream", "cuMemFreeAsync", kept, other)
    ask("cuMemFreeAsync again", "cuMemFreeAsync", kept, stream)
    plain = made("cuMemAlloc_v2", 64)
    ask("cuMemFreeAsync of cuMemAlloc's", "cuMemFreeAsync", plain, stream)
    good("cuStreamSynchronize", stream)
    ask("cuMemFree of what was freed by cuMemFreeAsync", "cuMemFree_v2", plain)
    good("cuMemAllocAsync", by(handle), 64, stream)
    ask("cuMemFree of cuMemAllocAsync's", "cuMemFree_v2", handle.value)
    ask("cuMemFreeAsync after cuMemFree", "cuMemFreeAsync", handle.value, stream)
    ask("cuDeviceGetDefaultMemPool", "cuDeviceGetDefaultMemPool", by(pool), I32(0))
    ask("cuDeviceGetDefaultMemPool of null", "cuDeviceGetDefaultMemPool", None, I32(0))
    ask("cuMemPoolDestroy of the default one", "cuMemPoolDestroy", pool.value)
    for attribute in range(10):
        value = U64()
        ask(f"pool attribute {attribute}", "cuMemPoolGetAttribute", pool.value, U32(attribute), by(value))
    ask("cuMemPoolTrimTo", "cuMemPoolTrimTo", pool.value, 0)
    ask("cuMemPoolGetAttribute of null", "cuMemPoolGetAttribute", pool.value, U32(4), None)
    good("cuStreamBeginCapture_v2", stream, U32(0))
    ask("cuMemAllocAsync in a capture", "cuMemAllocAsync", by(handle), 64, stream)
    captured = handle.value
    ask("cuMemFreeAsync in a capture", "cuMemFreeAsync", captured, stream)
    graph, ready = U64(), U64()
    ask("the capture with memory", "cuStreamEndCapture", stream, by(graph))
    ask("a graph with memory", "cuGraphInstantiateWithFlags", by(ready), graph.value, 0)
    ask("a graph with memory is launched", "cuGraphLaunch", ready.value, stream)
    ask("a graph with memory is launched again", "cuGraphLaunch", ready.value, stream)
    ask("a graph with memory, instantiated again", "cuGraphInstantiateWithFlags", by(size), graph.value, 0)
    for case in ("cuMemFree", "cuMemFreeAsync twice", "cuMemFreeAsync of other memory"):
        before = made("cuMemAlloc_v2", 64)
        good("cuStreamBeginCapture_v2", stream, U32(0))
        call("cuMemAllocAsync", by(handle), 64, stream)
        if "twice" in case:
            call("cuMemFreeAsync", handle.value, stream)
        answer = (
            call("cuMemFree_v2", handle.value)
            if case == "cuMemFree"
            else call("cuMemFreeAsync", before if "other" in case else handle.value, stream)
        )
        said(f"{case} while memory of a graph is captured", answer)
        said(f"{case} while memory of a graph is captured: the end", call("cuStreamEndCapture", stream, by(graph)))
    good("cuStreamBeginCapture_v2", stream, U32(0))
    ask("cuMemAllocAsync in a capture, not freed", "cuMemAllocAsync", by(handle), 64, stream)
    ask("the capture with memory, not freed", "cuStreamEndCapture", stream, by(graph))
    ask("a graph that keeps memory", "cuGraphInstantiateWithFlags", by(ready), graph.value, 0)
    ask("cuMemcpyDtoD to memory of a graph that did not run", "cuMemsetD8_v2", handle.value, ctypes.c_ubyte(1), 16)
    ask("a graph that keeps memory is launched", "cuGraphLaunch", ready.value, stream)
    ask("a graph that keeps memory is launched again", "cuGraphLaunch", ready.value, stream)
    ask("cuMemFreeAsync of memory of a graph", "cuMemFreeAsync", handle.value, stream)
    ask("a graph that kept memory is launched", "cuGraphLaunch", ready.value, stream)
    ask("cuMemFree of a graph's memory", "cuMemFree_v2", handle.value)
    ask("cuGraphClone of a graph with memory", "cuGraphClone", by(size), graph.value)
    ask("cuGraphGetNodes of a graph with memory", "cuGraphGetNodes", graph.value, None, by(size), out=(size,))
    good("cuStreamBeginCapture_v2", stream, U32(0))
    call("cuMemAllocAsync", by(handle), 64, stream)
    call("cuStreamEndCapture", stream, by(graph))
    ask("free on launch", "cuGraphInstantiateWithFlags", by(ready), graph.value, 1)
    ask("free on launch: a launch", "cuGraphLaunch", ready.value, stream)
    ask("free on launch: another", "cuGraphLaunch", ready.value, stream)
    for attribute in range(4):
        ask(f"graph memory attribute {attribute}", "cuDeviceGetGraphMemAttribute", I32(0), U32(attribute), by(size))
    ask("cuDeviceGraphMemTrim", "cuDeviceGraphMemTrim", I32(0))


# -- arrays, textures, surfaces -----------------------------------------------------------------------------

FLOAT, U8, I8, U16, U32_, HALF, NV12, UNORM = 0x20, 0x01, 0x08, 0x02, 0x03, 0x10, 0xB0, 0xC0
LAYERED, SURFACE, CUBE, GATHER = 1, 2, 4, 8


def space(width: int, height: int = 0, depth: int = 0, element: int = FLOAT, channels: int = 1, flags: int = 0) -> Any:
    """A CUDA_ARRAY3D_DESCRIPTOR."""
    return (U64 * 5)(width, height, depth, element | channels << 32, flags)


def of_array(handle: int, flags: int = 0, kind: int = 0) -> Any:
    """A CUDA_RESOURCE_DESC of an array."""
    return (U64 * 18)(kind, handle, *[0] * 15, flags)


def of_memory(
    at: int, width: int, height: int = 0, pitch: int = 0, element: int = FLOAT, channels: int = 1, kind: int = 2
) -> Any:
    """A CUDA_RESOURCE_DESC of plain memory; of a line, the width is in bytes."""
    return (U64 * 18)(kind, at, element | channels << 32, width, height, pitch)


def reading(mode: int = 1, filter_: int = 0, flags: int = 0, anisotropy: int = 0) -> Any:
    """A CUDA_TEXTURE_DESC."""
    return (U32 * 26)(mode, mode, mode, filter_, flags, anisotropy)


def view(element: int, width: int, height: int = 0, depth: int = 0, levels: int = 0, layers: int = 0) -> Any:
    """A CUDA_RESOURCE_VIEW_DESC; the last layer is above 32 bits."""
    return (U64 * 14)(element, width, height, depth, levels, layers)


@group
def arrays() -> None:
    start()
    handle, before, after, total = U64(), U64(), U64(), U64()
    for case, said_ in (
        ("a line", space(64)), ("a plane", space(64, 32)), ("a box", space(16, 8, 4)),
        ("without width", space(0)), ("without height, with depth", space(16, 0, 4)),
        ("of no format", space(8, element=0)),
        ("of format 99", space(8, element=0x7F)), ("of NV12", space(8, 8, element=NV12, channels=3)),
        ("of UNORM_INT8X1", space(8, element=UNORM)), ("of 3 channels", space(8, channels=3)),
        ("of no channels", space(8, channels=0)), ("of 8 channels", space(8, channels=8)),
        ("of 4 floats", space(8, channels=4)), ("of halves", space(8, element=HALF, channels=2)),
        ("layers of lines", space(8, 0, 3, flags=LAYERED)), ("layers of planes", space(8, 8, 3, flags=LAYERED)),
        ("layers, none", space(8, 8, 0, flags=LAYERED)), ("a cube", space(8, 8, 6, flags=CUBE)),
        ("a cube of 5 faces", space(8, 8, 5, flags=CUBE)), ("a cube of 12 faces", space(8, 8, 12, flags=CUBE)),
        ("a cube that is no square", space(8, 4, 6, flags=CUBE)), ("cubes", space(8, 8, 12, flags=CUBE | LAYERED)),
        ("cubes of 9 faces", space(8, 8, 9, flags=CUBE | LAYERED)), ("gathered", space(8, 8, flags=GATHER)),
        ("a gathered line", space(8, flags=GATHER)), ("a gathered box", space(8, 8, 8, flags=GATHER)),
        ("gathered layers", space(8, 8, 8, flags=GATHER | LAYERED)), ("of depths", space(8, 8, flags=0x10)),
        ("an attachment", space(8, 8, flags=0x20)), ("sparse", space(8, 8, flags=0x40)),
        ("mapped later", space(8, 8, flags=0x80)), ("of flags 0x200", space(8, 8, flags=0x200)),
        ("of flags 0x8000", space(8, 8, flags=0x8000)), ("a surface", space(8, 8, flags=SURFACE)),
        ("a line of 131072", space(131072)), ("a line of 131073", space(131073)),
        ("a surface of a line of 32768", space(32768, flags=SURFACE)),
        ("a surface of a line of 32769", space(32769, flags=SURFACE)),
        ("a plane 131073 wide", space(131073, 1, element=U8)), ("a plane 65537 high", space(1, 65537, element=U8)),
        ("a box 16385 wide", space(16385, 1, 1, element=U8)), ("a box 16385 deep", space(1, 1, 16385, element=U8)),
        ("a box 8192 wide, 16385 deep", space(8192, 1, 16385, element=U8)),
        ("2049 layers", space(1, 1, 2049, element=U8, flags=LAYERED)),
        ("lines of 32769 in layers", space(32769, 0, 1, element=U8, flags=LAYERED)),
        ("2047 faces", space(1, 1, 2047, element=U8, flags=CUBE | LAYERED)),
        ("2046 faces", space(1, 1, 2046, element=U8, flags=CUBE | LAYERED)),
    ):  # fmt: skip
        ask(f"cuArray3DCreate, {case}", "cuArray3DCreate_v2", by(handle), said_)
    ask("cuArray3DCreate of null", "cuArray3DCreate_v2", by(handle), None)
    ask("cuArray3DCreate to null", "cuArray3DCreate_v2", None, space(8))
    ask("cuArrayCreate", "cuArrayCreate_v2", by(handle), (U64 * 3)(8, 8, FLOAT | 1 << 32))
    ask("cuArrayCreate without width", "cuArrayCreate_v2", by(handle), (U64 * 3)(0, 8, FLOAT | 1 << 32))
    ask("cuArrayCreate of null", "cuArrayCreate_v2", by(handle), None)
    good("cuMemGetInfo_v2", by(before), by(total))
    large = made("cuArrayCreate_v2", (U64 * 3)(8192, 8192, FLOAT | 1 << 32))
    good("cuMemGetInfo_v2", by(after), by(total))
    said("an array takes memory", 0, before.value - after.value >= 8192 * 8192 * 4)
    ask("cuArrayDestroy", "cuArrayDestroy", large)
    ask("cuArrayDestroy of null", "cuArrayDestroy", 0)
    for case, said_ in (
        ("a line", space(64)), ("a box", space(16, 8, 4, flags=SURFACE)),
        ("layers of lines", space(8, 0, 3, flags=LAYERED)), ("a cube", space(8, 8, 6, flags=CUBE)),
    ):  # fmt: skip
        array, plane, box = made("cuArray3DCreate_v2", said_), (U64 * 3)(), (U64 * 5)()
        answer = call("cuArrayGetDescriptor_v2", plane, array)
        said(f"cuArrayGetDescriptor of {case}", answer, *(plane if not answer else ()))
        answer = call("cuArray3DGetDescriptor_v2", box, array)
        said(f"cuArray3DGetDescriptor of {case}", answer, *([*box[:4], box[4] & 0xFFFFFFFF] if not answer else ()))
    stream = made("cuStreamCreate", U32(1))
    for mode in range(3):
        good("cuStreamBeginCapture_v2", stream, U32(mode))
        ask(f"cuArrayCreate in mode {mode}", "cuArrayCreate_v2", by(handle), (U64 * 3)(8, 8, FLOAT | 1 << 32))
        said(f"cuArrayCreate in mode {mode}: the end", call("cuStreamEndCapture", stream, by(after)))
        array = made("cuArray3DCreate_v2", space(8))
        good("cuStreamBeginCapture_v2", stream, U32(mode))
        ask(f"cuArrayDestroy in mode {mode}", "cuArrayDestroy", array)
        said(f"cuArrayDestroy in mode {mode}: the end", call("cuStreamEndCapture", stream, by(after)))


def side(kind: int, at: int, x: int = 0, y: int = 0, z: int = 0, pitch: int = 0, height: int = 0) -> list[int]:
    """Half of a CUDA_MEMCPY3D."""
    host, device, array = (at if kind == each else 0 for each in (1, 2, 3))
    return [x, y, z, 0, kind, host, device, array, 0, pitch, height]


@group
def copies_of_arrays() -> None:
    start()
    line, plane = made("cuArray3DCreate_v2", space(64)), made("cuArray3DCreate_v2", space(16, 8))
    box, layers = (made("cuArray3DCreate_v2", space(16, 8, 4, flags=flags)) for flags in (0, LAYERED))
    pairs, memory_ = made("cuArray3DCreate_v2", space(16, 8, channels=2)), made("cuMemAlloc_v2", 1 << 16)
    buffer = ctypes.create_string_buffer(1 << 16)
    host = ctypes.addressof(buffer)
    for case, array, offset, size in (
        ("all", line, 0, 256), ("a part", line, 128, 128), ("no bytes", line, 0, 0), ("too far", line, 128, 132),
        ("a crooked offset", line, 2, 4), ("a crooked size", line, 0, 6), ("a row of a plane", plane, 0, 64),
        ("two rows of a plane", plane, 0, 128), ("all of a plane", plane, 0, 512), ("of a box", box, 0, 64),
        ("more than a plane", plane, 0, 516), ("from inside a row to the next", plane, 32, 64),
    ):  # fmt: skip
        ask(f"cuMemcpyHtoA, {case}", "cuMemcpyHtoA_v2", array, offset, host, size)
        ask(f"cuMemcpyAtoD, {case}", "cuMemcpyAtoD_v2", memory_, array, offset, size)
        ask(f"cuMemcpyAtoHAsync, {case}", "cuMemcpyAtoHAsync_v2", host, array, offset, size, 0)
    ask("cuMemcpyHtoA from null", "cuMemcpyHtoA_v2", line, 0, None, 16)
    ask("cuMemcpyDtoA from null", "cuMemcpyDtoA_v2", line, 0, 0, 16)
    ask("cuMemcpyAtoA", "cuMemcpyAtoA_v2", line, 0, plane, 0, 64)
    ask("cuMemcpyAtoA of elements of two sizes", "cuMemcpyAtoA_v2", line, 0, pairs, 0, 64)
    for case, words in (
        ("a plane", [*side(1, host), *side(3, plane), 64, 8, 1]),
        ("a part", [*side(1, host), *side(3, plane, 8, 2), 16, 3, 1]),
        ("too wide", [*side(1, host), *side(3, plane, 8), 64, 1, 1]),
        ("too high", [*side(1, host), *side(3, plane, 0, 1), 64, 8, 1]),
        ("too deep", [*side(1, host), *side(3, plane), 64, 8, 2]),
        ("a slice", [*side(1, host), *side(3, box, 0, 0, 3), 64, 8, 1]),
        ("a slice too far", [*side(1, host), *side(3, box, 0, 0, 4), 64, 8, 1]),
        ("layers", [*side(1, host), *side(3, layers, 0, 0, 2), 64, 8, 2]),
        ("layers too far", [*side(1, host), *side(3, layers, 0, 0, 3), 64, 8, 2]),
        ("a crooked x", [*side(1, host), *side(3, plane, 2), 16, 1, 1]),
        ("a crooked width", [*side(1, host), *side(3, plane), 18, 1, 1]),
        ("without width", [*side(1, host), *side(3, plane), 0, 8, 1]),
        ("without depth", [*side(1, host), *side(3, plane), 64, 8, 0]),
        ("to memory", [*side(3, plane), *side(2, memory_, pitch=128, height=8), 64, 8, 1]),
        ("to memory with a small pitch", [*side(3, plane), *side(2, memory_, pitch=32), 64, 8, 1]),
        ("from plane to box", [*side(3, plane), *side(3, box), 64, 8, 1]),
        ("over elements of two sizes", [*side(3, plane), *side(3, pairs), 64, 8, 1]),
    ):  # fmt: skip
        ask(f"cuMemcpy3D of arrays, {case}", "cuMemcpy3D_v2", (U64 * 25)(*words))
    stream, graph, node = made("cuStreamCreate", U32(1)), made("cuGraphCreate", U32(0)), U64()
    good("cuStreamBeginCapture_v2", stream, U32(0))
    ask("a copy to an array is captured", "cuMemcpyHtoAAsync_v2", line, 8, host, 64, stream)
    captured = made_by_end(stream)
    count, found, params = U64(1), (U64 * 1)(), (U64 * 25)()
    good("cuGraphGetNodes", captured, found, by(count))
    good("cuGraphMemcpyNodeGetParams", found[0], params)
    said(
        "what a captured copy to an array is", 0, *(params[k] & 0xFFFFFFFF for k in (0, 4, 11, 12, 13, 15, 22, 23, 24))
    )
    context = U64()
    good("cuCtxGetCurrent", by(context))
    for case, words in (
        ("good", [*side(1, host), *side(3, plane), 64, 8, 1]),
        ("too wide", [*side(1, host), *side(3, plane), 128, 8, 1]),
        ("a crooked width", [*side(1, host), *side(3, plane), 18, 1, 1]),
    ):  # fmt: skip
        ask(
            f"a copy node of an array, {case}",
            "cuGraphAddMemcpyNode",
            by(node),
            graph,
            None,
            0,
            (U64 * 25)(*words),
            context,
        )


def made_by_end(stream: int) -> int:
    graph = U64()
    good("cuStreamEndCapture", stream, by(graph))
    return graph.value


@group
def textures_and_surfaces() -> None:
    start()
    handle, memory_ = U64(), made("cuMemAlloc_v2", 1 << 16)
    plane, of_bytes, whole = (made("cuArray3DCreate_v2", space(16, 8, element=each)) for each in (FLOAT, U8, U32_))
    cube, layers = (made("cuArray3DCreate_v2", space(8, 8, 6, flags=flags)) for flags in (CUBE, LAYERED))
    written, host = made("cuArray3DCreate_v2", space(16, 8, flags=SURFACE)), made("cuMemAllocHost_v2", 1 << 12)

    def texture(case: str, resource: Any, how: Any, seen: Any = None) -> None:
        ask(f"cuTexObjectCreate, {case}", "cuTexObjectCreate", by(handle), resource, how, seen)

    for case, resource in (
        ("of an array", of_array(plane)), ("with flags", of_array(plane, 1)), ("of type 4", of_array(plane, kind=4)),
        ("of a line", of_memory(memory_, 1 << 16)), ("of a crooked line", of_memory(memory_ + 4, 256)),
        ("of a line at 256", of_memory(memory_ + 256, 256)), ("of a line at 32", of_memory(memory_ + 32, 256)),
        ("of no bytes", of_memory(memory_, 0)), ("of 2 bytes", of_memory(memory_, 2)),
        ("of 6 bytes", of_memory(memory_, 6)),
        ("of a line of null", of_memory(0, 256)), ("of a line beyond", of_memory(memory_, 1 << 22)),
        ("of nobody's memory", of_memory(WRONG & ~511, 256)), ("of host memory", of_memory(host, 256)),
        ("of a line of 3 channels", of_memory(memory_, 256, channels=3)),
        ("of a line of no format", of_memory(memory_, 256, element=0)),
        ("of 2^28 + 1 elements", of_memory(memory_, (1 << 28) + 1, element=U8)),
        ("of rows", of_memory(memory_, 16, 8, 64, kind=3)),
        ("of rows with gaps", of_memory(memory_, 10, 8, 64, kind=3)),
        ("of rows of a crooked pitch", of_memory(memory_, 10, 8, 40, kind=3)),
        ("of rows of a small pitch", of_memory(memory_, 16, 8, 32, kind=3)),
        ("of rows of no pitch", of_memory(memory_, 16, 8, 0, kind=3)),
        ("of no rows", of_memory(memory_, 16, 0, 64, kind=3)),
        ("of rows without width", of_memory(memory_, 0, 8, 64, kind=3)),
        ("of one row of no pitch", of_memory(memory_, 16, 1, 0, kind=3)),
        ("of rows at 256", of_memory(memory_ + 256, 16, 8, 64, kind=3)),
        ("of rows beyond", of_memory(memory_, 16, 1 << 14, 64, kind=3)),
        ("of 65001 rows", of_memory(memory_, 1, 65001, 32, element=U8, kind=3)),
    ):  # fmt: skip
        texture(case, resource, reading())
    for case, array, how, seen in (
        ("address mode 4", plane, reading(4), None), ("filter 2", plane, reading(filter_=2), None),
        ("flags 4", plane, reading(flags=4), None), ("flags 0x80", plane, reading(flags=0x80), None),
        ("wrap, not normalised", plane, reading(0), None), ("mirror, not normalised", plane, reading(2), None),
        ("border, not normalised", plane, reading(3), None), ("wrap", plane, reading(0, flags=2), None),
        ("bytes filtered as integers", of_bytes, reading(filter_=1, flags=1), None),
        ("bytes filtered as floats", of_bytes, reading(filter_=1), None),
        ("words filtered", whole, reading(filter_=1), None), ("sRGB of bytes", of_bytes, reading(flags=0x10), None),
        ("sRGB of integers", of_bytes, reading(flags=0x11), None), ("sRGB of floats", plane, reading(flags=0x10), None),
        ("anisotropy 16", plane, reading(filter_=1, flags=2, anisotropy=16), None),
        ("without trilinear", plane, reading(flags=0x20), None), ("seams of a plane", plane, reading(flags=0x42), None),
        ("seams of a cube", cube, reading(flags=0x42), None), ("a cube", cube, reading(flags=2), None),
        ("a cube, not normalised", cube, reading(), None), ("a surface's array", written, reading(), None),
        ("a view of the same", plane, reading(), view(0, 16, 8)),
        ("a view as integers", plane, reading(), view(0x0D, 16, 8)),
        ("a view as two halves", plane, reading(), view(0x14, 16, 8)),
        ("a view as bytes", plane, reading(), view(3, 16, 8)),
        ("a view of larger elements", plane, reading(), view(0x17, 16, 8)),
        ("a view of smaller elements", plane, reading(), view(0x01, 16, 8)),
        ("a view of 99", plane, reading(), view(99, 16, 8)),
        ("a view of another width", plane, reading(), view(0x16, 8, 8)),
        ("a view without sizes", plane, reading(), view(0x16, 0, 0)),
        ("a view of a level", plane, reading(), view(0x16, 16, 8, levels=1)),
        ("a view of a layer of a plane", plane, reading(), view(0x16, 16, 8, layers=1 << 32)),
        ("a view of layers", layers, reading(), view(0x16, 8, 8, 6, layers=2 | 4 << 32)),
        ("a view of layers without depth", layers, reading(), view(0x16, 8, 8, 0, layers=2 | 4 << 32)),
        ("a view of layers backwards", layers, reading(), view(0x16, 8, 8, 6, layers=4 | 2 << 32)),
        ("a view of too many layers", layers, reading(), view(0x16, 8, 8, 6, layers=2 | 6 << 32)),
    ):  # fmt: skip
        texture(case, of_array(array), how, seen)
    texture("a line, filtered and wrapped", of_memory(memory_, 256), reading(0, 1, 2))
    texture("a line, sRGB", of_memory(memory_, 256, element=U8), reading(flags=0x10))
    texture("a line with a view", of_memory(memory_, 256), reading(), view(0x16, 64))
    texture("rows, filtered", of_memory(memory_, 16, 8, 64, kind=3), reading(0, 1, 2))
    good("cuTexObjectCreate", by(handle), of_array(plane), reading(3, 1, 2), None)
    texture_, words, floats, shown = handle.value, (U64 * 18)(), (U32 * 26)(), (U64 * 14)()
    ask("cuTexObjectGetResourceDesc", "cuTexObjectGetResourceDesc", words, texture_)
    said("the resource of a texture", 0, words[0] & 0xFFFFFFFF, words[1] == plane, words[17] & 0xFFFFFFFF)
    ask("cuTexObjectGetTextureDesc", "cuTexObjectGetTextureDesc", floats, texture_)
    said("the reading of a texture", 0, *floats[:14])
    ask("cuTexObjectGetResourceViewDesc, without a view", "cuTexObjectGetResourceViewDesc", shown, texture_)
    good("cuTexObjectCreate", by(handle), of_array(plane), reading(), view(0x0D, 16, 8))
    ask("cuTexObjectGetResourceViewDesc", "cuTexObjectGetResourceViewDesc", shown, handle.value)
    said("the view of a texture", 0, shown[0] & 0xFFFFFFFF, *shown[1:6])
    for case, resource in (
        ("of an array", of_array(plane)), ("of a surface's array", of_array(written)),
        ("of a line", of_memory(memory_, 256)),
        ("with flags", of_array(written, 1)), ("of rows", of_memory(memory_, 16, 8, 64, kind=3)),
    ):  # fmt: skip
        ask(f"cuSurfObjectCreate, {case}", "cuSurfObjectCreate", by(handle), resource)
    surface = made("cuSurfObjectCreate", of_array(written))
    ask("cuSurfObjectGetResourceDesc", "cuSurfObjectGetResourceDesc", words, surface)
    ask("cuTexObjectDestroy of null", "cuTexObjectDestroy", 0)
    ask("cuSurfObjectDestroy of null", "cuSurfObjectDestroy", 0)
    stream, graph = made("cuStreamCreate", U32(1)), U64()
    good("cuStreamBeginCapture_v2", stream, U32(0))
    texture("while a stream is captured", of_array(plane), reading())
    ask("cuTexObjectDestroy while a stream is captured", "cuTexObjectDestroy", handle.value)
    said("textures while a stream is captured: the end", call("cuStreamEndCapture", stream, by(graph)))
    ask("cuArrayDestroy of a texture's array", "cuArrayDestroy", plane)
    ask("cuTexObjectDestroy, its array is gone", "cuTexObjectDestroy", texture_)
    ask("cuSurfObjectDestroy", "cuSurfObjectDestroy", surface)


LOOK = b""".version 8.0
.target sm_80
.address_size 64
.visible .entry look(.param .u64 texture, .param .u64 in, .param .u64 out)
{
  .reg .f32 %f<6>; .reg .b32 %r<2>; .reg .b64 %rd<6>;
  ld.param.u64 %rd1, [texture]; ld.param.u64 %rd2, [in]; ld.param.u64 %rd3, [out];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd4, %r1, 4;
  add.u64 %rd2, %rd2, %rd4;
  add.u64 %rd3, %rd3, %rd4;
  ld.global.f32 %f1, [%rd2];
  tex.1d.v4.f32.f32 {%f2, %f3, %f4, %f5}, [%rd1, {%f1}];
  st.global.f32 [%rd3], %f2;
  ret;
}
"""


def looked(texture: int) -> tuple[int, list[int]]:
    """Read a texture of four elements in and around it: the answer of the context, and words."""
    places = (ctypes.c_float * 8)(-1.5, -0.25, 0.5, 1.25, 2.5, 3.75, 4.5, 6.25)
    inputs, out, words = made("cuMemAlloc_v2", 32), made("cuMemAlloc_v2", 32), (U32 * 8)()
    good("cuMemcpyHtoD_v2", inputs, places, 32)
    kernel = made("cuModuleGetFunction", made("cuModuleLoadData", ctypes.c_char_p(LOOK)), ctypes.c_char_p(b"look"))
    values = [U64(each) for each in (texture, inputs, out)]
    pointers = (ctypes.c_void_p * 3)(*map(ctypes.addressof, values))
    sizes = [U32(each) for each in (1, 1, 1, 8, 1, 1, 0)]
    good("cuLaunchKernel", kernel, *sizes, 0, pointers, None)
    answer = call("cuCtxSynchronize")
    if not answer:
        good("cuMemcpyDtoH_v2", words, out, 32)
    return answer, list(words)


@group
def what_textures_read() -> None:
    """What is not defined by the manual alone: modes without normalised coordinates, filters of integers."""
    start()
    floats = (ctypes.c_float * 4)(1, 2, 4, 8)
    for case, element, data, how in (
        ("clamp", FLOAT, floats, reading(1)), ("wrap", FLOAT, floats, reading(0)),
        ("mirror", FLOAT, floats, reading(2)),
        ("border", FLOAT, floats, reading(3)), ("wrap, filtered", FLOAT, floats, reading(0, 1)),
        ("bytes as integers", U8, (ctypes.c_ubyte * 4)(1, 2, 4, 8), reading(1, 0, 1)),
        ("bytes as integers, filtered", U8, (ctypes.c_ubyte * 4)(1, 2, 4, 8), reading(1, 1, 1)),
        ("words, filtered", U32_, (U32 * 4)(1, 2, 4, 8), reading(1, 1)),
        ("sRGB of floats", FLOAT, (ctypes.c_float * 4)(0.25, 0.5, 0.75, 1), reading(1, 0, 0x10)),
        ("sRGB of integers", U8, (ctypes.c_ubyte * 4)(1, 128, 200, 255), reading(1, 0, 0x11)),
    ):  # fmt: skip
        array, handle = made("cuArray3DCreate_v2", space(4, element=element)), U64()
        good("cuMemcpyHtoA_v2", array, 0, ctypes.addressof(data), ctypes.sizeof(data))
        if call("cuTexObjectCreate", by(handle), of_array(array), how, None):
            said(f"read by a texture, {case}", -1)
            continue
        answer, words = looked(handle.value)
        said(f"read by a texture, {case}", answer, *words)


def _null(name: str, *given: Callable[[int], Any]) -> None:
    """A null pointer, of what is made of an array."""

    @risk(f"{name} with null for argument {[k for k, each in enumerate(given) if each(0) is None]}")
    def body() -> int:
        start()
        array = made("cuArray3DCreate_v2", space(16, flags=SURFACE))
        return call(name, *(each(array) for each in given))


def _nothing(array: int) -> None:
    del array


def _out(array: int) -> Any:
    del array
    return by(U64())


_null("cuTexObjectCreate", _nothing, of_array, lambda _: reading(), lambda _: view(0, 16))
_null("cuTexObjectCreate", _out, _nothing, lambda _: reading(), lambda _: view(0, 16))
_null("cuTexObjectCreate", _out, of_array, _nothing, lambda _: view(0, 16))
_null("cuSurfObjectCreate", _nothing, of_array)
_null("cuSurfObjectCreate", _out, _nothing)
_null("cuArrayGetDescriptor_v2", _nothing, lambda array: array)
_null("cuArray3DGetDescriptor_v2", _nothing, lambda array: array)
_null(
    "cuTexObjectGetResourceDesc",
    _nothing,
    lambda array: array and made("cuTexObjectCreate", of_array(array), reading(), None),
)
_null("cuSurfObjectGetResourceDesc", _nothing, lambda array: array and made("cuSurfObjectCreate", of_array(array)))


@risk("a kernel reads a texture that was destroyed")
def a_destroyed_texture() -> int:
    start()
    texture = made("cuTexObjectCreate", of_array(made("cuArray3DCreate_v2", space(4))), reading(), None)
    good("cuTexObjectDestroy", texture)
    return looked(texture)[0]


@risk("a kernel reads a texture whose array was destroyed")
def a_texture_without_its_array() -> int:
    start()
    array = made("cuArray3DCreate_v2", space(4))
    texture = made("cuTexObjectCreate", of_array(array), reading(), None)
    good("cuArrayDestroy", array)
    return looked(texture)[0]


@risk("a kernel reads a number that is no texture")
def no_texture() -> int:
    start()
    return looked(WRONG)[0]


@risk("a kernel reads the texture 0")
def texture_0() -> int:
    start()
    return looked(0)[0]


# -- proc addresses -----------------------------------------------------------------------------------------


@group
def proc_addresses() -> None:
    found, status = U64(), I32()
    names = (
        "cuInit", "cuMemAlloc", "cuMemcpyHtoD", "cuStreamQuery", "cuLaunchKernel", "cuLaunchKernelEx", "cuGraphAddNode",
        "cuStreamBeginCapture", "cuCtxCreate", "cuEventElapsedTime", "cuFuncSetAttribute", "cuMemAlloc_v2", "cuNothing",
        "cuStreamQuery_ptsz", "",
    )  # fmt: skip
    for name in names:
        for version in (2000, 3020, 7000, 11060, 12000, 12050, 13000):
            for flags in (0, 2):
                given = ctypes.c_char_p(name.encode()), by(found), I32(version), U64(flags), by(status)
                ask(f"cuGetProcAddress {name!r} {version} {flags}", "cuGetProcAddress_v2", *given, out=(status,))
    odd: tuple[tuple[str, tuple[Any, ...]], ...] = (
        ("of null", (None, by(found), I32(12000), U64(0), by(status))),
        ("to null", (ctypes.c_char_p(b"cuInit"), None, I32(12000), U64(0), by(status))),
        ("without a status", (ctypes.c_char_p(b"cuInit"), by(found), I32(12000), U64(0), None)),
        ("of an unknown name, without a status", (ctypes.c_char_p(b"cuNothing"), by(found), I32(12000), U64(0), None)),
        (
            "of an early version, without a status",
            (ctypes.c_char_p(b"cuLaunchKernel"), by(found), I32(2000), U64(0), None),
        ),
        ("with flags 8", (ctypes.c_char_p(b"cuInit"), by(found), I32(12000), U64(8), by(status))),
        ("of version 0", (ctypes.c_char_p(b"cuInit"), by(found), I32(0), U64(0), by(status))),
    )
    for case, arguments in odd:
        ask(f"cuGetProcAddress {case}", "cuGetProcAddress_v2", *arguments)
    for name, version, flags in (("cuInit", 12000, 0), ("cuNothing", 12000, 0), ("cuLaunchKernel", 2000, 0),
                                 ("cuInit", 12000, 8)):  # fmt: skip
        four = ctypes.c_char_p(name.encode()), by(found), I32(version), U64(flags)
        ask(f"cuGetProcAddress of CUDA 11, {name} {version} {flags}", "cuGetProcAddress", *four)


# -- what could end a process -------------------------------------------------------------------------------


def _gone(kind: str, name: str, *more: Any) -> None:
    """A handle that was destroyed."""

    @risk(f"{name} of a destroyed {kind}")
    def body() -> int:
        start()
        if kind == "graph":
            handle = made("cuGraphCreate", U32(0))
            good("cuGraphDestroy", handle)
        else:
            handle = made(f"cu{kind.title()}Create", U32(0))
            good(f"cu{kind.title()}Destroy_v2", handle)
        return call(name, handle, *more)


for _name in ("cuStreamQuery", "cuStreamSynchronize", "cuStreamDestroy_v2"):
    _gone("stream", _name)
for _name in ("cuEventQuery", "cuEventSynchronize", "cuEventDestroy_v2"):
    _gone("event", _name)
_gone("event", "cuEventRecord", 0)
_gone("graph", "cuGraphDestroy")


def _wrong(name: str, *given: Any) -> None:
    """A number that is no handle."""

    @risk(f"{name} of no handle")
    def body() -> int:
        start()
        return call(name, WRONG, *given)


_wrong("cuStreamQuery")
_wrong("cuEventQuery")
_wrong("cuCtxSetCurrent")
_wrong("cuModuleUnload")
_wrong("cuGraphDestroy")
_wrong("cuLaunchKernel", *[U32(1)] * 6, U32(0), 0, None, None)
_wrong("cuArrayDestroy")
_wrong("cuTexObjectDestroy")
_wrong("cuSurfObjectDestroy")
_wrong("cuMemcpyHtoA_v2", 0, (U64 * 4)(), 16)


@risk("cuArrayGetDescriptor of no handle")
def a_wrong_array() -> int:
    start()
    return call("cuArrayGetDescriptor_v2", (U64 * 3)(), WRONG)


def _gone_array(case: str, work: Callable[[int], int]) -> None:
    """An array that was destroyed."""

    @risk(f"{case} of a destroyed array")
    def body() -> int:
        start()
        array = made("cuArray3DCreate_v2", space(16, flags=SURFACE))
        good("cuArrayDestroy", array)
        return work(array)


@risk("cuMemcpy3D to null as an array")
def a_copy_to_null() -> int:
    start()
    return call("cuMemcpy3D_v2", (U64 * 25)(*side(2, made("cuMemAlloc_v2", 64)), *side(3, 0), 16, 1, 1))


_gone_array("cuArrayDestroy", lambda array: call("cuArrayDestroy", array))
_gone_array("cuArray3DGetDescriptor", lambda array: call("cuArray3DGetDescriptor_v2", (U64 * 5)(), array))
_gone_array("cuMemcpyHtoA", lambda array: call("cuMemcpyHtoA_v2", array, 0, (U64 * 4)(), 16))
_gone_array("cuTexObjectCreate", lambda array: call("cuTexObjectCreate", by(U64()), of_array(array), reading(), None))
_gone_array("cuSurfObjectCreate", lambda array: call("cuSurfObjectCreate", by(U64()), of_array(array)))


def _gone_object(kind: str, *how: Any) -> None:
    """A texture or a surface that was destroyed, or is of the other kind."""

    def create() -> int:
        start()
        array = made("cuArray3DCreate_v2", space(16, flags=SURFACE))
        return made(f"cu{kind}ObjectCreate", of_array(array), *how)

    @risk(f"cu{kind}ObjectDestroy of a destroyed one")
    def again() -> int:
        handle = create()
        good(f"cu{kind}ObjectDestroy", handle)
        return call(f"cu{kind}ObjectDestroy", handle)

    @risk(f"cu{kind}ObjectGetResourceDesc of a destroyed one")
    def asked() -> int:
        handle = create()
        good(f"cu{kind}ObjectDestroy", handle)
        return call(f"cu{kind}ObjectGetResourceDesc", (U64 * 18)(), handle)

    @risk(f"cu{kind}ObjectGetResourceDesc of no handle")
    def wrong() -> int:
        start()
        return call(f"cu{kind}ObjectGetResourceDesc", (U64 * 18)(), WRONG)


_gone_object("Tex", reading(), None)
_gone_object("Surf")


def in_a_child(work: Callable[[], Any], case: str) -> tuple[list[dict[str, Any]], int]:
    """Do something in a child, before the driver was started here; give what it printed and how it ended."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(writable, 1)
        code = 0
        try:
            if case:
                print(json.dumps({"asked": case}), flush=True)
            answer = work()
            if case:
                said(case, answer)
        except BaseException as e:  # a child that goes on would run the rest as well
            print(f"{case or work.__name__}: {e!r}", file=sys.stderr, flush=True)
            code = 3
        os._exit(code)
    os.close(writable)
    with os.fdopen(readable) as lines:
        rows = [json.loads(line) for line in lines]
    _, status = os.waitpid(child, 0)
    return rows, status


def answers_of(work: Callable[[], Any], case: str) -> Iterator[dict[str, Any]]:
    """Give every answer of a group; begin again without the case that ended it."""
    known: set[str] = set()
    while True:
        rows, status = in_a_child(work, case)
        for row in rows:
            if "case" in row and row["case"] not in known:
                known.add(row["case"])
                yield row
        if not status:
            return
        last = rows[-1].get("asked") if rows else None
        if last is None:  # not by a call that was asked for: a fault of this script
            yield {"case": f"the group {work.__name__} was cut off", "answer": None, "values": [status]}
            return
        ENDED.add(last)
        yield {"case": last, "answer": None, "values": [status]}
        if case:
            return


def main() -> None:
    """Print all cases."""
    version = I32()
    lib.cuDriverGetVersion(by(version))
    for work, case in [*((each, "") for each in GROUPS), *((each, case) for case, each in RISKS)]:
        for row in answers_of(work, case):
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
