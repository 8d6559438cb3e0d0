// Sorting and counting within a block by cub. tests/real/test_cub.py has the references.
#include <cub/block/block_histogram.cuh>
#include <cub/block/block_merge_sort.cuh>
#include <cub/block/block_radix_sort.cuh>

template <typename Key>
__device__ void sort_block(const Key *in, Key *out)
{
    using Sort = cub::BlockRadixSort<Key, 128, 4>;
    __shared__ typename Sort::TempStorage storage;
    Key keys[4];
    const size_t from = (blockIdx.x * 128 + threadIdx.x) * 4;
    for (int k = 0; k < 4; k++) keys[k] = in[from + k];
    Sort(storage).Sort(keys);
    for (int k = 0; k < 4; k++) out[from + k] = keys[k];
}

extern "C" __global__ void sort_ints(const int *in, int *out) { sort_block(in, out); }
extern "C" __global__ void sort_floats(const float *in, float *out) { sort_block(in, out); }
extern "C" __global__ void sort_doubles(const double *in, double *out) { sort_block(in, out); }

// Descending by bits 4 to 11 of the key, stable, with a value beside each key.
extern "C" __global__ void sort_pairs(const unsigned *keys, const int *values, unsigned *keys_out, int *values_out)
{
    using Sort = cub::BlockRadixSort<unsigned, 64, 2, int>;
    __shared__ typename Sort::TempStorage storage;
    unsigned key[2];
    int value[2];
    for (int k = 0; k < 2; k++) {
        key[k] = keys[threadIdx.x * 2 + k];
        value[k] = values[threadIdx.x * 2 + k];
    }
    Sort(storage).SortDescending(key, value, 4, 12);
    for (int k = 0; k < 2; k++) {
        keys_out[threadIdx.x * 2 + k] = key[k];
        values_out[threadIdx.x * 2 + k] = value[k];
    }
}

struct Nearer { __device__ bool operator()(int a, int b) const { return abs(a - 500) < abs(b - 500); } };

extern "C" __global__ void merge_sort(const int *in, int *out)
{
    using Sort = cub::BlockMergeSort<int, 64, 3>;
    __shared__ typename Sort::TempStorage storage;
    int keys[3];
    for (int k = 0; k < 3; k++) keys[k] = in[threadIdx.x * 3 + k];
    Sort(storage).StableSort(keys, Nearer());
    for (int k = 0; k < 3; k++) out[threadIdx.x * 3 + k] = keys[k];
}

template <cub::BlockHistogramAlgorithm How>
__device__ void count_block(const unsigned char *in, unsigned *bins)
{
    using Histogram = cub::BlockHistogram<unsigned char, 128, 4, 256, How>;
    __shared__ typename Histogram::TempStorage storage;
    __shared__ unsigned counts[256];
    unsigned char items[4];
    for (int k = 0; k < 4; k++) items[k] = in[(blockIdx.x * 128 + threadIdx.x) * 4 + k];
    Histogram(storage).Histogram(items, counts);
    __syncthreads();
    for (int k = threadIdx.x; k < 256; k += 128) bins[blockIdx.x * 256 + k] = counts[k];
}

extern "C" __global__ void histogram_by_atomics(const unsigned char *in, unsigned *bins)
{
    count_block<cub::BLOCK_HISTO_ATOMIC>(in, bins);
}

extern "C" __global__ void histogram_by_sorting(const unsigned char *in, unsigned *bins)
{
    count_block<cub::BLOCK_HISTO_SORT>(in, bins);
}
