"""Memory: allocations, copies, sets, and what is said of pointers."""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path

from emulator.programs import emulated, python
from emulator.test_device import ASKS
from emulator.test_faults import run

EFFORT = int(os.environ.get("CUJIT_EFFORT", "1"))

STARTS = ASKS + "import numpy as np\ncontext = ok(d.cuCtxCreate(None, 0, device))\n"


def test_copies_and_sets_stay_within_their_bounds() -> None:
    python(
        STARTS
        + """
one, two = ok(d.cuMemAlloc(1000)), ok(d.cuMemAlloc(3 << 20))
data = np.arange(250, dtype=np.float32)
ok(d.cuMemcpyHtoD(one, data, 1000))
ok(d.cuMemcpyDtoD(int(two) + 8, one, 1000))
back = np.zeros(250, np.float32)
ok(d.cuMemcpyDtoH(back, int(two) + 8, 1000)); assert (back == data).all()
ok(d.cuMemcpy(one, two, 8)); ok(d.cuMemcpyAsync(int(one) + 8, int(two) + 8, 992, 0))
ok(d.cuMemsetD8(one, 0xAB, 1000)); ok(d.cuMemsetD16(int(one) + 2, 0x1234, 2))
ok(d.cuMemsetD32(int(one) + 8, 0x89ABCDEF, 1))
ok(d.cuMemcpyDtoH(back, one, 1000))
assert back.tobytes()[:14].hex() == "abab34123412ababefcdab89abab"
ok(d.cuMemsetD8(two, 0, 192)); ok(d.cuMemsetD2D16Async(two, 64, 7, 4, 3, 0))
rows = np.zeros(96, np.uint16)
ok(d.cuMemcpyDtoH(rows, two, 192)); assert rows.nonzero()[0].tolist() == [*range(4), *range(32, 36), *range(64, 68)]
bad = [
    d.cuMemcpyDtoH(back, one, 1001), d.cuMemcpyHtoD(int(one) + 1, data, 1000), d.cuMemcpyDtoD(one, two, 1001),
    d.cuMemcpyHtoD(data.ctypes.data, data, 8),
    d.cuMemcpyDtoH(back, data.ctypes.data, 8), d.cuMemcpyHtoD(one, 0, 8), d.cuMemcpyDtoH(0, one, 8),
    d.cuMemsetD8(one, 0, 1001), d.cuMemsetD16(int(one) + 1, 0, 1), d.cuMemsetD32(int(one) + 2, 0, 1),
    d.cuMemsetD32(one, 0, 251),
    d.cuMemsetD2D8(two, 64, 0, 65, 2), d.cuMemsetD32(one, 0, 1 << 62), d.cuMemAlloc(0),
    d.cuMemcpyHtoD(int(one) + 1000, data, 1),
]
assert [refused(answer) for answer in bad] == ["INVALID_VALUE"] * len(bad)
assert refused(d.cuMemcpyDtoHAsync(back, one, 8, 12345)) == "INVALID_HANDLE"
ok(d.cuMemcpyHtoD(one, data, 0)); ok(d.cuMemFree(0)); ok(d.cuMemFreeHost(0))
assert refused(d.cuMemFree(int(one) + 256)) == "INVALID_VALUE"
ok(d.cuMemFree(one)); ok(d.cuMemFree(two))
assert refused(d.cuMemFree(one)) == refused(d.cuMemFree(two)) == "INVALID_VALUE"
assert refused(d.cuMemcpyDtoH(back, one, 8)) == "INVALID_VALUE"
free, total = ok(d.cuMemGetInfo())
assert free == total and refused(d.cuMemAlloc(total + 1)) == "OUT_OF_MEMORY"
"""
    )


def test_boxes_and_batches_move_their_contents() -> None:
    python(
        STARTS
        + """
H, D = d.CUmemorytype.CU_MEMORYTYPE_HOST, d.CUmemorytype.CU_MEMORYTYPE_DEVICE
source = np.arange(4 * 6 * 8, dtype=np.uint8).reshape(4, 6, 8)
device_bytes = ok(d.cuMemAlloc(4096))
ok(d.cuMemsetD8(device_bytes, 0, 4096))
box = d.CUDA_MEMCPY3D()
box.srcMemoryType, box.srcHost, box.srcPitch, box.srcHeight = H, source.ctypes.data, 8, 6
box.srcXInBytes, box.srcY, box.srcZ = 1, 2, 1
box.dstMemoryType, box.dstDevice, box.dstPitch, box.dstHeight, box.dstXInBytes, box.dstY = D, device_bytes, 32, 16, 3, 1
box.WidthInBytes, box.Height, box.Depth = 5, 3, 2
ok(d.cuMemcpy3D(box))
found = np.zeros((8, 16, 32), np.uint8)
ok(d.cuMemcpyDtoH(found, device_bytes, 4096))
wanted = np.zeros_like(found); wanted[:2, 1:4, 3:8] = source[1:3, 2:5, 1:6]
assert (found == wanted).all()
rows = d.CUDA_MEMCPY2D()
rows.srcMemoryType, rows.srcDevice, rows.srcPitch = D, int(device_bytes) + 32 + 3, 32
rows.dstMemoryType, rows.dstHost, rows.dstPitch = H, found.ctypes.data, 5
rows.WidthInBytes, rows.Height = 5, 3
for call in (d.cuMemcpy2D, d.cuMemcpy2DUnaligned):
    found[:] = 0
    ok(call(rows))
    assert (found.ravel()[:15] == source[1, 2:5, 1:6].ravel()).all() and not found.ravel()[15:].any()
rows.dstPitch = 4
assert refused(d.cuMemcpy2D(rows)) == "INVALID_VALUE"
rows.dstPitch, rows.srcDevice = 5, int(device_bytes) + 4096 - 32 * 2 - 4
assert refused(d.cuMemcpy2D(rows)) == "INVALID_VALUE"
box.Depth = 9
assert refused(d.cuMemcpy3D(box)) == "INVALID_VALUE"
box.Depth, box.dstMemoryType = 1, d.CUmemorytype.CU_MEMORYTYPE_ARRAY
assert refused(d.cuMemcpy3D(box)) == "INVALID_VALUE"
ok(d.cuMemcpyPeer(device_bytes, context, int(device_bytes) + 64, context, 64))
assert refused(d.cuMemcpyPeer(device_bytes, 0, int(device_bytes) + 64, context, 64)) == "INVALID_CONTEXT"

stream = ok(d.cuStreamCreate(1))
attributes = d.CUmemcpyAttributes()
attributes.srcAccessOrder = d.CUmemcpySrcAccessOrder.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
ok(d.cuMemsetD8(device_bytes, 7, 16)); ok(d.cuMemsetD8(int(device_bytes) + 16, 9, 16))
at = int(device_bytes)
batch = lambda sizes, on: d.cuMemcpyBatchAsync(
    [d.CUdeviceptr(at + 100), d.CUdeviceptr(at + 200)], [d.CUdeviceptr(at), d.CUdeviceptr(at + 16)], sizes, 2,
    [attributes], [0], 1, on)
ok(batch([16, 8], stream))
ok(d.cuMemcpyDtoH(found, device_bytes, 4096))
assert found.ravel()[100:116].tolist() == [7] * 16 and found.ravel()[200:209].tolist() == [9] * 8 + [0]
assert refused(batch([16, 0], stream)) == refused(batch([16, 8], 0)) == "INVALID_VALUE"
"""
    )


def test_captured_copies_and_sets_run_with_the_graph() -> None:
    python(
        STARTS
        + """
stream = ok(d.cuStreamCreate(1))
one = ok(d.cuMemAlloc(64)); data = np.arange(64, dtype=np.uint8); back = np.zeros(64, np.uint8)
ok(d.cuMemsetD8(one, 1, 64))
ok(d.cuStreamBeginCapture(stream, d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
ok(d.cuMemcpyHtoDAsync(one, data, 64, stream))
ok(d.cuMemsetD16Async(one, 0x0505, 4, stream))
ok(d.cuMemcpyDtoHAsync(back, one, 64, stream))
assert refused(d.cuMemcpyHtoDAsync(int(one) + 1, data, 64, stream)) == "INVALID_VALUE"
graph = ok(d.cuStreamEndCapture(stream))
assert not back.any()
ok(d.cuMemcpyDtoH(back, one, 64)); assert (back == 1).all()
ok(d.cuStreamBeginCapture(stream, d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
assert refused(d.cuMemAlloc(8)) == "STREAM_CAPTURE_UNSUPPORTED"
assert refused(d.cuStreamEndCapture(stream)) == "STREAM_CAPTURE_INVALIDATED"
ok(d.cuMemAlloc(8))
"""
    )


def test_large_freed_or_unknown_block_faults(tmp_path: Path) -> None:
    program = """
import ctypes, sys
large, small = ok(d.cuMemAlloc(4 << 20)), ok(d.cuMemAlloc(100))
ctypes.c_uint8.from_address(int(large) + (4 << 20) - 1).value = 1
if sys.argv[1] == "freed":
    ok(d.cuMemFree(large))
    print("freed", flush=True)
    ctypes.c_uint8.from_address(int(large)).value = 1
elif sys.argv[1] == "beyond":
    print("beyond", flush=True)
    ctypes.c_uint8.from_address(int(large) + (1 << 30)).value = 1
"""
    (tmp_path / "faults.py").write_text(STARTS + program)
    for how in ("freed", "beyond"):
        done = emulated(sys.executable, tmp_path / "faults.py", how)
        assert (done.returncode, done.stdout.split()) == (-signal.SIGSEGV, [how]), done.stderr
    assert emulated(sys.executable, tmp_path / "faults.py", "not at all").returncode == 0


def test_random_sequences_match_a_model() -> None:
    # Allocations never overlap, hold what was written, and every call answers as the model says.
    python(
        STARTS
        + f"""
import random
random.seed({random.randrange(1 << 30) if EFFORT > 1 else 7})
live, freed = {{}}, []
def size():
    return random.choice([1, 255, 256, 257, 511, 512, 513, 3000, 100_000, 600_000, random.randrange(1, 5 << 20)])
for step in range({700 * EFFORT}):
    what = random.random()
    if what < 0.3 or not live:
        n = size()
        kind = random.randrange(3)
        at = int(ok((d.cuMemAlloc, lambda n: d.cuMemAllocAsync(n, 0), lambda n: d.cuMemAllocManaged(n, 1))[kind](n)))
        assert at % 512 == 0 and all(at + n <= begin or begin + len(data) <= at for begin, data in live.items())
        live[at] = np.full(n, step % 256, np.uint8)
        ok(d.cuMemsetD8(at, step % 256, n))
        continue
    at = random.choice(list(live))
    data = live[at]
    n = len(data)
    first = random.randrange(n)
    count = random.randrange(n - first + 1)
    if what < 0.45:
        assert refused(d.cuMemFree(at + 1)) == "INVALID_VALUE"
        ok(d.cuMemFree(at)); del live[at]; freed.append(at)
    elif what < 0.6:
        new = np.frombuffer(random.randbytes(count), np.uint8)
        ok(d.cuMemcpyHtoD(at + first, new.ctypes.data, count)); data[first:first + count] = new
    elif what < 0.75:
        back = np.empty(n, np.uint8)
        ok(d.cuMemcpyDtoH(back, at, n)); assert (back == data).all()
    elif what < 0.85:
        other = random.choice(list(live))
        count = min(count, len(live[other]))
        ok(d.cuMemcpyDtoD(other, at + first, count)); live[other][:count] = data[first:first + count].copy()
    elif what < 0.95:
        begin, length = ok(d.cuMemGetAddressRange(at + first))
        assert (int(begin), length) == (at, n)
        assert refused(d.cuMemcpyDtoH(data.ctypes.data, at + first, n - first + 1)) == "INVALID_VALUE"
        assert refused(d.cuMemsetD8(at + first, 0, n - first + 1)) == "INVALID_VALUE"
    else:
        gone = [each for each in freed if not any(b <= each < b + len(v) for b, v in live.items())]
        for each in gone[-3:]:
            assert refused(d.cuMemFree(each)) == "INVALID_VALUE"
            assert refused(d.cuMemGetAddressRange(each)) == "NOT_FOUND"
    free, total = ok(d.cuMemGetInfo())
    assert total - free == sum(map(len, live.values()))
"""
    )


def test_checks_name_the_allocation_and_unwritten_bytes() -> None:
    code = """
from cujit.devices.cpu.native.checking import PATTERN
code = '''
extern "C" __global__ void beyond(float *x, int n) { x[threadIdx.x + 1] = n; }
extern "C" __global__ void reads(float *x, float *y) { y[threadIdx.x] = x[threadIdx.x]; }
'''
image = cujit.compile(cujit.Source.cuda(code, name="client.cu"), to="ptx", arch="compute_90").data + b"\\0"
module = ok(d.cuModuleLoadData(image))
x, y = ok(d.cuMemAlloc(128)), ok(d.cuMemAlloc(4 << 20))
# Written with what memory has at first: only who knows of the copy does not take it for bytes that nobody wrote.
pattern = np.resize(np.array(list(PATTERN), np.uint8), 128)
ok(d.cuMemcpyHtoD(x, pattern, 128))
ok(d.cuMemsetD8(x, 0, 64))
ok(launch(function(module, "reads"), (1,), (32,), ((int(x), P), (int(y), P))))
ok(d.cuCtxSynchronize())
if MODE == "beyond":
    ok(launch(function(module, "beyond"), (1,), (32,), ((int(x), P), (1, ctypes.c_int))))
elif MODE == "freed":
    ok(d.cuMemFree(y))
    ok(launch(function(module, "reads"), (1,), (32,), ((int(x), P), (int(y), P))))
else:
    z = ok(d.cuMemAlloc(256))
    ok(d.cuMemcpyHtoD(z, np.zeros(4, np.float32), 16))
    ok(d.cuMemcpyDtoH(np.zeros(16, np.uint8), z, 16))
    ok(launch(function(module, "reads"), (1,), (32,), ((int(z), P), (int(y), P))))
    ok(d.cuMemcpyDtoD(x, y, 128))
    ok(d.cuMemcpyDtoH(np.zeros(128, np.uint8), x, 128))
print(name(d.cuCtxSynchronize()))
"""
    found = {}
    for mode in ("beyond", "freed", "unwritten"):
        lines, errors = run(f"MODE = {mode!r}\n{code}", check="memory,init")
        assert lines == ["LAUNCH_FAILED"] or lines == ["ILLEGAL_ADDRESS"], (lines, errors)
        found[mode] = errors
    assert "just past the end of the 128-byte array allocated at <string>:" in found["beyond"]
    assert "the freed 4,194,304-byte array allocated at <string>:" in found["freed"]
    assert "never written" in found["unwritten"]
    assert "element 16, at byte 16 of the 128-byte array" in found["unwritten"]
    assert "loaded from the 256-byte array" in found["unwritten"]


def test_addresses_are_reused_after_all_were_used() -> None:
    python(
        STARTS
        + """
free, total = ok(d.cuMemGetInfo())
size = total // 8
seen = set()
for turn in range((1 << 40) // size // 4 + 20):
    four = [int(ok(d.cuMemAlloc(size))) for _ in range(4)]
    order = sorted(four)
    assert all(one + size <= two for one, two in zip(order, order[1:]))
    seen.update(four)
    for k in ((0, 2, 1, 3), (3, 1, 2, 0), (0, 3, 1, 2))[turn % 3]:
        ok(d.cuMemFree(four[k]))
assert len(seen) < 4 * turn
assert ok(d.cuMemGetInfo()) == [free, total] or ok(d.cuMemGetInfo()) == (free, total)
ok(d.cuMemAlloc(total // 2))
"""
    )
