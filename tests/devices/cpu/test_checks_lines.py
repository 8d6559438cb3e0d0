"""Several accesses by each of several blocks, nothing between them: the race check of global memory against an oracle.

The check keeps what rows of lanes do by lines of 32 elements. Rows here begin and end within lines, have gaps, come
again, or meet those of other blocks in one line.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

import cujit
from cujit.errors import KernelFaultError
from cujit.values import NamedTuple
from sweeps import part

pytestmark = pytest.mark.usefixtures("unoptimised")

THREADS, ELEMENTS, BLOCKS, STEPS = 64, 1024, 3, 3
_APART = (96, 160, 192, 256)
"""Elements from the part of a block to that of the next."""
MANY = 2400
"""Programs of each sweep, of which a run tries a part."""

_PLACES: dict[str, Callable[[int], int]] = {
    "at + t": lambda t: t,
    "at + 2 * t": lambda t: 2 * t,
    "at + 3 * t": lambda t: 3 * t,
    "at + 63 - t": lambda t: 63 - t,
    "at + t * 37 % 64": lambda t: t * 37 % 64,
    "at + t / 8": lambda t: t // 8,
    "at": lambda _: 0,
}
_DOES = (
    "x += p[{0}];",
    "p[{0}] = (T)value;",
    "p[{0}] += 1;",
    "x += p[{0}]; p[{0}] = (T)value; p[{0}] = (T)(value + x % 2);",
)
_TIMES = ("", "for (int k = 0; k < 2; k++) ")
_TYPES: dict[str, npt.DTypeLike] = {
    "unsigned char": np.uint8, "unsigned short": np.uint16, "unsigned": np.uint32, "unsigned long long": np.uint64,
}  # fmt: skip
_CASES = [(does, place, times) for does in _DOES for place in _PLACES for times in _TIMES]


def _source(kind: str) -> str:
    """Write a kernel for a type, whose blocks do what a table says."""
    cases = "".join(
        f"case {k}: {times}if (t >= from && t < to) {{ {does.format(place)} }} break;\n"
        for k, (does, place, times) in enumerate(_CASES)
    )
    return (
        f'extern "C" __global__ void steps({kind} *p, const int *table, int *out) {{\n'
        f"typedef {kind} T; int t = threadIdx.x, x = 0;\n"
        f"for (int s = 0; s < {STEPS}; s++) {{\n"
        f"const int *step = table + (blockIdx.x * {STEPS} + s) * 4;\n"
        "int at = step[1], from = step[2], to = step[3], value = 16 * (step - table) / 4 + 24;\n"
        f"switch (step[0]) {{ {cases} }} }}\n"
        f"out[blockIdx.x * {THREADS} + t] = x; }}\n"
    )


class _Step(NamedTuple):
    """Threads in a range do a case at places from ``at`` on."""

    case: int
    at: int
    first: int
    end: int

    @property
    def writes(self) -> bool:
        """Whether it writes."""
        return _CASES[self.case][0] != _DOES[0]

    def elements(self) -> set[int]:
        """Tell which elements it accesses."""
        place = _PLACES[_CASES[self.case][1]]
        return {self.at + place(t) for t in range(self.first, self.end)}


def _step(rng: np.random.Generator, begin: int) -> _Step:
    """Make a step: mostly in a part of the array that the block has alone, but for some elements at its ends."""
    whole = rng.random() < 0.5
    first, end = (0, THREADS) if whole else sorted(int(n) for n in rng.integers(0, THREADS + 1, 2))
    at = int(rng.choice([0, 0, 0, 1, 5, 16, 31, 32, -1, -3])) + begin + 32
    return _Step(int(rng.integers(len(_CASES))), at, first, end)


def _program(rng: np.random.Generator) -> list[list[_Step]]:
    """Make the steps of each block."""
    apart = int(rng.choice(_APART))
    return [[_step(rng, apart * block) for _ in range(STEPS)] for block in range(BLOCKS)]


def _races(program: list[list[_Step]]) -> bool:
    """Whether two blocks access an element that one of them writes."""
    touched = [set().union(*(step.elements() for step in steps)) for steps in program]
    written = [set().union(*(step.elements() for step in steps if step.writes)) for steps in program]
    return any(written[a] & touched[b] for a in range(BLOCKS) for b in range(BLOCKS) if a != b)


@pytest.mark.parametrize("kind", _TYPES)
@pytest.mark.parametrize("check", ["race", "all"])
def test_block_accesses_to_lines_race_only_if_they_overlap(check: str, kind: str) -> None:
    device = cujit.cpu(1, check=check)
    kernel = cujit.jit(cujit.Source.cuda(_source(kind), name="steps.cu"), device=device)["steps"]
    array, out = device.zeros(ELEMENTS, _TYPES[kind]), device.zeros(BLOCKS * THREADS, np.int32)
    table = device.zeros(BLOCKS * STEPS * 4, np.int32)
    launch, wrong, races = kernel.prepare(BLOCKS, THREADS), [], 0
    chosen = [_program(np.random.default_rng((len(kind), k))) for k in part(range(MANY), 8, f"{check} {kind}")]
    for program in chosen:
        array.copy_from(np.zeros(ELEMENTS, _TYPES[kind]))
        table.copy_from(np.array(program, np.int32).ravel())
        found = ""
        try:
            launch(array, table, out)
            device.synchronize()
        except KernelFaultError as error:
            found = error.kind
        races += (expected := _races(program))
        if found != ("race" if expected else ""):
            wrong.append((program, found))
    assert wrong == []
    assert len(chosen) // 5 < races < len(chosen) * 4 // 5


def test_stores_of_consecutive_blocks_are_distinguished() -> None:
    code = """extern "C" __global__ void turned(int *p) {
        int t = blockIdx.x * 32 + threadIdx.x; p[t] = t; p[t ^ 31] = t + 1; p[t] += 1;
    }"""
    device = cujit.cpu(1, check="race")
    array = device.zeros(256, np.int32)
    cujit.jit(code, device=device)["turned"][8, 32](array)
    np.testing.assert_array_equal(array.numpy(), (np.arange(256) ^ 31) + 2)
