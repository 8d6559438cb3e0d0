// One kernel for each way in which kernels use memory: what checks cost is measured on all of them. Blocks of the
// kernels that move a tile of x to y are of 256 threads, and do so ROUNDS times.

#include <cuda_fp16.h>

#define ROUNDS 16
#define AT (blockIdx.x * blockDim.x + threadIdx.x)

extern "C" __global__ void padded(const float *a, const float *b, float *c, int n)
{
    __shared__ float left[16][16], right[16][17];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 16 + y, column = blockIdx.x * 16 + x;
    float sum = 0;
    for (int k = 0; k < n; k += 16) {
        left[y][x] = a[row * n + k + x];
        right[y][x] = b[(k + y) * n + column];
        __syncthreads();
        for (int j = 0; j < 16; j++) sum += left[y][j] * right[j][x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}

extern "C" __global__ void transposed(const float *x, float *y, int n)
{
    __shared__ float tile[32][33];
    int u = threadIdx.x, v = threadIdx.y, c = blockIdx.x * 32, r = blockIdx.y * 32;
    for (int k = 0; k < 32; k += 8) tile[v + k][u] = x[(r + v + k) * n + c + u];
    __syncthreads();
    for (int k = 0; k < 32; k += 8) y[(c + v + k) * n + r + u] = tile[u][v + k];
}

extern "C" __global__ void swizzled(const float *x, float *y, int n)
{
    __shared__ float tile[32][32];
    int u = threadIdx.x, v = threadIdx.y, c = blockIdx.x * 32, r = blockIdx.y * 32;
    for (int k = 0; k < 32; k += 8) tile[v + k][u ^ (v + k)] = x[(r + v + k) * n + c + u];
    __syncthreads();
    for (int k = 0; k < 32; k += 8) y[(c + v + k) * n + r + u] = tile[u][(v + k) ^ u];
}

extern "C" __global__ void bytes(const unsigned char *x, unsigned char *y)
{
    __shared__ unsigned char s[256 + 2];
    int t = threadIdx.x;
    unsigned char v = x[AT];
    if (t < 2) s[t * 257] = 0;
    for (int k = 0; k < ROUNDS; k++) {
        s[t + 1] = v;
        __syncthreads();
        v = (s[t] + 2 * s[t + 1] + s[t + 2]) / 4;
        __syncthreads();
    }
    y[AT] = v;
}

extern "C" __global__ void halves(const __half *x, __half *y)
{
    __shared__ __half s[256];
    int t = threadIdx.x;
    __half v = x[AT];
    for (int k = 0; k < ROUNDS; k++) {
        s[t] = v;
        __syncthreads();
        v = __hadd(s[t ^ 1], s[(t + k) & 255]);
        __syncthreads();
    }
    y[AT] = v;
}

extern "C" __global__ void dynamic(const float *x, float *y)
{
    extern __shared__ float s[];
    int t = threadIdx.x, n = blockDim.x;
    float v = x[AT];
    for (int k = 0; k < ROUNDS; k++) {
        s[t] = v;
        __syncthreads();
        v += s[n - 1 - t];
        __syncthreads();
    }
    y[AT] = v;
}

extern "C" __global__ void cube(const float *x, float *y, int n)
{
    __shared__ float s[6][10][10];
    int u = threadIdx.x, v = threadIdx.y, w = threadIdx.z, i = blockIdx.x * 8, j = blockIdx.y * 8, k = blockIdx.z * 4;
    for (int at = (w * 8 + v) * 8 + u; at < 600; at += 256) {
        int a = i + at % 10, b = j + at / 10 % 10, c = k + at / 100;
        s[at / 100][at / 10 % 10][at % 10] = x[(c * n + b) * n + a];
    }
    __syncthreads();
    y[((k + w) * n + j + v) * n + i + u] = s[w][v + 1][u + 1] + s[w + 2][v + 1][u + 1] + s[w + 1][v][u + 1]
        + s[w + 1][v + 2][u + 1] + s[w + 1][v + 1][u] + s[w + 1][v + 1][u + 2] - 6 * s[w + 1][v + 1][u + 1];
}

extern "C" __global__ void strided(const float *x, float *y)
{
    __shared__ float s[256 * 3];
    int t = threadIdx.x;
    float v = x[AT];
    for (int k = 0; k < ROUNDS; k++) {
        s[3 * t] = v, s[3 * t + 1] = v + 1, s[3 * t + 2] = v + 2;
        __syncthreads();
        v = s[t] + s[t + 256] * s[t + 512];
        __syncthreads();
    }
    y[AT] = v;
}

extern "C" __global__ void spread(const float *x, float *y, int n)
{
    float sum = 0;
    for (int k = 0; k < ROUNDS; k++) sum += x[(AT * 5 + k * 37) & (n - 1)];
    y[AT] = sum;
}

extern "C" __global__ void broadcast(const float *x, float *y)
{
    __shared__ float s[64];
    if (threadIdx.x < 64) s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    float v = x[AT], sum = 0;
    for (int k = 0; k < 64; k++) sum = sum * v + s[k];
    y[AT] = sum;
}

extern "C" __global__ void table(const float *x, const int *at, float *y)
{
    __shared__ float s[256];
    int t = threadIdx.x, to = at[AT];
    s[t] = x[AT];
    __syncthreads();
    float sum = 0;
    for (int k = 0; k < ROUNDS; k++) sum += s[(to + k * 7) & 255];
    y[AT] = sum;
}

extern "C" __global__ void shuffled(const float *x, const int *at, float *y)
{
    __shared__ float s[256];
    int t = threadIdx.x, to = at[AT & 255] & 255;
    float v = x[AT];
    for (int k = 0; k < ROUNDS; k++) {
        s[to] = v;
        __syncthreads();
        v = s[t] * 0.5f + 1;
        __syncthreads();
    }
    y[AT] = v;
}

extern "C" __global__ void vectors(const float4 *x, float4 *y)
{
    __shared__ float4 s[256];
    int t = threadIdx.x;
    float4 v = x[AT];
    for (int k = 0; k < ROUNDS; k++) {
        s[t] = v;
        __syncthreads();
        float4 w = s[t ^ 17];
        v = make_float4(v.x + w.y, v.y * w.z, v.z - w.w, v.w + w.x);
        __syncthreads();
    }
    y[AT] = v;
}

extern "C" __global__ void hundred(const float *x, float *y)
{
    __shared__ float s[100];
    int t = threadIdx.x;
    float v = x[AT];
    for (int k = 0; k < ROUNDS; k++) {
        s[t] = v;
        __syncthreads();
        v = 0.5f * (s[(t + 1) % 100] + s[(t + 99) % 100]);
        __syncthreads();
    }
    y[AT] = v;
}

extern "C" __global__ void histogram(const int *x, int *y)
{
    __shared__ int count[256];
    count[threadIdx.x] = 0;
    __syncthreads();
    for (int k = 0; k < ROUNDS; k++) atomicAdd(&count[(x[AT] + k * 11) & 255], 1);
    __syncthreads();
    y[AT] = count[threadIdx.x];
}

extern "C" __global__ void counters(const int *x, int *y)
{
    for (int k = 0; k < ROUNDS; k++) atomicAdd(&y[(x[AT] + k * 1031) & 4095], 1);
}

extern "C" __global__ void warps(const float *x, float *y)
{
    float v = x[AT];
    for (int k = 0; k < ROUNDS; k++) {
        for (int d = 16; d; d /= 2) v += __shfl_xor_sync(~0u, v, d);
        v = v * 0.03125f + k;
    }
    y[AT] = v;
}

extern "C" __global__ void staged(const float *x, float *y, int n)
{
    __shared__ __align__(16) float s[2][1024];
    unsigned to = (unsigned)__cvta_generic_to_shared(&s[0][threadIdx.x * 4]);
    const float *from = x + AT * 4;
    float sum = 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\ncp.async.commit_group;" ::"r"(to), "l"(from));
    for (int k = 0; k < ROUNDS; k++) {
        if (k + 1 < ROUNDS)
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + (k + 1) % 2 * 4096),
                         "l"(x + (AT * 4 + (k + 1) * 4096) % n));
        asm volatile("cp.async.commit_group;\ncp.async.wait_group 1;");
        __syncthreads();
        for (int j = 0; j < 4; j++) sum += s[k % 2][threadIdx.x + j * 256];
        __syncthreads();
    }
    y[AT] = sum;
}

extern "C" __global__ void tensor(const __half *a, const __half *b, float *c, int n)
{
    __shared__ __align__(16) __half left[16][24], right[16][8];
    int t = threadIdx.x, row = blockIdx.y * 16, column = blockIdx.x * 8;
    float d[4] = {0, 0, 0, 0};
    for (int k = 0; k < n; k += 16) {
        *(uint4 *)&left[t / 2][t % 2 * 8] = *(const uint4 *)&a[(row + t / 2) * n + k + t % 2 * 8];
        if (t < 16) *(uint4 *)&right[t][0] = *(const uint4 *)&b[(k + t) * n + column];
        __syncwarp();
        unsigned p[4], q[2];
        unsigned from = (unsigned)__cvta_generic_to_shared(&left[t % 16][t / 16 * 8]);
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(p[0]), "=r"(p[1]), "=r"(p[2]), "=r"(p[3]) : "r"(from));
        from = (unsigned)__cvta_generic_to_shared(&right[t % 16][0]);
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];" : "=r"(q[0]), "=r"(q[1]) : "r"(from));
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "r"(q[0]), "r"(q[1]));
        __syncwarp();
    }
    for (int i = 0; i < 4; i++) c[(row + t / 4 + i / 2 * 8) * n + column + t % 4 * 2 + i % 2] = d[i];
}

extern "C" __global__ void sorted(const float *x, float *y)
{
    __shared__ float s[256];
    int t = threadIdx.x;
    s[t] = x[AT];
    __syncthreads();
    for (int size = 2; size <= 256; size *= 2)
        for (int d = size / 2; d; d /= 2) {
            int other = t ^ d;
            if (other > t && (s[t] > s[other]) == !(t & size)) {
                float v = s[t];
                s[t] = s[other], s[other] = v;
            }
            __syncthreads();
        }
    y[AT] = s[t];
}

extern "C" __global__ void butterfly(const float2 *x, float2 *y)
{
    __shared__ float2 s[512];
    int t = threadIdx.x;
    s[t] = x[2 * blockIdx.x * 256 + t], s[t + 256] = x[(2 * blockIdx.x + 1) * 256 + t];
    __syncthreads();
    for (int d = 256; d; d /= 2) {
        int i = t / d * 2 * d + t % d;
        float2 p = s[i], q = s[i + d];
        s[i] = make_float2(p.x + q.x, p.y + q.y), s[i + d] = make_float2(p.x - q.y, p.y + q.x);
        __syncthreads();
    }
    y[2 * blockIdx.x * 256 + t] = s[t], y[(2 * blockIdx.x + 1) * 256 + t] = s[t + 256];
}

extern "C" __global__ void local(const int *x, int *y)
{
    int own[16], v = x[AT];
    for (int k = 0; k < 16; k++) own[k] = v + k;
    for (int k = 0; k < ROUNDS; k++) own[(v + k) & 15] += own[(v * 3 + k) & 15];
    int sum = 0;
    for (int k = 0; k < 16; k++) sum += own[(v + k) & 15];
    y[AT] = sum;
}

extern "C" __global__ void doubles(const double *x, double *y)
{
    __shared__ double s[256];
    int t = threadIdx.x;
    double v = x[AT];
    for (int k = 0; k < ROUNDS; k++) {
        s[t] = v;
        __syncthreads();
        v = 0.5 * (s[(t + k) & 255] + s[255 - t]);
        __syncthreads();
    }
    y[AT] = v;
}

struct Particle {
    float x, y, z;
};

extern "C" __global__ void bodies(const float *x, float *y)
{
    __shared__ Particle s[128];
    int t = threadIdx.x;
    Particle own = {x[AT * 3], x[AT * 3 + 1], x[AT * 3 + 2]};
    s[t] = own;
    __syncthreads();
    float sum = 0;
    for (int k = 0; k < 32; k++) {
        Particle p = s[(t + k) & 127];
        float u = p.x - own.x, v = p.y - own.y, w = p.z - own.z;
        sum += u * u + v * v + w * w;
    }
    y[AT] = sum;
}

extern "C" __global__ void lanes(const float *x, float *y)
{
    __shared__ float s[8][33];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float v = x[AT];
    for (int k = 0; k < ROUNDS; k++) {
        s[warp][lane] = v;
        __syncwarp();
        v = 0.5f * (v + s[warp][(lane * 5 + k) & 31]);
        __syncwarp();
    }
    y[AT] = v;
}

extern "C" __global__ void partial(const float *x, float *y, int n)
{
    __shared__ float s[256];
    int t = threadIdx.x, have = min(n - (int)blockIdx.x * 256, 256);
    if (t < have) s[t] = x[AT];
    for (int half = 128; half; half /= 2) {
        __syncthreads();
        if (t < half && t + half < have) s[t] += s[t + half];
    }
    if (t == 0) y[blockIdx.x] = s[0];
}

extern "C" __global__ void interleaved(const float *x, float *y)
{
    __shared__ float s[512];
    int t = threadIdx.x;
    float v = x[AT];
    for (int k = 0; k < ROUNDS; k++) {
        s[2 * t] = v, s[2 * t + 1] = -v;
        __syncthreads();
        v = s[t] - s[t + 256];
        __syncthreads();
    }
    y[AT] = v;
}

extern "C" __global__ void halving(const float *x, float *y)
{
    __shared__ float s[256];
    int t = threadIdx.x;
    s[t] = x[AT];
    for (int d = 1; d < 256; d *= 2) {
        __syncthreads();
        if (t % (2 * d) == 0) s[t] += s[t + d];
    }
    if (t == 0) y[blockIdx.x] = s[0];
}

extern "C" __global__ void buffered(const float *x, float *y)
{
    __shared__ float s[2][32][33];
    int u = threadIdx.x, v = threadIdx.y, at = (blockIdx.x * 8 + v) * 32 + u;
    float sum = 0;
    for (int j = 0; j < 32; j += 8) s[0][v + j][u] = x[at];
    for (int k = 0; k < ROUNDS; k++) {
        __syncthreads();
        if (k + 1 < ROUNDS)
            for (int j = 0; j < 32; j += 8) s[(k + 1) & 1][v + j][u] = x[at] + k;
        for (int j = 0; j < 32; j += 8) sum += s[k & 1][u][v + j];
    }
    y[at] = sum;
}

extern "C" __global__ void often(const float *x, float *y)
{
    __shared__ float s[4];
    int t = threadIdx.x;
    float v = x[AT];
    for (int k = 0; k < 128; k++) {
        if (t == (k & 255)) s[k & 3] = v;
        __syncthreads();
        v = v * 0.5f + s[k & 3];
    }
    y[AT] = v;
}

extern "C" __global__ void shorts(const short *x, short *y)
{
    __shared__ short s[256 + 2];
    int t = threadIdx.x;
    short v = x[AT];
    if (t < 2) s[t * 257] = 0;
    for (int k = 0; k < ROUNDS; k++) {
        s[t + 1] = v;
        __syncthreads();
        v = (s[t] + 2 * s[t + 1] + s[t + 2]) / 4;
        __syncthreads();
    }
    y[AT] = v;
}
