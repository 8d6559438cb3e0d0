kernel void clear(global const uint *words, global uint *count, int n)
{
    count[get_local_id(0)] = 0;
}

kernel void histogram(global const uint *words, global uint *count, int n)
{
    local uint own[256];
    own[get_local_id(0)] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = get_global_id(0); i < n; i += get_global_size(0)) {
        uint word = words[i];
        for (int k = 0; k < 4; k++) atomic_inc(&own[(word >> (8 * k)) & 255]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    atomic_add(&count[get_local_id(0)], own[get_local_id(0)]);
}
