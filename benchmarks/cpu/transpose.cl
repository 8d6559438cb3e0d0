kernel void transpose(global const float *from, global float *to, int n)
{
    local float tile[32][33];
    int tx = get_local_id(0), ty = get_local_id(1);
    int x = get_group_id(0) * 32 + tx, y = get_group_id(1) * 32 + ty;
    for (int k = 0; k < 32; k += 8) tile[ty + k][tx] = from[(y + k) * n + x];
    barrier(CLK_LOCAL_MEM_FENCE);
    x = get_group_id(1) * 32 + tx, y = get_group_id(0) * 32 + ty;
    for (int k = 0; k < 32; k += 8) to[(y + k) * n + x] = tile[tx][ty + k];
}
