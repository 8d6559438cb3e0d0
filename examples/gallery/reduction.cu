// Add up n integers, a multiple of four.

extern "C" __global__ void naive(const int *x, int *total, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        atomicAdd(total, x[i]);
}

extern "C" __global__ void optimized(const int *x, int *total, int n) {
    __shared__ int warps[8];
    int sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n / 4; i += gridDim.x * blockDim.x) {
        int4 four = reinterpret_cast<const int4 *>(x)[i];
        sum += four.x + four.y + four.z + four.w;
    }
    sum = __reduce_add_sync(~0u, sum);
    if (threadIdx.x % 32 == 0)
        warps[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int k = 1; k < 8; k++)
            sum += warps[k];
        atomicAdd(total, sum);
    }
}
