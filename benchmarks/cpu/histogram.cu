extern "C" __global__ void clear(const unsigned *words, unsigned *count, int n)
{
    count[threadIdx.x] = 0;
}

extern "C" __global__ void histogram(const unsigned *words, unsigned *count, int n)
{
    __shared__ unsigned own[256];
    own[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        unsigned word = words[i];
        for (int k = 0; k < 4; k++) atomicAdd(&own[(word >> (8 * k)) & 255], 1);
    }
    __syncthreads();
    atomicAdd(&count[threadIdx.x], own[threadIdx.x]);
}
