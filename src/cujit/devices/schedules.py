"""Comparison of one launch under many schedules of the CPU device, which shows a dependence on order or contraction."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cujit.devices.cpu.observe.scheduling import Schedule, WrittenRange
from cujit.devices.cpu.observe.watching import PTXAS
from cujit.devices.device import Device
from cujit.devices.launcher.entry import LaunchEntry
from cujit.devices.launcher.replay import Replayed, load_copy, replays
from cujit.devices.options import LaunchOptions
from cujit.devices.process import process_devices
from cujit.devices.shapes import LaunchShape
from cujit.errors import OptionError, spell
from cujit.errors.stories import Story, StoryStep
from cujit.values import NamedTuple, dataclass

TOLERANCE = 1e-3
"""How far floats may differ, relative to the larger one, where only the order of atomic operations decides."""


class ScheduledRun(NamedTuple):
    """One of two schedules with different results: its seed, the resulting value, and the last writes of the value.

    ``contract`` is ``ptxas`` if sums were contracted, otherwise ``off``: ``cujit.cpu(schedule=…, contract=…)``.
    """

    seed: int
    value: object
    writes: tuple[WrittenRange, ...]
    contract: str = "off"


@dataclass(frozen=True)
class Difference:
    """The first element with different values under two schedules: ``index`` in the array ``argument`` of the type
    ``type``.

    ``by_atomics`` is True if all its writes are atomic operations and the values are equal within the tolerance. The
    cause is the order of atomic operations, which PTX leaves open. ``by_contraction`` is True if both runs have the
    same seed. The cause is the rounding of products, which PTX leaves to the assembler.
    """

    argument: int
    type: str
    index: tuple[int, ...]
    first: ScheduledRun
    second: ScheduledRun
    by_atomics: bool
    by_contraction: bool = False

    def __str__(self) -> str:
        place = f"element {list(self.index)} of argument {self.argument}" + (f" ({self.type})" if self.type else "")
        cause = "contraction of products and sums" if self.by_contraction else "schedule"
        cause += "; only the order of atomic operations decides" * self.by_atomics
        lines = [f"{place} depends on the {cause}"]
        for run in (self.first, self.second):
            how = f', contract="{run.contract}"' * self.by_contraction
            lines.append(f"  schedule {run.seed}{how}: {run.value}")
            lines += [f"    block {w.block}, thread {w.thread} wrote it at {w.text}" for w in run.writes[-_SHOWN:]]
            lines += [] if run.writes else ["    the kernel did not write it, or by a texture or tensor instruction"]
        lines += [_NO_CONTRACTION] * self.by_contraction
        return "\n".join(lines)

    @property
    def story(self) -> Story | None:
        """The last writes of both schedules, or None if the order of writes doesn't explain the difference."""
        runs = (self.first, self.second)
        steps = tuple(
            StoryStep(number, f"block {w.block}, thread {w.thread} writes", w.text)
            for number, run in enumerate(runs)
            for w in run.writes[-_SHOWN:]
        )
        if self.by_contraction or not steps:
            return None
        first, second = (f"schedule {run.seed}: {run.value}" for run in runs)
        return Story((first, second), steps, "the kernel doesn't fix the order of these writes", len(steps))


_SHOWN = 3
"""Writes of each schedule that are printed."""

_NO_CONTRACTION = (
    "  hint: compile with fmad=False, or write __fmul_rn(a, b) for a product that must be rounded by itself."
)


@dataclass(frozen=True)
class ScheduleReport:
    """The result of a launch under ``schedules`` schedules, with consecutive seeds from ``first_seed`` on.

    ``difference`` is None if all results are equal. Results that differ only by the order of atomic operations count as
    equal.
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
                "by_contraction": found.by_contraction,
                "story": found.story and found.story.to_json(),
                "runs": [
                    {
                        "seed": run.seed,
                        "contract": run.contract,
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
            return f"{self.kernel}: {self.schedules} schedules produce the same results"
        return f"{self.kernel}: {self.difference}"


@dataclass(frozen=True)
class ManySchedules:
    """Settings of a comparison: the number of ``schedules``, their first seed, and the checks.

    ``contract`` is as in ``cujit.cpu(contract=…)``. None compares both contractions if they differ for the kernel.
    """

    schedules: int = 50
    first_seed: int = 0
    check: str | None = None
    start_order: str = "ascending"
    tolerance: float = TOLERANCE
    contract: str | None = None

    def device(self, contract: str | None, *, notes_writes: bool = False) -> tuple[Device, Schedule]:
        """Make a CPU device that runs by a schedule.

        Raises:
            OptionError: the seed is no seed, or there is no such order, check or contraction.
        """
        schedule = Schedule(self.first_seed, self.start_order, notes_writes=notes_writes)
        return process_devices().cpu(None, [schedule], check=self.check, contract=contract), schedule


def compare(
    entry: LaunchEntry,
    shape: LaunchShape | None,
    options: LaunchOptions,
    arguments: Sequence[object],
    how: ManySchedules,
) -> ScheduleReport:
    """Run a launch with copies of its arrays under one schedule after another, until a result differs.

    Each seed is compared with the first seed under the same contraction. The first seed is also compared under both
    contractions.

    Raises:
        OptionError: there are fewer than two schedules, or ``ManySchedules.device`` raised it.
        KernelFaultError: the kernel couldn't continue under a schedule, or a check reported an error.
        Whatever ``replay`` raises.
    """
    if isinstance(how.schedules, bool) or not isinstance(how.schedules, int) or how.schedules < 2:
        raise OptionError(f"can't compare {spell(how.schedules)} schedules", help="schedules=50")
    open_to: Difference | None = None
    with contextlib.ExitStack() as stack:
        launch = _Launch(entry, shape, options, arguments, how)
        runs = {contract: launch.runs(stack, contract) for contract in launch.contractions()}
        firsts = {contract: run(how.first_seed) for contract, run in runs.items()}
        kept, *others = runs
        for contract in others:
            for place in _differences(firsts[kept], firsts[contract]):
                open_to = open_to or launch.explained(place, (how.first_seed, kept), (how.first_seed, contract))
        for seed in range(how.first_seed + 1, how.first_seed + how.schedules):
            contract = PTXAS if others and Schedule(seed).contracts else kept
            for place in _differences(firsts[contract], runs[contract](seed)):
                found = launch.explained(place, (how.first_seed, contract), (seed, contract))
                if not found.by_atomics:
                    return ScheduleReport(entry.name, how.schedules, how.first_seed, found)
                open_to = open_to or found
    return ScheduleReport(entry.name, how.schedules, how.first_seed, open_to)


class _WritePlace(NamedTuple):
    """An element of an array argument. ``flat`` is the number of elements before it in ``array``."""

    argument: int
    flat: int
    array: npt.NDArray[Any]


def _differences(first: Replayed, other: Replayed) -> Iterator[_WritePlace]:
    """List the first element of each array that differs, bit by bit."""
    for number in first.addresses:
        one, two = (np.ascontiguousarray(run.results[number]) for run in (first, other))
        size = max(one.dtype.itemsize, 1)
        bytes_ = [a.view(np.uint8).reshape(-1, size) if a.size else np.zeros((0, size), np.uint8) for a in (one, two)]
        differ = np.flatnonzero((bytes_[0] != bytes_[1]).any(axis=1))
        if differ.size:
            yield _WritePlace(number, int(differ[0]), one)


@dataclass(frozen=True)
class _Launch:
    """A launch that is run under schedules."""

    entry: LaunchEntry
    shape: LaunchShape | None
    options: LaunchOptions
    arguments: Sequence[object]
    how: ManySchedules

    def contractions(self) -> tuple[str, ...]:
        """Return the contractions to compare: the caller's, otherwise both if they differ for the kernel."""
        if self.how.contract is not None:
            return (self.how.contract,)
        module = load_copy(self.entry, self.how.device(PTXAS)[0])
        try:
            return ("off", PTXAS) if module.kernels[self.entry.loaded.name].contracts else ("off",)
        finally:
            module.close()

    def runs(self, stack: contextlib.ExitStack, contract: str) -> Callable[[int], Replayed]:
        """Return a function that runs the launch under a seed, until ``stack`` ends."""
        device, schedule = self.how.device(contract)
        runs = stack.enter_context(contextlib.closing(self._replays(device)))
        return lambda seed: _run(runs, schedule, seed)

    def _replays(
        self, device: Device, before: Callable[[Mapping[int, int]], None] | None = None
    ) -> Generator[Replayed, None, None]:
        return replays(self.entry, self.shape, self.options, self.arguments, device, before)

    def explained(self, place: _WritePlace, *which: tuple[int, str]) -> Difference:
        """Repeat two schedules, identified by seed and contraction, and return their difference with the writes that
        caused it.
        """
        first, second = (self._noted(place, seed, contract) for seed, contract in which)
        array = place.array
        index = tuple(int(k) for k in np.unravel_index(place.flat, array.shape)) if array.ndim else ()
        by_contraction = first.contract != second.contract
        atomic = all(run.writes and all(write.atomic for write in run.writes) for run in (first, second))
        close = atomic and not by_contraction and _are_close(first.value, second.value, self.how.tolerance)
        type_ = str(self.entry.signature.parameters[place.argument].type)
        return Difference(place.argument, type_, index, first, second, close, by_contraction)

    def _noted(self, place: _WritePlace, seed: int, contract: str) -> ScheduledRun:
        device, noting = self.how.device(contract, notes_writes=True)
        size = place.array.itemsize

        def watch(addresses: Mapping[int, int]) -> None:
            noting.watched = addresses[place.argument] + place.flat * size, size

        with contextlib.closing(self._replays(device, watch)) as runs:
            result: npt.NDArray[Any] = np.asarray(_run(runs, noting, seed).results[place.argument])
            return ScheduledRun(seed, result.reshape(-1)[place.flat], tuple(noting.writes), contract)


def _run(runs: Iterator[Replayed], schedule: Schedule, seed: int) -> Replayed:
    schedule.seed = seed
    return next(runs)


def _are_close(one: Any, two: Any, tolerance: float) -> bool:
    """Return whether two floating-point numbers are equal within a tolerance.

    Return False for integers, because the order doesn't affect integer sums.
    """
    if not np.issubdtype(np.asarray(one).dtype, np.inexact):
        return False
    return bool(np.isclose(one, two, rtol=tolerance, atol=tolerance, equal_nan=True))
