"""Invalid PTX, mutated from valid PTX by tokens, gives errors of cujit's own; what stays valid becomes code."""

from __future__ import annotations

import random

import pytest

from cujit.devices.device import Device
from instructions.scene import every_scene
from property.effort import times
from property.mutants import CALLS, corpus, mutant, tokens_of, wrong_answer


@pytest.fixture
def unoptimised(monkeypatch: pytest.MonkeyPatch) -> None:
    """LLVM checks what it is given before it optimises, and these kernels do nothing."""
    monkeypatch.setenv("CUJIT_CPU_OPTIMIZE", "0")
    monkeypatch.setenv("CUJIT_CACHE", "0")


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("texts", ["calls", "scenes"])
def test_mutated_text_is_refused_or_compiled(cpu: Device, texts: str) -> None:
    rng = random.Random(texts)
    scenes = [scene.ptx for scene in every_scene().values()]
    words = [token for text in corpus(*scenes) for token in tokens_of(text)]
    chosen = [CALLS] if texts == "calls" else [text for text in scenes if len(text) < 3000]
    for _ in range(times(30)):
        text = mutant(rng.choice(chosen), rng, words)
        assert wrong_answer(text, cpu) == "", text
