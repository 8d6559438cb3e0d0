"""Kernels that cannot go on: which answer, when, for how long, and in which words."""

from __future__ import annotations

import sys

from cujit.emulator.settings import EmulatorSettings
from emulator.programs import emulated
from emulator.test_launches import START


def run(code: str, **settings: object) -> tuple[list[str], str]:
    """Run a program that begins with ``START``; give its lines and what it wrote to standard error."""
    done = emulated(sys.executable, "-c", START + code, settings=EmulatorSettings(**settings))  # type: ignore[arg-type]
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines(), done.stderr


EACH = '''
code = """
#include <cassert>
extern "C" __global__ void outside(int *p) { p[0] = 1; }
extern "C" __global__ void claims(int *p) { assert(p == nullptr); }
extern "C" __global__ void traps(int *p) { __trap(); }
__device__ __noinline__ int down(int n, volatile int *p) {
  volatile int room[512];
  room[n & 511] = n;
  return n ? down(n - 1, p) + room[n & 511] : *p;
}
extern "C" __global__ void deep(int *p) { *p = down(1 << 20, p); }
extern "C" __global__ void good(int *p) { *p += 1; }
"""
memory = np.zeros(64, np.int32)
source = cujit.Source.cuda(code, name="client.cu")
image = cujit.compile(source, to="ptx", arch="compute_90", lineinfo=True).data + b"\\0"
for each, address in (("outside", 16), ("claims", memory.ctypes.data),
                      ("traps", memory.ctypes.data), ("deep", memory.ctypes.data)):
    ok(d.cuDevicePrimaryCtxRetain(0))
    ok(d.cuCtxSetCurrent(context))
    module = ok(d.cuModuleLoadData(image))
    good, bad = function(module, "good"), function(module, each)
    ok(launch(good, (1,), (1,), ((memory.ctypes.data, P),)))
    first = launch(bad, (1,), (1,), ((address, P),))
    late = d.cuCtxSynchronize()
    again = launch(good, (1,), (1,), ((memory.ctypes.data, P),))
    print(each, name(first), name(late), name(again), name(d.cuMemAlloc(4)), name(d.cuModuleUnload(module)),
          d.cuGetErrorString(late[0])[1].decode().startswith(f"kernel {each}, block (0, 0, 0)"))
    ok(d.cuDevicePrimaryCtxReset(0))
print(memory[0])
'''


def test_fault_is_late_and_sticks_until_the_context_is_reset() -> None:
    lines, errors = run(EACH)
    expected = {
        "outside": "ILLEGAL_ADDRESS",
        "claims": "ASSERT",
        "traps": "LAUNCH_FAILED",
        "deep": "HARDWARE_STACK_ERROR",
    }
    wanted = [f"{kernel} CUDA_SUCCESS {' '.join([fault] * 4)} True" for kernel, fault in expected.items()]
    assert lines == [*wanted, "4"]
    for kernel in expected:
        assert errors.count(f"cujit emulate: kernel {kernel}") == 1
    assert "client.cu" in errors
    assert "cujit emulate --check memory" in errors


def test_blocking_launches_return_their_own_error() -> None:
    lines, _ = run(EACH, errors_now=True)
    assert lines[0].split()[:4] == ["outside", *["ILLEGAL_ADDRESS"] * 3]


GRAPH = """
ptx = b".version 8.0\\n.target sm_80\\n.address_size 64\\n.visible .entry traps() { trap; }\\0"
module, stream, graph = ok(d.cuModuleLoadData(ptx)), ok(d.cuStreamCreate(1)), ok(d.cuGraphCreate(0))
memory = np.zeros(1, np.int32)
params = d.CUDA_KERNEL_NODE_PARAMS()
params.func = function(module, "traps")
params.gridDimX = params.gridDimY = params.gridDimZ = params.blockDimX = params.blockDimY = params.blockDimZ = 1
node = ok(d.cuGraphAddKernelNode(graph, [], 0, params))
called = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: memory.fill(1))
after = d.CUDA_HOST_NODE_PARAMS()
after.fn, after.userData = ctypes.cast(called, ctypes.c_void_p).value, 0
launch_node = ok(d.cuGraphAddKernelNode(graph, [node], 1, params))
ok(d.cuGraphAddHostNode(graph, [launch_node], 1, after))
executable = ok(d.cuGraphInstantiate(graph, 0))
print(name(d.cuGraphLaunch(executable, stream)), name(d.cuStreamSynchronize(stream)), memory[0])
"""


def test_graph_fault_is_asynchronous_unless_blocking() -> None:
    assert run(GRAPH)[0] == ["CUDA_SUCCESS LAUNCH_FAILED 0"]
    assert run(GRAPH, errors_now=True)[0] == ["LAUNCH_FAILED LAUNCH_FAILED 0"]


def test_planted_bugs_are_found_and_good_kernels_are_silent() -> None:
    code = '''
code = """
__device__ float table[100];
extern "C" __global__ void beyond(float *x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i <= n) table[i] = i;
}
extern "C" __global__ void races(int *p) {
  __shared__ int room[64];
  room[threadIdx.x] = threadIdx.x;
  p[threadIdx.x] = room[63 - threadIdx.x];
}
extern "C" __global__ void good(float *x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) table[i] = x[i] = i;
}
"""
source = cujit.Source.cuda(code, name="client.cu")
image = cujit.compile(source, to="ptx", arch="compute_90", lineinfo=True).data + b"\\0"
for each in ("good", "beyond", "races"):
    ok(d.cuDevicePrimaryCtxRetain(0))
    ok(d.cuCtxSetCurrent(context))
    module = ok(d.cuModuleLoadData(image))
    memory = ok(d.cuMemAlloc(400))
    arguments = ((int(memory), P), (100, I))[: 1 if each == "races" else 2]
    print(name(launch(function(module, each), (2,), (64,), arguments)), name(d.cuCtxSynchronize()))
    ok(d.cuDevicePrimaryCtxReset(0))
'''
    lines, errors = run(code, check="memory,race")
    assert lines == ["CUDA_SUCCESS CUDA_SUCCESS", "CUDA_SUCCESS ILLEGAL_ADDRESS", "CUDA_SUCCESS LAUNCH_FAILED"]
    assert "kernel good" not in errors
    assert "client.cu:5" in errors
    assert "client.cu:10" in errors


def test_kernel_output_reaches_standard_output_immediately() -> None:
    lines, _ = run('''
import os
module = load("""
#include <cstdio>
extern "C" __global__ void says(int n) { printf("%d of %d\\\\n", threadIdx.x, n); }
""")
ok(launch(function(module, "says"), (1,), (2,), ((2, I),)))
os.write(1, b"then\\n")
''')
    assert lines == ["0 of 2", "1 of 2", "then"]


def test_host_memory_is_reported_unless_registered() -> None:
    code = '''
module = load("""extern "C" __global__ void put(int *p) { *p = 7; }""")
put = function(module, "put")
memory = np.zeros(1024, np.int32)
at = (memory.ctypes.data + 255) // 256 * 256

def tried(address):
    launch(put, (1,), (1,), ((address, P),))
    answer = name(d.cuCtxSynchronize())
    if answer != "CUDA_SUCCESS":
        ok(d.cuDevicePrimaryCtxReset(0))
        ok(d.cuDevicePrimaryCtxRetain(0))
        ok(d.cuCtxSetCurrent(context))
    return answer

ok(d.cuMemHostRegister(at, 256, 0))
print(tried(at), tried(int(ok(d.cuMemHostGetDevicePointer(at, 0)))))
ok(d.cuMemHostUnregister(at))
pinned, managed = ok(d.cuMemAllocHost(256)), ok(d.cuMemAllocManaged(256, 1))
print(tried(int(pinned)), tried(int(managed)))
print(tried(at))
'''
    lines, errors = run(code, check="memory")
    assert lines == ["CUDA_SUCCESS CUDA_SUCCESS", "CUDA_SUCCESS CUDA_SUCCESS", "ILLEGAL_ADDRESS"]
    assert "host memory that was neither allocated for the device nor registered with it" in errors
    lines, errors = run(code)
    assert (lines[-1], errors) == ("CUDA_SUCCESS", "")  # without checks host and device memory are one
