// Reductions in bulk by which blocks add to the same place. tests/real/test_bulk_sums.py has the references.

// cuda.h declares host functions, which NVRTC refuses; this is all that a kernel needs of it.
struct alignas(64) CUtensorMap_st {
    unsigned long long opaque[16];
};
typedef struct CUtensorMap_st CUtensorMap;

// Brings the row of this block to shared memory, where asynchronous copies see it; gives its address there.
static __device__ unsigned bring(float (&row)[128], const float *in)
{
    for (int i = threadIdx.x; i < 128; i += blockDim.x) row[i] = in[blockIdx.x * 128 + i];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    return (unsigned)__cvta_generic_to_shared(row);
}

static __device__ void finish()
{
    asm volatile("cp.async.bulk.commit_group;\n"
                 "cp.async.bulk.wait_group 0;" ::: "memory");
}

// Every block adds its row to the same sums.
extern "C" __global__ void add_rows(const float *in, float *sums)
{
    __shared__ alignas(128) float row[128];
    unsigned from = bring(row, in);
    if (threadIdx.x == 0) {
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], 512;" ::"l"(sums), "r"(from)
                     : "memory");
        finish();
    }
}

// Every block adds its row, as a box of 8 x 16, to a tensor; the boxes of neighbours overlap.
extern "C" __global__ void add_boxes(const __grid_constant__ CUtensorMap map, const float *in, int y)
{
    __shared__ alignas(128) float row[128];
    unsigned from = bring(row, in);
    if (threadIdx.x == 0) {
        asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(
                         &map),
                     "r"((int)blockIdx.x * 8), "r"(y), "r"(from)
                     : "memory");
        finish();
    }
}
