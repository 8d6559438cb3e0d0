"""``benchmarks/advice_pairs.py``: each pair has what its rule finds, and has it no more once the advice is followed."""

from __future__ import annotations

import functools
import hashlib
import json
import runpy
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cujit
from cujit.profile import Advice, Profile, advice_for

pytestmark = pytest.mark.usefixtures("unoptimised")  # what is counted is the same

_BENCHMARK = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks/advice_pairs.py"))
_PAIRS = _BENCHMARK["PAIRS"]
_TIMES = Path(__file__).parents[1] / "goldens/advice-pairs-h200.json"
_THREADS = 1 << 14


_CLEARLY = 1.1
"""How much two measured gains have to differ for their order to count: the times spread by up to a few percent."""


@functools.cache
def _run(pair: Any, name: str) -> tuple[Any, tuple[Advice, ...]]:
    """Launch one kernel of a pair; give what it writes, and the advice for it."""
    profile = Profile()
    device = cujit.cpu(profile=profile)
    x, at, y = map(device.array, _BENCHMARK["arrays"](_THREADS))
    _BENCHMARK["launches"](pair, device, _THREADS)[name](x, at, y, _THREADS)
    (kernel,) = profile.kernels
    return y.numpy(), advice_for(kernel)


def _measured() -> list[dict[str, Any]]:
    recorded: list[dict[str, Any]] = json.loads(_TIMES.read_text())["pairs"]
    return recorded


@pytest.mark.parametrize("pair", _PAIRS, ids=lambda pair: f"{pair.rule}, {pair.name}")
def test_rule_finds_the_first_kernel_only(pair: Any) -> None:
    (before, found), (after, left) = _run(pair, "before"), _run(pair, "after")
    assert pair.rule in {advice.rule for advice in found}
    assert pair.rule not in {advice.rule for advice in left}
    assert before.view("i4").any()
    if pair.alike:
        np.testing.assert_allclose(before, after, rtol=1e-4)


def test_each_rule_has_two_tuning_pairs_and_two_test_pairs() -> None:
    many = Counter((pair.rule, pair.frozen) for pair in _PAIRS)
    assert len(_PAIRS) == 40
    assert {*many.values()} == {2}


def test_recorded_h200_times_belong_to_these_kernels() -> None:
    """A pair that changes has to be measured again: frozen pairs may not follow the estimates that they test."""
    assert [(row["rule"], row["name"], row["frozen"], row["sha256"]) for row in _measured()] == [
        (pair.rule, pair.name, pair.frozen, hashlib.sha256(f"{pair.before}\0{pair.after}".encode()).hexdigest())
        for pair in _PAIRS
    ]


@pytest.mark.parametrize("frozen", [False, True], ids=["tuned", "frozen"])
def test_estimates_rank_pairs_as_an_h200_does(frozen: bool) -> None:
    """Of two pairs whose measured gains clearly differ, the one that gained more has the higher estimate.

    The share of right orders is that of all couples of pairs; equal estimates are wrong. A gain is the time before by
    the time after; an estimate adds up all advice by the rule of the pair.
    """
    gains = {(row["rule"], row["name"]): row["before_ms"] / row["after_ms"] for row in _measured()}
    rows = []
    for pair in _PAIRS:
        if pair.frozen is frozen:
            saves = sum(advice.saves for advice in _run(pair, "before")[1] if advice.rule == pair.rule)
            rows.append((gains[pair.rule, pair.name], saves))
    couples = [(one, other) for one, other in combinations(sorted(rows), 2) if other[0] > _CLEARLY * one[0]]
    right = sum(one[1] < other[1] for one, other in couples)
    print(f"{right} of {len(couples)} couples")
    assert right >= 0.8 * len(couples)
    page = " ".join((Path(__file__).parents[2] / "docs/profile.md").read_text().split())
    assert f"In {right} of these {len(couples)} comparisons ({right / len(couples):.0%})" in page or not frozen


def test_runner_prints_a_time_of_each_kernel(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = _PAIRS[:2]
    monkeypatch.setitem(_BENCHMARK["main"].__globals__, "PAIRS", pairs)
    _BENCHMARK["main"](["--device", "cpu", "--log2", "14", "--seconds", "0.01"])
    found = json.loads(capsys.readouterr().out)
    assert found["threads"] == _THREADS
    assert [row["name"] for row in found["pairs"]] == [pair.name for pair in pairs]
    assert all(row["before_ms"] > 0 and row["after_ms"] > 0 for row in found["pairs"])
