#define T 16

extern "C" __global__ void matmul(const float *a, const float *b, float *c, int n)
{
    __shared__ float left[T][T], right[T][T];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * T + y, column = blockIdx.x * T + x;
    float sum = 0;
    for (int k = 0; k < n; k += T) {
        left[y][x] = a[row * n + k + x];
        right[y][x] = b[(k + y) * n + column];
        __syncthreads();
        for (int j = 0; j < T; j++) sum += left[y][j] * right[j][x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}
