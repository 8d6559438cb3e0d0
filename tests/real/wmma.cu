// Tiled products of matrices by warps. tests/real/test_matrix.py has the references.
#include <cuda_bf16.h>
#include <mma.h>

using namespace nvcuda;

// c = a b: every warp makes one 16 x 16 tile; a and b are read through shared memory, 32 columns at a time.
extern "C" __global__ void product(const __half *a, const __half *b, float *c, int m, int n, int k)
{
    __shared__ alignas(32) __half as[32][40], bs[32][40];
    int warp = threadIdx.x / 32, row = blockIdx.y * 32, column = blockIdx.x * 32, mine = warp / 2 * 16, other = warp % 2 * 16;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    for (int base = 0; base < k; base += 32) {
        for (int i = threadIdx.x; i < 32 * 32; i += blockDim.x) {
            as[i / 32][i % 32] = a[(row + i / 32) * k + base + i % 32];
            bs[i / 32][i % 32] = b[(base + i / 32) * n + column + i % 32];
        }
        __syncthreads();
        for (int step = 0; step < 32; step += 16) {
            wmma::load_matrix_sync(left, &as[mine][step], 40);
            wmma::load_matrix_sync(right, &bs[step][other], 40);
            wmma::mma_sync(sum, left, right, sum);
        }
        __syncthreads();
    }
    for (int i = 0; i < sum.num_elements; i++) sum.x[i] *= 2.0f;
    wmma::store_matrix_sync(c + (row + mine) * n + column + other, sum, n, wmma::mem_row_major);
    (void)m;
}

// One tile of each other kind: a column-major operand, a half accumulator, bfloat16, bytes, tf32 and double.
template <typename In, typename Out, int M, int N, int K, typename Left, typename Right, typename Stored = In>
__device__ void one_tile(const Stored *a, const Stored *b, const Out *c, Out *d, int lead_a, int lead_b)
{
    wmma::fragment<wmma::matrix_a, M, N, K, In, Left> left;
    wmma::fragment<wmma::matrix_b, M, N, K, In, Right> right;
    wmma::fragment<wmma::accumulator, M, N, K, Out> sum;
    wmma::load_matrix_sync(left, a, lead_a);
    wmma::load_matrix_sync(right, b, lead_b);
    wmma::load_matrix_sync(sum, c, N, wmma::mem_row_major);
    wmma::mma_sync(sum, left, right, sum);
    wmma::store_matrix_sync(d, sum, N, wmma::mem_row_major);
}

extern "C" __global__ void half_tile(const __half *a, const __half *b, const __half *c, __half *d)
{
    one_tile<__half, __half, 32, 8, 16, wmma::col_major, wmma::col_major>(a, b, c, d, 32, 16);
}

extern "C" __global__ void bfloat_tile(const __nv_bfloat16 *a, const __nv_bfloat16 *b, const float *c, float *d)
{
    one_tile<__nv_bfloat16, float, 8, 32, 16, wmma::row_major, wmma::row_major>(a, b, c, d, 16, 32);
}

extern "C" __global__ void byte_tile(const signed char *a, const signed char *b, const int *c, int *d)
{
    one_tile<signed char, int, 16, 16, 16, wmma::row_major, wmma::col_major>(a, b, c, d, 16, 16);
}

extern "C" __global__ void tf32_tile(const float *a, const float *b, const float *c, float *d)
{
    one_tile<wmma::precision::tf32, float, 16, 16, 8, wmma::row_major, wmma::col_major>(a, b, c, d, 8, 8);
}

extern "C" __global__ void double_tile(const double *a, const double *b, const double *c, double *d)
{
    one_tile<double, double, 8, 8, 4, wmma::row_major, wmma::col_major>(a, b, c, d, 4, 4);
}
