// What CUDA 12.9 still builds for every GPU from Maxwell to Blackwell, and tests check on whatever there is.
__constant__ float factor = 2.0f;
__device__ unsigned total;

template <class T> __global__ void axpy(T a, const T *x, T *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * (T)factor * x[i];
}
template __global__ void axpy<double>(double, const double *, double *, int);

extern "C" __global__ void count(const unsigned char *values, int n, unsigned *bins) {
    __shared__ unsigned own[16];
    if (threadIdx.x < 16) own[threadIdx.x] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) atomicAdd(&own[values[i] & 15], 1);
    __syncthreads();
    unsigned sum = threadIdx.x < 16 ? own[threadIdx.x] : 0;
    if (threadIdx.x < 16) bins[threadIdx.x] = sum;
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (threadIdx.x == 0) atomicAdd(&total, sum);
}
