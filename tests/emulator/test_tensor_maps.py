"""Tensor maps by the driver's functions, and copies by them."""

from __future__ import annotations

from emulator.test_launches import program


def test_a_map_is_copied_by_as_the_devices_own() -> None:
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
