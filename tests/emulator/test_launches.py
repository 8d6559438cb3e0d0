"""Launches through the driver's functions: parameters, limits, warm launches of many threads, and both older ways."""

from __future__ import annotations

from pathlib import Path

import cujit
from cujit.emulator import library_files
from emulator.programs import compiled, emulated, python

START = """
import ctypes, threading
import numpy as np
import cujit
from cuda.bindings import driver as d

def ok(answer):
    result, *rest = answer
    assert result == 0, (result, d.cuGetErrorString(result)[1])
    return rest[0] if len(rest) == 1 else rest

def name(answer):
    return answer[0].name.removeprefix("CUDA_ERROR_")

ok(d.cuInit(0))
context = ok(d.cuDevicePrimaryCtxRetain(0))
ok(d.cuCtxSetCurrent(context))

def load(code, **options):
    return ok(d.cuModuleLoadData(cujit.compile(code, to="ptx", arch="compute_90", **options).data + b"\\0"))

def function(module, name):
    return ok(d.cuModuleGetFunction(module, name.encode()))

def launch(f, grid, block, arguments=(), shared=0, stream=0):
    grid, block = ((*sizes, 1, 1)[:3] for sizes in (grid, block))
    values = tuple(value for value, _ in arguments), tuple(kind for _, kind in arguments)
    return d.cuLaunchKernel(f, *grid, *block, shared, stream, values if arguments else 0, 0)

I, F, P = ctypes.c_int, ctypes.c_float, ctypes.c_void_p
"""


def program(code: str) -> str:
    """Run a program that begins with ``START``."""
    return python(START + code)


def test_parameters_are_read_by_the_kernels_layout() -> None:
    out = program('''
module = load("""
struct S { char a; double b; short c; };
extern "C" __global__ void mix(char a, double b, short c, S s, float f, long long l, double *out) {
  out[0] = a; out[1] = b; out[2] = c; out[3] = s.a; out[4] = s.b; out[5] = s.c; out[6] = f; out[7] = l;
}
""")
mix = function(module, "mix")

class S(ctypes.Structure):
    _fields_ = [("a", ctypes.c_char), ("b", ctypes.c_double), ("c", ctypes.c_short)]

class All(ctypes.Structure):
    _fields_ = [("a", ctypes.c_byte), ("b", ctypes.c_double), ("c", ctypes.c_short), ("s", S), ("f", F),
                ("l", ctypes.c_longlong), ("out", P)]

print([ok(d.cuFuncGetParamInfo(mix, k)) for k in range(7)], ok(d.cuFuncGetParamCount(mix)))
print(name(d.cuFuncGetParamInfo(mix, 7)))
memory = np.zeros(8)
said = All(3, 1.5, -7, S(b"\\x05", 2.25, 300), 0.125, -(1 << 40), memory.ctypes.data)
parts = [getattr(said, field) for field, _ in All._fields_]
holders = [kind(value) if not isinstance(value, S) else value for (_, kind), value in zip(All._fields_, parts)]
pointers = (P * 7)(*map(ctypes.addressof, holders))
for k in range(3):
    ok(d.cuLaunchKernel(mix, 1, 1, 1, 1, 1, 1, 0, 0, ctypes.addressof(pointers), 0))
    print(memory.tolist())
    memory[:] = 0
size = ctypes.c_size_t(ctypes.sizeof(All))
extra = (P * 5)(1, ctypes.addressof(said), 2, ctypes.addressof(size), 0)
ok(d.cuLaunchKernel(mix, 1, 1, 1, 1, 1, 1, 0, 0, 0, ctypes.addressof(extra)))
print(memory.tolist())
size.value -= 1
print(name(d.cuLaunchKernel(mix, 1, 1, 1, 1, 1, 1, 0, 0, 0, ctypes.addressof(extra))))
size.value += 1
print(name(d.cuLaunchKernel(mix, 1, 1, 1, 1, 1, 1, 0, 0, ctypes.addressof(pointers), ctypes.addressof(extra))))
print(name(d.cuLaunchKernel(mix, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0)))
pointers[2] = None
print(name(d.cuLaunchKernel(mix, 1, 1, 1, 1, 1, 1, 0, 0, ctypes.addressof(pointers), 0)))
''').splitlines()
    values = "[3.0, 1.5, -7.0, 5.0, 2.25, 300.0, 0.125, -1099511627776.0]"
    assert out[0] == "[[0, 1], [8, 8], [16, 2], [24, 24], [48, 4], [56, 8], [64, 8]] 7"
    assert out[1:] == ["INVALID_VALUE", values, values, values, values, *["INVALID_VALUE"] * 4]


def test_launches_of_many_threads_at_once_are_all_right() -> None:
    """Each thread uses shapes of its own and those of others: many more than stay ready."""
    out = program('''
module = load("""
extern "C" __global__ void add(int *at, int value) { atomicAdd(at + blockIdx.x % 64, value); }
""")
add = function(module, "add")
sums = [np.zeros(64, np.int32) for _ in range(8)]
expected = [np.zeros(64, np.int64) for _ in range(8)]

def work(number):
    ok(d.cuCtxSetCurrent(context))
    for k in range(400):
        grid = 1 + (number * 7 + k) % (5 if k < 200 else 150)
        ok(launch(add, (grid,), (32,), ((sums[number].ctypes.data, P), (number + 1, I))))
        expected[number] += 32 * (number + 1) * np.bincount(np.arange(grid) % 64, minlength=64)

threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print([bool((a == b).all()) and int(a.sum()) > 0 for a, b in zip(sums, expected)])
''')
    assert out.split() == str([True] * 8).split()


def test_launches_above_a_limit_are_refused_harmlessly() -> None:
    out = program('''
module = load("""
extern "C" __global__ void one(int *p) { *p += 1; }
extern "C" __global__ void __launch_bounds__(64) small(int *p) { if (!threadIdx.x) *p += 1; }
extern "C" __global__ void fixed(int *p) { __shared__ int room[1024]; room[threadIdx.x] = 1; *p += room[0]; }
extern __shared__ int dynamic[];
extern "C" __global__ void some(int *p) { dynamic[0] = 1; *p += dynamic[0]; }
""")
memory = np.zeros(1, np.int32)
p = ((memory.ctypes.data, P),)
one, small, fixed, some = (function(module, each) for each in ("one", "small", "fixed", "some"))
for grid, block in [((0,), (1,)), ((1,), (0,)), ((1, 0), (1,)), ((1,), (1025,)), ((1,), (32, 33)), ((1,), (1, 1, 65)),
                    ((1 << 31,), (1,)), ((1, 65536), (1,)), ((1, 1, 65536), (1,))]:
    print(name(launch(one, grid, block, p)), end=" ")
print(name(launch(small, (1,), (65,), p)), name(launch(small, (1,), (64,), p)))
print(name(launch(some, (1,), (1,), p, 48 << 10)), name(launch(some, (1,), (1,), p, (48 << 10) + 1)))
print(name(launch(fixed, (1,), (1,), p, (48 << 10) - 4096)), name(launch(fixed, (1,), (1,), p, (48 << 10) - 4095)))
limit = d.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
print(ok(d.cuFuncGetAttribute(limit, some)), ok(d.cuFuncGetAttribute(limit, fixed)))
print(name(d.cuFuncSetAttribute(some, limit, (227 << 10) + 1)), name(d.cuFuncSetAttribute(some, limit, 227 << 10)))
print(name(launch(some, (1,), (1,), p, 227 << 10)))
ok(d.cuFuncSetAttribute(some, limit, 1024))
print(name(launch(some, (1,), (1,), p, 48 << 10)), name(launch(some, (1,), (1,), p, 1024)))
print(name(launch(0, (1,), (1,), p)), name(launch(12345, (1,), (1,), p)), name(launch(module, (1,), (1,), p)))
print(name(launch(one, (1,), (1,), p, stream=99)), name(launch(one, (1,), (1,), p, stream=2)))
ok(d.cuModuleUnload(module))
print(name(launch(one, (1,), (1,), p)), memory[0], name(d.cuCtxSynchronize()))
''').splitlines()
    assert out == [
        " ".join(["INVALID_VALUE"] * 9) + " INVALID_VALUE CUDA_SUCCESS",
        "CUDA_SUCCESS INVALID_VALUE",
        "CUDA_SUCCESS INVALID_VALUE",
        "49152 45056",
        "INVALID_VALUE CUDA_SUCCESS",
        "CUDA_SUCCESS",
        "INVALID_VALUE CUDA_SUCCESS",
        "INVALID_HANDLE INVALID_HANDLE INVALID_HANDLE",
        "INVALID_HANDLE CUDA_SUCCESS",
        "INVALID_HANDLE 6 CUDA_SUCCESS",
    ]


def test_unloading_a_module_waits_for_its_launches() -> None:
    out = program('''
answers = set()

def work():
    ok(d.cuCtxSetCurrent(context))
    while True:
        answer = name(launch(add, (2,), (64,), ((sums.ctypes.data, P), (5000, I))))
        answers.add(answer)
        if answer != "CUDA_SUCCESS":
            return

code = """
extern "C" __global__ void add(int *at, int n) { for (int k = 0; k < n; k++) atomicAdd(at + threadIdx.x, 1); }
"""
sums = np.zeros(64, np.int32)
for _ in range(5):
    module = load(code)
    add = function(module, "add")
    threads = [threading.Thread(target=work) for _ in range(4)]
    [thread.start() for thread in threads]
    while sums[0] < 50000:
        pass
    ok(d.cuModuleUnload(module))
    after = sums.copy()
    [thread.join() for thread in threads]
    assert (sums == after).all() and sums[0] % 10000 == 0
    sums[:] = 0
print(sorted(answers))
''')
    assert out.strip() == "['CUDA_SUCCESS', 'INVALID_HANDLE']"


def test_kernel_output_follows_earlier_host_output(tmp_path: Path) -> None:
    """A pipe has no lines for C: its output waits in a buffer."""
    code = '#include <cstdio>\nextern "C" __global__ void say() { printf("device %d\\n", (int)threadIdx.x); }'
    text = tmp_path / "say.ptx"
    text.write_bytes(cujit.compile(code, to="ptx", arch="compute_90").data)
    program = compiled(
        tmp_path / "say",
        r"""
        #include <stdio.h>
        int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
        int cuModuleLoad(void **, char *), cuModuleGetFunction(void **, void *, const char *), cuCtxSynchronize(void);
        int cuLaunchKernel(void *, int, int, int, int, int, int, int, void *, void **, void **);
        int main(int count, char **given) {
          void *context, *module, *say;
          int failed = cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context);
          failed |= cuModuleLoad(&module, given[1]) || cuModuleGetFunction(&say, module, "say");
          printf("before %d\n", failed);
          failed |= cuLaunchKernel(say, 1, 1, 1, 2, 1, 1, 0, 0, 0, 0) || cuCtxSynchronize();
          printf("between %d\n", failed);
          failed |= cuLaunchKernel(say, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0) || cuCtxSynchronize();
          printf("after %d\n", failed);
          return 0;
        }
        """,
        library_files.folder() / library_files.SONAME,
    )
    done = emulated(program, text)
    expected = ["before 0", "device 0", "device 1", "between 0", "device 0", "after 0"]
    assert done.stdout.splitlines() == expected, done.stderr
