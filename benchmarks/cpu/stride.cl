kernel void stride(global const float *x, global float *sums, int n)
{
    local float part[256];
    int t = get_local_id(0);
    float sum = 0;
    for (int i = get_global_id(0); i < n; i += get_global_size(0)) sum += x[i];
    part[t] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int width = 128; width > 0; width /= 2) {
        if (t < width) part[t] += part[t + width];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (t == 0) sums[get_group_id(0)] = part[0];
}
