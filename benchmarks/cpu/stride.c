void stride(const float *restrict x, float *restrict sums, int n)
{
    float sum = 0;
#pragma omp parallel for simd reduction(+ : sum)
    for (int i = 0; i < n; i++) sum += x[i];
    sums[0] = sum;
}
