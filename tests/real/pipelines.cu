// Pipelines of Hopper: copies by tensor maps, mbarriers, warps that specialise, wgmma. tests/real/test_pipelines.py has
// the references. FAULT plants a mistake.
#include <cuda_fp16.h>

// cuda.h declares host functions, which NVRTC refuses; this is all that a kernel needs of it.
struct alignas(64) CUtensorMap_st {
    unsigned long long opaque[16];
};
typedef struct CUtensorMap_st CUtensorMap;

typedef unsigned long long u64;

#ifndef FAULT
#define FAULT RIGHT
#endif
enum Fault {
    RIGHT, NO_WAIT, NO_WAIT_FOR_ROOM, WRONG_PHASE, TOO_FEW_BYTES, TOO_MANY_BYTES, NEXT_TILE, NO_FENCE_OF_BARRIERS,
    RELAXED, NO_FENCE_OF_PRODUCTS
};
enum { WRONG_BY = FAULT == TOO_FEW_BYTES ? -512 : FAULT == TOO_MANY_BYTES ? 16 : 0 };

static __device__ unsigned shared_address(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }

static __device__ void barrier_init(u64 *barrier, unsigned count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count) : "memory");
}

static __device__ void barriers_are_ready()
{
    if (FAULT == NO_FENCE_OF_BARRIERS || FAULT == RELAXED) return;
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

static __device__ void expect(u64 *barrier, unsigned bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

static __device__ void arrive(u64 *barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

static __device__ void wait(u64 *barrier, unsigned parity)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "AGAIN:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra DONE;\n"
                 "bra AGAIN;\n"
                 "DONE:\n"
                 "}" ::"r"(shared_address(barrier)), "r"(parity)
                 : "memory");
}

static __device__ void load_box(void *to, const CUtensorMap *map, int x, int y, u64 *barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                 ::"r"(shared_address(to)), "l"(map), "r"(x), "r"(y), "r"(shared_address(barrier))
                 : "memory");
}

// Warps that specialise: the first warp group brings rows into a ring of stages, the other two add them up. Stage by
// stage a full barrier says that a row is there, an empty one that it may be overwritten.
constexpr int STAGES = 3, ROW = 256;

extern "C" __global__ void __launch_bounds__(384, 1) specialised(const float *in, float *out, int rows)
{
    __shared__ alignas(128) float ring[STAGES][ROW];
    __shared__ u64 full[STAGES], empty[STAGES];
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) {
            barrier_init(&full[s], 1);
            barrier_init(&empty[s], 256);
        }
        barriers_are_ready();
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0) {
            for (int k = 0; k < rows; k++) {
                int s = k % STAGES;
                if (k >= STAGES && FAULT != NO_WAIT_FOR_ROOM) wait(&empty[s], (k / STAGES - 1) & 1);
                expect(&full[s], sizeof(ring[s]) + WRONG_BY);
                asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                             ::"r"(shared_address(ring[s])), "l"(in + ((size_t)blockIdx.x * rows + k) * ROW),
                             "r"((unsigned)sizeof(ring[s])), "r"(shared_address(&full[s]))
                             : "memory");
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        int at = threadIdx.x - 128;
        float sum = 0;
        for (int k = 0; k < rows; k++) {
            int s = k % STAGES;
            if (FAULT != NO_WAIT) wait(&full[s], (k / STAGES & 1) ^ (FAULT == WRONG_PHASE));
            sum += ring[FAULT == NEXT_TILE ? (s + 1) % STAGES : s][ROW - 1 - at] * (k + 1);
            arrive(&empty[s]);
        }
        out[blockIdx.x * ROW + at] = sum;
    }
}

// A product of halves in three stages of cp.async, with ldmatrix and mma.sync: c = a b, a is m by k, b is k by n.
// 128 threads make a tile of 64 by 64; each of the four warps a quarter of it.
constexpr int TILE = 64, STEP = 32, PAD = 8;

static __device__ void copy_16(void *to, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}

extern "C" __global__ void __launch_bounds__(128) multistage(const __half *a, const __half *b, float *c, int m, int n,
                                                             int k)
{
    __shared__ alignas(16) __half as[3][TILE][STEP + PAD], bs[3][STEP][TILE + PAD];
    int row = blockIdx.y * TILE, column = blockIdx.x * TILE, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int steps = k / STEP;
    auto fetch = [&](int step) {
        if (step < steps) {
            for (int i = threadIdx.x; i < TILE * STEP / 8; i += 128) {
                int r = i / (STEP / 8), q = i % (STEP / 8) * 8;
                copy_16(&as[step % 3][r][q], a + (size_t)(row + r) * k + step * STEP + q);
                r = i / (TILE / 8), q = i % (TILE / 8) * 8;
                copy_16(&bs[step % 3][r][q], b + (size_t)(step * STEP + r) * n + column + q);
            }
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    float d[2][4][4] = {};
    fetch(0);
    fetch(1);
    for (int step = 0; step < steps; step++) {
        if (FAULT != NO_WAIT) asm volatile("cp.async.wait_group 1;" ::: "memory");
        if (FAULT != NO_WAIT_FOR_ROOM) __syncthreads();
        fetch(step + 2);
        int now = (FAULT == NEXT_TILE ? step + 1 : step) % 3;
        for (int q = 0; q < STEP; q += 16) {
            unsigned x[2][4], y[4][2];
            for (int i = 0; i < 2; i++) {
                unsigned at = shared_address(&as[now][warp / 2 * 32 + i * 16 + lane % 16][q + lane / 16 * 8]);
                asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                             : "=r"(x[i][0]), "=r"(x[i][1]), "=r"(x[i][2]), "=r"(x[i][3]) : "r"(at));
            }
            for (int j = 0; j < 4; j++) {
                unsigned at = shared_address(&bs[now][q + lane % 16][warp % 2 * 32 + j * 8]);
                asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                             : "=r"(y[j][0]), "=r"(y[j][1]) : "r"(at));
            }
            for (int i = 0; i < 2; i++)
                for (int j = 0; j < 4; j++)
                    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                                 : "+f"(d[i][j][0]), "+f"(d[i][j][1]), "+f"(d[i][j][2]), "+f"(d[i][j][3])
                                 : "r"(x[i][0]), "r"(x[i][1]), "r"(x[i][2]), "r"(x[i][3]), "r"(y[j][0]), "r"(y[j][1]));
        }
    }
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 4; j++)
            for (int e = 0; e < 4; e++) {
                int r = row + warp / 2 * 32 + i * 16 + lane / 4 + e / 2 * 8;
                int q = column + warp % 2 * 32 + j * 8 + lane % 4 * 2 + e % 2;
                if (r < m && q < n) c[(size_t)r * n + q] = d[i][j][e];
            }
}

// The same by wgmma: a producer warp loads tiles of 64 by 64 with a swizzle of 128 bytes, a warp group multiplies.
// b is given transposed, n by k. What lies outside of the matrices is zero and is not stored.
constexpr int DEPTH = 2;

struct alignas(1024) Stage {
    __half a[64][64], b[64][64];
};

static __device__ u64 descriptor(const void *p)
{
    u64 address = shared_address(p) >> 4 & 0x3FFF;
    return address | 1ull << 16 | (u64)(1024 >> 4) << 32 | 1ull << 62;  // 8 rows are 1024 bytes; swizzle of 128 bytes
}

static __device__ void multiply(float (&d)[32], u64 a, u64 b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "%32, %33, 1, 1, 1, 0, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
                   "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),
                   "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]),
                   "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]),
                   "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
                 : "l"(a), "l"(b));
}

extern "C" __global__ void __launch_bounds__(160) fed_by_tma(const __grid_constant__ CUtensorMap a,
                                                             const __grid_constant__ CUtensorMap b, float *c, int m,
                                                             int n, int k)
{
    __shared__ Stage stages[DEPTH];
    __shared__ u64 full[DEPTH], empty[DEPTH];
    int row = blockIdx.y * 64, column = blockIdx.x * 64, steps = (k + 63) / 64;
    if (threadIdx.x == 0) {
        for (int s = 0; s < DEPTH; s++) {
            barrier_init(&full[s], 1);
            barrier_init(&empty[s], 128);
        }
        barriers_are_ready();
    }
    __syncthreads();
    if (threadIdx.x >= 128) {
        if (threadIdx.x == 128) {
            for (int step = 0; step < steps; step++) {
                int s = step % DEPTH;
                if (step >= DEPTH && FAULT != NO_WAIT_FOR_ROOM) wait(&empty[s], (step / DEPTH - 1) & 1);
                expect(&full[s], sizeof(Stage) + WRONG_BY);
                load_box(stages[s].a, &a, step * 64, row, &full[s]);
                load_box(stages[s].b, &b, step * 64, column, &full[s]);
            }
        }
        return;
    }
    float d[32] = {};
    for (int step = 0; step < steps; step++) {
        int s = step % DEPTH;
        if (FAULT != NO_WAIT) wait(&full[s], (step / DEPTH & 1) ^ (FAULT == WRONG_PHASE));
        Stage &now = stages[FAULT == NEXT_TILE ? (s + 1) % DEPTH : s];
        if (FAULT != NO_FENCE_OF_PRODUCTS) asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        for (int q = 0; q < 4; q++) multiply(d, descriptor(&now.a[0][16 * q]), descriptor(&now.b[0][16 * q]));
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        arrive(&empty[s]);
    }
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int e = 0; e < 32; e++) {
        int r = row + warp * 16 + lane / 4 + e / 2 % 2 * 8, q = column + e / 4 * 8 + lane % 4 * 2 + e % 2;
        if (r < m && q < n) c[(size_t)r * n + q] = d[e];
    }
}

// Each block of a cluster loads its part of a tile, for all blocks of the cluster at once.
extern "C" __global__ void __cluster_dims__(4, 1, 1) shared_out(const __grid_constant__ CUtensorMap map, int *out)
{
    __shared__ alignas(128) int tile[16][32];
    __shared__ u64 there;
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    if (threadIdx.x == 0) {
        barrier_init(&there, 1);
        barriers_are_ready();
        expect(&there, sizeof(tile) + WRONG_BY);
    }
    if (FAULT == RELAXED)
        asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    else
        asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
    if (threadIdx.x == 0) {
        int y = blockIdx.x / 4 * 16 + rank * 4;
        int part = FAULT == NEXT_TILE ? rank + 1 : rank;
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                     "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(tile[part * 4])), "l"(&map), "r"(0), "r"(y),
                     "r"(shared_address(&there)), "h"((unsigned short)0xF)
                     : "memory");
    }
    if (FAULT != NO_WAIT) wait(&there, FAULT == WRONG_PHASE);
    for (int i = threadIdx.x; i < 512; i += blockDim.x) out[blockIdx.x * 512 + i] = tile[15 - i / 32][i % 32] + rank;
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
