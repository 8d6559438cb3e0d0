"""A kernel on a GPU: its resources, its parameters, its launch."""

from __future__ import annotations

import ctypes
import functools
import operator
import threading
from collections.abc import Sequence
from typing import Any

from cujit.devices.arguments.signatures import signature_of_layout
from cujit.devices.backend import BackendKernel, PlainTarget, Target
from cujit.devices.cuda.context import GpuContext
from cujit.devices.cuda.driver_module import DriverModule
from cujit.devices.cuda.launching import LaunchConfig, driver_entries, launch_config
from cujit.devices.cuda.memory import relaxed
from cujit.devices.launcher.cubin import CubinKernelFacts
from cujit.devices.options import PLAIN, LaunchOptions, check_cluster, check_cooperative, check_own_cluster
from cujit.devices.shapes import Dim3, HostExtent, LaunchShape, Limits, Resources, check_launch
from cujit.errors import DriverError, LaunchError, UnsupportedError
from cujit.errors.hints import Hint
from cujit.forks import cached_property
from cujit.signature import Signature
from cujit.values import attributes, replace

# Source: cuda.h, CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE, CU_LAUNCH_PARAM_END.
_BUFFER_POINTER = 1
_BUFFER_SIZE = 2
_END = 0

_PORTABLE_CLUSTER = 8
"""Blocks of a cluster that every GPU with clusters takes.

Source: CUDA C++ Programming Guide, "Thread Block Clusters".
"""

_OVERLAP_SINCE = 9
"""Major compute capability from which a kernel can start before the one before it has ended.

Source: CUDA C++ Programming Guide, "Programmatic Dependent Launch and Synchronization".
"""

_FOREIGN_STREAM = ("CUDA_ERROR_INVALID_HANDLE", "CUDA_ERROR_INVALID_CONTEXT")
"""What the driver says of a stream of another context, among other things."""

_BROKEN_LIMITS = (
    "CUDA_ERROR_INVALID_VALUE",
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
    "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
    "CUDA_ERROR_INVALID_CLUSTER_SIZE",
)


class CudaKernel(BackendKernel):
    """One kernel of an image that the driver loaded, on one GPU.

    The kernel keeps the image loaded. ``facts`` contains the data for launches, if the image could be read. The driver
    is queried only for other data, or if a launch is near a limit.
    """

    submit = "gpu"

    def __init__(self, module: DriverModule, limits: Limits, name: str, facts: CubinKernelFacts | None = None) -> None:
        self.name = name
        self._module = module
        self._context = module.context
        self._limits = limits
        self._facts = facts
        self._handle = module.function(name)
        self._lock = threading.Lock()
        self._shared_bytes_allowed = 0

    @cached_property
    def signature(self) -> Signature:  # type: ignore[override]
        """The sizes and offsets of the parameters. Neither the image nor the driver provides more."""
        return signature_of_layout(self._layout()) if self._facts is None else self._facts.signature

    @property
    def parameters(self) -> bytes | None:
        """Sizes and places of the parameters, as native code read them."""
        return None if self._facts is None else self._facts.parameters

    @property
    def _function(self) -> int:
        """The ``CUfunction``.

        Raises:
            ClosedError: the module was closed.
        """
        self._module.require()
        return int(self._handle)

    @cached_property
    def resources(self) -> Resources:
        """The kernel's resource usage, as reported by the driver."""

        def get(name: str) -> int:
            return int(self._context.call("cuFuncGetAttribute", self._attribute(name), self._function))

        return Resources(
            registers=get("NUM_REGS"),
            shared_bytes=get("SHARED_SIZE_BYTES"),
            local_bytes=get("LOCAL_SIZE_BYTES"),
            constant_bytes=get("CONST_SIZE_BYTES"),
            max_threads=get("MAX_THREADS_PER_BLOCK"),
        )

    def _attribute(self, name: str) -> Any:
        return getattr(self._context.driver.bindings.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")

    def launch(
        self,
        shape: LaunchShape,
        parameters: bytes | bytearray,
        stream: int = 0,
        options: LaunchOptions = PLAIN,
        extents: Sequence[HostExtent] = (),
    ) -> None:
        """Start the kernel; it runs after the work that is already in ``stream``.

        Raises:
            ClosedError: the module was closed.
            DriverError: the driver reported an error.
        """
        del extents
        function = self._function
        self._allow(shape, options)
        size = ctypes.c_size_t(len(parameters))
        buffer = (ctypes.c_char * len(parameters)).from_buffer_copy(parameters)
        extra = (ctypes.c_void_p * 5)(
            _BUFFER_POINTER, ctypes.addressof(buffer), _BUFFER_SIZE, ctypes.addressof(size), _END
        )
        # The driver copies the buffer before it returns.
        packed = ctypes.addressof(extra) if len(parameters) else 0
        with self._context as driver:
            if options == PLAIN:
                sizes = (*shape.grid, *shape.block, shape.shared_bytes)
                (result,) = driver.attempt("cuLaunchKernel", function, *sizes, stream, 0, packed)
                status = int(result)
            else:
                config = launch_config(shape, stream, options)
                status = driver_entries(driver).launch_ex(config, function, packed)
        if status:
            self._failed(shape, options, stream, status)
        self._context.ring.note(self._label, shape, stream)

    @cached_property
    def _label(self) -> int:
        """The label by which its launches are written down."""
        return self._context.ring.label(self.name)

    def fits(self, shape: LaunchShape, limits: Limits) -> bool:
        """Return whether a launch is within all limits according to the image. False leaves the
        decision to the driver.
        """
        grid, block, facts = shape.grid, shape.block, self._facts
        if facts is None or facts.shared_bytes + shape.shared_bytes > limits.shared_bytes:
            return False
        if block.x * block.y * block.z > self._most_threads(facts, limits):
            return False
        return all(map(operator.le, (*grid, *block), (*limits.max_grid, *limits.max_block)))

    @staticmethod
    def _most_threads(facts: CubinKernelFacts, limits: Limits) -> int:
        """Count the threads that a block surely can have."""
        return min(limits.max_threads, facts.max_threads or limits.max_threads, _most_threads(facts.registers))

    def plain(self, limits: Limits) -> PlainTarget | None:
        """Return the target of all launches within the limits, or None if the image alone doesn't
        determine the target.
        """
        facts = self._facts
        if facts is None or facts.has_clusters or facts.shared_bytes > limits.shared_bytes:
            return None
        return PlainTarget(launch_fields(self._context), self._function, self._label, self._most_threads(facts, limits))

    def check_options(self, shape: LaunchShape, options: LaunchOptions) -> None:
        """Check a launch's cluster, cooperative blocks, overlap, and priority against the limits that the driver
        reports.

        Raises:
            ClosedError: the module was closed.
            LaunchError: a limit is exceeded. The message contains the limit and the requested number.
            DriverError: the driver reported an error.
        """
        if (options is PLAIN or options == PLAIN) and self._is_plain:
            return
        if options.timeout_s is not None:
            raise LaunchError(
                f"{self.title}: only the CPU device supports timeout_s; a launch on a GPU can't be stopped",
                help="remove timeout_s, or launch on cujit.cpu()",
            )
        if options.priority is not None:
            self._context.check_priority(options.priority, f"{self.title}: ", "; None takes the stream's")
        if options.overlap:
            self._require_overlap()
        own = self.own_cluster
        check_own_cluster(self.title, options.cluster, own, must_be_set=self._needs_cluster)
        cluster = options.cluster or own
        if cluster is not None:
            self._require_clusters()
            self._allow(shape, replace(options, cluster=cluster))
            # Whether the grid of a kernel with clusters of its own counts blocks or clusters only the driver knows.
            whole = shape if own is None else replace(shape, grid=cluster)
            check_cluster(self.title, whole, cluster, self._largest_cluster(shape))
        if options.cooperative:
            check_cooperative(self.title, shape, self.together(shape, cluster))

    def preload(self) -> None:
        """Make sure that the driver has loaded the kernel's code. The driver loads code when a kernel is looked up.

        Source: CUDA C++ Programming Guide, "Lazy Loading"; CUDA Driver API manual, ``cuFuncLoad``.

        Raises:
            ClosedError: the module was closed.
            DriverError: the driver reported an error.
        """
        function = self._function
        with relaxed(self._context) as driver:
            (status,) = driver.attempt("cuFuncLoad", function)
        if status:
            raise self._context.explained(self._context.driver.error("cuFuncLoad", status))

    def target(self, shape: LaunchShape, stream: int, options: LaunchOptions, size: int) -> Target | None:
        """Return the values for the driver call that launches the kernel.

        Raises:
            ClosedError: the module was closed.
            DriverError: the driver reported an error.
        """
        del size
        function = self._function
        self._allow(shape, options)
        config = None if options is PLAIN or options == PLAIN else launch_config(shape, stream, options)
        fields = {
            **launch_fields(self._context),
            "function": function,
            "stream": stream,
            "config": ctypes.addressof(config) if config is not None else 0,
            "dynamic_bytes": shape.shared_bytes,
            "label": self._label,
            **{f"grid_{axis}": n for axis, n in zip("xyz", shape.grid, strict=True)},
            **{f"block_{axis}": n for axis, n in zip("xyz", shape.block, strict=True)},
        }
        failed = functools.partial(self._failed, shape, options, stream)
        return Target(fields, failed, (config, self._module))

    def active_blocks(self, block_threads: int, shared_bytes: int = 0) -> int:
        """Count the blocks that one multiprocessor holds at a time.

        Raises:
            DriverError: the driver reported an error.
        """
        self._allow_shared(shared_bytes)
        query = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
        return int(self._context.call(query, self._function, block_threads, shared_bytes))

    def best_block(self, shared_bytes: int = 0) -> int:
        """Choose the threads per block of highest occupancy.

        Raises:
            DriverError: the driver reported an error.
        """
        self._allow_shared(shared_bytes)
        _grid, block = self._context.call("cuOccupancyMaxPotentialBlockSize", self._function, None, shared_bytes, 0)
        return int(block)

    def _allow_shared(self, dynamic: int) -> None:
        """Allow a kernel more dynamic shared memory than the default limit, if a launch needs it.

        Source: CUDA C++ Programming Guide, "Shared Memory" of compute capability 7.x and later: above 48 KiB only with
        ``cuFuncSetAttribute``.
        """
        if dynamic <= self._shared_bytes_allowed:
            return
        static = self.resources.shared_bytes if self._facts is None else self._facts.shared_bytes
        if static + dynamic <= self._limits.shared_bytes:
            return
        which = self._attribute("MAX_DYNAMIC_SHARED_SIZE_BYTES")
        with self._lock:
            if dynamic <= self._shared_bytes_allowed:  # another thread asked for more: less must not come after it
                return
            self._set_attribute(which, dynamic)
            self._shared_bytes_allowed = dynamic

    def _allow(self, shape: LaunchShape, options: LaunchOptions) -> None:
        """Allow the shared memory and the large cluster that a launch needs, if they exceed the default limits.

        Source: CUDA C++ Programming Guide, "Thread Block Clusters": above 8 blocks only with the attribute.
        """
        self._allow_shared(shape.shared_bytes)
        if options.cluster is not None and options.cluster.volume > _PORTABLE_CLUSTER:
            self._set_attribute(self._attribute("NON_PORTABLE_CLUSTER_SIZE_ALLOWED"), 1)

    def _set_attribute(self, which: Any, value: int) -> None:
        """Set an attribute of the kernel."""
        self._context.call("cuFuncSetAttribute", self._function, which, value)

    def cancel(self) -> None:
        """Raise UnsupportedError, because a launch on a GPU can't be stopped."""
        raise UnsupportedError(
            f"{self.title}: a launch on a GPU can't be stopped",
            help=Hint(
                "try the launch on the CPU device: cujit.cpu()", shell="try the launch on the CPU device: --device cpu"
            ),
        )

    def _require_clusters(self) -> None:
        attribute = self._context.driver.bindings.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH
        if not self._context.call("cuDeviceGetAttribute", attribute, self._context.device):
            raise LaunchError(
                f"{self.title}: this GPU doesn't support clusters",
                help="clusters require sm_90 or later; remove the cluster on older GPUs",
                code="cluster-size",
            )

    def _require_overlap(self) -> None:
        attribute = self._context.driver.bindings.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
        major = int(self._context.call("cuDeviceGetAttribute", attribute, self._context.device))
        if major < _OVERLAP_SINCE:
            raise LaunchError(
                f"{self.title}: overlap requires compute capability {_OVERLAP_SINCE}.0 or later, but this GPU "
                f"has {major}",
                help="on GPUs older than sm_90, remove overlap: the kernel then waits for the preceding kernel",
            )

    def together(self, shape: LaunchShape, cluster: Dim3 | None = None) -> int:
        """Count the blocks that run at a time, where a cluster runs whole or not at all.

        Raises:
            ClosedError: the module was closed.
            LaunchError: the GPU has no such clusters.
            DriverError: the driver reported an error.
        """
        cluster = cluster or self.own_cluster
        if cluster is None:
            blocks = self.active_blocks(shape.block.volume, shape.shared_bytes)
            return blocks * self._limits.processors
        one, options = replace(shape, grid=cluster), LaunchOptions(cluster=cluster)
        self._require_clusters()
        self._allow(one, options)
        check_cluster(self.title, one, cluster, self._largest_cluster(one))
        config = launch_config(one, 0, options)
        return self._count("cuOccupancyMaxActiveClusters", "max_active_clusters", config) * cluster.volume

    def _largest_cluster(self, shape: LaunchShape) -> int:
        """Return the number of blocks in the largest cluster that the kernel can run in. A kernel with a fixed cluster
        runs only in that cluster.
        """
        if self.own_cluster is not None:
            return self.own_cluster.volume
        # The cluster of the configuration is not looked at; a kernel whose launch has to say one wants any.
        options = LaunchOptions(cluster=Dim3(1)) if self._needs_cluster else PLAIN
        return self._count("cuOccupancyMaxPotentialClusterSize", "max_cluster_size", launch_config(shape, 0, options))

    @cached_property
    def own_cluster(self) -> Dim3 | None:
        """The cluster that the kernel was compiled for (``__cluster_dims__``)."""
        if self._is_plain:
            return None
        sizes = [self._cluster_attribute(f"REQUIRED_CLUSTER_{axis}") for axis in ("WIDTH", "HEIGHT", "DEPTH")]
        return Dim3(*(max(n, 1) for n in sizes)) if any(sizes) else None

    @property
    def _is_plain(self) -> bool:
        """Whether the source specifies nothing about clusters, according to the image."""
        return self._facts is not None and not self._facts.has_clusters

    @cached_property
    def _needs_cluster(self) -> bool:
        """Whether the kernel was compiled for clusters and the launch must specify their size."""
        return (
            not self._is_plain
            and self.own_cluster is None
            and bool(self._cluster_attribute("CLUSTER_SIZE_MUST_BE_SET"))
        )

    def _cluster_attribute(self, name: str) -> int:
        """Return a function attribute that was introduced with sm_90, or 0 if the driver doesn't support it."""
        function = self._function
        with self._context as driver:
            status, *value = driver.attempt("cuFuncGetAttribute", self._attribute(name), function)
        return int(value[0]) if status == self._context.driver.bindings.CUresult.CUDA_SUCCESS else 0

    def _count(self, function: str, entry: str, config: LaunchConfig) -> int:
        handle = self._function
        with self._context as driver:
            entries = driver_entries(driver)
            status, number = entries.count(getattr(entries, entry), handle, config)
        if status:
            raise self._context.refused(function, status)
        return number

    def _failed(self, shape: LaunchShape, options: LaunchOptions, stream: int, status: int) -> None:
        """Raise an error that explains why the driver refused a launch.

        The error names an exceeded limit or a stream of another context. Otherwise, it contains the driver's message.

        Raises:
            LaunchError: a limit is exceeded, or the stream belongs to another context.
            DriverError: the launch failed for another reason.
        """
        error = self._context.refused("cuLaunchKernel" if options == PLAIN else "cuLaunchKernelEx", status)
        if error.result in _FOREIGN_STREAM and stream and self._is_foreign(stream):
            raise LaunchError(
                f"{self.title}: stream {stream:#x} belongs to another context of {self._context.name}, but "
                "cujit launches in the primary context",
                help="launch in a stream that belongs to the primary context: stream = device.stream()",
            ) from error
        if error.result in _BROKEN_LIMITS:
            try:
                check_launch(self.title, shape, self._limits, self.resources)
                self.check_options(shape, options)
                if error.result == "CUDA_ERROR_INVALID_CLUSTER_SIZE" and self.own_cluster is not None:
                    check_cluster(self.title, shape, self.own_cluster, self.own_cluster.volume)
            except DriverError:
                raise error from None
            raise self._with_numbers(error, shape) from None
        raise error

    def _is_foreign(self, stream: int) -> bool:
        """Return whether a stream is of another context than the kernel."""
        with self._context as driver:
            # Of a stream of a green context, the first form gives a handle of its own.
            function = "cuStreamGetCtx_v2" if driver.version >= (12, 5) else "cuStreamGetCtx"
            status, *context = driver.attempt(function, stream)
        return not status and int(context[0]) != int(self._context.handle)

    def _with_numbers(self, error: DriverError, shape: LaunchShape) -> DriverError:
        """Return the driver's error with the launch configuration and the kernel's resource usage added.

        It is for limits that cujit doesn't check.
        """
        uses = self.resources
        return DriverError(
            f"{error.message}\n  {self.title}: grid {tuple(shape.grid)}, block {tuple(shape.block)} = "
            f"{shape.block.volume} threads, {shape.shared_bytes} bytes of dynamic shared memory. "
            f"The kernel uses {uses.registers} registers and {uses.local_bytes} bytes of local memory per thread, and "
            f"{uses.shared_bytes} bytes of shared memory per block. It supports up to {uses.max_threads} threads per "
            "block",
            **error.facts,
            help=error.help
            or "use smaller blocks, less shared memory, or the block size that the kernel was compiled for (.reqntid)",
        )

    def _layout(self) -> list[tuple[int, int]]:
        """Ask the driver for offset and size in bytes of each parameter."""
        layout: list[tuple[int, int]] = []
        handle = self._function
        success = self._context.driver.bindings.CUresult.CUDA_SUCCESS
        with self._context as driver:
            while True:
                status, *place = driver.attempt("cuFuncGetParamInfo", handle, len(layout))
                if status != success:
                    # Source: CUDA Driver API manual: an index past the last is CUDA_ERROR_INVALID_VALUE.
                    if status == driver.bindings.CUresult.CUDA_ERROR_INVALID_VALUE:
                        return layout
                    raise self._context.explained(driver.error("cuFuncGetParamInfo", status))
                layout.append((int(place[0]), int(place[1])))


_REGISTERS = 65536
"""Registers that a block has together, given to warps in pieces of 256, to four warps at a time.

Source: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", sm_50 and up.
"""


@functools.lru_cache(64)
def launch_fields(context: GpuContext) -> dict[str, int]:
    """Return the fields that all launch states of a context have in common.

    Raises:
        DriverError: the driver lacks a required function.
    """
    names = "launch_kernel launch_kernel_ex get_context set_context push_context pop_context exchange synchronize"
    entries = attributes(driver_entries(context.driver), names)
    return {**entries, "context": int(context.handle), "ring": context.ring.address}


@functools.cache
def _most_threads(registers: int) -> int:
    """Count the threads that a block of a kernel surely has room for; 0 if the registers of a thread are not known."""
    of_warp = -(-registers * 32 // 256) * 256
    return _REGISTERS // of_warp // 4 * 4 * 32 if of_warp else 0
