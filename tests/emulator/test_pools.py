"""Memory pools, and what is said of pointers."""

from __future__ import annotations

from emulator.programs import python
from emulator.test_memory import STARTS


def test_pools_count_allocations_and_refuse_the_unsupported() -> None:
    python(
        STARTS
        + """
A = d.CUmemPool_attribute
get = lambda pool, name: int(ok(d.cuMemPoolGetAttribute(pool, getattr(A, f"CU_MEMPOOL_ATTR_{name}"))))
def put(pool, name, value):
    return d.cuMemPoolSetAttribute(pool, getattr(A, f"CU_MEMPOOL_ATTR_{name}"), value)
own = ok(d.cuDeviceGetDefaultMemPool(device))
assert int(ok(d.cuDeviceGetMemPool(device))) == int(own) and refused(d.cuMemPoolDestroy(own)) == "INVALID_VALUE"
one = ok(d.cuMemAllocAsync(1000, 0))
two = ok(d.cuMemAllocFromPoolAsync(3 << 20, own, 0))
assert get(own, "USED_MEM_CURRENT") == 1000 + (3 << 20) == get(own, "RESERVED_MEM_CURRENT")
ok(d.cuMemFreeAsync(two, 0))
assert (get(own, "USED_MEM_CURRENT"), get(own, "USED_MEM_HIGH")) == (1000, 1000 + (3 << 20))
ok(put(own, "USED_MEM_HIGH", d.cuuint64_t(0)))
assert get(own, "USED_MEM_HIGH") == 1000
assert refused(put(own, "USED_MEM_HIGH", d.cuuint64_t(5))) == "INVALID_VALUE"
assert refused(put(own, "USED_MEM_CURRENT", d.cuuint64_t(0))) == "INVALID_VALUE"
ok(put(own, "RELEASE_THRESHOLD", d.cuuint64_t(1 << 40)))
assert get(own, "RELEASE_THRESHOLD") == 1 << 40
assert get(own, "REUSE_ALLOW_OPPORTUNISTIC") == 1
ok(put(own, "REUSE_ALLOW_OPPORTUNISTIC", 0))
assert (get(own, "REUSE_ALLOW_OPPORTUNISTIC"), get(own, "REUSE_FOLLOW_EVENT_DEPENDENCIES")) == (0, 1)
ok(d.cuMemPoolTrimTo(own, 0))
ok(d.cuMemFree(one))
assert get(own, "USED_MEM_CURRENT") == 0

properties = d.CUmemPoolProps()
properties.allocType = d.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
properties.location.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
properties.maxSize = 1 << 20
pool = ok(d.cuMemPoolCreate(properties))
assert int(ok(d.cuMemPoolGetAccess(pool, properties.location))) == 3
assert refused(d.cuMemAllocFromPoolAsync((1 << 20) + 1, pool, 0)) == "OUT_OF_MEMORY"
assert get(pool, "USED_MEM_CURRENT") == 0
ok(d.cuDeviceSetMemPool(device, pool))
kept = ok(d.cuMemAllocAsync(100, 0))
handle = d.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE
assert int(ok(d.cuPointerGetAttribute(handle, kept))) == int(pool)
ok(d.cuMemPoolDestroy(pool))
assert int(ok(d.cuDeviceGetMemPool(device))) == int(own)
assert refused(d.cuMemAllocFromPoolAsync(8, pool, 0)) == refused(d.cuMemPoolDestroy(pool)) == "INVALID_VALUE"
ok(d.cuMemsetD8(kept, 0, 100)); ok(d.cuMemFreeAsync(kept, 0))
plain = ok(d.cuMemAlloc(8))
ok(d.cuMemFreeAsync(plain, 0)); ok(d.cuMemFreeAsync(0, 0))
assert refused(d.cuMemFreeAsync(plain, 0)) == refused(d.cuMemFreeAsync(kept, 0)) == "INVALID_VALUE"
assert int(ok(d.cuMemAllocAsync(0, 0))) == 0 and refused(d.cuMemAllocAsync(8, 999)) == "INVALID_HANDLE"
properties.location.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_INVALID
assert refused(d.cuMemPoolCreate(properties)) != "SUCCESS"

# no process can share a pool
descriptor = d.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
assert refused(d.cuMemPoolExportToShareableHandle(own, descriptor, 0)) == "NOT_SUPPORTED"
assert refused(d.cuMemPoolExportToShareableHandle(own, descriptor, 1)) == "INVALID_VALUE"
assert refused(d.cuMemPoolExportToShareableHandle(pool, descriptor, 0)) == "INVALID_VALUE"
"""
    )


def test_pointer_attributes_describe_known_memory_only() -> None:
    python(
        STARTS
        + """
A = d.CUpointer_attribute
said = lambda name, at: d.cuPointerGetAttribute(getattr(A, f"CU_POINTER_ATTRIBUTE_{name}"), at)
one, managed = ok(d.cuMemAlloc(1000)), ok(d.cuMemAllocManaged(1000, 1))
host = ok(d.cuMemHostAlloc(1000, 1))
mine = np.zeros(1000, np.uint8)
ok(d.cuMemHostRegister(mine, 1000, 0))
inside = int(one) + 999
assert int(ok(said("CONTEXT", inside))) == int(context) and int(ok(said("DEVICE_POINTER", inside))) == inside
assert [ok(said("MEMORY_TYPE", at)) for at in (one, managed, host, mine.ctypes.data)] == [2, 2, 1, 1]
assert [bool(ok(said("IS_MANAGED", at))) for at in (one, managed, host)] == [False, True, False]
assert (int(ok(said("RANGE_START_ADDR", inside))), ok(said("RANGE_SIZE", inside))) == (int(one), 1000)
assert ok(said("BUFFER_ID", one)) == ok(said("BUFFER_ID", inside)) != ok(said("BUFFER_ID", managed))
assert int(ok(said("HOST_POINTER", mine.ctypes.data + 5))) == mine.ctypes.data + 5
assert refused(said("HOST_POINTER", one)) == refused(said("P2P_TOKENS", inside + 1)) == "INVALID_VALUE"
for at in (0, 12345, inside + 1, int(one) - 1, mine.ctypes.data + 1000, id(mine)):
    assert refused(said("MEMORY_TYPE", at)) == "INVALID_VALUE", at
several = [A.CU_POINTER_ATTRIBUTE_CONTEXT, A.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, A.CU_POINTER_ATTRIBUTE_HOST_POINTER,
           A.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL]
at_one = ok(d.cuPointerGetAttributes(4, several, one))
assert (int(at_one[0]), at_one[1], int(at_one[2]), at_one[3]) == (int(context), 2, 0, 0)
nowhere = ok(d.cuPointerGetAttributes(4, several, 12345))
assert (int(nowhere[0]), nowhere[1], int(nowhere[2]), nowhere[3]) == (0, 0, 0, -2)
syncs = A.CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
ok(d.cuPointerSetAttribute(True, syncs, one))
assert ok(d.cuPointerGetAttribute(syncs, one)) and not ok(d.cuPointerGetAttribute(syncs, managed))
assert refused(d.cuPointerSetAttribute(True, syncs, mine.ctypes.data)) == "INVALID_VALUE"

assert (int(ok(d.cuMemGetAddressRange(inside))[0]), ok(d.cuMemGetAddressRange(inside))[1]) == (int(one), 1000)
assert ok(d.cuMemHostGetFlags(host)) == 1 and ok(d.cuMemHostGetFlags(mine)) == 2
assert int(ok(d.cuMemHostGetDevicePointer(mine, 0))) == mine.ctypes.data
assert refused(d.cuMemHostGetFlags(one)) == refused(d.cuMemHostGetDevicePointer(int(one), 0)) == "INVALID_VALUE"
assert refused(d.cuMemHostRegister(mine.ctypes.data + 500, 8, 0)) == "HOST_MEMORY_ALREADY_REGISTERED"
assert refused(d.cuMemHostRegister(mine.ctypes.data - 8, 16, 0)) == "HOST_MEMORY_ALREADY_REGISTERED"
assert refused(d.cuMemHostRegister(0, 16, 0)) == refused(d.cuMemHostRegister(int(one), 16, 0)) == "INVALID_VALUE"
assert refused(d.cuMemHostUnregister(mine.ctypes.data + 8)) == "HOST_MEMORY_NOT_REGISTERED"
assert refused(d.cuMemHostUnregister(0)) == refused(d.cuMemAllocManaged(8, 3)) == "INVALID_VALUE"
ok(d.cuMemHostUnregister(mine)); ok(d.cuMemHostRegister(mine, 1000, 0))
assert refused(d.cuMemFree(host)) == refused(d.cuMemFreeHost(int(one))) == "INVALID_VALUE"
pitched, pitch = ok(d.cuMemAllocPitch(1000, 3, 4))
assert pitch >= 1000 and pitch % 512 == 0 and ok(d.cuMemGetAddressRange(pitched))[1] == 3 * pitch
assert refused(d.cuMemAllocPitch(1000, 3, 5)) == "INVALID_VALUE"
ok(d.cuMemFree(pitched)); ok(d.cuMemFree(managed)); ok(d.cuMemFreeHost(host))
"""
    )


def test_advice_and_prefetching_need_managed_memory() -> None:
    python(
        STARTS
        + """
managed, plain = ok(d.cuMemAllocManaged(1000, 1)), ok(d.cuMemAlloc(1000))
def place(kind, ordinal=0):
    location = d.CUmemLocation()
    location.type, location.id = getattr(d.CUmemLocationType, f"CU_MEM_LOCATION_TYPE_{kind}"), ordinal
    return location
prefer, forget = d.CUmem_advise.CU_MEM_ADVISE_SET_PREFERRED_LOCATION, d.CUmem_advise.CU_MEM_ADVISE_UNSET_READ_MOSTLY
ok(d.cuMemAdvise(managed, 1000, prefer, place("DEVICE")))
ok(d.cuMemAdvise(managed, 1000, prefer, place("HOST")))
ok(d.cuMemAdvise(managed, 1000, forget, place("DEVICE", 7)))
ok(d.cuMemPrefetchAsync(managed, 1000, place("DEVICE"), 0, 0))
assert refused(d.cuMemAdvise(managed, 1000, prefer, place("DEVICE", 7))) == "INVALID_DEVICE"
assert refused(d.cuMemPrefetchAsync(managed, 1000, place("DEVICE", 1), 0, 0)) == "INVALID_DEVICE"
assert refused(d.cuMemPrefetchAsync(managed, 1000, place("DEVICE"), 0, 999)) == "INVALID_HANDLE"
bad = [d.cuMemAdvise(managed, 1001, prefer, place("DEVICE")), d.cuMemAdvise(plain, 1000, prefer, place("DEVICE")),
       d.cuMemAdvise(managed, 0, prefer, place("DEVICE")), d.cuMemAdvise(managed, 8, prefer, place("INVALID")),
       d.cuMemPrefetchAsync(plain, 8, place("DEVICE"), 0, 0), d.cuMemPrefetchAsync(managed, 8, place("DEVICE"), 1, 0)]
assert [refused(answer) for answer in bad] == ["INVALID_VALUE"] * len(bad)
"""
    )


def test_host_and_managed_pools_return_such_memory() -> None:
    python(
        STARTS
        + """
P, L, K, A = d.CUpointer_attribute, d.CUmemLocationType, d.CUmemAllocationType, d.CUmemPool_attribute
ask = lambda name, at: int(ok(d.cuPointerGetAttribute(getattr(P, f"CU_POINTER_ATTRIBUTE_{name}"), at)))
get = lambda pool, name: int(ok(d.cuMemPoolGetAttribute(pool, getattr(A, f"CU_MEMPOOL_ATTR_{name}"))))
properties = d.CUmemPoolProps()
properties.allocType = K.CU_MEM_ALLOCATION_TYPE_PINNED
properties.location.type = L.CU_MEM_LOCATION_TYPE_HOST
host = ok(d.cuMemPoolCreate(properties))
properties.allocType = K.CU_MEM_ALLOCATION_TYPE_MANAGED
properties.location.type = L.CU_MEM_LOCATION_TYPE_DEVICE
managed = ok(d.cuMemPoolCreate(properties))
for pool, kind, is_managed in ((host, 1, 0), (managed, 2, 1)):
    at = int(ok(d.cuMemAllocFromPoolAsync(1000, pool, 0)))
    assert (ask("MEMORY_TYPE", at), ask("IS_MANAGED", at), ask("MEMPOOL_HANDLE", at)) == (kind, is_managed, int(pool))
    assert get(pool, "USED_MEM_CURRENT") == 1000
    ok(d.cuMemsetD8(at, 1, 1000))
    ok(d.cuMemFreeAsync(at, 0))
    assert get(pool, "USED_MEM_CURRENT") == 0 and refused(d.cuMemFreeAsync(at, 0)) == "INVALID_VALUE"
plain = ok(d.cuMemAllocHost(64))
assert refused(d.cuMemFreeAsync(plain, 0)) == "INVALID_VALUE"

# each kind has a pool of its own, and one that was named for it
kinds = (K.CU_MEM_ALLOCATION_TYPE_PINNED, K.CU_MEM_ALLOCATION_TYPE_MANAGED)
owns = {int(ok(d.cuMemGetDefaultMemPool(properties.location, kind))) for kind in kinds}
assert len(owns) == 2 and int(ok(d.cuDeviceGetDefaultMemPool(device))) in owns
ok(d.cuMemSetMemPool(properties.location, kinds[1], managed))
assert int(ok(d.cuMemGetMemPool(properties.location, kinds[1]))) == int(managed)
assert refused(d.cuMemSetMemPool(properties.location, kinds[0], managed)) == "INVALID_VALUE"
assert refused(d.cuDeviceSetMemPool(device, host)) == "INVALID_VALUE"
ok(d.cuMemPoolDestroy(managed))
assert int(ok(d.cuMemGetMemPool(properties.location, kinds[1]))) in owns
"""
    )


def test_resources_of_cuda_core_for_managed_and_pinned_memory() -> None:
    python("""
    import ctypes
    from cuda.core import Device, Host, ManagedMemoryResource, PinnedMemoryResource
    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    for resource in (ManagedMemoryResource(), PinnedMemoryResource()):
        buffer = resource.allocate(4096, stream=stream)
        assert buffer.size == 4096 and buffer.is_host_accessible, resource
        ctypes.c_uint32.from_address(int(buffer.handle)).value = 7
        buffer.fill(b"\\x05", stream=stream)
        stream.sync()
        assert ctypes.c_uint32.from_address(int(buffer.handle)).value == 0x05050505
        if isinstance(resource, ManagedMemoryResource):
            buffer.read_mostly = True
            buffer.preferred_location = Host()
            assert buffer.read_mostly and isinstance(buffer.preferred_location, Host)
        buffer.close(stream)
    """)
