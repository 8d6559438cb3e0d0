"""Kernels that a library declares as code, compiled or fetched when a service starts. ``import cujit.warmup``."""

from cujit.warmup.declarations import Declared, declare, declared, worklist
from cujit.warmup.starting import StartReport, WarmedKernel, run

__all__ = ["Declared", "StartReport", "WarmedKernel", "declare", "declared", "run", "worklist"]
