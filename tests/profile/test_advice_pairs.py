"""``benchmarks/advice_pairs.py``: each pair has what its rule finds, and has it no more once the advice is followed."""

from __future__ import annotations

import hashlib
import json
import runpy
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cujit
from cujit.profile import Profile, advice_for

_BENCHMARK = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks/advice_pairs.py"))
_PAIRS = _BENCHMARK["PAIRS"]
_THREADS = 1 << 14


def _run(pair: Any, name: str) -> tuple[Any, set[str]]:
    """Launch one kernel of a pair; give what it writes, and the rules that find something."""
    profile = Profile()
    device = cujit.cpu(profile=profile)
    x, at, y = map(device.array, _BENCHMARK["arrays"](_THREADS))
    _BENCHMARK["launches"](pair, device, _THREADS)[name](x, at, y, _THREADS)
    return y.numpy(), {advice.rule for kernel in profile.kernels for advice in advice_for(kernel)}


@pytest.mark.parametrize("pair", _PAIRS, ids=lambda pair: f"{pair.rule}, {pair.name}")
def test_the_rule_finds_the_first_kernel_only(pair: Any) -> None:
    (before, found), (after, left) = _run(pair, "before"), _run(pair, "after")
    assert pair.rule in found
    assert pair.rule not in left
    assert before.view("i4").any()
    if pair.alike:
        np.testing.assert_allclose(before, after, rtol=1e-4)


def test_each_rule_has_two_pairs_to_tune_and_two_to_test() -> None:
    many = Counter((pair.rule, pair.frozen) for pair in _PAIRS)
    assert len(_PAIRS) == 40
    assert {*many.values()} == {2}


def test_the_times_of_an_h200_are_those_of_these_kernels() -> None:
    """A pair that changes has to be measured again: frozen pairs may not follow the estimates that they test."""
    recorded = json.loads((Path(__file__).parents[1] / "goldens/advice-pairs-h200.json").read_text())["pairs"]
    assert [(row["rule"], row["name"], row["frozen"], row["sha256"]) for row in recorded] == [
        (pair.rule, pair.name, pair.frozen, hashlib.sha256(f"{pair.before}\0{pair.after}".encode()).hexdigest())
        for pair in _PAIRS
    ]


def test_the_runner_prints_a_time_of_each_kernel(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = _PAIRS[:2]
    monkeypatch.setitem(_BENCHMARK["main"].__globals__, "PAIRS", pairs)
    _BENCHMARK["main"](["--device", "cpu", "--log2", "14", "--seconds", "0.01"])
    found = json.loads(capsys.readouterr().out)
    assert found["threads"] == _THREADS
    assert [row["name"] for row in found["pairs"]] == [pair.name for pair in pairs]
    assert all(row["before_ms"] > 0 and row["after_ms"] > 0 for row in found["pairs"])
