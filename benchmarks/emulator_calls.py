"""What a call of the emulator's functions in C costs, against an empty function that the same loop calls.

The loop is machine code: it calls by the library's own slots, as a program in C does. Times are of the processor, in
turns. ``python benchmarks/emulator_calls.py`` prints medians in nanoseconds, and how often the empty call fits in. At
the end, graphs of ten empty kernels and of one, and of ten of a library, stand against as many launches, by the same
sort of loop.
"""

from __future__ import annotations

from collections.abc import Iterator

from measure import in_emulator

_SCRIPT = r"""
import ctypes, statistics, time
from cujit.devices.jit import compile_ir

REPEATED = '''
define i32 @{name}({parameters}, i64 %count) {{
entry:
  br label %again
again:
  %i = phi i64 [ 0, %entry ], [ %next, %again ]
  %sum = phi i32 [ 0, %entry ], [ %all, %again ]
  %answer = call i32 {call}
  %all = or i32 %sum, %answer
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %again, label %end
end:
  ret i32 %all
}}
'''
LOOP = REPEATED.format(
    name="loop", parameters="ptr %call, i64 %a, i64 %b, i64 %c", call="%call(i64 %a, i64 %b, i64 %c)"
)
LAUNCHES = REPEATED.format(
    name="launches",
    parameters="ptr %launch, ptr %kernel, ptr %stream",
    call="%launch(ptr %kernel, i32 1, i32 1, i32 1, i32 32, i32 1, i32 1, i32 0, ptr %stream, ptr null, ptr null)",
)
driver = ctypes.CDLL("libcuda.so.1")
code = compile_ir(LOOP, "loop")
loop = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, *[ctypes.c_uint64] * 4)(code.address)
nothing = compile_ir("define i32 @empty() {\n  ret i32 0\n}\n", "empty")
address = lambda name: ctypes.cast(getattr(driver, name), ctypes.c_void_p).value
context, memory, out = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_uint64()
assert not driver.cuInit(0) and not driver.cuCtxCreate_v2(ctypes.byref(context), 0, 0)
assert not driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_uint64(4096))
for _ in range(1000):  # others, among which a pointer has to be found
    driver.cuMemAlloc_v2(ctypes.byref(out), ctypes.c_uint64(4096))
stream = ctypes.c_uint64()
assert not driver.cuStreamCreate(ctypes.byref(stream), 1)
data, result = ctypes.create_string_buffer(64), ctypes.addressof(out)
calls = {
    "an empty function": (nothing.address, 0, 0, 0),
    "cuCtxGetCurrent": (address("cuCtxGetCurrent"), result, 0, 0),
    "cuPointerGetAttribute": (address("cuPointerGetAttribute"), result, 3, memory.value),
    "cuMemcpyHtoD of 64 bytes": (address("cuMemcpyHtoD_v2"), memory.value, ctypes.addressof(data), 64),
    "cuMemsetD8 of 64 bytes": (address("cuMemsetD8_v2"), memory.value, 0, 64),
    "cuStreamQuery": (address("cuStreamQuery"), stream.value, 0, 0),
    "cuMemGetInfo": (address("cuMemGetInfo_v2"), result, result, 0),
}
times = {name: [] for name in calls}
for _ in range(31):
    for name, (function, *given) in calls.items():
        begin = time.process_time()
        assert loop(function, *given, 20_000) == 0, name
        times[name].append((time.process_time() - begin) / 20_000 * 1e9)
floor = statistics.median(times["an empty function"])
for name, taken in times.items():
    print(f"{name}: {statistics.median(taken):.1f} ns, {statistics.median(taken) / floor:.0f} empty calls")

PTX = b".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry e() { ret; }\n"
module, kernel, graph, library = (ctypes.c_void_p() for _ in range(4))
assert not driver.cuModuleLoadData(ctypes.byref(module), PTX)
assert not driver.cuModuleGetFunction(ctypes.byref(kernel), module, b"e")
launches = compile_ir(LAUNCHES, "launches")
launch = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 3, ctypes.c_uint64)(launches.address)
of_library = ctypes.c_void_p()
assert not driver.cuLibraryLoadData(ctypes.byref(library), PTX, 0, 0, 0, 0, 0, 0)
assert not driver.cuLibraryGetKernel(ctypes.byref(of_library), library, b"e")

def make_graph(handle, count):
    assert not driver.cuGraphCreate(ctypes.byref(graph), 0)
    node = ctypes.c_void_p()
    words = (ctypes.c_uint32 * 8)(1, 1, 1, 32, 1, 1)
    params = b"".join((bytes(8), bytes(words), bytes(16), handle.value.to_bytes(8, "little"), bytes(8)))
    for number in range(count):
        before = ctypes.byref(ctypes.c_void_p(node.value)) if number else None
        assert not driver.cuGraphAddKernelNode_v2(ctypes.byref(node), graph, before, bool(number), params)

for what, handle, count in (("kernel", kernel, 10), ("kernel", kernel, 1), ("library's kernel", of_library, 10)):
    launched = address("cuLaunchKernel"), handle, stream.value
    if handle is kernel:
        assert not driver.cuStreamBeginCapture_v2(stream, 0) and not launch(*launched, count)
        assert not driver.cuStreamEndCapture(stream, ctypes.byref(graph))
    else:
        make_graph(handle, count)
    assert not driver.cuGraphInstantiateWithFlags(ctypes.byref(graph), graph, ctypes.c_uint64(0))
    rows = []
    for _ in range(31):
        begin = time.process_time()
        assert launch(*launched, 20_000) == 0
        middle = time.process_time()
        assert loop(address("cuGraphLaunch"), graph.value, stream.value, 0, 20_000 // count) == 0
        rows.append((middle - begin, time.process_time() - middle))
    alone, together = (statistics.median(column) / (20_000 // count) * 1e9 for column in zip(*rows))
    ratio = f"{together / alone:.2f} times"
    print(f"{count} launches of an empty {what}: {alone:.0f} ns; a graph of as many: {together:.0f} ns, {ratio}")
"""


def run() -> Iterator[str]:
    """Print a line for each function."""
    yield from in_emulator(_SCRIPT)


if __name__ == "__main__":
    for line in run():
        print(line)
