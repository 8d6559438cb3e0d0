"""What a profile costs on the CPU device: the kernels of ``checks.py``, as a multiple of the CPU time without one.

Both run in turns in one process, and medians of CPU time are compared; results are compared, too.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import numpy as np
from checks import GRIDS, launcher, ratios_of

import cujit
import cujit.profile

__all__ = ["run"]

AIM = 30
"""The most that a profile may cost in the worst of the kernels."""


def run() -> Iterator[str]:
    """Measure every kernel; give the table's lines."""
    yield "a profile on the CPU device: CPU time as a multiple of that without (median, least to most)"
    worst = 0.0
    for kernel in GRIDS:
        (plain_out, plain), (out, profiled) = (
            launcher(kernel, device) for device in (cujit.cpu(1), cujit.cpu(1, profile=cujit.profile.Profile()))
        )
        plain(), profiled()
        np.testing.assert_array_equal(out.numpy(), plain_out.numpy())
        ratios = ratios_of({"none": plain, "profile": profiled})["profile"]
        worst = max(worst, statistics.median(ratios))
        yield f"{kernel:<10}{statistics.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f})"
    yield f"profile: {worst:.1f} at worst, aim {AIM}: {'yes' if worst <= AIM else 'NO'}"


if __name__ == "__main__":
    for line in run():
        print(line, flush=True)
