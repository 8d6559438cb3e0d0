// Transpose a matrix of n rows and n columns.

extern "C" __global__ void naive(const float *x, float *y, int n) {
    int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 8 + threadIdx.y;
    y[column * n + row] = x[row * n + column];
}

extern "C" __global__ void optimized(const float *x, float *y, int n) {
    __shared__ float tile[32][33];  // one more column: the threads of a warp then read different banks
    int left = blockIdx.x * 32, top = blockIdx.y * 32;
    for (int k = threadIdx.y; k < 32; k += 8)
        tile[k][threadIdx.x] = x[(top + k) * n + left + threadIdx.x];
    __syncthreads();
    for (int k = threadIdx.y; k < 32; k += 8)
        y[(left + k) * n + top + threadIdx.x] = tile[threadIdx.x][k];
}
