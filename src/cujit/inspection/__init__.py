"""The contents of an image: its kernels and their resource usage, read without a driver or a GPU."""

from cujit.devices.cuda.compat import Verdict
from cujit.formats.cubin import read_cubin
from cujit.formats.fatbin import read_fatbin
from cujit.inspection.compare import Comparison
from cujit.inspection.usage import Usage
from cujit.inspection.values import ImageInfo, Inspection, KernelInfo

__all__ = ["Comparison", "ImageInfo", "Inspection", "KernelInfo", "Usage", "Verdict", "read_cubin", "read_fatbin"]
