#include "block.cuh"

// A block for each row. The number of its threads is a power of two, 1024 at most.
template <typename T> __global__ void softmax(const T *x, T *y, int width) {
    __shared__ T room[1024];
    x += blockIdx.x * (size_t)width;
    y += blockIdx.x * (size_t)width;
    T largest = x[0], sum = 0;
    for (int i = threadIdx.x; i < width; i += blockDim.x) largest = Largest()(largest, x[i]);
    largest = over_block(largest, room, Largest());
    for (int i = threadIdx.x; i < width; i += blockDim.x) sum += exp(x[i] - largest);
    sum = over_block(sum, room, Sum());
    for (int i = threadIdx.x; i < width; i += blockDim.x) y[i] = exp(x[i] - largest) / sum;
}
