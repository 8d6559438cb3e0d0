"""Count the instructions that the CPU device executes for a block, and compare two checkouts.

``python benchmarks/instructions.py OTHER`` steps through launches, one instruction after the other, by this checkout
and by the one at OTHER, a directory. A launch of two more blocks than another one counts what these two cost, so that
nothing of Python or of the launch itself is in the figure. It needs Linux, and no counters of the processor.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

_HERE = Path(__file__).parent
_STEP, _ATTACH = 9, 16
"""Requests of ptrace. Source: Linux, include/uapi/linux/ptrace.h."""
_BLOCKS = (2, 4)
"""Blocks of the two launches."""


class Counted(NamedTuple):
    """One kernel: its file in ``cpu``, its block, its arrays by their sizes, and its scalars."""

    file: str
    name: str
    block: tuple[int, ...]
    sizes: tuple[int, ...]
    scalars: tuple[int | float, ...]
    aim: float = 1.03
    arch: str = "compute_80"


_SMALL = 1 << 14
KERNELS = (
    Counted("saxpy", "saxpy", (256,), (_SMALL, _SMALL), (0.5, _SMALL)),
    Counted("matmul", "matmul", (16, 16), (4096, 4096, 4096), (32,)),
    Counted("tree", "tree", (256,), (_SMALL, 64), (_SMALL,)),
    Counted("stride", "stride", (256,), (_SMALL, 256), (_SMALL,)),
    Counted("mandelbrot", "mandelbrot", (32, 8), (_SMALL,), (128, 128, 16)),
    Counted("nbody", "nbody", (256,), (4096, 4096), (256, 0.01)),
    Counted("histogram", "histogram", (256,), (_SMALL, 256), (_SMALL,)),
    Counted("bitonic", "sort_tiles", (256,), (_SMALL, _SMALL), (64, 32)),
    Counted("transpose", "transpose", (32, 8), (_SMALL, _SMALL), (128,)),
    *(Counted("asynchronous", name, (128,), (1 << 14, 1 << 12), (6,), 1.15, "compute_90a")
      for name in ("cp_async", "tma", "wgmma")),
)  # fmt: skip


# -- the process that launches ----------------------------------------------------------------------------------


def _launch(kernel: Counted) -> None:
    import cujit

    device = cujit.cpu(1)
    source = cujit.Source.cuda(_HERE / "cpu" / f"{kernel.file}.cu")
    module = cujit.load(cujit.compile(source, arch=kernel.arch), device)
    arrays = [device.array(np.ones(size, np.float32)) for size in kernel.sizes]
    pointers = [cujit.Pointer(array.address) for array in arrays]
    function: Any = module[kernel.name]
    launches = [function[_BLOCKS[0], kernel.block], function[_BLOCKS[1], kernel.block]]
    for _ in range(4):
        for launch in launches:
            launch(*pointers, *kernel.scalars)
    for launch in launches:
        os.kill(os.getpid(), signal.SIGSTOP)
        launch(*pointers, *kernel.scalars)
    os.kill(os.getpid(), signal.SIGSTOP)


# -- the process that counts -------------------------------------------------------------------------------------


def _steps(pid: int) -> int:
    """Step through a process that has stopped until it stops itself again; count the instructions."""
    libc = ctypes.CDLL(None, use_errno=True)
    ptrace, wait = libc.ptrace, libc.waitpid
    ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    status, count, to_child = ctypes.c_int(), 0, None
    while True:
        ptrace(_STEP, pid, None, to_child)
        wait(pid, ctypes.byref(status), 0)
        if not os.WIFSTOPPED(status.value):
            raise RuntimeError(f"the launching process ended with status {status.value}")
        stopped = os.WSTOPSIG(status.value)
        to_child = None
        if stopped == signal.SIGSTOP:
            return count
        if stopped != signal.SIGTRAP:
            to_child = ctypes.c_void_p(stopped)
        count += 1


def count(kernel: Counted, checkout: Path) -> float:
    """Count the instructions of one block of a kernel, by the cujit of a checkout."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--launch", kernel.name]
    with subprocess.Popen(command, env=environment) as process:
        os.waitpid(process.pid, os.WUNTRACED)
        libc = ctypes.CDLL(None, use_errno=True)
        libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
        if libc.ptrace(_ATTACH, process.pid, None, None):
            process.kill()
            raise OSError(ctypes.get_errno(), "this machine does not let a process trace its own child")
        os.waitpid(process.pid, 0)
        counts = [_steps(process.pid) for _ in _BLOCKS]
        process.kill()
    return (counts[1] - counts[0]) / (_BLOCKS[1] - _BLOCKS[0])


def run(other: Path) -> Iterator[str]:
    """Compare every kernel; yield the lines of a table."""
    yield f"{'kernel':12} {'here':>12} {'there':>12} {'ratio':>7} {'aim':>5}"
    for kernel in KERNELS:
        here, there = count(kernel, _HERE.parent), count(kernel, other)
        yield f"{kernel.name:12} {here:12,.0f} {there:12,.0f} {here / there:7.3f} {kernel.aim:5.2f}"


if __name__ == "__main__":
    if sys.argv[1] == "--launch":
        _launch(next(kernel for kernel in KERNELS if kernel.name == sys.argv[2]))
    else:
        for line in run(Path(sys.argv[1])):
            print(line, flush=True)
