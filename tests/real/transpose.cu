// A transposition by tensor maps, with the names of libcu++. tests/real/test_pipelines.py has the reference.
#include <cuda/barrier>
#include <cuda/ptx>

#pragma nv_diag_suppress static_var_with_dynamic_init

// cuda.h declares host functions, which NVRTC refuses; this is all that a kernel needs of it.
struct alignas(64) CUtensorMap_st {
    unsigned long long opaque[16];
};
typedef struct CUtensorMap_st CUtensorMap;

namespace ptx = cuda::ptx;
using Barrier = cuda::barrier<cuda::thread_scope_block>;

// A tile comes with a swizzle of 128 bytes, is read down its columns, and goes back as rows.
extern "C" __global__ void transpose(const __grid_constant__ CUtensorMap from, const __grid_constant__ CUtensorMap to)
{
    __shared__ alignas(1024) float in[32][32];
    __shared__ alignas(128) float out[32][32];
    __shared__ Barrier there;
    int x = blockIdx.x * 32, y = blockIdx.y * 32, i = threadIdx.x;
    if (i == 0) {
        init(&there, blockDim.x);
        ptx::fence_proxy_async(ptx::space_shared);
    }
    __syncthreads();
    Barrier::arrival_token token;
    if (i == 0) {
        int at[2] = {x, y};
        ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, in, &from, at,
                                  cuda::device::barrier_native_handle(there));
        token = cuda::device::barrier_arrive_tx(there, 1, sizeof(in));
    } else {
        token = there.arrive();
    }
    there.wait(cuda::std::move(token));
    for (int k = 0; k < 32; k++) out[i][k] = in[k][(i / 4 ^ k % 8) * 4 + i % 4];
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (i == 0) {
        int at[2] = {y, x};
        ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, &to, at, out);
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
    }
}
