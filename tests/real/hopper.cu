// A product of halves in the manner of libraries for Hopper: c = a b^T, a is m by k, b is n by k, in tiles of 128 by 64.
// A warpgroup of producers has tensor maps fill a ring of four stages, two warpgroups of consumers multiply by wgmma
// and put the tile out by a tensor map. `fault` plants a mistake.
#include <cstdint>
struct alignas(64) CUtensorMap { char bytes[128]; };
#include <cuda_fp16.h>

constexpr int STAGES = 4, ROWS = 128, COLUMNS = 64, STEP = 64;
constexpr unsigned A_BYTES = ROWS * STEP * 2, B_BYTES = COLUMNS * STEP * 2;

struct alignas(1024) Memory {
    __half a[STAGES][ROWS * STEP];
    __half b[STAGES][COLUMNS * STEP];
    float c[ROWS * COLUMNS];
    uint64_t full[STAGES], empty[STAGES];
};

static __device__ unsigned place(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }
static __device__ void until(uint64_t *barrier, int parity) {
    asm volatile("{ .reg .pred p; L: mbarrier.try_wait.parity.shared.b64 p, [%0], %1; @!p bra L; }"
                 ::"r"(place(barrier)), "r"(parity) : "memory");
}
static __device__ void load(void *to, const CUtensorMap *map, int x, int y, uint64_t *barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];"
                 ::"r"(place(to)), "l"(map), "r"(x), "r"(y), "r"(place(barrier)) : "memory");
}
// K-major, in the pattern of 128 bytes: eight rows are 1,024 bytes apart.
static __device__ uint64_t descriptor(const void *p) {
    return ((place(p) & 0x3FFFFull) >> 4) | (1ull << 16) | (64ull << 32) | (1ull << 62);
}
#define D8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
              "+f"(d[i + 6]), "+f"(d[i + 7])
static __device__ void multiply(float *d, uint64_t a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, "
                 "%11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, "
                 "%31}, %32, %33, 1, 1, 1, 0, 0;"
                 : D8(0), D8(8), D8(16), D8(24) : "l"(a), "l"(b));
}

extern "C" __global__ void __launch_bounds__(384, 1)
product(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
        const __grid_constant__ CUtensorMap c, int k, int fault) {
    extern __shared__ __align__(1024) unsigned char bytes[];
    Memory &s = *(Memory *)bytes;
    int group = threadIdx.x / 128, steps = k / STEP;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(place(&s.full[i])) : "memory");
            asm volatile("mbarrier.init.shared.b64 [%0], 2;" ::"r"(place(&s.empty[i])) : "memory");
        }
        if (fault != 11) asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0) {
            for (int i = 0; i < steps; i++) {
                int at = i % STAGES;
                if (fault != 2) until(&s.empty[at], ((i / STAGES + 1) & 1) ^ (fault == 10));
                asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;"
                             ::"r"(place(&s.full[at])), "r"(A_BYTES + B_BYTES - (fault == 6 ? B_BYTES : 0) + (fault == 7 ? 16 : 0))
                             : "memory");
                load(s.a[at], &a, i * STEP, blockIdx.y * ROWS, &s.full[at]);
                load(s.b[at], &b, i * STEP, blockIdx.x * COLUMNS, &s.full[at]);
            }
        }
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    float d[32] = {};
    for (int i = 0; i < steps; i++) {
        int at = i % STAGES;
        if (fault != 1) until(&s.full[at], (i / STAGES & 1) ^ (fault == 5));
        uint64_t of_a = descriptor(s.a[at] + (group - 1) * 64 * STEP), of_b = descriptor(s.b[at]);
        if (fault == 9 && i == 2) of_a += A_BYTES >> 4;
        if (fault == 3) of_a += (STAGES * (A_BYTES + B_BYTES) + sizeof(s.c)) >> 4;
        if (fault != 12) asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        for (int q = 0; q < STEP / 16; q++) multiply(d, of_a + 2 * q, of_b + 2 * q);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        if (fault != 8 || i + 1 == steps) asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        if (threadIdx.x % 128 == 0)
            asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(place(&s.empty[at])) : "memory");
    }
    int row = threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4 + (group - 1) * 64;
    for (int i = 0; i < 32; i++)
        s.c[(row + 8 * (i / 2 % 2)) * COLUMNS + i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2] = d[i];
    if (fault != 4) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("bar.sync 1, 256;" ::: "memory");
    if (threadIdx.x == 128) {
        asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];"
                     "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"
                     ::"l"(&c), "r"(blockIdx.x * COLUMNS), "r"(blockIdx.y * ROWS), "r"(place(s.c)) : "memory");
    }
}
