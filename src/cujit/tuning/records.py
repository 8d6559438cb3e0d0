"""Records of tuning: all that was measured, and which candidate won, as JSON.

::

    {"cujit tuning": 1, "kernel": …, "shape": …, "device": …, "processors": …, "driver": …, "winner": 17,
     "candidates": [{"values": {"TILE": 16}, "calls": 4, "ms": [0.21, …]}, {"values": …, "error": "…"}]}

One that nobody measured has ``"by": "bounds"``, and its candidates a ``bound_ms``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from cujit.errors import FormatError
from cujit.timing import Timing
from cujit.values import attributes, dataclass

_HEADER = "cujit tuning"
SCHEMA = 1
"""The number of how is measured and decided; it is in the keys too."""

_DIGITS = 5
_TIE = 1.02


@dataclass(frozen=True)
class Measured:
    """A candidate: its values, and its time or the reason why it was rejected (``error``).

    If the candidate wasn't measured, ``bound_ms`` is the lower bound for its time on the GPU. A candidate without a
    time, an error, or a lower bound wasn't tried, because the strategy didn't choose it.

    Example::

        tuned = cujit.tune(CODE, {"THREADS": [128, 256]}, lambda k, v: lambda: k[4, v["THREADS"]](2.0, x, y, 1000),
                           kernel="axpy<float>", becomes={"THREADS": "launch"}, shape=1000, device=device)
        for candidate in tuned.record.candidates:
            print(candidate.values, candidate.timing, candidate.error)
    """

    values: Mapping[str, Any]
    timing: Timing | None = None
    error: str = ""
    bound_ms: float | None = None

    @property
    def rank_ms(self) -> float | None:
        """The median time, otherwise the lower bound, or None if the candidate was rejected."""
        return self.bound_ms if self.timing is None else self.timing.median_ms

    def __str__(self) -> str:
        values = ", ".join(f"{name}={value}" for name, value in self.values.items())
        bound = "" if self.bound_ms is None else f"a lower bound of {self.bound_ms:.3g} ms"
        return f"{values}: {self.timing or self.error or bound or 'not tried'}"


@dataclass(frozen=True)
class TuningRecord:
    """Recorded result of a tuning run: all candidates in the order of the search space, and the index of the winner.

    ``shape`` describes the workload, as JSON. ``device`` is the GPU's product name, ``processors`` is its number of
    SMs, and ``driver`` is the CUDA version of its driver. For the CPU device, these fields contain the name of the
    processor, its number of threads, and the LLVM version. ``driver`` is empty if the candidates were ranked by lower
    bounds.

    Example::

        tuned = cujit.tune(CODE, {"THREADS": [128, 256]}, lambda k, v: lambda: k[4, v["THREADS"]](2.0, x, y, 1000),
                           kernel="axpy<float>", becomes={"THREADS": "launch"}, shape=1000, device=device)
        print(tuned.record.device, tuned.record.best.values)
    """

    kernel: str
    shape: str
    device: str
    processors: int
    driver: str
    candidates: tuple[Measured, ...]
    winner: int

    @property
    def best(self) -> Measured:
        """The winning candidate."""
        return self.candidates[self.winner]

    @property
    def by(self) -> str:
        """The basis of the decision: ``"times"`` (measured) or ``"bounds"`` (lower bounds)."""
        return "bounds" if self.best.timing is None else "times"

    def to_json(self) -> bytes:
        """Write it."""
        record = {
            _HEADER: SCHEMA,
            **attributes(self, "by kernel shape device processors driver winner"),
            "candidates": [_written(one) for one in self.candidates],
        }
        return json.dumps(record, separators=(",", ":"), allow_nan=False).encode()

    @classmethod
    def of_json(cls, data: bytes) -> TuningRecord:
        """Read what ``to_json`` wrote.

        Raises:
            FormatError: the value is invalid.
        """
        try:
            record = json.loads(data)
            device = str(record["device"])
            candidates = tuple(_read(one, device) for one in record["candidates"])
            numbers = int(record["processors"]), int(record["winner"])
            if record[_HEADER] != SCHEMA or candidates[numbers[1]].rank_ms is None or numbers[1] < 0:
                raise ValueError("there is no winner")
            texts = str(record["kernel"]), str(record["shape"]), device, numbers[0], str(record["driver"])
            return cls(*texts, candidates, numbers[1])
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as e:
            raise FormatError(f"the data is not a tuning record: {e}") from None

    def __reduce__(self) -> tuple[object, ...]:
        # It goes to the ranks of a group as it goes into a cache.
        return TuningRecord.of_json, (self.to_json(),)

    def __str__(self) -> str:
        under = self.driver or "by bounds, not measured"
        lines = [f"{self.kernel} {self.shape} on {self.device}, {self.processors} processors, {under}"]
        ranked = sorted(enumerate(self.candidates), key=lambda pair: _rank(pair[1]))
        lines += [f"{'*' if number == self.winner else ' '} {one}" for number, one in ranked]
        return "\n".join(lines)


def first_of_the_fastest(timings: Mapping[int, Timing]) -> int:
    """Return the index of the first candidate that ties with the fastest.

    A candidate ties if its median is within nine in ten samples of the fastest and at most 2 % above its median.
    """
    fastest = min(timings.values(), key=lambda timing: timing.median_ms)
    most_ms = min(fastest.p90_ms, _TIE * fastest.median_ms)
    return min(number for number, timing in timings.items() if timing.median_ms <= most_ms)


def first_of_the_lowest(bounds: Mapping[int, float]) -> int:
    """Return the index of the first candidate whose bound is at most 2 % above the lowest."""
    return min(number for number, bound in bounds.items() if bound <= _TIE * min(bounds.values()))


def _rank(one: Measured) -> float:
    return math.inf if one.rank_ms is None else one.rank_ms


def _written(one: Measured) -> dict[str, object]:
    record: dict[str, object] = {"values": dict(one.values)}
    if one.timing is not None:
        record |= {"calls": one.timing.calls, "ms": [float(f"{ms:.{_DIGITS}g}") for ms in one.timing.samples_ms]}
    if one.bound_ms is not None:
        record["bound_ms"] = one.bound_ms
    return {**record, "error": one.error} if one.error else record


def _read(record: Mapping[str, Any], device: str) -> Measured:
    samples: Sequence[float] = record.get("ms", ())
    timing = Timing(tuple(float(ms) for ms in samples), int(record["calls"]), device) if samples else None
    bound_ms = record.get("bound_ms")
    return Measured(
        MappingProxyType(dict(record["values"])),
        timing,
        str(record.get("error", "")),
        None if bound_ms is None else float(bound_ms),
    )
