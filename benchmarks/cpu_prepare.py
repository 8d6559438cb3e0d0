"""How long the CPU device takes from PTX to the end of a first launch, and for a launch of an empty kernel.

Preparing is measured in processes of their own that have opened LLVM and started the threads with another kernel
before: the first of them with an empty cache, the second with what the first left there.
"""

from __future__ import annotations

import functools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from cpu_cases import SOURCES, Step
from cpu_opencl import OpenCl, Program
from measure import medians

import cujit

__all__ = ["run"]

LIMITS_MS = {"saxpy": 50.0, "sort": 1000.0}
CACHED_LIMIT_MS = 5.0
TURNS = 3
LAUNCHES = 200
_REFUSED = 3
_MOST_S = 60
"""Seconds after which a process that prepares a kernel is taken for hung."""


def _ptx(name: str, device: cujit.Device, folder: Path) -> Path:
    """Compile one of the sources to PTX, in a file."""
    source = cujit.Source.cuda(SOURCES / f"{name}.cu")
    path = folder / f"{name}.ptx"
    cujit.compile(source, to="ptx", arch=device.arch.virtual).save(path)
    return path


def _child(script: Path, name: str, folder: Path, cache: Path) -> float | None:
    """Prepare a kernel in another process: milliseconds, or None where the CPU device refuses it."""
    environment = {**os.environ, "CUJIT_CACHE_DIR": str(cache)}
    command = [sys.executable, str(script), name, str(folder)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False, timeout=_MOST_S)
    if done.returncode == _REFUSED:
        return None
    done.check_returncode()
    return float(done.stdout)


def _prepare(name: str, device: cujit.Device, folder: Path) -> str:
    """Write the line of one kernel."""
    _ptx(name, device, folder)
    cold: list[float] = []
    warm: list[float] = []
    for turn in range(TURNS):
        cache = folder / f"cache-{name}-{turn}"
        for times in (cold, warm):
            cache.mkdir(mode=0o700, exist_ok=True)
            took = _child(Path(__file__), name, folder, cache)
            if took is None:
                return f"preparing {name}: refused"
            times.append(took)
    first, again = statistics.median(cold), statistics.median(warm)
    met = ["yes" if got <= most else "NO" for got, most in ((first, LIMITS_MS[name]), (again, CACHED_LIMIT_MS))]
    return (
        f"preparing {name}: {first:.1f} ms, at most {LIMITS_MS[name]:g}: {met[0]}; "
        f"from the cache {again:.1f} ms, at most {CACHED_LIMIT_MS:g}: {met[1]}"
    )


# -- in the other process ---------------------------------------------------------------------------------


def _launch(name: str, folder: Path, device: cujit.Device) -> float:
    """Load PTX and launch it once, on little data; give the seconds that takes. The result is checked."""
    data = np.random.default_rng(7).integers(0, 1 << 32, 512, np.uint32)
    x, y = device.array(data), device.array(np.zeros(512, np.uint32))
    start = time.perf_counter()
    kernel = cujit.load(folder / f"{name}.ptx", device)[name]
    if name == "empty":
        kernel[64, 128]()
    elif name == "saxpy":
        kernel[2, 256](x, y, 0.0, 512)
    else:
        kernel[1, 128](x, y)
    took = time.perf_counter() - start
    if name == "sort" and not np.array_equal(y.numpy(), np.sort(data)):
        raise SystemExit("the sort is wrong")
    return took


def _time_preparing(name: str, folder: Path) -> float:
    """Warm the process up and give the milliseconds that the kernel then takes."""
    device = cujit.cpu()
    _launch("empty", folder, device)
    return _launch(name, folder, device) * 1e3


# -- launches ---------------------------------------------------------------------------------------------


def _empty_launches(device: cujit.Device, cl: OpenCl | None) -> Iterator[str]:
    """Launch an empty kernel of one block and of many, and wait each time."""
    kernel = cujit.jit(cujit.Source.cuda(SOURCES / "empty.cu"), device=device)["empty"]
    for blocks in (1, 1024):
        launch = kernel[blocks, 128]
        contestants: dict[str, Callable[[], object]] = {"cujit": functools.partial(_repeat, launch)}
        if cl is not None:
            step = Step("empty", (blocks,), (128,), ())
            program = Program(cl, (SOURCES / "empty.cl").read_text(), (), (step,))
            contestants["PoCL"] = functools.partial(_repeat, program.run)
        took = medians(contestants, rounds=9)
        ratio = f"{took['PoCL'] / took['cujit']:.3g} × PoCL" if "PoCL" in took else "no PoCL"
        yield f"empty kernel of {blocks} blocks: {took['cujit'] / LAUNCHES * 1e6:.2f} µs a launch, {ratio}"


def _repeat(launch: Callable[[], object]) -> None:
    for _ in range(LAUNCHES):
        launch()


def run(device: cujit.Device, cl: OpenCl | None, folder: Path) -> Iterator[str]:
    """Measure, and give lines."""
    _ptx("empty", device, folder)
    for name in LIMITS_MS:
        yield _prepare(name, device, folder)
    yield from _empty_launches(device, cl)


if __name__ == "__main__":
    try:
        print(_time_preparing(sys.argv[1], Path(sys.argv[2])))
    except cujit.errors.UnsupportedError:
        raise SystemExit(_REFUSED) from None
