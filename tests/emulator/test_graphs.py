"""Graphs: made by hand or by capture, asked about, changed and launched, against plain Python."""

from __future__ import annotations

import random

import pytest

from emulator.programs import program

BASE = '''
import random, struct
lib = ctypes.CDLL("libcuda.so.1")
PTX = b"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry add(.param .u64 at, .param .u32 value)
{
  .reg .b32 %r<4>; .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [at]; ld.param.u32 %r1, [value];
  atom.global.add.u32 %r2, [%rd1], %r1;
  ret;
}
\\0"""
module = ok(d.cuModuleLoadData(PTX))
add = ok(d.cuModuleGetFunction(module, b"add"))
stream = ok(d.cuStreamCreate(1))
memory = ok(d.cuMemAlloc(4096))
ok(d.cuMemsetD8(memory, 0, 4096))

def words(count=4, at=0):
    data = bytearray(4 * count)
    ok(d.cuMemcpyDtoH(data, int(memory) + at, len(data)))
    return list(struct.unpack(f"{count}I", data))

def fill(at, value, count, element=4):
    p = d.CUDA_MEMSET_NODE_PARAMS()
    p.dst, p.value, p.elementSize, p.width, p.height, p.pitch = int(memory) + at, value, element, count, 1, 0
    return p

def move(to, of, size):
    p = d.CUDA_MEMCPY3D()
    p.srcMemoryType = p.dstMemoryType = d.CUmemorytype.CU_MEMORYTYPE_DEVICE
    p.srcDevice, p.dstDevice = int(memory) + of, int(memory) + to
    p.WidthInBytes, p.Height, p.Depth = size, 1, 1
    return p

keep = []
def launch_of(at, value, threads=1):
    values = (ctypes.c_uint64(int(memory) + at), ctypes.c_uint32(value))
    pointers = (ctypes.c_void_p * 2)(*map(ctypes.addressof, values))
    keep.append((values, pointers))
    p = d.CUDA_KERNEL_NODE_PARAMS()
    p.func, p.kernelParams = add, ctypes.addressof(pointers)
    p.gridDimX = p.gridDimY = p.gridDimZ = p.blockDimY = p.blockDimZ = 1
    p.blockDimX = threads
    return p

def nodes(count, *before):
    return list(before), len(before)

said = []
@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def host(data):
    said.append(data)

def host_params(number):
    p = d.CUDA_HOST_NODE_PARAMS()
    p.fn, p.userData = ctypes.cast(host, ctypes.c_void_p).value, number
    return p

def run(graph):
    executable = ok(d.cuGraphInstantiate(graph, 0))
    ok(d.cuGraphLaunch(executable, stream))
    ok(d.cuStreamSynchronize(stream))
    return executable

def ids(found):
    return [int(each) for each in found]
'''


def graphs(code: str) -> str:
    lines = code.splitlines()
    indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    return program(BASE + "\n".join(line[indent:] for line in lines))


def test_nodes_of_every_type_run_in_order_and_can_be_changed() -> None:
    graphs("""
    graph = ok(d.cuGraphCreate(0))
    first = ok(d.cuGraphAddMemsetNode(graph, [], 0, fill(0, 5, 4), context))
    kernel = ok(d.cuGraphAddKernelNode(graph, [first], 1, launch_of(0, 10, 3)))
    copy = ok(d.cuGraphAddMemcpyNode(graph, [kernel], 1, move(64, 0, 16), context))
    call = ok(d.cuGraphAddHostNode(graph, [copy], 1, host_params(7)))
    empty = ok(d.cuGraphAddEmptyNode(graph, [call], 1))
    event = ok(d.cuEventCreate(0))
    record = ok(d.cuGraphAddEventRecordNode(graph, [empty], 1, event))
    wait = ok(d.cuGraphAddEventWaitNode(graph, [record], 1, event))
    keep.clear()  # what a kernel is launched with was copied
    executable = run(graph)
    assert words() == words(at=64) == [35, 5, 5, 5] and said == [7]
    kinds = [ok(d.cuGraphNodeGetType(each)).name for each in (first, kernel, copy, call, empty, record, wait)]
    assert [kind.removeprefix("CU_GRAPH_NODE_TYPE_") for kind in kinds] == [
        "MEMSET", "KERNEL", "MEMCPY", "HOST", "EMPTY", "EVENT_RECORD", "WAIT_EVENT"]
    # what they do is said
    p = ok(d.cuGraphKernelNodeGetParams(kernel))
    assert int(p.func) == int(add) and (p.gridDimX, p.blockDimX) == (1, 3)
    p = ok(d.cuGraphMemsetNodeGetParams(first))
    assert (int(p.dst), p.value, p.width, p.elementSize) == (int(memory), 5, 4, 4)
    assert int(ok(d.cuGraphMemcpyNodeGetParams(copy)).dstDevice) == int(memory) + 64
    assert ok(d.cuGraphHostNodeGetParams(call)).userData == 7
    events = ok(d.cuGraphEventRecordNodeGetEvent(record)), ok(d.cuGraphEventWaitNodeGetEvent(wait))
    assert ids(events) == ids([event, event])
    any_ = ok(d.cuGraphNodeGetParams(first))
    assert any_.type.name.endswith("MEMSET") and any_.memset.value == 5
    any_ = ok(d.cuGraphNodeGetParams(copy))
    assert any_.type.name.endswith("MEMCPY") and int(any_.memcpy.copyParams.dstDevice) == int(memory) + 64
    alone = ok(d.cuGraphCreate(0))
    any_.memcpy.copyParams = move(320, 0, 16)
    alike = ok(d.cuGraphAddNode(alone, None, None, 0, any_))
    run(alone)
    any_.memcpy.copyParams = move(336, 4, 8)
    ok(d.cuGraphNodeSetParams(alike, any_))
    run(alone)
    assert words(8, 320) == [35, 5, 5, 5, 5, 5, 0, 0]
    for node in (first, kernel, call, empty, record, wait):
        alike = ok(d.cuGraphAddNode(alone, [alike], None, 1, ok(d.cuGraphNodeGetParams(node))))
        assert ok(d.cuGraphNodeGetType(alike)) == ok(d.cuGraphNodeGetType(node))
    said.clear()
    any_ = d.CUgraphNodeParams()
    any_.type, any_.graph.graph = d.CUgraphNodeType.CU_GRAPH_NODE_TYPE_GRAPH, alone
    whole, whose = ok(d.cuGraphCreate(0)), d.CUgraphChildGraphNodeOwnership
    for is_moved in (0, 1):
        any_.graph.ownership = whose(is_moved)
        alike = ok(d.cuGraphAddNode(whole, None, None, 0, any_))
        assert (int(ok(d.cuGraphChildGraphNodeGetGraph(alike))) == int(alone)) == is_moved
    assert name(d.cuGraphDestroy(alone)) == "INVALID_VALUE"  # it is the node's
    run(whole)
    assert said == [7, 7] and words() == [35, 5, 5, 5]
    said[:] = [7]
    # the instance keeps its own until it is changed
    ok(d.cuGraphMemsetNodeSetParams(first, fill(0, 1, 4))), ok(d.cuGraphKernelNodeSetParams(kernel, launch_of(0, 2)))
    ok(d.cuGraphMemcpyNodeSetParams(copy, move(128, 0, 8))), ok(d.cuGraphHostNodeSetParams(call, host_params(8)))
    ok(d.cuGraphLaunch(executable, stream))
    assert words() == [35, 5, 5, 5] and said == [7, 7] and words(at=128) == [0] * 4
    other = run(graph)
    assert words() == [3, 1, 1, 1] and words(at=128) == [3, 1, 0, 0] and said == [7, 7, 8]
    ok(d.cuGraphExecMemsetNodeSetParams(executable, first, fill(0, 100, 4), context))
    ok(d.cuGraphExecKernelNodeSetParams(executable, kernel, launch_of(4, 1)))
    ok(d.cuGraphExecMemcpyNodeSetParams(executable, copy, move(192, 0, 16), context))
    ok(d.cuGraphExecHostNodeSetParams(executable, call, host_params(9)))
    later = ok(d.cuEventCreate(0))
    ok(d.cuGraphExecEventRecordNodeSetEvent(executable, record, later))
    ok(d.cuGraphExecEventWaitNodeSetEvent(executable, wait, later))
    ok(d.cuGraphLaunch(executable, stream))
    assert words(at=192) == [100, 101, 100, 100] and said[-1] == 9
    assert ok(d.cuEventElapsedTime(event, later)) > 0
    # nodes that are switched off
    ok(d.cuGraphNodeSetEnabled(executable, kernel, 0))
    assert ok(d.cuGraphNodeGetEnabled(executable, kernel)) == 0 and ok(d.cuGraphNodeGetEnabled(executable, copy)) == 1
    ok(d.cuGraphLaunch(executable, stream))
    assert words(at=192) == [100] * 4
    assert name(d.cuGraphNodeSetEnabled(executable, call, 0)) == "INVALID_VALUE"
    assert name(d.cuGraphExecHostNodeSetParams(executable, kernel, host_params(1))) == "INVALID_VALUE"
    ok(d.cuGraphUpload(executable, stream)), ok(d.cuGraphExecDestroy(executable))
    assert name(d.cuGraphLaunch(executable, stream)) == name(d.cuGraphExecDestroy(executable)) == "INVALID_VALUE"
    """)


def test_edge_queries_follow_the_counting_rules() -> None:
    graphs("""
    graph = ok(d.cuGraphCreate(0))
    a, b, c, e = (ok(d.cuGraphAddEmptyNode(graph, [], 0)) for _ in range(4))
    ok(d.cuGraphAddDependencies(graph, [a, a, b], [b, c, e], None, 3))
    assert ids(ok(d.cuGraphGetNodes(graph, 4))[0]) == ids([a, b, c, e]) and ok(d.cuGraphGetNodes(graph, 0))[1] in (0, 4)
    handle, count = ctypes.c_void_p(int(graph)), ctypes.c_uint64(0)
    room = (ctypes.c_uint64 * 6)(*[9] * 6)
    assert lib.cuGraphGetNodes(handle, None, ctypes.byref(count)) == 0 and count.value == 4
    count.value = 2
    assert lib.cuGraphGetNodes(handle, room, ctypes.byref(count)) == 0 and count.value == 2
    assert list(room) == [int(a), int(b), 9, 9, 9, 9]
    count.value = 6
    assert lib.cuGraphGetRootNodes(handle, room, ctypes.byref(count)) == 0 and count.value == 1
    assert list(room) == [int(a), 0, 0, 0, 0, 0]
    assert lib.cuGraphGetNodes(handle, room, None) == 1
    before, after, data, number = ok(d.cuGraphGetEdges(graph, 3))
    assert sorted(zip(ids(before), ids(after))) == sorted([(int(a), int(b)), (int(a), int(c)), (int(b), int(e))])
    assert ids(ok(d.cuGraphNodeGetDependencies(b, 1))[0]) == ids([a])
    assert ids(ok(d.cuGraphNodeGetDependentNodes(a, 2))[0]) == ids([b, c])
    two = (ctypes.c_uint64 * 2)()
    count.value = 2
    assert lib.cuGraphGetEdges(handle, two, room, ctypes.byref(count)) == 0 and list(two) == [int(a), int(a)]
    assert lib.cuGraphGetEdges(handle, two, None, ctypes.byref(count)) == 1
    # edges that are there already, of a node to itself, of others' nodes, that are not there
    alien = ok(d.cuGraphAddEmptyNode(ok(d.cuGraphCreate(0)), [], 0))
    for pair in ((a, b), (a, a), (a, alien)):
        assert name(d.cuGraphAddDependencies(graph, [pair[0]], [pair[1]], None, 1)) == "INVALID_VALUE"
    assert name(d.cuGraphRemoveDependencies(graph, [c], [e], None, 1)) == "INVALID_VALUE"
    for wrong in ([alien], [a, a]):
        assert name(d.cuGraphAddEmptyNode(graph, wrong, len(wrong))) == "INVALID_VALUE"
    # a circle
    ok(d.cuGraphAddDependencies(graph, [e], [a], None, 1))
    assert name(d.cuGraphInstantiate(graph, 0)) == "INVALID_VALUE"
    params = d.CUDA_GRAPH_INSTANTIATE_PARAMS()
    assert name(d.cuGraphInstantiateWithParams(graph, params)) == "INVALID_VALUE"
    ok(d.cuGraphRemoveDependencies(graph, [e], [a], None, 1))
    ok(d.cuGraphInstantiateWithParams(graph, params))
    ok(d.cuGraphDestroyNode(b))
    assert ids(ok(d.cuGraphGetRootNodes(graph, 3))[0])[:2] == ids([a, e])
    assert name(d.cuGraphDestroyNode(b)) == name(d.cuGraphNodeGetType(b)) == "INVALID_VALUE"
    assert int(ok(d.cuGraphNodeGetContainingGraph(a))) == int(graph)
    assert len({ok(d.cuGraphNodeGetLocalId(each)) for each in (a, c, e)}) == 3
    # programmatic edges have data
    p, q = (ok(d.cuGraphAddKernelNode(graph, [], 0, launch_of(0, 1))) for _ in range(2))
    edge = d.CUgraphEdgeData()
    edge.from_port, edge.type = 1, 1
    ok(d.cuGraphAddDependencies(graph, [p], [q], [edge], 1))
    count.value = 1
    assert lib.cuGraphNodeGetDependencies(ctypes.c_void_p(int(q)), two, ctypes.byref(count)) == 402
    assert ok(d.cuGraphNodeGetDependencies(q, 1))[1][0].from_port == 1
    ok(d.cuGraphDestroy(graph))
    assert name(d.cuGraphDestroy(graph)) == name(d.cuGraphInstantiate(graph, 0)) == "INVALID_VALUE"
    assert name(d.cuGraphNodeGetType(a)) == "INVALID_VALUE" and name(d.cuGraphCreate(1)) == "INVALID_VALUE"
    """)


def test_graphs_in_graphs_clones_and_updates() -> None:
    graphs("""
    child = ok(d.cuGraphCreate(0))
    inner = ok(d.cuGraphAddKernelNode(child, [], 0, launch_of(0, 3)))
    graph = ok(d.cuGraphCreate(0))
    zero = ok(d.cuGraphAddMemsetNode(graph, [], 0, fill(0, 0, 4), context))
    nested = ok(d.cuGraphAddChildGraphNode(graph, [zero], 1, child))
    again = ok(d.cuGraphAddChildGraphNode(graph, [nested], 1, child))
    ok(d.cuGraphKernelNodeSetParams(inner, launch_of(0, 1000)))  # they have copies
    executable = run(graph)
    assert words()[0] == 6
    own = ok(d.cuGraphChildGraphNodeGetGraph(nested))
    (deep,), _ = ok(d.cuGraphGetNodes(own, 1))
    ok(d.cuGraphExecKernelNodeSetParams(executable, deep, launch_of(0, 40)))
    ok(d.cuGraphLaunch(executable, stream))
    assert words()[0] == 43
    ok(d.cuGraphExecChildGraphNodeSetParams(executable, again, child))
    ok(d.cuGraphLaunch(executable, stream))
    assert words()[0] == 1040
    assert name(d.cuGraphDestroy(own)) == "INVALID_VALUE"
    copy = ok(d.cuGraphClone(graph))
    found = ok(d.cuGraphNodeFindInClone(zero, copy))
    assert int(found) != int(zero) and name(d.cuGraphNodeFindInClone(inner, copy)) == "INVALID_VALUE"
    ok(d.cuGraphMemsetNodeSetParams(found, fill(0, 500, 1)))
    info = ok(d.cuGraphExecUpdate(executable, copy))
    ok(d.cuGraphLaunch(executable, stream))
    assert words()[0] == 506 and int(info.result) == 0
    # what cannot be an update
    def fails(changed):
        answer = d.cuGraphExecUpdate(executable, changed)
        assert name(answer) == "GRAPH_EXEC_UPDATE_FAILURE"
        found = (ctypes.c_uint64 * 3)()
        assert lib.cuGraphExecUpdate_v2(*(ctypes.c_void_p(int(each)) for each in (executable, changed)), found) == 910
        return found[0] & 0xFFFFFFFF, found[1]

    more = ok(d.cuGraphClone(graph))
    ok(d.cuGraphAddEmptyNode(more, [], 0))
    assert fails(more) == (2, 0)
    other = ok(d.cuGraphCreate(0))
    one = ok(d.cuGraphAddMemsetNode(other, [], 0, fill(0, 0, 4), context))
    two = ok(d.cuGraphAddEmptyNode(other, [one], 1))
    ok(d.cuGraphAddEmptyNode(other, [two], 1))
    assert fails(other) == (3, int(two))
    edges = ok(d.cuGraphClone(graph))
    a, b = (ok(d.cuGraphNodeFindInClone(each, edges)) for each in (zero, again))
    ok(d.cuGraphAddDependencies(edges, [a], [b], None, 1))
    assert fails(edges) == (2, int(b))
    ok(d.cuGraphLaunch(executable, stream))
    assert words()[0] == 506
    assert ok(d.cuGraphExecGetFlags(executable)) is not None
    assert len({ok(d.cuGraphGetId(each)) for each in (graph, child, copy)} | {ok(d.cuGraphExecGetId(executable))}) == 4
    # a capture is a child graph, too
    ok(d.cuStreamBeginCapture(stream, d.CUstreamCaptureMode(0)))
    ok(d.cuGraphLaunch(executable, stream)), ok(d.cuMemsetD32Async(int(memory) + 4, 77, 1, stream))
    captured = ok(d.cuStreamEndCapture(stream))
    ok(d.cuMemsetD8(memory, 0, 16))
    run(captured)
    assert words()[:2] == [506, 77]
    """)


def test_waits_attributes_objects_and_drawings() -> None:
    graphs("""
    import tempfile, pathlib
    # values in memory
    flag = ctypes.c_void_p(int(memory) + 256)
    handle = ctypes.c_void_p(int(stream))
    assert lib.cuStreamWriteValue32_v2(handle, flag, 7, 0) == 0 and words(1, 256) == [7]
    assert lib.cuStreamWriteValue64_v2(handle, flag, ctypes.c_uint64(1 << 40 | 7), 0) == 0 and words(2, 256) == [7, 256]
    for value, how in ((7, 0), (7, 1), (5, 2), (6, 0), (0x80000008, 0), (0xF, 3)):
        assert lib.cuStreamWaitValue32_v2(handle, flag, value, how) == 0, (value, how)
    assert lib.cuStreamWaitValue64_v2(handle, flag, ctypes.c_uint64(1 << 40), 0) == 0
    for wrong in ((None, 1, 0), (ctypes.c_void_p(flag.value + 1), 1, 0), (flag, 1, 8)):
        assert lib.cuStreamWaitValue32_v2(handle, *wrong) == 1
    timer = threading.Timer(0.05, lambda: ctypes.c_uint32.from_address(flag.value).__setattr__("value", 11))
    timer.start()
    assert lib.cuStreamWaitValue32_v2(handle, flag, 11, 1) == 0 and words(1, 256) == [11]
    batch = (ctypes.c_uint64 * 18)(2, flag.value, 20, 0, 0, 0,  1, flag.value, 20, 1, 0, 0,
                                   8, 5 << 0 | (1 | 1 << 5) << 32, flag.value, 0x14, 0, 0)
    assert lib.cuStreamBatchMemOp_v2(handle, 3, batch, 0) == 0 and words(1, 256) == [20]
    ok(d.cuStreamBeginCapture(stream, d.CUstreamCaptureMode(0)))
    assert lib.cuStreamWriteValue32_v2(handle, flag, 99, 0) == 0
    captured = ok(d.cuStreamEndCapture(stream))
    assert words(1, 256) != [99]
    run(captured)
    assert words(1, 256) == [99]
    # attributes of kernels
    kernels = ok(d.cuGraphCreate(0))
    one, two = (ok(d.cuGraphAddKernelNode(kernels, [], 0, launch_of(512, 1))) for _ in range(2))
    kind, value = d.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PRIORITY, d.CUkernelNodeAttrValue()
    value.priority = -3
    ok(d.cuGraphKernelNodeSetAttribute(one, kind, value)), ok(d.cuGraphKernelNodeCopyAttributes(two, one))
    assert ok(d.cuGraphKernelNodeGetAttribute(two, kind)).priority == -3
    run(kernels)
    assert words(1, 512) == [2]
    twin = ok(d.cuGraphClone(kernels))
    assert ok(d.cuGraphKernelNodeGetAttribute(ok(d.cuGraphNodeFindInClone(one, twin)), kind)).priority == -3
    # nodes that do not wait for each other run as they were made
    loose = ok(d.cuGraphCreate(0))
    last = ok(d.cuGraphAddHostNode(loose, [], 0, host_params(3)))
    for number in (1, 2):
        ok(d.cuGraphAddHostNode(loose, [], 0, host_params(number)))
    said.clear()
    run(loose)
    assert said == [3, 1, 2]
    # objects of the caller's
    ends, item = [], ctypes.c_uint64()
    end = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(ends.append)
    assert lib.cuUserObjectCreate(ctypes.byref(item), ctypes.c_void_p(123), end, 2, 1) == 0
    assert lib.cuUserObjectCreate(ctypes.byref(item), ctypes.c_void_p(123), end, 2, 0) == 1
    thing = d.CUuserObject(item.value)
    ok(d.cuGraphRetainUserObject(kernels, thing, 2, 1)), ok(d.cuUserObjectRetain(thing, 1))
    ok(d.cuGraphReleaseUserObject(kernels, thing, 1)), ok(d.cuUserObjectRelease(thing, 1))
    assert ends == [] and name(d.cuUserObjectRelease(thing, 0)) == "INVALID_VALUE"
    twin = ok(d.cuGraphClone(kernels))
    ok(d.cuGraphDestroy(kernels))
    assert ends == []
    ok(d.cuGraphDestroy(twin))
    assert ends == [123] and name(d.cuUserObjectRetain(thing, 1)) == "INVALID_VALUE"
    assert lib.cuUserObjectCreate(ctypes.byref(item), ctypes.c_void_p(5), end, 1, 1) == 0
    ok(d.cuUserObjectRelease(d.CUuserObject(item.value), 5))
    assert ends == [123, 5]
    # as a drawing
    graph = ok(d.cuGraphCreate(0))
    first = ok(d.cuGraphAddMemsetNode(graph, [], 0, fill(0, 9, 4), context))
    second = ok(d.cuGraphAddMemcpyNode(graph, [first], 1, move(64, 0, 16), context))
    ok(d.cuGraphAddEmptyNode(graph, [second], 1))
    path = pathlib.Path(tempfile.mkdtemp()) / "graph.dot"
    def drawn(flags, graph=graph):
        ok(d.cuGraphDebugDotPrint(graph, str(path).encode(), flags))
        return path.read_text()
    text = drawn(1)
    for flags, has in ((0, (False, False)), (1, (True, True)), (1 << 10, (True, False))):  # handles; what nodes do
        assert (f"{int(first):#x}" in drawn(flags), "value = 9" in drawn(flags)) == has, flags
    whole = ok(d.cuGraphCreate(0))
    ok(d.cuGraphAddChildGraphNode(whole, [], 0, graph))
    parts = drawn(0, whole)
    assert (parts.count("subgraph"), parts.count("MEMSET"), parts.count("->")) == (2, 1, 2)
    assert parts.count("{") == parts.count("}") == 3
    assert text.startswith("digraph dot {") and text.count("->") == 2 and "MEMSET" in text and "value = 9" in text
    assert text.count("{") == text.count("}")
    assert name(d.cuGraphDebugDotPrint(graph, b"/nowhere/graph.dot", 0)) == "OPERATING_SYSTEM"
    """)


def test_captured_kernels_copies_and_sets_run_as_without() -> None:
    graphs("""
    streams = [ok(d.cuStreamCreate(1)) for _ in range(3)]
    def work(choose, streams, fork, join):
        events = []
        def event():
            events.append(ok(d.cuEventCreate(2)))
            return events[-1]
        first = streams[0]
        if fork:
            begin = event()
            ok(d.cuEventRecord(begin, first))
            for other in streams[1:]:
                ok(d.cuStreamWaitEvent(other, begin, 0))
        for _ in range(60):
            which = choose.randrange(3)
            s, base = streams[which], 1024 * which  # each stream has memory of its own until they meet
            kind, at = choose.randrange(4), 4 * choose.randrange(64)
            if kind == 0:
                ok(d.cuMemsetD32Async(int(memory) + base + at, choose.randrange(1 << 20), 4, s))
            elif kind == 1:
                ok(d.cuMemcpyDtoDAsync(int(memory) + base + at, int(memory) + base + 512, 32, s))
            elif kind == 2:
                p = launch_of(base + at, choose.randrange(1000), choose.randrange(1, 70))
                ok(d.cuLaunchKernel(add, 1, 1, 1, p.blockDimX, 1, 1, 0, s, p.kernelParams, 0))
            else:
                source, target = choose.sample(range(3), 2)
                meeting = event()
                ok(d.cuEventRecord(meeting, streams[source])), ok(d.cuStreamWaitEvent(streams[target], meeting, 0))
        for other in streams[1:] if join else ():
            end = event()
            ok(d.cuEventRecord(end, other)), ok(d.cuStreamWaitEvent(first, end, 0))

    for seed in range(4):
        ok(d.cuMemsetD8(memory, seed, 4096))
        work(random.Random(seed), streams, False, False)
        expected = words(1024)
        ok(d.cuMemsetD8(memory, seed, 4096))
        ok(d.cuStreamBeginCapture(streams[0], d.CUstreamCaptureMode(2)))
        work(random.Random(seed), streams, True, True)
        graph = ok(d.cuStreamEndCapture(streams[0]))
        assert words(1024) == [seed * 0x01010101] * 1024  # nothing was done
        keep.clear()
        run(graph)
        assert words(1024) == expected, seed
    kinds = {ok(d.cuGraphNodeGetType(each)).name for each in ok(d.cuGraphGetNodes(graph, 60))[0] if int(each)}
    assert len(kinds) >= 3, kinds
    # what was captured can be read and changed
    ok(d.cuStreamBeginCapture(stream, d.CUstreamCaptureMode(0)))
    p = launch_of(0, 5)
    ok(d.cuLaunchKernel(add, 1, 1, 1, 2, 1, 1, 0, stream, p.kernelParams, 0))
    graph = ok(d.cuStreamEndCapture(stream))
    (node,), _ = ok(d.cuGraphGetNodes(graph, 1))
    assert ok(d.cuGraphKernelNodeGetParams(node)).blockDimX == 2
    ok(d.cuMemsetD8(memory, 0, 16)), ok(d.cuGraphKernelNodeSetParams(node, launch_of(0, 6, 7)))
    run(graph)
    assert words()[0] == 42
    assert name(d.cuMemAlloc(16)) == "SUCCESS"
    ok(d.cuStreamBeginCapture(stream, d.CUstreamCaptureMode(0)))
    assert name(d.cuMemAlloc(16)) == "STREAM_CAPTURE_UNSUPPORTED"
    assert name(d.cuStreamEndCapture(stream)) == "STREAM_CAPTURE_INVALIDATED"
    """)


def test_captured_copy_has_its_source_and_destination() -> None:
    graphs("""
    host = (ctypes.c_uint8 * 4096)()
    def captured(copy, *args):
        ok(d.cuStreamBeginCapture(stream, d.CUstreamCaptureMode(2)))
        ok(copy(*args, stream))
        (node,), _ = ok(d.cuGraphGetNodes(ok(d.cuStreamEndCapture(stream)), 1))
        q = ok(d.cuGraphMemcpyNodeGetParams(node))
        assert (int(q.srcMemoryType), int(q.dstMemoryType)) == (2, 1)
        return (int(q.srcDevice) - int(memory), q.srcPitch, q.srcHeight, q.dstHost, q.dstPitch, q.dstHeight,
                q.WidthInBytes, q.Height, q.Depth)

    def box(**sides):
        p = d.CUDA_MEMCPY3D()
        p.srcMemoryType, p.dstMemoryType = d.CUmemorytype.CU_MEMORYTYPE_DEVICE, d.CUmemorytype.CU_MEMORYTYPE_HOST
        p.srcDevice, p.dstHost, p.WidthInBytes, p.Height, p.Depth = int(memory), ctypes.addressof(host), 16, 3, 2
        for each, value in sides.items():
            setattr(p, each, value)
        return captured(d.cuMemcpy3DAsync, p)

    at = ctypes.addressof(host)
    assert box(srcPitch=64, srcHeight=5, dstPitch=32, dstHeight=4) == (0, 64, 5, at, 32, 4, 16, 3, 2)
    assert box(srcPitch=64, srcHeight=4, srcXInBytes=8, srcY=1, srcZ=1)[:3] == (328, 64, 4)
    assert captured(d.cuMemcpyDtoHAsync, at, memory, 48) == (0, 48, 1, at, 48, 1, 48, 1, 1)
    """)


def test_random_graphs_match_a_python_model() -> None:
    seed = random.randrange(1 << 30)
    graphs(f"seed = {seed}\n" + RANDOM)


RANDOM = """
choose = random.Random(seed)
for trial in range(12):
    ok(d.cuMemsetD8(memory, 0, 4096))
    model = [0] * 64
    graph, made, steps, said[:] = ok(d.cuGraphCreate(0)), [], [], []
    for number in range(24):
        kind, at, value = choose.randrange(4), choose.randrange(60), choose.randrange(1 << 16)
        # a chain through all, and more edges that change nothing
        before = ([made[-1]] if made else []) + choose.sample(made[:-1], min(len(made[:-1]), choose.randrange(3)))
        args = before, len(before)
        if kind == 0:
            made.append(ok(d.cuGraphAddMemsetNode(graph, *args, fill(4 * at, value, 4), context)))
            model[at:at + 4] = [value] * 4
        elif kind == 1:
            of = choose.randrange(60)
            made.append(ok(d.cuGraphAddMemcpyNode(graph, *args, move(4 * at, 4 * of, 16), context)))
            model[at:at + 4] = model[of:of + 4]
        elif kind == 2:
            made.append(ok(d.cuGraphAddKernelNode(graph, *args, launch_of(4 * at, value, 3))))
            model[at] = (model[at] + 3 * value) % (1 << 32)
        else:
            made.append(ok(d.cuGraphAddHostNode(graph, *args, host_params(number + 1))))
            steps.append(number + 1)
    run(ok(d.cuGraphClone(graph)) if trial % 2 else graph)
    assert words(64) == model and said == steps, (seed, trial)
"""


def test_warm_graph_launch_needs_no_python() -> None:
    graphs("""
    from cujit.emulator.process import emulation
    graph, event = ok(d.cuGraphCreate(0)), ok(d.cuEventCreate(0))
    zero = ok(d.cuGraphAddMemsetNode(graph, [], 0, fill(0, 5, 4), context))
    kernel = ok(d.cuGraphAddKernelNode(graph, [zero], 1, launch_of(0, 10, 3)))
    copy = ok(d.cuGraphAddMemcpyNode(graph, [kernel], 1, move(64, 0, 16), context))
    ok(d.cuGraphAddEventRecordNode(graph, [copy], 1, event))
    executable = run(graph)
    calls = dict(emulation().call_counts)
    ok(d.cuMemsetD8(int(memory) + 64, 0, 16))
    for _ in range(20):
        ok(d.cuGraphLaunch(executable, stream))
    assert words(at=64) == [35, 5, 5, 5] and dict(emulation().call_counts) == calls
    # a change is seen by the next launch
    ok(d.cuGraphExecMemsetNodeSetParams(executable, zero, fill(0, 6, 4), context))
    ok(d.cuGraphLaunch(executable, stream))
    assert words(at=64) == [36, 6, 6, 6]
    # a node that cannot run ends the launch
    ok(d.cuModuleUnload(module))
    ok(d.cuMemsetD8(int(memory) + 64, 0, 16))
    assert name(d.cuGraphLaunch(executable, stream)) == "INVALID_HANDLE" and words(at=64) == [0] * 4
    """)


def test_graphs_change_and_end_while_others_launch_them() -> None:
    graphs("""
    graph = ok(d.cuGraphCreate(0))
    kernel = ok(d.cuGraphAddKernelNode(graph, [], 0, launch_of(0, 1)))
    executable = run(graph)
    answers, begun = [], threading.Event()

    def launch():
        ok(d.cuCtxSetCurrent(context))
        while not answers or not answers[-1]:
            answers.append(lib.cuGraphLaunch(ctypes.c_void_p(int(executable)), ctypes.c_void_p(int(stream))))
            begun.set()

    threads = [threading.Thread(target=launch) for _ in range(3)]
    for thread in threads:
        thread.start()
    begun.wait()
    for k in range(200):
        ok(d.cuGraphExecKernelNodeSetParams(executable, kernel, launch_of(4 * (k % 4), 1)))
    ok(d.cuGraphExecDestroy(executable))
    for thread in threads:
        thread.join()
    from cujit.emulator.graph_execs import _STEPS
    assert set(answers) == {0, 1} and not _STEPS, set(answers)
    assert sum(words()) == answers.count(0) + 1
    """)


_OF_MODULE = """
    waits = ok(d.cuModuleLoadData(code))
    p = launch_of(0, 1)
    p.func, unload_it = ok(d.cuModuleGetFunction(waits, b"add")), lib.cuModuleUnload
"""
_OF_LIBRARY = """
    waits = ok(d.cuLibraryLoadData(code, [], [], 0, [], [], 0))
    p = launch_of(0, 1)
    p.func, p.kern, unload_it = d.CUfunction(0), ok(d.cuLibraryGetKernel(waits, b"add")), lib.cuLibraryUnload
"""


@pytest.mark.parametrize("loaded", [_OF_MODULE, _OF_LIBRARY], ids=["module", "library"])
def test_kernels_are_unloaded_after_their_graphs_end(loaded: str) -> None:
    graphs(
        """
    code = PTX.replace(b"atom.global.add.u32 %r2, [%rd1], %r1;", b'''
      .reg .pred %p<2>;
      st.volatile.global.u32 [%rd1], 1;
    again:
      ld.volatile.global.u32 %r2, [%rd1+4];
      setp.eq.u32 %p1, %r2, 0;
      @%p1 bra again;''')
    LOADED
    graph = ok(d.cuGraphCreate(0))
    ok(d.cuGraphAddKernelNode(graph, [], 0, p))
    executable = ok(d.cuGraphInstantiate(graph, 0))
    seen = (ctypes.c_uint32 * 2).from_address(int(memory))

    def in_thread(call, handle, *given):
        def make():
            ok(d.cuCtxSetCurrent(context))
            answers.append(call(ctypes.c_void_p(int(handle)), *given))
        thread = threading.Thread(target=make, daemon=True)
        thread.start()
        return thread

    answers, seen[1] = [], 1
    ok(d.cuGraphLaunch(executable, stream))
    seen[0] = seen[1] = 0
    launch = in_thread(lib.cuGraphLaunch, executable, ctypes.c_void_p(int(stream)))
    while not seen[0]:
        threading.Event().wait(0.001)
    unload = in_thread(unload_it, waits)
    unload.join(0.3)
    assert unload.is_alive() and not answers, answers
    seen[1] = 1
    launch.join(), unload.join()
    assert answers == [0, 0]
    assert name(d.cuGraphLaunch(executable, stream)) == "INVALID_HANDLE"
    """.replace("    LOADED\n", loaded)
    )


def test_graph_launches_the_kernel_of_a_library_in_each_context() -> None:
    graphs("""
    library = ok(d.cuLibraryLoadData(PTX, [], [], 0, [], [], 0))
    p = launch_of(0, 1)
    p.func, p.kern = d.CUfunction(0), ok(d.cuLibraryGetKernel(library, b"add"))
    graph = ok(d.cuGraphCreate(0))
    ok(d.cuGraphAddKernelNode(graph, [], 0, p))
    executable = ok(d.cuGraphInstantiate(graph, 0))
    from cujit.emulator.graph_execs import _EXECUTABLES
    from cujit.emulator.structures import GraphStep
    ok(d.cuGraphLaunch(executable, stream))
    step = GraphStep.from_address(_EXECUTABLES[int(executable)]._cell.steps)
    assert step.known == int(ok(d.cuKernelGetFunction(p.kern))) != step.function
    other = ok(d.cuCtxCreate(None, 0, 0))
    ok(d.cuGraphLaunch(executable, ok(d.cuStreamCreate(0))))
    ok(d.cuGraphLaunch(executable, stream))
    assert words(1) == [3], words(1)
    ok(d.cuCtxDestroy(other))
    ok(d.cuGraphLaunch(executable, stream))
    assert words(1) == [4]
    ok(d.cuLibraryUnload(library))
    assert name(d.cuGraphLaunch(executable, stream)) == "INVALID_HANDLE"
    """)
