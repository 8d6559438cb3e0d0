// Blur an image of n rows and n columns by a box of 7 x 7 pixels. Outside of the image, pixels are 0.

extern "C" __global__ void naive(const float *x, float *y, int n) {
    int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 8 + threadIdx.y;
    float sum = 0;
    for (int i = row - 3; i <= row + 3; i++)
        for (int j = column - 3; j <= column + 3; j++)
            if (i >= 0 && i < n && j >= 0 && j < n)
                sum += x[i * n + j];
    y[row * n + column] = sum / 49;
}

extern "C" __global__ void optimized(const float *x, float *y, int n) {
    // A block sums up each row of its tile first, and then the columns of these sums.
    __shared__ float tile[38][40], rows[38][32];
    int left = blockIdx.x * 32, top = blockIdx.y * 32, t = threadIdx.y * 32 + threadIdx.x;
    for (int at = t; at < 38 * 38; at += 256) {
        int i = top + at / 38 - 3, j = left + at % 38 - 3;
        tile[at / 38][at % 38] = i >= 0 && i < n && j >= 0 && j < n ? x[i * n + j] : 0;
    }
    __syncthreads();
    for (int i = threadIdx.y; i < 38; i += 8) {
        float sum = 0;
        for (int j = 0; j < 7; j++)
            sum += tile[i][threadIdx.x + j];
        rows[i][threadIdx.x] = sum;
    }
    __syncthreads();
    for (int i = threadIdx.y; i < 32; i += 8) {
        float sum = 0;
        for (int k = 0; k < 7; k++)
            sum += rows[i + k][threadIdx.x];
        y[(top + i) * n + left + threadIdx.x] = sum / 49;
    }
}
