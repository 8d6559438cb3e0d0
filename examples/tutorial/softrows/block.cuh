struct Sum { template <typename T> __device__ T operator()(T a, T b) { return a + b; } };
struct Largest { template <typename T> __device__ T operator()(T a, T b) { return a < b ? b : a; } };

// One value of each thread of the block becomes one for all of them; `room` has a place for each thread.
template <typename T, typename Op> __device__ T over_block(T value, T *room, Op op) {
    room[threadIdx.x] = value;
    __syncthreads();
    for (int n = blockDim.x / 2; n > 0; n /= 2) {
        if (threadIdx.x < n) room[threadIdx.x] = op(room[threadIdx.x], room[threadIdx.x + n]);
        __syncthreads();
    }
    value = room[0];
    __syncthreads();  // nobody writes to room before all have read
    return value;
}
