"""torch's tensors go into kernels on both routes, where torch is installed; on the CPU device no GPU is needed."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from cujit.devices.arguments.tensors import is_tensor, tensor_interface
from cujit.devices.device import Device
from cujit.errors import ArgumentError
from cujit.signature import Parameter, ParameterClass
from raising import raises

torch: Any = pytest.importorskip("torch")

FLOATS = Parameter(ParameterClass.POINTER, 8, 8, "float*", "float")
VOIDS = Parameter(ParameterClass.POINTER, 8, 8, "void*", "void")
WORD = Parameter(ParameterClass.BITS, 8, 8, ".u64")


def test_plain_tensor_is_distinguished_from_other_objects() -> None:
    class Mine(torch.Tensor):  # type: ignore[misc]
        pass

    assert is_tensor(torch.zeros(1))
    assert is_tensor(torch.nn.Parameter(torch.zeros(1)))
    assert not is_tensor(Mine())
    assert not is_tensor(1)


def test_torch_has_the_interface_that_native_code_needs() -> None:
    assert tensor_interface() is not None


def test_tensors_arrive(host: Device, route: Any) -> None:
    x, y = torch.zeros(8), torch.zeros((4, 4), dtype=torch.int64)
    parameter = torch.nn.Parameter(torch.ones(5))
    launch = route(host, FLOATS, VOIDS, WORD, FLOATS)
    for _ in range(4):
        assert launch.send(x, y, x, parameter) == struct.pack(
            "<4Q", x.data_ptr(), y.data_ptr(), x.data_ptr(), parameter.data_ptr()
        )
        assert launch.send(x[2:], y[1:], y, x)[:8] == struct.pack("<Q", x.data_ptr() + 8)


def test_machine_code_reads_tensors_without_python(host: Device, machine: Any) -> None:
    x, parameter = torch.zeros(8), torch.nn.Parameter(torch.ones(5))
    launch = machine(host, FLOATS, FLOATS)
    launch.send(x, parameter)
    launch.launch._prepared.state.reader = 0  # a reader that is called now is a crash
    assert launch.send(x, parameter) == struct.pack("<2Q", x.data_ptr(), parameter.data_ptr())


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: torch.zeros(8, dtype=torch.float64), ("argument-type", "float64", "float32")),
        (lambda: torch.zeros(8, dtype=torch.int32), ("argument-type", "int32", "float32")),
        (lambda: torch.zeros(8, dtype=torch.bfloat16), ("argument-type", "bfloat16", "float32")),
        (lambda: torch.zeros((4, 4)).t(), ("argument-type", "x.contiguous()")),
        (lambda: torch.zeros(8)[::2], ("argument-type", "x.contiguous()")),
        (lambda: torch.zeros(8).to_sparse(), ("argument", "Tensor", "DLPack")),
        (lambda: torch.zeros(8, device="meta"), ("argument-type", "argument 1", "meta")),
        (lambda: torch.tensor([1 + 2j]).conj().imag, ("argument-type", "x.resolve_neg()")),
    ],
    ids=["double", "int", "bfloat", "transposed", "strided", "sparse", "meta", "negative"],
)
def test_unsuitable_tensor_is_refused(host: Device, route: Any, make: Any, why: tuple[str, ...]) -> None:
    launch = route(host, FLOATS)
    for _ in range(3):
        launch.send(torch.zeros(8))
        with raises(ArgumentError, *why):
            launch.send(make())


def test_empty_tensor_is_null(host: Device, route: Any) -> None:
    launch = route(host, FLOATS)
    for _ in range(3):
        assert launch.send(torch.zeros(0)) == bytes(8)


def test_lazy_conjugate_is_refused(host: Device, route: Any) -> None:
    launch, z = route(host, VOIDS), torch.zeros(4, dtype=torch.complex64)
    for _ in range(3):
        launch.send(z)
        with raises(ArgumentError, "argument-type", "x.resolve_conj()"):
            launch.send(z.conj())


def test_host_tensor_is_refused_on_a_gpu(gpu_memory: Device, route: Any) -> None:
    with raises(ArgumentError, "argument-type", "argument 1", "cuda:1"):
        route(gpu_memory, FLOATS).send(torch.zeros(8))


def test_resized_tensor_is_read_again(host: Device, machine: Any) -> None:
    launch, x = machine(host, FLOATS), torch.zeros(8)
    launch.send(x)
    x.resize_(1 << 20)
    assert launch.send(x) == struct.pack("<Q", x.data_ptr())
