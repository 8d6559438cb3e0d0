#define T 16

kernel void matmul(global const float *a, global const float *b, global float *c, int n)
{
    local float left[T][T], right[T][T];
    int x = get_local_id(0), y = get_local_id(1), row = get_global_id(1), column = get_global_id(0);
    float sum = 0;
    for (int k = 0; k < n; k += T) {
        left[y][x] = a[row * n + k + x];
        right[y][x] = b[(k + y) * n + column];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int j = 0; j < T; j++) sum += left[y][j] * right[j][x];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    c[row * n + column] = sum;
}
