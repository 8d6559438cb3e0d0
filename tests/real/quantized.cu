// c = a b with b in four bits and a scale for every 32 rows of a column, in the manner of libraries for quantized weights:
// four stages of cp.async, ldmatrix for a, lop3 makes halves of four bits. `fault` plants a mistake.
// One warp multiplies 16 rows of a by 8 columns of b; a word of b has eight numbers of one lane's, those of two mmas.
#include <cuda_fp16.h>
#include <cstdint>

constexpr int STAGES = 4, STEP = 32, ROW = STEP + 8;

struct Stage { __half a[16 * ROW]; uint32_t b[4][32]; };

static __device__ unsigned place(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }
static __device__ void copy16(void *to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place(to)), "l"(from) : "memory");
}

// Numbers at bits 0 and 16 become halves from -8 to 7: 0x6400 is 1024, whose last four bits count ones.
static __device__ unsigned halves(uint32_t word) {
    unsigned bits, result;
    asm("lop3.b32 %0, %1, 0x000f000f, 0x64006400, 0xea;" : "=r"(bits) : "r"(word));
    asm("sub.f16x2 %0, %1, %2;" : "=r"(result) : "r"(bits), "r"(0x64086408u));
    return result;
}

// Four warps share the rows of a; warp w has the columns from 32 blockIdx.x + 8 w on.
extern "C" __global__ void __launch_bounds__(128)
product(const __half *a, const uint32_t *b, const __half *scales, float *c, int n, int k, int fault) {
    __shared__ __align__(16) Stage s[STAGES];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, steps = k / STEP, column = blockIdx.x * 32 + warp * 8;
    auto fetch = [&](int at) {
        if (at < steps && threadIdx.x < 64)
            copy16(&s[at % STAGES].a[threadIdx.x / 4 * ROW + threadIdx.x % 4 * 8],
                   a + threadIdx.x / 4 * k + at * STEP + threadIdx.x % 4 * 8);
        else if (at < steps && threadIdx.x < 96)
            copy16(&s[at % STAGES].b[threadIdx.x / 8 % 4][threadIdx.x % 8 * 4],
                   b + (at * (n / 8) + blockIdx.x * 4 + (fault == 5 ? 4 : 0) + threadIdx.x / 8 % 4) * 32 + threadIdx.x % 8 * 4);
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    for (int i = 0; i < STAGES - 1; i++) fetch(i);
    float d[4] = {};
    for (int at = 0; at < steps; at++) {
        if (fault == 1) asm volatile("cp.async.wait_group 3;" ::: "memory");
        else asm volatile("cp.async.wait_group 2;" ::: "memory");
        if (fault != 2) __syncthreads();
        Stage &now = s[(at + (fault == 4)) % STAGES];
        uint32_t word = now.b[warp][lane];
        float sum[4] = {};
        for (int q = 0; q < 2; q++, word >>= 8) {
            unsigned r[4];
            const __half *from = &now.a[lane % 16 * ROW + q * 16 + lane / 16 * 8] + (fault == 3 ? STAGES * sizeof(Stage) / 2 : 0);
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(place(from)) : "memory");
            asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                "{%0, %1, %2, %3};"
                : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                : "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]), "r"(halves(word)), "r"(halves(word >> 4)));
        }
        for (int q = 0; q < 4; q++) d[q] += sum[q] * __half2float(scales[at * n + column + lane % 4 * 2 + q % 2]);
        fetch(at + STAGES - 1);
    }
    for (int q = 0; q < 4; q++) c[(lane / 4 + q / 2 * 8) * n + column + lane % 4 * 2 + q % 2] = d[q];
}

static __device__ float2 floats(unsigned word) { return __half22float2(*(const __half2 *)&word); }

// One query of a head against keys and values in pages of eight: block (head, sequence), a warp a page in turn.
constexpr int WIDTH = 64, PAGE = 8;
extern "C" __global__ void __launch_bounds__(128)
attention(const __half *q, const __half *keys, const __half *values, const int *pages, const int *lengths, float *out,
          int most, int fault) {
    __shared__ float sums[4][WIDTH], highest[4], total[4];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, heads = gridDim.x, length = lengths[blockIdx.y];
    float2 mine = floats(((const unsigned *)(q + (blockIdx.y * heads + blockIdx.x) * WIDTH))[lane]), sum = {};
    float high = -1e30f, all = 0;
    for (int page = warp; page * PAGE < length + (fault == 1 ? PAGE : 0); page += 4) {
        size_t at = ((size_t)pages[blockIdx.y * most + page + (fault == 2)] * heads + blockIdx.x) * PAGE * WIDTH;
#pragma unroll 1
        for (int i = 0; i < PAGE && (fault == 1 || page * PAGE + i < length); i++) {
            float2 key = floats(((const unsigned *)(keys + at + i * WIDTH))[lane]);
            float score = mine.x * key.x + mine.y * key.y;
            for (int k = 16; k; k /= 2) score += __shfl_xor_sync(~0u, score, k);
            score *= 0.125f;
            float now = fmaxf(high, score), old = __expf(high - now), weight = __expf(score - now);
            float2 value = floats(((const unsigned *)(values + at + i * WIDTH))[lane]);
            sum = {sum.x * old + weight * value.x, sum.y * old + weight * value.y};
            all = all * old + weight, high = now;
        }
    }
    ((float2 *)sums[warp])[lane] = sum;
    if (lane == 0) highest[warp] = high, total[warp] = all;
    if (fault != 3) __syncthreads();
    if (threadIdx.x >= WIDTH) return;
    float top = fmaxf(fmaxf(highest[0], highest[1]), fmaxf(highest[2], highest[3])), above = 0, below = 0;
    for (int w = 0; w < 4; w++) {
        float scale = __expf(highest[w] - top);
        above += scale * sums[w][threadIdx.x], below += scale * total[w];
    }
    out[(blockIdx.y * heads + blockIdx.x) * WIDTH + threadIdx.x] = above / below;
}
