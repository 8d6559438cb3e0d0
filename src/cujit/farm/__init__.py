"""Compile thousands of kernels in many processes, on one or more machines (``import cujit.farm``)."""

from cujit.farm.driver import build
from cujit.farm.report import BuiltImage, Failure, Report

__all__ = ["BuiltImage", "Failure", "Report", "build"]
