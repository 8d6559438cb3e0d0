"""A sweep over pipelines: right ones are silent under all checks and equal under schedules, each mistake is found."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cujit
from cujit.devices.device import Device
from cujit.errors import KernelFaultError
from devices.cpu.pipeline_mistakes import CASES, HEAD, Case
from sweeps import part

pytestmark = pytest.mark.usefixtures("unoptimised")

RIGHT = [name for name, case in CASES.items() if not case.wrong]
WRONG = [name for name, case in CASES.items() if case.wrong]
NAMED = {"loaded: a barrier in place of the wait": "wgmma.mma_async"}
"""What a finding has to name: another one would come later."""


def prepared(case: Case, device: Device) -> tuple[cujit.Launch, tuple[Any, ...]]:
    """Prepare a case: the launch, its source and its result."""
    image = cujit.compile(HEAD + case.text, arch="compute_90a", lineinfo=True)
    x = np.ones(1 << 15, np.float16) if case.halves else np.arange(1 << 15, dtype=np.int32)
    out = device.zeros(1 << 12, np.float32 if case.halves else np.int32)
    return cujit.load(image, device)["k"].prepare(case.grid, case.block), (device.array(x), out)


@pytest.mark.parametrize("name", part(RIGHT, 3))
def test_right_pipelines_are_silent_and_equal(name: str) -> None:
    launch, arguments = prepared(CASES[name], cujit.cpu(check="all"))
    launch(*arguments)
    launch, arguments = prepared(CASES[name], cujit.cpu())
    assert launch.under_schedules(*arguments, schedules=20).equal


@pytest.mark.parametrize("name", part(WRONG, 4))
@pytest.mark.parametrize("schedule", [None, 3])
def test_pipeline_mistakes_are_found_with_their_line(name: str, schedule: int | None) -> None:
    device = cujit.cpu(check="race") if schedule is None else cujit.cpu(check="race", schedule=schedule)
    launch, arguments = prepared(CASES[name], device)
    with pytest.raises(KernelFaultError) as caught:
        launch(*arguments)
    assert caught.value.kind in ("race", "deadlock"), str(caught.value)
    assert NAMED.get(name, "") in str(caught.value)
    lines = [int(number) - HEAD.count("\n") for number in re.findall(r"source\.cu:(\d+)", str(caught.value))]
    assert any(1 < line <= CASES[name].text.count("\n") + 1 for line in lines), str(caught.value)


_APART = """
import cujit
from devices.cpu.test_pipeline_mistakes import CASES, prepared
for name in ("named: no barrier for the free half", "named: right"):
    launch, arguments = prepared(CASES[name], cujit.cpu(check="race", schedule=3))
    try:
        print(launch(*arguments))
    except cujit.errors.KernelFaultError as error:
        print(error.kind)
"""


@pytest.mark.parametrize("fill", [1, 165])
def test_race_check_ignores_earlier_contents_of_memory(fill: int) -> None:
    """glibc fills memory that it gives with a byte that ``MALLOC_PERTURB_`` chooses."""
    environment = {**os.environ, "MALLOC_PERTURB_": str(fill), "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", _APART]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == ["race", "None"]
