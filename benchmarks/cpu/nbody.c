#include <math.h>
#include <stdlib.h>

typedef struct { float x, y, z, w; } body_t;

void nbody(const body_t *restrict body, body_t *restrict pull, int n, float softening)
{
    float *restrict x = aligned_alloc(64, 4 * n * sizeof *x), *restrict y = x + n, *restrict z = y + n, *restrict w = z + n;
    for (int j = 0; j < n; j++) x[j] = body[j].x, y[j] = body[j].y, z[j] = body[j].z, w[j] = body[j].w;
#pragma omp parallel for
    for (int i = 0; i < n; i++) {
        float ax = 0, ay = 0, az = 0, mx = x[i], my = y[i], mz = z[i];
#pragma omp simd reduction(+ : ax, ay, az)
        for (int j = 0; j < n; j++) {
            float dx = x[j] - mx, dy = y[j] - my, dz = z[j] - mz;
            float inverse = 1.0f / sqrtf(dx * dx + dy * dy + dz * dz + softening);
            float weight = w[j] * inverse * inverse * inverse;
            ax += weight * dx;
            ay += weight * dy;
            az += weight * dz;
        }
        pull[i] = (body_t){ax, ay, az, 0};
    }
    free(x);
}
