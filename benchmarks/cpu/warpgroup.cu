// A product of 64 x 16 and 16 x 8 tiles by wgmma, whose operands one warpgroup lays into shared memory without a swizzle.

#include <cuda_fp16.h>

__device__ unsigned long long described(const void *tile, unsigned leading, unsigned strided)
{
    unsigned long long at = __cvta_generic_to_shared(tile);
    return (at & 0x3FFFF) >> 4 | (unsigned long long)(leading >> 4) << 16 | (unsigned long long)(strided >> 4) << 32;
}

extern "C" __global__ void warpgroup(const __half *a, const __half *b, float *c, int n)
{
    __shared__ __align__(128) __half left[64 * 16], right[16 * 8];
    int t = threadIdx.x, row = blockIdx.y * 64, column = blockIdx.x * 8;
    float d[4] = {0, 0, 0, 0};
    for (int k = 0; k < n; k += 16) {
        // Cores of 8 rows of 16 bytes lie one after the other: along k first.
        int r = t / 2, h = t % 2;
        *(uint4 *)&left[(r / 8 * 2 + h) * 64 + r % 8 * 8] = *(const uint4 *)&a[(row + r) * n + k + h * 8];
        int q = t / 16, p = t % 16;
        right[p / 8 * 64 + q * 8 + p % 8] = b[(column + q) * n + k + p];
        asm volatile("fence.proxy.async;");
        __syncthreads();
        asm volatile("wgmma.fence.sync.aligned;\n"
                     "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0,%1,%2,%3}, %4, %5, 1, 1, 1, 0, 0;\n"
                     "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "l"(described(left, 128, 256)), "l"(described(right, 128, 256)));
        __syncthreads();
    }
    for (int i = 0; i < 4; i++) c[(row + t / 32 * 16 + t % 32 / 4 + i / 2 * 8) * n + column + t % 4 * 2 + i % 2] = d[i];
}
