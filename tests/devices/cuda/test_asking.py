"""What a kernel asks a GPU for before a launch; what GPUs before sm_90 do not have is refused in words."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

from cujit.devices.cuda.context import GpuContext
from cujit.devices.cuda.kernel import CudaKernel
from cujit.devices.device import Device
from cujit.devices.options import LaunchOptions
from cujit.devices.shapes import Dim3, LaunchShape, Resources
from cujit.errors import DriverError, LaunchError
from raising import raises

_SHARED = "MAX_DYNAMIC_SHARED_SIZE_BYTES"
_NAMES = ("COMPUTE_CAPABILITY_MAJOR", "CLUSTER_LAUNCH")
_WHAT = [f"REQUIRED_CLUSTER_{axis}" for axis in ("WIDTH", "HEIGHT", "DEPTH")] + ["CLUSTER_SIZE_MUST_BE_SET"]


class OldDriver:
    """The driver of a GPU of one compute capability, which knows of no clusters below 9.0."""

    name = "a driver"
    bindings = SimpleNamespace(
        CUresult=SimpleNamespace(CUDA_SUCCESS=0),
        CUdevice_attribute=SimpleNamespace(**{f"CU_DEVICE_ATTRIBUTE_{n}": n for n in _NAMES}),
        CUfunction_attribute=SimpleNamespace(**{f"CU_FUNC_ATTRIBUTE_{n}": n for n in (*_WHAT, _SHARED)}),
    )

    def __init__(self, major: int) -> None:
        self.major = major
        self.asked: list[object] = []

    def call(self, function: str, *arguments: Any, log: str = "") -> object:
        del log
        if function == "cuDeviceGetAttribute":
            return self.major if arguments[0] == "COMPUTE_CAPABILITY_MAJOR" else int(self.major >= 9)
        if function == "cuGetProcAddress":
            raise DriverError("asked for a launch", tool=self.name, call=function, result="asked")
        if function == "cuFuncSetAttribute":
            self.asked.append(arguments[2])
        return 0

    def attempt(self, _function: str, *_arguments: object) -> tuple[object, ...]:
        return (1,)


def kernel_on(major: int, device: Device) -> CudaKernel:
    context = GpuContext(cast(Any, OldDriver(major)), 0)
    module = SimpleNamespace(context=context, require=lambda: None, function=lambda _name: 3)
    return CudaKernel(cast(Any, module), device.limits, "_Z1kIiEvPT_")


SHAPE = LaunchShape(Dim3(4), Dim3(32))


def test_overlap_is_refused(gpu_memory: Device) -> None:
    kernel_on(9, gpu_memory).check_options(SHAPE, LaunchOptions(overlap=True))
    with raises(LaunchError, "launch", "k<int>", "9.0", "8") as caught:
        kernel_on(8, gpu_memory).check_options(SHAPE, LaunchOptions(overlap=True))
    assert "remove overlap" in str(caught.value)


def test_clusters_are_refused(gpu_memory: Device) -> None:
    kernel = kernel_on(8, gpu_memory)
    for ask in (lambda: kernel.check_options(SHAPE, LaunchOptions(cluster=Dim3(2))),
                lambda: kernel.together(SHAPE, Dim3(2))):  # fmt: skip
        with raises(LaunchError, "cluster-size", "k<int>", "GPU") as caught:
            ask()
        assert "sm_90" in str(caught.value)


def test_smaller_request_keeps_another_threads_shared_memory(gpu_memory: Device) -> None:
    kernel = kernel_on(9, gpu_memory)
    kernel.__dict__["resources"] = Resources(1, 0, 0, 0, 1024)
    driver = cast(Any, kernel._context.driver)

    class Slow:
        """A lock for which this thread waits, while another one gets 200 KiB."""

        def __enter__(self) -> None:
            kernel._lock = threading.Lock()
            kernel._allow_shared(200 << 10)

        def __exit__(self, *_error: object) -> None:
            pass

    kernel._lock = cast(Any, Slow())
    kernel._allow_shared(100 << 10)
    assert driver.asked == [200 << 10]
