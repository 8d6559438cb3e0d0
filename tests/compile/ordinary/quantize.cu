// Quantization of blocks: constants in memory of the device, kernels that templates of the file instantiate by macros,
// functions with C linkage for a library, textures of types, and GNU words.
#include <cassert>
#include <stdexcept>
#include <functional>
#include <iostream>
#include <cuda_fp16.h>
#include <cublas_v2.h>
#include <cusparse.h>
#include <mma.h>
#include <thrust/host_vector.h>
#include <thrust/device_vector.h>

#define HLF_MAX 65504
#define TH 1024
#define NUM 4
#define HD_INLINE __host__ __device__ __forceinline__

typedef enum DataType_t { General8bit = 0, FP4 = 1, NF4 = 2 } DataType_t;
enum class Transform { ROW, COL };

__constant__ float lut[16] = {-1.0f, -0.6961928009986877f, 0.f, 1.f};
__device__ static float nf4_data[16] = {0.f};
static const float kScale = 0.5f;

HD_INLINE int clamp_index(int i) { return i < 0 ? 0 : i; }

// source: a compare and swap of the maximum
__device__ float atomicMax(float *address, float val) {
    int *address_as_i = reinterpret_cast<int *>(address);
    int old = *address_as_i, assumed;
    do {
        assumed = old;
        old = atomicCAS(address_as_i, assumed, __float_as_int(fmaxf(val, __int_as_float(assumed))));
    } while (assumed != old);
    return __int_as_float(old);
}

template <int SIGNED> __device__ unsigned char dQuantize(float *smem_code, float x) {
    unsigned char pivot = 127;
    for (int i = 64; i > 0; i >>= 1) pivot = x > smem_code[pivot] ? pivot + i : pivot - i;
    return SIGNED ? pivot : (unsigned char)(pivot & ~1u);
}

template <typename T, int BLOCK_SIZE, int NUM_PER_TH, int STOCHASTIC, int DATA_TYPE>
__global__ void kQuantizeBlockwise(float *code, T *__restrict__ const A, float *absmax, unsigned char *out, const int n) {
    __shared__ float smem_code[256];
    __extension__ typedef long long wide;
    wide i = (wide)blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (threadIdx.x < 256) smem_code[threadIdx.x] = code[threadIdx.x];
    __syncthreads();
    float local = i < n ? fabsf((float)A[clamp_index(i)]) : -FLT_MAX;
    atomicMax(absmax, local * kScale + lut[threadIdx.x & 15] + nf4_data[0]);
    switch (DATA_TYPE) {
    case General8bit: out[i] = dQuantize<STOCHASTIC>(smem_code, local); break;
    case NF4: out[i] = uint8_t(uint(local)); break;
    }
}

#define MAKE_kQuantizeBlockwise(dtype, blocksize, num_per_thread, stochastic, data_type_name)                      \
    template __global__ void kQuantizeBlockwise<dtype, blocksize, num_per_thread, stochastic, data_type_name>(     \
        float *code, dtype *__restrict__ const A, float *absmax, unsigned char *out, const int n);

MAKE_kQuantizeBlockwise(half, 4096, 4, 0, General8bit)
MAKE_kQuantizeBlockwise(float, 2048, 4, 1, NF4)

#define CUDA_CHECK_RETURN(value) { cudaError_t _m_cudaStat = value; if (_m_cudaStat != cudaSuccess) { \
    fprintf(stderr, "Error %s at line %d in file %s\n", cudaGetErrorString(_m_cudaStat), __LINE__, __FILE__); exit(1); } }

class Context {
public:
    cublasHandle_t m_handle;
    Context() { cublasHandle_t handle; cublasCreate_v2(&handle); m_handle = handle; }
};

template <typename T, int STOCHASTIC, int DATA_TYPE>
void quantizeBlockwise(float *code, T *A, float *absmax, unsigned char *out, int blocksize, const int n) {
    int num_blocks = n / blocksize;
    num_blocks = n % blocksize == 0 ? num_blocks : num_blocks + 1;
    if (blocksize == 4096)
        kQuantizeBlockwise<T, 4096, 4, STOCHASTIC, DATA_TYPE><<<num_blocks, 1024>>>(code, A, absmax, out, n);
    CUDA_CHECK_RETURN(cudaPeekAtLastError());
}
template void quantizeBlockwise<half, 0, General8bit>(float *code, half *A, float *absmax, unsigned char *out, int blocksize, const int n);

extern "C" {
void cquantize_fp16(float *code, half *A, float *absmax, unsigned char *out, int blocksize, const int n) {
    quantizeBlockwise<half, 0, General8bit>(code, A, absmax, out, blocksize, n);
}
Context *get_context() { return new Context(); }
}
