// Agents of cub's device-wide algorithms that copy in bulk or by cp.async: test_cub_device.py runs them. `scan` is the
// one of DeviceScan for Hopper and later, whose warps share the work: loads, sums, look-ahead and stores.
#include <cub/agent/agent_merge.cuh>
#include <cub/device/dispatch/kernels/kernel_scan.cuh>
#include <cub/device/dispatch/kernels/kernel_transform.cuh>
#include <cuda/functional>
namespace of = cub::detail;
constexpr int B = 128, N = 3, TILE = B * N;
using Plus = cuda::std::plus<>;
using Less = cuda::std::less<>;
struct Scanning {
    __host__ __device__ constexpr cub::ScanPolicy operator()(cuda::compute_capability) const
    {
        cub::ScanPolicy policy{};
        policy.algorithm = cub::ScanAlgorithm::lookahead;
        policy.lookahead.reduce_and_scan_warps = 2;
        policy.lookahead.items_per_thread = N;
        policy.lookahead.lookahead_items_per_thread = 2;
        return policy;
    }
};
constexpr int THREADS = of::scan::num_total_threads(Scanning{}(cuda::compute_capability{}).lookahead);
using State = of::warpspeed::tile_state_t<int>;
extern "C" __global__ void prepare(State *states, unsigned *counter, int tiles)
{
    of::scan::device_scan_init_lookahead_body<int>(states, tiles, counter);
}
extern "C" __global__ void __launch_bounds__(THREADS, 1) scan(const int *x, int *out, State *states, unsigned *counter,
    int n, int stages)
{
    of::scan::scanKernelParams<int, int, int> params{x, out, states, counter, (size_t)n, stages};
    of::scan::device_scan_lookahead_body<Scanning, false, int, false>(params, Plus{}, 7);
}
struct Add { __device__ int operator()(int a, int b) const { return a + b; } };
extern "C" __global__ void __launch_bounds__(B) transform(const int *x, const int *y, int *out, int n)
{
    constexpr int to = of::transform::bulk_copy_alignment(of::current_tuning_cc());
    of::transform::transform_kernel_ublkcp<B, 1, 1>(n, N, cuda::always_true{}, Add{}, out,
        of::transform::make_aligned_base_ptr(x, to), of::transform::make_aligned_base_ptr(y, to));
}
extern "C" __global__ void __launch_bounds__(B) transform_bytes(const char *x, const char *y, char *out, int n)
{
    constexpr int to = of::transform::bulk_copy_alignment(of::current_tuning_cc());
    of::transform::transform_kernel_ublkcp<B, 1, 0>(n, 4, cuda::always_true{}, Add{}, out,
        of::transform::make_aligned_base_ptr(x, to), of::transform::make_aligned_base_ptr(y, to));
}
extern "C" __global__ void __launch_bounds__(B) transform_cp_async(const int *x, const int *y, int *out, int n)
{
    constexpr int to = of::transform::ldgsts_size_and_align;
    of::transform::transform_kernel_ldgsts<B, 1>(n, N, cuda::always_true{}, Add{}, out,
        of::transform::make_aligned_base_ptr(x, to), of::transform::make_aligned_base_ptr(y, to));
}
template <bool Bulk> using Merge = of::merge::agent_t<B, N, cub::LOAD_DEFAULT, cub::BLOCK_STORE_WARP_TRANSPOSE, Bulk,
    Bulk, true,
    const int *, const int *, const int *, const int *, int *, int *, int, Less>;
extern "C" __global__ void cut(const int *x, int m, const int *y, int n, int *cuts, int count)
{
    int at = threadIdx.x;
    if (at < count) cuts[at] = cub::MergePath(x, y, m, n, min(at * TILE, m + n), Less{});
}
template <bool Bulk> static __device__ void merged(const int *x, const int *xs, int m, const int *y, const int *ys,
    int n, int *out, int *more, int *cuts)
{
    __shared__ typename Merge<Bulk>::TempStorage s;
    Merge<Bulk>{s.Alias(), x, xs, m, y, ys, n, out, more, Less{}, cuts}();
}
extern "C" __global__ void __launch_bounds__(B) merge(const int *x, const int *xs, int m, const int *y, const int *ys,
    int n, int *out, int *more, int *cuts)
{
    merged<false>(x, xs, m, y, ys, n, out, more, cuts);
}
extern "C" __global__ void __launch_bounds__(B) merge_bulk(const int *x, const int *xs, int m, const int *y,
    const int *ys, int n, int *out, int *more, int *cuts)
{
    merged<true>(x, xs, m, y, ys, n, out, more, cuts);
}
