// Seven kernels of the kinds that people write, without synchronisation. tests/kernels/cases.py has their references.

extern "C" __global__ void stencil(const float *in, float *out, int width, int height, float weight)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    int at = y * width + x;
    if (x == 0 || y == 0 || x == width - 1 || y == height - 1) {
        out[at] = in[at];
        return;
    }
    float around = in[at - 1] + in[at + 1] + in[at - width] + in[at + width];
    out[at] = in[at] + weight * (around - 4.0f * in[at]);
}

// Every thread counts into bins of its own, so that no two threads meet.
extern "C" __global__ void histogram(const unsigned char *data, int n, unsigned *bins)
{
    int thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    unsigned *own = bins + 16 * thread;
    for (int i = 0; i < 16; i++) own[i] = 0;
    for (int i = thread; i < n; i += threads) own[data[i] >> 4]++;
}

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

extern "C" __global__ void nbody(const float4 *body, float4 *acceleration, int n, float softening)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 me = body[i];
    float ax = 0, ay = 0, az = 0;
    for (int j = 0; j < n; j++) {
        float4 other = body[j];
        float dx = other.x - me.x, dy = other.y - me.y, dz = other.z - me.z;
        float square = dx * dx + dy * dy + dz * dz + softening;
        float inverse = 1.0f / sqrtf(square);
        float pull = other.w * (inverse * inverse * inverse);
        ax += pull * dx;
        ay += pull * dy;
        az += pull * dz;
    }
    acceleration[i] = make_float4(ax, ay, az, 0);
}

__device__ __noinline__ unsigned mix(unsigned h)
{
    h ^= h >> 16;
    h *= 0x85ebca6bu;
    h ^= h >> 13;
    h *= 0xc2b2ae35u;
    return h ^ (h >> 16);
}

template <int ROUNDS> __global__ void hash(const unsigned *in, unsigned *out, size_t n)
{
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned h = in[i];
    for (int k = 0; k < ROUNDS; k++) h = mix(h + k) + __popc(h) + __clz(h);
    out[i] = h;
}

__constant__ double coefficient[8] = {1.0, -0.5, 0.25, 1.0 / 3, -2.0, 0.125, 7.0, 1e-3};

extern "C" __global__ void polynomial(const double *x, double *y, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        double sum = 0;
        for (int k = 7; k >= 0; k--) sum = sum * x[i] + coefficient[k];
        y[i] = sum;
    }
}

// Marks where the pattern begins; most positions fail at their first byte, so lanes part at once.
extern "C" __global__ void search(const char *text, int n, const char *pattern, int m, unsigned char *found)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int k = 0;
    if (i + m <= n)
        while (k < m && text[i + k] == pattern[k]) k++;
    found[i] = k == m;
}
