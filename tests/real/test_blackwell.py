"""The product of ``docs/how-to/blackwell.md``: right for every edge, and its mistakes are found at their lines."""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np
import pytest

import cujit
from cujit.devices.device import Device
from cujit.errors import KernelFaultError
from pages import Page
from raising import raises
from real.running import Array, rng

pytestmark = pytest.mark.usefixtures("unoptimised")


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


def first_line(error: KernelFaultError) -> int:
    return int(str(error).partition("source.cu:")[2].split()[0])


def planted(old: str, new: str, instruction: str) -> tuple[str, int]:
    """Give the kernel with a mistake, and the line of the instruction at which it is to be found."""
    code = page()["code"]
    assert old in code
    wrong = code.replace(old, new)
    return wrong, next(k for k, text in enumerate(wrong.splitlines(), 1) if instruction in text)


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_found_at_their_source_lines(cpu: Device, name: str) -> None:
    old, new, instruction, word = MISTAKES[name]
    wrong, line = planted(old, new, f'"tcgen05.{instruction}.')
    with raises(KernelFaultError, "fault-tensor-memory", word) as e:
        right(cpu, 128, 64, 64, wrong)
    first = first_line(e.value)
    assert abs(first - line) <= 2, (first, line)  # an asm statement of several lines has one of them


def test_load_without_a_wait_is_found_at_its_reader(cpu: Device) -> None:
    wrong, line = planted('"tcgen05.wait::ld.sync.aligned;"', '""', "c[y * n + z] = x[i]")
    with raises(KernelFaultError, "fault-tensor-memory", "may not have written", "tcgen05.ld", "wait::ld") as e:
        right(cpu, 128, 64, 64, wrong)
    assert str(line) in re.findall(r"source\.cu:(\d+)", str(e.value))


FENCE = 'asm volatile("fence.proxy.async.shared::cta;" ::: "memory");'
WAIT = 'asm volatile("{ .reg .pred over;'
CHECKED = {
    "no fence": ("race", FENCE, "", '"tcgen05.mma.', ("fence.proxy.async", "wrote")),
    "no barrier": ("race", f"{FENCE}\n        __syncthreads();", FENCE, '"tcgen05.mma.', ("tcgen05.mma",)),
    "a tile written too early": (
        "race", WAIT, f"if (step + STEP >= k) {WAIT}", "tile[at / 8 *", ("a product still reads", "tcgen05.commit")
    ),
    "a sum that begins with what is there": (
        "tensor-memory", '"r"(step + i) : "memory"', '"r"(1) : "memory"', '"tcgen05.mma.',
        ("never wrote", "enable-input-d"),
    ),
    "a part of a tile never written": (
        "init", "i < rows * STEP; i", "i < rows * STEP - 64; i", '"tcgen05.mma.', ("never written",)
    ),
}  # fmt: skip


@pytest.mark.parametrize("schedule", [None, 1, 2, 3])
@pytest.mark.parametrize("name", CHECKED)
def test_checks_see_the_shared_memory_of_products(name: str, schedule: int | None) -> None:
    check, old, new, instruction, words = CHECKED[name]
    wrong, line = planted(old, new, instruction)
    with raises(KernelFaultError, f"fault-{check}", *words) as e:
        right(cujit.cpu(check="init" if check == "tensor-memory" else check, schedule=schedule), 128, 64, 256, wrong)
    assert str(line) in re.findall(r"source\.cu:(\d+)", str(e.value)) or abs(first_line(e.value) - line) <= 2


@pytest.mark.parametrize("schedule", [None, *range(1, 21)])
def test_checks_find_nothing_in_correct_kernels(schedule: int | None) -> None:
    assert right(cujit.cpu(check="all", schedule=schedule), 129, 65, 130)


@pytest.mark.parametrize(
    ("old", "new"),
    [("matrix(left + i * M", "matrix(left + (M + N) * STEP + i * M"), ("1ull << 46", "1ull << 46 | 0x3fffull << 16"),
     ("1ull << 46", "1ull << 46 | 0x3fffull << 32")],
)  # fmt: skip
def test_matrix_outside_of_shared_memory_is_a_fault(cpu: Device, old: str, new: str) -> None:
    wrong, line = planted(old, new, '"tcgen05.mma.')
    with raises(KernelFaultError, "fault-tensor-memory", "shared address") as e:
        right(cpu, 128, 64, 64, wrong)
    assert abs(first_line(e.value) - line) <= 2


def test_missing_wait_gives_wrong_results(cpu: Device) -> None:
    code = page()["code"]
    late = code.replace("mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;", "setp.eq.b32 over, %1, %1;")
    assert late != code
    with raises(KernelFaultError, "fault-tensor-memory", "mma"):
        right(cpu, 128, 64, 64, late)
