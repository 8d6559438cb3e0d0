"""The product of ``docs/how-to/blackwell.md``: right for every edge, and its mistakes are found at their lines."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import cujit
from cujit.devices.device import Device
from cujit.errors import KernelFaultError
from pages import Page
from raising import raises
from real.running import Array, rng


@functools.cache
def page() -> dict[str, Any]:
    return dict(Page("how-to/blackwell.md").run("pass"))


def right(device: Device, m: int, n: int, k: int, code: str = "") -> bool:
    a, b = (rng(seed).integers(-3, 4, (rows, k)).astype(np.float16) for seed, rows in ((1, m), (2, n)))
    found: Array = page()["multiply"](device, a, b, code or page()["code"])
    return bool((found == a.astype(np.float32) @ b.astype(np.float32).T).all())


@pytest.mark.parametrize(("m", "n", "k"), [(128, 64, 64), (1, 1, 1), (129, 65, 130), (200, 30, 17)])
def test_every_edge(cpu: Device, m: int, n: int, k: int) -> None:
    assert right(cpu, m, n, k)


@pytest.mark.parametrize("schedule", range(1, 21))
def test_every_schedule(schedule: int) -> None:
    assert right(cujit.cpu(schedule=schedule), 40, 70, 140)


MISTAKES = {
    "lanes of another warp": ("(warp << 21)", "0", "ld", "lane"),
    "columns behind the allocation": ("(warp << 21) + at", "(warp << 21) + at + 16", "ld", "column 64"),
    "use after dealloc": (
        'asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");',
        'if (warp == 0) asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 64;" :: "r"(sums));'
        "__syncthreads();",
        "ld",
        "deallocated",
    ),
    "another instruction descriptor": ("M / 16 << 24", "M / 16 << 24 | 1u << 2", "mma", "descriptor"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_found_at_their_source_lines(cpu: Device, name: str) -> None:
    old, new, instruction, word = MISTAKES[name]
    code = page()["code"]
    assert old in code
    wrong = code.replace(old, new)
    line = next(k for k, text in enumerate(wrong.splitlines(), 1) if f'"tcgen05.{instruction}.' in text)
    with raises(KernelFaultError, "fault-tensor-memory", word) as e:
        right(cpu, 128, 64, 64, wrong)
    first = int(str(e.value).partition("source.cu:")[2].split()[0])
    assert abs(first - line) <= 2, (first, line)  # an asm statement of several lines has one of them


def test_who_does_not_wait_is_wrong(cpu: Device) -> None:
    code = page()["code"]
    late = code.replace("mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;", "setp.eq.b32 over, %1, %1;")
    assert late != code
    with raises(KernelFaultError, "fault-tensor-memory", "mma"):
        right(cpu, 128, 64, 64, late)
