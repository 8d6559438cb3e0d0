"""``check="memory"`` knows how much memory of the host a launch was given, and names the argument that it is of."""

from __future__ import annotations

import array
import contextlib
import ctypes
import mmap
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cujit
from cujit.devices.arguments.extents import extents_of
from cujit.devices.device import Device
from cujit.errors import CheckWarning, KernelFaultError
from cujit.kernel import Kernel
from raising import raises

_ELEMENTS = 10
_CODE = r"""
extern "C" __global__ void reads(float *x, long long at) { float y = x[at]; if (y == 12345.0f) x[0] = y; }
extern "C" __global__ void writes(float *x, long long at) { x[at] = 1; }
extern "C" __global__ void adds(float *x, long long at) { atomicAdd(x + at, 1.0f); }
extern "C" __global__ void pairs(float *x, long long at) { *(float2 *)(x + at) = make_float2(1, 2); }
extern "C" __global__ void copies(float *x, long long at) {
    __shared__ alignas(16) float s[4]; unsigned to = __cvta_generic_to_shared(s);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4; cp.async.wait_all;" :: "r"(to), "l"(x + at) : "memory");
    __syncthreads(); if (s[0] == 12345.0f) x[0] = s[0];
}"""
_TWO = r"""
extern "C" __global__ void two(float *x, float *y, int at) { x[at] = 1; if (y[at - 10] != 1) __trap(); }"""
_TOUCHES = ("reads", "writes", "adds", "pairs", "copies")


class _Described:
    """An array that says where its elements are in one way only."""

    def __init__(self, name: str) -> None:
        self._kept = np.zeros(_ELEMENTS, np.float32)
        for each in (name, "__dlpack_device__") if name == "__dlpack__" else (name,):
            setattr(type(self), each, property(operator.attrgetter(f"_kept.{each}")))


class _ByInterface(_Described):
    pass


class _ByDlpack(_Described):
    pass


def _torch_tensor() -> Any:
    return pytest.importorskip("torch").zeros(_ELEMENTS)


def _torch_view() -> Any:
    return pytest.importorskip("torch").zeros(100)[20 : 20 + _ELEMENTS]


_MAKERS: dict[str, Callable[[], Any]] = {
    "an array": lambda: np.zeros(_ELEMENTS, np.float32),
    "of two axes": lambda: np.zeros((2, _ELEMENTS // 2), np.float32),
    "of a buffer": lambda: np.frombuffer(bytearray(4 * _ELEMENTS), np.float32),
    "a memoryview": lambda: np.zeros(_ELEMENTS, np.float32).data,
    "array.array": lambda: array.array("f", [0.0] * _ELEMENTS),
    "ctypes": lambda: (ctypes.c_float * _ELEMENTS)(),
    "an interface": lambda: _ByInterface("__array_interface__"),
    "dlpack": lambda: _ByDlpack("__dlpack__"),
    "a tensor": _torch_tensor,
}


@pytest.fixture(scope="module")
def kernels() -> dict[str, Kernel]:
    module = cujit.jit(_CODE, device=cujit.cpu(check="memory"))
    return {name: module[name] for name in _TOUCHES}


@pytest.mark.parametrize("kind", _MAKERS)
def test_one_element_too_far_is_found_whatever_the_argument_is(kind: str, kernels: dict[str, Kernel]) -> None:
    x = _MAKERS[kind]()
    for touch in _TOUCHES:
        kernels[touch][1, 1](x, 0)
        kernels[touch][1, 1](x, _ELEMENTS - 2)
        for at, words in (
            (_ELEMENTS, "end of argument 1, "),
            (-2, "8 bytes before argument 1, "),
            (1 << 14, "Invalid"),  # the message names the nearest memory, which may be of something else
        ):
            with pytest.raises(KernelFaultError) as caught:
                kernels[touch][1, 1](x, at)
            assert (caught.value.kind, caught.value.thread) == ("memory", (0, 0, 0)), (touch, at)
            assert words in str(caught.value), (touch, at)


def test_one_byte_past_an_end_is_singular() -> None:
    source = 'extern "C" __global__ void k(unsigned char *x) { *(int *)(x + 4) = 1; }'
    kernel = cujit.jit(source, device=cujit.cpu(check="memory"))["k"]
    for size, words in (
        (7, "the last byte is past the end of"),
        (6, "the last 2 bytes are past the end of"),
        (3, "1 byte past the end of"),
        (2, "2 bytes past the end of"),
    ):
        with pytest.raises(KernelFaultError) as caught:
            kernel[1, 1](np.zeros(size, np.uint8))
        assert words in str(caught.value)


def _views() -> dict[str, tuple[Any, int, int]]:
    """Arrays that are a part of another, with the first and the last element of that, counted from the part's."""
    whole = np.zeros(100, np.float32)
    mapped = mmap.mmap(-1, 400)
    return {
        "slice": (whole[20:30], -20, 79),
        "slice of a slice": (whole[10:90][10:20], -20, 79),
        "reshaped": (whole.reshape(10, 10)[3], -30, 69),
        "of bytes": (np.frombuffer(bytearray(400), np.float32)[20:30], -20, 79),
        "of a mapping": (np.frombuffer(mapped, np.float32)[20:30], -20, 79),
        "by strides": (np.lib.stride_tricks.as_strided(whole[20:], (5,), (4,)), -20, 79),
    }


def warned(at: int) -> contextlib.AbstractContextManager[object]:
    """Expect a warning about an access outside of a view, unless it is at the first element."""
    words = "thread \\(0, 0, 0\\): an? .* outside the view passed to the kernel: .* the 400 bytes that argument 1"
    return pytest.warns(CheckWarning, match=words) if at else contextlib.nullcontext()


@pytest.mark.parametrize("kind", _views())
def test_view_extends_to_the_end_of_its_base(kind: str, kernels: dict[str, Kernel]) -> None:
    view, first, last = _views()[kind]
    for touch in ("reads", "writes", "adds", "copies"):
        for at in (0, first, last):
            with warned(at):
                kernels[touch][1, 1](view, at)
        for at in (first - 1, last + 1):
            with raises(KernelFaultError, "fault-memory", "400", "1"):
                kernels[touch][1, 1](view, at)


def test_tensor_view_extends_to_the_end_of_its_storage(kernels: dict[str, Kernel]) -> None:
    view = _torch_view()
    for at in (0, -20, 79):
        with warned(at):
            kernels["writes"][1, 1](view, at)
    for at in (-21, 80):
        with raises(KernelFaultError, "fault-memory", "400", "argument 1", "torch.Tensor"):
            kernels["writes"][1, 1](view, at)


def test_views_of_one_array_overlap_correctly(kernels: dict[str, Kernel]) -> None:
    whole = np.zeros(100, np.float32)
    module = cujit.jit(_TWO, device=cujit.cpu(check="memory"))["two"]
    for at in (0, 9, 10, 19):
        module[1, 1](whole[:10], whole[10:20], at)
    with pytest.warns(CheckWarning, match=r"a write of 4 bytes outside.*: at byte 80 of the 400 bytes"):
        module[1, 1](whole[:10], whole[10:20], 20)
    with pytest.warns(CheckWarning, match="a write of 8 bytes"):
        kernels["pairs"][1, 1](whole[:9], 8)  # across the end of the view
    with raises(KernelFaultError, "fault-memory", "4", "past"):
        kernels["pairs"][1, 1](np.zeros(99, np.float32)[:9], 98)


def test_arguments_of_one_array_are_one_range() -> None:
    whole = np.zeros(100, np.float32)
    both = extents_of([whole[:10], whole[50:], 3, None])
    assert [(each.begin, each.size) for each in both] == [(whole.ctypes.data, 400)] * 2


def test_view_of_a_device_array_belongs_to_the_device(kernels: dict[str, Kernel]) -> None:
    device = cujit.cpu(check="memory")
    x = device.zeros(_ELEMENTS, np.float32)
    with raises(KernelFaultError, "fault-memory", "40-byte", "test_host_arrays"):
        kernels["writes"][1, 1](np.asarray(x), _ELEMENTS)


def test_graph_launch_is_checked_against_its_arrays(kernels: dict[str, Kernel]) -> None:
    device = cujit.cpu(check="memory")
    x, stream = np.zeros(_ELEMENTS, np.float32), device.stream()
    with device.capture(stream) as graph:
        kernels["writes"].prepare(1, 1, stream=stream)(x, _ELEMENTS)
    with raises(KernelFaultError, "fault-memory", "1", "argument"):
        graph.launch()


def test_buffers_are_arguments_of_the_cpu_device(cpu: Device) -> None:
    kernel = cujit.jit(_CODE, device=cpu)["writes"]
    for kind in ("a memoryview", "array.array", "ctypes"):
        x = _MAKERS[kind]()
        kernel[1, 1](x, 3)
        assert np.asarray(memoryview(x)).tolist() == [0, 0, 0, 1, 0, 0, 0, 0, 0, 0]
    with raises(cujit.errors.ArgumentError, "argument-type", "writes", "memoryview"):
        kernel[1, 1](memoryview(bytes(40)).cast("f"), 3)
    with raises(cujit.errors.ArgumentError, "argument-type", "float64"):
        kernel[1, 1](array.array("d", [0.0] * 10), 3)
