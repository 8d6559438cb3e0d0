"""Launches that ask for more, the older ways to launch, and launches that the host ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time

from cujit.emulator.environment import environment_of
from cujit.emulator.settings import EmulatorSettings
from emulator.programs import emulated
from emulator.test_launches import START, program


def test_launch_attributes_set_clusters_grids_and_events() -> None:
    out = program('''
module = load("""
extern "C" __global__ void ranks(int *p) {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  p[blockIdx.x] = rank;
}
extern "C" __global__ void __cluster_dims__(2) pairs(int *p) { ranks<<<1, 1>>>(p); }
extern "C" __global__ void others(int *p) {}
extern "C" __global__ void waits(int *p) {
  if (threadIdx.x == 0) { atomicAdd(p, 1); while (atomicAdd(p, 0) < gridDim.x) {} }
}
""".replace("ranks<<<1, 1>>>(p);", "p[blockIdx.x] = blockIdx.x % 2;"))
ranks, pairs, waits, others = (function(module, each) for each in ("ranks", "pairs", "waits", "others"))
memory = np.full(64, -1, np.int32)
ids = d.CUlaunchAttributeID
stream = ok(d.cuStreamCreate(1))

def attribute(number, **values):
    made = d.CUlaunchAttribute()
    made.id = getattr(ids, "CU_LAUNCH_ATTRIBUTE_" + number)
    for path, value in values.items():
        part = made.value
        *way, last = path.split("__")
        for step in way:
            part = getattr(part, step)
        setattr(part, last, value)
    return made

def launched(f, grid, attributes, block=1, shared=0):
    config = d.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid, 1, 1
    config.blockDimX, config.blockDimY, config.blockDimZ = block, 1, 1
    config.sharedMemBytes = shared
    config.hStream, config.attrs, config.numAttrs = stream, attributes, len(attributes)
    return d.cuLaunchKernelEx(config, f, ((memory.ctypes.data,), (P,)), 0)

def cluster(n):
    return attribute("CLUSTER_DIMENSION", clusterDim__x=n, clusterDim__y=1, clusterDim__z=1)

hints = [attribute("PRIORITY", priority=-1), attribute("PROGRAMMATIC_STREAM_SERIALIZATION")]
for k in range(2):
    print(name(launched(ranks, 8, [cluster(4), *hints])), memory[:8].tolist())
    memory[:] = -1
print(name(launched(ranks, 8, hints)), memory[:8].tolist())
for n in (0, 3, 16):
    print(name(launched(ranks, 48, [cluster(n)])), end=" ")
ok(d.cuFuncSetAttribute(ranks, d.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1))
print(name(launched(ranks, 48, [cluster(16)])), name(launched(pairs, 3, [])), name(launched(pairs, 4, [cluster(4)])))
portable = [attribute("PORTABLE_CLUSTER_SIZE_MODE", portableClusterSizeMode=n) for n in (0, 1, 2)]
for f in (ranks, others):
    print(*(name(launched(f, 48, [cluster(16), each])) for each in portable), end=" ")
print(name(launched(ranks, 48, [cluster(8), portable[1]])))
modes = [attribute("SHARED_MEMORY_MODE", sharedMemoryMode=n) for n in (0, 1, 2)]
print(*(name(launched(ranks, 1, [each], shared=size)) for each in modes for size in (1 << 15, 1 << 16, 1 << 18)))
processors = ok(d.cuDeviceGetAttribute(d.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0))
memory[:] = 0
together = attribute("COOPERATIVE", cooperative=1)
print(name(launched(waits, processors * 2, [together], 1024)), memory[0] == processors * 2)
print(name(launched(waits, processors * 2 + 1, [together], 1024)))
memory[:] = 0
print(name(d.cuLaunchCooperativeKernel(waits, 2, 1, 1, 32, 1, 1, 0, stream, ((memory.ctypes.data,), (P,)))), memory[0])
event, before = ok(d.cuEventCreate(0)), ok(d.cuEventCreate(0))
print(name(d.cuEventElapsedTime(before, event)), end=" ")
ok(d.cuEventRecord(before, stream))
print(name(launched(ranks, 1, [attribute("LAUNCH_COMPLETION_EVENT", launchCompletionEvent__event=event)])),
      ok(d.cuEventElapsedTime(before, event)) >= 0)
ok(d.cuEventDestroy(event))
print(name(launched(ranks, 1, [attribute("LAUNCH_COMPLETION_EVENT", launchCompletionEvent__event=event)])))

def number(kind, value):
    made = attribute(kind)
    ctypes.c_uint64.from_address(made.getPtr() + 8).value = value
    return made

for kind, values in (("PORTABLE_CLUSTER_SIZE_MODE", (2, 3)), ("SHARED_MEMORY_MODE", (4, 5)),
                     ("PROGRAMMATIC_EVENT", (int(before), int(event))), ("DEVICE_UPDATABLE_KERNEL_NODE", (0,))):
    print(*(name(launched(others, 1, [number(kind, value)])) for value in values))
''').splitlines()
    ranks = "[0, 1, 2, 3, 0, 1, 2, 3]"
    assert out == [
        f"CUDA_SUCCESS {ranks}",
        f"CUDA_SUCCESS {ranks}",
        "CUDA_SUCCESS [0, 0, 0, 0, 0, 0, 0, 0]",
        "INVALID_VALUE CUDA_SUCCESS INVALID_CLUSTER_SIZE CUDA_SUCCESS INVALID_CLUSTER_SIZE INVALID_CLUSTER_SIZE",
        "CUDA_SUCCESS INVALID_CLUSTER_SIZE CUDA_SUCCESS "
        "INVALID_CLUSTER_SIZE INVALID_CLUSTER_SIZE CUDA_SUCCESS CUDA_SUCCESS",
        "CUDA_SUCCESS INVALID_VALUE INVALID_VALUE CUDA_SUCCESS INVALID_VALUE INVALID_VALUE "
        "CUDA_SUCCESS CUDA_SUCCESS INVALID_VALUE",
        "CUDA_SUCCESS True",
        "COOPERATIVE_LAUNCH_TOO_LARGE",
        "CUDA_SUCCESS 2",
        "INVALID_HANDLE CUDA_SUCCESS True",
        "INVALID_HANDLE",
        "CUDA_SUCCESS INVALID_VALUE",
        "CUDA_SUCCESS INVALID_VALUE",
        "CUDA_SUCCESS INVALID_HANDLE",
        "NOT_SUPPORTED",
    ]


CORE = '''
import numpy as np
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

device = Device()
device.set_current()
stream = device.create_stream()
code = r"""
template <typename T> __global__ void add(const T *a, const T *b, T *c, size_t n) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) c[i] = a[i] + b[i];
}
extern "C" __global__ void rank(int *p) {
  unsigned r;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  p[blockIdx.x] = r;
}
"""
for kind in ("ptx", "cubin"):
    options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
    module = Program(code, "c++", options).compile(kind, name_expressions=("add<float>",))
    add, rank = module.get_kernel("add<float>"), module.get_kernel("rank")
    a, b, c = np.arange(5000, dtype=np.float32), np.full(5000, 2, np.float32), np.zeros(5000, np.float32)
    for _ in range(3):
        launch(stream, LaunchConfig(grid=4, block=256), add, *(x.ctypes.data for x in (a, b, c)), np.uint64(4999))
        stream.sync()
        print((c[:4999] == a[:4999] + 2).all(), c[4999], end=" ")
        c[:] = 0
    print(add.num_arguments, add.attributes.max_threads_per_block,
          add.occupancy.max_active_blocks_per_multiprocessor(256, 0))
    ranks = np.full(8, -1, np.int32)
    launch(stream, LaunchConfig(grid=2, cluster=4, block=32), rank, ranks.ctypes.data)
    stream.sync()
    print(ranks.tolist())
try:
    launch(stream, LaunchConfig(grid=1, block=2048), rank, ranks.ctypes.data)
except Exception as e:
    print("INVALID_VALUE" in str(e))
launch(stream, LaunchConfig(grid=1, block=1), rank, 8)
try:
    stream.sync()
except Exception as e:
    print("ILLEGAL_ADDRESS" in str(e))
'''


def test_cuda_core_programs_launch_what_they_compile() -> None:
    done = emulated(sys.executable, "-c", CORE)
    line = "True 0.0 " * 3 + "4 1024 8"
    assert done.stdout.splitlines() == [*[line, "[0, 1, 2, 3, 0, 1, 2, 3]"] * 2, "True", "True"], done.stderr
    assert "kernel rank, block (0, 0, 0): an access to address 0x8" in done.stderr


def test_legacy_launch_calls_work_as_others() -> None:
    out = program('''
module = load("""
extern "C" __global__ void mix(float *out, int a, float b, double c) {
  if (blockIdx.x == gridDim.x - 1 && blockIdx.y == gridDim.y - 1 && threadIdx.y == 1)
    out[threadIdx.x] = a + b + c + 100 * gridDim.x + 1000 * gridDim.y;
}
""")
mix = P(int(function(module, "mix")))
driver = ctypes.CDLL("libcuda.so.1")
out = np.zeros(2, np.float32)
pointer, c = P(out.ctypes.data), ctypes.c_double(0.25)
assert driver.cuFuncSetBlockShape(mix, 2, 2, 1) == 0
assert driver.cuFuncSetSharedSize(mix, 64) == 0
assert driver.cuParamSetSize(mix, 24) == 0
assert driver.cuParamSetv(mix, 0, ctypes.byref(pointer), 8) == 0
assert driver.cuParamSeti(mix, 8, 3) == 0
assert driver.cuParamSetf(mix, 12, F(0.5)) == 0
assert driver.cuParamSetv(mix, 16, ctypes.byref(c), 8) == 0
for call in (lambda: driver.cuLaunch(mix), lambda: driver.cuLaunchGrid(mix, 2, 3),
             lambda: driver.cuLaunchGridAsync(mix, 4, 1, None)):
    print(call(), out.tolist())
print(driver.cuParamSetv(mix, 20, ctypes.byref(c), 8), driver.cuParamSetSize(mix, 8),
      driver.cuFuncSetBlockShape(mix, 0, 1, 1), driver.cuFuncSetBlockShape(mix, 1025, 1, 1),
      driver.cuLaunchGrid(mix, 0, 1), driver.cuLaunch(None))
''').splitlines()
    assert out == [
        "0 [1103.75, 1103.75]",
        "0 [3203.75, 3203.75]",
        "0 [1403.75, 1403.75]",
        "1 1 1 1 1 400",
    ]


def test_unsupported_kernel_is_refused_on_use() -> None:
    out = program('''
ptx = b"""
.version 8.0
.target sm_90
.address_size 64
.extern .func elsewhere;
.visible .entry good() { ret; }
.visible .entry lacks() { call elsewhere; ret; }
"""
module = ok(d.cuModuleLoadData(ptx + b"\\0"))
print(name(launch(function(module, "good"), (1,), (1,))), ok(d.cuModuleGetFunctionCount(module)))
answer = d.cuModuleGetFunction(module, b"lacks")
print(name(answer), "elsewhere" in d.cuGetErrorString(answer[0])[1].decode())
''').splitlines()
    assert out == ["CUDA_SUCCESS 2", "NOT_SUPPORTED True"]


FOREVER = """
module = load('extern "C" __global__ void forever(volatile int *p) { while (!*p) {} }')
memory = np.zeros(1, np.int32)
print("begins", flush=True)
print(name(launch(function(module, "forever"), (1,), (1,), ((memory.ctypes.data, P),))), name(d.cuCtxSynchronize()))
"""


def test_launch_ends_at_its_time_limit() -> None:
    settings = EmulatorSettings(timeout_s=0.3)
    done = emulated(sys.executable, "-c", START + FOREVER, settings=settings)
    assert done.stdout.splitlines()[-1] == "CUDA_SUCCESS LAUNCH_TIMEOUT", done.stderr


def test_ctrl_c_ends_a_launch_and_reaches_the_caller() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(START + FOREVER)],
        env={**os.environ, **environment_of(EmulatorSettings())},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begins\n"
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert "warp 0 " in errors
    assert process.returncode == -signal.SIGINT
