#define TILE 1024 /* keys that a block of TILE / 2 threads sorts in shared memory */

/* Put a pair in order: thread t compares the keys at two places that are stride apart. */
static __device__ void exchange(unsigned *keys, int t, int stride, bool up)
{
    int low = 2 * t - (t & (stride - 1));
    unsigned a = keys[low], b = keys[low + stride];
    if ((a > b) == up) {
        keys[low] = b;
        keys[low + stride] = a;
    }
}

/* Sort each tile, the even ones upwards, the odd ones downwards. */
extern "C" __global__ void sort_tiles(const unsigned *from, unsigned *to, int size, int stride)
{
    __shared__ unsigned tile[TILE];
    int t = threadIdx.x, base = blockIdx.x * TILE;
    tile[t] = from[base + t];
    tile[t + TILE / 2] = from[base + t + TILE / 2];
    for (int length = 2; length <= TILE; length *= 2)
        for (int apart = length / 2; apart > 0; apart /= 2) {
            __syncthreads();
            exchange(tile, t, apart, ((base / 2 + t) & (length / 2)) == 0);
        }
    __syncthreads();
    to[base + t] = tile[t];
    to[base + t + TILE / 2] = tile[t + TILE / 2];
}

/* One step of merging runs of size keys whose pairs lie more than a tile apart. */
extern "C" __global__ void merge_far(const unsigned *from, unsigned *to, int size, int stride)
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    exchange(to, t, stride, (t & (size / 2)) == 0);
}

/* The last steps of merging runs of size keys, within tiles. */
extern "C" __global__ void merge_tiles(const unsigned *from, unsigned *to, int size, int stride)
{
    __shared__ unsigned tile[TILE];
    int t = threadIdx.x, base = blockIdx.x * TILE;
    tile[t] = to[base + t];
    tile[t + TILE / 2] = to[base + t + TILE / 2];
    for (int apart = stride; apart > 0; apart /= 2) {
        __syncthreads();
        exchange(tile, t, apart, ((base / 2 + t) & (size / 2)) == 0);
    }
    __syncthreads();
    to[base + t] = tile[t];
    to[base + t + TILE / 2] = tile[t + TILE / 2];
}
