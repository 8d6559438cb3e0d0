/* A causal convolution for PyTorch: kernels over traits, PyTorch's half types, switches by macros and lambdas. */
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <c10/cuda/CUDAException.h>
#include <ATen/cuda/Exceptions.h>

#define BOOL_SWITCH(COND, CONST_NAME, ...) \
    [&] {                                  \
        if (COND) {                        \
            static constexpr bool CONST_NAME = true;  \
            return __VA_ARGS__();          \
        } else {                           \
            static constexpr bool CONST_NAME = false; \
            return __VA_ARGS__();          \
        }                                  \
    }()
#ifndef USE_ROCM
    #define LANES 32
#else
    #define LANES 64
#endif

struct ConvParamsBase {
    using index_t = uint32_t;
    int batch, dim, seqlen, width;
    bool silu_activation;
    index_t x_batch_stride;
    void *__restrict__ x_ptr;
    void *__restrict__ out_ptr;
};
template <int BYTES> struct BytesToType {};
template <> struct BytesToType<16> { using Type = uint4; };
template <> struct BytesToType<8> { using Type = uint64_t; };

template <typename input_t_, typename weight_t_, int kNThreads_, bool kIsVecLoad_>
struct Conv_kernel_traits {
    using input_t = input_t_;
    using weight_t = weight_t_;
    static constexpr int kNThreads = kNThreads_;
    static constexpr int kNBytes = sizeof(input_t);
    static_assert(kNBytes == 2 || kNBytes == 4);
    static constexpr int kNElts = kNBytes == 4 ? 4 : 8;
    using vec_t = typename BytesToType<kNBytes * kNElts>::Type;
    static constexpr int kSmemSize = kNThreads * kNElts * kNBytes;
};

template <typename Ktraits>
__global__ __launch_bounds__(Ktraits::kNThreads)
void causal_conv1d_fwd_kernel(ConvParamsBase params) {
    using input_t = typename Ktraits::input_t;
    extern __shared__ char smem_[];
    auto &smem = reinterpret_cast<typename Ktraits::vec_t *>(smem_)[threadIdx.x];
    input_t *x = reinterpret_cast<input_t *>(params.x_ptr) + blockIdx.x * params.x_batch_stride;
    smem = reinterpret_cast<typename Ktraits::vec_t *>(x)[threadIdx.x];
    float value = float(x[threadIdx.x]);
    if (params.silu_activation) value = value / (1 + expf(-value * float(M_LOG2E)));
    at::opmath_type<input_t> out = value;
    reinterpret_cast<input_t *>(params.out_ptr)[threadIdx.x] = input_t(out);
}

template <int kNThreads, int kWidth, typename input_t, typename weight_t>
void causal_conv1d_fwd_launch(ConvParamsBase &params, cudaStream_t stream) {
    BOOL_SWITCH(params.seqlen % 8 == 0, kIsVecLoad, [&] {
        using Ktraits = Conv_kernel_traits<input_t, weight_t, kNThreads, kIsVecLoad>;
        auto kernel = &causal_conv1d_fwd_kernel<Ktraits>;
        dim3 grid(params.batch, params.dim);
        kernel<<<grid, Ktraits::kNThreads, Ktraits::kSmemSize, stream>>>(params);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    });
}

template <typename input_t, typename weight_t>
void causal_conv1d_fwd_cuda(ConvParamsBase &params, cudaStream_t stream) {
    if (params.width == 2) {
        causal_conv1d_fwd_launch<128, 2, input_t, weight_t>(params, stream);
    }
}

template void causal_conv1d_fwd_cuda<float, float>(ConvParamsBase &params, cudaStream_t stream);
template void causal_conv1d_fwd_cuda<at::Half, float>(ConvParamsBase &params, cudaStream_t stream);
template void causal_conv1d_fwd_cuda<at::BFloat16, at::BFloat16>(ConvParamsBase &params, cudaStream_t stream);
