"""The CUDA driver: checked calls through ``cuda.bindings.driver``, opened on first use, never at import.

``open_driver()`` says why when there is none: no driver is ``DriverNotFoundError``, a driver without a usable
GPU is ``DeviceNotFoundError``. After that every refusal is a ``DriverError`` with the call, the result's
name and the driver's own description.
"""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

from cujit.arch.support import Version
from cujit.errors import DeviceNotFoundError, DriverError, DriverNotFoundError, spell
from cujit.errors.hints import Hint
from cujit.forks import cached_property, once
from cujit.toolchain.libraries import is_emulated

OLDEST_DRIVER: Version = (12, 4)
"""The oldest CUDA version of a driver that cujit works with.

Source: CUDA Driver API manual, ``cuFuncGetParamInfo`` and ``cuModuleEnumerateFunctions`` (new in CUDA 12.4).
"""

_LOGS_SINCE: Version = (12, 9)
_LOG_BYTES = 25_600
"""The most that the driver stores. Source: as of ``_new_log``."""

_INSTALL = Hint(
    "install the NVIDIA driver, or run on the CPU device: device=cujit.cpu()",
    shell="install the NVIDIA driver, or run on the CPU device: --device cpu",
)
_FORKED = (
    "this process was forked from one that had used CUDA, which the driver does not support: start workers "
    "with multiprocessing's 'spawn' or 'forkserver', or touch no GPU before the fork"
)


class Driver:
    """The opened driver; ``version`` is the CUDA version that it speaks, ``(13, 0)``."""

    def __init__(self, bindings: ModuleType, version: Version) -> None:
        self.bindings: Any = bindings
        self.version = version
        self._pid = os.getpid()
        self._last_log: Any = None

    @property
    def name(self) -> str:
        """How errors call it."""
        return f"CUDA driver {self.version[0]}.{self.version[1]}"

    @cached_property
    def is_emulated(self) -> bool:
        """Whether it is the driver of ``cujit emulate``, which runs only PTX."""
        return is_emulated("libcuda.so.1")

    def call(self, function: str, *arguments: Any, log: str = "") -> Any:
        """Call a function of the driver API, and return its result: None, a value, or a tuple of values.

        Raises:
            DriverError: the driver returned an error, or lacks the function.
        """
        status, *values = self.attempt(function, *arguments)
        if status != self.bindings.CUresult.CUDA_SUCCESS:
            raise self.error(function, status, log)
        if not values:
            return None
        return values[0] if len(values) == 1 else tuple(values)

    def attempt(self, function: str, *arguments: Any) -> tuple[Any, ...]:
        """Call a function of the driver API, and return ``(CUresult, *results)`` for any result code.

        Raises:
            DriverError: the driver lacks the function.
        """
        try:
            answer: tuple[Any, ...] = getattr(self.bindings, function)(*arguments)
        except (AttributeError, RuntimeError) as e:
            # cuda.bindings raises RuntimeError for a symbol that libcuda lacks.
            raise DriverError(
                f"the driver doesn't provide {function}: {e}",
                tool=self.name,
                call=function,
                result="not found",
                help="update the driver or cuda-bindings",
            ) from e
        return answer

    def error(self, function: str, status: Any, log: str = "") -> DriverError:
        """Make the error of a call that returned ``status``."""
        name = getattr(status, "name", str(status))
        forked = os.getpid() != self._pid
        return DriverError(
            self.describe(status),
            tool=self.name,
            call=function,
            result=name,
            log="\n".join(filter(None, (log, self._new_log()))),
            help=_FORKED if forked else _REMEDIES.get(name),
        )

    def _new_log(self) -> str:
        """Return the driver's log entries since the last call.

        The result is empty for a driver without a log, and for the emulated one, whose errors are complete. Source:
        CUDA Driver API manual, "Error Log Management Functions", new in CUDA 12.9.
        """
        if self.version < _LOGS_SINCE or self.is_emulated:
            return ""
        room = bytes(bytearray(_LOG_BYTES))  # which the bindings write into
        try:
            status, *answer = self.bindings.cuLogsDumpToMemory(self._last_log, room, len(room), 0)
            if status != self.bindings.CUresult.CUDA_SUCCESS:
                return ""
            self._last_log, size = answer
            if self._last_log is None:  # what was asked for everything does not say where that ends
                _, self._last_log = self.bindings.cuLogsCurrent(0)
        except (AttributeError, RuntimeError, TypeError, ValueError):  # an error must not hide the first
            return ""
        return room[:size].rstrip(b"\0\n").decode(errors="replace")

    def describe(self, status: Any) -> str:
        """Return the driver's own description of a result."""
        try:
            found, text = self.bindings.cuGetErrorString(status)
        except RuntimeError:
            return str(status)
        if found != self.bindings.CUresult.CUDA_SUCCESS or not text:
            return f"the driver answered {getattr(status, 'name', status)}"
        return str(text.decode(errors="replace"))

    def device_count(self) -> int:
        """Count the GPUs that the driver shows to this process."""
        return int(self.call("cuDeviceGetCount"))


# Source: CUDA Driver API manual, "Data types used by CUDA driver", CUresult; the remedies are ours.
_REMEDIES = {
    "CUDA_ERROR_OUT_OF_MEMORY": "free arrays that are no longer needed, or work on smaller pieces",
    "CUDA_ERROR_ILLEGAL_ADDRESS": Hint(
        "a kernel accessed memory outside its allocations; the context is lost and the process must end. To "
        "find the access, run the same kernel on cujit.cpu(), or under compute-sanitizer",
        shell="a kernel accessed memory outside its allocations; the context is lost and the process must "
        "end. To find the access, run the same kernel with --device cpu, or under compute-sanitizer",
    ),
    "CUDA_ERROR_MISALIGNED_ADDRESS": Hint(
        "a kernel used a misaligned address; the context is lost and the process must end. To find the "
        "access, run the same kernel on cujit.cpu()",
        shell="a kernel used a misaligned address; the context is lost and the process must end. To find the "
        "access, run the same kernel with --device cpu",
    ),
    "CUDA_ERROR_ASSERT": "an assert in a kernel failed; its message is on standard error",
    "CUDA_ERROR_LAUNCH_FAILED": "a kernel failed; the context is lost and the process must end. To find the "
    "location, run the kernel under compute-sanitizer",
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": "use fewer threads per block: the kernel's registers allow kernel.max_block",
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": "build a cubin for this GPU (target sm_…), or update the driver",
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "build for this GPU, or add PTX (target compute_…) to the fatbin",
    "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED": "this operation is not allowed while a stream is being captured "
    "into a graph",
}


@once
def open_driver() -> Driver:
    """Open the driver and initialise it; a success is remembered for the process.

    Raises:
        DriverNotFoundError: no CUDA driver is installed, or it doesn't respond.
        DeviceNotFoundError: the driver has no GPU, or is older than ``OLDEST_DRIVER``.
    """
    try:
        from cuda.bindings import driver as bindings  # optional: a machine without a GPU may lack it
    except ImportError as e:
        raise DriverNotFoundError(f"can't import cuda.bindings: {e}", help="run pip install cuda-bindings") from e
    driver = Driver(bindings, _version(bindings))
    if driver.version < OLDEST_DRIVER:
        raise DeviceNotFoundError(
            f"the driver supports CUDA {driver.version[0]}.{driver.version[1]}, but cujit requires "
            f"{OLDEST_DRIVER[0]}.{OLDEST_DRIVER[1]} (r550) or later",
            help=Hint(
                "update the driver, or run on the CPU device: device=cujit.cpu()",
                shell="update the driver, or run on the CPU device: --device cpu",
            ),
        )
    (status,) = driver.attempt("cuInit", 0)
    if status == bindings.CUresult.CUDA_ERROR_NO_DEVICE:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        raise DeviceNotFoundError(
            f"{driver.name} is installed, but finds no GPU"
            + (f" (CUDA_VISIBLE_DEVICES={spell(visible)})" if visible is not None else ""),
            help=Hint(
                "make a GPU available to the process or container, or run on the CPU device: device=cujit.cpu()",
                shell="make a GPU available to the process or container, or run on the CPU device: --device cpu",
            ),
        )
    if status != bindings.CUresult.CUDA_SUCCESS:
        raise DriverNotFoundError(
            f"{driver.name} doesn't respond: cuInit -> {status.name}: {driver.describe(status)}",
            help="run nvidia-smi: the driver library and the kernel module must have the same version",
        )
    return driver


def _version(bindings: Any) -> Version:
    """Ask libcuda for its CUDA version, which is the first call that opens the library.

    Source: CUDA Driver API manual, ``cuDriverGetVersion``: 1000 × major + 10 × minor.
    """
    try:
        status, number = bindings.cuDriverGetVersion()
    except RuntimeError as e:  # cuda.pathfinder's DynamicLibNotFoundError is one
        raise DriverNotFoundError(f"this machine has no CUDA driver: {e}", help=_INSTALL) from e
    if status != bindings.CUresult.CUDA_SUCCESS:
        # CUDA_ERROR_STUB_LIBRARY: the link-time stub of the toolkit was found in place of the driver.
        raise DriverNotFoundError(
            f"the CUDA driver doesn't respond: cuDriverGetVersion -> {status.name}", help=_INSTALL
        )
    return number // 1000, number % 1000 // 10
