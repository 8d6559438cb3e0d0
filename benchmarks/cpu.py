"""The CPU device against C and PoCL: the same algorithms, all on all cores, in the same memory, in one run.

C is ``gcc -O3 -march=native -fopenmp``, with ``-ffast-math`` for the cases that are ``fast``. OpenCL C is compiled with
no options, as CUDA C++ is. cujit takes turns with C, then with PoCL: idle threads of one slow another down. Each result
is compared with NumPy's before and after the timing; a wrong one ends the run.

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
from cpu_cases import CASES, Array, Case
from cpu_contestants import Contestant, InC, InCuda, aligned, in_opencl, missing_compiler
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


def _others(case: Case, cl: OpenCl | None, folder: Path, arrays: Sequence[Array]) -> dict[str, Contestant]:
    """Compile a case for those whom cujit is compared with."""
    found: dict[str, Contestant] = {}
    if not missing_compiler():
        found["C"] = InC(case, folder, arrays)
    if cl is not None and not any(step.cooperative for step in case.steps):  # OpenCL has no such grids
        found["PoCL"] = in_opencl(case, cl, arrays)
    return found


def measure(case: Case, device: cujit.Device, cl: OpenCl | None, folder: Path) -> dict[str, float]:
    """Give how many times as fast as the others cujit is, all checked; nothing where the device refuses the kernel."""
    arrays = [aligned(array) for array in case.make()]
    try:
        own = InCuda(case, device, arrays)
    except cujit.errors.UnsupportedError as e:
        print(f"{case.name}: {e}".splitlines()[0], file=sys.stderr)
        return {}
    speeds = {}
    for name, other in _others(case, cl, folder, arrays).items():
        pair = {"cujit": own, name: other}
        for who, contestant in pair.items():
            _check(case, who, contestant)
        took = medians({who: contestant.run for who, contestant in pair.items()}, ROUNDS, warm_up=1)
        for who, contestant in pair.items():
            _check(case, who, contestant)
        speeds[name] = took[name] / took["cujit"]
    return speeds


# -- the table --------------------------------------------------------------------------------------------

_HEAD = ("kernel", "× C", "× PoCL", "floor", "met", "aim", "met")
_WIDTHS = (30, 8, 8, 12, 5, 10, 5)


def _line(cells: Sequence[str]) -> str:
    return "".join(f"{cell:<{width}}" for cell, width in zip(cells, _WIDTHS, strict=True)).rstrip()


def _shown(speed: float | None) -> str:
    return "-" if speed is None else f"{speed:.3g}"


def _met(speed: float | None, wanted: float) -> str:
    return "-" if speed is None else "yes" if speed >= wanted else "NO"


def row(case: Case, speeds: Mapping[str, float]) -> str:
    """Write a case's line."""
    by_c, by_pocl = speeds.get("C"), speeds.get("PoCL")
    ours = _shown(by_c) if speeds else "refused"
    without = by_pocl is None
    floor, ruler = (case.floor_by_c, "C") if without else (case.floor, "PoCL")
    floor_met = _met(by_c if without else by_pocl, floor)
    aim_met = _met(speeds.get(case.aim_of), case.aim)
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
