"""The driver's linker: what can be linked, and what every wrong input answers."""

from __future__ import annotations

from emulator.test_launches import program


def test_ptx_ltoir_fatbins_and_containers_are_linked() -> None:
    out = program("""
caller = "__device__ int twice(int); extern \\"C\\" __global__ void k(int *p) { *p = twice(*p); }"
callee = "__device__ int twice(int x) { return 2 * x; }"
kind, option = d.CUjitInputType, d.CUjit_option
memory = np.zeros(1, np.int32)

def image(code, to, **more):
    return cujit.compile(code, to=to, arch="lto_90" if to == "ltoir" else "compute_90", rdc=True).data

def linked(*inputs):
    log = bytearray(600)
    options = [option.CU_JIT_ERROR_LOG_BUFFER, option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
    link = ok(d.cuLinkCreate(2, options, [log, 600]))
    for of, data in inputs:
        answer = d.cuLinkAddData(link, of, data, len(data), b"input", 0, [], [])
        if name(answer) != "CUDA_SUCCESS":
            break
    else:
        answer = d.cuLinkComplete(link)
    if name(answer) != "CUDA_SUCCESS":
        return name(answer), bytes(log).split(b"\\0")[0].decode()
    data = ctypes.string_at(answer[1], answer[2])
    ok(d.cuLinkDestroy(link))
    memory[0] = 21
    ok(launch(function(ok(d.cuModuleLoadData(data)), "k"), (1,), (1,), ((memory.ctypes.data, P),)))
    return memory[0], data[:4]

from cujit.emulator.images import contained
PTX, LTO = kind.CU_JIT_INPUT_PTX, kind.CU_JIT_INPUT_NVVM
a, b = image(caller, "ptx"), image(callee, "ptx")
print(linked((PTX, a + b"\\0"), (PTX, b)), linked((kind.CU_JIT_INPUT_CUBIN, contained(a)), (PTX, b)))
fatbin = cujit.bundle([cujit.compile(callee, to="ptx", arch="compute_90", rdc=True)]).data
print(linked((PTX, a), (kind.CU_JIT_INPUT_FATBINARY, fatbin)))
print(linked((LTO, image(caller, "ltoir")), (LTO, image(callee, "ltoir"))))
answer, log = linked((PTX, a))
print(answer, "twice" in log)
answer, log = linked((PTX, a), (PTX, a), (PTX, b))
print(answer, "k" in log)
cubin = b"\\x7fELF".ljust(18, b"\\0") + b"\\xbe" + bytes(45)
print(linked((PTX, b"nothing"))[0], linked((kind.CU_JIT_INPUT_CUBIN, cubin))[0],
      linked((kind.CU_JIT_INPUT_LIBRARY, b"!<arch>\\n"))[0])
link = ok(d.cuLinkCreate(0, [], []))
for answer in (d.cuLinkComplete(link), d.cuLinkDestroy(link), d.cuLinkDestroy(link), d.cuLinkComplete(link)):
    print(name(answer), end=" ")
""").splitlines()
    good = "(np.int32(42), b'\\x7fELF')"
    assert out[:3] == [f"{good} {good}", good, good]
    assert out[3:5] == ["INVALID_PTX True", "INVALID_PTX True"]
    assert out[5:] == [
        "INVALID_PTX INVALID_IMAGE INVALID_PTX",
        "INVALID_VALUE CUDA_SUCCESS INVALID_HANDLE INVALID_HANDLE ",
    ]


SEPARATE = """
kind = d.CUjitInputType

def image(code, to="ptx", arch="compute_90"):
    return cujit.compile(code, to=to, arch=arch, rdc=True).data

def loaded(*inputs):
    link = ok(d.cuLinkCreate(0, [], []))
    for each in inputs:
        ok(d.cuLinkAddData(link, kind.CU_JIT_INPUT_PTX, each, len(each), b"unit", 0, [], []))
    address, size = ok(d.cuLinkComplete(link))
    module = ok(d.cuModuleLoadData(ctypes.string_at(address, size)))
    ok(d.cuLinkDestroy(link))
    return module
"""


def test_units_share_variables_and_tables_of_functions() -> None:
    program(
        SEPARATE
        + '''
data = image("""
__constant__ float scale = 2;
__device__ int calls = 40;
typedef float Step(float);
__device__ float twice(float x) { calls++; return scale * x; }
__device__ float less(float x) { calls++; return x - 1; }
__device__ Step *steps[2] = {twice, less};
""")
work = image("""
extern __constant__ float scale;
extern __device__ int calls;
typedef float Step(float);
extern __device__ Step *steps[2];
extern "C" __global__ void run(const int *order, int n, float *x) {
  for (int k = 0; k < n; k++) *x = steps[order[k]](*x);
  x[1] = scale;
  x[2] = calls;
}
""")
for inputs in ((data, work), (work, data)):
    module = loaded(*inputs)
    scale, size = ok(d.cuModuleGetGlobal(module, b"scale"))
    assert size == 4
    order, x = np.array([0, 0, 1, 0], np.int32), np.array([3, 0, 0], np.float32)
    ok(launch(function(module, "run"), (1,), (1,), ((order.ctypes.data, P), (4, I), (x.ctypes.data, P))))
    ok(d.cuCtxSynchronize())
    assert x.tolist() == [22, 2, 44]
    three = np.array([3], np.float32)
    ok(d.cuMemcpyHtoD(scale, three.ctypes.data, 4))
    ok(launch(function(module, "run"), (1,), (1,), ((order.ctypes.data, P), (1, I), (x.ctypes.data, P))))
    ok(d.cuCtxSynchronize())
    assert x.tolist() == [66, 3, 45]
    ok(d.cuModuleUnload(module))
'''
    )


def test_files_are_linked_and_a_module_outlives_its_inputs() -> None:
    program(
        SEPARATE
        + '''
import os, tempfile
caller = image("""
__device__ int f(int); __device__ int g(int);
extern "C" __global__ void k(int *p) { *p = f(g(*p)); }
""")
f = cujit.bundle([cujit.compile("__device__ int f(int x) { return x + 1; }", to="ptx", arch="compute_90", rdc=True)])
g = image("__device__ int g(int x) { return x * 10; }")
with tempfile.TemporaryDirectory() as folder:
    for file, data in (("caller.ptx", caller), ("f.fatbin", f.data), ("g.ptx", g)):
        with open(os.path.join(folder, file), "wb") as to:
            to.write(data)
    link = ok(d.cuLinkCreate(0, [], []))
    add = lambda of, file: d.cuLinkAddFile(link, of, os.path.join(folder, file).encode(), 0, [], [])
    assert name(add(kind.CU_JIT_INPUT_PTX, "missing.ptx")) == "FILE_NOT_FOUND"
    ok(add(kind.CU_JIT_INPUT_PTX, "caller.ptx"))
    ok(add(kind.CU_JIT_INPUT_FATBINARY, "f.fatbin"))
    ok(add(kind.CU_JIT_INPUT_PTX, "g.ptx"))
address, size = ok(d.cuLinkComplete(link))
assert name(d.cuLinkAddData(link, kind.CU_JIT_INPUT_PTX, g, len(g), b"late", 0, [], [])) == "INVALID_VALUE"
modules = [ok(d.cuModuleLoadData(ctypes.string_at(address, size))) for _ in range(2)]
ok(d.cuLinkDestroy(link))
for module in modules:
    x = np.array([4], np.int32)
    ok(launch(function(module, "k"), (1,), (1,), ((x.ctypes.data, P),)))
    ok(d.cuCtxSynchronize())
    assert x[0] == 41
    assert name(d.cuModuleGetFunction(module, b"f")) == "NOT_FOUND"
    ok(d.cuModuleUnload(module))
'''
    )
