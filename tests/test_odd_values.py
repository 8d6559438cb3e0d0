"""Values of which nothing is to be expected, not even a repr, at every door: an error of ours, and no other."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cujit
from cujit.errors import CujitError, spell

SOURCE = 'extern "C" __global__ void k(float *x, int n) { if (threadIdx.x < n) x[threadIdx.x] = n; }'
A_TIME = np.ones((), "M8")[()]  # NumPy cannot write it


class Odd:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


@functools.cache
def kernel() -> cujit.Kernel:
    return cujit.jit(SOURCE, device="cpu")["k"]


DOORS: dict[str, Callable[[Any], object]] = {
    "an argument": lambda odd: kernel()[1, 1](odd, 1),
    "another argument": lambda odd: kernel()[1, 1](None, odd),
    "a grid": lambda odd: kernel()[odd, 1],
    "a block": lambda odd: kernel()[1, (1, odd)],
    "a shape": lambda odd: kernel()[odd],
    "shared memory": lambda odd: kernel()[1, 1, odd],
    "a stream": lambda odd: kernel()[1, 1, 0, odd],
    "a size": lambda odd: kernel().over(odd),
    "a cluster": lambda odd: kernel().prepare(1, 1, cluster=odd),
    "a priority": lambda odd: kernel().prepare(1, 1, priority=odd),
    "a time": lambda odd: kernel().prepare(1, 1, timeout_s=odd),
    "a source": lambda odd: cujit.compile(odd),
    "an architecture": lambda odd: cujit.compile(SOURCE, arch=odd),
    "what to make": lambda odd: cujit.compile(SOURCE, arch="sm_90", to=odd),
    "names": lambda odd: cujit.compile(SOURCE, names=[odd]),
    "headers": lambda odd: cujit.Source.cuda(SOURCE, headers={"a.h": odd}),
    "an option": lambda odd: cujit.compile(SOURCE, lineinfo=odd),
    "options": lambda odd: cujit.compile(SOURCE, options=odd),
    "a cache": lambda odd: cujit.compile(SOURCE, cache=odd),
    "a device": lambda odd: cujit.load(SOURCE, odd),
    "an image": lambda odd: cujit.load(odd, "cpu"),
    "a link": lambda odd: cujit.link([odd], arch="sm_90"),
    "a bundle": lambda odd: cujit.bundle([odd]),
    "threads": lambda odd: cujit.cpu(odd),
    "a check": lambda odd: cujit.cpu(check=odd),
    "a kernel's name": lambda odd: cujit.jit(SOURCE, device="cpu")[odd],
    "a dtype": lambda odd: kernel().device.zeros(4, odd),
    "an array's shape": lambda odd: kernel().device.zeros(odd, "f4"),
    "what becomes an array": lambda odd: kernel().device.array(odd),
    "what is inspected": lambda odd: cujit.inspect(odd),
    "a version": lambda odd: cujit.retarget(".version 8.0\n.target sm_80\n.address_size 64\n", version=odd),
    "an occupancy's block": lambda odd: kernel().occupancy(odd),
    "a module's name": lambda odd: cujit.module(odd, SOURCE),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("odd", [Odd(), A_TIME, 1 << 20_000], ids=["no repr", "a time", "a huge int"])
def test_arbitrary_value_is_refused(door: str, odd: object) -> None:
    if odd is A_TIME and door in ("a dtype", "what becomes an array"):
        pytest.skip("NumPy takes it for one")
    with pytest.raises(CujitError):
        DOORS[door](odd)


def test_values_are_spelled_as_in_python_if_possible() -> None:
    assert spell("a\n") == r"'a\n'"
    assert spell(Odd()) == "a Odd whose repr fails"
    assert spell(-(1 << 300)) == "an int of 301 bits"
    assert spell("x" * 1000).endswith("x…")


def _values(statement: ast.Raise) -> list[ast.FormattedValue]:
    return [n for n in ast.walk(statement) if isinstance(n, ast.FormattedValue) and n.conversion == ord("r")]


def test_no_error_formats_a_value_itself() -> None:
    """``{value!r}`` in a ``raise`` would end in whatever the repr raises."""
    found = []
    for file in sorted(Path(cujit.__file__).parent.rglob("*.py")):
        if file.name == "pytest_plugin.py":  # it imports nothing, and its values stand in a project's own tests
            continue
        for statement in ast.walk(ast.parse(file.read_text())):
            if isinstance(statement, ast.Raise):
                reprs = [
                    n for n in ast.walk(statement) if isinstance(n, ast.FormattedValue) and n.conversion == ord("r")
                ]
                found += [f"{file.name}:{n.lineno}" for n in reprs if not _is_ours(n.value)]
    assert found == []


def _is_ours(value: ast.expr) -> bool:
    """Whether it is an attribute, which is a value of ours: ``{signed.dtype.name!r}``."""
    return isinstance(value, ast.Attribute)
