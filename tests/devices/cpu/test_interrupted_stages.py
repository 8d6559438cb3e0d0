"""Ctrl-C ends each stage of a load and of a first launch in time, and what comes next works."""

from __future__ import annotations

import importlib
import runpy
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import cujit
from cujit.toolchain import stopping
from waiting import eventually

SHAPES = runpy.run_path(str(Path(__file__).parents[3] / "benchmarks/ptx_shapes.py"))["SHAPES"]

STAGES = {
    "parse": "cujit.formats.ptx.parser.parse",
    "check": "cujit.formats.ptx.validity.check_module",
    "inlining": "cujit.devices.cpu.pipeline.flatten",
    "blocks": "cujit.devices.cpu.pipeline.build_graph",
    "uniformity": "cujit.devices.cpu.pipeline.analyse",
    "plan": "cujit.devices.cpu.pipeline.make_plan",
    "emit": "cujit.devices.cpu.pipeline._emit",
    "read IR": "cujit.devices.jit._parse",
    "optimize": "cujit.devices.jit._prepare",
    "generate": "cujit.devices.jit._words",
    "cache write": "cujit.cache.store.Store.put",
}
"""Stages, and the function that each begins with."""

DELAY_S, SOON_S = 0.02, 1.5
"""When a stage is interrupted after it has begun; and the CPU seconds of this process until Ctrl-C is heard."""


@pytest.mark.parametrize("stage", STAGES)
def test_ctrl_c_ends_every_stage_in_time(stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("CUJIT_CACHE", "1")
    owner, _, name = STAGES[stage].rpartition(".")
    try:
        place: Any = importlib.import_module(owner)
    except ModuleNotFoundError:
        module, _, kind = owner.rpartition(".")
        place = getattr(importlib.import_module(module), kind)
    function = getattr(place, name)
    pressed: list[float] = []

    def armed(*arguments: Any, **named: Any) -> Any:
        if not pressed:
            pressed.append(time.process_time() + DELAY_S)
            signal.setitimer(signal.ITIMER_REAL, DELAY_S)
        return function(*arguments, **named)

    shape, count = {"inlining": ("long calls", 8), "generate": ("shuffles of some", 1400)}.get(stage, ("diamonds", 800))
    text = SHAPES[shape](count)

    def work() -> None:
        cujit.load(text, cujit.cpu(1))["k"].compile(64)
        time.sleep(1)  # the stage was over sooner
        if KeyboardInterrupt in lost:
            pytest.skip("Python ignored Ctrl-C in a callback of a weak reference, as it does with every error")

    lost: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda ignored: lost.append(ignored.exc_type))
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    monkeypatch.setattr(place, name, armed)
    try:
        with pytest.raises(KeyboardInterrupt):
            work()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert time.process_time() - pressed[0] < SOON_S
    monkeypatch.setattr(place, name, function)
    eventually(lambda: not stopping.is_work_left())
    cujit.load(text, cujit.cpu(1))["k"].compile(64)
