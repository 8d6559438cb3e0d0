// Agents of cub's DeviceReduce and DeviceScan, launched without cub's host code: test_cub_agents.py runs them over partial
// tiles.
#include <cub/agent/agent_reduce.cuh>
#include <cub/agent/agent_scan.cuh>
#include <cuda/functional>
using Policy = cub::AgentReducePolicy<128, 4, int, 4, cub::BLOCK_REDUCE_WARP_REDUCTIONS, cub::LOAD_DEFAULT>;
using Agent = cub::detail::reduce::AgentReduce<Policy, const int *, int, cuda::std::plus<>, int>;

extern "C" __global__ void reduce(const int *x, int *out, int n, int planted)
{
    __shared__ typename Agent::TempStorage store;
    int sum = Agent(store, x, cuda::std::plus<>{}).ConsumeRange(0, n + planted);
    if (threadIdx.x == 0) out[0] = sum;
}

using State = cub::ScanTileState<int>;
static __device__ State states_of(void *states, int tiles)
{
    State state;
    size_t size = 0;
    State::AllocationSize(tiles, size);
    state.Init(tiles, states, size);
    return state;
}
extern "C" __global__ void prepare(void *states, int n)
{
    int tiles = (n + 511) / 512;
    states_of(states, tiles).InitializeStatus(tiles);
}
extern "C" __global__ void scan(const int *x, int *out, void *states, int n)
{
    using Policy = cub::detail::agent_scan_policy<128, 4, int, cub::BLOCK_LOAD_WARP_TRANSPOSE, cub::LOAD_DEFAULT,
        cub::BLOCK_STORE_WARP_TRANSPOSE, cub::BLOCK_SCAN_WARP_SCANS>;
    using Agent = cub::detail::scan::AgentScan<Policy, const int *, int *, cuda::std::plus<>, int, int, int>;
    __shared__ typename Agent::TempStorage store;
    State state = states_of(states, gridDim.x);
    Agent(store, x, out, cuda::std::plus<>{}, 7).ConsumeRange(n, state, 0);
}
