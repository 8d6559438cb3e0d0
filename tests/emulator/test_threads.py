"""Threads of C and of Python that call the driver, and threads that wait for them while they keep Python's lock."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cujit.emulator import library_files
from cujit.emulator.functions import exports
from cujit.emulator.settings import EmulatorSettings
from emulator.programs import compiled, emulated

JOINED = r"""
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <unistd.h>
typedef unsigned long long u64;
int cuCtxSetCurrent(void *), cuCtxSynchronize(void);
int cuDeviceGetAttribute(int *, int, int), cuDeviceGetName(char *, int, int);
int cuMemAlloc_v2(u64 *, size_t), cuMemFree_v2(u64), cuMemsetD8_v2(u64, unsigned char, size_t);
int cuMemcpyDtoH_v2(void *, u64, size_t), cuPointerGetAttribute(void *, int, u64);
int cuStreamCreate(void **, unsigned), cuStreamDestroy_v2(void *), cuStreamSynchronize(void *);
int cuEventCreate(void **, unsigned), cuEventRecord(void *, void *), cuEventDestroy_v2(void *);
typedef unsigned u32;
int cuLaunchKernel(void *, u32, u32, u32, u32, u32, u32, u32, void *, void **, void **);
int cuGraphLaunch(void *, void *);

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
typedef u64 Call(u64, u64, u64, u64, u64, u64, u64, u64);
struct Asked { void *context; Call *call; u64 given[8]; };
static void *call(void *at) {
  struct Asked *asked = at; u64 *g = asked->given;
  cuCtxSetCurrent(asked->context);
  return (void *)(asked->call(g[0], g[1], g[2], g[3], g[4], g[5], g[6], g[7]) & 0xffffffff);
}
int joined(struct Asked *asked) {
  pthread_t started; void *answer = 0;
  pthread_create(&started, 0, call, asked); pthread_join(started, &answer);
  return (int)(u64)answer;
}
int cuParamSetf(void *, int, float);
static void *set_float(void *given) {
  void **each = given;
  cuCtxSetCurrent(each[0]);
  return (void *)(u64)cuParamSetf(each[1], 0, 0.625f);
}
int with_float(void *context, void *function) {
  pthread_t started; void *answer = 0, *given[] = {context, function};
  pthread_create(&started, 0, set_float, given); pthread_join(started, &answer);
  return (int)(u64)answer;
}
static int ended;
static void *call_and_tell(void *asked) {
  void *answer = call(asked);
  __atomic_store_n(&ended, 1, __ATOMIC_SEQ_CST);
  return answer;
}
#define WAITING(name, meanwhile)                                    \
  int name(struct Asked *asked) {                                   \
    pthread_t started; void *answer = 0; u64 count = 0;             \
    ended = 0;                                                      \
    pthread_create(&started, 0, call_and_tell, asked);              \
    while (!__atomic_load_n(&ended, __ATOMIC_SEQ_CST)) meanwhile;   \
    pthread_join(started, &answer);                                 \
    return (int)(u64)answer;                                        \
  }
WAITING(slept, usleep(1000))
WAITING(spun, )
WAITING(yielded, sched_yield())
WAITING(computed, { count = 3 * count + 1; __asm__ volatile("" : "+r"(count)); })
static void *poll_all(void *result) { *(int *)result = poll(0, 0, 700); return 0; }
/* 1 if a thread that sleeps in poll was interrupted while another one was joined. */
int disturbed(struct Asked *asked) {
  pthread_t sleeps; int result = 7;
  pthread_create(&sleeps, 0, poll_all, &result);
  for (int k = 0; k < 3; k++) if (joined(asked)) return 2;
  pthread_join(sleeps, 0);
  return result != 0;
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
    options = "-shared", "-fPIC", "-pthread", "-O1"  # a count stays in a register
    return compiled(tmp_path_factory.mktemp("joined") / "libjoined.so", JOINED, driver, *options)


def test_threads_finish_while_a_gil_holder_joins_them(joined: Path) -> None:
    done = emulated(sys.executable, "-c", BASE + STRESS, joined)
    assert done.stdout.split() == [str(2 + 2 + 2 * 6 * 20 * 10), "True"], done.stdout + done.stderr


CALLS = r"""
class Asked(ctypes.Structure):
    _fields_ = ("context", ctypes.c_void_p), ("call", ctypes.c_void_p), ("given", ctypes.c_void_p * 8)

def in_thread(name, *given, library=joined, way="joined"):
    # Makes a call in a thread of C's, and keeps Python's lock until that ends.
    call = ctypes.cast(getattr(driver, name), ctypes.c_void_p)
    places = [at if isinstance(at, (int, type(None))) else ctypes.cast(at, ctypes.c_void_p) for at in given]
    return getattr(library, way)(ctypes.byref(Asked(context, call, (ctypes.c_void_p * 8)(*places))))

free = ctypes.CDLL(sys.argv[1])
module, function, words = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_char_p()
"""

FORKED = r"""
driver.cuDriverGetVersion(ctypes.byref(ctypes.c_int()))
child = os.fork()
if child:
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


_FIRST = 'good("cuInit", 0)'


PROGRAMS = pytest.mark.parametrize(
    "program",
    [BASE, BASE + 'made("cuModuleLoadData", PTX)\n', BASE.replace(_FIRST, FORKED + _FIRST)],
    ids=["first call", "later call", "forked child"],
)


_MODE = 'assert in_thread("cuModuleGetLoadingMode", ctypes.byref(ctypes.c_int()), way="{}") == 0'


@PROGRAMS
@pytest.mark.parametrize("way", ["joined", "slept", "spun", "yielded"])
def test_call_ends_while_its_waiter_sleeps_or_polls_with_the_gil(joined: Path, program: str, way: str) -> None:
    done = emulated(sys.executable, "-c", program + CALLS + _MODE.format(way), joined, timeout_s=30)
    assert done.returncode == 0, done.stdout + done.stderr


@PROGRAMS
def test_call_waiting_for_a_computing_gil_holder_times_out(joined: Path, program: str) -> None:
    """A thread that computes might lose what it works on if it lost the lock; one that polls works on nothing."""
    settings = EmulatorSettings(timeout_s=1.0)
    done = emulated(sys.executable, "-c", program + CALLS + _MODE.format("computed"), joined, settings=settings)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "cuModuleGetLoadingMode waited 1.0 s for Python's lock, and --timeout ends the process" in done.stderr


def test_threads_sleeping_in_other_calls_are_not_interrupted(joined: Path) -> None:
    code = 'print(in_thread("cuModuleGetLoadingMode", ctypes.byref(ctypes.c_int()), way="disturbed"))'
    done = emulated(sys.executable, "-c", BASE + CALLS + code, joined, timeout_s=30)
    assert done.stdout.split() == ["0"], done.stdout + done.stderr


def test_joined_thread_passes_floats(joined: Path) -> None:
    code = """
own = ctypes.PyDLL(sys.argv[1])
own.with_float.argtypes = [ctypes.c_void_p] * 2
PTX = PTX.replace(b".param .u64 at", b".param .f32 x")
PTX = PTX[:PTX.index(b"  ld.param")] + b"ld.param.f32 %f1, [x]; setp.neu.f32 %p1, %f1, 0f3F200000; @%p1 trap; ret; }"
PTX = PTX.replace(b".reg .b32 %r<2>;", b".reg .f32 %f<2>; .reg .pred %p<2>;")
function = made("cuModuleGetFunction", made("cuModuleLoadData", PTX), b"add")
assert own.with_float(context, function) == 0
good("cuFuncSetBlockShape", function, 1, 1, 1)
good("cuParamSetSize", function, 4)
good("cuLaunch", function)
print(driver.cuCtxSynchronize())
"""
    done = emulated(sys.executable, "-c", BASE + CALLS + code, joined, timeout_s=30)
    assert done.stdout.split() == ["0"], done.stdout + done.stderr


LOADED = r"""
assert in_thread("cuModuleLoadData", ctypes.byref(module), PTX) == 0
good("cuModuleGetFunction", ctypes.byref(function), module, b"add")
memory = made("cuMemAlloc_v2", ctypes.c_size_t(4))
good("cuMemsetD32_v2", memory, 41, ctypes.c_size_t(1))
good("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, None, (ctypes.c_void_p * 1)(ctypes.addressof(memory)), None)
total = ctypes.c_uint32()
good("cuMemcpyDtoH_v2", ctypes.byref(total), memory, ctypes.c_size_t(4))
good("cuModuleUnload", module)
print(total.value, driver.cuModuleUnload(module))
"""


@PROGRAMS
def test_thread_loads_an_image_while_a_gil_holder_joins_it(joined: Path, program: str) -> None:
    done = emulated(sys.executable, "-c", program + CALLS + LOADED, joined, timeout_s=30)
    assert done.stdout.split() == ["42", "400"], done.stdout + done.stderr


EVERY_LOAD = r"""
import struct
from cujit.arch import Arch
from cujit.artifact import Artifact, ImageKind
from cujit.emulator.images import contained
from cujit.program import bundle
path, cubin = sys.argv[2].encode(), contained(PTX)
open(path, "wb").write(PTX)
fatbin = bundle([Artifact(ImageKind.PTX, PTX, arch=Arch.parse("compute_80"))]).data
held = ctypes.create_string_buffer(fatbin, len(fatbin))
wrapper = struct.pack("<IIQQ", 0x466243B1, 1, ctypes.addressof(held), 0)
out, numbers, own = ctypes.byref(module), (ctypes.c_uint32 * 1)(0), (ctypes.c_uint64 * 1)(16)
loads = [("cuModuleLoadData", out, image) for image in (PTX, cubin, fatbin, wrapper)]
loads += [("cuModuleLoadFatBinary", out, fatbin), ("cuModuleLoad", out, path)]
loads += [("cuModuleLoadDataEx", out, PTX, 1, numbers, own)]
loads += [("cuLibraryLoadData", out, PTX, None, None, 0, numbers, own, 1)]
loads += [("cuLibraryLoadFromFile", out, path, numbers, own, 1, None, None)]
for library in (joined, free):
    for name, *given in loads:
        assert in_thread(name, *given, library=library) == 0, name
        kind, find = ("Library", "GetKernel") if "Library" in name else ("Module", "GetFunction")
        good(f"cu{kind}{find}", ctypes.byref(function), module, b"add")
        good(f"cu{kind}Unload", module)
print("loaded")
"""


def test_every_load_works_in_a_joined_thread(joined: Path, tmp_path: Path) -> None:
    done = emulated(sys.executable, "-c", BASE + CALLS + EVERY_LOAD, joined, tmp_path / "add.ptx")
    assert done.stdout.split() == ["loaded"], done.stdout + done.stderr


REFUSED = r"""
bad = PTX.replace(b"ret", b"rot")
numbers = (ctypes.c_uint32 * 4)(5, 6, 2, 3)
text = ctypes.create_string_buffer(b"?" * 400)
values = (ctypes.c_void_p * 4)(ctypes.addressof(text), 400, 7, None)
ex = "cuModuleLoadDataEx", ctypes.byref(module), bad, 4, numbers, values
assert driver.cuModuleLoadDataEx(*ex[1:]) == 218
said, time = text.value, values[2]
text.value = b""
values[1], values[2] = 400, 7

for library in (free, joined):
    assert in_thread(*ex, library=library) == 218
    assert text.value == said and b"rot" in said and values[2] is time, (text.value, said)
    assert values[1] == len(said) + 1
    text.value = b""
    values[1] = 400
numbers[0] = 99
for answer, name, *given in (
    (1, "cuModuleLoadData", None, PTX), (1, "cuModuleLoadData", ctypes.byref(module), None),
    (200, "cuModuleLoadData", ctypes.byref(module), 4096), (1, *ex), (1, *ex[:4], None, values),
    (301, "cuModuleLoad", ctypes.byref(module), b"/nowhere"),
):
    for library in (free, joined):
        assert in_thread(name, *given, library=library) == answer, (name, given, answer)
print("refused")
"""


def test_failed_load_in_a_joined_thread_gives_its_reason(joined: Path) -> None:
    done = emulated(sys.executable, "-c", BASE + CALLS + REFUSED, joined)
    assert done.stdout.split() == ["refused"], done.stdout + done.stderr


LOOKED_UP = r"""
numbers = [ctypes.c_void_p() for _ in range(4)]
library, kernel, link, image = numbers
size, total = ctypes.c_size_t(), ctypes.c_uint32()
memory = made("cuMemAlloc_v2", ctypes.c_size_t(4))
good("cuMemsetD32_v2", memory, 0, ctypes.c_size_t(1))
values = (ctypes.c_void_p * 1)(ctypes.addressof(memory))

def counted(handle):
    for _ in range(2):  # what Python makes ready, and what is ready
        good("cuLaunchKernel", handle, 1, 1, 1, 1, 1, 1, 0, None, values, None)
    good("cuMemcpyDtoH_v2", ctypes.byref(total), memory, ctypes.c_size_t(4))
    return total.value

def answered(name, *given):
    assert in_thread(name, *given, library=library_of_calls) == 0, name

counts = []
for library_of_calls in (joined, free):
    open(sys.argv[2], "wb").write(PTX)
    answered("cuModuleLoadData", ctypes.byref(module), PTX)
    answered("cuModuleGetFunction", ctypes.byref(function), module, b"add")
    answered("cuFuncSetAttribute", function, 9, 50)
    answered("cuFuncSetCacheConfig", function, 1)
    answered("cuFuncSetSharedMemConfig", function, 1)
    answered("cuFuncLoad", function)
    counts.append(counted(function))
    carveout = ctypes.c_int()
    good("cuFuncGetAttribute", ctypes.byref(carveout), 9, function)
    counts.append(carveout.value)
    answered("cuModuleUnload", module)
    assert driver.cuModuleUnload(module) == 400 and driver.cuFuncLoad(function) == 400
    launch = driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, values, None)
    assert launch == 400, launch

    answered("cuLibraryLoadData", ctypes.byref(library), PTX, None, None, 0, None, None, 0)
    answered("cuLibraryGetKernel", ctypes.byref(kernel), library, b"add")
    answered("cuKernelSetAttribute", 9, -1, kernel, 0)
    answered("cuKernelSetCacheConfig", kernel, 1, 0)
    answered("cuKernelGetFunction", ctypes.byref(function), kernel)
    counts += counted(kernel), counted(function)
    answered("cuLibraryUnload", library)
    assert driver.cuLibraryUnload(library) == 400
    assert driver.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, values, None) == 400

    answered("cuLinkCreate_v2", 0, None, None, ctypes.byref(link))
    answered("cuLinkAddData_v2", link, 1, PTX, len(PTX), b"add.ptx", 0, None, None)
    answered("cuLinkComplete", link, ctypes.byref(image), ctypes.byref(size))
    answered("cuModuleLoadData", ctypes.byref(module), image)
    answered("cuLinkDestroy", link)
    answered("cuModuleGetFunction", ctypes.byref(function), module, b"add")
    counts.append(counted(function))
    answered("cuModuleUnload", module)
    answered("cuLinkCreate_v2", 0, None, None, ctypes.byref(link))
    answered("cuLinkAddFile_v2", link, 1, sys.argv[2].encode(), 0, None, None)
    answered("cuLinkComplete", link, ctypes.byref(image), None)
    answered("cuLinkDestroy", link)
assert driver.cuModuleLoadData(ctypes.byref(module), image) != 0
print(*counts)
"""


def test_look_ups_settings_and_links_work_in_a_joined_thread(joined: Path, tmp_path: Path) -> None:
    done = emulated(sys.executable, "-c", BASE + CALLS + LOOKED_UP, joined, tmp_path / "add.ptx")
    assert done.stdout.split() == ["2", "50", "4", "6", "8", "10", "50", "12", "14", "16"], done.stdout + done.stderr


NOT_FOUND = r"""
module = made("cuModuleLoadData", PTX)
library = made("cuLibraryLoadData", PTX, None, None, 0, None, None, 0)
add = made("cuModuleGetFunction", module, b"add")
address, size = ctypes.c_uint64(), ctypes.c_size_t()
for calls in (free, joined):
    for answer, name, *given in (
        (500, "cuModuleGetFunction", ctypes.byref(function), module, b"sub"),
        (1, "cuModuleGetFunction", None, module, b"add"),
        (1, "cuModuleGetFunction", ctypes.byref(function), module, None),
        (1, "cuFuncSetAttribute", add, 9, 101),
        (500, "cuLibraryGetKernel", ctypes.byref(function), library, b"sub"),
        (400, "cuModuleUnload", library),
        (500, "cuModuleGetGlobal_v2", ctypes.byref(address), ctypes.byref(size), module, b"none"),
        (801, "cuModuleGetTexRef", ctypes.byref(function), module, b"none"),
    ):
        assert in_thread(name, *given, library=calls) == answer, (name, given)
print("refused")
"""


def test_failed_look_up_in_a_joined_thread_gives_its_reason(joined: Path) -> None:
    done = emulated(sys.executable, "-c", BASE + CALLS + NOT_FOUND, joined)
    assert done.stdout.split() == ["refused"], done.stdout + done.stderr


FIRST_LAUNCH = r"""
PTX = PTX.replace(b".visible .entry", b".visible .global .align 8 .b8 counts[24];\n.visible .entry")
address, size, total = ctypes.c_uint64(), ctypes.c_size_t(), ctypes.c_uint32()
for block in (1, 2, 3):
    for library in (joined, free):
        answers = [in_thread("cuModuleLoadData", ctypes.byref(module), PTX, library=library)]
        answers += [in_thread("cuModuleGetFunction", ctypes.byref(function), module, b"add", library=library)]
        places = ctypes.byref(address), ctypes.byref(size)
        answers += [in_thread("cuModuleGetGlobal_v2", *places, module, b"counts", library=library)]
        assert size.value == 24
        given = (ctypes.c_void_p * 1)(ctypes.addressof(address))
        sizes = (ctypes.c_uint32 * 14)(1, 1, 1, block, 1, 1)
        answers += [in_thread("cuLaunchKernelEx", sizes, function, given, None, library=library)]
        answers += [in_thread("cuMemcpyDtoH_v2", ctypes.byref(total), address.value, 4, library=library)]
        assert answers == [0] * 5 and total.value == block, (answers, total.value)
print("launched")
"""


def test_first_launches_and_variables_work_in_a_joined_thread(joined: Path) -> None:
    done = emulated(sys.executable, "-c", BASE + CALLS + FIRST_LAUNCH, joined, timeout_s=60)
    assert done.stdout.split() == ["launched"], done.stdout + done.stderr


EVERY_ENTRY = r"""
from cujit.emulator import machine
from cujit.emulator.entries import ENTRIES
from cujit.emulator.functions import exports
from cujit.emulator.library import slots_of
from cujit.emulator.shared_library import TABLE_SYMBOL
from cujit.emulator.structures import BootTable
library = BootTable.in_dll(driver, TABLE_SYMBOL)
in_c = set(machine.native().entries.values())
own = [[int(at, 16) for at in line.split()[0].split("-")] for line in open("/proc/self/maps") if "/libcuda.so" in line]
assert max(len(entry.types) for entry in ENTRIES.values()) <= 16  # which is what waits.c passes on
assert library.resolve == machine.native().address("enter")
answers = dict.fromkeys(("C", "watched", "nobody"), 0)
for index, name in enumerate(exports()):
    in_thread(name, *[0] * 8)
    at = slots_of(ctypes.addressof(library))[index]
    call = (machine.PythonCall * library.count).from_address(library.targets)[index].call
    assert at in in_c or any(begin <= at < end for begin, end in own), name  # it never leads into Python
    answers["C" if at in in_c else "watched" if call else "nobody"] += 1
print(*answers.values())
"""


def test_no_entry_waits_for_the_thread_that_joins_its_caller(joined: Path) -> None:
    done = emulated(sys.executable, "-c", BASE + CALLS + EVERY_ENTRY, joined)
    answers = dict(zip(("C", "watched", "nobody"), map(int, done.stdout.split()), strict=True))
    assert sum(answers.values()) == len(exports()), done.stdout + done.stderr
    assert answers["C"] >= 179, answers
    assert answers["watched"] >= 300, answers


LOAD_STRESS = r"""
stop, counts = threading.Event(), []
memory = made("cuMemAlloc_v2", ctypes.c_size_t(4))
good("cuMemsetD32_v2", memory, 0, ctypes.c_size_t(1))
values = (ctypes.c_void_p * 1)(ctypes.addressof(memory))

def of_python(library):
    good("cuCtxSetCurrent", context)
    count = 0
    while not stop.is_set():
        own, found = ctypes.c_void_p(), ctypes.c_void_p()
        link, image = ctypes.c_void_p(), ctypes.c_void_p()
        for name, *given in (
            ("cuLinkCreate_v2", 0, None, None, ctypes.byref(link)),
            ("cuLinkAddData_v2", link, 1, PTX, len(PTX), b"add.ptx", 0, None, None),
            ("cuLinkComplete", link, ctypes.byref(image), None),
            ("cuModuleLoadData", ctypes.byref(own), image),
            ("cuModuleGetFunction", ctypes.byref(found), own, b"add"),
            ("cuFuncSetAttribute", found, 9, 50),
            ("cuLinkDestroy", link),
        ):
            given = [at.value if at in (link, image, own, found) else at for at in given]
            assert in_thread(name, *given, library=library) == 0, name
        launch = (ctypes.c_uint32 * 14)(1, 1, 1, 1, 1, 1)
        assert in_thread("cuLaunchKernelEx", launch, found.value, values, None, library=library) == 0
        assert in_thread("cuModuleUnload", own.value, library=library) == 0
        count += 1
    counts.append(count)

threads = [threading.Thread(target=of_python, args=(library,)) for library in (joined, free, joined, free)]
for thread in threads:
    thread.start()
time.sleep(4)
stop.set()
for thread in threads:
    thread.join()
total = ctypes.c_uint32()
good("cuMemcpyDtoH_v2", ctypes.byref(total), memory, ctypes.c_size_t(4))
print(total.value - sum(counts), all(counts))
"""


def test_calls_of_many_threads_end_while_gil_holders_join(joined: Path) -> None:
    done = emulated(sys.executable, "-c", BASE + CALLS + LOAD_STRESS, joined)
    assert done.stdout.split() == ["0", "True"], done.stdout + done.stderr


def test_calls_with_the_gil_may_outlast_the_timeout(joined: Path) -> None:
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
