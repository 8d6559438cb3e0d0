// Sort each row by a bitonic network. A row has 1,024 integers.

extern "C" __global__ void naive(int *x, int rows) {
    int *row = x + blockIdx.x * 1024;
    for (int size = 2; size <= 1024; size *= 2)
        for (int step = size / 2; step; step /= 2) {
            int i = threadIdx.x, j = i ^ step;
            if (i < j && (row[i] > row[j]) == ((i & size) == 0)) {
                int other = row[i];
                row[i] = row[j];
                row[j] = other;
            }
            __syncthreads();
        }
}

extern "C" __global__ void optimized(int *x, int rows) {
    // A thread keeps its element in a register. Elements of a warp change places by shuffles.
    __shared__ int row[1024];
    int i = threadIdx.x, own = x[blockIdx.x * 1024 + i];
    for (int size = 2; size <= 1024; size *= 2)
        for (int step = size / 2; step; step /= 2) {
            int other;
            if (step < 32)
                other = __shfl_xor_sync(~0u, own, step);
            else {
                __syncthreads();
                row[i] = own;
                __syncthreads();
                other = row[i ^ step];
            }
            own = ((i & step) == 0) == ((i & size) == 0) ? min(own, other) : max(own, other);
        }
    x[blockIdx.x * 1024 + i] = own;
}
