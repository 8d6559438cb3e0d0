"""Modules and libraries through the driver's functions: what is in them, and what every wrong use answers."""

from __future__ import annotations

from emulator.test_launches import program


def test_module_and_library_list_their_contents() -> None:
    out = program('''
code = """
__constant__ float table[3] = {1, 2, 3};
__device__ int counter = 5;
__managed__ int shared_by_both = 6;
extern "C" __global__ void first(int a, double b) {
  __shared__ int room[16];
  room[threadIdx.x] = a;
  __syncthreads();
  counter += room[a & 0];
}
extern "C" __global__ void __launch_bounds__(96) second() { counter += (int)table[0] + shared_by_both; }
"""
module = load(code)
first, second = function(module, "first"), function(module, "second")
assert int(function(module, "first")) == int(first) != int(second)
print(ok(d.cuModuleGetFunctionCount(module)), len(ok(d.cuModuleEnumerateFunctions(2, module))))
assert {*map(int, ok(d.cuModuleEnumerateFunctions(2, module)))} == {int(first), int(second)}
print(*(ok(d.cuFuncGetName(each)).decode() for each in (first, second)))
pointer, size = ok(d.cuModuleGetGlobal(module, b"counter"))
value = np.zeros(1, np.int32)
ok(d.cuMemcpyDtoH(value.ctypes.data, pointer, 4))
print(size, value[0])
ok(launch(first, (1,), (1,), ((7, I), (1.0, ctypes.c_double))))
ok(d.cuMemcpyDtoH(value.ctypes.data, pointer, 4))
print(value[0])
print(name(d.cuModuleGetGlobal(module, b"missing")), name(d.cuModuleGetFunction(module, b"missing")))
print(int(ok(d.cuFuncGetModule(first))) == int(module), int(ok(d.cuFuncIsLoaded(first))),
      int(ok(d.cuModuleGetLoadingMode())))
attribute = d.CUfunction_attribute
for key in ("MAX_THREADS_PER_BLOCK", "SHARED_SIZE_BYTES", "CONST_SIZE_BYTES", "LOCAL_SIZE_BYTES", "PTX_VERSION",
            "BINARY_VERSION"):
    print(ok(d.cuFuncGetAttribute(getattr(attribute, "CU_FUNC_ATTRIBUTE_" + key), second)), end=" ")
print(ok(d.cuFuncGetAttribute(attribute(4), first)) > 0, ok(d.cuFuncGetAttribute(attribute(1), first)))
driver = ctypes.CDLL("libcuda.so.1")
out = ctypes.c_int()
print(driver.cuFuncGetAttribute(ctypes.byref(out), 18, P(int(first))), driver.cuFuncSetAttribute(P(int(first)), 0, 1))

image = cujit.compile(code, to="ptx", arch="compute_90").data + b"\\0"
library = ok(d.cuLibraryLoadData(image, None, None, 0, None, None, 0))
kernel = ok(d.cuLibraryGetKernel(library, b"first"))
print(ok(d.cuLibraryGetKernelCount(library)), len(ok(d.cuLibraryEnumerateKernels(2, library))))
print(ok(d.cuKernelGetName(kernel)).decode(), ok(d.cuKernelGetParamInfo(kernel, 1)),
      ok(d.cuKernelGetParamCount(kernel)))
print(int(ok(d.cuKernelGetLibrary(kernel))) == int(library))
own = ok(d.cuKernelGetFunction(kernel))
print(int(ok(d.cuFuncGetModule(own))) == int(ok(d.cuLibraryGetModule(library))))
ok(launch(kernel, (1,), (1,), ((4, I), (1.0, ctypes.c_double))))
ok(launch(own, (1,), (1,), ((4, I), (1.0, ctypes.c_double))))
pointer, size = ok(d.cuLibraryGetGlobal(library, b"counter"))
ok(d.cuMemcpyDtoH(value.ctypes.data, pointer, 4))
print(value[0])
print(ok(d.cuLibraryGetManaged(library, b"shared_by_both"))[1], name(d.cuLibraryGetManaged(library, b"counter")))
print(name(d.cuLibraryGetUnifiedFunction(library, b"first")), name(d.cuLibraryGetKernel(library, b"missing")))
limit = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
ok(d.cuKernelSetAttribute(limit, 100000, kernel, 0))
print(ok(d.cuKernelGetAttribute(limit, kernel, 0)), ok(d.cuFuncGetAttribute(limit, own)),
      name(d.cuKernelSetAttribute(limit, 1, kernel, 3)))

other = ok(d.cuCtxCreate(None, 0, 0))
print(name(launch(own, (1,), (1,), ((4, I), (1.0, ctypes.c_double)))))
print(name(launch(kernel, (1,), (1,), ((4, I), (1.0, ctypes.c_double)))))
foreign = ok(d.cuStreamCreate(0))
ok(d.cuCtxSetCurrent(context))
print(name(launch(kernel, (1,), (1,), ((4, I), (1.0, ctypes.c_double)), stream=foreign)))
ok(d.cuCtxSetCurrent(other))
print(int(ok(d.cuKernelGetFunction(kernel))) != int(own))
print(name(launch(kernel, (1,), (1,), ((4, I), (1.0, ctypes.c_double)), stream=foreign)))
ok(d.cuCtxSetCurrent(context))
print(name(launch(kernel, (1,), (1,), ((4, I), (1.0, ctypes.c_double)), stream=foreign)))
ok(d.cuCtxSetCurrent(other))
ok(d.cuCtxDestroy(other))
ok(d.cuCtxSetCurrent(context))
print(name(launch(kernel, (1,), (1,), ((4, I), (1.0, ctypes.c_double)))))
ok(d.cuLibraryUnload(library))
for answer in (d.cuLibraryUnload(library), d.cuLibraryGetKernelCount(library), d.cuKernelGetName(kernel),
               launch(own, (1,), (1,), ((4, I), (1.0, ctypes.c_double))), d.cuFuncGetName(own),
               d.cuModuleUnload(library), d.cuModuleGetFunctionCount(library)):
    print(name(answer), end=" ")
''').splitlines()
    assert out == [
        "2 2",
        "first second",
        "4 5",
        "12",
        "NOT_FOUND NOT_FOUND",
        "True 1 2",
        "96 0 12 0 90 90 True 64",
        "1 1",
        "2 2",
        "first [8, 8] 2",
        "True",
        "True",
        "13",
        "4 NOT_FOUND",
        "NOT_FOUND NOT_FOUND",
        "100000 100000 INVALID_DEVICE",
        "INVALID_HANDLE",
        "CUDA_SUCCESS",
        "CUDA_SUCCESS",
        "True",
        "CUDA_SUCCESS",
        "CUDA_SUCCESS",
        "CUDA_SUCCESS",
        " ".join(["INVALID_HANDLE"] * 7) + " ",
    ]


def test_load_failure_is_in_the_callers_log() -> None:
    out = program("""
import os, tempfile
PTX = b".version 8.0\\n.target sm_80\\n.address_size 64\\n.visible .entry k() { %s ret; }\\n"
cubin = b"\\x7fELF\\2\\1\\1".ljust(18, b"\\0") + b"\\xbe" + bytes(45)
option = d.CUjit_option
log = bytearray(400)

def loaded(image, room=400):
    keys = [option.CU_JIT_ERROR_LOG_BUFFER, option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
    answer = d.cuModuleLoadDataEx(image, 2, keys, [log, room])
    text = bytes(log).split(b"\\0")[0].decode()
    log[:] = bytes(400)
    return name(answer), text

for image in (PTX % b"add.u32 x, y;", PTX % b"bogus;", PTX.replace(b"8.0", b"99.0"), b"nothing", cubin):
    answer, text = loaded(image + b"\\0")
    said = d.cuGetErrorString(getattr(d.CUresult, "CUDA_ERROR_" + answer))[1].decode()
    print(answer, bool(text), said[:30] == text[:30])
print(len(loaded(b"nothing\\0", 10)[1]))
keys, values = (ctypes.c_uint32 * 1)(36), (ctypes.c_uint64 * 1)()
good = PTX % b"" + b"\\0"
driver = ctypes.CDLL("libcuda.so.1")
print(driver.cuModuleLoadDataEx(ctypes.byref(P()), good, 1, keys, values), name(d.cuModuleLoadData(good)))
print(name(d.cuModuleLoadData(b"nothing\\0")), name(d.cuModuleLoadData(0)), name(d.cuModuleLoad(b"/no/such/file")))
with tempfile.NamedTemporaryFile() as file:
    file.write(PTX % b"")
    file.flush()
    module = ok(d.cuModuleLoad(file.name.encode()))
    library = ok(d.cuLibraryLoadFromFile(file.name.encode(), None, None, 0, None, None, 0))
    print(ok(d.cuModuleGetFunctionCount(module)), ok(d.cuLibraryGetKernelCount(library)))
ok(d.cuModuleUnload(module))
print(name(d.cuModuleUnload(module)), name(d.cuModuleGetFunction(module, b"k")), name(d.cuModuleUnload(0)))
fatbin = cujit.build('extern "C" __global__ void k() {}', ["compute_80", "compute_75"]).data
print(name(d.cuModuleLoadFatBinary(fatbin)))
driver = ctypes.CDLL("libcuda.so.1")
print(driver.cuModuleLoadData(None, fatbin), driver.cuModuleGetFunction(None, None, None),
          driver.cuLibraryLoadData(None, fatbin, *[None] * 2, 0, *[None] * 2, 0))
""").splitlines()
    assert out == [
        "INVALID_PTX True True",
        "INVALID_PTX True True",
        "UNSUPPORTED_PTX_VERSION True True",
        "INVALID_IMAGE True True",
        "INVALID_IMAGE True True",
        "9",
        "1 CUDA_SUCCESS",
        "INVALID_IMAGE INVALID_VALUE FILE_NOT_FOUND",
        "1 1",
        "INVALID_HANDLE INVALID_HANDLE INVALID_HANDLE",
        "CUDA_SUCCESS",
        "1 1 1",
    ]


def test_module_loaded_twice_has_two_sets_of_variables() -> None:
    program('''
code = """
__constant__ int step = 1;
__device__ int total = 100;
extern "C" __global__ void add(int *out) { total += step; *out = total; }
"""
one, other = load(code), load(code)
out = np.zeros(1, np.int32)

def add(module):
    ok(launch(function(module, "add"), (1,), (1,), ((out.ctypes.data, P),)))
    ok(d.cuCtxSynchronize())
    return int(out[0])

places = [int(ok(d.cuModuleGetGlobal(module, each))[0]) for module in (one, other) for each in (b"step", b"total")]
assert len({*places}) == 4
seven = np.array([7], np.int32)
ok(d.cuMemcpyHtoD(places[0], seven.ctypes.data, 4))
assert [add(one), add(one), add(other), add(one)] == [107, 114, 101, 121]
# a variable's memory is like any other: copied, filled, and reached by a kernel of another module
ok(d.cuMemcpyDtoD(places[3], places[1], 4))
assert add(other) == 122
ok(d.cuMemsetD32(places[3], 5, 1))
assert add(other) == 6
ok(d.cuModuleUnload(one))
assert add(other) == 7
again = load(code)
assert (add(again), add(other)) == (101, 8)
''')


def test_library_has_its_variables_once_per_context() -> None:
    program('''
code = """
__device__ int total = 100;
extern "C" __global__ void add(int *out) { *out = ++total; }
"""
image = cujit.compile(code, to="ptx", arch="compute_90").data + b"\\0"
library = ok(d.cuLibraryLoadData(image, None, None, 0, None, None, 0))
kernel = ok(d.cuLibraryGetKernel(library, b"add"))
out = np.zeros(1, np.int32)

def add(f=kernel):
    ok(launch(f, (1,), (1,), ((out.ctypes.data, P),)))
    ok(d.cuCtxSynchronize())
    return int(out[0])

def place():
    return int(ok(d.cuLibraryGetGlobal(library, b"total"))[0])

first = place()
assert [add(), add()] == [101, 102]
other = ok(d.cuCtxCreate(None, 0, 0))
assert place() != first and [add(), add(), add()] == [101, 102, 103]
own = ok(d.cuKernelGetFunction(kernel))
assert add(own) == 104
ok(d.cuCtxSetCurrent(context))
assert place() == first and add() == 103
module = ok(d.cuLibraryGetModule(library))
assert int(ok(d.cuModuleGetGlobal(module, b"total"))[0]) == first and add(function(module, "add")) == 104
ok(d.cuCtxDestroy(other))
assert add() == 105
ok(d.cuLibraryUnload(library))
assert name(d.cuLibraryGetGlobal(library, b"total")) == "INVALID_HANDLE"
''')
