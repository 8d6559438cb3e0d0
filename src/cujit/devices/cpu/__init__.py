"""The CPU device: what it executes is PTX, and it needs no file of CUDA's."""

from cujit.devices.cpu.backend import CpuBackend

__all__ = ["CpuBackend"]
