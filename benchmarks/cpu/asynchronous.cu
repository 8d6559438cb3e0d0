// Pipelines of asynchronous copies: instructions.py counts what they cost. Each block goes over `tiles` tiles.
#include <cstdint>
__device__ unsigned sh(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ void until(uint64_t *bar, int parity)
{
    asm volatile("{.reg .pred p; L: mbarrier.try_wait.parity.shared.b64 p, [%0], %1; @!p bra L;}" ::"r"(sh(bar)), "r"(parity)
                 : "memory");
}

extern "C" __global__ void cp_async(const float *x, float *y, int tiles)
{
    __shared__ __align__(16) float s[3][512];
    int t = threadIdx.x;
    float sum = 0;
    x += blockIdx.x * 512;
    for (int k = -2; k < tiles; k++) {
        if (k + 2 < tiles)
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(sh(&s[(k + 2) % 3][4 * t])),
                         "l"(x + (k + 2) * 512 + 4 * t) : "memory");
        asm volatile("cp.async.commit_group;" ::: "memory");
        if (k < 0) continue;
        asm volatile("cp.async.wait_group 2;" ::: "memory");
        __syncthreads();
        for (int i = 0; i < 16; i++) sum += s[k % 3][(t * 4 + i * 20) % 512];
        __syncthreads();
    }
    y[blockIdx.x * 128 + t] = sum;
}

extern "C" __global__ void tma(const float *x, float *y, int tiles)
{
    __shared__ __align__(128) float s[4][512];
    __shared__ uint64_t full[4];
    int t = threadIdx.x;
    float sum = 0;
    x += blockIdx.x * 512;
    if (t < 4) asm volatile("mbarrier.init.shared.b64 [%0], 1; fence.mbarrier_init.release.cluster;" ::"r"(sh(&full[t])) : "memory");
    __syncthreads();
    for (int k = -3; k < tiles; k++) {
        int next = k + 3;
        if (t == 0 && next < tiles) {
            asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 2048;" ::"r"(sh(&full[next % 4])) : "memory");
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 2048, [%2];" ::"r"(
                             sh(s[next % 4])), "l"(x + next * 512), "r"(sh(&full[next % 4])) : "memory");
        }
        if (k < 0) continue;
        until(&full[k % 4], k / 4 & 1);
        for (int i = 0; i < 16; i++) sum += s[k % 4][(t * 4 + i * 20) % 512];
        __syncthreads();
    }
    y[blockIdx.x * 128 + t] = sum;
}

extern "C" __global__ void wgmma(const float *x, float *y, int tiles)
{
    __shared__ __align__(1024) unsigned short a[64 * 64], b[64 * 64];
    __shared__ uint64_t full;
    int t = threadIdx.x;
    float d[4] = {0, 0, 0, 0};
    x += blockIdx.x * 512;
    if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], 1; fence.mbarrier_init.release.cluster;" ::"r"(sh(&full)) : "memory");
    for (int i = t; i < 64 * 64; i += 128) a[i] = b[i] = 0x3f80;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    unsigned long long left = (sh(a) >> 4) | (1ull << 16) | (64ull << 32) | (1ull << 62);
    unsigned long long right = (sh(b) >> 4) | (1ull << 16) | (64ull << 32) | (1ull << 62);
    for (int k = 0; k < tiles; k++) {
        if (t == 0) {
            asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 2048;" ::"r"(sh(&full)) : "memory");
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 2048, [%2];" ::"r"(sh(b)),
                         "l"(x + k * 512), "r"(sh(&full)) : "memory");
        }
        until(&full, k & 1);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        for (int i = 0; i < 4; i++)
            asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, %4, %5, 1, 1, 1, 0, 0;"
                         : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(left + 2 * i), "l"(right + 2 * i));
        asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");
        __syncthreads();
    }
    y[blockIdx.x * 128 + t] = d[0] + d[1] + d[2] + d[3];
}
