"""What kernels cost, counted on the CPU device: ``import cujit.profile``; no GPU is needed."""

from cujit.devices.cpu.observe.measures import Measures, ProfiledInstruction, ProfiledKernel, ProfiledLine
from cujit.devices.cpu.observe.profile import Profile

__all__ = ["Measures", "Profile", "ProfiledInstruction", "ProfiledKernel", "ProfiledLine"]
