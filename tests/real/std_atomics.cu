// Atomic references, semaphores and latches of libcu++. tests/real/test_std.py has the references.
#include <cuda/atomic>
#include <cuda/latch>
#include <cuda/semaphore>

template <cuda::thread_scope Scope>
__device__ void count_in(int *words, int value)
{
    cuda::atomic_ref<int, Scope> sum(words[0]), most(words[1]), bits(words[2]), tries(words[3]);
    sum.fetch_add(value, cuda::std::memory_order_relaxed);
    most.fetch_max(value);
    bits.fetch_or(1 << (value & 15), cuda::std::memory_order_acq_rel);
    int seen = tries.load(cuda::std::memory_order_relaxed);
    while (!tries.compare_exchange_weak(seen, seen + 2, cuda::std::memory_order_release)) {}
}

// Each block counts in words of its own at block scope, and all together at device and system scope.
extern "C" __global__ void atomic_refs(const int *in, int *words)
{
    int value = in[blockIdx.x * blockDim.x + threadIdx.x];
    count_in<cuda::thread_scope_device>(words, value);
    count_in<cuda::thread_scope_system>(words + 4, value);
    count_in<cuda::thread_scope_block>(words + 8 + 4 * blockIdx.x, value);
}

extern "C" __global__ void atomic_doubles(const double *in, double *sum, float *least)
{
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    cuda::atomic_ref<double, cuda::thread_scope_device>(*sum).fetch_add(in[at]);
    cuda::atomic_ref<float, cuda::thread_scope_device>(*least).fetch_min((float)in[at]);
}

// One thread hands a value to another warp of its block through a flag.
extern "C" __global__ void handed_over(int *out)
{
    __shared__ int payload;
    __shared__ cuda::atomic<int, cuda::thread_scope_block> flag;
    if (threadIdx.x == 0) flag.store(0, cuda::std::memory_order_relaxed);
    __syncthreads();
    if (threadIdx.x == 32) {
        payload = 40 + (int)blockIdx.x;
        flag.store(1, cuda::std::memory_order_release);
        flag.notify_all();
    }
    if (threadIdx.x == 0) {
        flag.wait(0, cuda::std::memory_order_acquire);
        out[blockIdx.x] = payload;
    }
}

// At most two of the warps of a block at a time are in the section; most is how many were seen there.
extern "C" __global__ void two_at_a_time(int *entered, int *most)
{
    using Semaphore = cuda::counting_semaphore<cuda::thread_scope_block, 2>;
    __shared__ alignas(Semaphore) char storage[sizeof(Semaphore)];
    __shared__ int inside, seen, total;
    Semaphore &semaphore = *reinterpret_cast<Semaphore *>(storage);
    if (threadIdx.x == 0) {
        new (storage) Semaphore(2);
        inside = seen = total = 0;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        semaphore.acquire();
        atomicMax(&seen, atomicAdd(&inside, 1) + 1);
        atomicAdd(&total, 1);
        atomicSub(&inside, 1);
        semaphore.release();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        entered[blockIdx.x] = total;
        most[blockIdx.x] = seen;
    }
}

// The last warp waits at a latch for all the others.
extern "C" __global__ void behind_a_latch(int *out)
{
    using Latch = cuda::latch<cuda::thread_scope_block>;
    __shared__ alignas(Latch) char storage[sizeof(Latch)];
    __shared__ int values[128];
    Latch &latch = *reinterpret_cast<Latch *>(storage);
    if (threadIdx.x == 0) new (storage) Latch(96);
    __syncthreads();
    if (threadIdx.x < 96) {
        values[threadIdx.x] = (int)threadIdx.x * 3;
        latch.count_down();
    } else {
        latch.wait();
        int sum = 0;
        for (int k = 0; k < 96; k++) sum += values[k];
        out[threadIdx.x - 96] = sum;
    }
}
