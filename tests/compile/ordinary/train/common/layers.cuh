#pragma once
#include <cuda_bf16.h>
#include "packed.cuh"
#include "utils.h"

#define GELU_SCALING_FACTOR sqrtf(2.0f / M_PI)
typedef __nv_bfloat16 floatX;

class NvtxRange {
public:
    NvtxRange(const char *s) { nvtxRangePush(s); }
    NvtxRange(const std::string &base, int number) { nvtxRangePush((base + std::to_string(number)).c_str()); }
    ~NvtxRange() { nvtxRangePop(); }
};
#define NVTX_RANGE_FN() NvtxRange nvtx_range(__FUNCTION__)

__host__ __device__ constexpr int const_twice(int x) { return 2 * x; }
__device__ inline void stochastic_rounding(float in, __nv_bfloat16 *out, unsigned int seed) {
    unsigned int bits = __float_as_uint(in) + (seed & 0xFFFF);
    *out = __float2bfloat16_rn(__uint_as_float(bits & 0xFFFF0000u));
}
__device__ inline float lerp(float start, float end, float weight) { return fmaf(weight, end, fmaf(-weight, start, start)); }

template <class T, typename... Args>
void launch(T kernel, int grid, Args &&...args) {
    kernel<<<grid, 32>>>(std::forward<Args>(args)...);
}
