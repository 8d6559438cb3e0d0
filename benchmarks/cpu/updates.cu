// Kernels that update their output, for benchmarks/checks.py. The race check notes what they read there, too.

#define AT (blockIdx.x * blockDim.x + threadIdx.x)

extern "C" __global__ void updated(const float *x, float *y) { y[AT] = y[AT] * 2.0f + x[AT]; }

extern "C" __global__ void updated_bytes(const unsigned char *x, unsigned char *y) { y[AT] = y[AT] + x[AT]; }

extern "C" __global__ void repeated(const float *x, float *y)
{
    for (int k = 0; k < 16; k++) y[AT] = y[AT] * 0.5f + x[AT] * k;
}

// Some threads mark bytes.
extern "C" __global__ void marked(const int *x, unsigned char *y)
{
    if (x[AT] & 1) y[AT] = 1;
}

// A sum of three neighbors through shared memory, added to the output.
extern "C" __global__ void smoothed(const float *x, float *y)
{
    __shared__ float s[258];
    int t = threadIdx.x, last = gridDim.x * blockDim.x - 1;
    s[t + 1] = x[AT];
    if (t == 0) s[0] = x[AT ? AT - 1 : 0], s[257] = x[min(AT + 256, last)];
    __syncthreads();
    y[AT] += s[t] + s[t + 1] + s[t + 2];
}

// A tree of sums, whose roots are added by atomic operations.
extern "C" __global__ void folded(const float *x, float *y)
{
    __shared__ float s[256];
    int t = threadIdx.x;
    s[t] = x[AT];
    for (int d = 128; d; d /= 2) {
        __syncthreads();
        if (t < d) s[t] += s[t + d];
    }
    if (t == 0) atomicAdd(y, s[0]);
}

// An inclusive scan of 16-bit numbers in place.
extern "C" __global__ void scanned_shorts(const short *x, short *y)
{
    __shared__ short s[256];
    int t = threadIdx.x;
    s[t] = x[AT];
    __syncthreads();
    for (int d = 1; d < 256; d *= 2) {
        short v = t >= d ? s[t - d] : 0;
        __syncthreads();
        s[t] += v;
        __syncthreads();
    }
    y[AT] = s[t];
}

// An inclusive scan of each warp, in shared memory.
extern "C" __global__ void scanned_warps(const float *x, float *y)
{
    __shared__ float s[256];
    int t = threadIdx.x, lane = t % 32;
    s[t] = x[AT];
    __syncwarp();
#pragma unroll 1
    for (int d = 1; d < 32; d *= 2) {
        float v = lane >= d ? s[t - d] : 0;
        __syncwarp();
        s[t] += v;
        __syncwarp();
    }
    y[AT] = s[t];
}

// A tree of sums whose last steps one warp does.
extern "C" __global__ void folded_by_warp(const float *x, float *y)
{
    __shared__ float s[256];
    int t = threadIdx.x;
    s[t] = x[AT];
    __syncthreads();
    for (int d = 128; d >= 32; d /= 2) {
        if (t < d) s[t] += s[t + d];
        __syncthreads();
    }
    if (t < 32)
        for (int d = 16; d; d /= 2) {
            float v = s[t + d];
            __syncwarp();
            s[t] += v;
            __syncwarp();
        }
    if (t == 0) y[blockIdx.x] = s[0];
}

// Odd numbers, counted by a counter of the block.
extern "C" __global__ void counted(const int *x, int *y)
{
    __shared__ int n;
    int t = threadIdx.x;
    if (t == 0) n = 0;
    __syncthreads();
    if (x[AT] & 1) atomicAdd(&n, 1);
    __syncthreads();
    if (t == 0) y[blockIdx.x] = n;
}
