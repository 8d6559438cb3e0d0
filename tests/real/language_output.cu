// What a kernel prints and asserts. tests/real/test_language.py has the references.
#include <assert.h>
#include <stdio.h>

extern "C" __global__ void say(const int *in)
{
    if (threadIdx.x == 0)
        printf("block %d: %5d|%-6d|%x|%08.3f|%c|%s|%llu|%%\n", blockIdx.x, in[blockIdx.x], -in[blockIdx.x], in[blockIdx.x],
               in[blockIdx.x] * 0.25, 'a' + blockIdx.x, blockIdx.x ? "later" : "first", 1ull << 40);
}

extern "C" __global__ void check(const int *in, int *out)
{
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    assert(in[at] >= 0 && "values are counted");
    out[at] = in[at] + 1;
}

extern "C" __global__ void stop_at(const int *in, int *out)
{
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (in[at] < 0) __trap();
    out[at] = in[at] + 1;
}
