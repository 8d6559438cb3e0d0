"""Random kernels with mistakes: the checks find what they found when each access of each lane was looked at alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from property.effort import times
from property.planted import finding

FOUND: dict[str, str] = json.loads((Path(__file__).parents[1] / "goldens" / "checks.json").read_text())


BY_PLACE = {161}
"""Seeds whose kernels read so far past an array that another live array may lie there: the first finding differs."""


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("first", range(0, min(times(40), len(FOUND)), 20))
def test_every_planted_mistake_is_found_in_its_place(first: int) -> None:
    seeds = [seed for seed in range(first, min(first + 20, len(FOUND))) if seed not in BY_PLACE]
    assert {seed: finding(seed) for seed in seeds} == {seed: FOUND[str(seed)] for seed in seeds}


def test_mistakes_of_every_kind_are_planted() -> None:
    kinds = {found.split()[0] for found in FOUND.values()}
    assert kinds >= {"nothing", "memory", "race", "init", "sync"}
