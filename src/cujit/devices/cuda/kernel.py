"""A kernel on a GPU: its resources, its parameters, its launch."""

from __future__ import annotations

import ctypes
import functools
import threading
from typing import Any

from cujit.devices.base import DeviceKernel, LaunchShape, Limits, Resources
from cujit.devices.cuda.library import Library
from cujit.devices.signatures import signature_of_layout
from cujit.signature import Signature

__all__ = ["CudaKernel"]

# Source: cuda.h, CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE, CU_LAUNCH_PARAM_END.
_BUFFER_POINTER = 1
_BUFFER_SIZE = 2
_END = 0


class CudaKernel(DeviceKernel):
    """One kernel of a library that the driver loaded, in the primary context of one GPU.

    It keeps the library loaded. The driver is asked about it only when somebody asks for its signature, its
    resources or a launch, so a library of a thousand kernels loads as fast as one of one.
    """

    def __init__(self, library: Library, limits: Limits, handle: Any, name: str) -> None:
        self.name = name
        self._library = library
        self._context = library.context
        self._limits = limits
        self._handle = handle
        self._lock = threading.Lock()
        self._shared_bytes_allowed = 0

    @functools.cached_property
    def signature(self) -> Signature:  # type: ignore[override]
        """Sizes and offsets, which is all that the driver tells."""
        return signature_of_layout(self._layout())

    @functools.cached_property
    def _function(self) -> Any:
        return self._context.call("cuKernelGetFunction", self._library.handle_of(self._handle))

    @functools.cached_property
    def resources(self) -> Resources:
        """What the kernel uses, as the driver tells."""
        attribute = self._context.driver.bindings.CUfunction_attribute

        def get(name: str) -> int:
            which = getattr(attribute, f"CU_FUNC_ATTRIBUTE_{name}")
            return int(self._context.call("cuFuncGetAttribute", which, self._function))

        return Resources(
            registers=get("NUM_REGS"),
            shared_bytes=get("SHARED_SIZE_BYTES"),
            local_bytes=get("LOCAL_SIZE_BYTES"),
            constant_bytes=get("CONST_SIZE_BYTES"),
            max_threads=get("MAX_THREADS_PER_BLOCK"),
        )

    def launch(self, shape: LaunchShape, parameters: bytes | bytearray, stream: int = 0) -> None:
        """Start the kernel; it runs after the work that is already in ``stream``.

        Raises:
            ClosedError: the module was closed.
            DriverError: the driver refused.
        """
        function = self._library.handle_of(self._function)
        self._allow_shared(shape.shared_bytes)
        grid, block = shape.grid, shape.block
        size = ctypes.c_size_t(len(parameters))
        buffer = (ctypes.c_char * len(parameters)).from_buffer_copy(parameters)
        extra = (ctypes.c_void_p * 5)(
            _BUFFER_POINTER, ctypes.addressof(buffer), _BUFFER_SIZE, ctypes.addressof(size), _END
        )
        # The driver copies the buffer before it returns.
        self._context.call(
            "cuLaunchKernel",
            function,
            *grid,
            *block,
            shape.shared_bytes,
            stream,
            0,
            ctypes.addressof(extra) if len(parameters) else 0,
        )

    def active_blocks(self, block_threads: int, shared_bytes: int = 0) -> int:
        """Count the blocks that one multiprocessor holds at a time.

        Raises:
            DriverError: the driver refused.
        """
        self._allow_shared(shared_bytes)
        return int(
            self._context.call(
                "cuOccupancyMaxActiveBlocksPerMultiprocessor", self._function, block_threads, shared_bytes
            )
        )

    def best_block(self, shared_bytes: int = 0) -> int:
        """Choose the threads per block of highest occupancy.

        Raises:
            DriverError: the driver refused.
        """
        self._allow_shared(shared_bytes)
        _grid, block = self._context.call("cuOccupancyMaxPotentialBlockSize", self._function, None, shared_bytes, 0)
        return int(block)

    def _allow_shared(self, dynamic: int) -> None:
        """Opt in to more dynamic shared memory than a kernel gets unasked.

        Source: CUDA C++ Programming Guide, "Shared Memory" of compute capability 7.x and later: above 48
        KiB only with ``cuFuncSetAttribute``.
        """
        if dynamic <= self._shared_bytes_allowed:
            return
        if self.resources.shared_bytes + dynamic <= self._limits.shared_bytes:
            return
        which = self._context.driver.bindings.CUfunction_attribute
        with self._lock:
            self._context.call(
                "cuFuncSetAttribute",
                self._function,
                which.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                dynamic,
            )
            self._shared_bytes_allowed = dynamic

    def _layout(self) -> list[tuple[int, int]]:
        """Ask the driver for offset and size in bytes of each parameter."""
        layout: list[tuple[int, int]] = []
        handle = self._library.handle_of(self._handle)
        success = self._context.driver.bindings.CUresult.CUDA_SUCCESS
        with self._context as driver:
            while True:
                status, *place = driver.attempt("cuKernelGetParamInfo", handle, len(layout))
                if status != success:
                    # Source: CUDA Driver API manual: an index past the last is CUDA_ERROR_INVALID_VALUE.
                    if status == driver.bindings.CUresult.CUDA_ERROR_INVALID_VALUE:
                        return layout
                    raise driver.error("cuKernelGetParamInfo", status)
                layout.append((int(place[0]), int(place[1])))
