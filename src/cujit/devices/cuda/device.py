"""A GPU."""

from __future__ import annotations

from typing import Any

from cujit.arch import Arch
from cujit.artifact import Artifact
from cujit.devices.base import Allocation, Device, Dim3, Limits
from cujit.devices.cuda import memory
from cujit.devices.cuda.assembler import installed_assembler
from cujit.devices.cuda.context import Context
from cujit.devices.cuda.image import choose_image
from cujit.devices.cuda.jitoptions import JitOptions
from cujit.devices.cuda.linker import DriverLinker
from cujit.devices.cuda.module import CudaModule
from cujit.devices.cuda.routes import Place
from cujit.devices.cuda.stream import Stream
from cujit.errors import DeviceNotFoundError
from cujit.toolchain.driver import Driver, open_driver

__all__ = ["CudaDevice"]


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
        self.name = f"cuda:{ordinal}"
        self.context = Context(driver, ordinal)
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
        self.context.call("cuCtxSynchronize")

    def stream(self) -> Stream:
        """Make a stream that does not wait for the default stream."""
        return Stream(self)

    def order(self, earlier: int, later: int) -> None:
        """Make stream ``later`` wait for the work now on stream ``earlier``, without waiting here."""
        with self.context as driver:
            event = driver.call("cuEventCreate", driver.bindings.CUevent_flags.CU_EVENT_DISABLE_TIMING.value)
            try:
                driver.call("cuEventRecord", event, earlier)
                driver.call("cuStreamWaitEvent", later, event, 0)
            finally:
                driver.attempt("cuEventDestroy", event)

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
