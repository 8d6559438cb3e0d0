"""Tuning: which variant of a kernel is the fastest on a device, measured once and kept. ``import cujit.tuning``."""

from cujit.tuning.records import Measured, TuningRecord
from cujit.tuning.tuner import Tuned, tune

__all__ = ["Measured", "Tuned", "TuningRecord", "tune"]
