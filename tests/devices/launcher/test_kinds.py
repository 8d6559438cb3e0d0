"""Arguments of every kind that C++ has, as kernels store them, on every device present; and the CPU device's replay."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from cujit.devices.arguments.small_floats import FORMATS, encode
from cujit.devices.device import Device
from cujit.devices.options import check_own_cluster
from cujit.devices.process import process_devices
from cujit.devices.shapes import Dim3
from cujit.errors import ArgumentError, ClosedError, LaunchError, LoadError
from cujit.loading import Module, jit, load
from cujit.program import build, compile
from cujit.signature import ParameterClass
from raising import raises

KINDS = """
#include <cuComplex.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuda/std/complex>
template <typename T> __global__ void store(T value, T* out) { *out = value; }
struct S { double b; float a; char c; };
struct alignas(64) CUtensorMap { unsigned long long opaque[16]; };
__global__ void structure(const __grid_constant__ S s, char* out) {
    *reinterpret_cast<double*>(out) = s.b; *reinterpret_cast<float*>(out + 8) = s.a; out[12] = s.c;
}
__global__ void map(const __grid_constant__ CUtensorMap m, unsigned long long* out) {
    for (int i = 0; i < 16; ++i) out[i] = m.opaque[i];
}
"""
TYPES = {
    "cuFloatComplex": (1.5 - 2j, struct.pack("<2f", 1.5, -2)),
    "cuDoubleComplex": (1.5 - 2j, struct.pack("<2d", 1.5, -2)),
    "cuda::std::complex<float>": (1.5 - 2j, struct.pack("<2f", 1.5, -2)),
    "cuda::std::complex<double>": (3, struct.pack("<2d", 3, 0)),
    "__half": (-0.1, np.float16(-0.1).tobytes()),
    "__nv_bfloat16": (3.140625, encode(3.140625, FORMATS["__nv_bfloat16"])),
    "__nv_fp8_e4m3": (0.3, b"\x2a"),
    "__nv_fp8_e5m2": (0.3, b"\x35"),
    "__half2": ((1, 2), np.array([1, 2], "f2").tobytes()),
    "float4": ((1, 2, 3, 4), struct.pack("<4f", 1, 2, 3, 4)),
}
WORDS = {1: "u1", 2: "u2", 4: "u4", 8: "c8", 16: "c16"}

OVERLOADS = """
__global__ void scale(float* x) { x[threadIdx.x] *= 2; }
__global__ void scale(double* x) { x[threadIdx.x] *= 3; }
extern "C" __global__ void shift(const int* from, int* to, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = from[i] + 1;
}
"""


@pytest.fixture(scope="module")
def kinds() -> Any:
    """The image of KINDS for the CPU device, built once."""
    return compile(KINDS, arch="compute_90", names=[f"store<{t}>" for t in TYPES] + ["structure", "map"])


@pytest.fixture
def overloads(device: Device) -> Iterator[Module]:
    with jit(OVERLOADS, device=device) as module:
        yield module


def bytes_of(x: Any) -> bytes:
    return bytes(x.numpy().tobytes())


@pytest.mark.parametrize("cxx", list(TYPES))
def test_kernel_stores_what_cpp_would_have_passed(device: Device, kinds: Any, cxx: str) -> None:
    value, expected = TYPES[cxx]
    launch = load(kinds, device)[f"store<{cxx}>"][1, 1]
    dtype = {"__half": "f2", "__half2": "f2", "float4": "f4"}.get(cxx, WORDS[len(expected)])
    out = device.zeros(len(expected) // np.dtype(dtype).itemsize, dtype)
    for _ in range(3):
        out.fill(0)
        launch(value, out)
        assert bytes_of(out) == expected


def test_grid_constants_are_passed_as_structures(device: Device, kinds: Any) -> None:
    module, out = load(kinds, device), device.zeros(16, np.uint8)
    value = np.array((2.5, 1.5, b"x"), np.dtype([("b", "f8"), ("a", "f4"), ("c", "S1")], align=True))[()]
    module["structure"][1, 1](value, out)
    assert bytes_of(out)[:13] == struct.pack("<dfc", 2.5, 1.5, b"x")
    with raises(ArgumentError, "argument-type", "f1", "float64"):
        module["structure"][1, 1](np.zeros((), "f4,f8,f4")[()], out)


def test_tensor_map_arrives_whole(device: Device, kinds: Any) -> None:
    words = device.zeros(16, np.uint64)
    load(kinds, device)["map"][1, 1](struct.pack("<16Q", *range(16)), words)
    assert words.numpy().tolist() == list(range(16))


# -- what a kernel says of itself -------------------------------------------------------------------------


def test_overloads_are_distinguished_by_their_parameters(overloads: Module) -> None:
    x = overloads.device.array(np.ones(4, np.float32))
    y = overloads.device.array(np.ones(4, np.float64))
    overloads["scale(float*)"][1, 4](x)
    overloads["scale(double*)"][1, 4](y)
    assert (x.numpy()[0], y.numpy()[0]) == (2, 3)
    with raises(ArgumentError, "argument-type", "float64", "float32"):
        overloads["scale(float*)"][1, 4](y)


def test_kernel_prints_its_declaration(overloads: Module) -> None:
    assert str(overloads["scale(float*)"]) == "void scale(float*)"
    assert str(overloads["shift"]) == "void shift(const int*, int*, int)"
    assert str(overloads["shift"].signature) == "(const int*, int*, int)"


def test_kernel_has_the_image_that_it_was_loaded_from(overloads: Module) -> None:
    assert overloads["shift"].artifact is overloads.artifact


def test_image_from_a_file_has_types_from_its_names(cpu: Device) -> None:
    text = compile("struct S { int a, b; }; __global__ void k(S s, float* x, unsigned short n, float2 v) {}").data
    signature = load(text, cpu)["k"].signature
    assert str(signature) == "(S, float*, unsigned short, float2)"
    assert [p.kind for p in signature] == [
        ParameterClass.AGGREGATE,
        ParameterClass.POINTER,
        ParameterClass.UNSIGNED,
        ParameterClass.AGGREGATE,
    ]


# -- cooperative launches ---------------------------------------------------------------------------------


def test_cooperative_launch_is_bounded_by_resident_blocks(overloads: Module) -> None:
    kernel = overloads["shift"]
    whole = kernel.cooperative()
    assert whole.options.cooperative
    assert whole.shape is not None
    assert whole.shape.grid.volume <= kernel.cooperative_limit(tuple(whole.shape.block))
    small = kernel.cooperative(5, block=32)
    assert small.shape is not None
    assert (small.shape.grid, small.shape.block) == (Dim3(1), Dim3(32))
    huge = kernel.cooperative((1 << 20, 1 << 10), block=32)
    assert huge.shape is not None
    assert huge.shape.grid.volume <= kernel.cooperative_limit(32)


@pytest.mark.parametrize("size", [0, (4, 0), -1, 1.5, "5"])
def test_empty_cooperative_launch_is_refused(overloads: Module, size: Any) -> None:
    with pytest.raises(LaunchError):
        overloads["shift"].cooperative(size)


def test_cluster_must_match_the_compiled_cluster() -> None:
    check_own_cluster("k", None, Dim3(2), must_be_set=False)
    check_own_cluster("k", Dim3(2), Dim3(2), must_be_set=False)
    check_own_cluster("k", Dim3(4), None, must_be_set=True)
    with raises(LaunchError, "cluster-size", "4", "1", "2", "__cluster_dims__"):
        check_own_cluster("k", Dim3(4), Dim3(2), must_be_set=False)
    with raises(LaunchError, "cluster-size", "cluster=2"):
        check_own_cluster("k", None, None, must_be_set=True)


# -- the same launch on the CPU device --------------------------------------------------------------------


@pytest.fixture
def portable(device: Device) -> Iterator[Module]:
    """A module whose image has PTX, as the CPU device needs it."""
    targets = ["compute_75", str(device.arch)] if device.is_gpu else ["compute_75"]
    with load(build(OVERLOADS, targets), device) as module:
        yield module


def test_replay_returns_results_and_changes_nothing(portable: Module) -> None:
    x = portable.device.array(np.arange(100, dtype=np.int32))
    y = portable.device.zeros((10, 10), np.int32)
    launch = portable["shift"].over(100)
    from_, to, n = launch.replay_on_cpu(x, y, 100)
    assert n == 100
    assert isinstance(to, np.ndarray)
    assert to.shape == (10, 10)
    assert to.ravel().tolist() == list(range(1, 101))
    assert np.array_equal(np.asarray(from_), x.numpy())
    assert not y.numpy().any()
    launch(x, y, 100)
    assert np.array_equal(y.numpy(), to)


def test_overlapping_arguments_overlap_in_a_replay(portable: Module) -> None:
    x = portable.device.array(np.arange(8, dtype=np.int32))
    whole, part, _ = portable["shift"].over(4).replay_on_cpu(x, x[4:], 4)
    assert np.asarray(whole).tolist() == [0, 1, 2, 3, 1, 2, 3, 4]
    assert np.asarray(part).tolist() == [1, 2, 3, 4]


def test_replay_checks_its_arguments_and_requires_known_sizes(portable: Module) -> None:
    x, launch = portable.device.zeros(8, np.int32), portable["shift"].over(8)
    with raises(ArgumentError, "argument-type", "3", "argument"):
        launch.replay_on_cpu(x, x, 1.5)
    with raises(ArgumentError, "argument", "size"):
        launch.replay_on_cpu(x, ctypes.c_void_p(x.address), 8)
    assert launch.replay_on_cpu(None, None, 0) == (None, None, 0)
    portable.close()
    with pytest.raises(ClosedError):
        launch.replay_on_cpu(x, x, 8)


def test_replay_runs_on_a_named_cpu_device_and_on_no_gpu(portable: Module, gpu_memory: Device) -> None:
    x, launch = portable.device.zeros(8, np.int32), portable["shift"].over(8)
    assert len(launch.replay_on_cpu(x, x, 8, device="cpu")) == 3
    with raises(ArgumentError, "device-mismatch", "CPU", "cuda:1", "cujit.cpu(threads)"):
        launch.replay_on_cpu(x, x, 8, device=gpu_memory)


def test_empty_replay_runs_nothing(portable: Module) -> None:
    x = portable.device.zeros(8, np.int32)
    results = portable["shift"].over(0).replay_on_cpu(x, x, 0)
    assert np.asarray(results[0]).tolist() == [0] * 8


@pytest.mark.gpu
@pytest.mark.hardware
def test_image_without_ptx_is_not_replayed(gpu: Device) -> None:
    x = gpu.zeros(8, np.int32)
    launch = load(build(OVERLOADS, [gpu.arch]), gpu)["shift"].over(8)
    with raises(LoadError, "load", "shift", "PTX"):
        launch.replay_on_cpu(x, x, 8)
    assert not process_devices().cpu().is_gpu


def test_sass_of_jit_is_replayed_from_its_source(device: Device) -> None:
    module = jit(OVERLOADS, device=device)
    if not device.is_gpu:  # as on a GPU, where the image is machine code
        module._image._given = compile(OVERLOADS, arch="sm_90")
    x = device.array(np.arange(8, dtype=np.int32))
    _, to, _ = module["shift"].over(8).replay_on_cpu(x, device.zeros(8, np.int32), 8)
    assert np.asarray(to).tolist() == list(range(1, 9))
