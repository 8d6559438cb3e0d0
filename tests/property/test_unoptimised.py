"""Kernels compute the same bits whether LLVM optimises them or not: nothing that PTX leaves open is promised to it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pytest

import cujit
from instructions.runner import run_rows
from instructions.scene import every_scene, run_scene
from instructions.table import Row, all_rows, key_of
from property.effort import times
from property.test_divergence import TOGETHER, launched, random_graph
from raising import raises

T = TypeVar("T")
VARIABLE = "CUJIT_CPU_OPTIMIZE"


def some(items: Sequence[T], usual: int) -> list[T]:
    """Choose by a fixed seed: ``usual`` of them, or many by the environment's effort."""
    return random.Random(12).sample(items, min(times(usual), len(items)))


def both_ways(monkeypatch: pytest.MonkeyPatch, compute: Callable[[], Sequence[npt.NDArray[Any]]]) -> None:
    """Have arrays computed with the optimiser and without it; every bit must be the same."""
    found = []
    for value in "10":
        monkeypatch.setenv(VARIABLE, value)
        found.append([np.ascontiguousarray(array).view(np.uint8) for array in compute()])
    for optimised, plain in zip(*found, strict=True):
        np.testing.assert_array_equal(optimised, plain)


@pytest.mark.parametrize("row", some(all_rows(), 24), ids=key_of)
def test_instruction_gives_the_same_bits(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    both_ways(monkeypatch, lambda: list(run_rows(cujit.cpu(), [row]).values()))


@pytest.mark.parametrize("name", some(sorted(every_scene()), 8))
def test_scene_leaves_the_same_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    both_ways(monkeypatch, lambda: run_scene(cujit.cpu(), every_scene()[name]))


@pytest.mark.parametrize("seed", range(times(4)))
def test_random_control_flow_gives_the_same_bits(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # One kind in a graph: lanes that come to different ones would wait for each other, as a GPU may let them.
    together = [f"warp {sorted(TOGETHER)[seed // 2 % len(TOGETHER)]}"] if seed % 2 else []
    nodes = random_graph(seed, together)
    both_ways(monkeypatch, lambda: [launched(nodes, 40, seed % 8)])


def test_faulting_kernel_ends_with_the_same_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """.version 8.3\n.target sm_90\n.address_size 64
    .visible .entry k(.param .u64 p) {
        .reg .b64 a; .reg .b32 r, t; .reg .pred q;
        ld.param.u64 a, [p]; mov.u32 t, %tid.x; st.global.u32 [a], 5;
        setp.eq.u32 q, t, 7; @q trap; ret;
    }"""

    def message() -> Sequence[npt.NDArray[Any]]:
        out = cujit.cpu().zeros(1, np.uint32)
        with pytest.raises(cujit.errors.KernelFaultError) as error:
            cujit.load(text, cujit.cpu())["k"][1, 32](out)
        return [np.frombuffer(str(error.value).encode(), np.uint8), out.numpy()]

    both_ways(monkeypatch, message)


def test_variable_accepts_only_0_and_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "often")
    text = ".version 8.3\n.target sm_90\n.address_size 64\n.visible .entry k() { ret; }"
    with raises(cujit.errors.OptionError, "option", "CUJIT_CPU_OPTIMIZE", "0", "1", "often"):
        cujit.load(text, cujit.cpu())["k"][1, 32]()
