"""The primary context of a GPU, which the CUDA runtime, PyTorch, CuPy, and JAX also use.

A failed kernel is reported by any later call, without the kernel's name. The error then lists the launches that were in
flight (``ring.py``).
"""

from __future__ import annotations

from typing import Any

from cujit.devices.cuda.ring import LaunchRing
from cujit.errors import DriverError, LaunchError
from cujit.toolchain.driver import Driver

_MOST_SHOWN = 8

# Source: CUDA Driver API manual, CUresult: those after which "the process must be terminated and relaunched".
_FAULTS = frozenset(
    f"CUDA_ERROR_{name}"
    for name in (
        "ILLEGAL_ADDRESS",
        "LAUNCH_TIMEOUT",
        "ASSERT",
        "HARDWARE_STACK_ERROR",
        "ILLEGAL_INSTRUCTION",
        "MISALIGNED_ADDRESS",
        "INVALID_ADDRESS_SPACE",
        "INVALID_PC",
        "LAUNCH_FAILED",
        "TENSOR_MEMORY_LEAK",
        "CONTAINED",
    )
)


class GpuContext:
    """The primary context of one GPU (``name``, ``cuda:0``), retained from the first use until the process ends.

    The context manager makes the context current for the thread, and restores the previous context at the end. The
    contexts that other libraries made current are not disturbed. All threads may use a GpuContext simultaneously.
    ``ring`` contains the last launches.
    """

    def __init__(self, driver: Driver, ordinal: int) -> None:
        self.driver = driver
        self.name = f"cuda:{ordinal}"
        self.device: Any = driver.call("cuDeviceGet", ordinal)
        self.handle: Any = driver.call("cuDevicePrimaryCtxRetain", self.device)
        self.ring = LaunchRing()

    def __enter__(self) -> Driver:
        self.driver.call("cuCtxPushCurrent", self.handle)
        return self.driver

    def __exit__(self, *_error: object) -> None:
        # Cannot fail where the push went well, and must not hide the error of the body.
        self.driver.attempt("cuCtxPopCurrent")

    @property
    def id(self) -> int:
        """The driver's ID of the context. A device reset creates a new context with the same handle but a different ID.

        Raises:
            DriverError: the driver reported an error.
        """
        return int(self.driver.call("cuCtxGetId", self.handle))

    def call(self, function: str, *arguments: Any, log: str = "") -> Any:
        """Call one function of the driver with this context current.

        Raises:
            DriverError: the driver reported an error.
        """
        try:
            with self as driver:
                return driver.call(function, *arguments, log=log)
        except DriverError as e:
            raise self.explained(e) from None

    def call_each(self, *calls: tuple[Any, ...]) -> None:
        """Call functions of the driver one after the other, each a name and its arguments, with this context current.

        Raises:
            DriverError: the driver refused one.
        """
        try:
            with self as driver:
                for call in calls:
                    driver.call(*call)
        except DriverError as e:
            raise self.explained(e) from None

    def synchronize(self) -> None:
        """Wait for all work, and record that all earlier launches are done.

        Raises:
            DriverError: a kernel failed.
        """
        count = self.ring.count
        self.call("cuCtxSynchronize")
        self.ring.finish(count)

    def is_done(self, query: str, handle: int) -> bool:
        """Return whether a stream or an event is done.

        Raises:
            DriverError: a kernel failed.
        """
        with self as driver:
            (status,) = driver.attempt(query, handle)
        result = driver.bindings.CUresult
        if status == result.CUDA_SUCCESS:
            return True
        if status == result.CUDA_ERROR_NOT_READY:
            return False
        raise self.explained(driver.error(query, status))

    def explained(self, error: DriverError) -> DriverError:
        """Return the error of a failed kernel with the launches that were in flight. Return any other
        error unchanged.
        """
        if error.result not in _FAULTS:
            return error
        launches = self.ring.in_flight()
        if not launches:
            return error
        lines = _folded(launches)
        more = f"\n    and {len(lines) - _MOST_SHOWN} more" if len(lines) > _MOST_SHOWN else ""
        listing = "".join(f"\n    {line}" for line in lines[:_MOST_SHOWN])
        one = "one of these was" if len(lines) > 1 else "this was"
        return DriverError(
            f"{error.message}\n  {one} running, the newest first:{listing}{more}",
            **error.facts,
            help=(error.help or "restart the process: the CUDA context is lost")
            + ". To find the launch, synchronize the device after each one, or use compute-sanitizer. "
            "You can also run the launches one by one on the CPU device with the same arguments: call "
            "launch.replay_on_cpu(…) in a new process, or launch.save(…), which stores a launch for cujit run",
        )

    def refused(self, function: str, status: int) -> DriverError:
        """Return the error for a driver call from machine code that returned ``status``, with the
        launches in flight.
        """
        try:
            result = self.driver.bindings.CUresult(status)
        except ValueError:  # newer than the bindings
            result = status
        return self.explained(self.driver.error(function, result))

    def check_priority(self, priority: int, title: str = "", also: str = "") -> None:
        """Check a priority against the range of the GPU. The driver would silently use the nearest priority instead.

        Raises:
            LaunchError: the priority is out of range. ``title`` begins the message, and ``also`` ends its help.
            DriverError: the driver reported an error.
        """
        least, greatest = self.call("cuCtxGetStreamPriorityRange")
        if not greatest <= priority <= least:
            raise LaunchError(
                f"{title}priority {priority} is out of range; {self.name} supports {greatest} to {least}",
                help=f"{greatest} is the highest priority, and {least} is the default{also}",
            )

    def release(self, function: str, handle: Any) -> None:
        """Release a handle. A failure no longer matters (a dead context, or the process ends)."""
        try:
            with self as driver:
                driver.attempt(function, handle)
        except Exception:
            return


def _folded(launches: list[str]) -> list[str]:
    """List equal consecutive launches once, with how many there were."""
    folded: list[tuple[str, int]] = []
    for launch in launches:
        if folded and folded[-1][0] == launch:
            folded[-1] = (launch, folded[-1][1] + 1)
        else:
            folded.append((launch, 1))
    return [f"{launch}, {times} times" if times > 1 else launch for launch, times in folded]
