"""A GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cujit.arch import Arch
from cujit.artifact import Artifact
from cujit.devices.base import Allocation, Device, Dim3, Limits
from cujit.devices.cuda import memory
from cujit.devices.cuda.assembler import installed_assembler
from cujit.devices.cuda.faults import WatchedContext
from cujit.devices.cuda.graph import CudaGraph
from cujit.devices.cuda.image import choose_image
from cujit.devices.cuda.jitoptions import JitOptions
from cujit.devices.cuda.module import CudaModule
from cujit.devices.cuda.routes import Place
from cujit.devices.cuda.stream import Stream
from cujit.devices.cuda.tensormap import encode
from cujit.devices.cuda.texture import CudaTextures
from cujit.devices.pinned import PinnedMemory
from cujit.devices.streams import check_mode, check_priority
from cujit.devices.tensormaps import Tiling
from cujit.errors import DeviceNotFoundError, DriverError, UnsupportedError
from cujit.forks import cached_property
from cujit.toolchain.driver import Driver, open_driver

if TYPE_CHECKING:
    from cujit.devices.cuda.linker import DriverLinker

__all__ = ["CudaDevice"]

_KEPT_PART = 8
"""The part of a GPU's memory that its pool keeps for arrays in streams: one in 8, so that several processes have room
on one GPU."""

_FIRST_WITH_TENSOR_MAPS = 90
"""Source: CUDA Driver API manual, ``cuTensorMapEncodeTiled``: compute capability 9.0 or higher."""


class CudaDevice(Device):
    """The GPU with number ``ordinal`` among those that the driver shows to this process.

    It works in the GPU's primary context, which it shares with the CUDA runtime and so with other libraries.
    Not to be used in a process forked after it was made: the driver refuses, and the error says so.

    Raises:
        DriverNotFoundError: there is no driver.
        DeviceNotFoundError: there is no GPU with that number.
    """

    is_gpu = True

    def __init__(self, ordinal: int = 0, driver: Driver | None = None) -> None:
        driver = driver or open_driver()
        count = driver.device_count()
        if not 0 <= ordinal < count:
            have = ", ".join(f"cuda:{i}" for i in range(count))
            raise DeviceNotFoundError(
                f"no GPU {ordinal}: the driver shows {count} to this process" + (f" ({have})" if have else ""),
                help="numbers count from 0, and CUDA_VISIBLE_DEVICES hides GPUs",
            )
        self.ordinal = ordinal
        self._count = count
        self.name = f"cuda:{ordinal}"
        self.context = WatchedContext(driver, ordinal)
        self.capturing: dict[int, CudaGraph] = {}
        """The graphs that are being captured, by the handle of the stream that it began in."""
        name: bytes = driver.call("cuDeviceGetName", 256, self.context.device)
        self.product = name.split(b"\0", 1)[0].decode(errors="replace")
        self.arch = Arch.of_capability(
            self._attribute("COMPUTE_CAPABILITY_MAJOR"), self._attribute("COMPUTE_CAPABILITY_MINOR")
        )
        self.limits = self._limits()

    @property
    def driver(self) -> Driver:
        """The driver that it runs under."""
        return self.context.driver

    def load(self, artifact: Artifact, options: JitOptions | None = None) -> CudaModule:
        """Load a cubin, a fatbin, or PTX, which the driver compiles.

        PTX that is newer than the driver is assembled by the installed nvJitLink, or else its ``.version`` lowered to
        the driver's where everything in it is that old. ``options`` are those of the compiler of PTX.

        Raises:
            LoadError: the image does not run here; the message says what would.
            DriverError: the driver refused it; ``log`` is what its compiler wrote.
        """
        options = options or JitOptions()
        place = Place(self.arch, self.name, self.driver.version, installed_assembler)
        return CudaModule(self.context, self.limits, choose_image(artifact, place, options), options)

    def linker(self, options: JitOptions | None = None) -> DriverLinker:
        """Start a link by the driver, for where nvJitLink is not installed; it links for this GPU.

        Raises:
            DriverError: the driver refused.
        """
        from cujit.devices.cuda.linker import DriverLinker

        return DriverLinker(self.context, options or JitOptions())

    def allocate(self, size: int) -> Allocation:
        """Get ``size`` bytes, aligned to 256; released when nothing holds the Allocation.

        Raises:
            DriverError: the GPU has no such memory left.
        """
        return memory.allocate(self.context, size)

    def upload(self, address: int, data: memoryview) -> None:
        """Copy host bytes to the GPU; done when it returns."""
        memory.upload(self.context, address, data)

    def download(self, data: memoryview, address: int) -> None:
        """Copy bytes to the host; done when it returns, after all earlier work on the default stream."""
        memory.download(self.context, data, address)

    def fill(self, address: int, size: int, byte: int = 0) -> None:
        """Set ``size`` bytes to one value."""
        memory.fill(self.context, address, size, byte)

    def synchronize(self) -> None:
        """Wait until all work on the GPU is done.

        Raises:
            DriverError: a kernel failed.
        """
        self.context.synchronize()

    def stream(self, of: object = None, *, priority: int | None = None) -> Stream:
        """Make a stream that does not wait for the default stream, or see another library's stream as one of ours.

        ``of`` may also be a handle; 0 is the default stream. ``priority`` is of a new stream: lower is sooner, 0 the
        default.

        Raises:
            LaunchError: ``of`` is no stream, or the priority is none that the GPU has.
            DriverError: the driver refused.
            ClosedError: ``of`` was closed.
        """
        if priority is not None:
            check_priority(priority, of)
        if of is None:
            return Stream(self, priority=priority)
        return of if isinstance(of, Stream) and of.device is self else Stream.of(self, of)

    def capture(self, stream: object = None, *, mode: str = "relaxed") -> CudaGraph:
        """Capture work into a graph: ``with device.capture(stream) as graph: …``, and then ``graph.launch()``.

        ``stream`` is where the launches inside the block are made, ours or another library's; None makes one,
        ``graph.stream``. ``mode`` says what else threads may do meanwhile: ``relaxed`` anything, ``thread_local``
        nothing in this thread that could wait for the GPU, ``global`` in no thread.

        Raises:
            LaunchError: it is no stream, or the mode is none; at the start of the block also that the stream is the
                default stream, or captured already.
            DriverError: at the end of the block, that the work in it could not be captured.
        """
        check_mode(mode)
        return CudaGraph(self, self.stream() if stream is None else self.stream(self.queue(stream)), mode)

    def keep_in_graph(self, stream: int, *objects: object) -> None:
        """Have the graph that is captured in a stream hold objects; where none of ours is, nobody does."""
        graph = self.capturing.get(stream)
        for holder in [graph] if graph is not None else list(self.capturing.values()):
            holder.keep(*objects)

    def _pin(self, size: int) -> PinnedMemory:
        return memory.pin(self.context, size)

    @cached_property
    def textures(self) -> CudaTextures:
        """CUDA arrays, and the driver's texture and surface objects."""
        return CudaTextures(self.context, self._attribute("TEXTURE_ALIGNMENT"), self.capturing)

    def encode_tensor_map(self, tiling: Tiling) -> bytes:
        """Have the driver write the 128 bytes of a tensor map.

        Raises:
            UnsupportedError: the GPU has no tensor memory accelerator.
            DriverError: the driver refused.
        """
        if self.arch.number < _FIRST_WITH_TENSOR_MAPS:
            raise UnsupportedError(
                f"{self.product} ({self.arch}) has no tensor maps; GPUs from sm_{_FIRST_WITH_TENSOR_MAPS} on have",
                help="copy by cp.async there, or run on the CPU device: device=cujit.cpu()",
            )
        return encode(self.context, tiling)

    @cached_property
    def has_pools(self) -> bool:
        """Whether memory can be had in the order of a stream."""
        return bool(self._attribute("MEMORY_POOLS_SUPPORTED"))

    @cached_property
    def pool(self) -> memory.Pool:
        """The memory that arrays in streams are made of.

        Raises:
            DriverError: the driver refused, or the GPU has no pools.
        """
        total = int(self.driver.call("cuDeviceTotalMem", self.context.device))
        return memory.Pool(self.context, total // _KEPT_PART)

    def _trim(self, keep_bytes: int) -> None:
        if "pool" in self.__dict__:  # or there is nothing to give back
            self.pool.trim(keep_bytes)

    @cached_property
    def cache_bytes(self) -> int:
        """Bytes of the L2 cache."""
        return self._attribute("L2_CACHE_SIZE")

    def order(self, earlier: int, later: int) -> None:
        """Make stream ``later`` wait for the work now on stream ``earlier``, without waiting here."""
        if self._is_capturing(later) and not self._is_capturing(earlier):
            return  # a graph waits for nothing outside of it: it runs in the order of the stream that it is launched in
        try:
            with self.context as driver:
                event = driver.call("cuEventCreate", driver.bindings.CUevent_flags.CU_EVENT_DISABLE_TIMING.value)
                try:
                    driver.call("cuEventRecord", event, earlier)
                    driver.call("cuStreamWaitEvent", later, event, 0)
                finally:
                    driver.attempt("cuEventDestroy", event)
        except DriverError as e:
            raise self.context.explained(e) from None

    def _is_capturing(self, stream: int) -> bool:
        """Tell whether a stream is captured into a graph; the default streams never are."""
        if stream <= 1:
            return False
        none = self.driver.bindings.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE
        return bool(self.context.call("cuStreamIsCapturing", stream) != none)

    def ordinal_of(self, address: int) -> int | None:
        """Tell on which GPU memory is, where the driver shows several; None of memory that all of them reach."""
        if self._count < 2 or self._pointer("IS_MANAGED", address):
            return None
        device = int(self.driver.bindings.CUmemorytype.CU_MEMORYTYPE_DEVICE)
        return self._pointer("DEVICE_ORDINAL", address) if self._pointer("MEMORY_TYPE", address) == device else None

    def _pointer(self, name: str, address: int) -> int | None:
        """Ask the driver for an attribute of an address; None if it does not know the address."""
        which = getattr(self.driver.bindings.CUpointer_attribute, f"CU_POINTER_ATTRIBUTE_{name}")
        with self.context as driver:
            status, *value = driver.attempt("cuPointerGetAttribute", which, address)
        return int(value[0]) if status == self.driver.bindings.CUresult.CUDA_SUCCESS else None

    def _attribute(self, name: str) -> int:
        which: Any = getattr(self.driver.bindings.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self.driver.call("cuDeviceGetAttribute", which, self.context.device))

    def _limits(self) -> Limits:
        get = self._attribute
        return Limits(
            max_threads=get("MAX_THREADS_PER_BLOCK"),
            max_block=Dim3(get("MAX_BLOCK_DIM_X"), get("MAX_BLOCK_DIM_Y"), get("MAX_BLOCK_DIM_Z")),
            max_grid=Dim3(get("MAX_GRID_DIM_X"), get("MAX_GRID_DIM_Y"), get("MAX_GRID_DIM_Z")),
            shared_bytes=get("MAX_SHARED_MEMORY_PER_BLOCK"),
            shared_bytes_optin=get("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
            processors=get("MULTIPROCESSOR_COUNT"),
            warp_size=get("WARP_SIZE"),
            threads_per_processor=get("MAX_THREADS_PER_MULTIPROCESSOR"),
        )
