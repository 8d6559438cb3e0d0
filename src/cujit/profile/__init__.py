"""Costs of kernels, counted on the CPU device without a GPU: ``import cujit.profile``."""

from cujit.devices.cpu.observe.measures import Measures, ProfiledInstruction, ProfiledKernel, ProfiledLine, WarpAccess
from cujit.devices.cpu.observe.profile import Profile
from cujit.profile.advice import Advice, advice_for
from cujit.profile.bounding import Bound, KernelBounds, bounds
from cujit.profile.comparing import CostChange, CostComparison, compare
from cujit.profile.peaks import Peaks, peaks
from cujit.profile.reading import read_profile
from cujit.profile.roofline import plot

__all__ = [
    "Advice",
    "Bound",
    "CostChange",
    "CostComparison",
    "KernelBounds",
    "Measures",
    "Peaks",
    "Profile",
    "ProfiledInstruction",
    "ProfiledKernel",
    "ProfiledLine",
    "WarpAccess",
    "advice_for",
    "bounds",
    "compare",
    "peaks",
    "plot",
    "read_profile",
]
