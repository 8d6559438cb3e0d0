import cujit
import numpy as np

SOURCE = """
__global__ void transpose(const float *in, float *out, int rows, int columns) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < rows && column < columns) out[column * rows + row] = in[row * columns + column];
}
"""
device = cujit.default_device()
transpose = cujit.jit(SOURCE, device=device)["transpose"]
print(transpose)

x = device.array(np.arange(6, dtype=np.float32).reshape(2, 3))
y = device.empty((3, 2), np.float32)
transpose.over((3, 2))(x, y, 2, 3)
transpose[(1, 1), (16, 16)](x, y, 2, 3)
print(y.numpy().tolist())

try:
    transpose[(1, 1), (16, 16)](x, y, 2.0, 3)
except cujit.errors.ArgumentError as error:
    print(error)
