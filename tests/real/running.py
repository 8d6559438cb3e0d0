"""Compiles a kernel file of this folder, launches one of its kernels, and brings the arrays back."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cujit.artifact import Artifact
from cujit.devices.arrays.array import DeviceArray
from cujit.devices.device import Device
from cujit.loading import Module, load
from cujit.program import Source, compile

__all__ = ["Array", "compiled", "loaded", "rng", "run", "said"]

Array = npt.NDArray[Any]
HERE = Path(__file__).parent
TARGET = "compute_90"


@functools.cache
def compiled(file: str) -> Artifact:
    """Compile a file of this folder by NVRTC to PTX."""
    return compile(Source.cuda(HERE / file), arch=TARGET)


@functools.lru_cache(maxsize=8)
def loaded(device: Device, file: str) -> Module:
    """Load a file of this folder on a device; some of them take a second to read."""
    return load(compiled(file), device)


def rng(seed: int = 1) -> np.random.Generator:
    """Give a source of the same random numbers every time."""
    return np.random.default_rng(seed)


def run(
    device: Device,
    file: str,
    kernel: str,
    grid: int | tuple[int, ...],
    block: int | tuple[int, ...],
    *arguments: object,
    cooperative: bool = False,
    cluster: int | None = None,
) -> list[Array]:
    """Launch a kernel once and give every array as the kernel left it, in the order of the arguments.

    NumPy's arrays are copied to the device; a DeviceArray stays where it is, for several launches.
    """
    held = [device.array(a) if isinstance(a, np.ndarray) else a for a in arguments]
    launch = loaded(device, file)[kernel].prepare(grid, block, cooperative=cooperative, cluster=cluster)
    launch(*held)
    return [a.numpy() for a in held if isinstance(a, DeviceArray)]


SCRIPT = """
import numpy as np
from cujit.errors import CujitError
from cujit.machine import cpu
from real.running import run
try:
    got = run(cpu(), {file!r}, {kernel!r}, {grid}, {block}, *(np.array(a, np.int32) for a in {arrays}))
    print([a.tolist() for a in got])
except CujitError as e:
    print(e)
"""


def said(file: str, kernel: str, grid: int, block: int, *arrays: Array) -> str:
    """Launch with arrays of ints on the CPU device, in a process of its own: what may hang, for 20 seconds at most.

    It gives what the kernel made of the arrays, as lists, or the error.

    Raises:
        subprocess.TimeoutExpired: the kernel hangs.
    """
    compiled(file)  # by now in the cache that the process has too
    lists = [a.tolist() for a in arrays]
    script = SCRIPT.format(file=file, kernel=kernel, grid=grid, block=block, arrays=lists)
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True, cwd=HERE.parent)
    return done.stdout
