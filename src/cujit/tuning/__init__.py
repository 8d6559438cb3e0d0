"""Tuning: which variant of a kernel is the fastest on a device, measured once and kept. ``import cujit.tuning``."""

from cujit.tuning.deciding import Tuned, tune
from cujit.tuning.records import Measured, TuningRecord

__all__ = ["Measured", "Tuned", "TuningRecord", "tune"]
