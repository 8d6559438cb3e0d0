// Multiply two matrices of n rows and n columns. n is a multiple of 64.

extern "C" __global__ void naive(const float *a, const float *b, float *c, int n) {
    int column = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
    float sum = 0;
    for (int k = 0; k < n; k++)
        sum += a[row * n + k] * b[k * n + column];
    c[row * n + column] = sum;
}

extern "C" __global__ void optimized(const float *a, const float *b, float *c, int n) {
    // A block computes 64 x 64 elements of the product, and a thread computes 4 x 4 of them.
    __shared__ float left[16][68], right[16][64];
    int t = threadIdx.y * 16 + threadIdx.x, top = blockIdx.y * 64, first = blockIdx.x * 64;
    float sums[4][4] = {};
    for (int k = 0; k < n; k += 16) {
        float4 v = *reinterpret_cast<const float4 *>(&a[(top + t / 4) * n + k + t % 4 * 4]);
        left[t % 4 * 4][t / 4] = v.x, left[t % 4 * 4 + 1][t / 4] = v.y;
        left[t % 4 * 4 + 2][t / 4] = v.z, left[t % 4 * 4 + 3][t / 4] = v.w;
        *reinterpret_cast<float4 *>(&right[t / 16][t % 16 * 4]) =
            *reinterpret_cast<const float4 *>(&b[(k + t / 16) * n + first + t % 16 * 4]);
        __syncthreads();
        for (int i = 0; i < 16; i++) {
            float4 p = *reinterpret_cast<float4 *>(&left[i][threadIdx.y * 4]);
            float4 q = *reinterpret_cast<float4 *>(&right[i][threadIdx.x * 4]);
            float rows[] = {p.x, p.y, p.z, p.w}, columns[] = {q.x, q.y, q.z, q.w};
            for (int r = 0; r < 4; r++)
                for (int s = 0; s < 4; s++)
                    sums[r][s] += rows[r] * columns[s];
        }
        __syncthreads();
    }
    for (int r = 0; r < 4; r++)
        *reinterpret_cast<float4 *>(&c[(top + threadIdx.y * 4 + r) * n + first + threadIdx.x * 4]) =
            make_float4(sums[r][0], sums[r][1], sums[r][2], sums[r][3]);
}
