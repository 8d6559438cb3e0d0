// cub's algorithms of a block and of a warp over tiles of which the first n elements count. test_checks_cub.py runs them.
#include <cub/block/block_adjacent_difference.cuh>
#include <cub/block/block_discontinuity.cuh>
#include <cub/block/block_exchange.cuh>
#include <cub/block/block_histogram.cuh>
#include <cub/block/block_load.cuh>
#include <cub/block/block_merge_sort.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_run_length_decode.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_shuffle.cuh>
#include <cub/block/block_store.cuh>
#include <cub/warp/warp_exchange.cuh>
#include <cub/warp/warp_load.cuh>
#include <cub/warp/warp_merge_sort.cuh>
#include <cub/warp/warp_reduce.cuh>
#include <cub/warp/warp_scan.cuh>
#include <cub/warp/warp_store.cuh>
#include <cuda/functional>
#define B 64
#define N 3
struct Less {
    template <class T> __device__ bool operator()(const T &a, const T &b) const { return a < b; }
};
struct Minus {
    __device__ int operator()(int a, int b) const { return a - b; }
};
#define KERNEL extern "C" __global__ void
#define LOADED int own[N]; cub::LoadDirectBlocked(threadIdx.x, x, own, n);
#define STORED cub::StoreDirectBlocked(threadIdx.x, out, own, n);

template <cub::BlockLoadAlgorithm L, cub::BlockStoreAlgorithm S> __device__ void moved(const int *x, int *out, int n)
{
    using Load = cub::BlockLoad<int, B, N, L>;
    using Store = cub::BlockStore<int, B, N, S>;
    __shared__ union { typename Load::TempStorage load; typename Store::TempStorage store; } s;
    int own[N];
    Load(s.load).Load(x, own, n);
    __syncthreads();
    for (int k = 0; k < N; k++) own[k] += 1;
    Store(s.store).Store(out, own, n);
}
KERNEL move_direct(const int *x, int *out, int n) { moved<cub::BLOCK_LOAD_DIRECT, cub::BLOCK_STORE_DIRECT>(x, out, n); }
KERNEL move_striped(const int *x, int *out, int n) { moved<cub::BLOCK_LOAD_STRIPED, cub::BLOCK_STORE_STRIPED>(x, out, n); }
KERNEL move_turned(const int *x, int *out, int n) { moved<cub::BLOCK_LOAD_TRANSPOSE, cub::BLOCK_STORE_TRANSPOSE>(x, out, n); }
KERNEL move_warps(const int *x, int *out, int n) { moved<cub::BLOCK_LOAD_WARP_TRANSPOSE, cub::BLOCK_STORE_WARP_TRANSPOSE>(x, out, n); }
KERNEL move_sliced(const int *x, int *out, int n) { moved<cub::BLOCK_LOAD_WARP_TRANSPOSE_TIMESLICED, cub::BLOCK_STORE_WARP_TRANSPOSE_TIMESLICED>(x, out, n); }

template <cub::BlockReduceAlgorithm A> __device__ void sums(const int *x, int *out, int n)
{
    using Reduce = cub::BlockReduce<int, B, A>;
    __shared__ typename Reduce::TempStorage s;
    int sum = Reduce(s).Sum(x[threadIdx.x], n);
    if (threadIdx.x == 0) out[0] = sum;
}
KERNEL sum_warps(const int *x, int *out, int n) { sums<cub::BLOCK_REDUCE_WARP_REDUCTIONS>(x, out, n); }
KERNEL sum_raking(const int *x, int *out, int n) { sums<cub::BLOCK_REDUCE_RAKING>(x, out, n); }
KERNEL sum_commutative(const int *x, int *out, int n) { sums<cub::BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY>(x, out, n); }

template <cub::BlockScanAlgorithm A> __device__ void scans(const int *x, int *out, int n)
{
    using Scan = cub::BlockScan<int, B, A>;
    __shared__ typename Scan::TempStorage s;
    LOADED Scan(s).InclusiveSum(own, own);
    STORED
}
KERNEL scan_warps(const int *x, int *out, int n) { scans<cub::BLOCK_SCAN_WARP_SCANS>(x, out, n); }
KERNEL scan_raking(const int *x, int *out, int n) { scans<cub::BLOCK_SCAN_RAKING>(x, out, n); }
KERNEL scan_memoize(const int *x, int *out, int n) { scans<cub::BLOCK_SCAN_RAKING_MEMOIZE>(x, out, n); }

KERNEL difference_left(const int *x, int *out, int n)
{
    using Difference = cub::BlockAdjacentDifference<int, B>;
    __shared__ typename Difference::TempStorage s;
    LOADED int got[N];
    Difference(s).SubtractLeftPartialTile(own, got, Minus(), n);
    cub::StoreDirectBlocked(threadIdx.x, out, got, n);
}
KERNEL difference_right(const int *x, int *out, int n)
{
    using Difference = cub::BlockAdjacentDifference<int, B>;
    __shared__ typename Difference::TempStorage s;
    LOADED int got[N];
    Difference(s).SubtractRightPartialTile(own, got, Minus(), n);
    cub::StoreDirectBlocked(threadIdx.x, out, got, n);
}
KERNEL heads(const int *x, int *out, int n)
{
    using Heads = cub::BlockDiscontinuity<int, B>;
    __shared__ typename Heads::TempStorage s;
    LOADED int got[N];
    Heads(s).FlagHeads(got, own, cuda::std::not_equal_to<>());
    cub::StoreDirectBlocked(threadIdx.x, out, got, n);
}
KERNEL exchange(const int *x, int *out, int n)
{
    using Exchange = cub::BlockExchange<int, B, N>;
    __shared__ typename Exchange::TempStorage s;
    LOADED Exchange(s).BlockedToStriped(own, own);
    cub::StoreDirectStriped<B>(threadIdx.x, out, own, n);
}
KERNEL merge_sort(const int *x, int *out, int n)
{
    using Sort = cub::BlockMergeSort<int, B, N>;
    __shared__ typename Sort::TempStorage s;
    LOADED Sort(s).Sort(own, Less(), n, 0x7fffffff);
    STORED
}
KERNEL merge_stable_pairs(const int *x, int *out, int n)
{
    using Sort = cub::BlockMergeSort<int, B, N, int>;
    __shared__ typename Sort::TempStorage s;
    int own[N], with[N];
    cub::LoadDirectBlocked(threadIdx.x, x, own, n);
    cub::LoadDirectBlocked(threadIdx.x, x, with, n);
    Sort(s).StableSort(own, with, Less(), n, 0x7fffffff);
    cub::StoreDirectBlocked(threadIdx.x, out, with, n);
}
KERNEL radix_sort(const int *x, int *out, int n)
{
    using Sort = cub::BlockRadixSort<int, B, N>;
    __shared__ typename Sort::TempStorage s;
    int own[N];
    cub::LoadDirectBlocked(threadIdx.x, x, own, n, 0x7fffffff);
    Sort(s).Sort(own);
    STORED
}
KERNEL radix_pairs(const int *x, int *out, int n)
{
    using Sort = cub::BlockRadixSort<int, B, N, int>;
    __shared__ typename Sort::TempStorage s;
    int own[N], with[N];
    cub::LoadDirectBlocked(threadIdx.x, x, own, n, 0x7fffffff);
    cub::LoadDirectBlocked(threadIdx.x, x, with, n);
    Sort(s).Sort(own, with);
    cub::StoreDirectBlocked(threadIdx.x, out, with, n);
}
KERNEL shuffle(const int *x, int *out, int n)
{
    using Shuffle = cub::BlockShuffle<int, B>;
    __shared__ typename Shuffle::TempStorage s;
    int own = x[threadIdx.x], got = own;
    Shuffle(s).Offset(own, got, -1);
    if (threadIdx.x < n) out[threadIdx.x] = got;
}
KERNEL histogram(const int *x, int *out, int n)
{
    using Histogram = cub::BlockHistogram<unsigned char, B, N, 16>;
    __shared__ typename Histogram::TempStorage s;
    __shared__ int bins[16];
    unsigned char own[N];
    for (int k = 0; k < N; k++) own[k] = threadIdx.x * N + k < n ? x[threadIdx.x * N + k] & 15 : 15;
    Histogram(s).Histogram(own, bins);
    __syncthreads();
    if (threadIdx.x < 16) out[threadIdx.x] = bins[threadIdx.x];
}
KERNEL decode(const int *x, int *out, int n)
{
    using Decode = cub::BlockRunLengthDecode<int, B, N, 2>;
    __shared__ typename Decode::TempStorage s;
    int own[N];
    unsigned lengths[N], total = 0;
    cub::LoadDirectBlocked(threadIdx.x, x, own, n);
    for (int k = 0; k < N; k++) lengths[k] = threadIdx.x * N + k < n;
    Decode runs(s, own, lengths, total);
    int got[2];
    runs.RunLengthDecode(got, 0);
    for (int k = 0; k < 2; k++) if (threadIdx.x * 2 + k < total) out[threadIdx.x * 2 + k] = got[k];
}
KERNEL warp_reduce(const int *x, int *out, int n)
{
    using Reduce = cub::WarpReduce<int>;
    __shared__ typename Reduce::TempStorage s[B / 32];
    int warp = threadIdx.x / 32, left = min(max(n - warp * 32, 1), 32), most = Reduce(s[warp]).Reduce(x[threadIdx.x], cuda::maximum<>{}, left);
    if (threadIdx.x % 32 == 0 && warp * 32 < n) out[warp] = most;
}
KERNEL warp_reduce_16(const int *x, int *out, int n)
{
    using Reduce = cub::WarpReduce<int, 12>;
    __shared__ typename Reduce::TempStorage s;
    if (threadIdx.x >= 12) return;
    int sum = Reduce(s).Sum(x[threadIdx.x], min(n, 12));
    if (threadIdx.x == 0) out[0] = sum;
}
KERNEL warp_scan(const int *x, int *out, int n)
{
    using Scan = cub::WarpScan<int>;
    __shared__ typename Scan::TempStorage s[B / 32];
    int sum;
    Scan(s[threadIdx.x / 32]).InclusiveSum(x[threadIdx.x], sum);
    if (threadIdx.x < n) out[threadIdx.x] = sum;
}
KERNEL warp_sort(const int *x, int *out, int n)
{
    using Load = cub::WarpLoad<int, N, cub::WARP_LOAD_TRANSPOSE>;
    using Sort = cub::WarpMergeSort<int, N>;
    using Store = cub::WarpStore<int, N, cub::WARP_STORE_TRANSPOSE>;
    __shared__ union { typename Load::TempStorage load; typename Sort::TempStorage sort; typename Store::TempStorage store; } s;
    if (threadIdx.x >= 32) return;
    int own[N], count = min(n, 32 * N);
    Load(s.load).Load(x, own, count);
    __syncwarp();
    Sort(s.sort).Sort(own, Less(), count, 0x7fffffff);
    __syncwarp();
    Store(s.store).Store(out, own, count);
}
KERNEL warp_exchange(const int *x, int *out, int n)
{
    using Exchange = cub::WarpExchange<int, N>;
    __shared__ typename Exchange::TempStorage s;
    if (threadIdx.x >= 32) return;
    int own[N], count = min(n, 32 * N);
    cub::LoadDirectBlocked(threadIdx.x, x, own, count);
    Exchange(s).BlockedToStriped(own, own);
    for (int k = 0; k < N; k++) if (k * 32 + (int)threadIdx.x < count) out[k * 32 + threadIdx.x] = own[k];
}
