void tree(const float *restrict x, float *restrict sums, int n)
{
#pragma omp parallel for
    for (int block = 0; block < n / 256; block++) {
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int i = 0; i < 256; i++) sum += x[block * 256 + i];
        sums[block] = sum;
    }
}
