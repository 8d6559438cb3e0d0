"""What checks cost on the CPU device: four kernels under each check, as a multiple of the CPU time without any.

Each kernel runs without checks and under each check in turns, in one process, and medians of CPU time are compared: on
a machine that does other things too the clock says little. Results are compared with those without checks.

``python benchmarks/checks.py memory race`` measures those checks alone.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

import cujit

__all__ = ["GRIDS", "launcher", "ratios_of", "run"]

CHECKS = ("memory", "race", "init", "sync", "all")
AIMS = {"memory": 8, "race": 12, "init": 8, "sync": 4, "all": 20}
"""The most that a check may cost in the worst of the kernels."""

SOURCE = Path(__file__).parent / "cpu" / "checked.cu"
ROUNDS = 9
_LEAST_S = 0.004
"""CPU seconds that a turn takes at least: many launches are one turn."""

_SIDE, _MANY, _PRODUCT = 512, 1 << 18, 256
GRIDS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "blur": ((_SIDE // 32, _SIDE // 8), (32, 8)),
    "scan": ((_MANY // 256,), (256,)),
    "gather": ((_MANY // 256,), (256,)),
    "product": ((_PRODUCT // 16, _PRODUCT // 16), (16, 16)),
}


def _arguments(kernel: str, device: cujit.Device) -> tuple[cujit.DeviceArray, list[object]]:
    """Make what a kernel writes, and its arguments."""
    rng = np.random.default_rng(7)

    def array(*shape: int) -> cujit.DeviceArray:
        return device.array(rng.random(shape, np.float32))

    if kernel == "blur":
        out = device.zeros((_SIDE, _SIDE), np.float32)
        return out, [array(_SIDE, _SIDE), out, np.int32(_SIDE)]
    if kernel == "product":
        out = device.empty((_PRODUCT, _PRODUCT), np.float32)
        return out, [array(_PRODUCT, _PRODUCT), array(_PRODUCT, _PRODUCT), out, np.int32(_PRODUCT)]
    out = device.empty(_MANY, np.float32)
    at = [device.array(rng.permutation(_MANY).astype(np.int32))] if kernel == "gather" else []
    return out, [array(_MANY), *at, out]


def launcher(kernel: str, device: cujit.Device) -> tuple[cujit.DeviceArray, Callable[[], object]]:
    """Make what launches a kernel, and the array that it writes."""
    out, arguments = _arguments(kernel, device)
    launch = cujit.jit(SOURCE.read_text(), device=device)[kernel].prepare(*GRIDS[kernel])
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
    """Measure the checks named in ``only`` (none: all of them); give the table's lines."""
    checks = [check for check in CHECKS if not only or check in only]
    yield "checks on the CPU device: CPU time as a multiple of that without (median, least to most)"
    yield "".join(f"{cell:<22}" for cell in ("kernel", *checks)).rstrip()
    worst = dict.fromkeys(checks, 0.0)
    for kernel in GRIDS:
        devices = {"none": cujit.cpu(1), **{check: cujit.cpu(1, check=check) for check in checks}}
        made = {name: launcher(kernel, device) for name, device in devices.items()}
        for _, launch in made.values():
            launch()
        for out, _ in made.values():
            np.testing.assert_array_equal(out.numpy(), made["none"][0].numpy())
        ratios = ratios_of({name: launch for name, (_, launch) in made.items()})
        cells = [f"{statistics.median(r):.1f} ({min(r):.1f} to {max(r):.1f})" for r in ratios.values()]
        worst = {check: max(worst[check], statistics.median(ratios[check])) for check in checks}
        yield "".join(f"{cell:<22}" for cell in (kernel, *cells)).rstrip()
    for check, ratio in worst.items():
        yield f"{check}: {ratio:.1f} at worst, aim {AIMS[check]}: {'yes' if ratio <= AIMS[check] else 'NO'}"


if __name__ == "__main__":
    for line in run(sys.argv[1:]):
        print(line, flush=True)
