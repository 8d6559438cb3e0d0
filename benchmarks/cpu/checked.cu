#define TILE 16

extern "C" __global__ void blur(const float *x, float *y, int n)
{
    int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
    if (r < 1 || c < 1 || r >= n - 1 || c >= n - 1) return;
    float sum = 0;
    for (int i = -1; i <= 1; i++)
        for (int j = -1; j <= 1; j++) sum += x[(r + i) * n + c + j];
    y[r * n + c] = sum / 9;
}

extern "C" __global__ void scan(const float *x, float *y)
{
    __shared__ float s[256];
    int t = threadIdx.x, i = blockIdx.x * 256 + t;
    s[t] = x[i];
    __syncthreads();
    for (int d = 1; d < 256; d *= 2) {
        float v = t >= d ? s[t - d] : 0;
        __syncthreads();
        s[t] += v;
        __syncthreads();
    }
    y[i] = s[t];
}

extern "C" __global__ void gather(const float *x, const int *at, float *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[at[i]];
}

extern "C" __global__ void product(const float *a, const float *b, float *c, int n)
{
    __shared__ float left[TILE][TILE], right[TILE][TILE];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * TILE + y, column = blockIdx.x * TILE + x;
    float sum = 0;
    for (int k = 0; k < n; k += TILE) {
        left[y][x] = a[row * n + k + x];
        right[y][x] = b[(k + y) * n + column];
        __syncthreads();
        for (int j = 0; j < TILE; j++) sum += left[y][j] * right[j][x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}
