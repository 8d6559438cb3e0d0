#include <cub/block/block_radix_sort.cuh>

extern "C" __global__ void sort(const unsigned *from, unsigned *to)
{
    using Sort = cub::BlockRadixSort<unsigned, 128, 4>;
    __shared__ typename Sort::TempStorage storage;
    unsigned keys[4];
    for (int k = 0; k < 4; k++) keys[k] = from[threadIdx.x * 4 + k];
    Sort(storage).Sort(keys);
    for (int k = 0; k < 4; k++) to[threadIdx.x * 4 + k] = keys[k];
}
