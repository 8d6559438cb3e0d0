// Attention in tiles that cp.async brings, a sum over the blocks of a cluster by st.async, and tiles that leave by tensor
// stores while the next ones are computed. `fault` plants a mistake.
#include <cuda_fp16.h>
#include <cstdint>

struct alignas(64) CUtensorMap_st { unsigned long long opaque[16]; };

static __device__ unsigned place(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }

// -- attention: 64 queries a block, 16 a warp; tiles of 32 keys and values in two stages ---------------------------------

constexpr int WIDTH = 64, KEYS = 32, PITCH = WIDTH + 8;

static __device__ void matrices(unsigned (&r)[4], const __half *from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(place(from)) : "memory");
}
static __device__ void turned(unsigned (&r)[4], const __half *from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(place(from)) : "memory");
}
static __device__ void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
static __device__ unsigned pair(float x, float y) {
    __half2 both = __floats2half2_rn(x, y);
    return *(unsigned *)&both;
}

extern "C" __global__ void __launch_bounds__(128)
attention(const __half *q, const __half *k, const __half *v, float *out, int keys, int fault) {
    __shared__ __align__(16) __half queries[64 * PITCH], tile[2][2][KEYS * PITCH];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, tiles = (keys + KEYS - 1) / KEYS;
    auto fetch = [&](int at) {
        if (at < tiles)
            for (int i = threadIdx.x; i < 2 * KEYS * WIDTH / 8; i += 128) {
                int which = i / (KEYS * WIDTH / 8), row = i / (WIDTH / 8) % KEYS, column = i % (WIDTH / 8) * 8;
                int key = at * KEYS + row, bytes = key < keys || fault == 4 ? 16 : 0;
                const __half *from = (which ? v : k) + (bytes ? key : 0) * WIDTH + column;
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                             ::"r"(place(&tile[at % 2][which][row * PITCH + column])), "l"(from), "r"(bytes) : "memory");
            }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    for (int i = threadIdx.x; i < 64 * WIDTH; i += 128)
        queries[i / WIDTH * PITCH + i % WIDTH] = q[blockIdx.x * 64 * WIDTH + i];
    fetch(0);
    float sum[8][4] = {}, most[2] = {-1e30f, -1e30f}, total[2] = {};
    for (int at = 0; at < tiles; at++) {
        fetch(at + 1);
        if (fault != 1) asm volatile("cp.async.wait_group 1;" ::: "memory");
        if (fault != 2) __syncthreads();
        const __half *ks = tile[at % 2][0] + (fault == 3 ? 4 * KEYS * PITCH : 0), *vs = tile[at % 2][1];
        float score[4][4] = {};
        for (int step = 0; step < 4; step++) {
            unsigned a[4], b[4];
            matrices(a, queries + (warp * 16 + lane % 16) * PITCH + step * 16 + lane / 16 * 8);
            for (int n = 0; n < 4; n += 2) {
                matrices(b, ks + (n * 8 + lane / 16 * 8 + lane % 8) * PITCH + step * 16 + lane / 8 % 2 * 8);
                multiply(score[n], a, b[0], b[1]);
                multiply(score[n + 1], a, b[2], b[3]);
            }
        }
        for (int half = 0; half < 2; half++) {
            float high = most[half];
            for (int n = 0; n < 4; n++)
                for (int j = 0; j < 2; j++) {
                    float &s = score[n][half * 2 + j];
                    s = at * KEYS + n * 8 + lane % 4 * 2 + j < keys ? s * 0.125f : -1e30f;
                    high = fmaxf(high, s);
                }
            for (int d = 1; d < 4; d *= 2) high = fmaxf(high, __shfl_xor_sync(~0u, high, d));
            float by = __expf(most[half] - high), part = 0;
            most[half] = high;
            for (int n = 0; n < 4; n++)
                for (int j = 0; j < 2; j++) part += score[n][half * 2 + j] = __expf(score[n][half * 2 + j] - high);
            for (int d = 1; d < 4; d *= 2) part += __shfl_xor_sync(~0u, part, d);
            total[half] = total[half] * by + part;
            for (int n = 0; n < 8; n++) sum[n][half * 2] *= by, sum[n][half * 2 + 1] *= by;
        }
        for (int step = 0; step < 2; step++) {
            const float (&x)[4] = score[2 * step], (&y)[4] = score[2 * step + 1];
            unsigned a[4] = {pair(x[0], x[1]), pair(x[2], x[3]), pair(y[0], y[1]), pair(y[2], y[3])}, b[4];
            for (int n = 0; n < 8; n += 2) {
                turned(b, vs + (step * 16 + lane / 8 % 2 * 8 + lane % 8) * PITCH + n * 8 + lane / 16 * 8);
                multiply(sum[n], a, b[0], b[1]);
                multiply(sum[n + 1], a, b[2], b[3]);
            }
        }
        if (fault != 5) __syncthreads();
    }
    for (int n = 0; n < 8; n++)
        for (int i = 0; i < 4; i++)
            out[(blockIdx.x * 64 + warp * 16 + lane / 4 + i / 2 * 8) * WIDTH + n * 8 + lane % 4 * 2 + i % 2] =
                sum[n][i] / total[i / 2];
}

// -- a sum over the blocks of a cluster: each sends what it has to the first one's memory --------------------------------

extern "C" __global__ void __cluster_dims__(4, 1, 1) cluster_sum(const float *x, float *out, int n, int fault) {
    __shared__ float part[32], all[4];
    __shared__ uint64_t bar;
    unsigned rank, t = threadIdx.x;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    if (t == 0 && rank == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1; fence.mbarrier_init.release.cluster;" ::"r"(place(&bar)) : "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;"
                     ::"r"(place(&bar)), "r"(fault == 2 ? 20 : 16) : "memory");
    }
    float sum = 0;
    for (int i = (blockIdx.x / 4 * 4 + rank) * n + t; i < (int)(blockIdx.x / 4 * 4 + rank + 1) * n; i += 128) sum += x[i];
    for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
    if (t % 32 == 0) part[t / 32] = sum;
    asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
    if (t == 0) {
        float own = part[0] + part[1] + part[2] + part[3];
        unsigned to, at;
        asm("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(to) : "r"(place(&all[rank]) + (fault == 3 ? 1 << 14 : 0)));
        asm("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(at) : "r"(place(&bar)));
        asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];"
                     ::"r"(to), "f"(own), "r"(at) : "memory");
    }
    if (t < 32 && rank == 0) {
        if (fault != 1)
            asm volatile("{ .reg .pred p; L: mbarrier.try_wait.parity.shared.b64 p, [%0], 0; @!p bra L; }"
                         ::"r"(place(&bar)) : "memory");
        if (t == 0) out[blockIdx.x / 4] = all[0] + all[1] + all[2] + all[3];
    }
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
}

// -- tiles of 8 x 32 that leave by tensor stores from two buffers ---------------------------------------------------------

extern "C" __global__ void __launch_bounds__(64)
stored(const __grid_constant__ CUtensorMap_st map, const float *x, int tiles, int fault) {
    __shared__ __align__(128) float buffer[2][8 * 32];
    int t = threadIdx.x;
    for (int at = 0; at < tiles; at++) {
        float *now = buffer[at % 2];
        if (fault != 2 && t == 0) asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
        __syncthreads();
        for (int i = t; i < 256; i += 64) {
            float value = x[(blockIdx.x * tiles + at) * 256 + i];
            now[i] = value * value + at;
        }
        if (fault != 1) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        if (fault != 3) __syncthreads();
        if (t == 0) {
            asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {0, %1}], [%2];"
                         "cp.async.bulk.commit_group;"
                         ::"l"(&map), "r"((blockIdx.x * tiles + at) * 8), "r"(place(now)) : "memory");
        }
    }
    if (fault != 4 && t == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
