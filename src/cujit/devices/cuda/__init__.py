"""GPUs through the CUDA driver."""

from __future__ import annotations

from cujit.devices.cuda.device import CudaDevice
from cujit.devices.cuda.stream import Stream

__all__ = ["CudaDevice", "Stream"]
