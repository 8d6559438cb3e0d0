// A program of many functions and variables, which tests cut into modules: calls, recursion, functions by address,
// virtual functions, tables that hold addresses, constants, shared memory of both kinds, text, own and shared state.
#define APART __device__ __noinline__
using u32 = unsigned;

__device__ u32 total = 3;
__device__ u32 table[8] = {1, 1, 2, 3, 5, 8, 13, 21};
__device__ u32 *place = table + 2;
__device__ u32 **place_of_place = &place;
__constant__ u32 weights[4] = {7, 11, 13, 17};
__constant__ float scale = 0.5f;
static __device__ u32 hidden = 9;
__device__ const char *words[3] = {"alpha", "beta", "gamma"};
__shared__ u32 together[64];

APART u32 mix(u32 x) { return (x ^ x >> 7) * 2654435761u; }
APART u32 weigh(u32 x) { return weights[x & 3] * x + mix(x); }
APART float scaled(float x) { return x * scale + 1.0f; }
APART double wide(double x, int n) { return n ? x * 1.5 + scaled(x) : x; }
APART u32 fibonacci(u32 n) { return n < 2 ? table[n] : fibonacci(n - 1) + fibonacci(n - 2); }
APART u32 is_odd(u32 n);
APART u32 is_even(u32 n) { return n == 0 ? 1 : is_odd(n - 1); }
APART u32 is_odd(u32 n) { return n == 0 ? 0 : is_even(n - 1); }
APART u32 count(u32 by) { return hidden + by * (*place_of_place)[1]; }
APART u32 letters(u32 which) {
    u32 sum = 0;
    for (const char *c = words[which % 3]; *c; c++) sum = sum * 31 + *c;
    return sum;
}

struct Box { u32 a[5]; double b; };
APART Box boxed(u32 x) {
    Box box;
    for (u32 i = 0; i < 5; i++) box.a[i] = weigh(x + i);
    box.b = wide(x, 3);
    return box;
}
APART u32 unboxed(Box box, u32 i) { return box.a[i % 5] + (u32)box.b; }

using Function = u32 (*)(u32);
__device__ Function chosen[4] = {mix, weigh, fibonacci, is_even};
APART u32 by_address(u32 which, u32 x) { return chosen[which & 3](x & 7); }

struct Shape {
    u32 side;
    APART virtual u32 area() const { return side; }
    APART virtual u32 twice(u32 n) const { return 2 * area() + n; }
};
struct Square : Shape {
    APART u32 area() const override { return side * side; }
};
APART u32 shaped(u32 n) {
    Shape plain{};
    Square square{};
    plain.side = square.side = n;
    const Shape *shape = n & 1 ? &plain : &square;
    return shape->twice(n);
}

template <class T> APART T generic(T x) { return x * 3 + (T)mix((u32)x); }
APART u32 shared_sum(u32 x) {
    together[threadIdx.x & 63] = x;
    __syncthreads();
    return together[63 - (threadIdx.x & 63)] + together[0];
}

extern "C" __global__ void first(u32 *out) {
    u32 i = threadIdx.x;
    out[i] = mix(i) + weigh(i) + fibonacci(i & 7) + is_even(i & 15) + count(i) + letters(i) + total;
    out[i] += unboxed(boxed(i), i) + by_address(i, i) + shaped(i) + generic<u32>(i) + (u32)generic<float>(i & 3);
    out[i] += shared_sum(i) + place[0];
}

extern "C" __global__ void second(u32 *out) {
    extern __shared__ u32 dynamic[];
    u32 i = threadIdx.x;
    dynamic[i] = count(i) + generic<u32>(i);
    __syncthreads();
    out[i] = dynamic[(i + 1) & 63] + shared_sum(i) + letters(i + 1) + (u32)wide(i, 1);
    if (i == 0) atomicAdd(&total, 1);
}
