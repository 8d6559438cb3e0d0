"""What the driver says of occupancy: the limits of a multiprocessor, and launches that clients choose by them."""

from __future__ import annotations

from emulator.test_launches import program


def test_occupancy_is_that_of_a_multiprocessor_of_the_emulated_device() -> None:
    out = program('''
module = load("""
extern "C" __global__ void plain(int *p) { *p = 1; }
extern "C" __global__ void __launch_bounds__(128) bounded(int *p) { *p = 1; }
extern "C" __global__ void shares(int *p) {
  __shared__ int room[8192];
  room[threadIdx.x] = *p;
  __syncthreads();
  *p = room[*p];
}
""")
plain, bounded, shares = (function(module, each) for each in ("plain", "bounded", "shares"))
count = d.cuOccupancyMaxActiveBlocksPerMultiprocessor
print(*(ok(count(plain, threads, 0)) for threads in (1, 32, 33, 64, 65, 128, 1000, 1024, 1025)))
print(ok(count(bounded, 128, 0)), ok(count(bounded, 129, 0)),
      *(ok(count(shares, 32, size)) for size in (0, 1 << 14, 1 << 17)))
print(ok(d.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(plain, 64, 0, 1)),
      name(d.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(plain, 64, 0, 2)), name(count(plain, 0, 0)),
      name(count(0, 1, 0)))
processors = ok(d.cuDeviceGetAttribute(d.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0))
best = d.cuOccupancyMaxPotentialBlockSize
for f, size, most in ((plain, 0, 0), (plain, 0, 100), (bounded, 0, 0), (shares, 0, 0)):
    grid, block = ok(best(f, None, size, most))
    print(block, grid // processors, end=" ")
callback = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_int)(lambda threads: 256 * threads)
grid, block = ok(best(plain, d.CUoccupancyB2DSize(_ptr=ctypes.addressof(callback)), 0, 0))
print(block, grid // processors)
print(ok(d.cuOccupancyAvailableDynamicSMemPerBlock(plain, 2, 128)),
      ok(d.cuOccupancyAvailableDynamicSMemPerBlock(shares, 1, 32)))
full = function(load("""
extern "C" __global__ void full(int *p) { __shared__ char all[45568]; all[threadIdx.x] = *p; *p = all[*p]; }
"""), "full")
print(ok(d.cuOccupancyAvailableDynamicSMemPerBlock(full, 5, 32)))
config = d.CUlaunchConfig()
config.gridDimX, config.gridDimY, config.gridDimZ = 64, 1, 1
config.blockDimX, config.blockDimY, config.blockDimZ = 128, 1, 1
print(ok(d.cuOccupancyMaxPotentialClusterSize(plain, config)))
attribute = d.CUlaunchAttribute()
attribute.id = d.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
attribute.value.clusterDim.x, attribute.value.clusterDim.y, attribute.value.clusterDim.z = 4, 1, 1
config.attrs, config.numAttrs = [attribute], 1
print(ok(d.cuOccupancyMaxActiveClusters(plain, config)) == processors * 16 // 4)
''').splitlines()
    assert out == [
        "32 32 32 32 21 16 2 2 0",
        "16 0 6 4 1",
        "32 INVALID_VALUE INVALID_VALUE INVALID_HANDLE",
        # All 2048 threads can be there in blocks of 1024, and of 64 where 100 are the most.
        "1024 2 64 32 128 16 1024 2 896 1",
        "115712 199680",
        "0",
        "8",
        "True",
    ]
