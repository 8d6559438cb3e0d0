#pragma once
#include <torch/all.h>
#ifdef USE_ROCM
  #define VLLM_LDG(arg) *(arg)
#else
  #define VLLM_LDG(arg) __ldg(arg)
#endif
namespace vllm {
template <typename torch_type> struct _typeConvert {
  static constexpr bool exists = false;
};
template <> struct _typeConvert<c10::Half> {
  static constexpr bool exists = true;
  using hip_type = __half;
  __device__ static inline float convert(hip_type x) { return __half2float(x); }
  __device__ static inline hip_type convert(float x) { return __float2half_rn(x); }
};
}
