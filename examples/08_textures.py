"""Read an image through a texture with interpolation, and write an image through a surface."""

import numpy as np

import cujit

SOURCE = """
extern "C" __global__ void turn(cudaTextureObject_t image, cudaSurfaceObject_t out, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    // A quarter turn, of pixels that are halfway between two.
    float value = tex2D<float>(image, y + 1.0f, width - x - 0.5f);
    surf2Dwrite(value, out, x * sizeof(float), y);
}
"""
device = cujit.default_device()
picture = np.random.default_rng(0).integers(0, 16, (12, 12)).astype(np.float32)
image = device.texture(picture, filter="linear", address="border", border=0.0)
texels = device.texels(np.zeros_like(picture))
out = device.surface(texels)
cujit.jit(SOURCE, device=device)["turn"].over((12, 12))(image.handle, out.handle, 12, 12)

between = (picture + np.pad(picture, ((0, 0), (0, 1)))[:, 1:]) / 2  # of a pixel and its right neighbour
assert np.array_equal(texels.numpy(), np.rot90(between, -1)), texels.numpy()
print(f"a quarter turn on {device.name}: the first row is {texels.numpy()[0].tolist()}")
