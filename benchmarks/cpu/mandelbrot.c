#define W 16 /* pixels that run side by side */

void mandelbrot(int *count, int width, int height, int most)
{
#pragma omp parallel for schedule(dynamic, 8)
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x += W) {
            float cr[W], zr[W], zi[W], ci = -1.0f + 2.0f * y / height;
            int k[W];
            for (int l = 0; l < W; l++) {
                cr[l] = -2.0f + 3.0f * (x + l) / width;
                zr[l] = zi[l] = 0;
                k[l] = 0;
            }
            int before = -1, sum = 0;
            for (int step = 0; step < most && sum != before; step++) {
                before = sum;
                sum = 0;
#pragma omp simd reduction(+ : sum)
                for (int l = 0; l < W; l++) {
                    float rr = zr[l] * zr[l], ii = zi[l] * zi[l], next = rr - ii + cr[l];
                    k[l] += rr + ii <= 4.0f; /* what has left goes on to infinity, and is not counted again */
                    zi[l] = 2.0f * zr[l] * zi[l] + ci;
                    zr[l] = next;
                    sum += k[l];
                }
            }
            for (int l = 0; l < W; l++) count[y * width + x + l] = k[l];
        }
}
