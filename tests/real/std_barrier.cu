// Barriers, pipelines and asynchronous copies of libcu++. tests/real/test_std.py has the references.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda/barrier>
#include <cuda/pipeline>

#pragma nv_diag_suppress static_var_with_dynamic_init

namespace cg = cooperative_groups;
using Barrier = cuda::barrier<cuda::thread_scope_block>;

// Neighbours exchange values over some rounds; the barrier's completion is met in both of its halves.
extern "C" __global__ void rounds(const int *in, int *out, int count)
{
    __shared__ Barrier barrier;
    __shared__ int values[2][96];
    if (threadIdx.x == 0) init(&barrier, 96);
    __syncthreads();
    int value = in[threadIdx.x];
    for (int k = 0; k < count; k++) {
        values[k % 2][threadIdx.x] = value;
        Barrier::arrival_token token = barrier.arrive();
        int mine = value * 3;
        barrier.wait(cuda::std::move(token));
        value = mine + values[k % 2][(threadIdx.x + 1) % 96];
    }
    out[threadIdx.x] = value;
}

// The first warp fills a buffer, the second one empties it; two barriers say which is full and which is empty.
extern "C" __global__ void handed_in_turns(const int *in, int *out, int turns)
{
    __shared__ Barrier full, empty;
    __shared__ int buffer[32];
    if (threadIdx.x == 0) {
        init(&full, 64);
        init(&empty, 64);
    }
    __syncthreads();
    int lane = threadIdx.x % 32;
    if (threadIdx.x < 32) {
        for (int k = 0; k < turns; k++) {
            if (k) empty.arrive_and_wait();
            buffer[lane] = in[k * 32 + lane];
            (void)full.arrive();
        }
    } else {
        for (int k = 0; k < turns; k++) {
            full.arrive_and_wait();
            out[k * 32 + lane] = buffer[31 - lane] + k;
            if (k + 1 < turns) (void)empty.arrive();
        }
    }
}

// A barrier that also waits for a copy from global to shared memory.
extern "C" __global__ void copied_behind_a_barrier(const int4 *in, int *out)
{
    __shared__ Barrier barrier;
    __shared__ alignas(16) int4 tile[32];
    auto block = cg::this_thread_block();
    if (block.thread_rank() == 0) init(&barrier, block.size());
    block.sync();
    cuda::memcpy_async(block, tile, in + blockIdx.x * 32, cuda::aligned_size_t<16>(sizeof(tile)), barrier);
    barrier.arrive_and_wait();
    const int *words = reinterpret_cast<const int *>(tile);
    for (int k = threadIdx.x; k < 128; k += blockDim.x) out[blockIdx.x * 128 + k] = words[127 - k];
}

// The same with the group's own copy and wait.
extern "C" __global__ void copied_by_the_group(const int *in, int *out)
{
    __shared__ int tile[100];
    auto block = cg::this_thread_block();
    cg::memcpy_async(block, tile, in + blockIdx.x * 100, sizeof(tile));
    cg::wait(block);
    for (int k = threadIdx.x; k < 100; k += blockDim.x) out[blockIdx.x * 100 + k] = tile[99 - k];
}

// A pipeline of two stages, shared by the block: one tile is copied while another is summed.
extern "C" __global__ void pipelined(const int *in, int *out, int tiles)
{
    constexpr int SIZE = 64;
    __shared__ int stage[2][SIZE];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    auto block = cg::this_thread_block();
    auto pipeline = cuda::make_pipeline(block, &state);
    int sum = 0;
    for (int fetch = 0, tile = 0; tile < tiles; tile++) {
        for (; fetch < tiles && fetch < tile + 2; fetch++) {
            pipeline.producer_acquire();
            cuda::memcpy_async(block, stage[fetch % 2], in + fetch * SIZE, sizeof(int) * SIZE, pipeline);
            pipeline.producer_commit();
        }
        pipeline.consumer_wait();
        sum += stage[tile % 2][SIZE - 1 - threadIdx.x] * (tile + 1);
        pipeline.consumer_release();
    }
    out[threadIdx.x] = sum;
}

// A pipeline of each thread alone.
extern "C" __global__ void pipelined_alone(const int4 *in, int4 *out, int tiles)
{
    __shared__ alignas(16) int4 stage[2][64];
    auto pipeline = cuda::make_pipeline();
    int at = threadIdx.x;
    for (int fetch = 0, tile = 0; tile < tiles; tile++) {
        for (; fetch < tiles && fetch < tile + 2; fetch++) {
            pipeline.producer_acquire();
            cuda::memcpy_async(&stage[fetch % 2][at], in + fetch * 64 + at, cuda::aligned_size_t<16>(16), pipeline);
            pipeline.producer_commit();
        }
        cuda::pipeline_consumer_wait_prior<1>(pipeline);
        if (tile + 1 == tiles) cuda::pipeline_consumer_wait_prior<0>(pipeline);
        int4 v = stage[tile % 2][at];
        out[tile * 64 + at] = {v.w, v.z, v.y, v.x + tile};
        pipeline.consumer_release();
    }
}
