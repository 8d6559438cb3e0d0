// Reductions, scans and partitions of cooperative groups. tests/real/test_groups.py has the references.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

namespace cg = cooperative_groups;

extern "C" __global__ void reduce_tiles(const int *in, const float *x, int *sum, int *most, int *bits, float *least)
{
    auto block = cg::this_thread_block();
    auto warp = cg::tiled_partition<32>(block);
    auto tile = cg::tiled_partition<16>(block);
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    sum[at] = cg::reduce(warp, in[at], cg::plus<int>());
    most[at] = cg::reduce(tile, in[at], cg::greater<int>());
    bits[at] = cg::reduce(warp, in[at], cg::bit_xor<int>());
    least[at] = cg::reduce(tile, x[at], cg::less<float>());
}

extern "C" __global__ void reduce_coalesced(const int *in, int *sum)
{
    int at = threadIdx.x;
    sum[at] = 0;
    if (in[at] % 3 == 0) sum[at] = cg::reduce(cg::coalesced_threads(), in[at], cg::plus<int>());
}

// Every tile adds its sum to one word in memory.
extern "C" __global__ void reduce_into_memory(const int *in, int *total)
{
    auto tile = cg::tiled_partition<32>(cg::this_thread_block());
    cuda::atomic_ref<int, cuda::thread_scope_device> sum(*total);
    cg::reduce_update_async(tile, sum, in[blockIdx.x * blockDim.x + threadIdx.x], cg::plus<int>());
}

extern "C" __global__ void scan_tiles(const int *in, int *before, int *with, int *most)
{
    auto tile = cg::tiled_partition<16>(cg::this_thread_block());
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    before[at] = cg::exclusive_scan(tile, in[at]);
    with[at] = cg::inclusive_scan(tile, in[at]);
    most[at] = cg::inclusive_scan(tile, in[at], cg::greater<int>());
}

extern "C" __global__ void scan_coalesced(const int *in, int *before)
{
    int at = threadIdx.x;
    before[at] = -1;
    if (in[at] & 2) before[at] = cg::exclusive_scan(cg::coalesced_threads(), in[at]);
}

// Lanes with the same label form a group: its size and the sum of its values.
extern "C" __global__ void by_label(const int *labels, const int *in, int *size, int *sum, int *rank)
{
    int at = threadIdx.x;
    auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    auto group = cg::labeled_partition(warp, labels[at]);
    size[at] = (int)group.size();
    rank[at] = (int)group.thread_rank();
    sum[at] = cg::reduce(group, in[at], cg::plus<int>());
}

extern "C" __global__ void by_predicate(const int *in, int *size, int *sum)
{
    int at = threadIdx.x;
    auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    auto half = cg::binary_partition(warp, in[at] > 40);
    size[at] = (int)half.size();
    sum[at] = cg::reduce(half, in[at], cg::plus<int>());
}

// One thread of a group runs a function for it.
extern "C" __global__ void one_of_all(int *calls, int *seen)
{
    auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    cg::invoke_one(tile, [&] { atomicAdd(calls, 1); });
    seen[threadIdx.x] = cg::invoke_one_broadcast(tile, [&] { return 100 + (int)tile.meta_group_rank(); });
}
