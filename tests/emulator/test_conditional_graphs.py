"""Conditional nodes of graphs, as programs over cuda.bindings with kernels that set the condition."""

from __future__ import annotations

import sys

import pytest

from cujit.emulator.settings import EmulatorSettings
from emulator.programs import PRELUDE, emulated, program

BASE = '''
import struct
import cujit
CODE = """
#include <cuda_device_runtime_api.h>
extern "C" __global__ void count(cudaGraphConditionalHandle h, unsigned *n) { cudaGraphSetConditional(h, --*n); }
extern "C" __global__ void choose(cudaGraphConditionalHandle h, unsigned v) { cudaGraphSetConditional(h, v); }
extern "C" __global__ void add(unsigned *at, unsigned v) { *at += v; }
"""
image = cujit.link([cujit.compile(CODE, arch="sm_90", to="cubin", rdc=True)])
module = ok(d.cuModuleLoadData(image.data))
count, choose, add = (ok(d.cuModuleGetFunction(module, name)) for name in (b"count", b"choose", b"add"))
memory = ok(d.cuMemAlloc(64))
stream = ok(d.cuStreamCreate(1))
keep = []

def put(*words):
    ok(d.cuMemcpyHtoD(memory, struct.pack(f"{len(words)}I", *words), 4 * len(words)))

def words(n=4):
    data = bytearray(4 * n)
    ok(d.cuMemcpyDtoH(data, memory, len(data)))
    return list(struct.unpack(f"{n}I", data))

def added(graph, before, kind, **fields):
    p = d.CUgraphNodeParams()
    p.type = getattr(d.CUgraphNodeType, "CU_GRAPH_NODE_TYPE_" + kind)
    part = getattr(p, kind.lower())
    for name, value in fields.items():
        setattr(part, name, value)
    return p, ok(d.cuGraphAddNode(graph, before, None, len(before), p))

def launch(graph, before, function, *values):
    values = list(map(ctypes.c_uint64, values))  # what is shorter is their first bytes
    pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
    keep.append((values, pointers))
    sizes = {f"{kind}Dim{axis}": 1 for kind in ("grid", "block") for axis in "XYZ"}
    return added(graph, before, "KERNEL", func=function, kernelParams=ctypes.addressof(pointers), **sizes)[1]

def condition(graph, value=0, flags=1):
    return int(ok(d.cuGraphConditionalHandleCreate(graph, context, value, flags)))

def node(graph, before, handle, kind, size):
    kind = getattr(d.CUgraphConditionalNodeType, "CU_GRAPH_COND_TYPE_" + kind)
    p, made = added(graph, before, "CONDITIONAL", handle=handle, type=kind, size=size, ctx=context)
    return made, list(p.conditional.phGraph_out)

def ran(graph, times=1):
    executable = ok(d.cuGraphInstantiate(graph, 0))
    for _ in range(times):
        ok(d.cuGraphLaunch(executable, stream))
    ok(d.cuStreamSynchronize(stream))
    return executable

at = lambda k: int(memory) + 4 * k
'''


def _run(code: str) -> list[str]:
    return program(BASE + code).split()


def test_while_node_runs_its_graph_until_a_kernel_stops_it() -> None:
    code = """
graph = ok(d.cuGraphCreate(0))
h = condition(graph, 1)
first = launch(graph, [], add, at(1), 1)
loop, (body,) = node(graph, [first], h, "WHILE", 1)
launch(body, [launch(body, [], add, at(2), 10)], count, h, at(0))
launch(graph, [loop], add, at(3), 100)
put(5, 0, 0, 0)
executable = ran(graph)
print(*words())
put(3, 0, 0, 0)
ok(d.cuGraphDestroy(graph))
ok(d.cuGraphLaunch(executable, stream))
print(*words())
ok(d.cuGraphExecDestroy(executable))
"""
    assert _run(code) == ["0", "1", "50", "100", "0", "1", "30", "100"]


@pytest.mark.parametrize(("size", "value", "runs"), [(1, 7, "0"), (1, 0, "-"), (2, 1, "0"), (2, 0, "1")])
def test_if_node_runs_one_of_its_graphs(size: int, value: int, runs: str) -> None:
    code = f"""
graph = ok(d.cuGraphCreate(0))
h = condition(graph, flags=0)
_, bodies = node(graph, [launch(graph, [], choose, h, {value})], h, "IF", {size})
for k, body in enumerate(bodies):
    launch(body, [], add, at(k), 1)
put(0, 0)
ran(graph, 3)
print(*words(2))
"""
    expected = {"0": ["3", "0"], "1": ["0", "3"], "-": ["0", "0"]}
    assert _run(code) == expected[runs]


def test_unlinked_ptx_sets_a_condition() -> None:
    code = """
module = ok(d.cuModuleLoadData(cujit.compile(CODE, arch="compute_90").data + b"\\0"))
choose, add = (ok(d.cuModuleGetFunction(module, name)) for name in (b"choose", b"add"))
graph = ok(d.cuGraphCreate(0))
h = condition(graph)
_, (body,) = node(graph, [launch(graph, [], choose, h, 1)], h, "IF", 1)
launch(body, [], add, at(0), 1)
put(0)
ran(graph)
print(*words(1))
"""
    assert _run(code) == ["1"]


def test_switch_node_runs_the_selected_graph() -> None:
    code = """
graph = ok(d.cuGraphCreate(0))
h = condition(graph, 2)
_, bodies = node(graph, [], h, "SWITCH", 4)
for k, body in enumerate(bodies):
    launch(body, [], add, at(k), k + 1)
put(0, 0, 0, 0)
executable = ran(graph, 2)
print(*words())
ok(d.cuGraphExecDestroy(executable))
chooses = ok(d.cuGraphCreate(0))
h = condition(chooses)
_, bodies = node(chooses, [launch(chooses, [], choose, h, 4)], h, "SWITCH", 4)
launch(bodies[0], [], add, at(0), 1)
ran(chooses)
print(*words())
"""
    assert _run(code) == ["0", "0", "6", "0"] * 2


def test_conditional_nodes_nest_and_capture_graphs() -> None:
    """A loop of six rounds has a conditional node, whose graph comes from a capture."""
    code = """
graph = ok(d.cuGraphCreate(0))
outer, inner = condition(graph, 1), condition(graph, 0)
_, (body,) = node(graph, [], outer, "WHILE", 1)
counted = launch(body, [], count, outer, at(0))
mode = d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
chosen = launch(body, [counted], choose, inner, 1)
last, (odd,) = node(body, [chosen], inner, "IF", 1)
ok(d.cuStreamBeginCaptureToGraph(stream, odd, None, None, 0, mode))
values = (at(1), 2), (ctypes.c_uint64, ctypes.c_uint32)
ok(d.cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, stream, values, 0))
ok(d.cuStreamEndCapture(stream))
print(ok(d.cuGraphNodeGetType(last)).name.rpartition("_")[2], len(ok(d.cuGraphGetNodes(body, 8))[0][:3]))
put(6, 0)
ran(graph)
print(*words(2))
"""
    assert _run(code) == ["CONDITIONAL", "3", "0", "12"]


def test_invalid_conditional_nodes_are_refused() -> None:
    code = """
graph = ok(d.cuGraphCreate(0))
print(name(d.cuGraphConditionalHandleCreate(graph, context, 0, 2)))
unused, h = condition(graph), condition(graph)
def refused(handle, kind, size):
    p = d.CUgraphNodeParams()
    p.type = d.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
    p.conditional.handle, p.conditional.size, p.conditional.ctx = handle, size, context
    p.conditional.type = getattr(d.CUgraphConditionalNodeType, "CU_GRAPH_COND_TYPE_" + kind)
    return name(d.cuGraphAddNode(graph, None, None, 0, p))
print(refused(h, "IF", 3), refused(h, "IF", 0), refused(h, "WHILE", 2), refused(12, "IF", 1))
_, (body,) = node(graph, [], h, "IF", 1)
print(refused(h, "IF", 1), name(d.cuGraphClone(graph)), name(d.cuGraphDestroy(body)))
print(name(d.cuGraphInstantiate(graph, 0)))
node(graph, [], unused, "SWITCH", 3)
parent = ok(d.cuGraphCreate(0))
print(name(d.cuGraphAddChildGraphNode(parent, None, 0, graph)))
first = ok(d.cuGraphInstantiate(graph, 0))
print(name(d.cuGraphInstantiate(graph, 0)))
ok(d.cuGraphExecDestroy(first))
added(body, [], "EVENT_RECORD", event=ok(d.cuEventCreate(0))) if hasattr(d.CUgraphNodeParams(), "event_record") else \
    ok(d.cuGraphAddEventRecordNode(body, None, 0, ok(d.cuEventCreate(0))))
print(name(d.cuGraphInstantiate(graph, 0)))
"""
    invalid, unsupported = "INVALID_VALUE", "NOT_SUPPORTED"
    expected = [invalid, *[invalid] * 4, invalid, unsupported, invalid, invalid, *[unsupported] * 3]
    assert _run(code) == expected


@pytest.mark.parametrize("settings", [EmulatorSettings(timeout_s=0.5), EmulatorSettings(check="memory,init")])
def test_endless_loop_ends_at_the_timeout_and_under_checks(settings: EmulatorSettings) -> None:
    code = f"""
graph = ok(d.cuGraphCreate(0))
h = condition(graph, 1)
_, (body,) = node(graph, [], h, "WHILE", 1)
launch(body, [], add, at(0), 1) if {settings.timeout_s is not None} else launch(body, [], count, h, at(0))
put(4)
executable = ok(d.cuGraphInstantiate(graph, 0))
print(name(d.cuGraphLaunch(executable, stream)), name(d.cuStreamSynchronize(stream)))
"""
    done = emulated(sys.executable, "-c", PRELUDE + BASE + code, settings=settings, timeout_s=60)
    expected = ["SUCCESS", "SUCCESS" if settings.timeout_s is None else "LAUNCH_TIMEOUT"]
    assert done.stdout.split() == expected, done.stdout + done.stderr


def test_instantiated_graph_is_updated_with_conditional_nodes() -> None:
    code = """
def made(value, kind, amount, size=1):
    graph = ok(d.cuGraphCreate(0))
    h = condition(graph, value)
    _, bodies = node(graph, [], h, kind, size)
    launch(bodies[0], [], add, at(0), amount)
    return graph
executable = ok(d.cuGraphInstantiate(made(1, "IF", 1), 0))
put(0)
for graph in (made(1, "IF", 10), made(0, "IF", 100), made(1, "IF", 1000)):
    d.cuGraphExecUpdate(executable, graph)
    ok(d.cuGraphLaunch(executable, stream))
    print(*words(1))
for other in (made(1, "SWITCH", 1), made(1, "IF", 1, 2)):
    print(name(d.cuGraphExecUpdate(executable, other)))
"""
    assert _run(code) == ["10", "10", "1010", *["GRAPH_EXEC_UPDATE_FAILURE"] * 2]
