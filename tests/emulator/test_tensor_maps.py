"""Tensor maps by the driver's functions, and copies by them."""

from __future__ import annotations

from emulator.test_launches import program


def test_map_is_used_as_the_devices_own() -> None:
    out = program('''
module = load("""
struct alignas(64) Map { unsigned long long words[16]; };
__device__ unsigned shared(const void *p) { return __cvta_generic_to_shared(p); }
extern "C" __global__ void take(const __grid_constant__ Map map, int x, int y, float *out) {
  __shared__ alignas(128) float box[32];
  __shared__ unsigned long long here;
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(shared(&here)) : "memory");
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 128;" :: "r"(shared(&here)) : "memory");
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%2, %3}], [%4];"
               :: "r"(shared(box)), "l"(&map), "r"(x), "r"(y), "r"(shared(&here)) : "memory");
  unsigned done = 0;
  while (!done)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done) : "r"(shared(&here)) : "memory");
  for (int k = 0; k < 32; k++) out[k] = box[k];
}
""")
take = function(module, "take")
table = ok(d.cuMemAlloc(4 * 16 * 16))
values = np.arange(256, dtype=np.float32).reshape(16, 16)
ok(d.cuMemcpyHtoD(table, values.ctypes.data, values.nbytes))
kinds, u32, u64 = d.CUtensorMapDataType, d.cuuint32_t, d.cuuint64_t

def encoded(strides=(64,), box=(8, 4), interleave=0):
    kind, sizes, swizzle = kinds.CU_TENSOR_MAP_DATA_TYPE_FLOAT32, (16, 16), 0
    rank = len(sizes)
    return d.cuTensorMapEncodeTiled(
        kind, rank, table, [*map(u64, sizes)], [*map(u64, strides)], [*map(u32, box)], [u32(1)] * rank,
        d.CUtensorMapInterleave(interleave), d.CUtensorMapSwizzle(swizzle), d.CUtensorMapL2promotion(0),
        d.CUtensorMapFloatOOBfill(0))

result, tensor_map = encoded()
print(result.name)
words = (ctypes.c_uint64 * 24)()
start = -(-ctypes.addressof(words) // 64) * 64
ctypes.memmove(start, tensor_map.getPtr(), 128)
out = np.zeros(32, np.float32)
holders = [ctypes.c_int(4), ctypes.c_int(14), P(out.ctypes.data)]
pointers = (P * 4)(start, *map(ctypes.addressof, holders))
ok(d.cuLaunchKernel(take, 1, 1, 1, 1, 1, 1, 0, 0, ctypes.addressof(pointers), 0))
wanted = np.zeros((4, 8), np.float32)
wanted[:2] = values[14:, 4:12]
print((out.reshape(4, 8) == wanted).all())
others = ok(d.cuMemAlloc(4 * 16 * 16))
ok(d.cuMemcpyHtoD(others, (values + 1000).ctypes.data, values.nbytes))
print(name(d.cuTensorMapReplaceAddress(tensor_map, int(others) + 8)), name(d.cuTensorMapReplaceAddress(None, others)))
ok(d.cuTensorMapReplaceAddress(tensor_map, others))
ctypes.memmove(start, tensor_map.getPtr(), 128)
ok(d.cuLaunchKernel(take, 1, 1, 1, 1, 1, 1, 0, 0, ctypes.addressof(pointers), 0))
wanted[:2] += 1000
print((out.reshape(4, 8) == wanted).all())
print(name(encoded(strides=(60,))), name(encoded(box=(300, 4))), name(encoded(interleave=1)), name(encoded(box=(2, 4))))

def images(channels, pixels):
    answer = d.cuTensorMapEncodeIm2col(
        kinds.CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 3, table, [*map(u64, (4, 16, 4))], [*map(u64, (16, 256))], [-1], [1],
        channels, pixels, [u32(1)] * 3, d.CUtensorMapInterleave(0), d.CUtensorMapSwizzle(0),
        d.CUtensorMapL2promotion(0), d.CUtensorMapFloatOOBfill(0))
    return name(answer[:1])
print(images(4, 8), images(2, 8), images(4, 0))
''').splitlines()
    assert out == [
        "CUDA_SUCCESS",
        "True",
        "INVALID_VALUE INVALID_VALUE",
        "True",
        "INVALID_VALUE INVALID_VALUE NOT_SUPPORTED INVALID_VALUE",
        "CUDA_SUCCESS INVALID_VALUE INVALID_VALUE",
    ]


BOXES = '''
def source(rank, is_store):
    names = ", ".join("xyzuv"[:rank])
    places = ", ".join("%%%d" % (k + 2) for k in range(rank))
    given = ", ".join(f'"r"({each})' for each in names.split(", "))
    start = """
struct alignas(64) Map { unsigned long long words[16]; };
__device__ unsigned shared(const void *p) { return __cvta_generic_to_shared(p); }
extern "C" __global__ void copy(const __grid_constant__ Map map, int x, int y, int z, int u, int v, int *other,
                                int bytes) {
  __shared__ alignas(1024) int box[1024];
  __shared__ unsigned long long here;
"""
    store = f"""
  for (int k = 0; k < bytes / 4; k++) box[k] = other[k];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  asm volatile("cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group [%0, {{{places}}}], [%1];"
               :: "l"(&map), "r"(shared(box)), {given} : "memory");
  asm volatile("cp.async.bulk.commit_group;");
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}}"""
    load = f"""
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(shared(&here)) : "memory");
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(shared(&here)), "r"(bytes) : "memory");
  asm volatile("cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
               "[%0], [%1, {{{places}}}], [%{rank + 2}];"
               :: "r"(shared(box)), "l"(&map), {given}, "r"(shared(&here)) : "memory");
  unsigned done = 0;
  while (!done)
    asm volatile("{{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }}"
                 : "=r"(done) : "r"(shared(&here)) : "memory");
  for (int k = 0; k < bytes / 4; k++) other[k] = box[k];
}}"""
    return start + (store if is_store else load)

def copier(rank, is_store=False):
    return function(load(source(rank, is_store)), "copy")

def encoded(table, box, kind, swizzle=0, fill=0, steps=None):
    """The map of an array in the device's memory; its axes go from the outermost inward, as the array's do."""
    at, array = table
    u32, u64, rank = d.cuuint32_t, d.cuuint64_t, array.ndim
    inward = lambda type_, of: [*map(type_, reversed([*of]))]
    return ok(d.cuTensorMapEncodeTiled(
        kind, rank, at, inward(u64, array.shape), inward(u64, array.strides[:-1]), inward(u32, box),
        inward(u32, steps or [1] * rank), d.CUtensorMapInterleave(0), d.CUtensorMapSwizzle(swizzle),
        d.CUtensorMapL2promotion(0), d.CUtensorMapFloatOOBfill(fill)))

def copied(copy, tensor_map, place, other):
    words = (ctypes.c_uint64 * 24)()
    start = -(-ctypes.addressof(words) // 64) * 64
    ctypes.memmove(start, tensor_map.getPtr(), 128)
    numbers = [*reversed(place), 0, 0, 0, 0, 0][:5]
    holders = [*map(I, numbers), P(other.ctypes.data), I(other.nbytes)]
    pointers = (P * 8)(start, *map(ctypes.addressof, holders))
    ok(d.cuLaunchKernel(copy, 1, 1, 1, 1, 1, 1, 0, 0, ctypes.addressof(pointers), 0))
    ok(d.cuCtxSynchronize())
    return other

def on_device(array):
    at = int(ok(d.cuMemAlloc(array.nbytes)))
    ok(d.cuMemcpyHtoD(at, array.ctypes.data, array.nbytes))
    return at, array

KINDS = d.CUtensorMapDataType
INT, FLOAT = KINDS.CU_TENSOR_MAP_DATA_TYPE_INT32, KINDS.CU_TENSOR_MAP_DATA_TYPE_FLOAT32
'''


def test_boxes_of_every_rank_are_copied_with_zeros_outside() -> None:
    program(
        BOXES
        + """
for shape, box, place in (
    ((64,), (16,), (56,)),
    ((12, 16), (3, 8), (-1, 12)),
    ((5, 6, 8), (2, 3, 4), (4, -2, 4)),
    ((3, 4, 5, 8), (2, 1, 3, 8), (2, 3, 3, -4)),
    ((2, 3, 4, 5, 8), (2, 1, 2, 2, 4), (-1, 2, 3, 4, 4)),
):
    array = np.arange(1, np.prod(shape) + 1, dtype=np.int32).reshape(shape)
    wanted = np.zeros(box, np.int32)
    for each in np.ndindex(*box):
        at = tuple(a + b for a, b in zip(place, each))
        if all(0 <= a < most for a, most in zip(at, shape)):
            wanted[each] = array[at]
    assert wanted.any() and not wanted.all()
    out = np.full(box, -1, np.int32)
    copied(copier(len(shape)), encoded(on_device(array), box, INT), place, out)
    assert (out == wanted).all(), (shape, out, wanted)
"""
    )


def test_boxes_are_stored_without_elements_outside() -> None:
    program(
        BOXES
        + """
array = np.zeros((8, 16), np.int32)
table = on_device(array)
tensor_map, store = encoded(table, (4, 8), INT), copier(2, is_store=True)
values = np.arange(1, 33, dtype=np.int32).reshape(4, 8)
wanted = array.copy()
for y, x in ((0, 0), (2, 4), (6, 12), (-2, 12)):
    copied(store, tensor_map, (y, x), values)
    for j, i in np.ndindex(4, 8):
        if 0 <= y + j < 8 and 0 <= x + i < 16:
            wanted[y + j, x + i] = values[j, i]
    out = np.empty_like(array)
    ok(d.cuMemcpyDtoH(out.ctypes.data, table[0], out.nbytes))
    assert (out == wanted).all(), (y, x, out)
"""
    )


def test_map_swizzles_strides_and_fills_with_nan() -> None:
    program(
        BOXES
        + """
array = np.arange(1, 32 * 64 + 1, dtype=np.int32).reshape(32, 64)
table, load_2d = on_device(array), copier(2)
# The pieces of 16 bytes of a line change places by the line's number: 128, 64 and 32 bytes wide.
for swizzle, width, lines, most in ((3, 32, 1, 8), (2, 16, 2, 4), (1, 8, 4, 2)):
    out = copied(load_2d, encoded(table, (16, width), INT, swizzle), (8, 16), np.zeros((16, width), np.int32))
    wanted = array[8:24, 16 : 16 + width].reshape(16, most, 4)
    for line in range(16):
        for piece in range(most):
            assert (out.reshape(16, most, 4)[line, piece ^ line // lines % most] == wanted[line, piece]).all(), swizzle

# The step of the innermost axis is ignored.
for steps, lines in (((4, 2), 4), ((3, 1), 6)):
    out = copied(load_2d, encoded(table, (16, 16), INT, steps=steps), (0, 0), np.zeros((lines, 16), np.int32))
    assert (out == array[: 16 : steps[0], :16]).all(), out

floats = on_device(np.arange(256, dtype=np.float32).reshape(16, 16))
for fill in (0, 1):
    out = copied(load_2d, encoded(floats, (2, 8), FLOAT, fill=fill), (15, 12), np.full((2, 8), 7, np.float32))
    beyond = np.ones((2, 8), bool)
    beyond[0, :4] = False
    assert (out[~beyond] == [252, 253, 254, 255]).all()
    assert np.isnan(out[beyond]).all() if fill else not out[beyond].any(), out
"""
    )
