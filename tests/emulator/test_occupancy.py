"""What the driver says of occupancy: the limits of a multiprocessor, and launches that clients choose by them."""

from __future__ import annotations

from emulator.test_launches import program


def test_occupancy_matches_the_emulated_sm() -> None:
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


def test_suggested_block_has_the_highest_occupancy() -> None:
    program('''
module = load("""
extern "C" __global__ void square(int *p, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) p[i] *= p[i];
}
extern "C" __global__ void __launch_bounds__(192) bounded(int *p, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) p[i] *= p[i];
}
extern "C" __global__ void roomy(int *p, int n) {
  __shared__ int room[10000];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  room[threadIdx.x] = p[i];
  p[i] = room[threadIdx.x] * room[threadIdx.x];
}
""")
processors = ok(d.cuDeviceGetAttribute(d.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0))
most_threads = d.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
n = 5000
for each in ("square", "bounded", "roomy"):
    f = function(module, each)
    blocks = lambda threads: ok(d.cuOccupancyMaxActiveBlocksPerMultiprocessor(f, threads, 0))
    grid, block = ok(d.cuOccupancyMaxPotentialBlockSize(f, None, 0, 0))
    sizes = range(32, ok(d.cuFuncGetAttribute(most_threads, f)) + 1, 32)
    assert block in sizes and grid == blocks(block) * processors
    assert block * blocks(block) == max(size * blocks(size) for size in sizes), each
    values = np.arange(n, dtype=np.int32)
    ok(launch(f, (-(-n // block),), (block,), ((values.ctypes.data, P), (n, I))))
    ok(d.cuCtxSynchronize())
    assert (values == np.arange(n) ** 2).all(), each
''')


def test_as_many_cooperative_blocks_run_as_occupancy_says() -> None:
    program('''
meet = function(load("""
extern "C" __global__ void meet(unsigned *here, unsigned *seen) {
  __shared__ unsigned room[6000];
  if (threadIdx.x) return;
  room[0] = atomicAdd(here, 1) + 1;
  while (*(volatile unsigned *)here < gridDim.x);
  seen[blockIdx.x] = room[0];
}
"""), "meet")
processors = ok(d.cuDeviceGetAttribute(d.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0))
for threads in (512, 1024):
    most = ok(d.cuOccupancyMaxActiveBlocksPerMultiprocessor(meet, threads, 0)) * processors
    here, seen = np.zeros(1, np.uint32), np.zeros(most + 1, np.uint32)
    values = (here.ctypes.data, seen.ctypes.data), (P, P)
    run = lambda blocks: d.cuLaunchCooperativeKernel(meet, blocks, 1, 1, threads, 1, 1, 0, 0, values)
    assert name(run(most + 1)) == "COOPERATIVE_LAUNCH_TOO_LARGE" and not here[0]
    ok(run(most))
    ok(d.cuCtxSynchronize())
    assert here[0] == most and sorted(seen) == [*range(most + 1)], (threads, most)
''')


def test_remaining_shared_memory_allows_the_blocks() -> None:
    program('''
module = load("""
extern "C" __global__ void fill(int *p) {
  extern __shared__ int room[];
  room[threadIdx.x] = threadIdx.x;
  __syncthreads();
  p[threadIdx.x] = room[blockDim.x - 1 - threadIdx.x];
}
""")
fill, limit = function(module, "fill"), d.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
optin = ok(d.cuDeviceGetAttribute(
    d.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 0))
ok(d.cuFuncSetAttribute(fill, limit, optin))
blocks = lambda size: ok(d.cuOccupancyMaxActiveBlocksPerMultiprocessor(fill, 64, size))
rooms = [ok(d.cuOccupancyAvailableDynamicSMemPerBlock(fill, count, 64)) for count in range(1, 33)]
assert rooms == sorted(rooms, reverse=True) and 0 < rooms[-1] < rooms[0] <= optin, rooms
for count, room in enumerate(rooms, 1):
    assert blocks(room) >= count, (count, room)
    assert room == optin or blocks(room + 1) < count, (count, room)
out = np.zeros(64, np.int32)
ok(launch(fill, (1,), (64,), ((out.ctypes.data, P),), shared=rooms[0]))
ok(d.cuCtxSynchronize())
assert out.tolist() == [*range(63, -1, -1)]
assert name(launch(fill, (1,), (64,), ((out.ctypes.data, P),), shared=optin + 1)) == "INVALID_VALUE"
''')
