// Calls that stay calls: recursion, virtual functions, function pointers. tests/real/test_language.py has the references.

__device__ __noinline__ int ackermann(int m, int n)
{
    if (m == 0) return n + 1;
    if (n == 0) return ackermann(m - 1, 1);
    return ackermann(m - 1, ackermann(m, n - 1));
}

extern "C" __global__ void recursion(const int *m, const int *n, int *out)
{
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    out[at] = ackermann(m[at], n[at]);
}

// Quicksort of a piece of memory, each thread its own: two recursive calls, one of them in a loop.
__device__ void quicksort(int *low, int *high)
{
    while (low < high) {
        int pivot = low[(high - low) / 2], *i = low, *j = high;
        while (i <= j) {
            while (*i < pivot) i++;
            while (*j > pivot) j--;
            if (i <= j) {
                int t = *i;
                *i++ = *j;
                *j-- = t;
            }
        }
        quicksort(low, j);
        low = i;
    }
}

extern "C" __global__ void sort_rows(int *data, int width)
{
    int *row = data + (blockIdx.x * blockDim.x + threadIdx.x) * width;
    quicksort(row, row + width - 1);
}

struct Shape {
    __device__ virtual int area() const = 0;
    __device__ virtual ~Shape() {}
};
struct Square : Shape {
    int side;
    __device__ explicit Square(int s) : side(s) {}
    __device__ int area() const override { return side * side; }
};
struct Rectangle : Square {
    int other;
    __device__ Rectangle(int a, int b) : Square(a), other(b) {}
    __device__ int area() const override { return side * other; }
};

extern "C" __global__ void virtual_calls(const int *in, int *out)
{
    int at = blockIdx.x * blockDim.x + threadIdx.x, x = in[at];
    Square square(x);
    Rectangle rectangle(x, 7);
    const Shape *shapes[2] = {&square, &rectangle};
    const Shape *first = shapes[x & 1], *second = shapes[(x >> 1) & 1];
    out[at] = first->area() * 1000 + second->area();
}

__device__ __noinline__ float add(float a, float b) { return a + b; }
__device__ __noinline__ float subtract(float a, float b) { return a - b; }
__device__ __noinline__ float larger(float a, float b) { return a > b ? a : b; }
using Operation = float (*)(float, float);
__device__ Operation table[3] = {add, subtract, larger};

extern "C" __global__ void pointers(const int *which, const float *a, const float *b, float *out)
{
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    out[at] = table[which[at]](a[at], b[at]);
}

struct Big {
    int values[9];
};
__device__ __noinline__ Big turned(Big given, int by)
{
    Big out;
    for (int k = 0; k < 9; k++) out.values[k] = given.values[(k + by) % 9] + by;
    return out;
}

// Structures by value, in and out, with an index that is not known beforehand.
extern "C" __global__ void structures(const Big *in, const int *by, Big *out)
{
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    out[at] = turned(turned(in[at], by[at]), 1);
}

// A list made with the device's malloc, summed and freed.
extern "C" __global__ void heap(const int *length, int *out)
{
    struct Link {
        Link *next;
        int value;
    };
    int at = blockIdx.x * blockDim.x + threadIdx.x, sum = 0;
    Link *head = nullptr;
    for (int k = 0; k < length[at]; k++) head = new Link{head, k * at};
    while (head) {
        Link *next = head->next;
        sum = sum * 3 + head->value;
        delete head;
        head = next;
    }
    out[at] = sum;
}

// A jump table: nine cases with work that no table of constants replaces.
extern "C" __global__ void switches(const int *which, const int *in, int *out)
{
    int at = blockIdx.x * blockDim.x + threadIdx.x, x = in[at];
    switch (which[at]) {
    case 0: x = x * 3 + 1; break;
    case 1: x ^= 0x55; break;
    case 2: x = x << 3; [[fallthrough]];
    case 3: x -= 9; break;
    case 4: x = x / 7; break;
    case 5: x = __popc(x); break;
    case 6: x = __clz(x); break;
    case 7: x = __brev(x); break;
    default: x = -1;
    }
    out[at] = x;
}
