// Clusters of blocks, which read each other's shared memory. tests/real/test_groups.py has the references.
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

// Every block hands its values to its neighbour in the cluster, through that one's shared memory.
extern "C" __global__ void __cluster_dims__(4, 1, 1) rotate(const int *in, int *out, int *ranks)
{
    cg::cluster_group cluster = cg::this_cluster();
    __shared__ int inbox[64];
    int at = blockIdx.x * 64 + threadIdx.x;
    unsigned rank = cluster.block_rank(), next = (rank + 1) % cluster.num_blocks();
    cluster.sync();  // the shared memory of all blocks is there
    cluster.map_shared_rank(inbox, next)[threadIdx.x] = in[at];
    cluster.sync();
    out[at] = inbox[threadIdx.x];
    ranks[at] = (int)(rank + 10 * cluster.num_blocks());
}

// A histogram whose bins are spread over the shared memory of two blocks.
extern "C" __global__ void histogram(const int *in, int n, int *bins)
{
    cg::cluster_group cluster = cg::this_cluster();
    __shared__ int own[8];
    if (threadIdx.x < 8) own[threadIdx.x] = 0;
    cluster.sync();
    for (int i = (int)cluster.thread_rank(); i < n; i += (int)cluster.num_threads())
        atomicAdd(cluster.map_shared_rank(own, (unsigned)in[i] / 8) + in[i] % 8, 1);
    cluster.sync();
    if (threadIdx.x < 8) bins[cluster.block_rank() * 8 + threadIdx.x] = own[threadIdx.x];
}
