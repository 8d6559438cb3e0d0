"""Makes ``tests/goldens/lined``: cubins with line information of Triton, cuTile, CuTe DSL and nvcc.

Run a copy in a folder of its own, whose path the cubins name, with a Python that has ``triton``, ``cuda-tile``,
``nvidia-cutlass-dsl``, ``nvidia-cuda-tileiras`` and ``nvidia-cuda-nvcc``: ``python lined_cubins.py DIRECTORY``. No GPU
is needed. ``versions.json`` says which releases made them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ |= {"CUTE_DSL_LINEINFO": "1", "CUTE_DSL_NO_CACHE": "1", "CUTE_DSL_ARCH": "sm_90a", "CUTE_DSL_KEEP": "cubin"}
os.environ["CUTE_DSL_DUMP_DIR"] = os.environ["TRITON_CACHE_DIR"] = str(Path.cwd() / "made")

import cuda.tile as ct
import cutlass
import triton
import triton.language as tl
from cuda.tile.compilation import ArrayConstraint, CallingConvention, KernelSignature, export_kernel
from cutlass import cute
from cutlass.cute.runtime import make_fake_compact_tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

PACKAGES = ("triton", "cuda-tile", "nvidia-cutlass-dsl", "nvidia-cuda-tileiras", "nvidia-cuda-nvcc")


@triton.jit
def softmax(out, given, stride, columns, BLOCK: tl.constexpr):  # noqa: N803
    """Write the softmax of each row; one program a row."""
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(given + row * stride + at, mask=at < columns, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out + row * stride + at, e / tl.sum(e, axis=0), mask=at < columns)


def triton_cubin(number: int) -> bytes:
    """Compile ``softmax`` as Triton's launcher would."""
    types = {"out": "*fp32", "given": "*fp32", "stride": "i32", "columns": "i32", "BLOCK": "constexpr"}
    source = ASTSource(fn=softmax, signature=types, constexprs={"BLOCK": 128})
    made: bytes = triton.compile(source, target=GPUTarget("cuda", number, 32)).asm["cubin"]
    return made


@ct.kernel
def product(a, b, c, m: ct.Constant[int], n: ct.Constant[int], k: ct.Constant[int]):
    """Multiply two matrices, one tile of the result a block."""
    row, column = ct.bid(0), ct.bid(1)
    total = ct.full((m, n), 0, dtype=ct.float32)
    for step in range(ct.num_tiles(a, axis=1, shape=(m, k))):
        left = ct.load(a, index=(row, step), shape=(m, k), padding_mode=ct.PaddingMode.ZERO)
        right = ct.load(b, index=(step, column), shape=(k, n), padding_mode=ct.PaddingMode.ZERO)
        total = ct.mma(left, right, total)
    ct.store(c, index=(row, column), tile=total)


@ct.kernel
def add(a, b, c):
    """Add two arrays."""
    i = ct.bid(0)
    left = ct.load(a, index=(i,), shape=(128,))
    right = ct.load(b, index=(i,), shape=(128,))
    ct.store(c, index=(i,), tile=left + right)


def array(dtype: Any, axes: int) -> ArrayConstraint:
    """Describe an array in the order of C."""
    strides = (*(None,) * (axes - 1), 1)
    return ArrayConstraint(
        dtype, axes, index_dtype=ct.int32, stride_constant=strides, stride_lower_bound_incl=0, alias_groups=(),
        may_alias_internally=False,
    )  # fmt: skip


def cutile_cubin(kernel: Any, parameters: list[Any], symbol: str, arch: str, path: Path) -> None:
    """Compile a kernel of cuTile."""
    signature = KernelSignature(parameters, CallingConvention.cutile_python_v1(), symbol=symbol)
    export_kernel(kernel, [signature], str(path), gpu_code=arch, output_format="cubin")


@cute.kernel
def added(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor):
    """Add two arrays."""
    x, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    c[block * 128 + x] = a[block * 128 + x] + b[block * 128 + x]


@cute.jit
def launch_added(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor):
    """Launch ``added`` over 512 elements."""
    added(a, b, c).launch(grid=[4, 1, 1], block=[128, 1, 1])


def cute_cubin() -> bytes:
    """Compile an addition by CuTe DSL."""
    cute.compile(launch_added, *(make_fake_compact_tensor(cutlass.Float32, (512,), assumed_align=16) for _ in range(3)))
    (path,) = (Path.cwd() / "made").glob("*.cubin")
    return path.read_bytes()


CUDA = """
__device__ int launches;
template <class T> __global__ void axpy(T a, const T* x, T* y, unsigned long long n) {
    unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
    if (i == 0) ++launches;
}
template __global__ void axpy<float>(float, const float*, float*, unsigned long long);
"""


def nvcc_cubin(path: Path, *options: str) -> None:
    """Compile CUDA C++ by nvcc."""
    import nvidia.cu13

    Path("axpy.cu").write_text(CUDA)
    nvcc = Path(nvidia.cu13.__path__[0]) / "bin" / "nvcc"
    subprocess.run([nvcc, "-cubin", *options, "axpy.cu", "-o", path], check=True)


def main(folder: Path) -> None:
    """Make every file."""
    folder.mkdir(parents=True, exist_ok=True)
    Path("made").mkdir()
    (folder / "cute-added-sm_90a.cubin").write_bytes(cute_cubin())
    for number in (80, 90, 120):
        (folder / f"triton-softmax-sm_{number}.cubin").write_bytes(triton_cubin(number))
    cutile_cubin(add, [array(ct.float32, 1)] * 3, "add", "sm_90", folder / "cutile-add-sm_90.cubin")
    matrices = [array(ct.float16, 2), array(ct.float16, 2), array(ct.float32, 2), 32, 32, 32]
    cutile_cubin(product, matrices, "product", "sm_80", folder / "cutile-product-sm_80.cubin")
    nvcc_cubin(folder / "nvcc-axpy-sm_75.cubin", "-arch=sm_75", "-lineinfo")
    nvcc_cubin(folder / "nvcc-axpy-debug-sm_120.cubin", "-arch=sm_120", "-G")
    nvcc_cubin(folder / "nvcc-axpy-rdc-sm_90a.cubin", "-arch=sm_90a", "-lineinfo", "-rdc=true")
    (folder / "versions.json").write_text(json.dumps({name: version(name) for name in PACKAGES}, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
