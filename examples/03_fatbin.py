"""Build one fatbin for many GPUs: cubins for current GPUs, and PTX for future GPUs."""

import tempfile
from pathlib import Path

import numpy as np

import cujit

SOURCE = cujit.Source.cuda(
    """
extern "C" __global__ void halve(float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] /= 2;
}
""",
    name="halve.cu",
)
fatbin = cujit.build(SOURCE, ["sm_80", "sm_90", "compute_80"])
held = cujit.inspect(fatbin)
print(held)
assert [(image.kind.value, str(image.arch)) for image in held.images] == [
    ("cubin", "sm_80"),
    ("cubin", "sm_90"),
    ("ptx", "compute_80"),
]
for gpu in ("sm_75", "sm_86", "sm_90", "sm_120"):
    picked = [verdict.entry for verdict in cujit.compat(fatbin, device=gpu) if verdict.picked]
    print(f"{gpu} would run: {', '.join(picked) or 'nothing'}")

device = cujit.default_device()
with tempfile.TemporaryDirectory() as folder:
    path = fatbin.save(Path(folder) / "halve.fatbin")  # as NVIDIA's tools read it
    module = cujit.load(path, device)
x = device.array(np.arange(8, dtype=np.float32))
module["halve"].over(x.size)(x, x.size)
assert x.numpy().tolist() == [k / 2 for k in range(8)]
print(f"on {device.name}: {module.route}")
