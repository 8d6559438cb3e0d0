"""Records of kernels in the output of ``cujit profile --json``."""

from __future__ import annotations

from typing import Any

from cujit.devices.cpu.observe.measures import ProfiledKernel
from cujit.devices.device import Device
from cujit.profile.advice import advice_for
from cujit.profile.bounding import bounds


def kernel_record(kernel: ProfiledKernel, on: str | Device | None = None) -> dict[str, Any]:
    """Return the costs of a kernel with advice and, if ``on`` is set, with its bounds on that GPU.

    Raises:
        ArchError: see ``bounds``.
    """
    record = {**kernel.to_json(), "advice": [each.to_json() for each in advice_for(kernel, on)]}
    return record if on is None else {**record, "bounds": bounds(kernel, on).to_json()}
