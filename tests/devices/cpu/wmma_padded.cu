// A product of one tile by wmma, whose operands lie in padded rows of shared memory. test_checks_wmma.py runs it.
// `missing` names an element of a, of b (from 10,000 on) or of c (from 20,000 on) that nobody writes.
#include <cuda_bf16.h>
#include <mma.h>

using namespace nvcuda::wmma;

constexpr int PAD = 16; // bytes
template <typename Layout> constexpr bool by_rows = false;
template <> constexpr bool by_rows<row_major> = true;

template <typename T> static __device__ void fill(T *to, const T *from, int rows, int columns, int missing)
{
    for (int i = threadIdx.x; i < rows * columns; i += 32)
        if (i != missing) to[i / columns * (columns + PAD / sizeof(T)) + i % columns] = from[i];
}

template <int M, int N, int K, typename T, typename Stored, typename Sum, typename Left, typename Right>
static __device__ void tile(const Stored *a, const Stored *b, const Sum *c, Sum *d, int missing)
{
    constexpr int a_rows = by_rows<Left> ? M : K, a_columns = M * K / a_rows, a_lead = a_columns + PAD / sizeof(Stored);
    constexpr int b_rows = by_rows<Right> ? K : N, b_columns = K * N / b_rows, b_lead = b_columns + PAD / sizeof(Stored);
    constexpr int lead = N + PAD / sizeof(Sum);
    __shared__ alignas(128) Stored as[a_rows * a_lead], bs[b_rows * b_lead];
    __shared__ alignas(128) Sum cs[M * lead], ds[M * lead];
    fill(as, a, a_rows, a_columns, missing);
    fill(bs, b, b_rows, b_columns, missing - 10000);
    fill(cs, c, M, N, missing - 20000);
    __syncthreads();
    fragment<matrix_a, M, N, K, T, Left> x;
    fragment<matrix_b, M, N, K, T, Right> y;
    fragment<accumulator, M, N, K, Sum> sum;
    load_matrix_sync(x, as, a_lead);
    load_matrix_sync(y, bs, b_lead);
    load_matrix_sync(sum, cs, lead, mem_row_major);
    mma_sync(sum, x, y, sum);
    store_matrix_sync(ds, sum, lead, mem_row_major);
    __syncthreads();
    for (int i = threadIdx.x; i < M * N; i += 32) d[i] = ds[i / N * lead + i % N];
}

#define TILE(name, M, N, K, T, S, C, L, R)                                                                            \
    extern "C" __global__ void name(const S *a, const S *b, const C *c, C *d, int missing)                            \
    {                                                                                                                 \
        tile<M, N, K, T, S, C, L##_major, R##_major>(a, b, c, d, missing);                                            \
    }
#define SHAPES(name, T, C, L, R)                                                                                      \
    TILE(name##_16_16_16, 16, 16, 16, T, T, C, L, R)                                                                  \
    TILE(name##_8_32_16, 8, 32, 16, T, T, C, L, R)                                                                    \
    TILE(name##_32_8_16, 32, 8, 16, T, T, C, L, R)
#define LAYOUTS(name, T, C)                                                                                           \
    SHAPES(name##_rr, T, C, row, row)                                                                                 \
    SHAPES(name##_rc, T, C, row, col)                                                                                 \
    SHAPES(name##_cr, T, C, col, row)                                                                                 \
    SHAPES(name##_cc, T, C, col, col)

LAYOUTS(half, __half, __half)
LAYOUTS(float, __half, float)
LAYOUTS(bfloat, __nv_bfloat16, float)
LAYOUTS(signed, signed char, int)
LAYOUTS(unsigned, unsigned char, int)
TILE(tf32_rr_16_16_8, 16, 16, 8, precision::tf32, float, float, row, row)
TILE(tf32_cc_16_16_8, 16, 16, 8, precision::tf32, float, float, col, col)
TILE(double_rr_8_8_4, 8, 8, 4, double, double, double, row, row)
TILE(double_cc_8_8_4, 8, 8, 4, double, double, double, col, col)

// Numbers of four bits and of one lie in words: of a by rows, of b by columns.
template <int K, typename T, typename Multiply>
static __device__ void small_tile(const int *a, const int *b, const int *c, int *d, int missing, int words, Multiply f)
{
    __shared__ alignas(128) int as[8 * 8], bs[8 * 8], cs[8 * 12], ds[8 * 12];
    fill(as, a, 8, words, missing);
    fill(bs, b, 8, words, missing - 10000);
    fill(cs, c, 8, 8, missing - 20000);
    __syncthreads();
    fragment<matrix_a, 8, 8, K, T, row_major> x;
    fragment<matrix_b, 8, 8, K, T, col_major> y;
    fragment<accumulator, 8, 8, K, int> sum;
    int lead = (words + PAD / 4) * K / words;
    load_matrix_sync(x, as, lead);
    load_matrix_sync(y, bs, lead);
    load_matrix_sync(sum, cs, 12, mem_row_major);
    f(sum, x, y);
    store_matrix_sync(ds, sum, 12, mem_row_major);
    __syncthreads();
    for (int i = threadIdx.x; i < 64; i += 32) d[i] = ds[i / 8 * 12 + i % 8];
}
extern "C" __global__ void s4_rc_8_8_32(const int *a, const int *b, const int *c, int *d, int missing)
{
    auto multiply = [](auto &sum, auto &x, auto &y) { mma_sync(sum, x, y, sum); };
    small_tile<32, experimental::precision::s4>(a, b, c, d, missing, 4, multiply);
}
extern "C" __global__ void b1_rc_8_8_128(const int *a, const int *b, const int *c, int *d, int missing)
{
    small_tile<128, experimental::precision::b1>(a, b, c, d, missing, 4, [](auto &sum, auto &x, auto &y) {
        bmma_sync(sum, x, y, sum, experimental::bmmaBitOpAND, experimental::bmmaAccumulateOpPOPC);
    });
}
