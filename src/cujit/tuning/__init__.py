"""Tuning: find the fastest variant of a kernel on a device, and store the result. To use this module, ``import
cujit.tuning``.
"""

from cujit.tuning.records import Measured, TuningRecord
from cujit.tuning.tuner import Tuned, tune

__all__ = ["Measured", "Tuned", "TuningRecord", "tune"]
