// Random numbers of cuRAND's device header. tests/real/test_philox.py has the references.
#include <curand_kernel.h>

// Four words of each thread's own sequence, after so many were skipped.
extern "C" __global__ void words(uint4 *out, unsigned long long seed, unsigned long long skip)
{
    curandStatePhilox4_32_10_t state;
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    curand_init(seed, at, skip, &state);
    out[at] = curand4(&state);
}

extern "C" __global__ void uniform(float4 *out, unsigned long long seed)
{
    curandStatePhilox4_32_10_t state;
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    curand_init(seed, at, 0, &state);
    out[at] = curand_uniform4(&state);
}

extern "C" __global__ void normal(float4 *out, unsigned long long seed)
{
    curandStatePhilox4_32_10_t state;
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    curand_init(seed, at, 0, &state);
    out[at] = curand_normal4(&state);
}

// XORWOW, whose state is skipped ahead by matrices in constant memory.
extern "C" __global__ void xorwow(unsigned *out, unsigned long long seed)
{
    curandState state;
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    curand_init(seed, 0, 3 * at, &state);
    for (int k = 0; k < 3; k++) out[3 * at + k] = curand(&state);
}
