import cujit
import numpy as np

SOURCE = """
__global__ void scale(float a, float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= a;
}
"""
scale = cujit.jit(SOURCE, device="cpu")["scale"]
x = np.arange(5, dtype=np.float32)
scale.over(x.size)(2.0, x, x.size)
print(x)
