enum { T = 16 };

void transpose(const float *restrict from, float *restrict to, int n)
{
#pragma omp parallel for
    for (int row = 0; row < n; row += T)
        for (int column = 0; column < n; column++)
#pragma omp simd
            for (int y = 0; y < T; y++) to[column * n + row + y] = from[(row + y) * n + column];
}
