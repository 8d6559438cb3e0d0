"""Compare one launch under many schedules of the CPU device: do its results depend on the order of warps or copies?"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cujit.devices.cpu.observe.scheduling import Schedule, Written
from cujit.devices.device import Device
from cujit.devices.launcher.entry import LaunchEntry
from cujit.devices.launcher.replay import Replayed, replays
from cujit.devices.process import process_devices
from cujit.devices.shapes import LaunchShape
from cujit.errors import OptionError, spell
from cujit.values import NamedTuple, dataclass

TOLERANCE = 1e-3
"""How far floats may differ, relative to the larger one, where only the order of atomic operations decides."""


class ScheduledRun(NamedTuple):
    """One schedule of two that differ: its seed, the value that it gave, and the last writes behind that."""

    seed: int
    value: object
    writes: tuple[Written, ...]


@dataclass(frozen=True)
class Difference:
    """Two schedules give an array other values: at ``index`` of an ``argument`` of a ``type``, the first that differs.

    ``by_atomics`` tells that every write there is an atomic operation, and that the values are as close as the
    tolerance: the order of atomic operations decides, which PTX leaves open.
    """

    argument: int
    type: str
    index: tuple[int, ...]
    first: ScheduledRun
    second: ScheduledRun
    by_atomics: bool

    def __str__(self) -> str:
        place = f"element {list(self.index)} of argument {self.argument}" + (f" ({self.type})" if self.type else "")
        lines = [
            f"{place} depends on the schedule" + ("; only the order of atomic operations decides" * self.by_atomics)
        ]
        for run in (self.first, self.second):
            lines.append(f"  schedule {run.seed}: {run.value}")
            lines += [f"    block {w.block}, thread {w.thread} wrote it at {w.text}" for w in run.writes[-_SHOWN:]]
            lines += [] if run.writes else ["    the kernel did not write it, or by a texture or tensor instruction"]
        return "\n".join(lines)


_SHOWN = 3
"""Writes of each schedule that are printed."""


@dataclass(frozen=True)
class ScheduleReport:
    """What a launch gave under ``schedules`` schedules, the seeds from ``first_seed`` on.

    ``difference`` is None where all gave the same. One that atomic operations explain counts as equal.
    """

    kernel: str
    schedules: int
    first_seed: int
    difference: Difference | None

    @property
    def equal(self) -> bool:
        """Whether all schedules gave the same, but for the order of atomic operations."""
        return self.difference is None or self.difference.by_atomics

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain data."""
        found = self.difference
        runs = () if found is None else (found.first, found.second)
        return {
            "kernel": self.kernel,
            "schedules": self.schedules,
            "first_seed": self.first_seed,
            "equal": self.equal,
            "difference": found
            and {
                "argument": found.argument,
                "index": list(found.index),
                "by_atomics": found.by_atomics,
                "runs": [
                    {
                        "seed": run.seed,
                        "value": str(run.value),
                        "writes": [
                            {"block": list(w.block), "thread": list(w.thread), "line": w.line, "text": w.text}
                            for w in run.writes
                        ],
                    }
                    for run in runs
                ],
            },
        }

    def __str__(self) -> str:
        if self.difference is None:
            return f"{self.kernel}: {self.schedules} schedules give the same"
        return f"{self.kernel}: {self.difference}"


@dataclass(frozen=True)
class ManySchedules:
    """How to compare a launch: under how many ``schedules``, whose seeds begin at ``first_seed``, with which checks."""

    schedules: int = 50
    first_seed: int = 0
    check: str | None = None
    start_order: str = "ascending"
    tolerance: float = TOLERANCE

    def device(self, *, notes_writes: bool = False) -> tuple[Device, Schedule]:
        """Make a CPU device that runs by a schedule.

        Raises:
            OptionError: the seed is no seed, or there is no such order or check.
        """
        schedule = Schedule(self.first_seed, self.start_order, notes_writes=notes_writes)
        return process_devices().cpu(None, [schedule], check=self.check), schedule


def compare(
    entry: LaunchEntry, shape: LaunchShape | None, arguments: Sequence[object], how: ManySchedules
) -> ScheduleReport:
    """Run a launch with copies of its arrays under one schedule after the other, until one gives something else.

    Raises:
        OptionError: fewer than two schedules, or what ``ManySchedules.device`` raises.
        KernelFaultError: the kernel could not go on under a schedule, or a check found something.
        Whatever ``replay`` raises.
    """
    if isinstance(how.schedules, bool) or not isinstance(how.schedules, int) or how.schedules < 2:
        raise OptionError(f"{spell(how.schedules)} schedules cannot be compared", help="schedules=50")
    device, schedule = how.device()
    by_atomics: Difference | None = None
    with contextlib.closing(replays(entry, shape, arguments, device)) as runs:
        first = _run(runs, schedule, how.first_seed)
        for seed in range(how.first_seed + 1, how.first_seed + how.schedules):
            other = _run(runs, schedule, seed)
            for place in _differences(first, other):
                found = _explained(entry, shape, arguments, how, place, seed)
                if not found.by_atomics:
                    return ScheduleReport(entry.name, how.schedules, how.first_seed, found)
                by_atomics = by_atomics or found
    return ScheduleReport(entry.name, how.schedules, how.first_seed, by_atomics)


def _run(runs: Iterator[Replayed], schedule: Schedule, seed: int) -> Replayed:
    schedule.seed = seed
    return next(runs)


class _Place(NamedTuple):
    """An element of an array argument: how many come before it in ``array``."""

    argument: int
    flat: int
    array: npt.NDArray[Any]


def _differences(first: Replayed, other: Replayed) -> Iterator[_Place]:
    """List the first element of each array that differs, bit by bit."""
    for number in first.addresses:
        one, two = (np.ascontiguousarray(run.results[number]) for run in (first, other))
        size = max(one.dtype.itemsize, 1)
        bytes_ = [a.view(np.uint8).reshape(-1, size) if a.size else np.zeros((0, size), np.uint8) for a in (one, two)]
        differ = np.flatnonzero((bytes_[0] != bytes_[1]).any(axis=1))
        if differ.size:
            yield _Place(number, int(differ[0]), one)


def _explained(
    entry: LaunchEntry,
    shape: LaunchShape | None,
    arguments: Sequence[object],
    how: ManySchedules,
    place: _Place,
    seed: int,
) -> Difference:
    """Repeat two schedules and say which writes are behind what they gave."""
    device, noting = how.device(notes_writes=True)
    found: list[ScheduledRun] = []
    array = place.array

    def watch(addresses: Mapping[int, int]) -> None:
        noting.watched = addresses[place.argument] + place.flat * array.itemsize, array.itemsize

    with contextlib.closing(replays(entry, shape, arguments, device, watch)) as runs:
        for each in (how.first_seed, seed):
            result: npt.NDArray[Any] = np.asarray(_run(runs, noting, each).results[place.argument])
            found.append(ScheduledRun(each, result.reshape(-1)[place.flat], tuple(noting.writes)))
    first, second = found
    index = tuple(int(k) for k in np.unravel_index(place.flat, array.shape)) if array.ndim else ()
    atomic = all(run.writes and all(write.atomic for write in run.writes) for run in found)
    close = atomic and _are_close(first.value, second.value, how.tolerance)
    type_ = str(entry.signature.parameters[place.argument].type)
    return Difference(place.argument, type_, index, first, second, close)


def _are_close(one: Any, two: Any, tolerance: float) -> bool:
    """Whether two numbers are as close as that; of integers, whose sums do not depend on the order, only equal ones."""
    if not np.issubdtype(np.asarray(one).dtype, np.inexact):
        return False
    return bool(np.isclose(one, two, rtol=tolerance, atol=tolerance, equal_nan=True))
