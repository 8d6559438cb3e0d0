"""The variables of a module by name: one body on every device."""

from __future__ import annotations

import numpy as np
import pytest

from cujit.artifact import Artifact
from cujit.devices.device import Device
from cujit.devices.globals import Globals
from cujit.errors import ArgumentError, ClosedError, NameNotFoundError
from cujit.loading import Module, load
from cujit.program import build, compile
from raising import raises

CODE = """
__constant__ int table[4] = {1, 2, 3, -4};
__device__ int counter = -1;
__device__ unsigned limit = 3;
__device__ float factor = 1.5f;
__device__ double sums[3];
struct Pair { int a; float b; };
__device__ Pair pair = {7, 2.5f};
static __device__ int hidden = 5;
namespace ns { __device__ float x; __device__ float y[2][3]; }
namespace other { __device__ float x = 8; }
extern "C" __global__ void look(float *out) {
    *out = table[3] + factor + sums[1] + pair.b + ns::x + ns::y[1][2] + other::x + hidden + counter + limit;
}
"""

COUNT = """
__constant__ unsigned step;
__device__ unsigned total;
extern "C" __global__ void add(long long cycles) {
    for (volatile long long i = 0; i < cycles / 100; i = i + 1) {}
    total += step;
}
"""


def globals_of(module: Module) -> Globals:
    return Globals(module.device, module._image.require, module.artifact)


@pytest.fixture
def module(device: Device) -> Module:
    """With PTX, which has types, on every device."""
    return load(compile(CODE, arch="compute_80"), device)


@pytest.fixture
def variables(module: Module) -> Globals:
    return globals_of(module)


def test_variables_are_found_by_their_source_names(variables: Globals) -> None:
    names = ["table", "counter", "limit", "factor", "sums", "pair", "hidden", "ns::x", "ns::y", "other::x"]
    assert list(variables) == names
    assert len(variables) == len(names)
    assert "ns::x" in repr(variables)
    assert variables["ns::x"].name == variables["_ZN2ns1xE"].name == variables["&ns::x"].name == "_ZN2ns1xE"
    assert "other::y" not in variables


def test_ptx_variables_are_read_and_written_by_their_type(module: Module, variables: Globals) -> None:
    factor, out = variables["factor"], module.device.zeros(1, np.float32)
    assert factor.read().dtype == np.float32
    assert factor.read() == 1.5
    factor.write(2)
    variables["ns::x"].write(np.float64(0.25))
    module["look"][1, 1](out)
    assert out.numpy().tolist() == [-4 + 2 + 0 + 2.5 + 0.25 + 0 + 8 + 5 - 1 + 3]
    assert repr(factor) == f"<Global factor: float32 () on {module.device.name}>"


def test_arrays_and_structures_are_read_and_written_with_a_dtype(variables: Globals) -> None:
    table, pair = variables["table"], variables["pair"]
    assert table.read(np.int32).tolist() == [1, 2, 3, -4]
    assert table.read("i4", (2, 2)).tolist() == [[1, 2], [3, -4]]
    assert table.read().tolist() == np.array([1, 2, 3, -4], np.int32).view(np.uint8).tolist()
    table.write([5, 6, 7, 8], np.int32)
    assert table.read(np.int32).tolist() == [5, 6, 7, 8]
    table.write(np.arange(4, dtype=np.int32))
    assert table.read(np.int32).tolist() == [0, 1, 2, 3]
    table.write(9, np.int32)
    assert table.read(np.int32).tolist() == [9] * 4
    dtype = np.dtype([("a", "i4"), ("b", "f4")])
    assert pair.read(dtype).tolist() == (7, 2.5)
    pair.write(np.array((1, 0.5), dtype))
    assert pair.read(dtype).tolist() == (1, 0.5)
    pair.write(bytes(8))
    assert not pair.read().any()


def test_integer_of_unknown_sign_needs_a_dtype(variables: Globals) -> None:
    assert variables["limit"].read() == 3
    with raises(ArgumentError, "argument", "counter", "4294967295", "-1") as e:
        variables["counter"].read()
    assert "read('int32')" in str(e.value)
    assert variables["counter"].read(np.int32) == -1
    for value in (-7, 7, 2**32 - 1):
        variables["counter"].write(value)
        assert variables["counter"].read(np.uint32) == value % 2**32


@pytest.mark.parametrize(
    ("name", "value", "dtype", "why"),
    [
        ("counter", 2**32, None, ("counter",)),
        ("counter", -(2**31) - 1, None, ("counter",)),
        ("counter", 300, "u1", ("300", "counter")),
        ("counter", 1.5, None, ("float64", "uint32")),
        ("counter", [1, 2], None, ("counter", "4")),
        ("factor", "many", None, ("factor",)),
        ("factor", 1j, None, ("complex128", "float32")),
        ("table", 3, None, ("table", "16")),
        ("table", [1, 2], "i4", ("table", "16")),
        ("table", np.zeros(4), None, ("float64", "32")),
        ("table", b"abc", None, ("bytes", "3", "table")),
        ("sums", 1, "c16", ("24", "complex128")),
    ],
    ids=lambda value: str(value).replace(" ", ""),
)
def test_value_out_of_range_is_refused(
    variables: Globals, name: str, value: object, dtype: str | None, why: tuple[str, ...]
) -> None:
    before = variables[name].read(np.uint8).tolist()
    with raises(ArgumentError, "argument", *why):
        variables[name].write(value, dtype)  # type: ignore[arg-type]
    assert variables[name].read(np.uint8).tolist() == before


def test_mismatched_bytes_are_not_read(variables: Globals) -> None:
    with raises(ArgumentError, "array-shape", "complex128"):
        variables["sums"].read(np.complex128)
    with raises(ArgumentError, "array-shape", "3", "elements"):
        variables["sums"].read(np.float64, 4)


def test_array_of_a_variable_shares_its_memory(variables: Globals) -> None:
    variables["sums"].array.view(np.float64).fill(2.5)
    variables["sums"].device.synchronize()
    assert variables["sums"].read(np.float64).tolist() == [2.5] * 3
    assert variables["factor"].array.dtype == np.float32
    assert variables["factor"].array.shape == ()


def test_missing_name_is_reported_with_the_existing_ones(variables: Globals) -> None:
    with raises(NameNotFoundError, "name-not-found", "tabel", "table", "counter"):
        variables["tabel"]
    with pytest.raises(NameNotFoundError):
        variables["x"]
    with raises(ArgumentError, "argument", "3", "int"):
        variables[3]  # type: ignore[index]


def test_reading_is_in_the_order_of_a_stream(module: Module, variables: Globals) -> None:
    stream = module.device.stream()
    variables["factor"].write(4, stream=stream)
    assert variables["factor"].read(stream=stream) == 4


def test_variables_of_a_closed_module_are_gone(module: Module, variables: Globals) -> None:
    factor = variables["factor"]
    module.close()
    for use in (factor.read, lambda: factor.write(1), lambda: factor.array, lambda: variables["factor"]):
        with pytest.raises(ClosedError):
            use()


def test_fatbin_has_the_types_of_its_ptx(device: Device) -> None:
    variables = globals_of(load(build(CODE, ["sm_80", "sm_90", "compute_80"]), device))
    assert variables["factor"].read() == 1.5
    assert variables["table"].read(np.int32).tolist() == [1, 2, 3, -4]


def test_ambiguous_names_need_their_lowered_names(device: Device) -> None:
    text = """.version 7.8\n.target sm_80\n.address_size 64
    .visible .global .align 4 .f32 _ZN12_GLOBAL__N_11xE;\n.visible .global .align 4 .f32 x[2];
    .visible .global .align 16 .v4 .f32 quad;\n.visible .global .align 2 .s16 small = -3;
    .visible .entry k() { ret; }"""
    variables = globals_of(load(Artifact.of(text), device))
    assert set(variables) == {"_ZN12_GLOBAL__N_11xE", "x", "quad", "small"}
    assert variables["x"].shape == (2,)
    assert variables["quad"].read().shape == (4,)
    assert variables["small"].read() == -3


def test_kernels_and_variables_meet_in_the_order_of_a_stream(device: Device) -> None:
    module = load(compile(COUNT, arch="compute_80"), device)
    stream = device.stream()
    step, total = module.globals["step"], module.globals["total"]
    add = module["add"][1, 1, 0, stream]
    for value in range(1, 6):
        step.write(value, stream=stream)
        add(100_000)
    assert total.read(stream=stream) == 15
    total.array.fill(0, stream=stream)
    assert total.read(stream=stream) == 0
    device.synchronize()
    with device.capture(stream) as graph:
        step.array.fill(7, stream=stream)
        add(0)
    graph.launch()
    graph.launch()
    assert [int(step.read(stream=stream)), int(total.read(stream=stream))] == [7, 14]


@pytest.mark.gpu
def test_sass_has_only_sizes(gpu: Device) -> None:
    variables = globals_of(load(compile(CODE, arch=gpu.arch), gpu))
    assert set(variables) >= {"table", "counter", "factor", "ns::x"}
    factor = variables["factor"]
    assert not factor.is_typed
    assert factor.read().tolist() == [0, 0, 0xC0, 0x3F]
    assert factor.read(np.float32) == 1.5
    factor.write(np.float32(2.5))
    assert factor.read(np.float32) == 2.5
    with raises(ArgumentError, "argument", "factor", 4):
        factor.write(2.5)
