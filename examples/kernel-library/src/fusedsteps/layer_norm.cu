#include "common.cuh"

// One block for each row.
template <typename T>
__global__ void layer_norm(const T *x, const T *weight, const T *bias, T *out, int width, T epsilon)
{
    __shared__ T shared[32];
    x += (size_t)blockIdx.x * width;
    out += (size_t)blockIdx.x * width;
    T sum = 0;
    for (int i = threadIdx.x; i < width; i += blockDim.x)
        sum += x[i];
    const T mean = block_sum(sum, shared) / width;
    T squares = 0;
    for (int i = threadIdx.x; i < width; i += blockDim.x)
        squares += (x[i] - mean) * (x[i] - mean);
    const T scale = T(1) / sqrt(block_sum(squares, shared) / width + epsilon);
    for (int i = threadIdx.x; i < width; i += blockDim.x)
        out[i] = (x[i] - mean) * scale * weight[i] + bias[i];
}
