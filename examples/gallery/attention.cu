// Compute attention of n queries to n keys and values, for each head. A head has 64 dimensions.

extern "C" __global__ void naive(const float *q, const float *k, const float *v, float *y, int n) {
    int query = blockIdx.x * blockDim.x + threadIdx.x;
    long head = blockIdx.y * n * 64L;
    float largest = -1e38f, sum = 0, result[64] = {};
    for (int key = 0; key < n; key++) {
        float score = 0;
        for (int d = 0; d < 64; d++)
            score += q[head + query * 64 + d] * k[head + key * 64 + d];
        score *= 0.125f;
        float top = fmaxf(largest, score), keep = expf(largest - top), weight = expf(score - top);
        sum = sum * keep + weight;
        for (int d = 0; d < 64; d++)
            result[d] = result[d] * keep + weight * v[head + key * 64 + d];
        largest = top;
    }
    for (int d = 0; d < 64; d++)
        y[head + query * 64 + d] = result[d] / sum;
}

extern "C" __global__ void optimized(const float *q, const float *k, const float *v, float *y, int n) {
    // Four threads compute one query. Each has 16 of the 64 dimensions, in pieces of four.
    __shared__ float4 keys[32][16], values[32][16];
    int part = threadIdx.x % 4, query = blockIdx.x * 64 + threadIdx.x / 4;
    long head = blockIdx.y * n * 16L;
    const float4 *keys_of = reinterpret_cast<const float4 *>(k) + head;
    const float4 *values_of = reinterpret_cast<const float4 *>(v) + head;
    float4 own[4], result[4] = {};
    float largest = -1e38f, sum = 0;
    for (int j = 0; j < 4; j++)
        own[j] = reinterpret_cast<const float4 *>(q)[head + query * 16 + j * 4 + part];
    for (int first = 0; first < n; first += 32) {
        for (int i = threadIdx.x; i < 512; i += 256) {
            keys[i / 16][i % 16] = keys_of[first * 16 + i];
            values[i / 16][i % 16] = values_of[first * 16 + i];
        }
        __syncthreads();
        for (int key = 0; key < 32; key++) {
            float score = 0;
            for (int j = 0; j < 4; j++) {
                float4 a = own[j], b = keys[key][j * 4 + part];
                score += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
            }
            score += __shfl_xor_sync(~0u, score, 1);
            score = (score + __shfl_xor_sync(~0u, score, 2)) * 0.125f;
            float top = fmaxf(largest, score), keep = __expf(largest - top), weight = __expf(score - top);
            sum = sum * keep + weight;
            for (int j = 0; j < 4; j++) {
                float4 b = values[key][j * 4 + part];
                result[j] = make_float4(result[j].x * keep + weight * b.x, result[j].y * keep + weight * b.y,
                                        result[j].z * keep + weight * b.z, result[j].w * keep + weight * b.w);
            }
            largest = top;
        }
        __syncthreads();
    }
    for (int j = 0; j < 4; j++)
        reinterpret_cast<float4 *>(y)[head + query * 16 + j * 4 + part] =
            make_float4(result[j].x / sum, result[j].y / sum, result[j].z / sum, result[j].w / sum);
}
