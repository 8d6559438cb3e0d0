kernel void nbody(global const float4 *body, global float4 *pull, int n, float softening)
{
    int i = get_global_id(0);
    if (i >= n) return;
    float4 me = body[i];
    float ax = 0, ay = 0, az = 0;
    for (int j = 0; j < n; j++) {
        float4 other = body[j];
        float dx = other.x - me.x, dy = other.y - me.y, dz = other.z - me.z;
        float inverse = rsqrt(dx * dx + dy * dy + dz * dz + softening);
        float weight = other.w * inverse * inverse * inverse;
        ax += weight * dx;
        ay += weight * dy;
        az += weight * dz;
    }
    pull[i] = (float4)(ax, ay, az, 0);
}
