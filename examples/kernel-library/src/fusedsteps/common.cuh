// What both kernels need.
#pragma once

constexpr int warp_size = 32;

// The sum over a block, in every thread. `shared` has room for one value per warp.
template <typename T>
__device__ T block_sum(T value, T *shared)
{
    for (int distance = warp_size / 2; distance > 0; distance /= 2)
        value += __shfl_xor_sync(0xffffffff, value, distance);
    __syncthreads();
    if (threadIdx.x % warp_size == 0)
        shared[threadIdx.x / warp_size] = value;
    __syncthreads();
    T sum = 0;
    for (int warp = 0; warp < blockDim.x / warp_size; ++warp)
        sum += shared[warp];
    return sum;
}
