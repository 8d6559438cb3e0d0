// An ordinary file of nvcc's: headers, a checker and a main of the host. cujit runs its kernel as it is:
//   cujit run ordinary.cu -O host_code=skip --over 8 --arg 2.0 --arg arange:f32:8 --arg 8 --print 2
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call) check(call, __LINE__)

int blocks(int n) { return (n + 255) / 256; }

__global__ void scale(float a, float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= a;
}

void check(cudaError_t error, int line) {
    if (error != cudaSuccess) {
        fprintf(stderr, "line %d: %s\n", line, cudaGetErrorString(error));
        exit(EXIT_FAILURE);
    }
}

int main() {
    std::vector<float> host(1000, 1.0f);
    float* x;
    CHECK(cudaMalloc(&x, host.size() * sizeof(float)));
    CHECK(cudaMemcpy(x, host.data(), host.size() * sizeof(float), cudaMemcpyHostToDevice));
    scale<<<blocks(host.size()), 256>>>(2.0f, x, host.size());
    CHECK(cudaMemcpy(host.data(), x, host.size() * sizeof(float), cudaMemcpyDeviceToHost));
    printf("%g\n", host[0]);
}
