"""Launches that go nowhere: machine code with the buffer copied out, beside the same launch written in Python."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from cujit.artifact import Artifact, ImageKind
from cujit.devices.backend import BackendKernel, BackendModule, Target
from cujit.devices.device import Device
from cujit.devices.launcher.cpython import is_supported
from cujit.devices.launcher.entry import LaunchEntry, LoadedImage
from cujit.devices.launcher.launch import PreparedLaunch, attach, make_launch
from cujit.devices.options import PLAIN, LaunchOptions
from cujit.devices.shapes import Dim3, HostExtent, LaunchShape, Resources
from cujit.errors import NameNotFoundError
from cujit.signature import Parameter, Signature

SHAPE = LaunchShape(Dim3(1), Dim3(1))


class Sink(BackendKernel):
    """A kernel that keeps the parameter buffer of its last launch; ``by_machine`` tells who wrote it."""

    submit = "copy"

    def __init__(self, signature: Signature) -> None:
        self.name = "k"
        self.signature = signature
        self.memory = ctypes.create_string_buffer(b"\xee" * (signature.size + 1), signature.size + 1)
        self.by_hand = 0

    @property
    def resources(self) -> Resources:
        return Resources(0, 0, 0, 0, 1024)

    def active_blocks(self, block_threads: int, shared_bytes: int = 0) -> int:
        del block_threads, shared_bytes
        return 1

    def best_block(self, shared_bytes: int = 0) -> int:
        del shared_bytes
        return 1

    def together(self, shape: LaunchShape, cluster: Dim3 | None = None) -> int:
        del shape, cluster
        return 1

    def check_options(self, shape: LaunchShape, options: LaunchOptions) -> None:
        pass

    def launch(
        self,
        shape: LaunchShape,
        parameters: bytes | bytearray,
        stream: int = 0,
        options: LaunchOptions = PLAIN,
        extents: Sequence[HostExtent] = (),
    ) -> None:
        del shape, stream, options, extents
        self.by_hand += 1
        ctypes.memmove(self.memory, bytes(parameters), len(parameters))

    def target(self, shape: LaunchShape, stream: int, options: LaunchOptions, size: int) -> Target:
        del shape, options, size
        return Target({"sink": ctypes.addressof(self.memory), "stream": stream}, print)

    @property
    def bytes(self) -> bytes:
        return self.memory.raw[: self.signature.size]


class NoModule(BackendModule):
    """A module of nothing."""

    def __init__(self) -> None:
        self.kernels = {}

    def variable(self, name: str) -> tuple[int, int]:
        raise NameNotFoundError(name)

    def close(self) -> None:
        pass


class Route:
    """One launch of one kernel; ``send`` gives the parameter buffer that arrived."""

    def __init__(self, signature: Signature, device: Device, *, native: bool, stream: int = 0) -> None:
        self.kernel = Sink(signature)
        self.image = LoadedImage(device, NoModule(), Artifact(ImageKind.PTX, b""))
        self.entry = LaunchEntry(self.image, self.kernel, "k", signature)
        if not native:
            self.launch = PreparedLaunch(self.entry, self, SHAPE, stream, PLAIN)
            return
        self.launch = make_launch(PreparedLaunch, self.entry, self, SHAPE, stream, PLAIN)
        attach(self.launch)
        prepared, binder = self.launch._prepared, self.entry.binder
        assert prepared is not None
        assert binder is not None
        prepared.keep.append(binder.bind(prepared.state, SHAPE, stream, PLAIN))

    def send(self, *arguments: Any) -> bytes:
        ctypes.memset(self.kernel.memory, 0xEE, len(self.kernel.memory))
        self.launch(*arguments)
        return self.kernel.bytes


def _routes(native: bool) -> Callable[..., Route]:
    if native and not is_supported():
        pytest.skip("this interpreter takes no machine code")

    def make(device: Device, *parameters: Parameter, stream: int = 0) -> Route:
        return Route(Signature(parameters), device, native=native, stream=stream)

    return make


@pytest.fixture(params=["machine code", "python"])
def route(request: pytest.FixtureRequest) -> Callable[..., Route]:
    """Make a launch on either route: ``route(device, *parameters)``; a body runs on each."""
    return _routes(request.param == "machine code")


@pytest.fixture
def machine() -> Callable[..., Route]:
    """Make a launch on the route of machine code."""
    return _routes(True)
