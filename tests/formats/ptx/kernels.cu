// One of everything that makes the compiler print another kind of PTX.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

struct Mixed { int a; double b; char c[7]; };
struct Pointing { char a; int *p; short s; };
typedef float (*Binary)(float, float);

__constant__ float table[4] = {1.f, 2.5f, -3.f, 4e-3f};
__device__ int counter = 7;
__device__ int grid[2][3] = {{1, 2, 3}, {4, 5, 6}};
__device__ int *pointer = &grid[1][1];
__device__ const char *words[2] = {"one", "two"};
__device__ Pointing pointing = {1, &counter, 3};
__managed__ int managed = 3;
__shared__ float shared[32];
extern __shared__ double dynamic[];

__device__ __noinline__ float add(float a, float b) { return a + b; }
__device__ __noinline__ float mul(float a, float b) { return a * b; }
__device__ Binary functions[2] = {add, mul};
__device__ __noinline__ Mixed make(Mixed s, int n) { s.a += n; s.c[n] = 1; return s; }

__device__ __forceinline__ float halve(float x) { return x / 2; }
__device__ __forceinline__ float quarter(float x) { return halve(halve(x)); }

template <class T> __global__ void axpy(T a, const T *x, T *y, size_t n) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
template __global__ void axpy<float>(float, const float *, float *, size_t);
template __global__ void axpy<double>(double, const double *, double *, size_t);
template __global__ void axpy<__half>(__half, const __half *, __half *, size_t);
template __global__ void axpy<__nv_bfloat16>(__nv_bfloat16, const __nv_bfloat16 *, __nv_bfloat16 *, size_t);

extern "C" __global__ void __launch_bounds__(256, 2)
everything(Mixed s, float *out, int n, Binary f, const float4 *__restrict__ v) {
    int t = threadIdx.x;
    shared[t & 31] = table[t & 3];
    dynamic[t] = s.b;
    __syncthreads();
    switch (n) {
        case 0: out[0] = 1; break;
        case 1: out[1] = sinf(out[3]); break;
        case 2: out[2] = expf(out[1]); break;
        case 3: out[4] = shared[3]; break;
        case 4: out[9] = dynamic[2]; break;
        case 5: out[7] = functions[n & 1](1, out[2]); break;
        case 6: out[8] = f(2, 3); break;
        case 7: out[3] = make(s, n).b; break;
        default: printf("n=%d %f\n", n, out[0]);
    }
    float4 q = v[t];
    out[t] += q.x * q.y + q.z / q.w + sqrtf(q.x);
    int r;
    asm volatile("{\n .reg .pred p;\n .reg .b32 lo, hi;\n setp.ne.s32 p, %1, 0;\n mov.b32 lo, 4;\n"
                 " @p add.s32 lo, lo, %1;\n LOOP:\n sub.s32 lo, lo, 1; setp.gt.s32 p, lo, 0; @p bra LOOP;\n"
                 " mov.b32 %0, lo;\n}" : "=r"(r) : "r"(n));
    out[n] += r + __shfl_xor_sync(~0u, r, 3) + __ballot_sync(~0u, r > 2) + __popc(r) + __clz(r) + __brev(r);
    out[n] += __ffs(r) + min(r, n) + max(r, n) + abs(r) + r / n + r % n + (unsigned)r / 7u + __mulhi(r, n);
    out[1] += pow((double)out[2], 3.3) + log(out[3]) + tanhf(out[4]) + erf((double)out[3]) + fmod(s.b, 3.);
    out[2] += __double2int_rn(s.b) + rint(s.b) + floorf(out[3]) + rsqrtf(out[2]) + 1.0 / s.b + sqrt(s.b);
    out[5] += quarter(out[6]) + clock64() + cos(s.b * 100) + cbrt(s.b);
}

extern "C" __global__ void atomics(int *p, unsigned long long *q, float *f, double *d) {
    atomicAdd(p, 1); atomicAdd(f, 1.f); atomicAdd(d, 1.); atomicCAS(p, 1, 2); atomicMax(q, 3ull);
    atomicExch(p, 3); atomicAnd(p, 4); atomicOr(p, 1); atomicXor(p, 1);
    atomicInc((unsigned *)p, 4); atomicDec((unsigned *)p, 4);
    p[2] = __any_sync(~0u, p[1]) + __all_sync(~0u, p[1]) + __activemask() + __match_any_sync(~0u, p[3]);
    p[5] = __syncthreads_or(p[3]) + __syncthreads_count(p[4]);
    __threadfence(); __threadfence_block(); __threadfence_system(); __syncwarp(); __nanosleep(100);
    p[3] = __ldg(p + 9) + __ldcg(p + 8) + __ldcs(p + 7);
    __stcs(p + 3, 4);
    if (p[9]) __trap();
    if (p[8]) asm volatile("exit;");
    volatile int local[20];
    local[p[3]] = 2;
    p[1] = local[p[2]];
    p[8] = __isGlobal(p);
    long long l = p[3];
    l = l * q[1] + (l >> 3) + (q[2] << 4);
    p[9] = l / q[3];
    q[3] = __umul64hi(q[1], q[2]);
    p[6] = (long long)malloc(10);
    free((void *)q[7]);
}

#if !defined(__CUDACC_DEBUG__)
extern "C" __global__ void intrinsics(int *p, unsigned __int128 *w) {
    p[0] = __byte_perm(p[1], p[2], 0x1234) + __funnelshift_l(p[1], p[2], 3) + __mul24(p[1], p[2]);
    p[1] = __sad(p[1], p[2], 3) + __dp4a(p[1], p[2], 3) + __vabsdiffu4(p[1], p[2]);
    w[0] = w[1] * w[2] + w[3];
}
#endif
