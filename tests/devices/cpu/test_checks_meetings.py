"""Two accesses, and one meeting between them: the race check against an oracle, one pair at a time.

A program has one race or none. What a check leaves out therefore shows, which among many races it would not.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable

import numpy as np
import pytest

import cujit
from cujit.errors import KernelFaultError
from cujit.values import NamedTuple
from sweeps import part

pytestmark = pytest.mark.usefixtures("unoptimised")

THREADS, ELEMENTS = 128, 512
MANY = int(os.environ.get("CUJIT_RACES", "60"))
"""Programs of each sweep, of which a run tries a part."""

_TYPES = {1: "unsigned char", 2: "unsigned short", 4: "unsigned", 8: "unsigned long long"}
_PLACES: dict[str, Callable[[int], int]] = {
    "t": lambda t: t,
    "127 - t": lambda t: 127 - t,
    "t ^ 5": lambda t: t ^ 5,
    "t ^ 32": lambda t: t ^ 32,
    "t ^ 64": lambda t: t ^ 64,
    "(t + 1) % 128": lambda t: (t + 1) % 128,
    "(t + 32) % 128": lambda t: (t + 32) % 128,
    "2 * t": lambda t: 2 * t,
    "3 * t + 1": lambda t: 3 * t + 1,
    "t * 37 % 128": lambda t: t * 37 % 128,
}
_GUARDS: dict[str, Callable[[int], bool]] = {
    "true": lambda t: t >= 0,
    "t < 32": lambda t: t < 32,
    "t >= 96": lambda t: t >= 96,
    "t % 32 < 9": lambda t: t % 32 < 9,
    "t % 64 == 40": lambda t: t % 64 == 40,
}
_MEETINGS = {
    "nothing": ("", 1),
    "warps": ("__syncwarp();", 32),
    "pairs": ('asm volatile("bar.sync %0, 64;" :: "r"(t / 64 + 1) : "memory");', 64),
    "all": ("__syncthreads();", THREADS),
}
"""What is between both accesses, and how many threads, one after the other, it orders."""
_CLUSTER = 'asm volatile("barrier.cluster.arrive.aligned;\\nbarrier.cluster.wait.aligned;" ::: "memory");'


class _Access(NamedTuple):
    """Threads that a guard holds for access an element each, at a place of their own."""

    writes: bool
    place: str
    guard: str

    def code(self, number: int) -> str:
        """Write it in CUDA."""
        does = f"p[{self.place}] = (T)({number * THREADS + 1} + t);" if self.writes else f"x += p[{self.place}];"
        return f"if ({self.guard}) {{ {does} }}"

    def elements(self) -> dict[int, int]:
        """Tell which thread accesses an element."""
        return {_PLACES[self.place](t): t for t in range(THREADS) if _GUARDS[self.guard](t)}


class _Program(NamedTuple):
    size: int
    first: _Access
    second: _Access
    before: str
    between: str
    near: bool
    """Whether the second access, or else the first one, is by the block whose memory it is, in a cluster."""

    def source(self, number: int) -> str:
        """Write a kernel of one block."""
        before, between = (_MEETINGS[name][0] for name in (self.before, self.between))
        return (
            f'extern "C" __global__ void pair{number}(unsigned *out) {{ typedef {_TYPES[self.size]} T;\n'
            f"    __shared__ __align__(16) T p[{ELEMENTS}]; unsigned t = threadIdx.x, x = 0;\n"
            f"    for (int k = t; k < {ELEMENTS}; k += {THREADS}) p[k] = 0;\n    __syncthreads();\n"
            # So that it is not the first thing of its kind that the warps do.
            f"    x += p[t + 384]; {before} p[t + 384] = x + 7; {before}\n"
            f"    {self.first.code(0)}\n    {between}\n    {self.second.code(1)}\n    out[t] = x;\n}}\n"
        )

    def cluster_source(self, number: int) -> str:
        """Write a kernel in whose clusters one of two blocks has the memory, and the other one reaches there."""
        own, far = (self.second, self.first) if self.near else (self.first, self.second)
        parts = {True: own.code(int(self.near)), False: far.code(int(not self.near))}
        first, second = (f"if (!rank) {{ {parts[True]} }}", f"if (rank) {{ {parts[False]} }}")
        if self.near:
            first, second = second, first
        meets = _CLUSTER if self.between == "all" else _MEETINGS[self.between][0]
        return (
            f'extern "C" __global__ void __cluster_dims__(2) pair{number}(unsigned *out) {{\n'
            f"    typedef {_TYPES[self.size]} T; __shared__ __align__(16) T s[{ELEMENTS}];\n"
            f'    unsigned t = threadIdx.x, x = 0, rank; asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));\n'
            f'    T *p; asm("mapa.u64 %0, %1, %2;" : "=l"(p) : "l"(s), "r"(0));\n'
            f"    for (int k = t; k < {ELEMENTS}; k += {THREADS}) s[k] = 0;\n    {_CLUSTER}\n"
            f"    {first}\n    {meets}\n    {second}\n    {_CLUSTER}\n    out[blockIdx.x * {THREADS} + t] = x;\n}}\n"
        )

    @property
    def races(self) -> bool:
        """Whether two threads access an element, one of them writes, and nothing orders that."""
        first, second, meets = self.first.elements(), self.second.elements(), _MEETINGS[self.between][1]
        writes = self.first.writes or self.second.writes
        both = [(t, second[k]) for k, t in first.items() if k in second]
        return writes and any(t != u and t // meets != u // meets for t, u in both)

    @property
    def races_in_cluster(self) -> bool:
        """The same where threads are of two blocks, which meet by a barrier of the cluster alone."""
        writes = self.first.writes or self.second.writes
        return writes and self.between != "all" and bool(self.first.elements().keys() & self.second.elements().keys())


_ROWS = ("t", "t ^ 32", "t ^ 64", "(t + 32) % 128")
"""Places at which each warp accesses a row of its own or of another warp."""


def _program(rng: np.random.Generator, kind: int) -> _Program:
    """Make a program: any; rows of warps that met in pairs before; a read and a write with nothing between."""
    places, guards = (_ROWS, ["true"]) if kind == 1 else (list(_PLACES), list(_GUARDS))

    def access(writes: bool) -> _Access:
        return _Access(writes, str(rng.choice(places)), str(rng.choice(guards)))

    first = kind != 2 and bool(rng.random() < 0.5)
    second = not first or bool(rng.random() < 0.5)
    size = 4 if kind == 1 else int(rng.choice(list(_TYPES)))
    before, between = (str(rng.choice(list(_MEETINGS))) for _ in range(2))
    if kind == 1:
        before = "pairs"
    if kind == 2:
        before = between = "nothing"
    return _Program(size, access(first), access(second), before, between, bool(rng.random() < 0.5))


def _found(kernel: cujit.Kernel, blocks: int, out: cujit.DeviceArray) -> str:
    try:
        kernel[blocks, THREADS](out)
    except KernelFaultError as error:
        return error.kind
    return ""


def _compare(
    programs: list[_Program], sources: list[str], expected: list[bool], device: cujit.Device, blocks: int
) -> None:
    image = cujit.compile(cujit.Source.cuda("".join(sources), name="pairs.cu"), arch="compute_90")
    kernels, out = cujit.load(image, device), device.zeros(THREADS * blocks, np.uint32)
    found = [_found(kernels[f"pair{k}"], blocks, out) for k in range(len(programs))]
    wrong = [programs[k] for k, kind in enumerate(found) if kind != ("race" if expected[k] else "")]
    assert not wrong, wrong


@pytest.mark.parametrize(("check", "schedule"), list(itertools.product(["race", "all"], [None, 3])))
def test_only_the_planted_race_in_a_block_is_found(check: str, schedule: int | None) -> None:
    rng = np.random.default_rng(11 + len(check))
    programs = part([_program(rng, k % 3) for k in range(MANY)], 3, f"{check} {schedule}")
    expected = [each.races for each in programs]
    sources = [each.source(k) for k, each in enumerate(programs)]
    _compare(programs, sources, expected, cujit.cpu(1, check=check, schedule=schedule), 1)


@pytest.mark.parametrize("check", ["race", "all"])
def test_only_the_planted_race_between_blocks_is_found(check: str) -> None:
    rng = np.random.default_rng(23 + len(check))
    programs = part([_program(rng, k % 3) for k in range(MANY)], 3, check)
    expected = [each.races_in_cluster for each in programs]
    sources = [each.cluster_source(k) for k, each in enumerate(programs)]
    _compare(programs, sources, expected, cujit.cpu(1, check=check), 2)


def test_races_of_parts_of_words_between_blocks_are_found() -> None:
    """Lanes of one warp write bytes of one word, of which another block reads one."""
    read, write = _Access(False, "2 * t", "t % 32 < 9"), _Access(True, "t ^ 32", "true")
    programs = [_Program(size, read, write, "nothing", "nothing", near) for size in _TYPES for near in (False, True)]
    sources = [each.cluster_source(k) for k, each in enumerate(programs)]
    _compare(programs, sources, [True] * len(programs), cujit.cpu(1, check="race"), 2)
