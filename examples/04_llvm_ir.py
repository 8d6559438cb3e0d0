"""Link a function in LLVM IR with a kernel in CUDA C++; nvJitLink inlines the function."""

import numpy as np

import cujit

LAYOUT = (
    "e-p:64:64:64-i1:8:8-i8:8:8-i16:16:16-i32:32:32-i64:64:64-i128:128:128-f32:32:32-f64:64:64-"
    "v16:16:16-v32:32:32-v64:64:64-v128:128:128-n16:32:64"
)
LEAKY = f"""
target triple = "nvptx64-nvidia-cuda"
target datalayout = "{LAYOUT}"
define float @leaky(float %x) {{
  %low = fmul float %x, 0.125
  %negative = fcmp olt float %x, 0.0
  %y = select i1 %negative, float %low, float %x
  ret float %y
}}
!nvvmir.version = !{{!0}}
!0 = !{{i32 2, i32 0}}
"""
KERNEL = """
extern "C" __device__ float leaky(float);
extern "C" __global__ void apply(const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = leaky(x[i]);
}
"""
device = cujit.default_device()
sources = [cujit.Source.nvvm(LEAKY, name="leaky.ll"), cujit.Source.cuda(KERNEL, name="apply.cu")]
parts = [cujit.compile(source, to="ltoir", arch=device.arch.lto, rdc=True) for source in sources]
linked = cujit.link(parts, device=device)  # a cubin for a GPU, PTX for the CPU device
print(f"for {device.name}: {' + '.join(part.kind.value for part in parts)} is {linked.kind.value} {linked.arch}")

x = np.linspace(-4, 4, 9, dtype=np.float32)
y = device.empty(x.shape, np.float32)
cujit.load(linked, device)["apply"].over(x.size)(device.array(x), y, x.size)
assert (y.numpy() == np.where(x < 0, x / 8, x)).all()
print(y.numpy().tolist())

ptx = cujit.link(parts, to="ptx")
assert "call" not in ptx.text
print("no call is left in the PTX")
