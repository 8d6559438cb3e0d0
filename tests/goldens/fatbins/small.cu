// Two small kernels, for files that show how images are packed.
__constant__ float factor[4];
__device__ int counter;
extern "C" __global__ void scale(float* p, int n) {
    __shared__ float s[32];
    if (threadIdx.x < 32) s[threadIdx.x] = p[n];
    __syncthreads();
    p[threadIdx.x] = s[31 - threadIdx.x] * factor[n & 3];
}
template <typename T>
__global__ void fill(T* p, T value) { p[threadIdx.x + counter] = value; }
template __global__ void fill<double>(double*, double);
