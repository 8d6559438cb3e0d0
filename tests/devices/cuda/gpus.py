"""What tests of a GPU need of its back end."""

from __future__ import annotations

from cujit.devices.cuda.backend import CudaBackend
from cujit.devices.cuda.gpu import Gpu
from cujit.devices.device import Device


def context_of(gpu: Device) -> Gpu:
    """Give the context of a GPU."""
    assert isinstance(gpu.backend, CudaBackend)
    return gpu.backend.context
