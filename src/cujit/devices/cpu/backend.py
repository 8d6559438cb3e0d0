"""The CPU device as a back end: PTX as native vector code on the cores of this machine."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cujit.artifact import Artifact
from cujit.devices.backend import Backend
from cujit.devices.cpu.module import CpuModule
from cujit.devices.cpu.observe.watching import PTXAS, Checks, KernelWatcher, check_contract
from cujit.devices.cpu.run.grid import MAX_THREADS, Workers
from cujit.devices.cpu.run.launch import HostBlock, cache_bytes
from cujit.devices.cpu.run.streams import Captures, InOrderGraph, InOrderStream
from cujit.devices.cpu.texts import ARCH, ptx_of
from cujit.devices.jit import FIRST_PROCESSOR_BYTES
from cujit.devices.jit_options import JitOptions
from cujit.devices.options import check_timeout
from cujit.devices.processors import allowed_processors
from cujit.devices.shapes import Dim3, Limits
from cujit.devices.streams import Allocation, DeviceLike, Stream, stream_handle
from cujit.errors import LoadError
from cujit.forks import cached_property

if TYPE_CHECKING:
    from cujit.devices.cpu.observe.checking import CheckingWatcher
    from cujit.devices.cpu.run.textures import CpuTextures
    from cujit.devices.green_contexts import GreenContext
    from cujit.devices.tensormaps.tiling import Tiling

# Sizes as on an sm_90 GPU, so that a launch that is good here is good there. Source: CUDA C++ Programming Guide,
# "Technical Specifications per Compute Capability".
_MAX_BLOCK = Dim3(1024, 1024, 64)
_MAX_GRID = Dim3(2**31 - 1, 65535, 65535)
_SHARED_BYTES = 48 << 10
_SHARED_BYTES_OPTIN = 227 << 10


class CpuBackend(Backend):
    """This machine's processor; ``threads`` limits the cores that run blocks (all that the process may use).

    ``watchers`` see every kernel that is loaded. ``check`` names checks that its kernels run under, one or several
    with commas between: ``memory``, ``race``, ``sync``, ``init``; or ``all``. With ``knows_all`` they take no memory of
    others that arguments lead to, for all that there is was allocated or adopted. A launch that runs longer than
    ``timeout_s`` seconds is ended by a ``KernelFaultError``. ``contract`` is ``ptxas`` to contract sums, ``off`` to
    keep operations apart; with None a schedule among the watchers decides.

    Raises:
        LoadError: it would have no thread.
        LaunchError: ``timeout_s`` is not a positive number.
        OptionError: no check is called so, or ``contract`` is something else.
    """

    name = "cpu"
    arch = ARCH

    def __init__(
        self,
        threads: int | None = None,
        watchers: Sequence[KernelWatcher] = (),
        *,
        check: str | None = None,
        knows_all: bool = False,
        timeout_s: float | None = None,
        contract: str | None = None,
    ) -> None:
        count = threads if threads is not None else allowed_processors()
        if count < 1:
            raise LoadError(f"the CPU device requires at least one thread, but you passed {count}")
        self.product = _processor_name()
        self.limits = Limits(MAX_THREADS, _MAX_BLOCK, _MAX_GRID, _SHARED_BYTES, _SHARED_BYTES_OPTIN, count)
        self._workers = Workers(count, None if timeout_s is None else check_timeout(timeout_s))
        self.checks = Checks.of(check)
        self._checking: CheckingWatcher | None = None
        if self.checks:
            from cujit.devices.cpu.observe.checking import CheckingWatcher  # start-up: for devices that check

            self._checking = CheckingWatcher(self.checks, knows_all=knows_all)
        self._watchers = tuple(watchers)
        self._contract = check_contract(contract)
        self.captures = Captures()
        """Which of its streams are captured into graphs."""

    @property
    def watchers(self) -> tuple[KernelWatcher, ...]:
        """Who watches what is loaded from now on; the checks do so always."""
        return self._watchers if self._checking is None else (*self._watchers, self._checking)

    @watchers.setter
    def watchers(self, watchers: Sequence[KernelWatcher]) -> None:
        self._watchers = tuple(watchers)

    def load(self, artifact: Artifact, options: JitOptions | None = None) -> CpuModule:
        """Load PTX, or the PTX of a fatbin; ``options`` are for GPUs."""
        del options
        text, route = ptx_of(artifact)
        watchers, name = self.watchers, artifact.name or "<ptx>"
        drawn = any(getattr(watcher, "contracts", False) for watcher in watchers)
        contract = drawn if self._contract is None else self._contract == PTXAS
        module = CpuModule(
            text, self._workers, route, self.captures, name, watchers, artifact.places, contract=contract
        )
        if self._checking is not None:
            self._checking.ledger.module(module.memory, module.variables)
        return module

    def allocate(self, size: int) -> Allocation:
        """Get ``size`` bytes of host memory, aligned to 256."""
        block = HostBlock(size)
        self.allocated(block)
        return Allocation(block.address, size, block)

    def allocated(self, block: HostBlock) -> None:
        """Register an allocation with the checks."""
        if self._checking is not None:
            self._checking.ledger.add(block)

    def called(self, address: int, words: str) -> None:
        """Set how the checks' findings name an allocation, such as ``the 400 bytes of argument 2``."""
        if self._checking is not None:
            self._checking.ledger.call(address, words)

    def written(self, address: int, size: int) -> None:
        """Report to the checks that the host has written bytes."""
        if self._checking is not None:
            self._checking.ledger.written(address, size)

    def adopt(self, address: int, size: int) -> Allocation:
        """See memory of others as an allocation; the checks know it until nobody holds that."""
        owner = None if self._checking is None else self._checking.ledger.adopt(address, size)
        return Allocation(address, size, owner)

    def upload(self, address: int, data: memoryview) -> None:
        """Copy bytes to an address."""
        ctypes.memmove(address, np.frombuffer(data, np.uint8).ctypes.data, data.nbytes)
        self.written(address, data.nbytes)

    def read(self, address: int, size: int, elements: np.dtype[Any], *, shared: bool = False) -> None:
        """See whether the host may copy elements, or, if their memory is ``shared``, see them.

        Raises:
            KernelFaultError: the checks know that an element was never written.
        """
        if self._checking is not None:
            self._checking.ledger.read(address, size, elements, shared=shared)

    def copied(self, to: int, source: int, size: int) -> None:
        """Report to the checks that bytes were copied within the device's memory."""
        if self._checking is not None:
            self._checking.ledger.copied(to, source, size)

    def download(self, data: memoryview, address: int) -> None:
        """Copy bytes from an address."""
        ctypes.memmove((ctypes.c_char * data.nbytes).from_buffer(data), address, data.nbytes)

    def fill(self, address: int, size: int, byte: int = 0) -> None:
        """Set ``size`` bytes to one value."""
        ctypes.memset(address, byte, size)
        self.written(address, size)

    def synchronize(self) -> None:
        """Return at once: launches are done when they return.

        Raises:
            DriverError: a stream is captured.
        """
        self.captures.check_wait_for_all("cuCtxSynchronize")

    def stream(self, device: DeviceLike, of: object = None, priority: int | None = None) -> InOrderStream:
        """Make a stream; another library's is as good as the default one, and all have one priority."""
        del priority
        if of is not None:
            stream_handle(of, device)
        return InOrderStream(device, self.captures, 0 if of is not None else self.captures.number())

    def green_contexts(self, device: DeviceLike, counts: Sequence[int | None]) -> tuple[GreenContext, ...]:
        """Make a green context for each count, whatever it is: all streams use all cores."""
        from cujit.devices.green_contexts import GreenContext  # start-up: few programs split a device

        left = max(self.limits.processors - sum(count or 0 for count in counts), 1)
        return tuple(
            GreenContext(device, count or left, functools.partial(self.stream, device, None)) for count in counts
        )

    def graph(self, device: DeviceLike, stream: Stream, mode: str) -> InOrderGraph:
        """Make a graph that ``stream`` is captured into; the mode forbids calls as on a GPU."""
        return InOrderGraph(device, stream, self.captures, mode)

    @cached_property
    def textures(self) -> CpuTextures:
        """Textures in plain memory."""
        from cujit.devices.cpu.run.textures import CpuTextures  # start-up: few kernels read textures

        return CpuTextures()

    def encode_tensor_map(self, tiling: Tiling) -> bytes:
        """Write the 128 bytes of a tensor map as this device reads them."""
        from cujit.devices.cpu.run.tensormap import encode  # start-up: few kernels copy tensors

        return encode(tiling)

    @cached_property
    def cache_bytes(self) -> int:
        """Bytes of the processor's last cache; 0 where the system does not tell."""
        return cache_bytes(0)


def _processor_name() -> str:
    """What the processor calls itself, where the system tells."""
    try:
        with open("/proc/cpuinfo", "rb") as file:
            lines = file.read(FIRST_PROCESSOR_BYTES).decode(errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, os.uname().machine)
