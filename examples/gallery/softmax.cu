// Compute the softmax of each row. A row has 1,024 floats.

extern "C" __global__ void naive(const float *x, float *y, int rows) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows)
        return;
    float largest = x[row * 1024], sum = 0;
    for (int k = 1; k < 1024; k++)
        largest = fmaxf(largest, x[row * 1024 + k]);
    for (int k = 0; k < 1024; k++)
        sum += expf(x[row * 1024 + k] - largest);
    for (int k = 0; k < 1024; k++)
        y[row * 1024 + k] = expf(x[row * 1024 + k] - largest) / sum;
}

extern "C" __global__ void optimized(const float *x, float *y, int rows) {
    // A warp computes a row, and a thread keeps 32 elements in registers.
    int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows)
        return;
    const float4 *from = reinterpret_cast<const float4 *>(x + row * 1024);
    float4 v[8];
    float largest = -1e38f, sum = 0;
    for (int k = 0; k < 8; k++) {
        v[k] = from[k * 32 + threadIdx.x];
        largest = fmaxf(largest, fmaxf(fmaxf(v[k].x, v[k].y), fmaxf(v[k].z, v[k].w)));
    }
    for (int step = 16; step; step /= 2)
        largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, step));
    for (int k = 0; k < 8; k++) {
        v[k] = make_float4(__expf(v[k].x - largest), __expf(v[k].y - largest), __expf(v[k].z - largest),
                           __expf(v[k].w - largest));
        sum += v[k].x + v[k].y + v[k].z + v[k].w;
    }
    for (int step = 16; step; step /= 2)
        sum += __shfl_xor_sync(~0u, sum, step);
    float scale = 1 / sum;
    for (int k = 0; k < 8; k++)
        reinterpret_cast<float4 *>(y + row * 1024)[k * 32 + threadIdx.x] =
            make_float4(v[k].x * scale, v[k].y * scale, v[k].z * scale, v[k].w * scale);
}
