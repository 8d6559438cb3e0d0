"""One page about a kernel, to look at: ``import cujit.report``; source, PTX, machine code, counters and plots."""

from cujit.report.listings import Listing
from cujit.report.report import KernelReport, ReportPage, of

__all__ = ["KernelReport", "Listing", "ReportPage", "of"]
