// Arithmetic of half, bfloat16 and fp8. tests/real/test_halves.py has the references.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

extern "C" __global__ void half_operators(const __half *a, const __half *b, __half *sum, __half *product, __half *fused,
                                          __half *quotient, int *less)
{
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    __half x = a[at], y = b[at];
    sum[at] = x + y;
    product[at] = x * y;
    fused[at] = __hfma(x, y, x);
    quotient[at] = x / y;
    less[at] = (x < y) + 2 * (x == y) + 4 * (x >= y) + 8 * __hisnan(x);
}

extern "C" __global__ void half_pairs(const __half2 *a, const __half2 *b, __half2 *sum, __half2 *most, __half2 *flipped)
{
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    sum[at] = __hadd2(a[at], b[at]) - __float2half2_rn(0.5f);
    most[at] = __hmax2(a[at], __habs2(b[at]));
    flipped[at] = __lowhigh2highlow(__hmul2_sat(a[at], b[at]));
}

extern "C" __global__ void half_functions(const __half *a, __half *root, __half *exponential, __half *up, int *whole)
{
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    root[at] = hsqrt(a[at]);
    exponential[at] = hexp(a[at]);
    up[at] = hceil(a[at]);
    whole[at] = __half2int_rn(a[at]);
}

extern "C" __global__ void bfloat_operators(const __nv_bfloat16 *a, const __nv_bfloat16 *b, __nv_bfloat16 *sum,
                                            __nv_bfloat16 *product, __nv_bfloat16 *fused, __nv_bfloat16 *most)
{
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    __nv_bfloat16 x = a[at], y = b[at];
    sum[at] = x + y;
    product[at] = x * y;
    fused[at] = __hfma(x, y, y);
    most[at] = __hmax(x, y);
}

extern "C" __global__ void bfloat_conversions(const float *in, __nv_bfloat16 *nearest, __nv_bfloat162 *pairs, float *back)
{
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    nearest[at] = __float2bfloat16(in[at]);
    pairs[at] = __floats2bfloat162_rn(in[at], -in[at]);
    back[at] = __bfloat162float(__float2bfloat16_rz(in[at]));
}

// Sums of halves by atomics: small whole numbers, so that every order gives the same.
extern "C" __global__ void half_atomics(const __half2 *in, __half2 *sum)
{
    atomicAdd(sum + threadIdx.x % 4, in[blockIdx.x * blockDim.x + threadIdx.x]);
}

extern "C" __global__ void small_floats(const float *in, unsigned char *e4m3, unsigned char *e5m2, float *back, float *back5)
{
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    __nv_fp8_e4m3 x(in[at]);
    __nv_fp8_e5m2 y(in[at]);
    e4m3[at] = x.__x;
    e5m2[at] = y.__x;
    back[at] = (float)x;
    back5[at] = (float)y;
}
