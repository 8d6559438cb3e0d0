"""What checks cost on the CPU device: kernels of many shapes under each check, as a multiple of the CPU time without.

Each kernel runs without checks and under each check in turns, in one process, and medians of CPU time are compared: on
a machine that does other things too the clock says little. Results are compared with those without checks.

``python benchmarks/checks.py memory race`` measures those checks alone, ``padded`` among the words that kernel alone.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

import cujit

__all__ = ["CHECKS", "GRIDS", "KERNELS", "Case", "launcher", "ratios_of", "run"]

CHECKS = ("memory", "race", "init", "sync", "all")
AIMS = {"memory": 8, "race": 15, "init": 20, "sync": 4, "all": 25}
"""The most that a check may cost in the worst of the kernels."""
MEDIAN_AIMS = {"init": 10}
"""The most that one may cost in the median kernel."""

FOLDER = Path(__file__).parent / "cpu"
ROUNDS = 9
_LEAST_S = 0.004
"""CPU seconds that a turn takes at least: many launches are one turn."""

_SIDE, _MANY, _PRODUCT, _TILE = 512, 1 << 18, 256, 1 << 16
_F32, _F16, _F64, _I32, _I16, _U8 = np.float32, np.float16, np.float64, np.int32, np.int16, np.uint8
Shape = tuple[int, ...]


class Case:
    """A kernel: where it is launched, what it reads (arrays, before the one that it writes), and what follows that."""

    def __init__(
        self, grid: Shape, block: Shape, reads: Sequence[tuple[npt.DTypeLike, Shape]], out: tuple[npt.DTypeLike, Shape],
        *more: int, file: str = "shapes.cu", arch: str = "", shared_bytes: int = 0,
    ) -> None:  # fmt: skip
        self.launch = (grid, block, shared_bytes)
        self.reads, self.out, self.more, self.file, self.arch = reads, out, more, file, arch


def _line(type_: npt.DTypeLike, threads: int = _TILE, block: int = 256, *, reads: int = 1, writes: int = 1) -> Case:
    """A kernel whose every thread reads and writes an element, or several, of its own."""
    return Case((threads // block,), (block,), [(type_, (threads * reads,))], (type_, (threads * writes,)))


def _update(type_: npt.DTypeLike) -> Case:
    """A kernel of updates.cu whose every thread updates an element."""
    tile = (type_, (_TILE,))
    return Case((_TILE // 256,), (256,), [tile], tile, file="updates.cu")


def _form(
    type_: npt.DTypeLike, *reads: tuple[npt.DTypeLike, Shape], more: tuple[int, ...] = (), arch: str = ""
) -> Case:
    """A kernel of forms.cu whose every thread reads and writes an element of its own; it may read more."""
    tile = (type_, (_TILE,))
    return Case((_TILE // 256,), (256,), [tile, *reads], tile, *more, file="forms.cu", arch=arch)


_SQUARE = (_F32, (_SIDE, _SIDE))
_FACTOR = (_F32, (_PRODUCT, _PRODUCT))
_HALVES = (_F16, (_PRODUCT, _PRODUCT))
_TURNED = Case((_SIDE // 32, _SIDE // 32), (32, 8), [_SQUARE], _SQUARE, _SIDE)
_TILED = (_PRODUCT // 16, _PRODUCT // 16)

KERNELS: dict[str, Case] = {
    "blur": Case((_SIDE // 32, _SIDE // 8), (32, 8), [_SQUARE], _SQUARE, _SIDE, file="checked.cu"),
    "scan": Case((_MANY // 256,), (256,), [(_F32, (_MANY,))], (_F32, (_MANY,)), file="checked.cu"),
    "gather": Case((_MANY // 256,), (256,), [(_F32, (_MANY,)), (_I32, (_MANY,))], (_F32, (_MANY,)), file="checked.cu"),
    "product": Case(_TILED, (16, 16), [_FACTOR, _FACTOR], _FACTOR, _PRODUCT, file="checked.cu"),
    "padded": Case(_TILED, (16, 16), [_FACTOR, _FACTOR], _FACTOR, _PRODUCT),
    "transposed": _TURNED,
    "swizzled": _TURNED,
    "bytes": _line(_U8),
    "halves": _line(_F16),
    "dynamic": Case((_TILE // 256,), (256,), [(_F32, (_TILE,))], (_F32, (_TILE,)), shared_bytes=1024),
    "cube": Case((8, 8, 16), (8, 8, 4), [(_F32, (72, 72, 72))], (_F32, (72, 72, 72)), 66),
    "strided": _line(_F32),
    "spread": Case((_TILE // 256,), (256,), [(_F32, (_TILE,))], (_F32, (_TILE,)), _TILE),
    "broadcast": _line(_F32),
    "table": Case((_TILE // 256,), (256,), [(_F32, (_TILE,)), (_I32, (_TILE,))], (_F32, (_TILE,))),
    "shuffled": Case((_TILE // 256,), (256,), [(_F32, (_TILE,)), (_I32, (256,))], (_F32, (_TILE,))),
    "vectors": _line(_F32, reads=4, writes=4),
    "hundred": _line(_F32, 51200, 100),
    "histogram": _line(_I32),
    "counters": _line(_I32),
    "warps": _line(_F32),
    "staged": Case((_TILE // 256,), (256,), [(_F32, (_TILE * 4,))], (_F32, (_TILE,)), _TILE * 4),
    "tensor": Case((_PRODUCT // 8, _PRODUCT // 16), (32,), [_HALVES, _HALVES], _FACTOR, _PRODUCT),
    "sorted": _line(_F32),
    "butterfly": Case((_TILE // 512,), (256,), [(_F32, (_TILE * 2,))], (_F32, (_TILE * 2,))),
    "local": _line(_I32),
    "doubles": _line(_F64),
    "bodies": _line(_F32, block=128, reads=3),
    "lanes": _line(_F32),
    "partial": Case((_TILE // 256,), (256,), [(_F32, (_TILE,))], (_F32, (_TILE // 256,)), _TILE - 77),
    "interleaved": _line(_F32),
    "halving": Case((_TILE // 256,), (256,), [(_F32, (_TILE,))], (_F32, (_TILE // 256,))),
    "buffered": Case((_TILE // 256,), (32, 8), [(_F32, (_TILE,))], (_F32, (_TILE,))),
    "often": _line(_F32),
    "shorts": _line(_I16),
    "named": _form(_F32),
    "handed": _form(_F32),
    "summed": _form(_F32),
    "exchanged": _form(_F32, arch="compute_90"),
    "blocked": Case((_PRODUCT // 64, _PRODUCT // 64), (256,), [_FACTOR, _FACTOR], _FACTOR, _PRODUCT, file="forms.cu"),
    "filtered": _form(_F32, (_F32, (9,)), more=(_TILE,)),
    "layers": Case((4, 16), (32, 8), [(_F32, (16, 128, 128))], (_F32, (16, 128, 128)), 128, file="forms.cu"),
    "softmax": _form(_F32),
    "ranked": _form(_I32),
    "listed": _form(_I32),
    "sparse": Case((_TILE // 256,), (256,), [(_F32, (_TILE,)), (_I32, (_TILE,))], (_F32, (_TILE // 32,)), _TILE,
                   file="forms.cu"),
    "substituted": _form(_I32),
    "sevens": Case((_TILE // 100,), (100,), [(_F32, (_TILE,))], (_F32, (_TILE // 100 * 100,)), file="forms.cu"),
    "linked": _form(_F32),
    "settled": _form(_I32),
    "warpgroup": Case((_PRODUCT // 8, _PRODUCT // 64), (128,), [_HALVES, _HALVES], _FACTOR, _PRODUCT,
                      file="warpgroup.cu", arch="compute_90a"),
    "updated": _update(_F32),
    "updated_bytes": _update(_U8),
    "repeated": _update(_F32),
    "marked": Case((_TILE // 256,), (256,), [(_I32, (_TILE,))], (_U8, (_TILE,)), file="updates.cu"),
    "smoothed": _update(_F32),
    "folded": Case((_TILE // 256,), (256,), [(_F32, (_TILE,))], (_F32, (1,)), file="updates.cu"),
    "scanned_shorts": _update(_I16),
    "scanned_warps": _update(_F32),
    "folded_by_warp": Case((_TILE // 256,), (256,), [(_F32, (_TILE,))], (_F32, (_TILE // 256,)), file="updates.cu"),
    "counted": Case((_TILE // 256,), (256,), [(_I32, (_TILE,))], (_I32, (_TILE // 256,)), file="updates.cu"),
}  # fmt: skip
GRIDS = {name: KERNELS[name].launch[:2] for name in ("blur", "scan", "gather", "product")}


def _values(rng: np.random.Generator, type_: npt.DTypeLike, shape: Shape) -> npt.NDArray[np.generic]:
    """Make what a kernel reads: a permutation of numbers of elements, or numbers below one."""
    if type_ == _I32:
        return rng.permutation(int(np.prod(shape))).astype(_I32).reshape(shape)
    return (rng.random(shape) * (255 if type_ == _U8 else 1)).astype(type_)


def launcher(kernel: str, device: cujit.Device) -> tuple[cujit.DeviceArray, Callable[[], object]]:
    """Make what launches a kernel, and the array that it writes."""
    case, rng = KERNELS[kernel], np.random.default_rng(7)
    out = device.zeros(case.out[1], case.out[0])
    arguments = [*(device.array(_values(rng, *each)) for each in case.reads), out, *map(np.int32, case.more)]
    image = cujit.compile(
        FOLDER / case.file, arch=case.arch or ("compute_90" if case.file == "forms.cu" else "compute_80")
    )
    grid, block, shared_bytes = case.launch
    launch = cujit.load(image, device)[kernel].prepare(grid, block, shared_bytes=shared_bytes)
    return out, lambda: launch(*arguments)


def ratios_of(runs: Mapping[str, Callable[[], object]]) -> dict[str, list[float]]:
    """Run everybody in turns; give the ratios of CPU time to the first one's turn before it."""
    times = {name: max(1, round(_LEAST_S / _seconds(run, 1))) for name, run in runs.items()}
    plain, *others = runs
    found: dict[str, list[float]] = {name: [] for name in others}
    for _ in range(ROUNDS):
        for name in others:
            before, took = (_seconds(runs[each], times[each]) for each in (plain, name))
            found[name].append(took / before)
    return found


def _seconds(run: Callable[[], object], times: int) -> float:
    begin = time.process_time()
    for _ in range(times):
        run()
    return (time.process_time() - begin) / times


def run(only: Sequence[str] = ()) -> Iterator[str]:
    """Measure the checks and kernels named in ``only`` (none: all of them); give the table's lines."""
    checks = [check for check in CHECKS if check in only] or [*CHECKS]
    kernels = [kernel for kernel in KERNELS if kernel in only] or [*KERNELS]
    yield "checks on the CPU device: CPU time as a multiple of that without (median, least to most)"
    yield "".join(f"{cell:<22}" for cell in ("kernel", *checks)).rstrip()
    found: dict[str, dict[str, float]] = {check: {} for check in checks}
    for kernel in kernels:
        devices = {"none": cujit.cpu(1), **{check: cujit.cpu(1, check=check) for check in checks}}
        made = {name: launcher(kernel, device) for name, device in devices.items()}
        for _, launch in made.values():
            launch()
        for out, _ in made.values():
            np.testing.assert_array_equal(out.numpy(), made["none"][0].numpy())
        ratios = ratios_of({name: launch for name, (_, launch) in made.items()})
        cells = [f"{statistics.median(r):.1f} ({min(r):.1f} to {max(r):.1f})" for r in ratios.values()]
        for check in checks:
            found[check][kernel] = statistics.median(ratios[check])
        yield "".join(f"{cell:<22}" for cell in (kernel, *cells)).rstrip()
    for check, of in found.items():
        worst, median = max(of, key=of.__getitem__), statistics.median(of.values())
        good = of[worst] <= AIMS[check] and median <= MEDIAN_AIMS.get(check, AIMS[check])
        aims = f"aim {AIMS[check]}" + (f", {MEDIAN_AIMS[check]} in the median" if check in MEDIAN_AIMS else "")
        figures = f"{median:.1f} in the median, {of[worst]:.1f} at worst ({worst})"
        yield f"{check}: {figures}; {aims}: {'yes' if good else 'NO'}"


if __name__ == "__main__":
    for line in run(sys.argv[1:]):
        print(line, flush=True)
