"""The CPU device against C and PoCL: the same algorithms, all on all cores, in one run.

C is ``gcc -O3 -march=native -fopenmp``, with ``-ffast-math`` for the cases that are ``fast``. OpenCL C is compiled with
no options, as CUDA C++ is. Each result is compared with NumPy's before and after the timing; a wrong one ends the run.

``python benchmarks/cpu.py saxpy tree`` measures those two alone.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import cpu_prepare
import cpu_products
from cpu_cases import CASES, Case
from cpu_contestants import Contestant, InC, InCuda, in_opencl, missing_compiler
from cpu_opencl import OpenCl, OpenClError
from measure import medians

import cujit

ROUNDS = 9
_SPINS = "10000"
"""Turns that an idle thread of OpenMP waits for more work: its own default lasts into the next contestant's turn."""


class WrongResultError(Exception):
    """A contestant computed something else than NumPy."""


def _check(case: Case, name: str, contestant: Contestant) -> None:
    """Run a case on fresh data and compare with NumPy."""
    data = case.make()
    contestant.set(data)
    contestant.run()
    wrong = case.wrong(data, contestant.get())
    if wrong:
        raise WrongResultError(f"{case.name}, {name}: {wrong}")


def _contestants(case: Case, device: cujit.Device, cl: OpenCl | None, folder: Path) -> dict[str, Contestant]:
    """Compile a case for everybody; cujit is missing where the CPU device refuses the kernel."""
    found: dict[str, Contestant] = {}
    try:
        found["cujit"] = InCuda(case, device)
    except cujit.errors.UnsupportedError as e:
        print(f"{case.name}: {e}".splitlines()[0], file=sys.stderr)
    if not missing_compiler():
        found["C"] = InC(case, folder)
    if cl is not None and not any(step.cooperative for step in case.steps):  # OpenCL has no such grids
        found["PoCL"] = in_opencl(case, cl)
    return found


def measure(case: Case, device: cujit.Device, cl: OpenCl | None, folder: Path) -> dict[str, float]:
    """Give the median seconds of each contestant, all checked."""
    contestants = _contestants(case, device, cl, folder)
    for name, contestant in contestants.items():
        _check(case, name, contestant)
    took = medians({name: c.run for name, c in contestants.items()}, ROUNDS, warm_up=1)
    for name, contestant in contestants.items():
        _check(case, name, contestant)
    return took


# -- the table --------------------------------------------------------------------------------------------

_HEAD = ("kernel", "× C", "× PoCL", "floor", "met", "aim", "met")
_WIDTHS = (30, 8, 8, 12, 5, 10, 5)


def _line(cells: Sequence[str]) -> str:
    return "".join(f"{cell:<{width}}" for cell, width in zip(cells, _WIDTHS, strict=True)).rstrip()


def _speed(took: Mapping[str, float], other: str) -> float | None:
    """How many times as fast as another cujit is; None where one of them did not run."""
    return took[other] / took["cujit"] if "cujit" in took and other in took else None


def _shown(speed: float | None) -> str:
    return "-" if speed is None else f"{speed:.3g}"


def _met(speed: float | None, wanted: float) -> str:
    return "-" if speed is None else "yes" if speed >= wanted else "NO"


def row(case: Case, took: Mapping[str, float]) -> str:
    """Write a case's line."""
    by_c, by_pocl = _speed(took, "C"), _speed(took, "PoCL")
    ours = _shown(by_c) if "cujit" in took else "refused"
    without = "PoCL" not in took
    floor, ruler = (case.floor_by_c, "C") if without else (case.floor, "PoCL")
    floor_met = _met(by_c if without else by_pocl, floor)
    aim_met = _met(_speed(took, case.aim_of), case.aim)
    wanted = (f"{floor:.3g} {ruler}", floor_met, f"{case.aim:.3g} {case.aim_of}", aim_met)
    return _line((case.what, ours, _shown(by_pocl), *wanted))


def _opencl(folder: str) -> OpenCl | str:
    """Open PoCL, or say why not."""
    try:
        return OpenCl(folder)
    except OpenClError as e:
        return f"no PoCL: {e}; floors are in C's speed"


def run(only: Sequence[str] = ()) -> Iterator[str]:
    """Measure the cases named in ``only`` (none: all of them, preparing and launching too); give the table's lines."""
    os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)
    yield "the CPU device, speed as a multiple of C's and PoCL's (above 1 is faster)"
    with tempfile.TemporaryDirectory() as folder:
        opened = _opencl(folder)
        cl = opened if isinstance(opened, OpenCl) else None
        yield opened.name if isinstance(opened, OpenCl) else opened
        if missing_compiler():
            yield f"no C: {missing_compiler()}"
        yield _line(_HEAD)
        device = cujit.cpu()
        for case in CASES:
            if not only or case.name in only:
                yield row(case, measure(case, device, cl, Path(folder)))
        if not only:
            yield ""
            yield from cpu_products.run(device)
            yield ""
            yield from cpu_prepare.run(device, cl, Path(folder))


if __name__ == "__main__":
    for line in run(sys.argv[1:]):
        print(line, flush=True)
