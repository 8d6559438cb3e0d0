"""Launches of programs that have their parameters packed and their memory allocated: an engine, a back end, a port."""

from __future__ import annotations

import ctypes
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

from cujit.devices.device import Device
from cujit.devices.launcher.launch import attach
from cujit.errors import ArgumentError, ClosedError, KernelFaultError, LaunchError
from cujit.kernel import Kernel
from cujit.loading import Module, jit
from cujit.machine import cpu
from raising import raises

CODE = """
extern "C" __global__ void fill(char tag, float *p, int n, float value) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) p[i] = value + tag;
}
extern "C" __global__ void copy(const float *from, float *to, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) to[i] = from[i];
}
extern "C" __global__ void empty() {}
"""


@pytest.fixture
def module(device: Device) -> Iterator[Module]:
    with jit(CODE, device=device) as loaded:
        yield loaded


def packed(p: Any, n: int, value: float, tag: int = 1) -> bytes:
    return struct.pack("<b7xQif", tag, p.address, n, value)


# -- parameters that are packed ----------------------------------------------------------------------------


@pytest.mark.parametrize("native", [False, True], ids=["by hand", "machine code"])
@pytest.mark.parametrize(
    "make",
    [
        bytes,
        bytearray,
        memoryview,
        lambda data: np.frombuffer(data, np.uint32),
        lambda data: (ctypes.c_char * len(data)).from_buffer_copy(data),
    ],
    ids=["bytes", "bytearray", "memoryview", "numpy", "ctypes"],
)
def test_packed_parameters_arrive(module: Module, make: Any, native: bool) -> None:
    p, launch = module.device.zeros(40, np.float32), module["fill"][2, 32]
    if native:
        attach(launch)
    for k in range(6):
        launch.packed(make(packed(p, 40, k)))
        assert p.numpy().tolist() == [k + 1] * 40


def test_packed_parameters_and_arguments_launch_equally(module: Module) -> None:
    p, launch = module.device.zeros(40, np.float32), module["fill"][2, 32]
    attach(launch)
    for k in range(4):
        launch(k, p, 40, 0.5)
        assert p.numpy().tolist() == [k + 0.5] * 40
        launch.packed(packed(p, 40, 7.0))
        assert p.numpy().tolist() == [8] * 40
    module["empty"][1, 1].packed(b"")


@pytest.mark.parametrize("size", [0, 1, 16, 23, 25, 32])
def test_packed_parameters_of_another_size_are_refused(module: Module, size: int) -> None:
    with raises(ArgumentError, "argument-count", "fill", "24", size) as caught:
        module["fill"][1, 32].packed(bytes(size))
    assert "[0, 8, 16, 20]" in str(caught.value.help)


@pytest.mark.parametrize(
    "value",
    [None, 24, "a" * 24, [0] * 24, np.zeros((3, 24), "u1")[:, ::2]],
    ids=["none", "int", "str", "list", "strided"],
)
def test_nonbuffer_is_refused(module: Module, value: Any) -> None:
    with raises(ArgumentError, "argument", "fill"):
        module["fill"][1, 32].packed(value)


# -- pointers to parameters --------------------------------------------------------------------------------


def values(p: Any, k: int) -> list[Any]:
    return [ctypes.c_byte(1), ctypes.c_uint64(p.address), ctypes.c_int(40), ctypes.c_float(k)]


@pytest.mark.parametrize(
    "make",
    [
        list,
        tuple,
        lambda at: (ctypes.c_void_p * len(at))(*at),
        lambda at: [ctypes.c_void_p(each) for each in at],
        lambda at: ctypes.cast((ctypes.c_void_p * len(at))(*at), ctypes.c_void_p),
    ],
    ids=["list", "tuple", "array", "pointers", "pointer"],
)
def test_pointers_to_parameters_are_followed(module: Module, make: Any) -> None:
    p, launch = module.device.zeros(40, np.float32), module["fill"][2, 32]
    attach(launch)
    for k in range(3):
        each = values(p, k)
        launch.kernel_params(make([ctypes.addressof(value) for value in each]))
        assert p.numpy().tolist() == [k + 1] * 40


def test_address_of_an_array_of_pointers_is_followed(module: Module) -> None:
    p = module.device.zeros(40, np.float32)
    each = values(p, 3)
    table = (ctypes.c_void_p * 4)(*map(ctypes.addressof, each))
    module["fill"][2, 32].kernel_params(ctypes.addressof(table))
    assert p.numpy().tolist() == [4] * 40
    table[2] = None
    with raises(ArgumentError, "argument", "fill", "3"):
        module["fill"][2, 32].kernel_params(ctypes.addressof(table))


BAD: list[tuple[Any, tuple[str, ...]]] = [
    ([], ("0", "4", "pointers")),
    ([8] * 5, ("5", "4", "pointers")),
    ([0, 8, 8, 8], ("1", "pointer")),
    ([8, None, 8, 8], ("fill",)),
    ([-8, 8, 8, 8], ("-8",)),
    ([1 << 64, 8, 8, 8], ("address",)),
    ([True, 8, 8, 8], ("bool True",)),
    ([1.0, 8, 8, 8], ("float 1.0",)),
    (0, ("0", "pointers")),
    (-8, ("address",)),
    (4097, ("4097",)),
    (1 << 64, ("address",)),
    (ctypes.c_void_p(0), ("0", "address")),
    (None, ("NoneType",)),
    (True, ("bool True",)),
    (b"12345678", ("array",)),
    ((ctypes.c_int * 4)(), ("pointers",)),
]


@pytest.mark.parametrize(("pointers", "why"), BAD, ids=["_".join(why) for _, why in BAD])
def test_invalid_parameter_pointers_are_refused(module: Module, pointers: Any, why: tuple[str, ...]) -> None:
    own = ctypes.c_uint64(0)
    if isinstance(pointers, list):
        pointers = [ctypes.addressof(own) if each == 8 else each for each in pointers]
    with raises(ArgumentError, "argument", *why):
        module["fill"][2, 32].kernel_params(pointers)


def test_closed_module_rejects_both_forms(device: Device) -> None:
    module = jit(CODE, device=device)
    launch = module["empty"][1, 32]
    attach(launch)
    launch.packed(b"")
    launch.packed(b"")
    module.close()
    with pytest.raises(ClosedError):
        launch.packed(b"")
    with pytest.raises(ClosedError):
        launch.kernel_params([])


# -- ints for pointers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("native", [False, True], ids=["by hand", "machine code"])
def test_ints_are_addresses_on_request(module: Module, native: bool) -> None:
    p, kernel = module.device.zeros(40, np.float32), module["fill"]
    launch = kernel.prepare(2, 32, int_pointers=True)
    assert launch is kernel.prepare(2, 32, int_pointers=True)
    assert launch is not kernel.prepare(2, 32)
    assert launch.kernel is kernel
    if native:
        attach(launch)
    for address in (p.address, np.uint64(p.address), p, np.int64(p.address)):
        p.fill(0)
        launch(1, address, 40, 2.5)
        assert p.numpy().tolist() == [3.5] * 40
    launch(1, 0, 0, 1.0)
    for bad in (-1, 1 << 64, True, 1.0, np.int64(-5)):
        with raises(ArgumentError, "argument-type", "fill", "2 (float*)"):
            launch(1, bad, 40, 1.0)
    with raises(ArgumentError, "argument-type", "pointer"):
        kernel[2, 32](1, p.address, 40, 1.0)


def test_int_pointers_is_true_or_false(module: Module) -> None:
    with raises(LaunchError, "launch", "int_pointers", "1"):
        module["fill"].prepare(1, 1, int_pointers=1)  # type: ignore[arg-type]


# -- compiled ahead ----------------------------------------------------------------------------------------


def test_kernel_is_compiled_in_advance_with_its_time(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path))
    module = jit(CODE, device=cpu(1))
    kernel = module["fill"]
    assert kernel.compile_s == 0
    began = time.perf_counter()
    took = kernel.compile(64)
    assert 0 < kernel.compile_s <= took <= time.perf_counter() - began
    before, p = kernel.compile_s, module.device.zeros(64, np.float32)
    kernel[1, 64](1, p, 64, 1.0)
    assert kernel.compile_s == before
    kernel[1, 32](1, p, 64, 1.0)
    assert kernel.compile_s > before


def test_kernel_is_compiled_in_the_background(module: Module) -> None:
    kernel = module["fill"]
    made = kernel.compile((8, 4), wait=False)
    assert isinstance(made, Future)
    assert made.result() >= 0
    before, p = kernel.compile_s, module.device.zeros(64, np.float32)
    kernel[1, (8, 4)](1, p, 64, 1.0)
    assert kernel.compile_s == before


def test_unsupported_kernel_is_not_compiled(module: Module) -> None:
    for wait in (True, False):
        with raises(LaunchError, "grid-size", "block"):
            module["fill"].compile(4096, wait=wait)
    with raises(LaunchError, "launch", "wait", "0"):
        module["fill"].compile(32, wait=0)  # type: ignore[call-overload]


def test_background_error_is_in_the_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module, go = jit(CODE, device=cpu(1)), threading.Event()
    kernel = module["fill"]
    monkeypatch.setattr(type(kernel._loaded), "compile", lambda *_arguments: go.wait(20) and 1 / 0)
    made = kernel.compile(32, wait=False)
    assert not made.done()
    go.set()
    with pytest.raises(ZeroDivisionError):
        made.result()


# -- memory of others --------------------------------------------------------------------------------------


@pytest.fixture
def checked() -> Kernel:
    return jit(CODE, device=cpu(check="memory"))["copy"]


def test_access_next_to_adopted_memory_names_it(checked: Kernel) -> None:
    pool = np.zeros(100, np.float32)
    at = pool.ctypes.data
    source, target = checked.device.adopt(at, 160), checked.device.adopt(at + 200, 160)
    launch = checked.prepare(1, 32, int_pointers=True)
    launch(at, at + 200, 40)
    launch(source.view(np.float32), target.view(np.float32), 40)
    with raises(KernelFaultError, "fault-memory", "160", "test_embedding_launches.py"):
        launch(at, at + 200, 41)
    source.close()
    launch(at, at + 200, 40)
    target.close()
    launch(at, at + 200, 41)


def test_memory_next_to_adopted_memory_is_no_false_alarm(checked: Kernel) -> None:
    pool = np.zeros(100, np.float32)
    at = pool.ctypes.data
    kept = checked.device.adopt(at, 160)
    for other in (at + 160, at + 200):
        checked.prepare(1, 32, int_pointers=True)(kept.address, other, 40)


def test_known_memory_is_not_adopted_again(checked: Kernel) -> None:
    device, pool = checked.device, np.zeros(100, np.float32)
    kept, own = device.adopt(pool.ctypes.data, 160), device.zeros(4, np.float32)
    for address in (kept.address, kept.address + 159, kept.address - 7, own.address):
        with raises(ArgumentError, "argument", "allocation"):
            device.adopt(address, 8)
    beside = device.adopt(kept.address + 160, 8)
    kept.close()
    again = device.adopt(pool.ctypes.data, 160)
    assert (again.nbytes, beside.nbytes) == (160, 8)


@pytest.mark.parametrize(
    ("address", "size", "why"),
    [
        (0, 8, ("address", "0", "1")),
        (-8, 8, ("address", "-8", "1")),
        (None, 8, ("NoneType",)),
        (4096, 0, ("size_bytes", "0", "1")),
        (4096, True, ("size_bytes", "bool")),
        (4096, 1.5, ("size_bytes", "float")),
        ((1 << 64) - 4, 8, ("64-bit",)),
        (1 << 70, 8, ("64-bit",)),
    ],
)
def test_invalid_memory_is_not_adopted(device: Device, address: Any, size: Any, why: tuple[str, ...]) -> None:
    with raises(ArgumentError, "argument", *why):
        device.adopt(address, size)


def test_adopted_memory_is_an_array(device: Device) -> None:
    x = device.array(np.arange(8, dtype=np.float32))
    seen = device.adopt(x.address, x.nbytes)
    assert (seen.address, seen.nbytes, seen.dtype.name) == (x.address, 32, "uint8")
    assert seen.view(np.float32).numpy().tolist() == list(range(8))
