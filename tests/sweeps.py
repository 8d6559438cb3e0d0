"""Sweeps whose points hold one claim: `make test` runs a part of each, which a seed chooses; `make sweeps` runs all.

The first line of a run says the seed. ``CUJIT_SWEEPS=7`` runs the part of another run again; ``CUJIT_SWEEPS=all`` runs
all. As with Hypothesis, CI takes the same part for every change.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from typing import TypeVar

__all__ = ["part"]

Point = TypeVar("Point")
_SEED = "CUJIT_SWEEPS"


def part(points: Iterable[Point], every: int, of: str = "") -> list[Point]:
    """Choose one of each ``every`` points that follow each other, so that the choice is spread over all of them.

    ``of`` names one of several sweeps of as many points, each of which makes a choice of its own.
    """
    points, seed = list(points), os.environ.get(_SEED, "0")
    if seed == "all":
        return points
    begins = range(0, len(points), every)
    return [random.Random(f"{seed} {of} {begin}").choice(points[begin : begin + every]) for begin in begins]


def pytest_configure() -> None:
    """Choose the seed before the processes of the tests begin, which have to choose the same part."""
    os.environ.setdefault(_SEED, "0" if "CI" in os.environ else str(random.randrange(1000)))


def pytest_report_header() -> str:
    """Print how to run the same part again."""
    return f"sweeps: {_SEED}={os.environ[_SEED]}"
