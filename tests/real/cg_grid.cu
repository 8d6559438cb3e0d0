// Groups of all blocks of a grid. tests/real/test_groups.py has the references.
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

// Jacobi steps over a ring of cells: every step reads what all blocks wrote in the step before.
extern "C" __global__ void ring(int *a, int *b, int n, int steps)
{
    cg::grid_group grid = cg::this_grid();
    for (int s = 0; s < steps; s++) {
        const int *from = s % 2 ? b : a;
        int *to = s % 2 ? a : b;
        for (int i = (int)grid.thread_rank(); i < n; i += (int)grid.size()) to[i] = from[(i + 1) % n] + from[(i + n - 1) % n];
        grid.sync();
    }
}

// Block 0 sums what every block left, after a barrier in two halves.
extern "C" __global__ void sum_of_blocks(int *partial, int *total)
{
    cg::grid_group grid = cg::this_grid();
    if (threadIdx.x == 0) partial[blockIdx.x] = 100 + (int)blockIdx.x;
    auto token = grid.barrier_arrive();
    int mine = (int)(threadIdx.x * grid.num_blocks());
    grid.barrier_wait(cuda::std::move(token));
    int sum = 0;
    for (unsigned k = 0; k < grid.num_blocks(); k++) sum += partial[k];
    if (threadIdx.x == 0) total[blockIdx.x] = sum;
    (void)mine;
}
