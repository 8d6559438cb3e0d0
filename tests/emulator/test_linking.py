"""The driver's linker: what can be linked, and what every wrong input answers."""

from __future__ import annotations

from emulator.test_launches import program


def test_ptx_ltoir_fatbins_and_containers_are_linked_to_what_loads() -> None:
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
