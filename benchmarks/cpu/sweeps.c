void sweeps(float *one, float *other, int n, int count)
{
#pragma omp parallel
    for (int k = 0; k < count; k++) {
        const float *from = k % 2 ? other : one;
        float *to = k % 2 ? one : other;
#pragma omp for simd
        for (int i = 1; i < n - 1; i++) to[i] = 0.25f * from[i - 1] + 0.5f * from[i] + 0.25f * from[i + 1];
    }
}
