"""The farm: thousands of compiles over the processes of one machine, or of many. ``import cujit.farm``."""

from cujit.farm.driver import build
from cujit.farm.report import BuiltImage, Failure, Report

__all__ = ["BuiltImage", "Failure", "Report", "build"]
