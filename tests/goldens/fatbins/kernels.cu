// One kernel for each thing that a cubin tells of a kernel.
struct Mixed { char c; double d; };
struct alignas(32) Wide { float f[8]; };
struct Many { int v[1000]; };
struct Pair { int* p; int n; };
__constant__ float table[8];
__device__ int counter;
__managed__ int both;

__device__ __noinline__ int callee(int* p, int n) {
    int local[20];
    for (int i = 0; i < 20; ++i) local[(i * n) % 20] = p[i] + n;
    return local[n % 20];
}
__device__ __noinline__ int deep(int* p, int n) { return n < 2 ? p[n] : deep(p, n - 1) + deep(p, n - 2); }

extern "C" {
__global__ void nothing() {}
__global__ void mixed(char a, short b, int* c, Mixed d, float4 e, double f, Wide g, const float* h) {
    *c = a + b + (int)(d.d + e.x + f + g.f[3] + h[0] + table[a] + counter + both);
}
__global__ void constant_grid(const __grid_constant__ Mixed m, Pair p) { *p.p = m.c + p.n + (int)m.d; }
__global__ void shared_static(const float* x, float* y) {
    __shared__ float s[300];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = s[299 - threadIdx.x];
}
__global__ void __launch_bounds__(96, 3) shared_dynamic(int* p) {
    extern __shared__ int q[];
    q[threadIdx.x] = *p;
    __syncthreads();
    *p = q[3];
}
__global__ void stack(int* p, int n) {
    int local[64];
    for (int i = 0; i < 64; ++i) local[(i * n) & 63] = i + p[i];
    *p = local[n & 63];
}
__global__ void recursive(int* p, int n) { *p = deep(p, n); }
__global__ void calling(int* p, int n) { p[1] = callee(p, n) + callee(p + 4, n + 1); }
__global__ void indirect(int (*f)(int*, int), int* p) { *p = f(p, 3); }
__global__ void __launch_bounds__(1024) spilling(float* p) {
    float v[80];
#pragma unroll
    for (int i = 0; i < 80; ++i) v[i] = p[i * 32 + threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 80; ++i) p[i * 64 + threadIdx.x] = v[79 - i] * v[(i * 7) % 80];
}
__global__ void barriers(int* p) {
    asm volatile("bar.sync 3, 64; bar.sync 5, 64;" ::: "memory");
    *p = 1;
}
__global__ void large(int n, const __grid_constant__ Many m, int* p) { *p = m.v[n]; }
__global__ void texture(cudaTextureObject_t t, float* y) {
    float v;
    asm("{ .reg .f32 a, b, c; tex.1d.v4.f32.s32 {%0, a, b, c}, [%1, {%2}]; }" : "=f"(v) : "l"(t), "r"(threadIdx.x));
    *y = v;
}
__global__ void atomics(unsigned long long* p) { atomicAdd(p, (unsigned long long)threadIdx.x); }
__global__ void division(double* p, float* q) { *p = *p / p[1]; *q = sqrtf(*q) / q[1]; }
#if __CUDA_ARCH__ >= 900
__global__ void __cluster_dims__(2, 1, 1) clustered(int* p) { *p = 1; }
__global__ void waiting(unsigned long long* p) {
    __shared__ unsigned long long m[2];
    unsigned a = (unsigned)__cvta_generic_to_shared(m);
    asm volatile("mbarrier.init.shared.b64 [%0], 1; mbarrier.init.shared.b64 [%0+8], 1;" ::"r"(a) : "memory");
    *p = m[1];
}
#endif
}

template <typename T>
__global__ void axpy(T a, const T* x, T* y, unsigned long n) {
    unsigned long i = blockIdx.x * (unsigned long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
template __global__ void axpy<float>(float, const float*, float*, unsigned long);
template __global__ void axpy<double>(double, const double*, double*, unsigned long);
