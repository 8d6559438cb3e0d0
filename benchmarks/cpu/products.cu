#include <cuda_bf16.h>
#include <mma.h>

/* Each warp makes 16 × 16 elements, a block 32 × 32. */
template <typename T> static __device__ void product(const T *a, const T *b, float *c, int n)
{
    using namespace nvcuda::wmma;
    int warp = threadIdx.x / 32, row = blockIdx.y * 32 + warp / 2 * 16, column = blockIdx.x * 32 + warp % 2 * 16;
    fragment<matrix_a, 16, 16, 16, T, row_major> left;
    fragment<matrix_b, 16, 16, 16, T, row_major> right;
    fragment<accumulator, 16, 16, 16, float> sum;
    fill_fragment(sum, 0.0f);
    for (int k = 0; k < n; k += 16) {
        load_matrix_sync(left, a + row * n + k, n);
        load_matrix_sync(right, b + k * n + column, n);
        mma_sync(sum, left, right, sum);
    }
    store_matrix_sync(c + row * n + column, sum, n, mem_row_major);
}

extern "C" __global__ void f16(const half *a, const half *b, float *c, int n) { product(a, b, c, n); }

extern "C" __global__ void bf16(const unsigned short *a, const unsigned short *b, float *c, int n)
{
    product((const __nv_bfloat16 *)a, (const __nv_bfloat16 *)b, c, n);
}
