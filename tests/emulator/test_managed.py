"""Managed memory: advice, prefetches, and what is said of ranges."""

from __future__ import annotations

from emulator.programs import program, python
from emulator.test_launches import program as launches

BASE = """
A, R, L = d.CUmem_advise, d.CUmem_range_attribute, d.CUmemLocationType
MIB = 1 << 20
memory = int(ok(d.cuMemAllocManaged(4 * MIB, 1)))

def place(kind, number=0):
    found = d.CUmemLocation()
    found.type, found.id = kind, number
    return found

DEVICE, HOST = place(L.CU_MEM_LOCATION_TYPE_DEVICE), place(L.CU_MEM_LOCATION_TYPE_HOST)

def said(what, size=4 * MIB, at=0, count=1):
    attribute = getattr(R, f"CU_MEM_RANGE_ATTRIBUTE_{what}")
    return ok(d.cuMemRangeGetAttribute(4 * count, attribute, memory + at, size))

def advise(what, location=DEVICE, size=4 * MIB, at=0):
    return name(d.cuMemAdvise(memory + at, size, getattr(A, f"CU_MEM_ADVISE_{what}"), location))
"""


def test_advice_and_prefetches_are_reported_for_uniform_ranges() -> None:
    program(
        BASE
        + """
NOWHERE = d.CU_DEVICE_INVALID
assert (said("READ_MOSTLY"), said("PREFERRED_LOCATION"), said("LAST_PREFETCH_LOCATION")) == (0, NOWHERE, NOWHERE)
assert list(said("ACCESSED_BY", count=3)) == [NOWHERE] * 3
assert int(said("PREFERRED_LOCATION_TYPE")) == int(said("LAST_PREFETCH_LOCATION_TYPE")) == 0

assert advise("SET_READ_MOSTLY", size=MIB) == "SUCCESS"
assert (said("READ_MOSTLY", MIB), said("READ_MOSTLY", 100, MIB - 100), said("READ_MOSTLY")) == (1, 1, 0)
assert said("READ_MOSTLY", MIB, MIB) == 0
assert advise("UNSET_READ_MOSTLY", size=MIB // 2, at=MIB // 4) == "SUCCESS"
assert [said("READ_MOSTLY", MIB // 4, k * MIB // 4) for k in range(5)] == [1, 0, 0, 1, 0]

assert advise("SET_PREFERRED_LOCATION") == "SUCCESS" and said("PREFERRED_LOCATION") == 0
assert int(said("PREFERRED_LOCATION_TYPE")) == 1 and said("PREFERRED_LOCATION_ID") == 0
assert advise("SET_PREFERRED_LOCATION", HOST, MIB, MIB) == "SUCCESS"
assert said("PREFERRED_LOCATION") == NOWHERE and said("PREFERRED_LOCATION", MIB, MIB) == -1
assert int(said("PREFERRED_LOCATION_TYPE", MIB, MIB)) == 2 and said("PREFERRED_LOCATION", MIB, 2 * MIB) == 0
assert advise("UNSET_PREFERRED_LOCATION") == "SUCCESS" and said("PREFERRED_LOCATION", MIB, MIB) == NOWHERE

for one in (DEVICE, HOST):
    assert advise("SET_ACCESSED_BY", one) == "SUCCESS"
assert list(said("ACCESSED_BY", count=3)) == [0, -1, NOWHERE]
assert advise("UNSET_ACCESSED_BY", DEVICE, MIB) == "SUCCESS"
assert list(said("ACCESSED_BY", count=2)) == [-1, NOWHERE] and list(said("ACCESSED_BY", MIB, MIB, 2)) == [0, -1]

stream = ok(d.cuStreamCreate(1))
ok(d.cuMemPrefetchAsync(memory, 4 * MIB, DEVICE, 0, stream))
assert said("LAST_PREFETCH_LOCATION") == 0
PTR = d.CUdeviceptr
ok(d.cuMemPrefetchBatchAsync([PTR(memory), PTR(memory + MIB)], [MIB, MIB], 2, [HOST, DEVICE], [0, 1], 2, 0, stream))
assert (said("LAST_PREFETCH_LOCATION", MIB), said("LAST_PREFETCH_LOCATION", MIB, MIB)) == (-1, 0)
ok(d.cuMemDiscardAndPrefetchBatchAsync([PTR(memory)], [4 * MIB], 1, [HOST], [0], 1, 0, stream))
assert said("LAST_PREFETCH_LOCATION") == -1 and int(said("LAST_PREFETCH_LOCATION_TYPE")) == 2
ok(d.cuMemDiscardBatchAsync([PTR(memory)], [4 * MIB], 1, 0, stream))
which = [R.CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, R.CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY]
both = ok(d.cuMemRangeGetAttributes([4, 8], which, 2, memory, MIB // 4))
assert both[0] == 1 and list(both[1]) == [-1, NOWHERE], both

# what is wrong
wrong = [d.cuMemRangeGetAttribute(8, R.CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory, 64),
         d.cuMemRangeGetAttribute(6, R.CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, memory, 64),
         d.cuMemRangeGetAttribute(4, R.CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory, 4 * MIB + 1),
         d.cuMemRangeGetAttribute(4, R.CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, ok(d.cuMemAlloc(64)), 64),
         d.cuMemPrefetchBatchAsync([PTR(memory), PTR(memory)], [MIB, MIB], 2, [HOST], [1], 1, 0, stream),
         d.cuMemPrefetchBatchAsync([PTR(memory)], [MIB], 1, [HOST], [0], 1, 0, 0),
         d.cuMemDiscardBatchAsync([PTR(memory)], [5 * MIB], 1, 0, stream)]
assert [name(each) for each in wrong] == ["INVALID_VALUE"] * 7
assert advise("SET_PREFERRED_LOCATION", place(L.CU_MEM_LOCATION_TYPE_DEVICE, 7)) == "INVALID_DEVICE"
# another allocation at the same place begins anew
ok(d.cuMemFree(memory))
for _ in range(200):
    again = int(ok(d.cuMemAllocManaged(4 * MIB, 1)))
    ok(d.cuMemFree(again))
memory = int(ok(d.cuMemAllocManaged(64, 1)))
ok(d.cuMemAdvise(memory, 64, A.CU_MEM_ADVISE_SET_READ_MOSTLY, DEVICE))
ok(d.cuMemFree(memory))
for _ in range(5000):
    other = int(ok(d.cuMemAllocManaged(64, 1)))
    if other == memory:
        break
else:
    assert False, "the place was not used again"
assert said("READ_MOSTLY", 64) == 0
"""
    )


def test_managed_buffer_of_cuda_core_reports_its_advice() -> None:
    python("""
    from cuda.bindings import driver
    from cuda.core import Device, Host, ManagedBuffer
    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    at = driver.cuMemAllocManaged(1 << 20, 1)[1]
    buffer = ManagedBuffer.from_handle(at, 1 << 20)
    assert not buffer.read_mostly and buffer.preferred_location is None and not buffer.accessed_by
    buffer.read_mostly = True
    buffer.preferred_location = Host()
    buffer.accessed_by.add(device)
    assert buffer.read_mostly and isinstance(buffer.preferred_location, Host)
    assert [each.device_id for each in buffer.accessed_by] == [0]
    buffer.prefetch(device, stream=stream)
    buffer.discard(stream=stream)
    buffer.preferred_location = device
    assert buffer.preferred_location.device_id == 0
    buffer.close()
    """)


def test_context_records_an_event_and_waits_for_one() -> None:
    program("""
    event, stream = ok(d.cuEventCreate(0)), ok(d.cuStreamCreate(1))
    before = ok(d.cuEventCreate(0))
    ok(d.cuCtxRecordEvent(context, before)), ok(d.cuCtxRecordEvent(context, event))
    assert ok(d.cuEventElapsedTime(before, event)) >= 0
    ok(d.cuCtxWaitEvent(context, event))
    assert name(d.cuCtxRecordEvent(0, event)) == "INVALID_CONTEXT"
    assert name(d.cuCtxWaitEvent(context, 0)) == "INVALID_HANDLE"
    assert int(ok(d.cuStreamGetGreenCtx(stream))) == 0
    for work in (d.cuCtxRecordEvent, d.cuCtxWaitEvent):
        ok(d.cuStreamBeginCapture(stream, d.CUstreamCaptureMode(0)))
        assert name(work(context, event)) == "STREAM_CAPTURE_UNSUPPORTED"
        assert name(d.cuStreamEndCapture(stream)) == "STREAM_CAPTURE_INVALIDATED"
    other = ok(d.cuCtxCreate(None, 0, 0))
    ok(d.cuCtxSetCurrent(context)), ok(d.cuStreamBeginCapture(stream, d.CUstreamCaptureMode(0)))
    ok(d.cuCtxWaitEvent(other, event))  # of another context nothing is captured
    assert int(ok(d.cuStreamIsCapturing(stream))) == 1 and int(ok(d.cuStreamEndCapture(stream)))
    """)


def test_host_and_kernels_alternate_on_managed_memory() -> None:
    launches('''
walk = function(load("""
struct Node { Node *next; int value; };
extern "C" __global__ void walk(Node *at, int *sum) {
  for (; at; at = at->next) { *sum += at->value; at->value = -at->value; }
}
"""), "walk")

class Node(ctypes.Structure):
    _fields_ = [("next", P), ("value", I)]

def made(type_):
    at = ok(d.cuMemAllocManaged(ctypes.sizeof(type_), d.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL))
    return int(at), type_.from_address(int(at))

start, nodes = 0, []
for k in range(1, 6):
    at, node = made(Node)
    node.next, node.value = start, k
    start, nodes = at, [*nodes, node]
out, total = made(I)
total.value = 1000
for wanted in (1015, 1000, 1015):
    ok(launch(walk, (1,), (1,), ((start, P), (out, P))))
    ok(d.cuCtxSynchronize())
    assert total.value == wanted
assert [node.value for node in nodes] == [-1, -2, -3, -4, -5]
nodes[2].next = None  # 5, 4 and 3 are left
ok(launch(walk, (1,), (1,), ((start, P), (out, P))))
ok(d.cuCtxSynchronize())
assert total.value == 1003
for at in (out, *map(ctypes.addressof, nodes)):
    ok(d.cuMemFree(at))
''')


def test_memory_is_attached_to_a_working_stream() -> None:
    launches('''
add = function(load("""
extern "C" __global__ void add(int *p, int n) { for (int k = threadIdx.x; k < 1000; k += 32) p[k] += n; }
"""), "add")
flags, kinds = d.CUmemAttach_flags, d.CUpointer_attribute
# Flags: what an H200 answered.
assert [name(d.cuMemAllocManaged(4000, n)[:1]) for n in (0, 1, 2, 4)] == [
    "INVALID_VALUE", "CUDA_SUCCESS", "CUDA_SUCCESS", "INVALID_VALUE"]
streams = [ok(d.cuStreamCreate(1)) for _ in range(3)]
parts = [int(ok(d.cuMemAllocManaged(4000, flags.CU_MEM_ATTACH_HOST))) for _ in streams]
for k, (stream, at) in enumerate(zip(streams, parts)):
    of = lambda kind: ok(d.cuPointerGetAttribute(getattr(kinds, f"CU_POINTER_ATTRIBUTE_{kind}"), at))
    assert of("IS_MANAGED") and int(of("DEVICE_POINTER")) == int(of("HOST_POINTER")) == at
    ctypes.memset(at, 0, 4000)
    ok(d.cuStreamAttachMemAsync(stream, at, 0, flags.CU_MEM_ATTACH_SINGLE))
    for _ in range(10):
        ok(launch(add, (1,), (32,), ((at, P), (k + 1, I)), stream=stream))
for k, (stream, at) in enumerate(zip(streams, parts)):
    ok(d.cuStreamSynchronize(stream))
    assert (ctypes.c_int * 1000).from_address(at)[:] == [10 * (k + 1)] * 1000
    ok(d.cuStreamAttachMemAsync(stream, at, 4000, flags.CU_MEM_ATTACH_GLOBAL))
at = parts[0]
assert [name(d.cuStreamAttachMemAsync(streams[0], *of)) for of in ((at, 0, 3), (at, 0, 8), (0, 0, 1))] == [
    "INVALID_VALUE"] * 3
''')
