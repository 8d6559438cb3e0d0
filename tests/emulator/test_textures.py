"""Arrays, textures and surfaces by the driver's functions: what kernels read and write, and copies, beside NumPy."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cujit
from emulator.programs import python
from emulator.test_faults import run
from emulator.test_launches import START

TESTS = Path(__file__).parents[1]
BASE = (
    START
    + '''
F32, U8 = (getattr(d.CUarray_format, f"CU_AD_FORMAT_{each}") for each in ("FLOAT", "UNSIGNED_INT8"))
SURFACE, LAYERED, CUBE = d.CUDA_ARRAY3D_SURFACE_LDST, d.CUDA_ARRAY3D_LAYERED, d.CUDA_ARRAY3D_CUBEMAP

def array(width, height=0, depth=0, kind=F32, channels=1, flags=0):
    said = d.CUDA_ARRAY3D_DESCRIPTOR()
    said.Width, said.Height, said.Depth, said.Format, said.NumChannels, said.Flags = (
        width, height, depth, kind, channels, flags)
    return ok(d.cuArray3DCreate(said))

def of_array(handle):
    resource = d.CUDA_RESOURCE_DESC()
    resource.resType = d.CUresourcetype.CU_RESOURCE_TYPE_ARRAY
    resource.res.array.hArray = handle
    return resource

def reading(mode=1, linear=0, flags=0):
    how = d.CUDA_TEXTURE_DESC()
    how.addressMode = [d.CUaddress_mode(mode)] * 3
    how.filterMode, how.flags = d.CUfilter_mode(linear), flags
    return how

KINDS = {"h": (1, "Host"), "d": (2, "Device"), "a": (3, "Array"), "u": (4, "Device")}

def copy(to, of, width, height=1, depth=1):
    """A copy; each side is its kind, where it is, x, y, z, pitch and height."""
    said = d.CUDA_MEMCPY3D()
    for name, (kind, at, *rest) in (("dst", to), ("src", of)):
        x, y, z, pitch, rows = (rest + [0] * 5)[:5]
        number, word = KINDS[kind]
        setattr(said, name + "MemoryType", d.CUmemorytype(number))
        setattr(said, name + word, at)
        for axis, value in (("XInBytes", x), ("Y", y), ("Z", z), ("Pitch", pitch), ("Height", rows)):
            setattr(said, name + axis, value)
    said.WidthInBytes, said.Height, said.Depth = width, height, depth
    return said

def fill(handle, data):
    *outer, width = data.shape
    depth, height = ([1, 1] + outer)[-2:]
    row = width * data.itemsize
    ok(d.cuMemcpy3D(copy(("a", handle), ("h", data.ctypes.data, 0, 0, 0, row, height), row, height, depth)))

def content(handle, shape, dtype=np.float32):
    data = np.zeros(shape, dtype)
    *outer, width = shape
    depth, height = ([1, 1] + outer)[-2:]
    row = width * data.itemsize
    ok(d.cuMemcpy3D(copy(("h", data.ctypes.data, 0, 0, 0, row, height), ("a", handle), row, height, depth)))
    return data
'''
)

ZOOM = """
extern "C" __global__ void zoom(cudaTextureObject_t image, cudaSurfaceObject_t to, float *out, float by) {
  int x = threadIdx.x, y = blockIdx.x;
  float value = tex2D<float>(image, (x + 0.5f) / by, (y + 0.5f) / by);
  out[y * blockDim.x + x] = value;
  surf2Dwrite(value * 2, to, 4 * x, y);
}
"""


def program(code: str) -> str:
    """Run a program that begins with ``BASE``."""
    return python(BASE + code)


def test_cuda_bindings_program_zooms_as_the_cpu_device(tmp_path: Path) -> None:
    picture = np.random.default_rng(3).standard_normal((5, 7)).astype(np.float32)
    device = cujit.cpu()
    kernel = cujit.jit(ZOOM, device=device)["zoom"]
    texels = device.texels(np.zeros((10, 16), np.float32))
    image, surface = device.texture(picture, filter="linear"), device.surface(texels)
    out = device.zeros((10, 16), np.float32)
    kernel[10, 16](image.handle, surface.handle, out, 2.3)
    np.savez(tmp_path / "expected.npz", picture=picture, out=out.numpy(), texels=texels.numpy())
    program(
        f'''
from cuda.bindings import nvrtc
expected = np.load({str(tmp_path / "expected.npz")!r})
code = r"""{ZOOM}"""
made = ok(nvrtc.nvrtcCreateProgram(code.encode(), b"zoom.cu", 0, None, None))
ok(nvrtc.nvrtcCompileProgram(made, 1, [b"--gpu-architecture=sm_90"]))
cubin = b" " * ok(nvrtc.nvrtcGetCUBINSize(made))
ok(nvrtc.nvrtcGetCUBIN(made, cubin))
zoom = function(ok(d.cuModuleLoadData(cubin)), "zoom")
'''
        + """
picture = expected["picture"]
plane = d.CUDA_ARRAY_DESCRIPTOR()
plane.Width, plane.Height, plane.Format, plane.NumChannels = 7, 5, F32, 1
image, written = ok(d.cuArrayCreate(plane)), array(16, 10, flags=SURFACE)
said = d.CUDA_MEMCPY2D()
said.srcMemoryType, said.srcHost, said.srcPitch = d.CUmemorytype.CU_MEMORYTYPE_HOST, picture.ctypes.data, 28
said.dstMemoryType, said.dstArray = d.CUmemorytype.CU_MEMORYTYPE_ARRAY, image
said.WidthInBytes, said.Height = 28, 5
ok(d.cuMemcpy2D(said))
texture = ok(d.cuTexObjectCreate(of_array(image), reading(linear=1), None))
surface = ok(d.cuSurfObjectCreate(of_array(written)))
memory, out = ok(d.cuMemAlloc(640)), np.zeros((10, 16), np.float32)
u64 = ctypes.c_uint64
ok(launch(zoom, (10,), (16,), ((int(texture), u64), (int(surface), u64), (int(memory), P), (2.3, F))))
ok(d.cuMemcpyDtoH(out, memory, 640))
assert (out == expected["out"]).all()
assert (content(written, (10, 16)) == expected["texels"]).all() and expected["texels"].any()
for done in (d.cuTexObjectDestroy(texture), d.cuSurfObjectDestroy(surface), d.cuArrayDestroy(image)):
    ok(done)
"""
    )


def test_every_lookup_of_the_table_is_the_cpu_devices_and_a_gpus() -> None:
    # The client is cujit itself: its device of a GPU makes arrays and textures by the driver.
    python(f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
import numpy as np
import cujit
from cujit.machine import gpu
from devices.textures_table import CASES, run, run_body, surface_of
device, cpu = gpu(), cujit.cpu()
recorded = np.load({str(TESTS / "goldens" / "textures.npz")!r})
assert len(CASES) > 100
for case in CASES:
    got = run(device, case)
    assert (got == run(cpu, case)).all(), case.name
    if case.is_exact and case.name in recorded:
        assert (got == recorded[case.name]).all(), case.name
rng = np.random.default_rng(5)
words = rng.integers(0, 1 << 32, (64, 8), np.uint32)
words[:, 1], words[:, 2], words[:, 0] = rng.permutation(64) % 8, np.arange(64) // 8, np.arange(64) % 3
body = '''
shl.b32 c1, c1, 2;
suld.b.2d.v2.b16.trap {{h0, h1}}, [t, {{c1, c2}}];
mov.b32 w0, {{h0, h1}};
sust.p.a2d.v4.b32.zero [t, {{c0, c1, c2, c2}}], {{c4, c5, c6, c7}};
suq.width.b32 w1, [t];
suq.height.b32 w2, [t];
suq.array_size.b32 w3, [t];
'''
for dtype in ("uint8", "int16", "float16"):
    data = rng.integers(0, 120, (3, 8, 8, 4)).astype(dtype)
    texels, found = zip(*(surface_of(each, data, 4, layered=True) for each in (device, cpu)))
    answers = [run_body(each, body, surface.handle, words) for each, surface in zip((device, cpu), found)]
    assert (answers[0] == answers[1]).all() and answers[0][0, 1:].tolist() == [8, 8, 3]
    assert (texels[0].numpy() == texels[1].numpy()).all() and (texels[0].numpy() != data).any()
""")


def test_array_copies_match_numpy() -> None:
    program("""
rng = np.random.default_rng(7)
shape, small = (5, 9, 14), (3, 6, 8)
kinds = [array(14, 9, 5), array(14, 9, 5, flags=LAYERED)]
stream = ok(d.cuStreamCreate(1))
for turn in range(40):
    models = {"a": rng.random(shape, np.float32), "b": rng.random(shape, np.float32),
              "d": rng.random(shape, np.float32), "h": rng.random(shape, np.float32)}
    memory = ok(d.cuMemAlloc(models["d"].nbytes))
    ok(d.cuMemcpyHtoD(memory, models["d"], models["d"].nbytes))
    host = models["h"].copy()
    fill(kinds[0], models["a"]), fill(kinds[1], models["b"])
    ok(d.cuCtxSynchronize())  # as the stream waits for no other
    for to, of in (("a", "h"), ("d", "a"), ("b", "d"), ("a", "b"), ("h", "b")):
        size = [int(rng.integers(1, most + 1)) for most in small]
        places = [[int(rng.integers(0, most - part + 1)) for most, part in zip(shape, size)] for _ in (to, of)]
        one, two = (tuple(slice(at, at + part) for at, part in zip(place, size)) for place in places)
        models[to][one] = models[of][two]
        sides = []
        for side, (z, y, x) in zip((to, of), places):
            at = {"a": kinds[0], "b": kinds[1], "d": memory, "h": host.ctypes.data}[side]
            sides.append(("a" if side == "b" else side, at, 4 * x, y, z, 14 * 4, 9))
        said = copy(*sides, size[2] * 4, size[1], size[0])
        ok(d.cuMemcpy3DAsync(said, stream) if turn % 2 else d.cuMemcpy3D(said))
    ok(d.cuCtxSynchronize())
    back = np.zeros(shape, np.float32)
    ok(d.cuMemcpyDtoH(back, memory, back.nbytes))
    ok(d.cuMemFree(memory))
    assert (content(kinds[0], shape) == models["a"]).all() and (content(kinds[1], shape) == models["b"]).all()
    assert (back == models["d"]).all() and (host == models["h"]).all()

line, other = array(16), array(16, kind=U8, channels=4)
data, back, memory = np.arange(16, dtype=np.float32), np.zeros(16, np.float32), ok(d.cuMemAlloc(64))
ok(d.cuMemcpyHtoA(line, 0, data, 64))
ok(d.cuMemcpyAtoD(memory, line, 16, 32))
ok(d.cuMemcpyDtoA(line, 40, memory, 24))
ok(d.cuMemcpyAtoA(other, 8, line, 32, 32))
ok(d.cuCtxSynchronize())
ok(d.cuMemcpyHtoAAsync(other, 0, data, 8, stream))
ok(d.cuMemcpyAtoHAsync(back, other, 0, 40, stream))
ok(d.cuStreamSynchronize(stream))
expected = data.copy(); expected[10:] = data[4:10]
assert back[:10].tolist() == [0, 1, *expected[8:16]], back
ok(d.cuMemcpyAtoH(back, line, 0, 64))
assert (back == expected).all()

op, plane = d.CUDA_MEMCPY3D_BATCH_OP(), array(8, 4, kind=F32, channels=2)
fill(plane, np.arange(64, dtype=np.float32).view(np.float64).reshape(4, 8))
op.src.type, op.dst.type = d.CUmemcpy3DOperandType(2), d.CUmemcpy3DOperandType(1)
op.src.op.array.array, op.src.op.array.offset.x, op.src.op.array.offset.y = plane, 2, 1
op.dst.op.ptr.ptr, op.dst.op.ptr.rowLength, op.dst.op.ptr.layerHeight = memory, 4, 2
op.extent.width, op.extent.height, op.extent.depth, op.srcAccessOrder = 3, 2, 1, d.CUmemcpySrcAccessOrder(1)
ok(d.cuMemsetD8(memory, 0, 64))
ok(d.cuMemcpy3DBatchAsync(1, [op], 0, stream))
ok(d.cuMemcpyDtoH(back, memory, 64))
assert back.reshape(2, 8).tolist() == [[*range(20, 26), 0, 0], [*range(36, 42), 0, 0]], back
op.src.op.array.offset.x = 6
assert name(d.cuMemcpy3DBatchAsync(1, [op], 0, stream)) == "INVALID_VALUE"
""")


def test_copies_of_arrays_are_nodes_of_graphs() -> None:
    out = program("""
line, box, data = array(16), array(4, 3, 2), np.arange(16, dtype=np.float32)
stream = ok(d.cuStreamCreate(1))
back = np.zeros(16, np.float32)
ok(d.cuStreamBeginCapture(stream, d.CUstreamCaptureMode(0)))
ok(d.cuMemcpyHtoAAsync(line, 8, data, 32, stream))
ok(d.cuMemcpy3DAsync(copy(("a", box, 4, 1, 1), ("a", line, 12), 12), stream))
ok(d.cuMemcpyAtoHAsync(back, line, 0, 64, stream))
graph = ok(d.cuStreamEndCapture(stream))
nodes, count = ok(d.cuGraphGetNodes(graph, 3))
found = [ok(d.cuGraphMemcpyNodeGetParams(node)) for node in nodes]
print(*(int(each.dstMemoryType) for each in found), *(int(each.srcMemoryType) for each in found))
print(found[1].dstXInBytes, found[1].dstY, found[1].dstZ, found[1].srcXInBytes, found[1].WidthInBytes)
assert int(found[0].dstArray) == int(line) == int(found[2].srcArray) and int(found[1].dstArray) == int(box)
assert not content(box, (2, 3, 4)).any()
executable = ok(d.cuGraphInstantiate(graph, 0))
data += 100
ok(d.cuGraphLaunch(executable, stream))
expected = np.zeros((2, 3, 4), np.float32); expected[1, 1, 1:] = data[1:4]
assert (content(box, (2, 3, 4)) == expected).all() and (back[2:10] == data[:8]).all()

made = ok(d.cuGraphCreate(0))
node = ok(d.cuGraphAddMemcpyNode(made, None, 0, copy(("h", back.ctypes.data), ("a", box, 0, 1, 1), 16), context))
ok(d.cuGraphLaunch(ok(d.cuGraphInstantiate(made, 0)), stream))
assert (back[:4] == expected[1, 1]).all()
print(name(d.cuGraphAddMemcpyNode(made, None, 0, copy(("h", back.ctypes.data), ("a", box, 4, 1, 1), 16), context)))
""").splitlines()
    assert out == ["3 3 1 1 3 3", "4 1 1 12 12", "INVALID_VALUE"]


READ = '''
code = """
extern "C" __global__ void look(cudaTextureObject_t t, float *out) { *out = tex1D<float>(t, 1.5f); }
extern "C" __global__ void layer(cudaTextureObject_t t, float *out, int k) { *out = tex2DLayered<float>(t, 1, 0, k); }
extern "C" __global__ void fetch(cudaTextureObject_t t, float *out, int k) { *out = tex1Dfetch<float>(t, k); }
extern "C" __global__ void put(cudaSurfaceObject_t s) { surf1Dwrite(1.0f, s, 0); }
"""
module = load(code)
u64, memory, out = ctypes.c_uint64, ok(d.cuMemAlloc(64)), np.zeros(1, np.float32)

def read(texture, *more, by="look"):
    answer = launch(function(module, by), (1,), (1,), ((int(texture), u64), (int(memory), P), *((k, I) for k in more)))
    answer = answer if answer[0] else d.cuCtxSynchronize()
    if answer[0]:
        return name(answer)
    ok(d.cuMemcpyDtoH(out, memory, 4))
    return float(out[0])
'''


MEMORY = """
def of_memory(at, width, height=0, pitch=0, kind=F32, channels=1):
    resource = d.CUDA_RESOURCE_DESC()
    if pitch or height:
        resource.resType, rows = d.CUresourcetype.CU_RESOURCE_TYPE_PITCH2D, resource.res.pitch2D
        rows.width, rows.height, rows.pitchInBytes = width, height, pitch
    else:
        resource.resType, rows = d.CUresourcetype.CU_RESOURCE_TYPE_LINEAR, resource.res.linear
        rows.sizeInBytes = width
    rows.devPtr, rows.format, rows.numChannels = at, kind, channels
    return resource
"""


def test_pitched_rows_are_read_in_place() -> None:
    program(
        MEMORY
        + """
module = load('''
extern "C" __global__ void each(cudaTextureObject_t rows, cudaTextureObject_t line, cudaTextureObject_t near,
                                float *out) {
  int x = threadIdx.x, y = blockIdx.x, k = y * blockDim.x + x;
  out[2 * k] = tex2D<float>(rows, x + 0.5f, y + 0.5f);
  out[2 * k + 1] = tex1Dfetch<float>(line, y * 128 + x);
  if (!k) out[2 * gridDim.x * blockDim.x] = tex2D<float>(near, 2, 1);
}
''')
at, pitch = ok(d.cuMemAllocPitch(28, 5, 4))
assert pitch == 512
rows = ok(d.cuTexObjectCreate(of_memory(at, 7, 5, pitch), reading(), None))
near = ok(d.cuTexObjectCreate(of_memory(at, 7, 5, 0), reading(), None))  # its rows are the first one
line = ok(d.cuTexObjectCreate(of_memory(at, 5 * 512), reading(0, 1, 2), None))
data, out, memory = np.random.default_rng(1).random((5, 7), np.float32), np.zeros(71, np.float32), ok(d.cuMemAlloc(284))
ok(d.cuMemcpy3D(copy(("d", at, 0, 0, 0, pitch, 5), ("h", data.ctypes.data, 0, 0, 0, 28, 5), 28, 5)))
u64 = ctypes.c_uint64
ok(launch(function(module, "each"), (5,), (7,), (*((int(t), u64) for t in (rows, line, near)), (int(memory), P))))
ok(d.cuMemcpyDtoH(out, memory, 284))
assert (out[:70].reshape(35, 2) == data.reshape(35, 1)).all()
assert out[70] == data[0, 2]
said = ok(d.cuTexObjectGetResourceDesc(rows))
assert (int(said.res.pitch2D.devPtr), said.res.pitch2D.pitchInBytes, said.res.pitch2D.height) == (int(at), 512, 5)
assert ok(d.cuTexObjectGetTextureDesc(line)).flags == 2
"""
    )


EMPTY = """
module = load('''
extern "C" __global__ void each(cudaTextureObject_t t, int axes, float *out) {
  float x = threadIdx.x - 2.0f, s = axes == 1 ? tex1D<float>(t, x) : tex2D<float>(t, x, x);
  out[threadIdx.x] = axes == 1 ? s + tex1Dfetch<float>(t, threadIdx.x) : s;
}
extern "C" __global__ void all(cudaTextureObject_t t, int axes, float *out) {
  float x = threadIdx.x - 2.0f;
  float4 v = axes == 1 ? tex1D<float4>(t, x) : tex2D<float4>(t, x, x);
  out[threadIdx.x] = v.x + v.y + v.z + v.w;
}
''')
at, memory, u64, out = ok(d.cuMemAlloc(512)), ok(d.cuMemAlloc(32)), ctypes.c_uint64, np.ones(8, np.float32)
ok(d.cuMemsetD8(at, 0x3f, 512))
kinds = [getattr(d.CUarray_format, f"CU_AD_FORMAT_{n}") for n in
         ("UNSIGNED_INT8", "SIGNED_INT8", "UNSIGNED_INT16", "SIGNED_INT16", "HALF", "FLOAT")]
sizes = (1, 1, 2, 2, 2, 4)
count = 0
for kind, bytes_ in zip(kinds, sizes):
    for channels in (1, 2, 4):
        texel = bytes_ * channels
        cases = [(1, of_memory(at, size, kind=kind, channels=channels), 0, 0) for size in sorted({0, texel - 1})]
        cases += [(2, of_memory(at, 4, 0, 32, kind=kind, channels=channels), mode, filter_)
                  for mode in range(4) for filter_ in (0, 1)]
        for axes, resource, mode, filter_ in cases:
            texture = ok(d.cuTexObjectCreate(resource, reading(mode, filter_, 2), None))
            for name in ("each", "all"):
                ok(launch(function(module, name), (1,), (8,), ((int(texture), u64), (axes, I), (int(memory), P))))
                ok(d.cuMemcpyDtoH(out, memory, 32))
                assert not out.any(), (kind, channels, axes, mode, filter_, out)
            ok(d.cuTexObjectDestroy(texture))
            count += 1
print(count)
"""


def test_fetches_of_partial_elements_read_zeros() -> None:
    assert program(MEMORY + EMPTY).split() == [str(16 * 2 + 2 + 18 * 8)]


AT_THE_END = """
import mmap
libc = ctypes.CDLL(None)
pages = mmap.mmap(-1, 2 * mmap.PAGESIZE)
base = ctypes.addressof(ctypes.c_char.from_buffer(pages))
assert libc.mprotect(ctypes.c_void_p(base + mmap.PAGESIZE), ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
module = load('''
extern "C" __global__ void each(cudaTextureObject_t t, int n, float *out) {
  float4 v = tex1Dfetch<float4>(t, n - 32 + (int)threadIdx.x);
  out[threadIdx.x] = v.x + v.y + v.z + v.w;
}
''')
u64, memory, out = ctypes.c_uint64, ok(d.cuMemAlloc(128)), np.zeros(32, np.float32)
count = 0
for name, type_ in (("UNSIGNED_INT8", np.uint8), ("SIGNED_INT8", np.int8), ("UNSIGNED_INT16", np.uint16),
                    ("SIGNED_INT16", np.int16), ("HALF", np.float16), ("FLOAT", np.float32)):
    for channels in (1, 2, 4):
        n = mmap.PAGESIZE // (np.dtype(type_).itemsize * channels)
        values = np.random.default_rng(channels).integers(-100, 100, (n, channels)).astype(type_)
        pages[:mmap.PAGESIZE] = values.tobytes()
        kind = getattr(d.CUarray_format, f"CU_AD_FORMAT_{name}")
        texture = ok(d.cuTexObjectCreate(of_memory(base, mmap.PAGESIZE, kind=kind, channels=channels), reading(), None))
        ok(launch(function(module, "each"), (1,), (32,), ((int(texture), u64), (n, I), (int(memory), P))))
        ok(d.cuMemcpyDtoH(out, memory, 128))
        most = np.iinfo(type_).max if np.issubdtype(type_, np.integer) else 1
        assert np.allclose(out, (values[-32:].astype(np.float64) / most).sum(1), atol=1e-5), (name, channels)
        count += 1
print(count)
"""


def test_last_elements_of_a_page_are_read_alone() -> None:
    assert program(MEMORY + AT_THE_END).split() == ["18"]


def test_invalid_array_texture_or_surface_is_refused() -> None:
    out = program(
        MEMORY
        + """
def created(width, height=0, depth=0, channels=1, flags=0):
    said = d.CUDA_ARRAY3D_DESCRIPTOR()
    said.Width, said.Height, said.Depth, said.Format, said.NumChannels, said.Flags = (
        width, height, depth, U8, channels, flags)
    return d.cuArray3DCreate(said)

bad = [
    created(0), created(8, 0, 4), created(8, channels=3), created(131073), created(8, 65537), created(8193, 1, 16385),
    created(16385, 8, 8), created(8, 8, 0, flags=LAYERED), created(1, 1, 2049, flags=LAYERED),
    created(8, 4, 6, flags=CUBE), created(8, 8, 12, flags=CUBE), created(8, 8, 9, flags=CUBE | LAYERED),
    created(32769, flags=SURFACE),
    created(8, 8, 8, flags=d.CUDA_ARRAY3D_TEXTURE_GATHER), created(8, flags=1 << 9),
]
for *sizes, flags in ((131072, 0), (8, 65536, 0), (8192, 1, 16385, 0), (16384, 1, 16384, 0), (8, 0, 4, LAYERED),
                      (8, 8, 12, CUBE | LAYERED)):
    ok(created(*sizes, flags=flags))
memory, plane, bytes_ = ok(d.cuMemAlloc(4096)), array(8, 8), array(8, 8, kind=U8)
cube = array(8, 8, 6, flags=CUBE)
at = int(memory)
line, rows = of_memory(at, 64), of_memory(at, 8, 8, 64)
bad += [d.cuTexObjectCreate(each, reading(), None) for each in (
    of_memory(at + 4, 64), of_memory(0, 64), of_memory(at, 64, channels=3),
    of_memory(at, 8, 8, 40),
    of_memory(at, 1, 65001, 32, U8), of_array(0), of_array(int(plane) + 8), of_array(at))]
for sizes in ((1, 1, 32), (131072, 1, 0), (8, 65000, 32), (8, 8, 2097120)):
    ok(d.cuTexObjectCreate(of_memory(at, *sizes, U8), reading(), None))
bad += [d.cuTexObjectCreate(of_memory(at, *sizes, U8), reading(), None) for sizes in (
    (0, 1, 32), (131073, 1, 0), (8, 8, 2097152))]
bad += [d.cuTexObjectCreate(of_array(plane), reading(flags=flags), None) for flags in (0x80, 0x42)]
bad += [d.cuSurfObjectCreate(each) for each in (line, rows)]
texture = ok(d.cuTexObjectCreate(of_array(plane), reading(), None))
ok(d.cuSurfObjectDestroy(texture)), ok(d.cuTexObjectDestroy(int(texture) + 8))
bad.append(d.cuSurfObjectGetResourceDesc(texture))
assert ok(d.cuTexObjectGetResourceViewDesc(texture)).width == 0
ok(d.cuTexObjectDestroy(texture)), ok(d.cuTexObjectDestroy(texture))
bad.append(d.cuTexObjectGetTextureDesc(texture))
assert {name(each) for each in bad} == {"INVALID_VALUE"}, [name(each) for each in bad]
stream, fresh = ok(d.cuStreamCreate(1)), array(8)
ok(d.cuStreamBeginCapture(stream, d.CUstreamCaptureMode(0)))
print(name(created(8)), name(d.cuStreamEndCapture(stream)))
ok(d.cuStreamBeginCapture(stream, d.CUstreamCaptureMode(0)))
print(name(d.cuArrayDestroy(fresh)), name(d.cuStreamEndCapture(stream)))
ok(d.cuArrayDestroy(fresh))
print(name(d.cuArrayDestroy(fresh)), name(d.cuArray3DGetDescriptor(fresh)), name(d.cuArrayDestroy(texture)))
"""
    ).splitlines()
    assert out == [
        *["STREAM_CAPTURE_UNSUPPORTED STREAM_CAPTURE_INVALIDATED"] * 2,
        "CONTEXT_IS_DESTROYED CONTEXT_IS_DESTROYED INVALID_HANDLE",
    ]


def test_integers_are_filtered_as_on_an_h200() -> None:
    program("""
module = load('''
extern "C" __global__ void look(cudaTextureObject_t t, int *out) {
  out[threadIdx.x] = tex1D<int>(t, threadIdx.x * 0.125f - 0.5f);
}
''')
out, memory = np.zeros(44, np.int32), ok(d.cuMemAlloc(176))
for kind, dtype, values, mode, expected in (
    ("SIGNED_INT8", "int8", (-100, 100, -50, 25), 3, [
    0, -6, -12, -19, -25, -31, -37, -44, -50, -37, -25, -12, 0, 13, 25, 38, 50, 41, 31, 22, 13, 3, -6, -16,
    -25, -20, -16, -11, -6, -2, 3, 8, 13, 11, 9, 8, 6, 5, 3, 2, 0, 0, 0, 0]),
    ("UNSIGNED_INT16", "uint16", (0, 1000, 60000, 5), 3, [
    0, 0, 0, 0, 0, 0, 0, 0, 0, 63, 125, 188, 250, 313, 375, 438, 500, 4188, 7875, 11563, 15250, 18938, 22625,
    26313, 30000, 26250, 22501, 18751, 15001, 11252, 7502, 3752, 3, 2, 2, 2, 1, 1, 1, 0, 0, 0, 0, 0]),
    ("SIGNED_INT32", "int32", (-5, 1000, 1073741824, -1073741824), 3, [
    0, -1, -1, -1, -2, -2, -2, -3, -3, 60, 123, 185, 248, 311, 374, 437, 500, 67109301, 134218103, 201326904,
    268435706, 335544507, 402653309, 469762110, 536870912, 402653184, 268435456, 134217728, 0, -134217728,
    -268435456, -402653184, -536870912, -469762048, -402653184, -335544320, -268435456, -201326592,
    -134217728, -67108864, 0, 0, 0, 0]),
    ("UNSIGNED_INT32", "uint32", (0, 1000, 1073741824, 3221225472), 1, [
    0, 0, 0, 0, 0, 0, 0, 0, 0, 125, 250, 375, 500, 625, 750, 875, 1000, 134218603, 268436206, 402653809,
    536871412, 671089015, 805306618, 939524221, 1073741824, 1342177280, 1610612736, 1879048192, 2147483648,
    2415919104, 2684354560, 2952790016, 3221225472, 3221225472, 3221225472, 3221225472, 3221225472,
    3221225472, 3221225472, 3221225472, 3221225472, 3221225472, 3221225472, 3221225472]),
):
    line, data = array(4, kind=getattr(d.CUarray_format, f"CU_AD_FORMAT_{kind}")), np.array(values, dtype)
    ok(d.cuMemcpyHtoA(line, 0, data, data.nbytes))
    texture = ok(d.cuTexObjectCreate(of_array(line), reading(mode, 1, 1), None))
    ok(launch(function(module, "look"), (1,), (44,), ((int(texture), ctypes.c_uint64), (int(memory), P))))
    ok(d.cuMemcpyDtoH(out, memory, 176))
    found = out.view(np.uint32) if dtype.startswith("u") else out
    assert found.tolist() == expected, (kind, found)
""")


def test_border_has_its_own_value_in_each_channel() -> None:
    program("""
module = load('''
extern "C" __global__ void floats(cudaTextureObject_t t, float4 *out) { *out = tex1D<float4>(t, -2); }
extern "C" __global__ void ints(cudaTextureObject_t t, int4 *out) { *out = tex1D<int4>(t, -2); }
''')
memory = ok(d.cuMemAlloc(16))
for kind, by, border, expected in (
    (F32, "floats", (0.25, -1.5, 3e38, 7), (0.25, -1.5, 3e38, 7)),
    (d.CUarray_format.CU_AD_FORMAT_SIGNED_INT32, "ints", (5, -7, 1e10, float("nan")), (5, -7, 2**31 - 1, 0)),
):
    out = np.zeros(4, np.float32 if by == "floats" else np.int32)
    how = reading(3)
    how.borderColor = border
    texture = ok(d.cuTexObjectCreate(of_array(array(4, kind=kind, channels=4)), how, None))
    ok(launch(function(module, by), (1,), (1,), ((int(texture), ctypes.c_uint64), (int(memory), P))))
    ok(d.cuMemcpyDtoH(out, memory, 16))
    assert out.tolist() == np.array(expected, out.dtype).tolist(), out
""")


def test_view_shows_other_elements_and_some_layers() -> None:
    program(
        READ
        + """
line, layers = array(4), array(4, 2, 6, flags=LAYERED)
fill(line, np.array([1, 2, 3, 4], np.float32))
fill(layers, np.arange(48, dtype=np.float32).reshape(6, 2, 4))

def view(kind, width, height=0, depth=0, first=0, last=0):
    seen = d.CUDA_RESOURCE_VIEW_DESC()
    seen.format, seen.width, seen.height, seen.depth = d.CUresourceViewFormat(kind), width, height, depth
    seen.firstLayer, seen.lastLayer = first, last
    return seen

bytes_ = ok(d.cuTexObjectCreate(of_array(line), reading(), view(0x03, 4)))  # the bytes of 2.0 as floats
assert read(bytes_) == 0
words = np.array([0, 255, 0, 0], np.uint32).view(np.float32)
fill(line, words)
assert read(bytes_) == 1
some = ok(d.cuTexObjectCreate(of_array(layers), reading(), view(0x16, 4, 2, 6, 2, 4)))
assert [read(some, k, by="layer") for k in (0, 1, 2, 3)] == [17, 25, 33, 33]
assert ok(d.cuTexObjectGetResourceViewDesc(some)).lastLayer == 4
ok(d.cuTexObjectCreate(of_array(layers), reading(), view(0x16, 4, 2, 6, 5, 6)))
for wrong in (view(0x16, 5), view(0x16, 4, first=1, last=1), view(0x16, 4, 1), view(0, 4), view(0x17, 4), view(1, 4)):
    assert name(d.cuTexObjectCreate(of_array(line), reading(), wrong)) == "INVALID_VALUE"
"""
    )


def test_use_of_a_destroyed_handle_is_a_kernel_fault() -> None:
    lines, errors = run(
        BASE
        + READ
        + MEMORY
        + """
for case in ("a destroyed texture", "a destroyed array", "no handle", "null", "a surface", "a destroyed surface",
             "no memory"):
    ok(d.cuDevicePrimaryCtxRetain(0)); ok(d.cuCtxSetCurrent(context))
    module, memory = load(code), ok(d.cuMemAlloc(64))
    line = array(4, flags=SURFACE)
    fill(line, np.array([1, 2, 3, 4], np.float32))
    texture = ok(d.cuTexObjectCreate(of_array(line), reading(), None))
    surface = ok(d.cuSurfObjectCreate(of_array(line)))
    assert read(texture) == 2
    if case == "a destroyed texture": ok(d.cuTexObjectDestroy(texture))
    if case == "a destroyed array": ok(d.cuArrayDestroy(line))
    if case == "a destroyed surface":
        ok(d.cuSurfObjectDestroy(surface))
        ok(launch(function(module, "put"), (1,), (1,), ((int(surface), u64),)))
        print(case, name(d.cuCtxSynchronize()))
    elif case == "no memory":
        line = ok(d.cuTexObjectCreate(of_memory(1 << 40, 64), reading(), None))
        print(case, read(line, 2, by="fetch"))
    else:
        print(case, read({"no handle": 0x123456789ABC, "null": 0, "a surface": surface}.get(case, texture)))
    ok(d.cuDevicePrimaryCtxReset(0))
""",
    )
    assert lines == [
        f"{case} ILLEGAL_ADDRESS"
        for case in (
            "a destroyed texture",
            "a destroyed array",
            "no handle",
            "null",
            "a surface",
            "a destroyed surface",
            "no memory",
        )
    ]
    assert errors.count("no texture or surface, and no element of one, is at address ") == 6
    assert "tex.1d" in errors
    assert "sust.b.1d" in errors


def test_destroyed_context_frees_its_arrays_and_textures() -> None:
    out = program("""
free = ok(d.cuMemGetInfo())[0]
large = array(4096, 4096)
assert free - ok(d.cuMemGetInfo())[0] == 4096 * 4096 * 4
ok(d.cuArrayDestroy(large))
assert ok(d.cuMemGetInfo())[0] == free
mine = ok(d.cuCtxCreate(None, 0, 0))
line = array(1 << 15, flags=SURFACE)
texture, surface = ok(d.cuTexObjectCreate(of_array(line), reading(), None)), ok(d.cuSurfObjectCreate(of_array(line)))
ok(d.cuCtxDestroy(mine))
ok(d.cuCtxSetCurrent(context))
assert ok(d.cuMemGetInfo())[0] == free
print(name(d.cuArrayDestroy(line)), name(d.cuTexObjectGetResourceDesc(texture)),
      name(d.cuSurfObjectGetResourceDesc(surface)))
line, graph = array(4), ok(d.cuGraphCreate(0))
back = np.zeros(4, np.float32)
ok(d.cuGraphAddMemcpyNode(graph, None, 0, copy(("h", back.ctypes.data), ("a", line), 16), context))
executable = ok(d.cuGraphInstantiate(graph, 0))
ok(d.cuArrayDestroy(line))
print(name(d.cuGraphLaunch(executable, 0)))
handles = set()
for _ in range(3):
    line = array(8)
    texture = ok(d.cuTexObjectCreate(of_array(line), reading(), None))
    assert int(texture) not in handles and int(line) not in handles
    handles |= {int(texture), int(line)}
    ok(d.cuTexObjectDestroy(texture)); ok(d.cuArrayDestroy(line))
""")
    assert out == "CONTEXT_IS_DESTROYED INVALID_VALUE INVALID_VALUE\nINVALID_HANDLE\n"


def test_checks_treat_an_array_as_no_pointer_memory() -> None:
    lines, errors = run(
        BASE
        + READ
        + """
line, plain = array(4, flags=SURFACE), ok(d.cuMemAlloc(16))
ok(d.cuMemsetD32(plain, 0x40000000, 4))
ok(d.cuMemcpyDtoA(line, 0, plain, 16))
texture, surface = ok(d.cuTexObjectCreate(of_array(line), reading(), None)), ok(d.cuSurfObjectCreate(of_array(line)))
ok(launch(function(module, "put"), (1,), (1,), ((int(surface), u64),)))
assert read(texture) == 2 and content(line, (4,)).tolist() == [1, 2, 2, 2]
ok(d.cuMemcpyAtoD(plain, line, 0, 16)); ok(d.cuMemFree(plain))
ok(d.cuTexObjectDestroy(texture)); ok(d.cuSurfObjectDestroy(surface)); ok(d.cuArrayDestroy(line))

beside = load('extern "C" __global__ void beside(float *p, long long k) { p[k] = 1; }')
plain, space = ok(d.cuMemAlloc(256)), array(64)
# No program knows where an array lies; its cell says so.
far = ctypes.c_uint64.from_address(int(space) + 32).value - int(plain)
ok(launch(function(beside, "beside"), (1,), (1,), ((int(plain), P), (far // 4, ctypes.c_longlong))))
print(name(d.cuCtxSynchronize()))
""",
        check="memory,init",
    )
    assert lines == ["ILLEGAL_ADDRESS"]
    assert "fault of cujit" not in errors
    assert "kernel beside" in errors


def test_cube_is_read_by_directions_for_any_coordinates() -> None:
    program(
        READ
        + """
module = load('''
extern "C" __global__ void turn(cudaTextureObject_t one, cudaTextureObject_t two, float *out) {
  float y = 0.3f * threadIdx.x - 2.3f, z = 1.7f - 0.4f * threadIdx.x;
  out[2 * threadIdx.x] = texCubemap<float>(one, 1, y, z);
  out[2 * threadIdx.x + 1] = texCubemap<float>(two, 1, y, z);
}
''')
cube, memory, out = array(4, 4, 6, flags=CUBE), ok(d.cuMemAlloc(128)), np.zeros((16, 2), np.float32)
fill(cube, np.arange(96, dtype=np.float32).reshape(6, 4, 4))
both = [ok(d.cuTexObjectCreate(of_array(cube), reading(flags=flags), None)) for flags in (0, 2)]
ok(launch(function(module, "turn"), (1,), (16,), (*((int(each), u64) for each in both), (int(memory), P))))
ok(d.cuMemcpyDtoH(out, memory, 128))
assert (out[:, 0] == out[:, 1]).all() and len(set(out[:, 0])) > 5
"""
    )


def test_unsupported_feature_is_reported() -> None:
    out = program(
        MEMORY
        + """
said = d.CUDA_ARRAY3D_DESCRIPTOR()
said.Width, said.Height, said.Format, said.NumChannels = 8, 8, F32, 1
answers = [d.cuMipmappedArrayCreate(said, 2)]
for kind, flags in ((d.CUarray_format.CU_AD_FORMAT_NV12, 0), (F32, 0x100), (F32, 0x40), (F32, 0x80)):
    said.Format, said.Flags = kind, flags
    answers.append(d.cuArray3DCreate(said))
plane, cube = array(8, 8), array(8, 8, 6, flags=CUBE)
how = reading(linear=1, flags=2)
how.maxAnisotropy = 16
answers += [d.cuTexObjectCreate(of_array(each), how, None) for each, how in (
    (plane, how), (cube, reading(flags=0x42)))]
bits = d.CUDA_RESOURCE_VIEW_DESC()
bits.format, bits.width, bits.height = d.CUresourceViewFormat.CU_RES_VIEW_FORMAT_UNSIGNED_BC1, 8, 8
answers.append(d.cuTexObjectCreate(of_array(plane), reading(), bits))
print(*map(name, answers))
memory = int(ok(d.cuMemAlloc(4096)))
print(name(d.cuTexObjectCreate(of_memory(memory, 0, 8, 64), reading(), None)))
answers.pop()
d.cuTexObjectCreate(of_array(cube), reading(flags=0x42), None)
print(d.cuGetErrorString(answers[-1][0])[1].decode())
"""
    ).splitlines()
    assert out == [
        " ".join(["NOT_SUPPORTED"] * 8),
        "INVALID_VALUE",
        "the emulator doesn't support seamless cube maps",
    ]


def native(code: str) -> str:
    """Run a program on the GPU."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.gpu
@pytest.mark.parametrize(
    "test",
    [
        test_array_copies_match_numpy,
        test_copies_of_arrays_are_nodes_of_graphs,
        test_pitched_rows_are_read_in_place,
        test_view_shows_other_elements_and_some_layers,
        test_integers_are_filtered_as_on_an_h200,
        test_cube_is_read_by_directions_for_any_coordinates,
    ],
    ids=lambda test: test.__name__,
)
def test_results_match_a_gpu(test: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "python", native)
    test()
