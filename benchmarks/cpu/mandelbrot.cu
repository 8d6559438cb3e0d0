extern "C" __global__ void mandelbrot(int *count, int width, int height, int most)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    float cr = -2.0f + 3.0f * x / width, ci = -1.0f + 2.0f * y / height, zr = 0, zi = 0;
    int k = 0;
    while (k < most && zr * zr + zi * zi <= 4.0f) {
        float next = zr * zr - zi * zi + cr;
        zi = 2.0f * zr * zi + ci;
        zr = next;
        k++;
    }
    count[y * width + x] = k;
}
