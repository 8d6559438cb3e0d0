"""A third back end: what it has to do is little, and users hold it as any other device."""

# ruff: noqa: ARG002 - what the seam passes and so small a back end has no use for

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import cujit
from cujit.arch import Arch
from cujit.artifact import Artifact, ImageKind
from cujit.devices.backend import Backend, BackendKernel, BackendModule
from cujit.devices.device import Device
from cujit.devices.jit_options import JitOptions
from cujit.devices.options import PLAIN, LaunchOptions
from cujit.devices.shapes import Dim3, HostExtent, LaunchShape, Limits, Resources
from cujit.devices.streams import Allocation
from cujit.errors import ArgumentError, ClosedError, LaunchError, NameNotFoundError, UnsupportedError
from cujit.signature import Parameter, ParameterClass, Signature
from raising import raises

# -- the back end -----------------------------------------------------------------------------------------

_SIGNATURE = Signature(
    (
        Parameter(ParameterClass.POINTER, 8, 8, "float*"),
        Parameter(ParameterClass.FLOAT, 4, 4, "float"),
        Parameter(ParameterClass.SIGNED, 4, 4, "int"),
    )
)


class ScaleKernel(BackendKernel):
    """``scale(float* x, float a, int n)``, by NumPy."""

    name = "scale"
    signature = _SIGNATURE
    resources = Resources(None, 0, None, None, 256)

    def launch(
        self,
        shape: LaunchShape,
        parameters: bytes | bytearray,
        stream: int = 0,
        options: LaunchOptions = PLAIN,
        extents: Sequence[HostExtent] = (),
    ) -> None:
        address, factor, count = struct.unpack("<Qfi", parameters)
        threads = min(count, shape.grid.volume * shape.block.volume)
        _memory(address, 4 * threads).view(np.float32)[:] *= np.float32(factor)

    def together(self, shape: LaunchShape, cluster: Dim3 | None = None) -> int:
        return 1

    def active_blocks(self, block_threads: int, shared_bytes: int = 0) -> int:
        return 1

    def best_block(self, shared_bytes: int = 0) -> int:
        return 64


class ScaleModule(BackendModule):
    """A module of that kernel, whatever the image says."""

    route = "NumPy"

    def __init__(self) -> None:
        self.kernels = {"scale": ScaleKernel()}

    def variable(self, name: str) -> tuple[int, int]:
        raise NameNotFoundError(f"no variable {name}")

    def close(self) -> None:
        self.kernels = {}


class NumpyBackend(Backend):
    """Memory of the host, and one kernel."""

    name, product, arch = "numpy", f"NumPy {np.__version__}", Arch.parse("sm_90")
    limits = Limits(256, Dim3(256), Dim3(1 << 20, 1, 1), 0, 0, 1)

    def load(self, artifact: Artifact, options: JitOptions | None = None) -> ScaleModule:
        return ScaleModule()

    def allocate(self, size: int) -> Allocation:
        owner = np.empty(size + 256, np.uint8)
        return Allocation(-(-owner.ctypes.data // 256) * 256, size, owner)

    def upload(self, address: int, data: memoryview) -> None:
        _memory(address, data.nbytes)[:] = data

    def download(self, data: memoryview, address: int) -> None:
        np.frombuffer(data, np.uint8)[:] = _memory(address, data.nbytes)

    def fill(self, address: int, size: int, byte: int = 0) -> None:
        _memory(address, size)[:] = byte

    def synchronize(self) -> None:
        """Everything is done when it returns."""


def _memory(address: int, size: int) -> npt.NDArray[np.uint8]:
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))


# -- in use -----------------------------------------------------------------------------------------------


@pytest.fixture
def place() -> Device:
    return Device(NumpyBackend())


@pytest.fixture
def module(place: Device) -> Iterator[cujit.Module]:
    with cujit.load(Artifact(ImageKind.PTX, b".version 8.0\n.target sm_80\n"), place) as loaded:
        yield loaded


def test_third_back_end_loads_and_launches_kernels(place: Device, module: cujit.Module) -> None:
    assert (module.route, list(module), module.device) == ("NumPy", ["scale"], place)
    x = place.array(np.arange(100, dtype=np.float32))
    for _ in range(6):  # so many that machine code would be made, if it told how
        module["scale"].over(100)(x, 2.0, 50)
    assert (x.numpy() == np.arange(100) * np.where(np.arange(100) < 50, 64, 1)).all()
    assert place.zeros(3, "f4").numpy().tolist() == [0, 0, 0]


def test_third_back_end_checks_its_launches(place: Device, module: cujit.Module) -> None:
    kernel = module["scale"]
    assert (kernel.max_block, kernel.cooperative_limit(64)) == (256, 1)
    with raises(LaunchError, "grid-size", "256"):
        kernel[1, 512]
    with raises(ArgumentError, "argument-type", "2", "argument"):
        kernel[1, 1](place.zeros(1, "f4"), "two", 1)
    kernel[1, 1].compile()
    module.close()
    with pytest.raises(ClosedError):
        kernel[1, 1](place.zeros(1, "f4"), 1.0, 1)


@pytest.mark.parametrize(
    "ask",
    [
        lambda place, _: place.stream(),
        lambda place, _: place.texture(np.zeros(4, "f4")),
        lambda place, _: place.tensor_map(place.zeros((8, 8), "f4"), (4, 4)),
        lambda place, _: place.backend.link([]),
        lambda _, kernel: kernel.cancel(),
    ],
)
def test_unsupported_operation_is_refused_by_name(
    place: Device, module: cujit.Module, ask: Callable[[Device, cujit.Kernel], Any]
) -> None:
    with raises(UnsupportedError, "unsupported"):
        ask(place, module["scale"])


def test_unsupported_launch_options_are_refused(module: cujit.Module) -> None:
    with raises(LaunchError, "launch", "launch options"):
        module["scale"].prepare(1, 1, priority=1)


def test_common_operations_work_on_a_third_back_end(place: Device) -> None:
    assert (place.cache_bytes, place.is_gpu, place.ordinal, place.ordinal_of(64)) == (0, False, 0, None)
    assert tuple(place.backend.watchers) == ()
    place.trim()
    place.order(1, 2)
    host = place.pinned(4, "f4")
    host[:] = 1
    assert host.tolist() == [1, 1, 1, 1]
    assert repr(place) == f"<Device numpy: NumPy {np.__version__} (sm_90)>"


def test_name_alone_creates_no_device() -> None:
    with raises(ArgumentError, "argument", "cpu", "cujit.default_device()") as caught:
        Device("cpu")  # type: ignore[arg-type]
    assert "cujit.cpu()" in str(caught.value)
