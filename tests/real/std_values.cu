// Values of libcu++ in device code. tests/real/test_std.py has the references.
#if __has_include(<cuda/std/algorithm>)  // not in the CCCL of CUDA 13.0
#include <cuda/std/algorithm>
#define HAS_ALGORITHM
#endif
#include <cuda/std/array>
#include <cuda/std/bit>
#include <cuda/std/complex>
#include <cuda/std/optional>
#include <cuda/std/tuple>
#include <cuda/std/variant>

extern "C" __global__ void complex_numbers(const float2 *x, const float2 *y, float2 *product, float2 *quotient, float *size)
{
    using C = cuda::std::complex<float>;
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    C a(x[at].x, x[at].y), b(y[at].x, y[at].y), p = a * b, q = a / b;
    product[at] = {p.real(), p.imag()};
    quotient[at] = {q.real(), q.imag()};
    size[at] = cuda::std::abs(a) + cuda::std::norm(b);
}

// exp, sqrt and log of complex doubles, which go through the whole of the device's mathematics.
extern "C" __global__ void complex_functions(const double2 *x, double2 *exponential, double2 *root, double2 *logarithm)
{
    using C = cuda::std::complex<double>;
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    C a(x[at].x, x[at].y), e = cuda::std::exp(a), r = cuda::std::sqrt(a), l = cuda::std::log(a);
    exponential[at] = {e.real(), e.imag()};
    root[at] = {r.real(), r.imag()};
    logarithm[at] = {l.real(), l.imag()};
}

// The least, middle and largest of five values, in a tuple; the array is sorted in local memory.
extern "C" __global__ void sorted_five(const int *in, int *least, int *middle, int *most)
{
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    cuda::std::array<int, 5> values;
    for (int k = 0; k < 5; k++) values[k] = in[at * 5 + k];
#ifdef HAS_ALGORITHM
    cuda::std::make_heap(values.begin(), values.end());
    cuda::std::sort_heap(values.begin(), values.end());
#else
    for (int k = 1; k < 5; k++)
        for (int j = k; j && values[j] < values[j - 1]; j--) {
            int up = values[j];
            values[j] = values[j - 1];
            values[j - 1] = up;
        }
#endif
    auto [a, b, c] = cuda::std::make_tuple(values.front(), values[2], values.back());
    least[at] = a;
    middle[at] = b;
    most[at] = c;
}

struct Area {
    __device__ int operator()(int side) const { return side * side; }
    __device__ int operator()(cuda::std::array<int, 2> sides) const { return sides[0] * sides[1]; }
    __device__ int operator()(double radius) const { return (int)(3 * radius * radius); }
};

extern "C" __global__ void variants(const int *in, int *out)
{
    using Shape = cuda::std::variant<int, cuda::std::array<int, 2>, double>;
    int at = blockIdx.x * blockDim.x + threadIdx.x, x = in[at];
    Shape shape = x;
    if (x % 3 == 1) shape = cuda::std::array<int, 2>{x, x + 1};
    if (x % 3 == 2) shape = x * 0.5;
    cuda::std::optional<int> odd;
    if (x & 1) odd = 1000;
    out[at] = cuda::std::visit(Area(), shape) + odd.value_or(0) + cuda::std::popcount((unsigned)x);
}
