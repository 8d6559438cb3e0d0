"""Measurement of candidates: each once, and the fastest ones again in turns. Without a GPU, bounds rank the candidates.

A candidate loses with its error if it doesn't compile or launch, or gives wrong results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any, Protocol, TypeAlias

from cujit.devices.device import Device
from cujit.errors import ArgumentError, CujitError, MissingError, NotCompiledError, spell
from cujit.kernel import Kernel
from cujit.machine import cpu
from cujit.threads import as_done
from cujit.timing import Timing, time
from cujit.tuning.records import Measured, first_of_the_fastest, first_of_the_lowest
from cujit.tuning.spaces import Value, Variant
from cujit.values import dataclass, field

_BATCH = 16
"""Candidates that a strategy is asked for at a time, so that an executor has something to share."""

_FAR = 2.0
"""Past so many times the fastest, a candidate has lost with the first look."""

_NEAR = 1.25
"""Past so many times the fastest, one has lost with the first round."""

_SHORT_MS = 0.2
"""Below, a single call says little: ``cujit.time`` then takes the mean over several."""

_ROUND_MS = 2.0
"""How long a sample of a round is at least: single launches of a GPU differ by some percent."""

_WARM_S = 0.25
"""How long a GPU works before the first look, for one that was idle is slow at first."""

_MANY = 1_000_000
_SAMPLES = 3
_ERROR_CHARS = 1000

Workload: TypeAlias = Callable[[Kernel, Mapping[str, Any]], Callable[[], object]]
Check: TypeAlias = Callable[[Mapping[str, Any]], object]


class Trial(Protocol):
    """A strategy's request to try one value for each name."""

    def suggest_categorical(self, name: str, choices: Sequence[Value], /) -> Value:
        """Choose a value."""


class Strategy(Protocol):
    """An object that chooses candidates, such as a study of Optuna."""

    def ask(self) -> Trial:
        """Return the next trial."""

    def tell(self, trial: Trial, ms: float, /) -> object:
        """Receive the time of a trial in milliseconds. It is infinite if the candidate lost or doesn't exist."""


@dataclass
class Bench:
    """A device and the user's measurement on it. ``load`` returns the kernel of a candidate.

    With ``gpu``, nothing is timed: each candidate runs once, and its lower bound on this GPU ranks it.
    """

    place: Device
    load: Callable[[Device, Variant], Kernel]
    workload: Workload
    check: Check | None
    gpu: str = ""
    best_ms: float = math.inf
    calls: dict[int, Callable[[], object]] = field(default_factory=dict)
    """What is timed, by candidate: of the ones not far from the fastest alone, for each holds memory of the device."""

    looked: dict[int, float] = field(default_factory=dict)

    def first(self, number: int, variant: Variant) -> Measured:
        """Load a candidate, check it, and measure it, briefly if it is much slower than the best so far."""

        def measure() -> Measured:
            if self.gpu:
                return self._bounded(number, variant)
            call = self._ready(self.place, number, variant)
            if self.place.is_gpu and not self.looked:
                time(call, repeat=_MANY, warmup=0, limit_s=_WARM_S, device=self.place)
            timing = time(call, repeat=_SAMPLES, warmup=0, calls=1, device=self.place)
            if timing.min_ms < min(_SHORT_MS, _FAR * self.best_ms):
                timing = time(call, repeat=_SAMPLES, warmup=0, device=self.place)
            self.looked[number] = timing.min_ms
            self.best_ms = min(self.best_ms, timing.min_ms)
            self.forget_far(_FAR * self.best_ms)
            return Measured(variant.values, timing)

        return self._safely(number, variant, measure)

    def again(self, number: int, variant: Variant, calls: int) -> Measured:
        """Measure a candidate again with a number of calls per sample."""

        def measure() -> Measured:
            call = self.calls.get(number) or self._ready(self.place, number, variant)
            return Measured(variant.values, time(call, repeat=_SAMPLES, warmup=1, calls=calls, device=self.place))

        return self._safely(number, variant, measure)

    def forget_far(self, most_ms: float) -> None:
        """Drop slow candidates."""
        self.calls = {number: call for number, call in self.calls.items() if self.looked[number] <= most_ms}

    def _bounded(self, number: int, variant: Variant) -> Measured:
        """Launch a candidate on a counting device, and return the sum of the bounds of its launches."""
        # start-up: an answer that is there needs no profile
        from cujit.profile import Profile, bounds

        profile = Profile()
        self._ready(cpu(profile=profile), number, variant)
        self.calls.clear()
        seconds = sum(bounds(kernel, self.gpu).seconds for kernel in profile.kernels)
        if not seconds:
            raise CujitError("none of the candidate's launches has a lower bound")
        return Measured(variant.values, bound_ms=seconds * 1e3)

    def _ready(self, place: Device, number: int, variant: Variant) -> Callable[[], object]:
        call = self.workload(self.load(place, variant), variant.values)
        if not callable(call):
            raise ArgumentError(
                f"the workload returned {type(call).__name__} {spell(call)}, expected a function that launches "
                "the kernel",
                help="return a function, such as functools.partial(kernel[grid, block], x, y, n)",
            )
        call()
        place.synchronize()
        if self.check is not None:
            _require_right(self.check, variant.values)
        self.calls[number] = call
        return call

    def _safely(self, number: int, variant: Variant, measure: Callable[[], Measured]) -> Measured:
        try:
            return measure()
        except (MissingError, NotCompiledError, ArgumentError):
            raise  # of the machine or of the user, and of no candidate
        except CujitError as e:
            self.place.synchronize()  # which fails where the candidate ended the GPU's context
            self.calls.pop(number, None)
            return Measured(variant.values, error=f"{type(e).__name__}: {e.message}"[:_ERROR_CHARS])


def _require_right(check: Check, values: Mapping[str, Value]) -> None:
    try:
        right = check(values)
    except AssertionError as e:
        raise CujitError(f"wrong results: {e}", code="wrong-result") from None
    if right is not None and not right:
        raise CujitError("wrong results", code="wrong-result")


def measured(
    variants: Sequence[Variant],
    benches: Sequence[Bench],
    build: Callable[[Iterable[int]], Mapping[int, str]],
    rounds: int,
    strategy: Strategy | None = None,
    trials: int = 0,
) -> tuple[tuple[Measured, ...], int | None]:
    """Measure all candidates, or the candidates of a strategy, and return the index of the winner, or None.

    ``build`` compiles candidates in advance, and returns the reasons of failures. All devices share the first
    measurements. The first device then measures the fast candidates again in turns, and the closest ones ``rounds``
    times.
    """
    found: dict[int, Measured] = {}

    def look(numbers: Iterable[int]) -> None:
        new = [number for number in dict.fromkeys(numbers) if number not in found]
        failed = build(new)
        found.update((number, Measured(variants[number].values, error=why)) for number, why in failed.items())
        left = [number for number in new if number not in failed]
        if len(benches) == 1:  # in the thread of the user, whose functions may care
            found.update(_looked(benches[0], left, variants))
            return
        shares = [left[first :: len(benches)] for first in range(len(benches))]
        looks = [partial(_looked, bench, share, variants) for bench, share in zip(benches, shares, strict=True)]
        with closing(as_done(looks, len(looks), "cujit-tuning")) as done:
            for _, result in done:
                found.update(result())

    if strategy is None:
        look(range(len(variants)))
    else:
        _ask(strategy, trials, variants, look, found)
    winner = _decide(variants, benches[0], rounds, found)
    return tuple(found.get(n, Measured(variant.values)) for n, variant in enumerate(variants)), winner


def _looked(bench: Bench, numbers: Sequence[int], variants: Sequence[Variant]) -> dict[int, Measured]:
    return {number: bench.first(number, variants[number]) for number in numbers}


def _ask(
    strategy: Strategy,
    trials: int,
    variants: Sequence[Variant],
    look: Callable[[Iterable[int]], None],
    found: Mapping[int, Measured],
) -> None:
    """Let a strategy choose variants to try, several at a time."""
    numbers = {tuple(variant.values.values()): number for number, variant in enumerate(variants)}
    choices = {name: list(dict.fromkeys(v.values[name] for v in variants)) for name in variants[0].values}
    for done in range(0, trials, _BATCH):
        pending = []
        for _ in range(min(_BATCH, trials - done)):
            trial = strategy.ask()
            chosen = tuple(trial.suggest_categorical(name, values) for name, values in choices.items())
            pending.append((trial, numbers.get(chosen)))
        look(number for _, number in pending if number is not None)
        for trial, number in pending:
            rank_ms = None if number is None else found[number].rank_ms
            strategy.tell(trial, math.inf if rank_ms is None else rank_ms)


def _decide(variants: Sequence[Variant], bench: Bench, rounds: int, found: dict[int, Measured]) -> int | None:
    """Measure the fast candidates again, and choose the first of the fastest, or the one with the lowest bound."""
    if bench.gpu:
        lowest = {number: one.bound_ms for number, one in found.items() if one.bound_ms is not None}
        return first_of_the_lowest(lowest) if lowest else None
    looked = _timed(found)
    if not looked:
        return None
    most_ms = _FAR * min(timing.min_ms for timing in looked.values())
    near = {number: timing for number, timing in sorted(looked.items()) if timing.min_ms <= most_ms}
    bench.forget_far(most_ms)
    again = _in_turns(variants, bench, rounds, near)
    found.update(again)
    timings = _timed(again) or _timed(found)
    most = max((len(timing.samples_ms) for timing in timings.values()), default=0)
    finals = {number: timing for number, timing in timings.items() if len(timing.samples_ms) == most}
    return first_of_the_fastest(finals) if finals else None


def _timed(found: Mapping[int, Measured]) -> dict[int, Timing]:
    return {number: one.timing for number, one in found.items() if one.timing is not None}


def _in_turns(
    variants: Sequence[Variant], bench: Bench, rounds: int, near: Mapping[int, Timing]
) -> dict[int, Measured]:
    samples: dict[int, list[float]] = {number: [] for number in near}
    lost: dict[int, Measured] = {}
    calls = {number: max(timing.calls, math.ceil(_ROUND_MS / timing.min_ms)) for number, timing in near.items()}
    left = list(near)
    for _ in range(rounds):
        for number in left:
            one = bench.again(number, variants[number], calls[number])
            if one.timing is None:
                lost[number] = one
            else:
                samples[number] += one.timing.samples_ms
        fastest_ms = min((min(taken) for number, taken in samples.items() if number not in lost), default=0.0)
        left = [number for number in left if number not in lost and min(samples[number]) <= _NEAR * fastest_ms]
    timings = {n: Timing(tuple(samples[n]), calls[n], bench.place.name) for n in near.keys() - lost.keys()}
    return lost | {number: Measured(variants[number].values, timing) for number, timing in timings.items()}
