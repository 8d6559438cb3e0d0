// cub's decoupled look-back: every block scans a tile and reads its prefix from the states of the blocks before it.
#include <cub/agent/single_pass_scan_operators.cuh>
#include <cub/block/block_scan.cuh>

constexpr int THREADS = 64, ITEMS = 2;

template <typename T>
using State = cub::ScanTileState<T>;

// A sum that does not fit into one word with its status, so that cub keeps value and status apart.
struct Wide {
    long long sum;
    int most, count;
};

struct Join {
    __device__ int operator()(int a, int b) const { return a + b; }
    __device__ Wide operator()(Wide a, Wide b) const
    {
        return {a.sum + b.sum, a.most > b.most ? a.most : b.most, a.count + b.count};
    }
};

// The states of so many tiles, in the memory at `states`: an array of one word, or three arrays one after the other.
template <typename T>
__device__ State<T> states_of(void *states, int tiles)
{
    State<T> state;
    size_t size = 0;
    State<T>::AllocationSize(tiles, size);
    state.Init(tiles, states, size);
    return state;
}

template <typename T>
__device__ void scan_tile(const T *in, T *out, void *states, int tiles)
{
    using Scan = cub::BlockScan<T, THREADS>;
    using Prefix = cub::TilePrefixCallbackOp<T, Join, State<T>>;
    __shared__ union { typename Scan::TempStorage scan; } storage;
    __shared__ typename Prefix::TempStorage prefix_storage;
    State<T> state = states_of<T>(states, tiles);
    int tile = blockIdx.x, from = (tile * THREADS + threadIdx.x) * ITEMS;
    T items[ITEMS];
    for (int k = 0; k < ITEMS; k++) items[k] = in[from + k];
    if (tile == 0) {
        T sum;
        Scan(storage.scan).InclusiveScan(items, items, Join(), sum);
        if (threadIdx.x == 0) state.SetInclusive(0, sum);
    } else {
        Prefix prefix(state, prefix_storage, Join(), tile);
        Scan(storage.scan).InclusiveScan(items, items, Join(), prefix);
    }
    for (int k = 0; k < ITEMS; k++) out[from + k] = items[k];
}

extern "C" __global__ void prepare_ints(void *states, int tiles) { states_of<int>(states, tiles).InitializeStatus(tiles); }

extern "C" __global__ void prepare_wide(void *states, int tiles)
{
    states_of<Wide>(states, tiles).InitializeStatus(tiles);
}

extern "C" __global__ void scan_ints(const int *in, int *out, void *states, int tiles)
{
    scan_tile<int>(in, out, states, tiles);
}

extern "C" __global__ void scan_wide(const Wide *in, Wide *out, void *states, int tiles)
{
    scan_tile<Wide>(in, out, states, tiles);
}
