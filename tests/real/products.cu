// Products of halves, c = a b^T, that share a tile between blocks: by stream-K and by split-K with a flag for the last
// block. Tiles are 32 by 32, filled by cp.async in two stages and multiplied by mma. `fault` plants a mistake.
#include <cuda_fp16.h>
#include <cstdint>

constexpr int TILE = 32, STEP = 32, ROW = STEP + 8; // eight halves of padding keep ldmatrix free of bank conflicts

struct Stage { __half a[TILE * ROW], b[TILE * ROW]; };

static __device__ unsigned place(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }
static __device__ void copy16(void *to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place(to)), "l"(from) : "memory");
}
static __device__ void fetch(Stage &s, const __half *a, const __half *b, int k, int at) {
    for (int i = threadIdx.x; i < TILE * STEP / 8; i += blockDim.x) {
        int row = i / (STEP / 8), column = i % (STEP / 8) * 8;
        copy16(&s.a[row * ROW + column], a + (size_t)row * k + at * STEP + column);
        copy16(&s.b[row * ROW + column], b + (size_t)row * k + at * STEP + column);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
}
static __device__ void matrices(unsigned (&r)[4], const __half *p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(place(p)) : "memory");
}

// Each of four warps sums a quarter of 16 by 16: d[column / 8][4].
static __device__ void multiply(float (&d)[2][4], const Stage &s) {
    int lane = threadIdx.x % 32, y = threadIdx.x / 64 * 16, x = threadIdx.x / 32 % 2 * 16;
    for (int k = 0; k < STEP; k += 16) {
        unsigned a[4], b[4];
        matrices(a, &s.a[(y + lane % 16) * ROW + k + lane / 16 * 8]);
        matrices(b, &s.b[(x + lane % 8 + lane / 16 * 8) * ROW + k + lane / 8 % 2 * 8]);
        for (int j = 0; j < 2; j++)
            asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                "{%0, %1, %2, %3};"
                : "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3])
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[2 * j]), "r"(b[2 * j + 1]));
    }
}

// Sum the steps [from, to) of the tile at a and b.
static __device__ void sum(float (&d)[2][4], Stage *s, const __half *a, const __half *b, int k, int from, int to,
                       int fault) {
    for (float &each : (float (&)[8])d) each = 0;
    fetch(s[from % 2], a, b, k, from);
    for (int at = from; at < to; at++) {
        if (at + 1 < to) fetch(s[(at + 1) % 2], a, b, k, at + 1);
        if (fault == 1 || at + 1 < to) asm volatile("cp.async.wait_group 1;" ::: "memory");
        else asm volatile("cp.async.wait_group 0;" ::: "memory");
        __syncthreads();
        multiply(d, s[(at + (fault == 3)) % 2 + (fault == 6 ? 2 : 0)]);
        if (fault != 2) __syncthreads();
    }
}

// Visit each sum of this thread with its place in the tile.
template <typename F> static __device__ void each(float (&d)[2][4], F f) {
    int lane = threadIdx.x % 32, y = threadIdx.x / 64 * 16 + lane / 4, x = threadIdx.x / 32 % 2 * 16 + lane % 4 * 2;
    for (int j = 0; j < 2; j++)
        for (int q = 0; q < 4; q++) f(d[j][q], y + q / 2 * 8, x + 8 * j + q % 2);
}

// Every block takes an equal share of all steps of all tiles. The block with a tile's last step waits for the others.
extern "C" __global__ void __launch_bounds__(128)
stream_k(const __half *a, const __half *b, float *c, int m, int n, int k, float *parts, int *ready, int fault) {
    __shared__ Stage s[2];
    float d[2][4];
    int steps = k / STEP, all = (m / TILE) * (n / TILE) * steps, share = (all + gridDim.x - 1) / gridDim.x;
    int at = blockIdx.x * share, end = min(at + share, all);
    while (at < end) {
        int tile = at / steps, from = at % steps, to = min(steps, from + end - at);
        int y = tile / (n / TILE) * TILE, x = tile % (n / TILE) * TILE;
        sum(d, s, a + (size_t)y * k, b + (size_t)x * k, k, from, to, fault);
        if (to < steps) {
            each(d, [&](float v, int row, int column) { parts[(blockIdx.x * TILE + row) * TILE + column] = v; });
            if (fault != 7) __threadfence();
            __syncthreads();
            if (threadIdx.x == 0 && fault == 7) *(volatile int *)(ready + blockIdx.x) = 1;
            else if (threadIdx.x == 0) asm volatile("st.release.gpu.global.b32 [%0], 1;" ::"l"(ready + blockIdx.x) : "memory");
        } else {
            for (int other = tile * steps / share; other < (int)blockIdx.x; other++) {
                if (fault != 4 && threadIdx.x == 0)
                    for (int set = 0; !set;)
                        asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(set) : "l"(ready + other) : "memory");
                __syncthreads();
                each(d, [&](float &v, int row, int column) { v += parts[(other * TILE + row) * TILE + column]; });
            }
            each(d, [&](float v, int row, int column) { c[(size_t)(y + row) * n + x + column] = v; });
        }
        at += to - from;
        __syncthreads();
    }
}

// Block z of a tile sums a part of k; the last to be ready adds the parts in order and sets the count back.
extern "C" __global__ void __launch_bounds__(128)
split_k(const __half *a, const __half *b, float *c, int m, int n, int k, float *parts, unsigned *counts,
        int fault) {
    __shared__ Stage s[2];
    __shared__ bool last;
    float d[2][4];
    int y = blockIdx.y * TILE, x = blockIdx.x * TILE, steps = k / STEP / gridDim.z, from = blockIdx.z * steps;
    sum(d, s, a + (size_t)y * k, b + (size_t)x * k, k, from, from + steps, fault);
    float *mine = parts + (size_t)blockIdx.z * m * n;
    each(d, [&](float v, int row, int column) { mine[(size_t)(y + row) * n + x + column] = v; });
    if (fault != 7) __threadfence();
    __syncthreads();
    unsigned *count = counts + blockIdx.y * gridDim.x + blockIdx.x;
    if (threadIdx.x == 0) last = fault == 4 ? blockIdx.z == gridDim.z - 1 : atomicAdd(count, 1) == gridDim.z - (fault == 8 ? 2 : 1);
    if (fault != 5) __syncthreads();
    if (!last) return;
    if (fault != 7) __threadfence();
    each(d, [&](float &v, int row, int column) {
        v = 0;
        for (unsigned z = 0; z < gridDim.z; z++) v += parts[((size_t)z * m + y + row) * n + x + column];
        c[(size_t)(y + row) * n + x + column] = v;
    });
    if (threadIdx.x == 0) *count = 0;
}
