// Agents of cub's device-wide algorithms, launched without cub's host code: test_cub_device.py runs them over partial
// tiles of 192 elements. `states` is memory for the states of decoupled look-back, which prepare_… initializes.
#include <cub/agent/agent_adjacent_difference.cuh>
#include <cub/agent/agent_batch_memcpy.cuh>
#include <cub/agent/agent_find.cuh>
#include <cub/agent/agent_histogram.cuh>
#include <cub/agent/agent_merge_sort.cuh>
#include <cub/agent/agent_radix_sort_downsweep.cuh>
#include <cub/agent/agent_radix_sort_histogram.cuh>
#include <cub/agent/agent_radix_sort_onesweep.cuh>
#include <cub/agent/agent_radix_sort_upsweep.cuh>
#include <cub/agent/agent_reduce.cuh>
#include <cub/agent/agent_reduce_by_key.cuh>
#include <cub/agent/agent_rle.cuh>
#include <cub/agent/agent_scan.cuh>
#include <cub/agent/agent_scan_by_key.cuh>
#include <cub/agent/agent_select_if.cuh>
#include <cub/agent/agent_sub_warp_merge_sort.cuh>
#include <cub/agent/agent_three_way_partition.cuh>
#include <cub/agent/agent_topk.cuh>
#include <cub/agent/agent_unique_by_key.cuh>
#include <cub/device/dispatch/kernels/kernel_histogram.cuh>
#include <cub/device/dispatch/kernels/kernel_segmented_reduce.cuh>
#include <cub/device/dispatch/kernels/kernel_segmented_scan.cuh>
#include <cub/device/dispatch/kernels/kernel_three_way_partition.cuh>
#include <cub/device/dispatch/tuning/tuning_merge_sort.cuh>
#include <cuda/functional>

namespace of = cub::detail;
constexpr int B = 64, N = 3, TILE = B * N;
constexpr auto LOAD = cub::BLOCK_LOAD_WARP_TRANSPOSE;
constexpr auto STORE = cub::BLOCK_STORE_WARP_TRANSPOSE;
constexpr auto SCAN = cub::BLOCK_SCAN_WARP_SCANS;
using None = cub::NullType;
using Plus = cuda::std::plus<>;
using Equal = cuda::std::equal_to<>;
using Less = cuda::std::less<>;
using Delay = of::no_delay_constructor_t<0>;
using Exact = of::NoScaling<B, N>;
struct Positive { __device__ bool operator()(int x) const { return x > 0; } };
struct Negative { __device__ bool operator()(int x) const { return x < 0; } };
struct Minus { __device__ int operator()(int a, int b) const { return a - b; } };

// The states of so many tiles, in the memory at `states`.
template <typename State> static __device__ State states_of(void *states, int n)
{
    State state;
    size_t size = 0;
    State::AllocationSize(cuda::ceil_div(n, TILE), size);
    state.Init(cuda::ceil_div(n, TILE), states, size);
    return state;
}
// A partition that is the first and the last, as cub's host code describes it.
struct Whole {
    using total_num_items_t = int;
    __device__ int input_offset() const { return 0; }
    __device__ int is_first_partition() const { return true; }
    __device__ int num_previously_selected() const { return 0; }
    __device__ int num_previously_rejected() const { return 0; }
    __device__ int num_total_items(int n) const { return n; }
    __device__ void update_num_selected(int *count, int n) const { *count = n; }
};
using State = cub::ScanTileState<int>;
using Keyed = cub::ReduceByKeyScanTileState<int, int>;
using Ways = of::three_way_partition::ScanTileStateT;

#define KERNEL extern "C" __global__ void __launch_bounds__(B)
#define ARGUMENTS const int *x, const int *y, int *out, int *more, int *count, void *states, int n

#define PREPARE(name, S) KERNEL prepare_##name(void *states, int n) { states_of<S>(states, \
    n).InitializeStatus(cuda::ceil_div(n, TILE)); }
PREPARE(scan, State)
PREPARE(keyed, Keyed)
PREPARE(ways, Ways)

KERNEL scan(ARGUMENTS)
{
    using Policy = of::agent_scan_policy<0, 0, void, LOAD, cub::LOAD_DEFAULT, STORE, SCAN, Exact, Delay>;
    using Agent = of::scan::AgentScan<Policy, const int *, int *, Plus, int, int, int>;
    __shared__ typename Agent::TempStorage s;
    auto state = states_of<State>(states, n);
    Agent(s, x, out, Plus{}, 7).ConsumeRange(n, state, 0);
}
KERNEL scan_by_key(ARGUMENTS)
{
    using Policy = of::agent_scan_by_key_policy<B, N, LOAD, cub::LOAD_DEFAULT, SCAN, STORE, Delay>;
    using Agent = of::scan_by_key::AgentScanByKey<Policy, const int *, const int *, int *, Equal, Plus, None, int,
        int>;
    __shared__ typename Agent::TempStorage s;
    auto state = states_of<Keyed>(states, n);
    // more: the key before each tile
    if (threadIdx.x == 0 && blockIdx.x) more[blockIdx.x] = y[blockIdx.x * TILE - 1];
    __syncthreads();
    Agent(s, y, more, x, out, Equal{}, Plus{}, None{}).ConsumeRange(n, state, 0);
}
template <cub::SelectImpl How, typename Select, typename Same, typename Flags, typename Out>
static __device__ void selected(const int *x, Flags flags, Out out, int *count, void *states, int n)
{
    using Policy = of::agent_select_if_policy<B, N, LOAD, cub::LOAD_DEFAULT, SCAN, Delay>;
    using Agent = of::select::AgentSelectIf<Policy, const int *, Flags, Out, Select, Same, int, Whole, How>;
    __shared__ typename Agent::TempStorage s;
    auto state = states_of<State>(states, n);
    Agent(s, x, flags, out, Select{}, Same{}, n, Whole{}).ConsumeRange(cuda::ceil_div(n, TILE), state, count);
}
using cub::SelectImpl;
KERNEL select_if(ARGUMENTS) { selected<SelectImpl::Select, Positive, None>(x, (None *)nullptr, out, count, states, n);
    }
KERNEL select_flagged(ARGUMENTS) { selected<SelectImpl::Select, None, None>(x, y, out, count, states, n); }
KERNEL unique(ARGUMENTS) { selected<SelectImpl::Select, None, Equal>(y, (None *)nullptr, out, count, states, n); }
KERNEL partition_if(ARGUMENTS) { selected<SelectImpl::Partition, Positive, None>(x, (None *)nullptr, out, count,
    states, n); }

KERNEL partition_three_ways(ARGUMENTS)
{
    using Policy = of::agent_three_way_partition_policy<B, N, LOAD, cub::LOAD_DEFAULT, SCAN, Delay>;
    using Context = of::three_way_partition::streaming_context_t<int>;
    using Agent = of::three_way_partition::AgentThreeWayPartition<Policy, const int *, int *, int *, int *, Positive,
        Negative, int, Context>;
    __shared__ typename Agent::TempStorage s;
    auto state = states_of<Ways>(states, n);
    Agent(s, x, out, more, more + n, Positive{}, Negative{}, n, Context{nullptr, count,
        true}).ConsumeRange(cuda::ceil_div(n, TILE), state, count);
}
KERNEL unique_by_key(ARGUMENTS)
{
    using Policy = of::agent_unique_by_key_policy<B, N, LOAD, cub::LOAD_DEFAULT, SCAN, Delay>;
    using Agent = of::unique_by_key::AgentUniqueByKey<Policy, const int *, const int *, int *, int *, Equal, int>;
    __shared__ typename Agent::TempStorage s;
    auto state = states_of<State>(states, n);
    Agent(s, y, x, out, more, Equal{}, n).ConsumeRange(cuda::ceil_div(n, TILE), state, count);
}
KERNEL reduce_by_key(ARGUMENTS)
{
    using Policy = of::agent_reduce_by_key_policy<B, N, LOAD, cub::LOAD_DEFAULT, SCAN, Delay>;
    using Agent = of::reduce_by_key::AgentReduceByKey<Policy, const int *, int *, const int *, int *, int *, Equal,
        Plus, int, int, None>;
    __shared__ typename Agent::TempStorage s;
    auto state = states_of<Keyed>(states, n);
    Agent(s, y, out, x, more, count, Equal{}, Plus{}, None{}).ConsumeRange(n, state, 0);
}
template <bool Slicing> static __device__ void runs(const int *y, int *out, int *more, int *count, void *states, int n)
{
    using Policy = of::agent_rle_policy<B, N, LOAD, cub::LOAD_DEFAULT, Slicing, SCAN, Delay>;
    using Agent = of::rle::AgentRle<Policy, const int *, int *, int *, Equal, int, int, None>;
    __shared__ typename Agent::TempStorage s;
    auto state = states_of<Keyed>(states, n);
    Agent(s, y, out, more, Equal{}, n, None{}).ConsumeRange(cuda::ceil_div(n, TILE), state, count);
}
KERNEL run_lengths(ARGUMENTS) { runs<false>(y, out, more, count, states, n); }
KERNEL run_lengths_sliced(ARGUMENTS) { runs<true>(y, out, more, count, states, n); }

template <bool Alias, bool Left> static __device__ void differences(const int *x, int *out, int *more, int n)
{
    using Policy = of::agent_adjacent_difference_policy<B, N, LOAD, cub::LOAD_DEFAULT, STORE>;
    using Agent = of::adjacent_difference::AgentDifference<Policy, const int *, int *, Minus, int, int, int, Alias,
        Left>;
    __shared__ typename Agent::TempStorage s;
    Agent(s, x, more, out, Minus{}, n).Process(blockIdx.x, blockIdx.x * TILE);
}
KERNEL difference_left(ARGUMENTS) { differences<false, true>(x, out, more, n); }
KERNEL difference_right(ARGUMENTS) { differences<false, false>(x, out, more, n); }

// -- sorting ---------------------------------------------------------------------------------------------------------

constexpr int BITS = 5; // look-back over bins takes whole warps
KERNEL upsweep(ARGUMENTS) // count: bins, striped by block
{
    using Policy = of::agent_radix_sort_upsweep_policy<0, 0, void, cub::LOAD_DEFAULT, BITS, Exact>;
    using Agent = of::radix_sort::AgentRadixSortUpsweep<Policy, int, int>;
    __shared__ typename Agent::TempStorage s;
    Agent agent(s, x, 0, BITS);
    agent.ProcessRegion(blockIdx.x * TILE, min(n, (int)(blockIdx.x + 1) * TILE));
    __syncthreads();
    agent.template ExtractCounts<false>(count, gridDim.x, blockIdx.x);
}
KERNEL scan_bins(int *count, int n) // one block, in place
{
    using Policy = of::agent_scan_policy<0, 0, void, LOAD, cub::LOAD_DEFAULT, STORE, SCAN, Exact, Delay>;
    using Agent = of::scan::AgentScan<Policy, int *, int *, Plus, int, int, int>;
    __shared__ typename Agent::TempStorage s;
    Agent agent(s, count, count, Plus{}, 0);
    cub::BlockScanRunningPrefixOp<int, Plus> prefix(0, Plus{});
    int at = 0;
    for (; at + TILE <= n; at += TILE) agent.template ConsumeTile<false, false>(at, prefix);
    if (at < n) agent.template ConsumeTile<false, true>(at, prefix, n - at);
}
template <cub::RadixRankAlgorithm Rank> static __device__ void down(const int *x, const int *y, int *out, int *more,
    int *count, int n)
{
    using Policy = of::agent_radix_sort_downsweep_policy<0, 0, void, LOAD, cub::LOAD_DEFAULT, Rank, SCAN, BITS, Exact>;
    using Agent = of::radix_sort::AgentRadixSortDownsweep<Policy, false, int, int, int>;
    __shared__ typename Agent::TempStorage s;
    Agent(s, n, count, x, out, y, more, 0, BITS).ProcessRegion(blockIdx.x * TILE, min(n,
        (int)(blockIdx.x + 1) * TILE));
}
KERNEL downsweep(ARGUMENTS) { down<cub::RADIX_RANK_BASIC>(x, y, out, more, count, n); }
KERNEL downsweep_match(ARGUMENTS) { down<cub::RADIX_RANK_MATCH>(x, y, out, more, count, n); }

KERNEL digits(ARGUMENTS) // count: bins of the digit at bit 0, as zeros before
{
    using Policy = of::agent_radix_sort_histogram_policy<B, N, 1, int, BITS>;
    using Agent = of::radix_sort::AgentRadixSortHistogram<Policy, false, int, int>;
    __shared__ typename Agent::TempStorage s;
    Agent(s, count, x, n, 0, BITS).Process();
}
template <cub::RadixRankAlgorithm Rank> static __device__ void sweep(const int *x, const int *y, int *out, int *more,
    int *count, void *states, int n)
{
    using Policy = of::agent_radix_sort_onesweep_policy<0, 0, void, 1, Rank, SCAN, cub::RADIX_SORT_STORE_DIRECT, BITS,
        Exact>;
    using Agent = of::radix_sort::AgentRadixSortOnesweep<Policy, false, int, int, int, int>;
    __shared__ typename Agent::TempStorage s;
    int *lookback = (int *)states + 1;
    Agent(s, lookback, (int *)states, more + n, count, out, x, more, y, n, 0, BITS).Process();
}
KERNEL onesweep(ARGUMENTS) { sweep<cub::RADIX_RANK_MATCH_EARLY_COUNTS_ANY>(x, y, out, more, count, states, n); }
KERNEL onesweep_atomic(ARGUMENTS) { sweep<cub::RADIX_RANK_MATCH_EARLY_COUNTS_ATOMIC_OR>(x, y, out, more, count,
    states, n); }

struct Sorting {
    __host__ __device__ constexpr cub::MergeSortPolicy operator()() const { return {B, N, LOAD, cub::LOAD_DEFAULT,
        STORE}; }
};
KERNEL sort_tiles(ARGUMENTS)
{
    using Agent = of::merge_sort::AgentBlockSort<Sorting, const int *, const int *, int *, int *, int, Less, int, int>;
    __shared__ typename Agent::TempStorage s;
    Agent(true, s, x, y, n, out, more, (int *)nullptr, (int *)nullptr, Less{}).Process();
}
KERNEL cut(int *from, int n, int *cuts, int partitions, int merged)
{
    int at = blockIdx.x * B + threadIdx.x;
    if (at < partitions) of::merge_sort::AgentPartition<int *, int, Less, int>{true, from, nullptr, n, at, cuts,
        Less{}, merged, TILE, partitions}.Process();
}
KERNEL merge(int *from, int *with, int *to, int *with_to, int n, int *cuts, int merged)
{
    using Agent = of::merge_sort::AgentMerge<Sorting, int *, int *, int, Less, int, int>;
    __shared__ typename Agent::TempStorage s;
    Agent(true, s, from, with, to, with_to, n, to, with_to, from, with, Less{}, cuts, merged).Process();
}
KERNEL sort_segments(const int *x, const int *y, int *out, int *more, int segment, int n) // a warp of 16 lanes each
{
    using Policy = of::agent_sub_warp_merge_sort_policy<B, 16, N, cub::WARP_LOAD_TRANSPOSE, cub::LOAD_DEFAULT,
        cub::WARP_STORE_TRANSPOSE>;
    using Agent = of::sub_warp_merge_sort::AgentSubWarpSort<false, Policy, int, int, int>;
    __shared__ typename Agent::TempStorage s[B / 16];
    int at = (blockIdx.x * (B / 16) + threadIdx.x / 16) * segment;
    if (at < n) Agent(s[threadIdx.x / 16]).ProcessSegment(min(segment, n - at), x + at, out + at, y + at, more + at);
}

// -- counting, segments, copies ----------------------------------------------------------------------------------------

template <cub::BlockHistogramMemoryPreference Where, bool Compress> static __device__ void bins(const int *x,
    int *count, int n)
{
    using Policy = of::agent_histogram_policy<B, N, cub::BLOCK_LOAD_DIRECT, cub::LOAD_DEFAULT, Compress, Where, false,
        1>;
    using Transforms = of::histogram::Transforms<int, int, int>;
    using Decode = typename Transforms::ScaleTransform;
    using Pass = typename Transforms::PassThruTransform;
    using Agent = of::histogram::AgentHistogram<Policy, 16, 1, 1, const int *, int, Decode, Pass, int>;
    __shared__ typename Agent::TempStorage s;
    int bins[1] = {16};
    int *outs[1] = {count}, *own[1] = {nullptr};
    Decode decode[1];
    decode[0].Init(17, 64, -64);
    Pass pass[1];
    Agent agent(s, x, bins, bins, outs, own, pass, decode);
    agent.InitBinCounters();
    agent.ConsumeTiles(n, 1, n, cuda::ceil_div(n, TILE), cub::GridQueue<int>{});
    agent.StoreOutput();
}
KERNEL histogram(ARGUMENTS) { bins<cub::SMEM, false>(x, count, n); }
KERNEL histogram_compressed(ARGUMENTS) { bins<cub::SMEM, true>(x, count, n); }

KERNEL sum_segments(const int *x, int *out, int segment, int n) // eight lanes a segment
{
    using Policy = of::agent_warp_reduce_policy<B, 8, N, void, 1, cub::LOAD_DEFAULT>;
    using Agent = of::reduce::AgentWarpReduce<Policy, const int *, int, Plus, int>;
    __shared__ typename Agent::TempStorage s[B / 8];
    int which = (blockIdx.x * B + threadIdx.x) / 8, at = which * segment;
    if (at >= n) return;
    int sum = Agent(s[threadIdx.x / 8], x, Plus{}).ConsumeRange(at, min(at + segment, n));
    if (threadIdx.x % 8 == 0) out[which] = sum;
}
struct ScanSegments {
    __host__ __device__ constexpr cub::SegmentedScanPolicy operator()() const 
    {
        return {{B, N, LOAD, cub::LOAD_DEFAULT, STORE, SCAN, 32}};
    }
};
KERNEL scan_segments(const int *x, int *out, const int *ends, int segments) // ends: those of the segments, after a 0
{
    using Agent = of::segmented_scan::agent_segmented_scan<ScanSegments, const int *, int *, int, Plus, None, int>;
    __shared__ typename Agent::TempStorage s;
    Agent agent(s, x, out, Plus{}, None{});
    if (segments == 1) agent.scan_one_segment(ends[0], ends[1], ends[0]);
    else agent.scan_segments(ends, ends + 1, ends, segments);
}
KERNEL find(ARGUMENTS) // count: n before, then where the first 60 is
{
    struct Is { __device__ bool operator()(int x) const { return x == 60; } };
    using Agent = of::find::agent_t<B, 4, 4, cub::LOAD_DEFAULT, const int *, int, Is>;
    __shared__ typename Agent::TempStorage s;
    Agent{s.Alias(), x, Is{}, count, n}.Process();
}
struct Digit {
    int shift;
    __device__ int operator()(unsigned short key) const { return key >> shift & 255; }
};
struct Among { // of the smallest: the keys below the one at k, by the bits known
    const unsigned short *known;
    int shift;
    __device__ of::topk::candidate_class operator()(unsigned short key) const
    {
        int bits = key >> shift << shift;
        using Class = of::topk::candidate_class;
        return bits < *known ? Class::selected : bits == *known ? Class::candidate : Class::rejected;
    }
};
using Top = of::topk::Counter<unsigned short, int, int>;
using TopPolicy = of::topk::agent_topk_policy<B, N, 8, LOAD, SCAN>;
template <typename Bin, typename Which> using TopAgent = of::topk::AgentTopK<TopPolicy, const unsigned short *,
    unsigned short *, const int *, int *, Bin, Which, int, int>;
KERNEL top_bins(const unsigned short *x, unsigned short *out, const int *y, int *more, Top *counter, int *bins, int n,
    int k)
{
    using Agent = TopAgent<Digit, None>;
    __shared__ typename Agent::TempStorage s;
    Agent(s, x, out, y, more, n, k, n, Digit{8}, None{}).invoke_histogram_only(counter, bins, 0, false);
}
KERNEL top_filter(const unsigned short *x, unsigned short *out, const int *y, int *more, Top *counter, int *bins,
    unsigned short *keys, int *places, int n, int k)
{
    using Agent = TopAgent<Digit, Among>;
    __shared__ typename Agent::TempStorage s;
    Agent(s, x, out, y, more, n, k, n, Digit{0}, Among{&counter->kth_key_bits.bits,
        8}).invoke_filter_and_histogram(nullptr, nullptr, keys, places, counter, bins, 1, true);
}
KERNEL top_last(const unsigned short *x, unsigned short *out, const int *y, int *more, Top *counter,
    unsigned short *keys, int *places, int n, int k)
{
    using Agent = TopAgent<None, Among>;
    __shared__ typename Agent::TempStorage s;
    Agent(s, x, out, y, more, n, k, n, None{}, Among{&counter->kth_key_bits.bits, 0}).invoke_last_filter(keys, places,
        counter, k, 2);
}

using Offsets = cub::ScanTileState<unsigned>;
PREPARE(copies, Offsets)
KERNEL copy_buffers(const char **from, char **to, const int *sizes, int n, void *of_buffers, void *of_blocks,
    const void **srcs, void **dsts, int *large, unsigned *tiles)
{
    using Policy = of::agent_batch_memcpy_policy<B, N, 8, false, 512, 32, 256, Delay, Delay>;
    using Agent = of::batch_memcpy::AgentBatchMemcpy<Policy, const char **, char **, const int *, unsigned,
        const void **, void **, int *, unsigned *, unsigned, Offsets, Offsets, true>;
    __shared__ typename Agent::TempStorage s;
    Agent(s, from, to, sizes, n, srcs, dsts, large, tiles, states_of<Offsets>(of_buffers, n),
        states_of<Offsets>(of_blocks, n)).ConsumeTile(blockIdx.x);
}
