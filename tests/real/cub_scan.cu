// Prefix sums of a block by cub, and runs of equal values. tests/real/test_cub.py has the references.
#include <cub/block/block_discontinuity.cuh>
#include <cub/block/block_exchange.cuh>
#include <cub/block/block_run_length_decode.cuh>
#include <cub/block/block_scan.cuh>

template <cub::BlockScanAlgorithm How>
__device__ void scan_of_block(const int *in, int *out, int *sums)
{
    using Scan = cub::BlockScan<int, 128, How>;
    __shared__ typename Scan::TempStorage storage;
    int items[3], sum, from = (blockIdx.x * 128 + threadIdx.x) * 3;
    for (int k = 0; k < 3; k++) items[k] = in[from + k];
    Scan(storage).ExclusiveSum(items, items, sum);
    for (int k = 0; k < 3; k++) out[from + k] = items[k];
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

extern "C" __global__ void scan_raking(const int *in, int *out, int *sums)
{
    scan_of_block<cub::BLOCK_SCAN_RAKING>(in, out, sums);
}

extern "C" __global__ void scan_raking_memoized(const int *in, int *out, int *sums)
{
    scan_of_block<cub::BLOCK_SCAN_RAKING_MEMOIZE>(in, out, sums);
}

extern "C" __global__ void scan_by_warps(const int *in, int *out, int *sums)
{
    scan_of_block<cub::BLOCK_SCAN_WARP_SCANS>(in, out, sums);
}

struct Running {  // what one tile hands to the next
    int sum;
    __device__ int operator()(int tile) { int before = sum; sum += tile; return before; }
};

// One block scans n values tile by tile.
extern "C" __global__ void scan_tiles(const int *in, int *out, int n)
{
    using Scan = cub::BlockScan<int, 64>;
    __shared__ typename Scan::TempStorage storage;
    Running running{0};
    for (int base = 0; base < n; base += 64) {
        int at = base + threadIdx.x, value = at < n ? in[at] : 0;
        Scan(storage).InclusiveSum(value, value, running);
        if (at < n) out[at] = value;
        __syncthreads();
    }
}

// Run-length encoding of one block of 256 values: value, begin of every run, and how many runs there are.
extern "C" __global__ void encode_runs(const int *in, int *values, int *begins, int *count)
{
    using Heads = cub::BlockDiscontinuity<int, 64>;
    using Scan = cub::BlockScan<int, 64>;
    __shared__ union { typename Heads::TempStorage heads; typename Scan::TempStorage scan; } storage;
    int items[4], heads[4], ranks[4], runs;
    for (int k = 0; k < 4; k++) items[k] = in[threadIdx.x * 4 + k];
    Heads(storage.heads).FlagHeads(heads, items, ::cuda::std::not_equal_to<>{});
    __syncthreads();
    Scan(storage.scan).ExclusiveSum(heads, ranks, runs);
    for (int k = 0; k < 4; k++)
        if (heads[k]) {
            values[ranks[k]] = items[k];
            begins[ranks[k]] = threadIdx.x * 4 + k;
        }
    if (threadIdx.x == 0) *count = runs;
}

// Run-length decoding: 64 threads with two runs each, window after window.
extern "C" __global__ void decode_runs(const int *values, const unsigned *lengths, int *out, int *offsets, int *total)
{
    using Decode = cub::BlockRunLengthDecode<int, 64, 2, 3>;
    __shared__ typename Decode::TempStorage storage;
    int items[2] = {values[threadIdx.x * 2], values[threadIdx.x * 2 + 1]};
    unsigned runs[2] = {lengths[threadIdx.x * 2], lengths[threadIdx.x * 2 + 1]}, size = 0;
    Decode decode(storage, items, runs, size);
    for (unsigned window = 0; window < size; window += 64 * 3) {
        int decoded[3];
        unsigned inside[3];
        decode.RunLengthDecode(decoded, inside, window);
        for (unsigned k = 0; k < 3; k++) {
            unsigned at = window + threadIdx.x * 3 + k;
            if (at < size) {
                out[at] = decoded[k];
                offsets[at] = (int)inside[k];
            }
        }
    }
    if (threadIdx.x == 0) *total = (int)size;
}

// From blocked to striped order and back, through shared memory.
extern "C" __global__ void exchange(const int *in, int *striped)
{
    using Exchange = cub::BlockExchange<int, 64, 4>;
    __shared__ typename Exchange::TempStorage storage;
    int items[4];
    for (int k = 0; k < 4; k++) items[k] = in[threadIdx.x * 4 + k];
    Exchange(storage).BlockedToStriped(items);
    for (int k = 0; k < 4; k++) striped[threadIdx.x * 4 + k] = items[k];
}
