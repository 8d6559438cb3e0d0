"""Draw ``roofline-light.svg`` and ``roofline-dark.svg`` beside this file: ``python docs/images/roofline.py``.

The product of matrices of ``occupancy.py`` is profiled on the CPU device, and bounded for an H200; no GPU is needed.
Another NVRTC may give it other instructions, and another matplotlib other bytes.
"""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np

import cujit
import cujit.profile

_PLACE = Path(__file__).parent
_N = 1024


def main() -> None:
    """Write both."""
    profile = cujit.profile.Profile()
    device = cujit.cpu(profile=profile)
    code = runpy.run_path(str(_PLACE / "occupancy.py"))["SGEMM"]
    a, b = (device.array(np.ones((_N, _N), np.float32)) for _ in range(2))
    sgemm = cujit.jit(code, names=["sgemm"], device=device, name="sgemm.cu")["sgemm"]
    sgemm[(_N // 64, _N // 64), 256](_N, a, b, device.zeros((_N, _N), np.float32))
    (kernel,) = profile.kernels
    cujit.profile.plot(_PLACE / "roofline-light.svg", kernel, "H200")
    cujit.profile.plot(_PLACE / "roofline-dark.svg", kernel, "H200", dark=True)


if __name__ == "__main__":
    main()
