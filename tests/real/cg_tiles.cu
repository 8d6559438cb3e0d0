// Cooperative groups within a block. tests/real/test_groups.py has the references.
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

// Who is who in a block of three dimensions, and its barrier.
extern "C" __global__ void block_group(int *ranks, int *reversed)
{
    cg::thread_block block = cg::this_thread_block();
    __shared__ int shared[256];
    int rank = (int)block.thread_rank(), size = (int)block.size();
    shared[rank] = rank + 1000 * (int)block.group_index().x;
    block.sync();
    int at = blockIdx.x * size + threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    ranks[at] = rank;
    reversed[at] = shared[size - 1 - rank];
}

// Shuffles of tiles of N threads.
template <int N>
__device__ void tile_shuffles(const int *in, int *up, int *down, int *across, int *first)
{
    auto tile = cg::tiled_partition<N>(cg::this_thread_block());
    int at = blockIdx.x * blockDim.x + threadIdx.x, x = in[at];
    up[at] = tile.shfl_up(x, 1);
    down[at] = tile.shfl_down(x, N / 2);
    across[at] = tile.shfl_xor(x, N - 1);
    first[at] = tile.shfl(x, (int)(tile.meta_group_rank() % N));
}

extern "C" __global__ void tile_4(const int *in, int *up, int *down, int *across, int *first)
{
    tile_shuffles<4>(in, up, down, across, first);
}

extern "C" __global__ void tile_32(const int *in, int *up, int *down, int *across, int *first)
{
    tile_shuffles<32>(in, up, down, across, first);
}

// Votes and matches of tiles of eight threads.
extern "C" __global__ void tile_votes(const int *in, int *ballot, int *any, int *all, int *same, int *agreed)
{
    auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    int at = blockIdx.x * blockDim.x + threadIdx.x, x = in[at], agree;
    ballot[at] = (int)tile.ballot(x & 1);
    any[at] = tile.any(x > 5);
    all[at] = tile.all(x < 7);
    same[at] = (int)tile.match_any(x);
    tile.match_all(x / 8, agree);
    agreed[at] = agree;
}

// A tile of two warps, which needs memory of the block: the sum of its ranks' values by shuffle-free steps.
extern "C" __global__ void wide_tile(const int *in, int *out)
{
    __shared__ cg::block_tile_memory<128> memory;
    auto block = cg::this_thread_block(memory);
    auto tile = cg::tiled_partition<64>(block);
    __shared__ int values[128];
    int at = (int)block.thread_rank();
    values[at] = in[at];
    tile.sync();
    int base = (int)tile.meta_group_rank() * 64, sum = 0;
    for (int k = 0; k < 64; k++) sum += values[base + k];
    out[at] = sum + (int)tile.thread_rank() + 1000 * tile.any(in[at] == 77);
}

// Lanes that take a branch form a group; one of them adds for all, and each gets a place of its own.
extern "C" __global__ void append_positive(const int *in, int n, int *out, int *count)
{
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < n && in[at] > 0) {
        cg::coalesced_group active = cg::coalesced_threads();
        int place = 0;
        if (active.thread_rank() == 0) place = atomicAdd(count, (int)active.size());
        place = active.shfl(place, 0) + (int)active.thread_rank();
        out[place] = in[at];
    }
}

// A coalesced group of the odd lanes: sizes, neighbours and votes are counted within the group.
extern "C" __global__ void odd_lanes(const int *in, int *size, int *rank, int *previous, int *votes)
{
    int at = threadIdx.x;
    size[at] = rank[at] = previous[at] = votes[at] = -1;
    if (at & 1) {
        auto odd = cg::coalesced_threads();
        size[at] = (int)odd.size();
        rank[at] = (int)odd.thread_rank();
        previous[at] = odd.shfl_up(in[at], 2);
        votes[at] = (int)odd.ballot(in[at] > 50);
    }
}
