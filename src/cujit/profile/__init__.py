"""What kernels cost, counted on the CPU device: ``import cujit.profile``; no GPU is needed."""

from cujit.devices.cpu.observe.measures import Measures, ProfiledInstruction, ProfiledKernel, ProfiledLine
from cujit.devices.cpu.observe.profile import Profile
from cujit.profile.bounding import Bound, KernelBounds, bounds
from cujit.profile.peaks import Peaks, peaks
from cujit.profile.roofline import plot

__all__ = [
    "Bound",
    "KernelBounds",
    "Measures",
    "Peaks",
    "Profile",
    "ProfiledInstruction",
    "ProfiledKernel",
    "ProfiledLine",
    "bounds",
    "peaks",
    "plot",
]
