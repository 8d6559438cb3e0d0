"""Cubins on the CPU device: the PTX in their line information runs, checked and profiled, whoever compiled them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import cujit
import cujit.profile
from cujit.errors import KernelFaultError, LoadError, PtxSyntaxError
from cujit.kernel import Kernel
from raising import raises

LINED = Path(__file__).parents[2] / "goldens" / "lined"
AXPY = """template <typename T> __global__ void axpy(T a, const T* x, T* y, size_t n) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}"""
Floats = npt.NDArray[np.float32]


def numbers(*shape: int) -> Floats:
    return np.random.default_rng(5).standard_normal(shape, np.float32)


def kernel_of(name: str, device: cujit.Device | None = None) -> Kernel:
    (kernel,) = cujit.load(LINED / f"{name}.cubin", device or cujit.cpu(check="all")).values()
    return kernel


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_120"])
def test_softmax_of_triton(arch: str) -> None:
    kernel, x = kernel_of(f"triton-softmax-{arch}"), numbers(6, 100) * 4
    given, out = kernel.device.array(x), kernel.device.zeros(x.shape, np.float32)
    kernel.prepare(6, 128, shared_bytes=16)(out, given, 100, 100, None, None)
    e = np.exp(x - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(out.numpy(), e / e.sum(axis=1, keepdims=True), rtol=1e-5)


def test_access_out_of_bounds_of_triton_is_found() -> None:
    kernel = kernel_of("triton-softmax-sm_90")
    given, out = kernel.device.array(numbers(6, 100)), kernel.device.zeros((5, 100), np.float32)
    with raises(KernelFaultError, "fault-memory", "4", "Invalid"):
        kernel.prepare(6, 128, shared_bytes=16)(out, given, 100, 100, None, None)


def strided(array: cujit.DeviceArray) -> tuple[object, ...]:
    """What cuTile's launcher passes of an array: its address, its shape and its strides."""
    strides = [stride // array.dtype.itemsize for stride in array.numpy().strides]
    return (array, *array.shape, *strides)


def test_addition_of_cutile() -> None:
    kernel = kernel_of("cutile-add-sm_90")
    a, b = numbers(2, 500)
    x, y, z = kernel.device.array(a), kernel.device.array(b), kernel.device.zeros(500, np.float32)
    kernel.prepare(4, 128)(*strided(x), *strided(y), *strided(z))
    np.testing.assert_array_equal(z.numpy(), a + b)


def test_product_of_cutile() -> None:
    kernel = kernel_of("cutile-product-sm_80")
    a, b = numbers(70, 90).astype(np.float16), numbers(90, 50).astype(np.float16)
    x, y, z = kernel.device.array(a), kernel.device.array(b), kernel.device.zeros((70, 50), np.float32)
    kernel.prepare((3, 2), 128)(*strided(x), *strided(y), *strided(z))
    np.testing.assert_allclose(z.numpy(), a.astype(np.float32) @ b.astype(np.float32), atol=2e-3)


def test_addition_of_cute_dsl() -> None:
    kernel = kernel_of("cute-added-sm_90a")
    a, b = numbers(2, 512)
    x, y, z = kernel.device.array(a), kernel.device.array(b), kernel.device.zeros(512, np.float32)
    addresses = [np.array([array.address], np.uint64).view(np.uint8) for array in (x, y, z)]
    kernel[4, 128](*addresses)
    np.testing.assert_array_equal(z.numpy(), a + b)


@pytest.mark.parametrize("name", ["nvcc-axpy-sm_75", "nvcc-axpy-debug-sm_120", "nvcc-axpy-rdc-sm_90a"])
def test_axpy_of_nvcc(name: str) -> None:
    module = cujit.load(LINED / f"{name}.cubin", cujit.cpu(check="all"))
    assert module.route == "PTX recovered from the cubin, compiled for this processor"
    x = numbers(300)
    given, y = module.device.array(x), module.device.array(x)
    module["axpy<float>"].over(300)(2.0, given, y, 300)
    np.testing.assert_allclose(y.numpy(), 3 * x, rtol=1e-6)
    assert module.variable("launches", np.int32).numpy() == [1]


def test_profile_equals_that_of_the_ptx() -> None:
    counted = []
    for kind, arch in (("cubin", "sm_90"), ("ptx", "compute_90")):
        profile = cujit.profile.Profile()
        image = cujit.compile(AXPY, names=["axpy<float>"], to=kind, arch=arch, lineinfo=True)
        module = cujit.load(image, cujit.cpu(profile=profile))
        x, y = (module.device.array(numbers(1000)) for _ in range(2))
        module["axpy<float>"].over(1000)(2.0, x, y, 1000)
        counted.append(profile.kernels[0].metrics())
    assert counted[0] == counted[1]


def test_fatbin_without_ptx_uses_the_ptx_of_its_best_cubin() -> None:
    fatbin = cujit.build(AXPY, ["sm_80", "sm_90", "sm_120"], names=["axpy<float>"], options={"lineinfo": True})
    module = cujit.load(fatbin, cujit.cpu())
    assert module.route == "PTX recovered from the cubin sm_90 of the fatbin, compiled for this processor"
    with_ptx = cujit.build(AXPY, ["sm_90", "compute_75"], names=["axpy<float>"], options={"lineinfo": True})
    assert cujit.load(with_ptx, cujit.cpu()).route == "PTX compute_75 of the fatbin, compiled for this processor"
    plain = cujit.compile(AXPY, names=["axpy<float>"], to="cubin", arch="sm_90")
    lined = cujit.compile(AXPY, names=["axpy<float>"], to="cubin", arch="sm_86", lineinfo=True)
    assert "cubin sm_86" in cujit.load(cujit.bundle([plain, lined]), cujit.cpu()).route


def test_cubin_without_line_information_is_refused_with_a_hint() -> None:
    plain = cujit.compile(AXPY, names=["axpy<float>"], to="cubin", arch="sm_90")
    with raises(LoadError, "load", "CPU", "PTX", "recover") as caught:
        cujit.load(plain, cujit.cpu())
    assert "lineinfo=True" in (caught.value.help or "")
    with raises(LoadError, "load", "PTX", "sm_90", "recover"):
        cujit.load(cujit.bundle([plain]), cujit.cpu())


def test_text_of_other_code_is_refused() -> None:
    cubin = cujit.compile(AXPY, names=["axpy<float>"], to="cubin", arch="sm_90", lineinfo=True).data
    with raises(LoadError, "load", "sm_90", "machine"):
        cujit.load(cubin.replace(b".target sm_90", b".target sm_99"), cujit.cpu())


_ROOM = """
.version 9.5
.target {target}
.address_size 64
.visible .entry k(.param .u64 out) {language}
{{
    .reg .b64 %o, %m;
    .reg .b32 %v;
    .shared .align 16 .b8 memory[{size}];
    mov.u64 %m, memory;
    st.shared.u32 [%m+{last}], 7;
    ld.shared.u32 %v, [%m+{last}];
    ld.param.u64 %o, [out];
    st.global.u32 [%o], %v;
    ret;
}}
"""


@pytest.mark.parametrize(
    ("target", "language", "most"),
    [("sm_80", ".language 7", 166_912), ("sm_89", ".language 7", 101_376), ("sm_90", ".language 7", 232_448),
     ("sm_120a", ".language 7", 101_376), ("sm_80", ".language 5", 49_152), ("sm_80", "", 49_152)],
)  # fmt: skip
def test_tile_kernels_have_all_shared_memory_of_a_block(target: str, language: str, most: int) -> None:
    """As ptxas 13.5 takes with ``--enable-extended-smem=true``, by which tileiras calls it."""
    cpu, text = cujit.cpu(), _ROOM.format(target=target, language=language, size=most, last=most - 4)
    out = cpu.zeros(1, np.uint32)
    cujit.load(text, cpu)["k"][1, 1](out)
    assert out.numpy()[0] == 7
    with raises(PtxSyntaxError, "ptx-syntax", f"{most + 1:,}", f"{most:,}"):
        cujit.load(_ROOM.format(target=target, language=language, size=most + 1, last=0), cpu)["k"][1, 1](out)
