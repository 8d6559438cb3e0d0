"""Record which kernels a program compiles, pack the kernels, and run the program without a compiler."""

import tempfile
from pathlib import Path

import numpy as np

import cujit
import cujit.worklist

SOURCE = """
template <typename T> __global__ void fill(T *x, T value, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = value;
}
"""
device = cujit.default_device()
with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    with cujit.record_worklist(folder / "recorded"):  # the tests of a library, say
        cujit.jit(SOURCE, names=["fill<float>"], device=device, name="fill.cu")
    pack = folder / "kernels.pack"
    built = cujit.worklist.build(cujit.worklist.read(folder / "recorded"), pack=pack)
    assert not built.failed

    shipped = cujit.Cache(None, read_only=[pack], compile="never")
    module = cujit.jit(SOURCE, names=["fill<float>"], device=device, name="fill.cu", cache=shipped)
    print(f"{pack.stat().st_size} bytes; {module.artifact.name}: {module.artifact.provenance.outcome.value}")
    x = device.zeros(1000, np.float32)
    module["fill<float>"].over(x.size)(x, 2.5, x.size)
    assert (x.numpy() == 2.5).all()

    try:
        cujit.jit(SOURCE, names=["fill<double>"], device=device, name="fill.cu", cache=shipped)
    except cujit.errors.NotCompiledError as error:
        print(error)
    else:
        raise AssertionError("compiled")
