"""Programs that look for several devices: one is there, and whoever wants two finds out before using them."""

from __future__ import annotations

from emulator.programs import program, python
from emulator.test_launches import program as launches


def test_program_for_two_devices_finds_one_and_no_peer() -> None:
    program("""
    count = ok(d.cuDeviceGetCount())
    devices = [ok(d.cuDeviceGet(k)) for k in range(count)]
    assert [*map(int, devices)] == [0] and name(d.cuDeviceGet(count)) == "INVALID_DEVICE"
    assert [ok(d.cuDeviceCanAccessPeer(one, other)) for one in devices for other in devices] == [0]
    # Of a pair of one device, and of a device that is not there, nothing is said.
    for each in d.CUdevice_P2PAttribute:
        for pair in ((0, 0), (0, 1), (1, 0), (-1, 0)):
            assert name(d.cuDeviceGetP2PAttribute(each, *pair)) == "INVALID_DEVICE", (each, pair)
    # Another context of the same device is no peer either.
    other = ok(d.cuCtxCreate(None, 0, 0))
    assert int(ok(d.cuCtxGetDevice())) == 0
    assert name(d.cuCtxEnablePeerAccess(context, 1)) == "INVALID_VALUE"
    assert name(d.cuCtxEnablePeerAccess(context, 0)) == "PEER_ACCESS_UNSUPPORTED"
    assert name(d.cuCtxDisablePeerAccess(context)) == "PEER_ACCESS_NOT_ENABLED"
    ok(d.cuCtxDestroy(other))
    assert name(d.cuCtxEnablePeerAccess(other, 0)) == "INVALID_CONTEXT"
    # Work for a second device is refused where it is asked for.
    assert name(d.cuDevicePrimaryCtxRetain(1)) == name(d.cuCtxCreate(None, 0, 1)) == "INVALID_DEVICE"
    assert name(d.cuDeviceGetDefaultMemPool(1)) == name(d.cuDeviceTotalMem(1)) == "INVALID_DEVICE"
    """)


def test_contexts_of_a_device_copy_to_each_other() -> None:
    launches('''
code = """
extern "C" __global__ void scale(int *p, int by) { p[threadIdx.x] *= by; }
"""
contexts = [context, ok(d.cuCtxCreate(None, 0, 0))]
scales, places, streams = [], [], []
for each in contexts:
    ok(d.cuCtxSetCurrent(each))
    scales.append(function(load(code), "scale"))
    places.append(int(ok(d.cuMemAlloc(256))))
    streams.append(ok(d.cuStreamCreate(1)))
values = np.arange(64, dtype=np.int32)
ok(d.cuMemcpyHtoD(places[0], values.ctypes.data, 256))
# to and fro, each context working on what the other one made
for k in range(6):
    here, there = k % 2, 1 - k % 2
    ok(d.cuCtxSetCurrent(contexts[here]))
    ok(launch(scales[here], (1,), (64,), ((places[here], P), (2 + here, I)), stream=streams[here]))
    ok(d.cuMemcpyPeerAsync(places[there], contexts[there], places[here], contexts[here], 256, streams[here]))
    ok(d.cuStreamSynchronize(streams[here]))
out = np.zeros(64, np.int32)
ok(d.cuMemcpyDtoH(out.ctypes.data, places[0], 256))
assert (out == values * 6**3).all()

# a box of 2 x 3 x 8 bytes, from and to places inside of what is there
copy = d.CUDA_MEMCPY3D_PEER()
copy.srcMemoryType = copy.dstMemoryType = d.CUmemorytype.CU_MEMORYTYPE_DEVICE
copy.srcDevice, copy.dstDevice = places
copy.srcContext, copy.dstContext = contexts
copy.srcPitch, copy.srcHeight, copy.dstPitch, copy.dstHeight = 32, 4, 16, 8
copy.srcXInBytes, copy.srcY, copy.dstXInBytes, copy.dstZ = 8, 1, 4, 0
copy.WidthInBytes, copy.Height, copy.Depth = 8, 3, 2
ok(d.cuMemsetD8(places[1], 0, 256))
ok(d.cuMemcpy3DPeer(copy))
wanted = np.zeros((2, 8, 4), np.int32)
wanted[:, :3, 1:3] = out.reshape(2, 4, 8)[:, 1:4, 2:4]
ok(d.cuMemcpyDtoH(out.ctypes.data, places[1], 256))
assert (out.reshape(2, 8, 4) == wanted).all(), out
ok(d.cuCtxDestroy(contexts[1]))
assert name(d.cuMemcpyPeer(places[0], contexts[1], places[0], contexts[0], 4)) == "INVALID_CONTEXT"
''')


def test_hidden_device_is_hidden_from_child_processes() -> None:
    code = """
import os, subprocess, sys
from cuda.bindings import driver as d
ASK = "from cuda.bindings import driver as d; print(int(d.cuInit(0)[0]), int(d.cuDeviceGetCount()[0]))"

def of_child(said):
    variables = {**os.environ, "CUDA_VISIBLE_DEVICES": said}
    return subprocess.run([sys.executable, "-c", ASK], env=variables, capture_output=True, text=True).stdout.split()

assert d.cuInit(0)[0] == 0 and d.cuDeviceGetCount()[1] == 1
uuid = d.cuDeviceGetUuid(0)[1].bytes.hex()
own = "GPU-" + "-".join((uuid[:8], uuid[8:12], uuid[12:16], uuid[16:20], uuid[20:]))
for said, answer in (("0", 0), (own, 0), ("", 100), ("1", 100)):
    assert of_child(said) == [str(answer), "3" if answer else "0"], said
# The variable is read by cuInit: what comes after it changes nothing here.
os.environ["CUDA_VISIBLE_DEVICES"] = ""
assert d.cuDeviceGetCount()[1] == 1 and d.cuDeviceTotalMem(0)[1] > 0
"""
    python(code)
