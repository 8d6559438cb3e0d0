"""How everything here is timed: contestants take turns, each turn is timed alone, medians are compared."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping

from cujit.emulator.environment import environment_of
from cujit.emulator.settings import EmulatorSettings

__all__ = ["emulated", "in_emulator", "medians", "row"]


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


def emulated() -> dict[str, str]:
    """Give the environment of a process that finds the emulator where it looks for a driver."""
    return {**os.environ, **environment_of(EmulatorSettings())}


def in_emulator(script: str) -> list[str]:
    """Run a program of Python under the emulator; give its lines, or end with what it said instead."""
    done = subprocess.run([sys.executable, "-c", script], env=emulated(), capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout.splitlines()
