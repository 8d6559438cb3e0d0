#define TILE 1024

#define EXCHANGE(keys, t, stride, up)                  \
    do {                                               \
        int low = 2 * (t) - ((t) & ((stride) - 1));    \
        uint a = keys[low], b = keys[low + (stride)];  \
        if ((a > b) == (up)) {                         \
            keys[low] = b;                             \
            keys[low + (stride)] = a;                  \
        }                                              \
    } while (0)

kernel void sort_tiles(global const uint *from, global uint *to, int size, int stride)
{
    local uint tile[TILE];
    int t = get_local_id(0), base = get_group_id(0) * TILE;
    tile[t] = from[base + t];
    tile[t + TILE / 2] = from[base + t + TILE / 2];
    for (int length = 2; length <= TILE; length *= 2)
        for (int apart = length / 2; apart > 0; apart /= 2) {
            barrier(CLK_LOCAL_MEM_FENCE);
            EXCHANGE(tile, t, apart, (((base / 2 + t) & (length / 2)) == 0));
        }
    barrier(CLK_LOCAL_MEM_FENCE);
    to[base + t] = tile[t];
    to[base + t + TILE / 2] = tile[t + TILE / 2];
}

kernel void merge_far(global const uint *from, global uint *to, int size, int stride)
{
    int t = get_global_id(0);
    EXCHANGE(to, t, stride, ((t & (size / 2)) == 0));
}

kernel void merge_tiles(global const uint *from, global uint *to, int size, int stride)
{
    local uint tile[TILE];
    int t = get_local_id(0), base = get_group_id(0) * TILE;
    tile[t] = to[base + t];
    tile[t + TILE / 2] = to[base + t + TILE / 2];
    for (int apart = stride; apart > 0; apart /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        EXCHANGE(tile, t, apart, (((base / 2 + t) & (size / 2)) == 0));
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    to[base + t] = tile[t];
    to[base + t + TILE / 2] = tile[t + TILE / 2];
}
