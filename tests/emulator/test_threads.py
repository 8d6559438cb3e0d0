"""Threads of C and of Python that call the driver, and threads that wait for them while they keep Python's lock."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cujit.emulator import library_files
from cujit.emulator.settings import EmulatorSettings
from emulator.programs import compiled, emulated

JOINED = r"""
#include <pthread.h>
#include <stddef.h>
typedef unsigned long long u64;
int cuCtxSetCurrent(void *), cuCtxSynchronize(void);
int cuDeviceGetAttribute(int *, int, int), cuDeviceGetName(char *, int, int);
int cuMemAlloc_v2(u64 *, size_t), cuMemFree_v2(u64), cuMemsetD8_v2(u64, unsigned char, size_t);
int cuMemcpyDtoH_v2(void *, u64, size_t), cuPointerGetAttribute(void *, int, u64);
int cuStreamCreate(void **, unsigned), cuStreamDestroy_v2(void *), cuStreamSynchronize(void *);
int cuEventCreate(void **, unsigned), cuEventRecord(void *, void *), cuEventDestroy_v2(void *);
typedef unsigned u32;
int cuLaunchKernel(void *, u32, u32, u32, u32, u32, u32, u32, void *, void **, void **);
int cuGraphLaunch(void *, void *), cuModuleLoadData(void **, const void *);

static struct { void *context, *kernel, *graph; u64 memory; int rounds, failed; } given;

static void *work(void *unused) {
  int failed = cuCtxSetCurrent(given.context);
  for (int k = 0; k < given.rounds; k++) {
    int value = 0; char name[64]; unsigned char bytes[4]; u64 at = 0; void *stream = 0, *event = 0;
    void *parameters[] = {&given.memory};
    failed |= cuDeviceGetAttribute(&value, 75, 0) | cuDeviceGetName(name, 64, 0) | cuMemAlloc_v2(&at, 4096);
    failed |= cuMemsetD8_v2(at, 7, 4096) | cuMemcpyDtoH_v2(bytes, at, 4) | cuPointerGetAttribute(&value, 2, at);
    failed |= cuStreamCreate(&stream, 1) | cuEventCreate(&event, 0);
    failed |= cuLaunchKernel(given.kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, 0);
    failed |= cuGraphLaunch(given.graph, stream) | cuEventRecord(event, stream) | cuStreamSynchronize(stream);
    failed |= cuEventDestroy_v2(event) | cuStreamDestroy_v2(stream) | cuMemFree_v2(at) | cuCtxSynchronize();
    failed |= bytes[3] != 7;
  }
  __atomic_fetch_or(&given.failed, failed, __ATOMIC_SEQ_CST);
  return unused;
}
int run(void *context, void *kernel, void *graph, u64 memory, int threads, int rounds) {
  pthread_t started[64];
  given.context = context; given.kernel = kernel; given.graph = graph; given.memory = memory; given.rounds = rounds;
  for (int k = 0; k < threads; k++) pthread_create(started + k, 0, work, 0);
  for (int k = 0; k < threads; k++) pthread_join(started[k], 0);
  return given.failed;
}
static void *load(void *image) {
  void *module = 0;
  cuCtxSetCurrent(given.context);
  cuModuleLoadData(&module, image);
  return module;
}
int loads(void *context, void *image) {
  pthread_t started; void *module = 0; given.context = context;
  pthread_create(&started, 0, load, image); pthread_join(started, &module);
  return !module;
}
"""

BASE = r"""
import ctypes, os, sys, threading, time
driver, joined = ctypes.CDLL("libcuda.so.1"), ctypes.PyDLL(sys.argv[1])
def good(name, *given):
    answer = getattr(driver, name)(*given)
    assert answer == 0, (name, answer)
def made(name, *given):
    out = ctypes.c_void_p()
    good(name, ctypes.byref(out), *given)
    return out
PTX = b'''.version 8.0
.target sm_80
.address_size 64
.visible .entry add(.param .u64 at)
{
  .reg .b32 %r<2>; .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [at];
  atom.global.add.u32 %r1, [%rd1], 1;
  ret;
}
'''
good("cuInit", 0)
context = made("cuDevicePrimaryCtxRetain", 0)
good("cuCtxSetCurrent", context)
"""

STRESS = r"""
joined.run.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_uint64, ctypes.c_int, ctypes.c_int]
module = made("cuModuleLoadData", PTX)
kernel = made("cuModuleGetFunction", module, b"add")
memory, stream = made("cuMemAlloc_v2", ctypes.c_size_t(4)), made("cuStreamCreate", 1)
good("cuMemsetD32_v2", memory, 0, ctypes.c_size_t(1))
values = (ctypes.c_void_p * 1)(ctypes.addressof(memory))
launch = kernel, 1, 1, 1, 1, 1, 1, 0, stream, values, None
good("cuStreamBeginCapture_v2", stream, 0)
good("cuLaunchKernel", *launch)
graph = ctypes.c_void_p()
good("cuStreamEndCapture", stream, ctypes.byref(graph))
executable = made("cuGraphInstantiateWithFlags", graph, ctypes.c_uint64(0))
good("cuGraphLaunch", executable, stream)
good("cuLaunchKernel", *launch)
assert joined.run(context, kernel, executable, memory.value, 1, 1) == 0  # what Python has to make ready is ready
counts, stop = [], threading.Event()

def of_python():
    good("cuCtxSetCurrent", context)
    count = 0
    while not stop.is_set():
        assert made("cuModuleGetFunction", module, b"add").value == kernel.value
        limit = ctypes.c_size_t()
        good("cuCtxGetLimit", ctypes.byref(limit), 0)
        good("cuLaunchKernel", *launch)
        good("cuModuleUnload", made("cuModuleLoadData", PTX))
        count += 1
    counts.append(count)

threads = [threading.Thread(target=of_python) for _ in range(3)]
for thread in threads:
    thread.start()
for _ in range(10):
    assert joined.run(context, kernel, executable, memory.value, 6, 20) == 0
    time.sleep(0.05)
stop.set()
for thread in threads:
    thread.join()
total = ctypes.c_uint32()
good("cuMemcpyDtoH_v2", ctypes.byref(total), memory, ctypes.c_size_t(4))
print(total.value - sum(counts), all(counts))
"""


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Path:
    driver = library_files.folder() / library_files.SONAME
    return compiled(tmp_path_factory.mktemp("joined") / "libjoined.so", JOINED, driver, "-shared", "-fPIC", "-pthread")


def test_threads_run_to_their_end_while_one_that_keeps_pythons_lock_joins_them(joined: Path) -> None:
    done = emulated(sys.executable, "-c", BASE + STRESS, joined)
    assert done.stdout.split() == [str(2 + 2 + 2 * 6 * 20 * 10), "True"], done.stdout + done.stderr


LOADS = r"""
joined.loads.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
"""

FORKED = r"""
driver.cuDriverGetVersion(ctypes.byref(ctypes.c_int()))
child = os.fork()
if child:
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


_FIRST = 'good("cuInit", 0)'


@pytest.mark.parametrize(
    "program",
    [BASE, BASE + 'made("cuModuleLoadData", PTX)\n', BASE.replace(_FIRST, FORKED + _FIRST)],
    ids=["first call", "later call", "forked child"],
)
def test_a_load_that_waits_for_who_waits_for_it_ends_with_the_timeout(joined: Path, program: str) -> None:
    code = program + LOADS
    settings = EmulatorSettings(timeout_s=1.0)
    done = emulated(sys.executable, "-c", code + "joined.loads(context, PTX)", joined, settings=settings)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "cuModuleLoadData waited 1.0 s for Python's lock, and --timeout ends the process" in done.stderr


def test_calls_that_get_pythons_lock_may_take_longer_than_the_timeout(joined: Path) -> None:
    code = """
import time
from cujit.emulator import modules
before = modules.images.bytes_at
modules.images.bytes_at = lambda at: (time.sleep(1.5), before(at))[1]
made("cuModuleLoadData", PTX)
print("loaded")
"""
    done = emulated(sys.executable, "-c", BASE + code, joined, settings=EmulatorSettings(timeout_s=0.5))
    assert done.stdout.split() == ["loaded"], done.stdout + done.stderr
