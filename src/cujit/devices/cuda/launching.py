"""The driver as machine code calls it: addresses of its functions, and the structures that they read.

Source: cuda.h of CUDA 13.4, CUlaunchConfig, CUlaunchAttribute, CUlaunchAttributeID, CUlaunchAttributeValue.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

from cujit.devices.options import LaunchOptions
from cujit.devices.shapes import LaunchShape
from cujit.errors import DriverError
from cujit.toolchain.driver import OLDEST_DRIVER, Driver
from cujit.values import dataclass

_LEGACY_STREAM = 1  # CU_GET_PROC_ADDRESS_LEGACY_STREAM: stream 0 is the one default stream of a context

_COOPERATIVE = 2
_CLUSTER_DIMENSION = 4
_PROGRAMMATIC_STREAM_SERIALIZATION = 6
_PRIORITY = 8


class _Attribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_uint32), ("pad", ctypes.c_uint32), ("value", ctypes.c_int32 * 16))


class LaunchConfig(ctypes.Structure):
    """``CUlaunchConfig``; sizes in blocks, threads and bytes."""

    _fields_ = (
        ("grid_x", ctypes.c_uint32),
        ("grid_y", ctypes.c_uint32),
        ("grid_z", ctypes.c_uint32),
        ("block_x", ctypes.c_uint32),
        ("block_y", ctypes.c_uint32),
        ("block_z", ctypes.c_uint32),
        ("shared_bytes", ctypes.c_uint32),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint32),
    )


def launch_config(shape: LaunchShape, stream: int, options: LaunchOptions) -> LaunchConfig:
    """Write the configuration of a launch with options."""
    attributes: list[_Attribute] = []

    def add(kind: int, *values: int) -> None:
        attributes.append(_Attribute(kind, 0, (ctypes.c_int32 * 16)(*values)))

    if options.cluster is not None:
        add(_CLUSTER_DIMENSION, *options.cluster)
    if options.cooperative:
        add(_COOPERATIVE, 1)
    if options.overlap:
        add(_PROGRAMMATIC_STREAM_SERIALIZATION, 1)
    if options.priority is not None:
        add(_PRIORITY, options.priority)
    table = (_Attribute * max(len(attributes), 1))(*attributes)
    # The cast keeps the table alive.
    pointer = ctypes.cast(table, ctypes.POINTER(_Attribute))
    return LaunchConfig(*shape.grid, *shape.block, shape.shared_bytes, stream, pointer, len(attributes))


@dataclass(frozen=True)
class Entries:
    """Addresses of functions of the driver."""

    launch_kernel: int
    launch_kernel_ex: int
    get_context: int
    set_context: int
    push_context: int
    pop_context: int
    exchange: int
    allocate: int
    release: int
    copy_in: int
    copy_out: int
    copy_in_async: int
    copy_out_async: int
    set: int
    set_async: int
    synchronize: int
    record: int
    wait: int
    get_id: int
    load_module: int
    get_function: int
    max_cluster_size: int
    max_active_clusters: int

    def launch_ex(self, config: LaunchConfig, function: int, extra: int) -> int:
        """Call ``cuLaunchKernelEx``, and return its result. ``extra`` is an address or 0."""
        call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        return int(call(self.launch_kernel_ex)(ctypes.addressof(config), function, None, extra or None))

    def count(self, query: int, function: int, config: LaunchConfig) -> tuple[int, int]:
        """Call one of the two cluster queries, and return its status and the number."""
        number = ctypes.c_int(0)
        call: Callable[..., int] = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(
            query
        )
        status = call(ctypes.addressof(number), function, ctypes.addressof(config))
        return int(status), int(number.value)


@functools.cache
def driver_entries(driver: Driver) -> Entries:
    """Return the addresses of the driver's functions.

    Raises:
        DriverError: the driver lacks one of the functions.
    """
    version = 1000 * OLDEST_DRIVER[0] + 10 * OLDEST_DRIVER[1]

    def find(name: str) -> int:
        address, *_ = driver.call("cuGetProcAddress", name.encode(), version, _LEGACY_STREAM)
        if not int(address):
            raise DriverError(
                f"the driver doesn't provide {name}",
                tool=driver.name,
                call="cuGetProcAddress",
                result="not found",
                help="update the driver",
            )
        return int(address)

    return Entries(
        find("cuLaunchKernel"),
        find("cuLaunchKernelEx"),
        find("cuCtxGetCurrent"),
        find("cuCtxSetCurrent"),
        find("cuCtxPushCurrent"),
        find("cuCtxPopCurrent"),
        find("cuThreadExchangeStreamCaptureMode"),
        find("cuMemAlloc"),
        find("cuMemFree"),
        find("cuMemcpyHtoD"),
        find("cuMemcpyDtoH"),
        find("cuMemcpyHtoDAsync"),
        find("cuMemcpyDtoHAsync"),
        find("cuMemsetD8"),
        find("cuMemsetD8Async"),
        find("cuStreamSynchronize"),
        find("cuEventRecord"),
        find("cuEventSynchronize"),
        find("cuCtxGetId"),
        find("cuModuleLoadData"),
        find("cuModuleGetFunction"),
        find("cuOccupancyMaxPotentialClusterSize"),
        find("cuOccupancyMaxActiveClusters"),
    )
