"""Who runs a case of the CPU device's benchmark: cujit, C and OpenCL, all in the same memory.

Arrays of one's own would lie elsewhere: in other pages, and not in the cache where the others' are.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from cpu_cases import SOURCES, Array, Case, Step
from cpu_opencl import OpenCl, Program

import cujit

__all__ = ["Contestant", "InC", "InCuda", "aligned", "in_opencl", "missing_compiler"]

_FLAGS = ("-O3", "-march=native", "-fopenmp", "-fno-math-errno", "-shared", "-fPIC")
_FAST = ("-ffast-math", "-fno-finite-math-only", "-fopenmp-simd")
_ALIGNMENT = 256


class Contestant(Protocol):
    """Runs one case as often as it is asked."""

    def set(self, arrays: Iterable[Array], /) -> None:
        """Copy data in."""

    def run(self) -> None:
        """Run it once, and return when it is done."""

    def get(self) -> tuple[Array, ...]:
        """Copy the data out."""


def missing_compiler() -> str:
    """Say what C needs that is not here, or nothing."""
    return "" if shutil.which("gcc") else "gcc is not installed"


def aligned(array: Array) -> Array:
    """Copy an array to memory as aligned as the CPU device's."""
    room = np.empty(array.nbytes + _ALIGNMENT, np.uint8)
    start = -room.ctypes.data % _ALIGNMENT
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


class InCuda:
    """CUDA C++ on the CPU device, in memory of the host or in arrays of its own."""

    def __init__(self, case: Case, device: cujit.Device, arrays: Sequence[Array] = ()) -> None:
        names = sorted({step.kernel for step in case.steps})
        module = cujit.jit(cujit.Source.cuda(SOURCES / f"{case.name}.cu"), names=names, device=device)
        seen = (
            device.adopt(array.ctypes.data, array.nbytes).view(array.dtype).reshape(array.shape) for array in arrays
        )
        self._arrays = tuple(seen) or tuple(device.array(array) for array in case.make())
        self._calls = [(self._launch(module[step.kernel], step), (*self._arrays, *step.scalars)) for step in case.steps]

    @staticmethod
    def _launch(kernel: cujit.Kernel, step: Step) -> Callable[..., None]:
        if not step.cooperative:
            return kernel[step.grid, step.block]
        return kernel.prepare(kernel.cooperative_limit(step.block), step.block, cooperative=True)

    def set(self, arrays: Iterable[Array]) -> None:
        """Copy data in."""
        for own, new in zip(self._arrays, arrays, strict=True):
            own.copy_from(new)

    def run(self) -> None:
        """Launch every step; each is done when it returns."""
        for launch, arguments in self._calls:
            launch(*arguments)

    def get(self) -> tuple[Array, ...]:
        """Copy the data out."""
        return tuple(array.numpy() for array in self._arrays)


class InC:
    """C, compiled by gcc into ``folder``."""

    def __init__(self, case: Case, folder: Path, arrays: Sequence[Array]) -> None:
        library = folder / f"{case.name}.so"
        flags = (*_FLAGS, *(_FAST if case.fast else ()))
        command = ["gcc", *flags, "-o", str(library), str(SOURCES / f"{case.name}.c"), "-lm"]
        subprocess.run(command, check=True)
        self._function: Callable[..., None] = getattr(ctypes.CDLL(str(library)), case.name)
        self._arrays = tuple(arrays)
        sizes = [ctypes.c_float(s) if isinstance(s, float) else ctypes.c_int(s) for s in case.sizes]
        self._arguments = (*(ctypes.c_void_p(array.ctypes.data) for array in self._arrays), *sizes)

    def set(self, arrays: Iterable[Array]) -> None:
        """Copy data in."""
        for own, new in zip(self._arrays, arrays, strict=True):
            own[...] = new

    def run(self) -> None:
        """Call it."""
        self._function(*self._arguments)

    def get(self) -> tuple[Array, ...]:
        """Copy the data out."""
        return tuple(array.copy() for array in self._arrays)


def in_opencl(case: Case, cl: OpenCl, arrays: Sequence[Array]) -> Program:
    """Compile a case's OpenCL C."""
    source = (SOURCES / f"{case.name}.cl").read_text()
    return Program(cl, source, arrays, case.steps)
