extern "C" __global__ void stride(const float *x, float *sums, int n)
{
    __shared__ float part[8];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += x[i];
    for (int far = 16; far > 0; far /= 2) sum += __shfl_down_sync(0xffffffff, sum, far);
    if (lane == 0) part[warp] = sum;
    __syncthreads();
    if (warp == 0) {
        sum = lane < 8 ? part[lane] : 0.0f;
        for (int far = 4; far > 0; far /= 2) sum += __shfl_down_sync(0xffffffff, sum, far);
        if (lane == 0) sums[blockIdx.x] = sum;
    }
}
