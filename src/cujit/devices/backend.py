"""The seam: what a place where Artifacts run must be able to do. ``cuda`` and ``cpu`` are two; a third is one folder.

Users hold a ``Device``, which is the same for all of them. A back end knows neither it nor arrays by their class.

A kernel gets its arguments as one *parameter buffer*: the bytes of all parameters at their offsets
(``Signature.offsets``), which both the driver and the CPU device take as it is.
"""

from __future__ import annotations

import abc
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from cujit.arch import Arch
from cujit.artifact import Artifact
from cujit.devices.jit_options import JitOptions
from cujit.devices.options import PLAIN, LaunchOptions
from cujit.devices.shapes import Dim3, HostExtent, LaunchShape, Limits, Resources, check_launch
from cujit.devices.streams import Allocation, DeviceLike, Graph, PinnedMemory, Stream
from cujit.errors import LaunchError, UnsupportedError
from cujit.forks import cached_property
from cujit.formats.mangling import entity_name
from cujit.signature import Signature
from cujit.values import NamedTuple, dataclass, field

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from cujit.devices.green_contexts import GreenContext
    from cujit.devices.tensormaps.tiling import Tiling
    from cujit.devices.textures.texture import TextureUnit
    from cujit.devices.watch import Watcher

# -- kernels ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """Where machine code launches a kernel: ``fields`` of its ``State``, and what has to live as long, ``keep``.

    ``failed`` gets what the driver answered, or the address of the CPU device's ``Launch``, and raises the error.
    """

    fields: Mapping[str, int]
    failed: Callable[[int], None]
    keep: object = field(repr=False, default=None)


class PlainTarget(NamedTuple):
    """Where native code launches a kernel in any shape of at most ``max_threads``, without options and streams.

    ``fields`` are those of the ``LaunchState`` that all kernels of the place have in common.
    """

    fields: Mapping[str, int]
    function: int
    label: int
    max_threads: int


def title_of(lowered: str) -> str:
    """Return the name of a kernel for messages: as the source spells it, if the lowered name tells that.

    ABI tags are left out, which compilers add and nobody wrote: numba's are 120 characters.
    """
    return re.sub(r"\[abi:\w+\]", "", entity_name(lowered) or lowered)


class BackendKernel(abc.ABC):
    """One kernel that a back end has loaded."""

    name: str
    """The lowered name."""
    signature: Signature
    """As far as the image tells: PTX types, or sizes."""
    compile_s: float = 0.0
    """Seconds of wall time that machine code took after the module was loaded."""
    submit: str | None = None
    """Name of the native function that starts it (``launcher/native``); None leaves every launch to ``launch``."""
    needs_extents: bool = False
    """Whether ``launch`` is to know how much memory of the host the arguments lead to."""

    @cached_property
    def title(self) -> str:
        """Its name in messages (``title_of``)."""
        return title_of(self.name)

    @property
    @abc.abstractmethod
    def resources(self) -> Resources:
        """What the kernel uses."""

    @property
    def contracts(self) -> bool:
        """Whether the device contracts sums that the image keeps apart."""
        return False

    @property
    def own_cluster(self) -> Dim3 | None:
        """The cluster that the kernel was compiled for, in blocks; None leaves it to the launch."""
        return None

    def fits(self, shape: LaunchShape, limits: Limits) -> bool:
        """Return whether sizes keep all limits, as far as that is known without a query. Otherwise
        ``check`` decides.
        """
        del shape, limits
        return False

    def check(self, name: str, shape: LaunchShape, limits: Limits) -> None:
        """Check sizes against what the device and the kernel's resources allow; ``name`` is for messages.

        Raises:
            LaunchError: a limit is broken; the message names it with both numbers.
        """
        check_launch(name, shape, limits, self.resources)

    def check_options(self, shape: LaunchShape, options: LaunchOptions) -> None:
        """Check options against what the back end can do.

        Raises:
            LaunchError: a limit is broken; the message names it with both numbers.
        """
        del shape
        if options != PLAIN:
            raise LaunchError(f"{self.title}: this device doesn't support launch options")

    def preload(self) -> None:  # noqa: B027 - most have nothing to load
        """Load the code onto the device ahead of the first launch, if the device does that no sooner."""

    def compile(self, shape: LaunchShape, options: LaunchOptions) -> None:
        """Make what a launch runs, ahead of it."""
        del shape, options

    @abc.abstractmethod
    def launch(
        self,
        shape: LaunchShape,
        parameters: bytes | bytearray,
        stream: int = 0,
        options: LaunchOptions = PLAIN,
        extents: Sequence[HostExtent] = (),
    ) -> None:
        """Run the kernel over ``shape``; ``parameters`` is the parameter buffer, ``stream`` a ``CUstream``
        or 0.

        ``extents`` is the memory of the host that the arguments lead to, where the kernel asks for that.

        Asynchronous on a GPU; on the CPU device done when it returns.

        Raises:
            DriverError: the driver reported an error.
        """

    def target(self, shape: LaunchShape, stream: int, options: LaunchOptions, size: int) -> Target | None:
        """Return where native code launches the kernel with a parameter buffer of ``size`` bytes.

        None leaves every launch to ``launch``.

        Raises:
            ClosedError: the module was closed.
            DriverError: the driver reported an error.
        """
        del shape, stream, options, size
        return None

    def plain(self, limits: Limits) -> PlainTarget | None:
        """Return where native code launches the kernel without a query for each shape. None if it needs the query.

        Raises:
            ClosedError: the module was closed.
            DriverError: the driver reported an error.
        """
        del limits
        return None

    def cancel(self) -> None:
        """End the launches that run now.

        Raises:
            UnsupportedError: nobody can.
        """
        raise UnsupportedError(f"{self.title}: this device can't stop a launch")

    @abc.abstractmethod
    def together(self, shape: LaunchShape, cluster: Dim3 | None = None) -> int:
        """Count the blocks of that size that run at a time on the whole device; of clusters, in whole clusters.

        Raises:
            ClosedError: the module was closed.
            DriverError: the driver reported an error.
        """

    @abc.abstractmethod
    def active_blocks(self, block_threads: int, shared_bytes: int = 0) -> int:
        """Count the blocks that one processor holds at a time."""

    @abc.abstractmethod
    def best_block(self, shared_bytes: int = 0) -> int:
        """Choose the threads per block of highest occupancy."""


class BackendModule(abc.ABC):
    """One Artifact that a back end has loaded."""

    kernels: Mapping[str, BackendKernel]
    """By lowered name, in the order of the image where it tells."""
    log: str = ""
    """What the loader wrote (the driver's JIT logs)."""
    route: str = ""
    """How the image came to run: ``cubin sm_90 of the fatbin``, ``PTX … through the driver's JIT``."""

    @property
    def is_empty(self) -> bool:
        """Whether there is no kernel in it."""
        return not self.kernels

    @abc.abstractmethod
    def variable(self, name: str) -> tuple[int, int]:
        """Find a ``__device__`` or ``__constant__`` variable: its address and its size in bytes.

        Raises:
            NameNotFoundError: no kernel or variable has that name.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Release the module; again is harmless."""


# -- a place -----------------------------------------------------------------------------------------------


class Backend(Protocol):
    """A place where Artifacts run. Who derives from it has what has a body here: the little that is not needed."""

    name: str
    """``cuda:0``, ``cpu``."""
    product: str
    """What it is called by its maker."""
    arch: Arch
    """The real architecture whose code it runs (for the CPU device: as which it runs PTX)."""
    limits: Limits
    is_gpu: bool = False
    ordinal: int = 0
    """The number of a GPU among the GPUs that the driver shows; 0 for the CPU device."""

    @abc.abstractmethod
    def load(self, artifact: Artifact, options: JitOptions | None = None) -> BackendModule:
        """Load a cubin, PTX or fatbin; ``options`` are for whoever makes machine code of PTX for a GPU.

        Raises:
            LoadError: the image does not run here; the message says what would.
            DriverError: the driver rejected the image.
        """

    def plain_cubins(self, device: DeviceLike, patterns: object) -> Any:
        """Return what loads the usual cubins by native code (``devices.cuda.plain``), if there is some.

        ``patterns`` are those of kernels of which only the sizes of the parameters are known.
        """
        del device, patterns
        return None

    def link(self, artifacts: Sequence[Artifact]) -> Artifact:
        """Link images for this place, for where nvJitLink is not installed.

        Raises:
            UnsupportedError: the place links nothing.
            LinkError: the images do not link; ``log`` says why.
        """
        del artifacts
        raise UnsupportedError(f"{self.name} can't link images")

    # -- memory -------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def allocate(self, size: int) -> Allocation:
        """Get ``size`` bytes, aligned to 256; released when nothing holds the Allocation."""

    def adopt(self, address: int, size: int) -> Allocation:
        """See memory of others as an allocation.

        Raises:
            ArgumentError: some of it is known as another one.
        """
        return Allocation(address, size)

    def called(self, address: int, words: str) -> None:
        """Name the allocation at an address in messages, such as ``the 400 bytes of argument 2``. This backend has no
        checks.
        """
        del address, words

    def read(self, address: int, size: int, elements: np.dtype[Any], *, shared: bool = False) -> None:
        """Report to the checks which bytes the host is about to copy or to ``share``. This backend has no checks.

        Raises:
            KernelFaultError: an element was never written.
        """
        del address, size, elements, shared

    def copied(self, to: int, source: int, size: int) -> None:
        """Report to the checks that bytes were copied within the device's memory. This backend has no checks."""
        del to, source, size

    def place(self, address: int, data: npt.NDArray[Any]) -> None:
        """Copy an array of the host to memory that was just allocated; streams see it once ``settle`` has returned."""
        self.upload(address, data.reshape(-1).view("u1").data)

    def fetch(self, out: npt.NDArray[Any], address: int) -> None:
        """Copy device bytes to an array of the host, as ``download`` does."""
        self.download(out.reshape(-1).view("u1").data, address)

    def clear(self, address: int, size: int) -> None:
        """Set the bytes of memory that was just allocated to 0; streams see that once ``settle`` has returned."""
        self.fill(address, size, 0)

    def settle(self) -> None:
        """Wait for what was placed and cleared; here all of it is done already."""
        return

    @abc.abstractmethod
    def upload(self, address: int, data: memoryview) -> None:
        """Copy host bytes to the device; done when it returns."""

    @abc.abstractmethod
    def download(self, data: memoryview, address: int) -> None:
        """Copy device bytes to the host; done when it returns, after earlier work on the default stream."""

    @abc.abstractmethod
    def fill(self, address: int, size: int, byte: int = 0) -> None:
        """Set ``size`` bytes to one value."""

    def pin(self, size: int) -> PinnedMemory:
        """Get host memory that copies can use by themselves: here, memory as any other."""
        block = self.allocate(size)
        return PinnedMemory(block.address, size, block)

    def trim(self, keep_bytes: int) -> None:
        """Release memory that arrays in streams no longer use, except for ``keep_bytes``. This
        backend keeps no memory.
        """
        del keep_bytes

    @property
    def cache_bytes(self) -> int:
        """Size in bytes of the largest cache that all SMs or cores share, or 0 if unknown."""
        return 0

    def ordinal_of(self, address: int) -> int | None:
        """Return the GPU that memory is on, if there are several. None if that does not matter or is unknown."""
        del address
        return None

    # -- order --------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def synchronize(self) -> None:
        """Wait until all work on the device is done.

        Raises:
            DriverError: a kernel failed.
        """

    def order(self, earlier: int, later: int) -> None:
        """Make stream ``later`` wait for the work now on stream ``earlier``; a place that works in order need not."""
        del earlier, later

    def stream(self, device: DeviceLike, of: object = None, priority: int | None = None) -> Stream:
        """Make a stream of ``device``, or see another library's stream or a handle as one.

        Raises:
            UnsupportedError: there are none here.
            LaunchError: ``of`` is no stream, or the priority is none that the device has.
        """
        del device, of, priority
        raise UnsupportedError(f"{self.name} doesn't support streams")

    def green_contexts(self, device: DeviceLike, counts: Sequence[int | None]) -> tuple[GreenContext, ...]:
        """Split the SMs of the place, and make a green context for each count; None is for the SMs that are left.

        Raises:
            UnsupportedError: there are none here.
            LaunchError: the place has too few SMs.
        """
        del device, counts
        raise UnsupportedError(f"{self.name} doesn't support green contexts")

    def graph(self, device: DeviceLike, stream: Stream, mode: str) -> Graph:
        """Make a graph that ``stream``, one of this place, will be captured into.

        Raises:
            UnsupportedError: there are none here.
        """
        del device, stream, mode
        raise UnsupportedError(f"{self.name} doesn't support graphs")

    # -- what only some have ------------------------------------------------------------------------------

    @property
    def watchers(self) -> Sequence[Watcher]:
        """Who watches what is loaded."""
        return ()

    @property
    def textures(self) -> TextureUnit:
        """What it does for textures.

        Raises:
            UnsupportedError: it has none.
        """
        raise UnsupportedError(f"{self.name} doesn't support textures")

    def encode_tensor_map(self, tiling: Tiling) -> bytes:
        """Write the 128 bytes of a tensor map that was checked.

        Raises:
            UnsupportedError: there are no tensor maps, or none like this.
            DriverError: the driver reported an error.
        """
        del tiling
        raise UnsupportedError(f"{self.name} doesn't support tensor maps")
