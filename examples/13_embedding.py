"""Run and check PTX inside an application that packs parameters and allocates memory itself."""

import ctypes
import mmap
import struct

import cujit

PTX = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry scale(.param .u64 numbers, .param .f32 factor, .param .u32 count) {
    .reg .pred %out; .reg .b32 %i, %n; .reg .b64 %at; .reg .f32 %x, %f;
    ld.param.u64 %at, [numbers]; ld.param.f32 %f, [factor]; ld.param.u32 %n, [count];
    mov.u32 %i, %tid.x; setp.ge.u32 %out, %i, %n; @%out ret;
    mad.wide.u32 %at, %i, 4, %at; ld.global.f32 %x, [%at]; mul.f32 %x, %x, %f; st.global.f32 [%at], %x;
    ret;
}
"""
pool = mmap.mmap(-1, 4096)  # memory that cujit did not allocate
numbers = (ctypes.c_float * 64).from_buffer(pool)
numbers[:] = range(64)
address = ctypes.addressof(numbers)

kernel = cujit.load(PTX, cujit.cpu())["scale"]
compiled = kernel.compile(64, wait=False)  # in the background
print(f"compiled in {compiled.result() * 1e3:.1f} ms, {kernel.signature.size} bytes of parameters")

launch = kernel.prepare(1, 64, int_pointers=True)
launch(address, 2.0, 64)  # an int is an address, since the launch was prepared so
launch.packed(struct.pack("<Qfi", address, 2.0, 64))  # the same, packed
each = [ctypes.c_uint64(address), ctypes.c_float(0.5), ctypes.c_uint32(64)]
launch.kernel_params([ctypes.addressof(value) for value in each])  # and as cuLaunchKernel takes it
assert list(numbers) == [2.0 * n for n in range(64)]

checking = cujit.cpu(check="memory")
adopted = checking.adopt(address, 63 * 4)  # one element less than the kernel writes
try:
    cujit.load(PTX, checking)["scale"][1, 64].packed(struct.pack("<Qfi", address, 2.0, 64))
except cujit.errors.KernelFaultError as fault:
    print(fault)
    assert fault.kind == "memory" and "adopted at" in fault.message
