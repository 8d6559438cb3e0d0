"""One page about a kernel: source, PTX, SASS, counters, and plots. ``import cujit.report``."""

from cujit.report.listings import Listing
from cujit.report.report import KernelReport, ReportPage, of

__all__ = ["KernelReport", "Listing", "ReportPage", "of"]
