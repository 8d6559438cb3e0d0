"""Virtual memory: addresses, memory and what is mapped where."""

from __future__ import annotations

import textwrap

from cujit.emulator.settings import EmulatorSettings
from emulator.programs import PRELUDE, python

BASE = (
    PRELUDE
    + """
import os
G = 2 << 20
properties = d.CUmemAllocationProp()
properties.type = d.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
properties.location.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
properties.requestedHandleTypes = d.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
access = d.CUmemAccessDesc()
access.location.type = properties.location.type
NONE, READ, BOTH = (d.CUmemAccess_flags(k) for k in (0, 1, 3))

def allow(address, size, flags=BOTH):
    access.flags = flags
    return name(d.cuMemSetAccess(address, size, [access], 1))

def words(address, count=4):
    data = (ctypes.c_uint32 * count)()
    ok(d.cuMemcpyDtoH(ctypes.addressof(data), address, 4 * count))
    return list(data)

def range_of(address):
    return [int(each) for each in ok(d.cuMemGetAddressRange(address))]
"""
)


def virtual(code: str, settings: EmulatorSettings | None = None) -> str:
    return python(BASE + textwrap.dedent(code), settings)


def test_memory_is_mapped_at_several_addresses() -> None:
    virtual("""
    assert ok(d.cuMemGetAllocationGranularity(properties, d.CUmemAllocationGranularity_flags(0))) == G
    left = lambda: ok(d.cuMemGetInfo())[0]
    first = left()
    base = int(ok(d.cuMemAddressReserve(4 * G, 0, 0, 0)))
    far = int(ok(d.cuMemAddressReserve(3 * G, 16 * G, 0, 0)))
    other = far + G  # between what is not mapped: else it may lie beside ``base``, and be one with that
    assert base % G == 0 and far % (16 * G) == 0
    one, two = (ok(d.cuMemCreate(size, properties, 0)) for size in (G, 2 * G))
    assert left() == first - 3 * G and name(d.cuMemCreate(first // G * G, properties, 0)) == "OUT_OF_MEMORY"
    ok(d.cuMemMap(base, G, 0, one, 0)), ok(d.cuMemMap(base + G, 2 * G, 0, two, 0)), ok(d.cuMemMap(other, G, 0, one, 0))
    assert name(d.cuMemsetD8(base, 1, 64)) == "INVALID_VALUE"  # nobody may, yet
    assert allow(base, 3 * G) == allow(other, G) == "SUCCESS"
    assert range_of(base + G + 5) == [base, 3 * G] and range_of(other) == [other, G]
    ok(d.cuMemsetD32(base, 5, 3 * G // 4))  # over both
    assert words(other) == [5] * 4 == words(base + 3 * G - 16)
    ok(d.cuMemsetD32(other, 6, 4))
    assert words(base) == [6] * 4
    assert int(ok(d.cuMemGetAccess(access.location, base))) == 3
    kind = d.CUpointer_attribute
    assert int(ok(d.cuPointerGetAttribute(kind.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, base))) == 2
    assert name(d.cuMemFree(base)) == "INVALID_VALUE"
    # memory stays while it is mapped somewhere, and by its handle
    ok(d.cuMemRelease(one))
    assert name(d.cuMemRelease(one)) == "INVALID_VALUE"
    ok(d.cuMemUnmap(base, G))
    assert words(other) == [6] * 4 and name(d.cuMemsetD8(base, 1, 16)) == "INVALID_VALUE"
    assert range_of(base + G) == [base + G, 2 * G]
    again = ok(d.cuMemRetainAllocationHandle(other))
    ok(d.cuMemUnmap(other, G)), ok(d.cuMemMap(base, G, 0, again, 0))
    assert allow(base, G) == "SUCCESS" and words(base) == [6] * 4 and range_of(base) == [base, 3 * G]
    assert allow(base, G, NONE) == "SUCCESS" and name(d.cuMemsetD8(base, 1, 16)) == "INVALID_VALUE"
    assert ok(d.cuMemGetAllocationPropertiesFromHandle(again)).type == properties.type
    # by a descriptor it is somebody else's, too
    descriptor = int(ok(d.cuMemExportToShareableHandle(again, properties.requestedHandleTypes, 0)))
    copy = ok(d.cuMemImportFromShareableHandle(descriptor, properties.requestedHandleTypes))
    os.close(descriptor)
    ok(d.cuMemMap(other, G, 0, copy, 0))
    assert allow(other, G) == "SUCCESS" and words(other) == [6] * 4
    # what is wrong
    third = ok(d.cuMemCreate(G, properties, 0))
    by = properties.requestedHandleTypes
    wrong = [d.cuMemAddressReserve(G + 4096, 0, 0, 0), d.cuMemCreate(4096, properties, 0),
             d.cuMemMap(base, G, 0, third, 0), d.cuMemMap(64 * G, G, 0, third, 0),
             d.cuMemMap(base + 3 * G, G, 4096, third, 0), d.cuMemUnmap(base, G // 2), d.cuMemUnmap(base + 3 * G, G),
             d.cuMemAddressFree(base, 4 * G), d.cuMemMap(base + 3 * G, G, 0, 12345, 0),
             d.cuMemImportFromShareableHandle(9999, by)]
    assert [name(each) for each in wrong] == ["INVALID_VALUE"] * len(wrong), wrong
    assert allow(base + 3 * G, G) == "INVALID_VALUE"
    ok(d.cuMemUnmap(base, 3 * G)), ok(d.cuMemUnmap(other, G))
    ok(d.cuMemAddressFree(base, 4 * G)), ok(d.cuMemAddressFree(far, 3 * G))
    before = len(os.listdir("/proc/self/fd"))
    for handle in (two, again, copy, third):
        ok(d.cuMemRelease(handle))
    after = len(os.listdir("/proc/self/fd")), left()
    assert after == (before - 4, first), (before, first, after)
    """)


def test_addresses_are_freed_with_their_reserved_neighbors() -> None:
    virtual("""
    def taken():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * os.sysconf("SC_PAGESIZE")

    size, apart = 1 << 33, 1 << 36  # no place is a multiple of so much by itself
    before = taken()
    for _ in range(3):
        at = int(ok(d.cuMemAddressReserve(size, apart, 0, 0)))
        assert at % apart == 0 and taken() - before < 2 * size
        ok(d.cuMemAddressFree(at, size))
    assert taken() - before < size
    """)


def test_kernels_use_mapped_memory_under_checks() -> None:
    code = """
    PTX = b'''
    .version 8.0
    .target sm_80
    .address_size 64
    .visible .entry put(.param .u64 at)
    {
      .reg .b64 %rd<2>;
      ld.param.u64 %rd1, [at]; st.global.u32 [%rd1], 5;
      ret;
    }
    \\0'''
    put = ok(d.cuModuleGetFunction(ok(d.cuModuleLoadData(PTX)), b"put"))
    base = int(ok(d.cuMemAddressReserve(2 * G, 0, 0, 0)))
    ok(d.cuMemMap(base, G, 0, ok(d.cuMemCreate(G, properties, 0)), 0))
    assert allow(base, G) == "SUCCESS"
    for at, answer in ((base + G - 4, "SUCCESS"), (base + G, "ILLEGAL_ADDRESS")):
        value = ctypes.c_uint64(at)
        pointers = (ctypes.c_void_p * 1)(ctypes.addressof(value))
        ok(d.cuLaunchKernel(put, 1, 1, 1, 1, 1, 1, 0, 0, ctypes.addressof(pointers), 0))
        assert name(d.cuCtxSynchronize()) == answer
        if answer == "SUCCESS":
            assert words(at, 1) == [5]
    """
    for settings in (EmulatorSettings(), EmulatorSettings(check="memory")):
        virtual(code, settings)


def test_virtual_memory_resource_of_cuda_core_grows() -> None:
    virtual("""
    from cuda.core import Device, VirtualMemoryResource, VirtualMemoryResourceOptions
    device = Device(0)
    device.set_current()
    resource = VirtualMemoryResource(device, config=VirtualMemoryResourceOptions(gpu_direct_rdma=False))
    buffer = resource.allocate(G)
    ok(d.cuMemsetD32(int(buffer.handle), 7, 16))
    grown = resource.modify_allocation(buffer, 3 * G)
    assert grown.size == 3 * G and words(int(grown.handle)) == [7] * 4
    ok(d.cuMemsetD32(int(grown.handle) + G - 64, 8, 32))  # over both pieces
    brief = resource.allocate(100)
    at = int(brief.handle)
    ok(d.cuMemsetD8(at, 1, 100))
    brief.close()
    assert name(d.cuMemsetD8(at, 1, 100)) == "INVALID_VALUE"
    """)
