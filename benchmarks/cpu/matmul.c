#include <string.h>

void matmul(const float *restrict a, const float *restrict b, float *restrict c, int n)
{
#pragma omp parallel for
    for (int i = 0; i < n; i++) {
        memset(c + i * n, 0, n * sizeof(float));
        for (int k = 0; k < n; k++)
            for (int j = 0; j < n; j++) c[i * n + j] += a[i * n + k] * b[k * n + j];
    }
}
