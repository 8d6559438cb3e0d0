"""Launches of hand-written PTX over arrays, for tests of what threads do together."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cujit.devices.device import Device
from instructions.scene import Scene, entry, run_scene

__all__ = ["Array", "as_written", "blank", "ptx_of", "run_ptx"]

Array = npt.NDArray[Any]

as_written = pytest.mark.skipif(bool(os.environ.get("CUJIT_GUARDED")), reason="guards are instructions, too")
"""What holds of the instructions of a kernel alone, and not of those that ``make guarded`` puts around them."""

# t: the thread's number, b: the block's, lane, w: the warp's; at: the place of this thread's word in the first array.
_BEGIN = """.reg .b32 t, b, lane, w, n, r<16>;
.reg .b64 at, d<8>;
.reg .pred q<8>;
mov.u32 t, %tid.x; mov.u32 b, %ctaid.x; mov.u32 n, %ntid.x; mov.u32 lane, %laneid; shr.u32 w, t, 5;
mad.lo.u32 r0, b, n, t; mad.wide.u32 at, r0, 4, p0;
"""


def blank(count: int) -> Array:
    """Words that no kernel here writes by accident."""
    return np.full(count, 0xDEAD, np.uint32)


def ptx_of(body: str, pointers: int, **more: str) -> str:
    """Write a kernel ``k`` around ``body``, which finds its numbers and the place of its word in registers."""
    return entry(_BEGIN + body, pointers, **more)


def run_ptx(
    device: Device,
    body: str,
    *arrays: Array,
    grid: int | tuple[int, ...] = 1,
    block: int | tuple[int, ...] = 32,
    shared_bytes: int = 0,
    **more: str,
) -> list[Array]:
    """Launch ``body`` over copies of the arrays; return them as they are then."""
    scene = Scene("here", ptx_of(body, len(arrays), **more), arrays, grid, block, shared_bytes)
    return run_scene(device, scene)
