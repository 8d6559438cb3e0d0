"""The CPU device: what it executes is PTX, and it needs no file of CUDA's."""

from cujit.devices.cpu.device import CpuDevice

__all__ = ["CpuDevice"]
