// Barriers within calls. tests/real/test_shapes.py has the references.

// A barrier in a function that is called, and in one that calls itself.
__device__ __noinline__ int turned(int *shared, int by)
{
    int size = (int)blockDim.x, next = shared[(threadIdx.x + by) % size];
    __syncthreads();
    shared[threadIdx.x] = next;
    __syncthreads();
    return next;
}

__device__ __noinline__ int turned_often(int *shared, int times)
{
    if (times == 0) return 0;
    int first = turned(shared, times);
    return first + 2 * turned_often(shared, times - 1);
}

extern "C" __global__ void barrier_in_a_function(int *out)
{
    __shared__ int shared[96];
    shared[threadIdx.x] = (int)threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = turned(shared, 1) * 1000 + turned(shared, 5);
}

extern "C" __global__ void barrier_in_recursion(int *out, int times)
{
    __shared__ int shared[96];
    shared[threadIdx.x] = (int)threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = turned_often(shared, times);
}
