"""Memory of graphs: allocated and freed by nodes, made by hand or by capture."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from pathlib import Path

import pytest

from cujit.emulator.settings import EmulatorSettings
from emulator.programs import PRELUDE, emulated, program, python
from emulator.test_misuse import Rows, differing, rows

SCRIPT = Path(__file__).with_name("memory_answers.py")
GOLDEN = Path(__file__).parents[1] / "goldens" / "memory_answers.json"
"""What it printed on an H200 (CUDA 13.0), as a list."""

BASE = """
lib = ctypes.CDLL("libcuda.so.1")
stream = ok(d.cuStreamCreate(1))
AUTO_FREE = 1

def allocate(graph, size, *before):
    raw = (ctypes.c_uint64 * 15)(1, 1)
    raw[13] = size
    node, nodes = ctypes.c_uint64(), (ctypes.c_uint64 * max(len(before), 1))(*map(int, before))
    answer = lib.cuGraphAddMemAllocNode(
        ctypes.byref(node), ctypes.c_void_p(int(graph)), nodes, ctypes.c_uint64(len(before)), raw)
    assert answer == 0, answer
    return d.CUgraphNode(node.value), raw[14]

def free(graph, address, *before):
    return d.cuGraphAddMemFreeNode(graph, list(before), len(before), address)

def fill(address, value, count):
    p = d.CUDA_MEMSET_NODE_PARAMS()
    p.dst, p.value, p.elementSize, p.width, p.height = address, value, 4, count, 1
    return p

def move(to, of, size):
    p = d.CUDA_MEMCPY3D()
    p.srcMemoryType = p.dstMemoryType = d.CUmemorytype.CU_MEMORYTYPE_DEVICE
    p.srcDevice, p.dstDevice, p.WidthInBytes, p.Height, p.Depth = of, to, size, 1, 1
    return p

def words(address, count=4):
    data = (ctypes.c_uint32 * count)()
    ok(d.cuMemcpyDtoH(ctypes.addressof(data), address, 4 * count))
    return list(data)

def launch(executable):
    return name(d.cuGraphLaunch(executable, stream))

def counted():
    return [int(ok(d.cuDeviceGetGraphMemAttribute(0, d.CUgraphMem_attribute(k)))) for k in range(4)]

left = lambda: ok(d.cuMemGetInfo())[0]
"""


def graphs(code: str) -> str:
    return program(BASE + textwrap.dedent(code))


def test_graph_allocates_and_frees_memory_at_one_address() -> None:
    graphs("""
    target = ok(d.cuMemAlloc(64))
    graph = ok(d.cuGraphCreate(0))
    before = left()
    alloc, address = allocate(graph, 64)
    assert int(ok(d.cuGraphMemAllocNodeGetParams(alloc)).dptr) == address and left() == before
    use = ok(d.cuGraphAddMemsetNode(graph, [alloc], 1, fill(address, 9, 4), context))
    take = ok(d.cuGraphAddMemcpyNode(graph, [use], 1, move(int(target), address, 16), context))
    gone = ok(free(graph, address, take))
    assert int(ok(d.cuGraphMemFreeNodeGetParams(gone))) == address
    executable = ok(d.cuGraphInstantiate(graph, 0))
    for _ in range(3):
        ok(d.cuMemsetD32(target, 0, 16))
        assert launch(executable) == "SUCCESS" and words(target) == [9] * 4
        assert name(d.cuMemFreeAsync(address, stream)) == "INVALID_VALUE"
    assert left() == before
    """)


def test_memory_left_by_a_graph_belongs_to_the_caller() -> None:
    graphs("""
    mark = int(ok(d.cuMemAlloc(64)))
    graph, before = ok(d.cuGraphCreate(0)), left()
    root = ok(d.cuGraphAddMemsetNode(graph, [], 0, fill(mark, 3, 4), context))
    alloc, address = allocate(graph, 8 << 20, root)
    ok(d.cuGraphAddMemsetNode(graph, [alloc], 1, fill(address, 7, 4), context))
    executable = ok(d.cuGraphInstantiate(graph, 0))
    for release in (lambda: d.cuMemFreeAsync(address, stream), lambda: d.cuMemFree(address)):
        assert name(release()) == name(d.cuMemsetD8(address, 1, 16)) == "INVALID_VALUE"
        assert launch(executable) == "SUCCESS" and words(address) == [7] * 4
        assert left() == before - (8 << 20)
        ok(d.cuMemsetD32(mark, 5, 4))
        assert launch(executable) == "INVALID_VALUE" and words(mark) == [5] * 4  # nothing of it was done
        ok(release())
        assert left() == before
    ok(d.cuGraphExecDestroy(executable))
    freeing = ok(d.cuGraphInstantiate(graph, AUTO_FREE))
    for _ in range(3):
        assert launch(freeing) == "SUCCESS" and left() == before - (8 << 20)
    # another graph may free it, once
    other = ok(d.cuGraphCreate(0))
    ok(free(other, address))
    frees = ok(d.cuGraphInstantiate(other, 0))
    assert launch(frees) == "SUCCESS" and left() == before and launch(frees) == "INVALID_VALUE"
    # without a graph it is the caller's until he frees it
    assert launch(freeing) == "SUCCESS"
    for each in (freeing, frees):
        ok(d.cuGraphExecDestroy(each))
    ok(d.cuGraphDestroy(graph)), ok(d.cuGraphDestroy(other))
    assert words(address) == [7] * 4
    ok(d.cuMemFree(address))
    assert left() == before and name(d.cuMemFree(address)) == "INVALID_VALUE"
    again = ok(d.cuMemAlloc(8 << 20))
    ok(d.cuMemsetD8(again, 1, 8 << 20)), ok(d.cuMemFree(again))
    """)


def test_memory_is_captured_in_every_mode_and_of_every_pool() -> None:
    graphs("""
    target, back = ok(d.cuMemAlloc(64)), {}
    pool = ok(d.cuDeviceGetDefaultMemPool(0))
    for mode in range(3):
        ok(d.cuStreamBeginCapture(stream, d.CUstreamCaptureMode(mode)))
        before = left()
        first = ok(d.cuMemAllocAsync(1000, stream))
        second = ok(d.cuMemAllocFromPoolAsync(4 << 20, pool, stream))
        assert left() == before and int(first) != int(second)
        ok(d.cuMemsetD32Async(first, 40 + mode, 4, stream))
        ok(d.cuMemcpyDtoDAsync(second, first, 16, stream))
        ok(d.cuMemFreeAsync(first, stream))
        assert name(d.cuMemFreeAsync(first, stream)) == name(d.cuMemFreeAsync(target, stream)) == "INVALID_VALUE"
        assert int(ok(d.cuMemAllocAsync(0, stream))) == 0
        graph = ok(d.cuStreamEndCapture(stream))
        found, count = ok(d.cuGraphGetNodes(graph, 8))
        kinds = [ok(d.cuGraphNodeGetType(node)).name.rpartition("TYPE_")[2] for node in found[:count]]
        assert kinds == ["MEM_ALLOC", "MEM_ALLOC", "MEMSET", "MEMCPY", "MEM_FREE"]
        said = ok(d.cuGraphMemAllocNodeGetParams(found[1]))
        assert (int(said.dptr), said.bytesize, int(said.poolProps.location.type)) == (int(second), 4 << 20, 1)
        executable = ok(d.cuGraphInstantiate(graph, 0))
        assert launch(executable) == "SUCCESS" and words(second) == [40 + mode] * 4
        assert left() == before - (4 << 20)
        ok(d.cuMemFreeAsync(second, stream))
        assert left() == before
    # in a thread without a context it is the stream's
    found = []
    def capture():
        ok(d.cuStreamBeginCapture(stream, d.CUstreamCaptureMode(0)))
        at = ok(d.cuMemAllocAsync(64, stream))
        ok(d.cuMemFreeAsync(at, stream))
        found.append(ok(d.cuStreamEndCapture(stream)))
    thread = threading.Thread(target=capture)
    thread.start(), thread.join()
    assert ok(d.cuGraphGetNodes(found[0], 0))[1] == 2
    properties = d.CUmemPoolProps()
    properties.allocType, properties.location.type = d.CUmemAllocationType(2), d.CUmemLocationType(1)
    managed = ok(d.cuMemPoolCreate(properties))
    ok(d.cuStreamBeginCapture(stream, d.CUstreamCaptureMode(0)))
    assert name(d.cuMemAllocFromPoolAsync(64, managed, stream)) == "NOT_SUPPORTED"
    ok(d.cuStreamEndCapture(stream))
    # beside a capture others allocate as ever
    other = ok(d.cuStreamCreate(1))
    ok(d.cuStreamBeginCapture(stream, d.CUstreamCaptureMode(2)))  # relaxed
    plain = ok(d.cuMemAllocAsync(100, other))
    ok(d.cuMemFreeAsync(plain, other))
    graph = ok(d.cuStreamEndCapture(stream))
    assert ok(d.cuGraphGetNodes(graph, 0))[1] == 0
    """)


def test_graph_with_allocations_refuses_some_changes() -> None:
    graphs("""
    graph, plain = ok(d.cuGraphCreate(0)), ok(d.cuMemAlloc(64))
    alloc, address = allocate(graph, 64)
    empty = ok(d.cuGraphAddEmptyNode(graph, [alloc], 1))
    for wrong in (address + 4, int(plain), 0):
        assert name(free(graph, wrong, alloc)) == "INVALID_VALUE"
    gone = ok(free(graph, address, empty))
    assert name(free(graph, address, empty)) == "INVALID_VALUE"
    other = ok(d.cuGraphCreate(0))
    assert name(free(other, address)) == "INVALID_VALUE"
    for answer in (d.cuGraphClone(graph), d.cuGraphAddChildGraphNode(other, [], 0, graph),
                   d.cuGraphRemoveDependencies(graph, [alloc], [empty], [d.CUgraphEdgeData()], 1),
                   *map(d.cuGraphDestroyNode, (alloc, empty, gone))):
        assert name(answer) == "NOT_SUPPORTED"
    executable = ok(d.cuGraphInstantiate(graph, 0))
    assert name(d.cuGraphInstantiate(graph, 0)) == "NOT_SUPPORTED"
    ok(d.cuStreamBeginCapture(stream, d.CUstreamCaptureMode(2)))
    assert launch(executable) == "STREAM_CAPTURE_UNSUPPORTED"
    assert name(d.cuStreamEndCapture(stream)) == "STREAM_CAPTURE_INVALIDATED"
    ok(d.cuGraphExecDestroy(executable))
    ok(d.cuGraphExecDestroy(ok(d.cuGraphInstantiate(graph, 0))))
    # another graph frees what this one only allocates, and then this one cannot
    _, third = allocate(graph, 64)
    ok(free(other, third))
    assert name(free(graph, third, alloc)) == "INVALID_VALUE"
    # memory goes with the last graph that has it
    resident = lambda: int(open("/proc/self/statm").read().split()[1]) * 4096
    brief = ok(d.cuGraphCreate(0))
    made, big = allocate(brief, 32 << 20)
    used = ok(d.cuGraphAddMemsetNode(brief, [made], 1, fill(big, 7, 8 << 20), context))
    ok(free(brief, big, used))
    executable = ok(d.cuGraphInstantiate(brief, 0))
    ok(d.cuGraphDestroy(brief))
    assert launch(executable) == "SUCCESS"
    full = resident()
    ok(d.cuGraphExecDestroy(executable))
    assert resident() < full - (30 << 20)
    """)


def test_memory_of_graphs_is_counted_and_trimmed() -> None:
    graphs("""
    import resource
    high, resident = d.CUgraphMem_attribute(1), lambda: int(open("/proc/self/statm").read().split()[1]) * 4096
    graph = ok(d.cuGraphCreate(0))
    alloc, address = allocate(graph, 64 << 20)
    ok(d.cuGraphAddMemsetNode(graph, [alloc], 1, fill(address, 7, 16 << 20), context))
    executable = ok(d.cuGraphInstantiate(graph, 0))
    assert counted() == [0] * 4
    assert launch(executable) == "SUCCESS" and counted() == [64 << 20] * 4
    ok(d.cuDeviceGraphMemTrim(0))
    assert words(address) == [7] * 4 and counted() == [64 << 20] * 4
    ok(d.cuMemFreeAsync(address, stream))
    assert counted() == [64 << 20] * 4  # as an H200 has it
    full = resident()
    ok(d.cuDeviceGraphMemTrim(0))
    assert counted() == [0, 64 << 20, 0, 64 << 20] and resident() < full - (60 << 20)
    ok(d.cuDeviceSetGraphMemAttribute(0, high, d.cuuint64_t(0)))
    assert counted() == [0, 0, 0, 64 << 20]
    assert name(d.cuDeviceSetGraphMemAttribute(0, high, d.cuuint64_t(1))) == "INVALID_VALUE"
    assert launch(executable) == "SUCCESS" and words(address) == [7] * 4
    # a launch for which there is no memory left
    ok(d.cuMemFreeAsync(address, stream))
    rest = ok(d.cuMemAlloc(left() - (32 << 20)))
    assert launch(executable) == "OUT_OF_MEMORY"
    ok(d.cuMemFree(rest))
    assert launch(executable) == "SUCCESS"
    """)


def test_checks_know_graph_allocations_and_frees() -> None:
    checks = EmulatorSettings(check="memory")
    code = """
    PTX = b'''
    .version 8.0
    .target sm_80
    .address_size 64
    .visible .entry put(.param .u64 at)
    {
      .reg .b32 %r<2>; .reg .b64 %rd<2>;
      ld.param.u64 %rd1, [at]; st.global.u32 [%rd1], 5;
      ret;
    }
    \\0'''
    put = ok(d.cuModuleGetFunction(ok(d.cuModuleLoadData(PTX)), b"put"))
    def store(at):
        value = ctypes.c_uint64(at)
        pointers = (ctypes.c_void_p * 1)(ctypes.addressof(value))
        ok(d.cuLaunchKernel(put, 1, 1, 1, 1, 1, 1, 0, stream, ctypes.addressof(pointers), 0))
        return name(d.cuStreamSynchronize(stream))
    graph = ok(d.cuGraphCreate(0))
    _, address = allocate(graph, 64)
    executable = ok(d.cuGraphInstantiate(graph, 0))
    for _ in range(2):
        assert launch(executable) == "SUCCESS" and store(address + 60) == "SUCCESS"
        ok(d.cuMemFreeAsync(address, stream))
    assert launch(executable) == "SUCCESS"
    if sys.argv[1] == "behind":
        assert store(address + 64) == "ILLEGAL_ADDRESS"
    else:
        ok(d.cuMemFreeAsync(address, stream))
        assert store(address) == "ILLEGAL_ADDRESS"
    print(ok(d.cuGetErrorString(d.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS)).decode())
    """
    for case, words in (("behind", "past the end of the 64-byte array"), ("freed", "the freed 64-byte array")):
        whole = f"import sys; sys.argv[1:] = [{case!r}]\n" + PRELUDE + BASE + textwrap.dedent(code)
        assert words in " ".join(python(whole, checks).split()), case


@pytest.fixture(scope="module")
def answers() -> Rows:
    paths = f"{SCRIPT.parents[1]}:{os.environ.get('PYTHONPATH', '')}"
    done = emulated(sys.executable, SCRIPT, variables={"PYTHONPATH": paths})
    assert done.returncode == 0, done.stderr
    assert "fault of cujit" not in done.stderr
    return rows(done.stdout)


def test_results_match_a_driver(answers: Rows) -> None:
    assert len(answers) > 300
    assert (
        differing(answers, {row["case"]: [row["answer"], *row["values"]] for row in json.loads(GOLDEN.read_text())})
        == {}
    )
