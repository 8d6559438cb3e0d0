// More ways in which kernels use memory and meet, beside those of shapes.cu: what checks cost is measured on all of them.

#define ROUNDS 16
#define AT (blockIdx.x * blockDim.x + threadIdx.x)

// Pairs of warps that exchange a tile at a named barrier.
extern "C" __global__ void named(const float *x, float *y)
{
    __shared__ float s[256];
    int t = threadIdx.x, pair = t / 64;
    float v = x[AT];
    for (int k = 0; k < ROUNDS; k++) {
        s[t] = v;
        asm volatile("bar.sync %0, 64;" ::"r"(pair + 1) : "memory");
        v = 0.5f * (v + s[t ^ 32]);
        asm volatile("bar.sync %0, 64;" ::"r"(pair + 1) : "memory");
    }
    y[AT] = v;
}

// A producer warp fills a tile for each consumer: two named barriers, at which one side only arrives.
extern "C" __global__ void handed(const float *x, float *y)
{
    __shared__ float s[128];
    int t = threadIdx.x, lane = t % 32, side = t / 128, pair = t / 32 % 4;
    float v = x[AT];
    for (int k = 0; k < ROUNDS; k++) {
        if (side) {
            if (k) asm volatile("bar.sync %0, 64;" ::"r"(pair + 5) : "memory");
            s[pair * 32 + lane] = v + k;
            asm volatile("bar.arrive %0, 64;" ::"r"(pair + 1) : "memory");
        } else {
            asm volatile("bar.sync %0, 64;" ::"r"(pair + 1) : "memory");
            v = 0.5f * (v + s[pair * 32 + 31 - lane]);
            if (k + 1 < ROUNDS) asm volatile("bar.arrive %0, 64;" ::"r"(pair + 5) : "memory");
        }
    }
    y[AT] = v;
}

// A sum in each warp by shared memory and __syncwarp.
extern "C" __global__ void summed(const float *x, float *y)
{
    __shared__ float s[256];
    int t = threadIdx.x, lane = t % 32;
    float v = x[AT];
    for (int k = 0; k < ROUNDS / 2; k++) {
        s[t] = v;
        __syncwarp();
        for (int d = 16; d; d /= 2) {
            if (lane < d) s[t] += s[t + d];
            __syncwarp();
        }
        v = 0.03125f * s[t - lane] + k;
        __syncwarp();
    }
    y[AT] = v;
}

// Two blocks of a cluster that read each other's tile.
extern "C" __global__ void __cluster_dims__(2) exchanged(const float *x, float *y)
{
    __shared__ float s[256];
    int t = threadIdx.x;
    unsigned rank, here = (unsigned)__cvta_generic_to_shared(&s[255 - t]), there;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(rank ^ 1));
    float v = x[AT], w;
    for (int k = 0; k < ROUNDS; k++) {
        s[t] = v;
        asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
        asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(w) : "r"(there) : "memory");
        v = 0.5f * (v + w);
        asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
    }
    y[AT] = v;
}

// A product of which each thread has 4 x 4 elements; the first factor's tile is stored turned.
extern "C" __global__ void blocked(const float4 *a, const float4 *b, float4 *c, int n)
{
    __shared__ __align__(16) float left[16][68], right[16][64];
    int t = threadIdx.x, x = t % 16, y = t / 16, row = blockIdx.y * 64, column = blockIdx.x * 64;
    float sum[4][4] = {};
    for (int k = 0; k < n; k += 16) {
        float4 v = a[((row + t / 4) * n + k + t % 4 * 4) / 4];
        left[t % 4 * 4][t / 4] = v.x, left[t % 4 * 4 + 1][t / 4] = v.y;
        left[t % 4 * 4 + 2][t / 4] = v.z, left[t % 4 * 4 + 3][t / 4] = v.w;
        *(float4 *)&right[y][x * 4] = b[((k + y) * n + column + x * 4) / 4];
        __syncthreads();
        for (int j = 0; j < 16; j++) {
            float4 p = *(float4 *)&left[j][y * 4], q = *(float4 *)&right[j][x * 4];
            float ps[4] = {p.x, p.y, p.z, p.w}, qs[4] = {q.x, q.y, q.z, q.w};
            for (int i = 0; i < 4; i++)
                for (int m = 0; m < 4; m++) sum[i][m] += ps[i] * qs[m];
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; i++)
        c[((row + y * 4 + i) * n + column + x * 4) / 4] = make_float4(sum[i][0], sum[i][1], sum[i][2], sum[i][3]);
}

// A filter of nine taps over a tile whose edges some threads load.
extern "C" __global__ void filtered(const float *x, const float *taps, float *y, int n)
{
    __shared__ float s[256 + 8], f[9];
    int t = threadIdx.x, at = AT;
    if (t < 9) f[t] = taps[t];
    s[t + 4] = x[at];
    if (t < 4) s[t] = at >= 4 ? x[at - 4] : 0;
    if (t >= 252) s[t + 8] = at + 4 < n ? x[at + 4] : 0;
    __syncthreads();
    float sum = 0;
    for (int k = 0; k < 9; k++) sum += f[k] * s[t + k];
    y[at] = sum;
}

// Layers of a volume pass through one tile; what is above and below stays in registers.
extern "C" __global__ void layers(const float *x, float *y, int n)
{
    __shared__ float s[10][34];
    int u = threadIdx.x, v = threadIdx.y, i = blockIdx.x * 32 + u, j = blockIdx.y * 8 + v, plane = n * n;
    float below = 0, own = x[j * n + i];
    for (int k = 0; k < ROUNDS; k++) {
        float above = k + 1 < ROUNDS ? x[(k + 1) * plane + j * n + i] : 0;
        s[v + 1][u + 1] = own;
        if (v == 0) s[0][u + 1] = j ? x[k * plane + (j - 1) * n + i] : 0;
        if (v == 7) s[9][u + 1] = j + 1 < n ? x[k * plane + (j + 1) * n + i] : 0;
        if (u == 0) s[v + 1][0] = i ? x[k * plane + j * n + i - 1] : 0;
        if (u == 31) s[v + 1][33] = i + 1 < n ? x[k * plane + j * n + i + 1] : 0;
        __syncthreads();
        y[k * plane + j * n + i] = above + below - 6 * own + s[v][u + 1] + s[v + 2][u + 1] + s[v + 1][u] + s[v + 1][u + 2];
        __syncthreads();
        below = own, own = above;
    }
}

// A row's softmax: shuffles in warps, and one word of each warp in shared memory.
extern "C" __global__ void softmax(const float *x, float *y)
{
    __shared__ float s[8];
    int t = threadIdx.x;
    float v = x[AT], most = v, sum;
    for (int d = 16; d; d /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, d));
    if (t % 32 == 0) s[t / 32] = most;
    __syncthreads();
    most = s[0];
    for (int k = 1; k < 8; k++) most = fmaxf(most, s[k]);
    __syncthreads();
    v = sum = expf(v - most);
    for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
    if (t % 32 == 0) s[t / 32] = sum;
    __syncthreads();
    sum = 0;
    for (int k = 0; k < 8; k++) sum += s[k];
    y[AT] = v / sum;
}

// Ranks of four-bit digits: each warp counts its own by votes.
extern "C" __global__ void ranked(const int *x, int *y)
{
    __shared__ int count[8][16];
    int t = threadIdx.x, lane = t % 32, warp = t / 32, v = x[AT], rank = 0;
    for (int pass = 0; pass < 4; pass++) {
        int digit = v >> 4 * pass & 15;
        if (lane < 16) count[warp][lane] = 0;
        __syncwarp();
        unsigned same = __match_any_sync(~0u, digit);
        if (lane == __ffs(same) - 1) count[warp][digit] = __popc(same);
        __syncthreads();
        for (int w = 0; w < warp; w++) rank += count[w][digit];
        rank += __popc(same & ((1u << lane) - 1));
        __syncthreads();
    }
    y[AT] = rank;
}

// What is kept of a block's elements goes to a list in shared memory.
extern "C" __global__ void listed(const int *x, int *y)
{
    __shared__ int list[256], count;
    int t = threadIdx.x;
    for (int k = 0; k < ROUNDS; k++) {
        if (t == 0) count = 0;
        __syncthreads();
        int v = x[AT] + k;
        if (v % 3 == 0) list[atomicAdd(&count, 1)] = 1;
        __syncthreads();
        if (k == ROUNDS - 1) y[AT] = t < count ? list[t] : 0;
        __syncthreads();
    }
}

// Rows of a sparse matrix, one for each warp.
extern "C" __global__ void sparse(const float *x, const int *at, float *y, int n)
{
    int lane = threadIdx.x % 32, row = AT / 32;
    float sum = 0;
    for (int k = lane; k < 64 + row % 64; k += 32) sum += x[(row * 64 + k) & (n - 1)] * x[at[(row * 64 + k) & (n - 1)] & (n - 1)];
    for (int d = 16; d; d /= 2) sum += __shfl_down_sync(~0u, sum, d);
    if (lane == 0) y[row] = sum;
}

// Four tables in shared memory, by the bytes of a word.
extern "C" __global__ void substituted(const int *x, int *y)
{
    __shared__ int s[4][256];
    int t = threadIdx.x;
    for (int k = 0; k < 4; k++) s[k][t] = t * (0x01030507 + k);
    __syncthreads();
    unsigned v = x[AT];
    for (int k = 0; k < ROUNDS; k++) v = s[0][v & 255] ^ s[1][v >> 8 & 255] ^ s[2][v >> 16 & 255] ^ s[3][v >> 24] ^ k;
    y[AT] = v;
}

// A block of 100 threads, and rows of seven elements.
extern "C" __global__ void sevens(const float *x, float *y)
{
    __shared__ float s[100][7];
    int t = threadIdx.x;
    float v = x[AT];
    for (int k = 0; k < ROUNDS; k++) {
        for (int j = 0; j < 7; j++) s[t][j] = v * j;
        __syncthreads();
        v = 0;
        for (int j = 0; j < 7; j++) v += s[99 - t][j];
        v *= 0.04f;
        __syncthreads();
    }
    y[AT] = v;
}

// Structures of 12 and of 16 bytes in one array of bytes, and a flag that all threads read.
struct Cell {
    float value;
    int next;
    short left, right;
};

extern "C" __global__ void linked(const float *x, float *y)
{
    __shared__ Cell cells[256];
    int t = threadIdx.x;
    float v = x[AT];
    cells[t] = {v, (t * 5 + 1) & 255, (short)t, (short)(255 - t)};
    __syncthreads();
    int at = t;
    for (int k = 0; k < ROUNDS; k++) {
        v += cells[at].value * 0.25f;
        at = k & 1 ? cells[at].next : cells[at].right;
    }
    y[AT] = v;
}

// Threads that go on until all of the block agree.
extern "C" __global__ void settled(const int *x, int *y)
{
    __shared__ int s[256];
    int t = threadIdx.x, turns = 0;
    s[t] = x[AT] & 1023;
    do {
        __syncthreads();
        int other = s[(t + 1) & 255], own = s[t];
        __syncthreads();
        if (other > own) s[t] = other;
        turns++;
    } while (turns < ROUNDS && __syncthreads_or(s[t] != 1023));
    y[AT] = s[t];
}
