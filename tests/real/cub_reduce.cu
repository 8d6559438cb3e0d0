// Sums and scans of a block and of a warp by cub. tests/real/test_cub.py has the references.
#include <cub/block/block_reduce.cuh>
#include <cub/warp/warp_reduce.cuh>
#include <cub/warp/warp_scan.cuh>
#include <cuda/functional>

template <cub::BlockReduceAlgorithm How>
__device__ void sums_of_blocks(const int *in, int *out)
{
    using Reduce = cub::BlockReduce<int, 160, How>;
    __shared__ typename Reduce::TempStorage storage;
    int items[4];
    for (int k = 0; k < 4; k++) items[k] = in[(blockIdx.x * 160 + threadIdx.x) * 4 + k];
    int sum = Reduce(storage).Sum(items);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

extern "C" __global__ void sum_raking(const int *in, int *out) { sums_of_blocks<cub::BLOCK_REDUCE_RAKING>(in, out); }

extern "C" __global__ void sum_raking_commutative(const int *in, int *out)
{
    sums_of_blocks<cub::BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY>(in, out);
}

extern "C" __global__ void sum_by_warps(const int *in, int *out)
{
    sums_of_blocks<cub::BLOCK_REDUCE_WARP_REDUCTIONS>(in, out);
}

// The largest of the first n floats of each block, and where it is.
extern "C" __global__ void largest(const float *in, int n, float *value, int *place)
{
    using Pair = cub::KeyValuePair<int, float>;
    using Reduce = cub::BlockReduce<Pair, 96>;
    __shared__ typename Reduce::TempStorage storage;
    Pair best = Reduce(storage).Reduce(Pair((int)threadIdx.x, in[blockIdx.x * 96 + threadIdx.x]), cub::ArgMax(), n);
    if (threadIdx.x == 0) {
        value[blockIdx.x] = best.value;
        place[blockIdx.x] = best.key;
    }
}

// Sums of groups of 8 lanes, and of segments that begin where heads is not zero.
extern "C" __global__ void warp_reduce(const int *in, const int *heads, int *groups, int *segments)
{
    using Groups = cub::WarpReduce<int, 8>;
    using Segments = cub::WarpReduce<int>;
    __shared__ typename Groups::TempStorage group_storage[8];
    __shared__ typename Segments::TempStorage segment_storage[2];
    int at = threadIdx.x, sum = Groups(group_storage[at / 8]).Sum(in[at]);
    if (at % 8 == 0) groups[at / 8] = sum;
    segments[at] = Segments(segment_storage[at / 32]).HeadSegmentedSum(in[at], heads[at]);
}

// Prefix sums of warps (both kinds), the sum of the warp, and the prefix maximum of doubles in groups of 16 lanes.
extern "C" __global__ void warp_scan(const int *in, const double *x, int *before, int *with, int *all, double *most)
{
    using Scan = cub::WarpScan<int>;
    using Maxima = cub::WarpScan<double, 16>;
    __shared__ typename Scan::TempStorage storage[2];
    __shared__ typename Maxima::TempStorage maxima_storage[4];
    int at = threadIdx.x, aggregate;
    Scan(storage[at / 32]).ExclusiveSum(in[at], before[at], aggregate);
    __syncwarp();
    Scan(storage[at / 32]).InclusiveSum(in[at], with[at]);
    all[at] = aggregate;
    Maxima(maxima_storage[at / 16]).InclusiveScan(x[at], most[at], cuda::maximum<>{});
}
