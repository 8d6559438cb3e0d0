"""How everything here is timed: contestants take turns, each turn is timed alone, medians are compared."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

__all__ = ["medians", "row"]


def medians(contestants: Mapping[str, Callable[[], object]], rounds: int, warm_up: int = 2) -> dict[str, float]:
    """Time each contestant once a round, ``rounds`` times, interleaved; return the median seconds of each."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(warm_up + rounds):
        for name, run in contestants.items():
            start = time.perf_counter()
            run()
            if turn >= warm_up:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(t) for name, t in times.items()}


def row(what: str, mine: float, floor: float, floor_name: str, unit: str, scale: float) -> str:
    """Write one line: both medians and their ratio."""
    theirs = f"{floor_name} {floor * scale:.3f} {unit}"
    return f"{what}: {mine * scale:.3f} {unit}, {theirs}, ratio {mine / floor:.3f}"
