"""This machine: its devices, and what of NVIDIA's libraries and headers is found on it."""

from cujit.machine.devices import all_devices, cpu, default_device, gpu, resolve_device

__all__ = ["all_devices", "cpu", "default_device", "gpu", "resolve_device"]
