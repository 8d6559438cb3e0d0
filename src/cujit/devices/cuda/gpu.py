"""A GPU's context, with the state that its streams, events, graphs, and textures share: its memory pool and its
captures.
"""

from __future__ import annotations

from typing import Any

from cujit.devices.cuda import memory
from cujit.devices.cuda.context import GpuContext
from cujit.devices.streams import Graph
from cujit.errors import DriverError
from cujit.forks import cached_property
from cujit.toolchain.driver import Driver

_DEFAULT_STREAM = 0
_KEPT_PART = 8
"""The part of a GPU's memory that its pool keeps for arrays in streams: one in 8, so that several processes have room
on one GPU."""


class Gpu(GpuContext):
    """The primary context of GPU ``ordinal``."""

    def __init__(self, driver: Driver, ordinal: int) -> None:
        super().__init__(driver, ordinal)
        self.capturing: dict[int, Graph] = {}
        """The graphs that are being captured, by the handle of the stream that it began in."""

    def attribute(self, name: str) -> int:
        """Ask the driver for an attribute of the GPU."""
        which: Any = getattr(self.driver.bindings.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self.driver.call("cuDeviceGetAttribute", which, self.device))

    def keep_in_graph(self, stream: int, *objects: object) -> None:
        """Make the graph that is captured in a stream keep objects. If cujit doesn't capture that stream, all graphs
        that cujit captures keep the objects.
        """
        graph = self.capturing.get(stream)
        for holder in [graph] if graph is not None else list(self.capturing.values()):
            holder.keep(*objects)

    @cached_property
    def has_pools(self) -> bool:
        """Whether the GPU can allocate memory in stream order."""
        return bool(self.attribute("MEMORY_POOLS_SUPPORTED"))

    @cached_property
    def pool(self) -> memory.MemoryPool:
        """The memory pool for arrays that are allocated in streams.

        Raises:
            DriverError: the driver refused, or the GPU doesn't support memory pools.
        """
        total = int(self.driver.call("cuDeviceTotalMem", self.device))
        return memory.MemoryPool(self, total // _KEPT_PART)

    def trim(self, keep_bytes: int) -> None:
        """Release unused memory to the system, except for ``keep_bytes``.

        Raises:
            DriverError: the driver reported an error.
        """
        memory.blocks_of(self).trim()
        if "pool" in self.__dict__:  # or there is nothing to give back
            self.pool.trim(keep_bytes)

    def release_unused(self, function: str, handle: Any) -> None:
        """Release an array of texels or an object once no kernel can use it any more.

        The manual promises that ``cuMemFree`` waits, but not that these calls wait. Therefore, this method waits for
        all work. During a capture, waiting would invalidate the graph, so this method doesn't wait. Earlier launches
        must then already be done. Source: CUDA C++ Programming Guide, "CUDA Graphs", prohibited operations.
        """
        try:
            with self as driver:
                if not self.capturing and self._nobody_captures(driver):
                    driver.attempt("cuCtxSynchronize")
        except Exception:  # a dead context, where nothing runs
            return
        self.release(function, handle)

    def _nobody_captures(self, driver: Driver) -> bool:
        """Return whether the default stream shows no capture by another library."""
        status, *_ = driver.attempt("cuStreamIsCapturing", _DEFAULT_STREAM)
        return bool(status == driver.bindings.CUresult.CUDA_SUCCESS)

    def order(self, earlier: int, later: int) -> None:
        """Make stream ``later`` wait for the work now on stream ``earlier``, without waiting here."""
        if self._is_capturing(later) and not self._is_capturing(earlier):
            return  # a graph waits for nothing outside of it: it runs in the order of the stream that it is launched in
        try:
            with self as driver:
                event = driver.call("cuEventCreate", driver.bindings.CUevent_flags.CU_EVENT_DISABLE_TIMING.value)
                try:
                    driver.call("cuEventRecord", event, earlier)
                    driver.call("cuStreamWaitEvent", later, event, 0)
                finally:
                    driver.attempt("cuEventDestroy", event)
        except DriverError as e:
            raise self.explained(e) from None

    def _is_capturing(self, stream: int) -> bool:
        """Return whether a stream is captured into a graph. The default streams never are."""
        return stream > 1 and memory.is_capturing(self, stream)
