extern "C" __global__ void nbody(const float4 *body, float4 *pull, int n, float softening)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 me = body[i];
    float ax = 0, ay = 0, az = 0;
    for (int j = 0; j < n; j++) {
        float4 other = body[j];
        float dx = other.x - me.x, dy = other.y - me.y, dz = other.z - me.z;
        float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + softening);
        float weight = other.w * inverse * inverse * inverse;
        ax += weight * dx;
        ay += weight * dy;
        az += weight * dz;
    }
    pull[i] = make_float4(ax, ay, az, 0);
}
