// Count the values of n bytes, a multiple of 16.

extern "C" __global__ void naive(const unsigned char *x, unsigned *counts, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        atomicAdd(&counts[x[i]], 1);
}

extern "C" __global__ void optimized(const unsigned char *x, unsigned *counts, int n) {
    __shared__ unsigned own[256];  // the counts of this block, which has 256 threads
    own[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n / 16; i += gridDim.x * blockDim.x) {
        uint4 v = reinterpret_cast<const uint4 *>(x)[i];
        for (unsigned word : {v.x, v.y, v.z, v.w})
            for (int shift = 0; shift < 32; shift += 8)
                atomicAdd(&own[word >> shift & 255], 1);
    }
    __syncthreads();
    atomicAdd(&counts[threadIdx.x], own[threadIdx.x]);
}
