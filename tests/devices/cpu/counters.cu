// Kernels whose memory counters ncu and cujit count: each access that matters stands in a kernel of its own.

template <typename T> __global__ void load(const T *x, T *y, int stride, int first)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[(size_t)i * stride + first];
}

template <typename T> __global__ void store(T *y, int stride, int first)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[(size_t)i * stride + first] = T();
}

__global__ void some(const float *x, float *y, int every)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i % every == 0) y[i] = x[i];
}

template <typename T> __global__ void shared_store(T *y, int stride)
{
    __shared__ T s[32768 / sizeof(T)];
    s[threadIdx.x * stride % (32768 / sizeof(T))] = T();
    __syncthreads();
    y[blockIdx.x * blockDim.x + threadIdx.x] = s[threadIdx.x];
}

template <typename T> __global__ void shared_load(T *y, int stride)
{
    __shared__ T s[32768 / sizeof(T)];
    s[threadIdx.x] = T();
    __syncthreads();
    y[blockIdx.x * blockDim.x + threadIdx.x] = s[threadIdx.x * stride % (32768 / sizeof(T))];
}

__global__ void add(unsigned *y, int words)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(y + i % words, i);
}

__global__ void add_and_tell(unsigned *y, unsigned *told, int words)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    told[i] = atomicAdd(y + i % words, i);
}

template <bool PADDED> __global__ void transpose(const float *x, float *y, int n)
{
    __shared__ float s[32][32 + PADDED];
    int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
    s[threadIdx.y][threadIdx.x] = x[row * n + column];
    __syncthreads();
    y[(blockIdx.x * 32 + threadIdx.y) * n + blockIdx.y * 32 + threadIdx.x] = s[threadIdx.x][threadIdx.y];
}

__global__ void local(const int *at, float *y)
{
    float own[32];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int k = 0; k < 32; k++) own[k] = i + k;
    own[at[i % 32]] = 1;
    y[i] = own[at[(i + 1) % 32]] + own[at[(i + 2) % 32]];
}
