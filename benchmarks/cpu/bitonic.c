#include <string.h>

enum { TILE = 1024 };

/* Compare count pairs, stride apart, and have the lesser of each first, or last. */
static inline void exchange(unsigned *low, int stride, int count, int up)
{
    unsigned *least = up ? low : low + stride, *most = up ? low + stride : low;
#pragma omp simd
    for (int i = 0; i < count; i++) {
        unsigned a = least[i], b = most[i];
        least[i] = a < b ? a : b;
        most[i] = a < b ? b : a;
    }
}

/* The same for all pairs of a run; where stride is a small constant, vectors hold several of them. */
static inline void run_of(unsigned *run, int size, int stride, int up)
{
    unsigned *least = up ? run : run + stride, *most = up ? run + stride : run;
#pragma omp simd
    for (int i = 0; i < size; i += 2 * stride)
        for (int j = 0; j < stride; j++) {
            unsigned a = least[i + j], b = most[i + j];
            least[i + j] = a < b ? a : b;
            most[i + j] = a < b ? b : a;
        }
}

/* Merge the runs of size keys in a part of the keys, from pairs that lie stride apart down to neighbours. */
static void steps(unsigned *keys, int start, int count, int size, int stride)
{
    for (; stride > 4; stride /= 2)
        for (int i = start; i < start + count; i += 2 * stride)
            exchange(keys + i, stride, stride, (i & size) == 0);
    int length = size < count ? size : count;
    for (int i = start; i < start + count; i += length) {
        int up = (i & size) == 0;
        if (size > 4) run_of(keys + i, length, 4, up);
        if (size > 2) run_of(keys + i, length, 2, up);
        run_of(keys + i, length, 1, up);
    }
}

void bitonic(const unsigned *restrict from, unsigned *restrict to, int n)
{
#pragma omp parallel
    {
#pragma omp for
        for (int tile = 0; tile < n; tile += TILE) {
            memcpy(to + tile, from + tile, TILE * sizeof *to);
            for (int size = 2; size <= TILE; size *= 2) steps(to, tile, TILE, size, size / 2);
        }
        for (int size = 2 * TILE; size <= n; size *= 2) {
            for (int stride = size / 2; stride >= TILE; stride /= 2)
#pragma omp for
                for (int i = 0; i < n / 2; i += TILE) {
                    int low = 2 * i - (i & (stride - 1));
                    exchange(to + low, stride, TILE, (low & size) == 0);
                }
#pragma omp for
            for (int tile = 0; tile < n; tile += TILE) steps(to, tile, TILE, size, TILE / 2);
        }
    }
}
