// Kernels whose memory counters ncu and cujit count: each access that matters stands in a kernel of its own.

#define AT (blockIdx.x * blockDim.x + threadIdx.x)

// -- global memory ------------------------------------------------------------------------------------------------

template <typename T> __global__ void load(const T *x, T *y, int stride, int first)
{
    int i = AT;
    y[i] = x[(size_t)i * stride + first];
}

template <typename T> __global__ void store(T *y, int stride, int first)
{
    int i = AT;
    y[(size_t)i * stride + first] = T();
}

__global__ void some(const float *x, float *y, int every)
{
    int i = AT;
    if (i % every == 0) y[i] = x[i];
}

template <typename T> __global__ void load_nc(const T *__restrict__ x, T *y)
{
    int i = AT;
    y[i] = __ldg(x + i);
}

__global__ void streamed(const float4 *x, float4 *y)
{
    int i = AT;
    __stcs(y + i, __ldcs(x + i));
}

__global__ void volatile_copy(const volatile float *x, volatile float *y)
{
    int i = AT;
    y[i] = x[i];
}

__global__ void gather(const float *x, const int *at, float *y)
{
    int i = AT;
    y[i] = x[at[i]];
}

__global__ void scatter(const int *at, float *y)
{
    int i = AT;
    y[at[i]] = i;
}

struct Three { float x, y, z; };

__global__ void threes(const Three *x, Three *y)
{
    int i = AT;
    y[i] = x[i];
}

// Four floats side by side, one by one: PTX has four loads.
__global__ void four_by_one(const float *x, float *y)
{
    int i = AT;
    y[i] = x[4 * i] + x[4 * i + 1] + x[4 * i + 2] + x[4 * i + 3];
}

__global__ void of_one_word(const float *x, float *y)
{
    y[AT] = x[blockIdx.x];
}

__global__ void plane(const float *x, float *y, int width, int height)
{
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column < width && row < height) y[row * width + column] = x[row * width + column];
}

__global__ void predicated(const float *x, float *y, int most)
{
    int i = AT;
    asm volatile("{ .reg .pred p; .reg .f32 v; .reg .b64 a, b;\n"
                 "mul.wide.s32 a, %2, 4; add.u64 b, a, %1; add.u64 a, a, %0;\n"
                 "setp.lt.s32 p, %3, %4; mov.f32 v, 0f00000000;\n"
                 "@p ld.global.f32 v, [a]; @!p st.global.f32 [b], v; }"
                 :: "l"(x), "l"(y), "r"(i), "r"(i % 32), "r"(most) : "memory");
}

// -- constants, textures, parameters ------------------------------------------------------------------------------

__constant__ float numbers[64];

__global__ void constants(float *y)
{
    y[AT] = numbers[threadIdx.x % 64] + numbers[5];
}

__global__ void texels(cudaTextureObject_t x, float *y)
{
    int i = AT;
    y[i] = tex1Dfetch<float>(x, i);
}

__global__ void plane_of_texels(cudaTextureObject_t x, float *y, int width)
{
    y[blockIdx.y * width + AT] = tex2D<float>(x, AT + 0.5f, blockIdx.y + 0.5f);
}

// -- shared memory ------------------------------------------------------------------------------------------------

template <typename T> __global__ void shared_store(T *y, int stride)
{
    __shared__ T s[32768 / sizeof(T)];
    s[threadIdx.x * stride % (32768 / sizeof(T))] = T();
    __syncthreads();
    y[AT] = s[threadIdx.x];
}

template <typename T> __global__ void shared_load(T *y, int stride)
{
    __shared__ T s[32768 / sizeof(T)];
    s[threadIdx.x] = T();
    __syncthreads();
    y[AT] = s[threadIdx.x * stride % (32768 / sizeof(T))];
}

// One warp: each thread that does goes to a place of its own.
template <typename T> __global__ void read_shared(const int *at, const int *does, T *y)
{
    __shared__ T s[1024];
    s[threadIdx.x] = T();
    __syncthreads();
    T v = T();
    int i = at[threadIdx.x];
    if (does[threadIdx.x]) v = s[i];
    y[threadIdx.x] = v;
}

template <typename T> __global__ void write_shared(const int *at, const int *does, T *y)
{
    __shared__ T s[1024];
    int i = at[threadIdx.x];
    if (does[threadIdx.x]) s[i] = T();
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x];
}

__global__ void rows_of_matrices(const int *at, unsigned *y)
{
    __shared__ __align__(128) unsigned s[2048];
    for (int k = threadIdx.x; k < 2048; k += 32) s[k] = k;
    __syncwarp();
    unsigned a, b, c, d, row = (unsigned)__cvta_generic_to_shared(s) + 16 * at[threadIdx.x];
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(row) : "memory");
    y[threadIdx.x] = a + b + c + d;
}

__global__ void two_matrices(const int *at, unsigned *y)
{
    __shared__ __align__(128) unsigned s[2048];
    for (int k = threadIdx.x; k < 2048; k += 32) s[k] = k;
    __syncwarp();
    unsigned a, b, row = (unsigned)__cvta_generic_to_shared(s) + 16 * at[threadIdx.x];
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(a), "=r"(b) : "r"(row) : "memory");
    y[threadIdx.x] = a + b;
}

__global__ void stored_matrices(const int *at, unsigned *y)
{
    __shared__ __align__(128) unsigned s[2048];
    unsigned i = threadIdx.x, row = (unsigned)__cvta_generic_to_shared(s) + 16 * at[i];
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 :: "r"(row), "r"(i), "r"(i + 1), "r"(i + 2), "r"(i + 3) : "memory");
    __syncwarp();
    y[i] = s[4 * i];
}

template <int BYTES> __global__ void copied(const char *x, char *y, int stride, int pitch)
{
    __shared__ __align__(128) char s[16384];
    unsigned to = (unsigned)__cvta_generic_to_shared(s) + threadIdx.x * pitch;
    const char *from = x + (size_t)AT * stride;
    if (BYTES == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to), "l"(from) : "memory");
    else asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" :: "r"(to), "l"(from), "n"(BYTES) : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    y[AT] = s[threadIdx.x];
}

__global__ void either_memory(const float *x, float *y)
{
    __shared__ float s[256];
    s[threadIdx.x] = threadIdx.x;
    __syncthreads();
    const float *from = threadIdx.x % 2 ? s + threadIdx.x : x + AT;
    y[AT] = *from;
}

// -- atomic operations --------------------------------------------------------------------------------------------

template <typename T> __global__ void add(T *y, int words)
{
    int i = AT;
    atomicAdd(y + i % words, (T)i);
}

template <typename T> __global__ void add_and_say(T *y, T *said, int words)
{
    int i = AT;
    said[i] = atomicAdd(y + i % words, (T)i);
}

// One warp: each thread that does adds at a place of its own.
template <typename T> __global__ void add_at(T *y, const int *at, const int *does)
{
    int i = at[threadIdx.x];
    if (does[threadIdx.x]) atomicAdd(y + i, (T)(threadIdx.x + 1));
}

template <typename T> __global__ void add_at_and_say(T *y, const int *at, const int *does, T *said)
{
    int i = at[threadIdx.x];
    T v = T();
    if (does[threadIdx.x]) v = atomicAdd(y + i, (T)(threadIdx.x + 1));
    said[threadIdx.x] = v;
}

template <typename T> __global__ void add_shared(T *y, const int *at, const int *does)
{
    __shared__ T s[1024];
    for (int k = threadIdx.x; k < 1024; k += 32) s[k] = T();
    __syncwarp();
    int i = at[threadIdx.x];
    if (does[threadIdx.x]) atomicAdd(s + i, (T)(threadIdx.x + 1));
    __syncwarp();
    y[threadIdx.x] = s[threadIdx.x];
}

__global__ void count_shared(unsigned *y, const int *at, const int *does)
{
    __shared__ unsigned s[1024];
    for (int k = threadIdx.x; k < 1024; k += 32) s[k] = 0;
    __syncwarp();
    int i = at[threadIdx.x];
    if (does[threadIdx.x]) atomicAdd(s + i, 1u);
    __syncwarp();
    y[threadIdx.x] = s[threadIdx.x];
}

template <typename T> __global__ void add_shared_and_say(T *y, const int *at, const int *does)
{
    __shared__ T s[1024];
    for (int k = threadIdx.x; k < 1024; k += 32) s[k] = T();
    __syncwarp();
    int i = at[threadIdx.x];
    T v = T();
    if (does[threadIdx.x]) v = atomicAdd(s + i, (T)(threadIdx.x + 1));
    y[threadIdx.x] = v;
}

__global__ void exchanged(unsigned *y, unsigned *said)
{
    int i = AT;
    said[i] = atomicExch(y + i % 64, i);
}

__global__ void compared(unsigned *y, unsigned *said)
{
    int i = AT;
    said[i] = atomicCAS(y + i, i, 7);
}

__global__ void greatest(unsigned *y)
{
    int i = AT;
    atomicMax(y + i % 64, i);
}

// -- local memory -------------------------------------------------------------------------------------------------

__global__ void local(const int *at, float *y)
{
    float own[32];
    int i = AT;
    for (int k = 0; k < 32; k++) own[k] = i + k;
    own[at[i % 32]] = 1;
    y[i] = own[at[(i + 1) % 32]] + own[at[(i + 2) % 32]];
}

template <typename T> __global__ void own_array(const int *at, T *y)
{
    T own[64];
    int i = AT;
    #pragma unroll 1
    for (int k = 0; k < 64; k++) own[k] = y[k];
    if (i % 3 == 0) own[at[i % 32]] = T();
    y[i] = own[at[(i + 1) % 32]];
}

// -- whole kernels ------------------------------------------------------------------------------------------------

template <bool PADDED> __global__ void transpose(const float *x, float *y, int n)
{
    __shared__ float s[32][32 + PADDED];
    int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
    s[threadIdx.y][threadIdx.x] = x[row * n + column];
    __syncthreads();
    y[(blockIdx.x * 32 + threadIdx.y) * n + blockIdx.y * 32 + threadIdx.x] = s[threadIdx.x][threadIdx.y];
}

__global__ void scattered_transpose(const float *x, float *y, int n)
{
    int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
    y[column * n + row] = x[row * n + column];
}

__global__ void product(const float *a, const float *b, float *c, int n)
{
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    float sum = 0;
    for (int k = 0; k < n; k++) sum += a[row * n + k] * b[k * n + column];
    c[row * n + column] = sum;
}

__global__ void tiled_product(const float *a, const float *b, float *c, int n)
{
    __shared__ float s[16][16], t[16][16];
    int x = threadIdx.x, y = threadIdx.y, column = blockIdx.x * 16 + x, row = blockIdx.y * 16 + y;
    float sum = 0;
    for (int first = 0; first < n; first += 16) {
        s[y][x] = a[row * n + first + x];
        t[y][x] = b[(first + y) * n + column];
        __syncthreads();
        for (int k = 0; k < 16; k++) sum += s[y][k] * t[k][x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}

__global__ void histogram(const unsigned char *x, unsigned *bins)
{
    atomicAdd(bins + x[AT], 1u);
}

__global__ void shared_histogram(const unsigned char *x, unsigned *bins)
{
    __shared__ unsigned s[256];
    s[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(s + x[AT], 1u);
    __syncthreads();
    atomicAdd(bins + threadIdx.x, s[threadIdx.x]);
}

__global__ void sum_by_tree(const float *x, float *y)
{
    extern __shared__ float tree[];
    int t = threadIdx.x;
    tree[t] = x[AT];
    __syncthreads();
    for (int d = blockDim.x / 2; d > 0; d /= 2) {
        if (t < d) tree[t] += tree[t + d];
        __syncthreads();
    }
    if (t == 0) y[blockIdx.x] = tree[0];
}

__global__ void sum_by_interleaved_tree(const float *x, float *y)
{
    extern __shared__ float tree[];
    int t = threadIdx.x;
    tree[t] = x[AT];
    __syncthreads();
    for (int d = 1; d < blockDim.x; d *= 2) {
        if (2 * d * t + d < blockDim.x) tree[2 * d * t] += tree[2 * d * t + d];
        __syncthreads();
    }
    if (t == 0) y[blockIdx.x] = tree[0];
}

__global__ void sum_by_shuffles(const float *x, float *y)
{
    __shared__ float s[8];
    float v = x[AT];
    for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(~0u, v, d);
    if (threadIdx.x % 32 == 0) s[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x < 8) {
        v = s[threadIdx.x];
        for (int d = 4; d > 0; d /= 2) v += __shfl_xor_sync(255u, v, d);
        if (threadIdx.x == 0) y[blockIdx.x] = v;
    }
}

__global__ void sum_by_atomics(const float *x, float *y)
{
    atomicAdd(y, x[AT]);
}

__global__ void branches(const int *x, int *y)
{
    int i = AT, v = x[i], n = 0;
    while (v > 1) {
        v = v % 2 ? 3 * v + 1 : v / 2;
        n++;
    }
    if (n > 20) y[i] = n;
    else y[i + gridDim.x * blockDim.x] = n;
}
