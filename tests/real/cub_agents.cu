// The agent of cub's DeviceReduce, launched without cub's host code: test_cub_agents.py runs it over partial tiles.
#include <cub/agent/agent_reduce.cuh>
#include <cuda/functional>
using Policy = cub::AgentReducePolicy<128, 4, int, 4, cub::BLOCK_REDUCE_WARP_REDUCTIONS, cub::LOAD_DEFAULT>;
using Agent = cub::detail::reduce::AgentReduce<Policy, const int *, int, cuda::std::plus<>, int>;

extern "C" __global__ void reduce(const int *x, int *out, int n, int planted)
{
    __shared__ typename Agent::TempStorage store;
    int sum = Agent(store, x, cuda::std::plus<>{}).ConsumeRange(0, n + planted);
    if (threadIdx.x == 0) out[0] = sum;
}
