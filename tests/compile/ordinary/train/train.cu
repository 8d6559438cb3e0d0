/* A training program in one file, as such programs for nvcc are written: parameters in structs of the host,
   launches beside each kernel, files, command line, and local headers. */
#include <stdio.h>
#include <stdlib.h>
#include <assert.h>
#include <float.h>
#include <string.h>
#include <unistd.h>
#include <string>
#include <string_view>
#include <vector>
#include <cublas_v2.h>
#include <cublasLt.h>
#include <cuda_runtime.h>
#include <nvtx3/nvToolsExt.h>
#include "common/utils.h"
#include "common/layers.cuh"

#define CEIL_DIV(M, N) (((M) + (N) - 1) / (N))

static cublasLtHandle_t cublaslt_handle;
static cublasHandle_t cublas_handle;
static size_t workspace_bytes = 32 * 1024 * 1024;
static void *workspace = NULL;
cudaDeviceProp device_properties;

void cuda_check(cudaError_t error, const char *file, int line) {
    if (error != cudaSuccess) {
        printf("[CUDA ERROR] at file %s:%d:\n%s\n", file, line, cudaGetErrorString(error));
        exit(EXIT_FAILURE);
    }
}
#define cudaCheck(err) (cuda_check(err, __FILE__, __LINE__))

// warp-level reduction: "<<<" in a comment { is none
__device__ float warp_sum(float val) {
    for (int offset = 16; offset > 0; offset /= 2) val += __shfl_xor_sync(0xFFFFFFFF, val, offset);
    return val;
}

__global__ void encoder_forward(floatX *out, const int *inp, const floatX *wte, int B, int T, int C) {
    int idx = blockIdx.x * blockDim.x + threadIdx.x;
    if (idx < B * T * C) {
        int bt = idx / C, c = idx % C;
        out[idx] = (floatX)((float)wte[inp[bt] * C + c] + GELU_SCALING_FACTOR);
    }
}

template <typename Type>
__global__ void adamw(Type *params, const Type *grads, long num, float lr, unsigned int seed) {
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i >= num) return;
    float p = (float)params[i] - lr * (float)grads[i];
    stochastic_rounding(p, &params[i], seed);
}

__global__ void __launch_bounds__(512, 2) softmax(float *out, const float *inp, int N) {
    float maxval = -FLT_MAX;
    for (int i = threadIdx.x; i < N; i += blockDim.x) maxval = fmaxf(maxval, inp[i]);
    __syncthreads();
    x128 packed = load128(inp);
    out[threadIdx.x] = warp_sum(maxval) + packed[0] + lerp(1.f, 2.f, 0.5f);
}

void encoder(floatX *out, const int *inp, const floatX *wte, int B, int T, int C, cudaStream_t stream) {
    NVTX_RANGE_FN();
    encoder_forward<<<CEIL_DIV(B * T * C, 256), 256, 0, stream>>>(out, inp, wte, B, T, C);
    cudaCheck(cudaGetLastError());
}

#define NUM_PARAMETER_TENSORS 16
typedef struct {
    floatX *wte;
    floatX *wpe;
} ParameterTensors;
static_assert(sizeof(ParameterTensors) == 2 * sizeof(void *), "Inconsistent sizes!");

typedef struct {
    int max_seq_len;
    int channels;
} Config;

typedef struct {
    Config config;
    ParameterTensors params;
    size_t sizes[NUM_PARAMETER_TENSORS];
    cudaStream_t stream;
    std::vector<float> losses;
    FILE *log;
} Model;

void model_init(Model *model) { model->log = NULL; }

float *allocate(ParameterTensors *params, size_t *sizes) {
    float *memory;
    cudaCheck(cudaMalloc((void **)&memory, sizes[0]));
    float **ptrs[] = {(float **)&params->wte, (float **)&params->wpe};
    for (size_t i = 0; i < 2; i++) { *(ptrs[i]) = memory; }
    return memory;
}

#ifndef TESTING
int main(int argc, char *argv[]) {
    for (int i = 1; i < argc; i += 2) {
        if (argv[i][0] != '-') { fprintf(stderr, "Usage: %s {\n", argv[0]); exit(EXIT_FAILURE); }
    }
    Model model;
    model_init(&model);
    adamw<floatX><<<1, 1>>>(nullptr, nullptr, 0, 0.1f, 0u);
    softmax<<<dim3(1), dim3(32)>>>(nullptr, nullptr, 1);
    std::string name = "done";
    printf("%s\n", name.c_str());
    return 0;
}
#endif
