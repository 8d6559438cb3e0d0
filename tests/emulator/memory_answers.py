"""What a driver answers about memory of graphs and ranges of managed memory, as ``misuse.py`` asks about the rest.

python memory_answers.py > answers.jsonl
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from typing import Any

from emulator.misuse import I32, U32, U64, answers_of, ask, by, call, good, made, said, start

_PINNED, _ON_DEVICE, _AUTO_FREE = 1, 1, 1
GROUPS: list[Callable[[], None]] = []


def group(body: Callable[[], None]) -> Callable[[], None]:
    GROUPS.append(body)
    return body


def allocation(size: int, kind: int = _PINNED, place: int = _ON_DEVICE) -> Any:
    """Give the parameters of a node that allocates; the last word is its address."""
    params = (U64 * 15)()
    params[0], params[1], params[13] = kind, place, size
    return params


class OneGraph:
    """A graph, which is launched in a stream of its own."""

    def __init__(self) -> None:
        self.handle, self.stream = made("cuGraphCreate", U32(0)), made("cuStreamCreate", U32(1))

    def allocate(self, size: int = 1 << 20) -> tuple[int, int]:
        """Add a node that allocates; give it and the address."""
        params = allocation(size)
        return made("cuGraphAddMemAllocNode", self.handle, None, 0, params), params[14]

    def free(self, address: int, *before: int) -> int:
        """Add a node that frees behind others; give the answer."""
        nodes = (U64 * max(len(before), 1))(*before)
        return call("cuGraphAddMemFreeNode", by(U64()), self.handle, nodes, len(before), address)

    def executable(self, flags: int = 0) -> int:
        return made("cuGraphInstantiateWithFlags", self.handle, flags)

    def launched(self, executable: int) -> int:
        return call("cuGraphLaunch", executable, self.stream) or call("cuStreamSynchronize", self.stream)


def counters(case: str) -> None:
    """Say what is counted of the memory of graphs, in MiB."""
    found = []
    for attribute in range(4):
        value = U64()
        good("cuDeviceGetGraphMemAttribute", I32(0), U32(attribute), by(value))
        found.append(value.value >> 20)
    said(f"counters, {case}", 0, *found)


@group
def nodes_that_allocate() -> None:
    start()
    graph = OneGraph()
    node = U64()
    for case, params in (
        ("good", allocation(64)), ("no bytes", allocation(0)), ("another kind", allocation(64, kind=7)),
        ("no kind", allocation(64, kind=0)), ("nowhere", allocation(64, place=0)),
        ("on the host", allocation(64, place=2)), ("too much", allocation(1 << 60)),
    ):  # fmt: skip
        ask(f"a node that allocates, {case}", "cuGraphAddMemAllocNode", by(node), graph.handle, None, 0, params)
    ask("a node that allocates, null", "cuGraphAddMemAllocNode", by(node), graph.handle, None, 0, None)
    first, address = graph.allocate()
    got = (U64 * 15)()
    ask("parameters of a node that allocates", "cuGraphMemAllocNodeGetParams", first, got)
    said("the same, by word", 0, *got[:11], got[12], got[13], got[14] == address)
    for case, where, before in (
        ("good", address, (first,)), ("twice", address, (first,)), ("inside", address + 512, (first,)),
        ("null", 0, ()), ("nobody's", 0x1234_5678_9A00, ()),
    ):  # fmt: skip
        said(f"a node that frees, {case}", graph.free(where, *before))
    second, other = graph.allocate()
    said("a node that frees without waiting", graph.free(other))
    pooled = made("cuMemAllocAsync", 1 << 20, graph.stream)
    said("a node that frees memory of a pool", graph.free(pooled, second))
    plain = made("cuMemAlloc_v2", 1 << 20)
    said("a node that frees memory of none", graph.free(plain, second))
    beside = OneGraph()
    said("another graph frees what the first frees", beside.free(address))
    _, third = graph.allocate()
    said("another graph frees", beside.free(third))
    said("the first graph frees what another frees", graph.free(third, first))
    said("a third graph frees what another frees", OneGraph().free(third))


@group
def graphs_that_allocate() -> None:
    start()
    graph = OneGraph()
    node, address = graph.allocate()
    empty = made("cuGraphAddEmptyNode", graph.handle, (U64 * 1)(node), 1)
    handle = U64()
    ask("a clone of a graph that allocates", "cuGraphClone", by(handle), graph.handle)
    parent = made("cuGraphCreate", U32(0))
    ask("a child that allocates", "cuGraphAddChildGraphNode", by(handle), parent, None, 0, graph.handle)
    ask("an edge is taken", "cuGraphRemoveDependencies", graph.handle, by(U64(node)), by(U64(empty)), 1)
    ask("an empty node is destroyed", "cuGraphDestroyNode", empty)
    ask("a node that allocates is destroyed", "cuGraphDestroyNode", node)
    first = graph.executable()
    ask("instantiated twice", "cuGraphInstantiateWithFlags", by(handle), graph.handle, 0)
    good("cuGraphExecDestroy", first)
    ask("instantiated again", "cuGraphInstantiateWithFlags", by(handle), graph.handle, 0)
    executable = handle.value
    for when in ("before a launch", "after a launch", "after it was freed"):
        if when == "after a launch":
            said("a launch", graph.launched(executable))
            said("another launch before it was freed", graph.launched(executable))
        if when == "after it was freed":
            ask("cuMemFreeAsync of what a launch took", "cuMemFreeAsync", address, graph.stream)
            good("cuStreamSynchronize", graph.stream)
            ask("cuMemFreeAsync again", "cuMemFreeAsync", address, graph.stream)
        for attribute in (2, 3, 7, 8, 9, 11, 12, 13, 16, 17):
            value = (U64 * 8)()
            answer = call("cuPointerGetAttribute", value, U32(attribute), address)
            shown = value[0] if attribute in (2, 8, 9, 12, 13, 16) else bool(value[0])
            said(f"pointer attribute {attribute} {when}", answer, *([shown] if answer == 0 else []))
        if when == "before a launch":
            ask("cuMemFreeAsync before a launch", "cuMemFreeAsync", address, graph.stream)
            ask("cuMemFree before a launch", "cuMemFree_v2", address)
    said("a launch after it was freed", graph.launched(executable))
    ask("cuMemFree of what a launch took", "cuMemFree_v2", address)
    said("a launch after cuMemFree", graph.launched(executable))
    s = made("cuStreamCreate", U32(1))
    good("cuStreamBeginCapture_v2", s, U32(2))
    ask("a launch is captured of a graph that allocates", "cuGraphLaunch", executable, s)
    ask("the end of that capture", "cuStreamEndCapture", s, by(handle))
    good("cuGraphExecDestroy", executable)
    good("cuGraphDestroy", graph.handle)
    ask("cuMemFreeAsync when the graph is gone", "cuMemFreeAsync", address, graph.stream)


@group
def launches_that_free() -> None:
    start()
    graph = OneGraph()
    _, address = graph.allocate()
    executable = graph.executable(_AUTO_FREE)
    said("launches that free first", graph.launched(executable) or graph.launched(executable))
    freeing = OneGraph()
    said("another graph frees what a launch took", freeing.free(address))
    other = freeing.executable()
    said("the other graph is launched", freeing.launched(other))
    said("the other graph is launched again", freeing.launched(other))
    whole = OneGraph()
    node, inner = whole.allocate()
    said("a node frees what the graph allocates", whole.free(inner, node))
    both = whole.executable()
    said("a graph that frees what it allocates, twice", whole.launched(both) or whole.launched(both))
    ask("cuMemFreeAsync of what the graph freed", "cuMemFreeAsync", inner, whole.stream)
    early = OneGraph()
    _, late = early.allocate()
    said("a node frees without waiting", early.free(late))
    handle = U64()
    ask("a graph that may free first, instantiated", "cuGraphInstantiateWithFlags", by(handle), early.handle, 0)


@group
def captures_that_allocate() -> None:
    start()
    s, graph, address = made("cuStreamCreate", U32(1)), U64(), U64()

    def end(case: str) -> None:
        ask(f"{case}, the end", "cuStreamEndCapture", s, by(graph))

    for mode in range(3):
        good("cuStreamBeginCapture_v2", s, U32(mode))
        ask(f"cuMemAllocAsync, mode {mode}", "cuMemAllocAsync", by(address), 1 << 20, s)
        ask(f"cuMemsetD8Async of it, mode {mode}", "cuMemsetD8Async", address.value, ctypes.c_ubyte(1), 64, s)
        ask(f"cuMemFreeAsync of it, mode {mode}", "cuMemFreeAsync", address.value, s)
        ask(f"cuMemFreeAsync of it again, mode {mode}", "cuMemFreeAsync", address.value, s)
        end(f"mode {mode}")
    nodes, count, kind, kinds = (U64 * 8)(), U64(8), U32(), []
    if graph.value:
        good("cuGraphGetNodes", graph.value, nodes, by(count))
        for k in range(count.value):
            good("cuGraphNodeGetType", nodes[k], by(kind))
            kinds.append(kind.value)
        got = (U64 * 15)()
        ask("parameters of what was captured", "cuGraphMemAllocNodeGetParams", nodes[kinds.index(10)], got)
        said("what was captured, by word", 0, *got[:11], got[12], got[13], got[14] == address.value)
    said("types of nodes", 0, *kinds)
    pool = U64()
    good("cuDeviceGetDefaultMemPool", by(pool), I32(0))
    pooled = made("cuMemAllocAsync", 1 << 20, s)
    for case, name, given in (
        ("no bytes", "cuMemAllocAsync", (by(address), 0, s)),
        ("to null", "cuMemAllocAsync", (None, 64, s)),
        ("of a pool", "cuMemAllocFromPoolAsync", (by(address), 64, pool.value, s)),
        ("memory of a pool", "cuMemFreeAsync", (pooled, s)),
        ("null", "cuMemFreeAsync", (0, s)),
        ("nobody's", "cuMemFreeAsync", (0x1234_5678_9A00, s)),
        ("too much", "cuMemAllocAsync", (by(address), 1 << 60, s)),
    ):
        good("cuStreamBeginCapture_v2", s, U32(2))
        ask(f"{name} in a capture, {case}", name, *given)
        end(f"{name} in a capture, {case}")
    good("cuMemFreeAsync", pooled, s)


@group
def what_is_counted() -> None:
    start()
    counters("at first")
    graph = OneGraph()
    _, address = graph.allocate(64 << 20)
    counters("of a node")
    executable = graph.executable()
    counters("of an instantiated graph")
    good("cuGraphLaunch", executable, graph.stream)
    good("cuStreamSynchronize", graph.stream)
    counters("after a launch")
    good("cuMemFreeAsync", address, graph.stream)
    good("cuStreamSynchronize", graph.stream)
    counters("after it was freed")
    ask("cuDeviceGraphMemTrim", "cuDeviceGraphMemTrim", I32(0))
    counters("after it was trimmed")
    for attribute in range(5):
        for value in (0, 5):
            case = f"counter {attribute} is set to {value}"
            ask(case, "cuDeviceSetGraphMemAttribute", I32(0), U32(attribute), by(U64(value)))
    counters("after they were set")
    ask("a counter that is none", "cuDeviceGetGraphMemAttribute", I32(0), U32(4), by(U64()))
    ask("a counter of no device", "cuDeviceGetGraphMemAttribute", I32(9), U32(0), by(U64()))
    ask("a counter to null", "cuDeviceGetGraphMemAttribute", I32(0), U32(0), None)
    ask("cuDeviceGraphMemTrim of no device", "cuDeviceGraphMemTrim", I32(9))


@group
def access_to_what_no_launch_has() -> None:
    start()
    graph, text = OneGraph(), ctypes.create_string_buffer(64)
    _, address = graph.allocate()
    executable = graph.executable()
    ask("cuMemcpyDtoH of what no launch has", "cuMemcpyDtoH_v2", text, address, 64)
    ask("cuCtxSynchronize afterwards", "cuCtxSynchronize")
    said("a launch afterwards", graph.launched(executable))
    ask("cuMemcpyDtoH of what a launch took", "cuMemcpyDtoH_v2", text, address, 64)
    good("cuMemFreeAsync", address, graph.stream)
    good("cuStreamSynchronize", graph.stream)
    ask("cuMemcpyDtoH of what was freed", "cuMemcpyDtoH_v2", text, address, 64)


# -- ranges of managed memory -------------------------------------------------------------------------------

_RANGES = range(1, 9)
"""Source: CUDA Driver API manual, ``CUmem_range_attribute``."""


def ranges(case: str, address: int, size: int = 64) -> None:
    """Say all attributes of a range."""
    for attribute in _RANGES:
        value = (I32 * 4)(*[77] * 4)
        bytes_ = 16 if attribute == 3 else 4
        answer = call("cuMemRangeGetAttribute", value, bytes_, U32(attribute), address, size)
        said(f"range attribute {attribute}, {case}", answer, *(value[: bytes_ // 4] if answer == 0 else []))


@group
def managed_memory() -> None:
    start()
    managed = made("cuMemAllocManaged", 1 << 20, U32(1))
    ranges("at first", managed)
    ranges("of all of it", managed, 1 << 20)
    ranges("beyond it", managed, (1 << 20) + 4096)
    ranges("of no bytes", managed, 0)
    ranges("of device memory", made("cuMemAlloc_v2", 64))
    ranges("of memory of the host", made("cuMemAllocHost_v2", 64))
    ranges("of no memory", 0)
    for case, advice, where in (
        ("read mostly", 1, 0), ("preferred", 3, 0), ("accessed by it", 5, 0), ("accessed by the host", 5, -1),
        ("not read mostly", 2, 0), ("preferred on the host", 3, -1), ("not preferred", 4, 0),
        ("not accessed by it", 6, 0),
    ):  # fmt: skip
        ask(f"advice, {case}", "cuMemAdvise", managed, 1 << 20, U32(advice), I32(where))
        ranges(f"after advice, {case}", managed)
    for where in (0, -1):
        ask(f"a prefetch to {where}", "cuMemPrefetchAsync", managed, 1 << 20, I32(where), 0)
        good("cuStreamSynchronize", 0)
        ranges(f"after a prefetch to {where}", managed)
    ask("advice for a part", "cuMemAdvise", managed, 1 << 16, U32(1), I32(0))
    ranges("of a part with advice", managed, 1 << 16)
    ranges("of a part with and one without advice", managed, 1 << 20)
    for attribute, sizes in ((1, (0, 2, 8)), (3, (0, 6, 8)), (9, (4,)), (0, (4,))):
        for size in sizes:
            value = (I32 * 4)()
            case = f"range attribute {attribute} in {size} bytes"
            ask(case, "cuMemRangeGetAttribute", value, size, U32(attribute), managed, 64)
    ask("a range attribute to null", "cuMemRangeGetAttribute", None, 4, U32(1), managed, 64)
    one, two = I32(), (I32 * 2)()
    values, sizes_, which = (ctypes.c_void_p * 2)(), (ctypes.c_size_t * 2)(4, 8), (U32 * 2)(1, 3)
    values[0], values[1] = ctypes.addressof(one), ctypes.addressof(two)
    ask("range attributes", "cuMemRangeGetAttributes", values, sizes_, which, 2, managed, 64)
    said("their values", 0, one.value, *two)
    ask("no range attributes", "cuMemRangeGetAttributes", values, sizes_, which, 0, managed, 64)
    ask("range attributes without sizes", "cuMemRangeGetAttributes", values, None, which, 2, managed, 64)


# -- what is seldom asked -----------------------------------------------------------------------------------


@group
def seldom_asked() -> None:
    context = start()
    event, stream = made("cuEventCreate", U32(2)), made("cuStreamCreate", U32(1))
    ask("cuCtxRecordEvent", "cuCtxRecordEvent", context, event)
    ask("cuEventQuery after cuCtxRecordEvent", "cuEventSynchronize", event)
    ask("cuCtxWaitEvent", "cuCtxWaitEvent", context, event)
    ask("cuCtxRecordEvent of no context", "cuCtxRecordEvent", 0, event)
    ask("cuCtxRecordEvent of no event", "cuCtxRecordEvent", context, 0)
    good("cuStreamBeginCapture_v2", stream, U32(2))
    ask("cuCtxRecordEvent while a stream is captured", "cuCtxRecordEvent", context, event)
    ask("the end of a capture beside cuCtxRecordEvent", "cuStreamEndCapture", stream, by(U64()))
    green = U64(77)
    ask("cuStreamGetGreenCtx", "cuStreamGetGreenCtx", stream, by(green), out=(green,))
    for target in (0, 1):
        for scope in (0, 100, 200):
            case = f"cuFlushGPUDirectRDMAWrites {target} {scope}"
            ask(case, "cuFlushGPUDirectRDMAWrites", U32(target), U32(scope))
    numbers = (I32 * 8)(*range(8))
    masks = (U32 * 8)()
    ask("cuDeviceGetHostAtomicCapabilities", "cuDeviceGetHostAtomicCapabilities", masks, numbers, U32(8), I32(0))
    said("what atomics of the host can do", 0, *masks)
    peers = masks, numbers, U32(8), I32(0), I32(0)
    ask("cuDeviceGetP2PAtomicCapabilities of itself", "cuDeviceGetP2PAtomicCapabilities", *peers)
    managed = made("cuMemAllocManaged", 1 << 20, U32(1))
    pointers, lengths = (U64 * 1)(managed), (ctypes.c_size_t * 1)(1 << 20)
    places, indices = (I32 * 2)(1, 0), (ctypes.c_size_t * 1)(0)

    def batch(case: str, name: str, count: int = 1, flags: int = 0, on: int = stream) -> None:
        where = () if name == "cuMemDiscardBatchAsync" else (places, indices, 1)
        ask(f"{name}, {case}", name, pointers, lengths, count, *where, U64(flags), on)

    for name in ("cuMemPrefetchBatchAsync", "cuMemDiscardBatchAsync", "cuMemDiscardAndPrefetchBatchAsync"):
        batch("good", name)
        batch("on the default stream", name, on=0)
        batch("of nothing", name, count=0)
        batch("with flags", name, flags=1)
    good("cuStreamSynchronize", stream)
    ask("cuProfilerInitialize", "cuProfilerInitialize", None, None, U32(0))
    status, found = I32(), U64()
    for name, version in (
        ("cuGLGetDevices", 6050), ("cuGraphicsGLRegisterBuffer", 3000), ("cuGLInit", 2000),
        ("cuEGLStreamConsumerConnect", 7000), ("cuVDPAUGetDevice", 3010), ("cuEventCreateFromEGLSync", 9000),
        ("cuGraphAddNode", 13000), ("cuCheckpointProcessLock", 12080),
    ):  # fmt: skip
        given = ctypes.c_char_p(name.encode()), by(found), I32(version), U64(0), by(status)
        ask(f"cuGetProcAddress {name}", "cuGetProcAddress_v2", *given, out=(status,))


def main() -> None:
    """Print all cases."""
    for work in GROUPS:
        for row in answers_of(work, ""):
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
