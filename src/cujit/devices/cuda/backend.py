"""The GPU back end, which operates a device through the CUDA driver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cujit.arch import Arch
from cujit.artifact import Artifact
from cujit.devices.backend import Backend
from cujit.devices.cuda import copies, memory
from cujit.devices.cuda.assembler import installed_assembler
from cujit.devices.cuda.gpu import Gpu
from cujit.devices.cuda.graph import CudaGraph
from cujit.devices.cuda.module import CudaModule
from cujit.devices.cuda.plain import PlainCubins, plain_cubins
from cujit.devices.cuda.routes import RoutePlace
from cujit.devices.cuda.stream import CudaStream
from cujit.devices.cuda.tensor_map import encode
from cujit.devices.cuda.texture import CudaTextures
from cujit.devices.jit_options import JitOptions
from cujit.devices.shapes import Dim3, Limits
from cujit.devices.streams import Allocation, DeviceLike, PinnedMemory, Stream
from cujit.devices.tensormaps.tiling import Tiling
from cujit.devices.watch import Watcher, emulated_watchers
from cujit.errors import DeviceNotFoundError, UnsupportedError
from cujit.errors.hints import Hint
from cujit.forks import cached_property
from cujit.toolchain.driver import Driver, open_driver

if TYPE_CHECKING:
    import numpy.typing as npt

    from cujit.devices.green_contexts import GreenContext

_FIRST_WITH_TENSOR_MAPS = 90
"""Source: CUDA Driver API manual, ``cuTensorMapEncodeTiled``: compute capability 9.0 or higher."""


class CudaBackend(Backend):
    """The GPU with number ``ordinal`` among the GPUs that the driver shows to this process.

    The back end uses the GPU's primary context, which it shares with the CUDA runtime and other libraries. A process
    that is forked later can't use the back end. The driver then refuses calls, and the error explains why.

    Raises:
        DriverNotFoundError: no CUDA driver is installed.
        DeviceNotFoundError: there is no GPU with that number.
    """

    is_gpu = True

    def __init__(self, ordinal: int = 0, driver: Driver | None = None) -> None:
        driver = driver or open_driver()
        count = driver.device_count()
        if not 0 <= ordinal < count:
            have = ", ".join(f"cuda:{i}" for i in range(count))
            raise DeviceNotFoundError(
                f"there is no GPU {ordinal}: the driver shows {count} to this process" + (f" ({have})" if have else ""),
                help="GPU numbers start at 0, and CUDA_VISIBLE_DEVICES can hide GPUs",
            )
        self.ordinal = ordinal
        self._count = count
        self.context = Gpu(driver, ordinal)
        self.name = self.context.name
        name: bytes = driver.call("cuDeviceGetName", 256, self.context.device)
        self.product = name.split(b"\0", 1)[0].decode(errors="replace")
        get = self.context.attribute
        self.arch = Arch.of_capability(get("COMPUTE_CAPABILITY_MAJOR"), get("COMPUTE_CAPABILITY_MINOR"))
        self.limits = Limits(
            max_threads=get("MAX_THREADS_PER_BLOCK"),
            max_block=Dim3(get("MAX_BLOCK_DIM_X"), get("MAX_BLOCK_DIM_Y"), get("MAX_BLOCK_DIM_Z")),
            max_grid=Dim3(get("MAX_GRID_DIM_X"), get("MAX_GRID_DIM_Y"), get("MAX_GRID_DIM_Z")),
            shared_bytes=get("MAX_SHARED_MEMORY_PER_BLOCK"),
            shared_bytes_optin=get("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
            processors=get("MULTIPROCESSOR_COUNT"),
            warp_size=get("WARP_SIZE"),
            threads_per_processor=get("MAX_THREADS_PER_MULTIPROCESSOR"),
        )

    @cached_property
    def _route_place(self) -> RoutePlace:
        driver = self.context.driver
        return RoutePlace(self.arch, self.name, driver.version, installed_assembler, driver.is_emulated)

    def load(self, artifact: Artifact, options: JitOptions | None = None) -> CudaModule:
        """Load a cubin, a fatbin, or PTX, which the driver compiles.

        PTX that is newer than the driver is assembled by the installed nvJitLink. If nvJitLink can't be used, the
        ``.version`` is lowered to the driver's, if the text uses no newer features. ``options`` are for the PTX
        compiler.

        Raises:
            LoadError: the image does not run on this GPU. The message describes an image that would run.
            DriverError: the driver rejected the image. ``log`` contains the output of the driver's compiler.
        """
        return CudaModule(self.context, self.limits, self._route_place, artifact, options or JitOptions())

    def plain_cubins(self, device: DeviceLike, patterns: object) -> PlainCubins | None:
        """Return the native functions that load cubins, or None without native code. An emulated GPU has none, because
        it runs only PTX.
        """
        if self.context.driver.is_emulated:
            return None
        return plain_cubins(self.context, self.arch, self.limits, device, patterns)

    def link(self, artifacts: Sequence[Artifact]) -> Artifact:
        """Link images with the driver into a cubin for this GPU.

        Raises:
            LinkError: the images can't be linked. ``log`` contains the reason.
            DriverError: the driver reported an error.
        """
        from cujit.devices.cuda.linker import link_with_driver  # for where nvJitLink is not installed

        return link_with_driver(self.context, self.arch, artifacts)

    # -- memory -------------------------------------------------------------------------------------------

    def allocate(self, size: int) -> Allocation:
        """Allocate ``size`` bytes, aligned to 256. The memory is released when nothing refers to the Allocation.

        Raises:
            DriverError: the GPU is out of memory.
        """
        return self._blocks.allocate(size)

    @cached_property
    def _blocks(self) -> memory.Blocks:
        return memory.blocks_of(self.context)

    def upload(self, address: int, data: memoryview) -> None:
        """Copy host bytes to the GPU, and return when the copy is done."""
        copies.upload(self.context, address, data)

    def download(self, data: memoryview, address: int) -> None:
        """Copy GPU bytes to the host after all earlier work on the default stream, and return when the copy is done."""
        copies.download(self.context, data, address)

    def place(self, address: int, data: npt.NDArray[Any]) -> None:
        """Copy an array of the host to new memory, of which no stream knows before ``settle``."""
        copies.place(self.context, address, data)

    def fetch(self, out: npt.NDArray[Any], address: int) -> None:
        """Copy GPU bytes to a host array, as ``download`` does."""
        copies.download(self.context, out, address)

    def clear(self, address: int, size: int) -> None:
        """Set the bytes of new memory to 0, of which no stream knows before ``settle``."""
        copies.clear(self.context, address, size)

    def settle(self) -> None:
        """Wait until all placements and clears of new memory are done."""
        unsettled = self.context.ring.unsettled
        if unsettled.issued != unsettled.settled:
            copies.settle(self.context)

    def fill(self, address: int, size: int, byte: int = 0) -> None:
        """Set ``size`` bytes to one value."""
        copies.fill(self.context, address, size, byte)

    def pin(self, size: int) -> PinnedMemory:
        """Allocate page-locked host memory."""
        return memory.pin(self.context, size)

    def trim(self, keep_bytes: int) -> None:
        """Release to the system the memory that the pool keeps, except for ``keep_bytes``."""
        self.context.trim(keep_bytes)

    @cached_property
    def cache_bytes(self) -> int:
        """Bytes of the L2 cache."""
        return self.context.attribute("L2_CACHE_SIZE")

    def ordinal_of(self, address: int) -> int | None:
        """Return the number of the GPU that memory is on. Return None for managed or host memory, or if the driver
        shows only one GPU.
        """
        if self._count < 2 or self._pointer("IS_MANAGED", address):
            return None
        device = int(self.context.driver.bindings.CUmemorytype.CU_MEMORYTYPE_DEVICE)
        return self._pointer("DEVICE_ORDINAL", address) if self._pointer("MEMORY_TYPE", address) == device else None

    def _pointer(self, name: str, address: int) -> int | None:
        """Return an attribute of an address from the driver, or None if the driver doesn't know the address."""
        bindings = self.context.driver.bindings
        which = getattr(bindings.CUpointer_attribute, f"CU_POINTER_ATTRIBUTE_{name}")
        with self.context as driver:
            status, *value = driver.attempt("cuPointerGetAttribute", which, address)
        return int(value[0]) if status == bindings.CUresult.CUDA_SUCCESS else None

    # -- order --------------------------------------------------------------------------------------------

    def synchronize(self) -> None:
        """Wait until all work on the GPU is done.

        Raises:
            DriverError: a kernel failed.
        """
        self.context.synchronize()

    def order(self, earlier: int, later: int) -> None:
        """Make stream ``later`` wait for the work now on stream ``earlier``, without waiting here."""
        self.context.order(earlier, later)

    def stream(self, device: DeviceLike, of: object = None, priority: int | None = None) -> CudaStream:
        """Create a stream that does not wait for the default stream, or wrap another library's stream."""
        if of is None:
            return CudaStream(device, self.context, priority=priority)
        return CudaStream.of(device, self.context, of)

    def green_contexts(self, device: DeviceLike, counts: Sequence[int | None]) -> tuple[GreenContext, ...]:
        """Split the SMs, and make a green context for each count."""
        from cujit.devices.cuda.green_context import green_contexts  # start-up: few programs split a GPU

        return green_contexts(device, self.context, counts)

    def graph(self, device: DeviceLike, stream: Stream, mode: str) -> CudaGraph:
        """Make a graph that ``stream`` is captured into."""
        return CudaGraph(device, self.context, stream, mode)

    # -- what only some have ------------------------------------------------------------------------------

    @property
    def watchers(self) -> Sequence[Watcher]:
        """The watchers of loaded images: the checks of ``cujit emulate`` for an emulated GPU, otherwise none."""
        return emulated_watchers() if self.context.driver.is_emulated else ()

    @cached_property
    def textures(self) -> CudaTextures:
        """CUDA arrays, and the driver's texture and surface objects."""
        return CudaTextures(self.context)

    def encode_tensor_map(self, tiling: Tiling) -> bytes:
        """Return the 128 bytes of a tensor map, which the driver encodes.

        Raises:
            UnsupportedError: the GPU has no tensor memory accelerator.
            DriverError: the driver reported an error.
        """
        if self.arch.number < _FIRST_WITH_TENSOR_MAPS:
            raise UnsupportedError(
                f"{self.product} ({self.arch}) doesn't support tensor maps, which require "
                f"sm_{_FIRST_WITH_TENSOR_MAPS} or later",
                help=Hint(
                    "copy with cp.async, or run on the CPU device: device=cujit.cpu()",
                    shell="copy with cp.async, or run on the CPU device: --device cpu",
                ),
            )
        return encode(self.context, tiling)
