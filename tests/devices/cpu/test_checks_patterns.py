"""The race check against an oracle: blocks that repeat what blocks before them did, and then do a little else."""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt
import pytest

import cujit
from cujit.errors import KernelFaultError
from cujit.values import NamedTuple

THREADS, WORDS, EPOCHS, STEPS, BLOCKS = 64, 400, 4, 5, 9
MANY = int(os.environ.get("CUJIT_RACES", "25"))
"""Launches of each seed; ``make checked`` sets more."""

READ, WRITE, READ_TWOS, WRITE_THREES, UPDATE, SCATTER, GATHER, ADD, MEET = range(9)
_STRIDES = {READ: 1, WRITE: 1, READ_TWOS: 2, WRITE_THREES: 3, UPDATE: 1}
_DOES = {
    READ: "R",
    WRITE: "W",
    READ_TWOS: "R",
    WRITE_THREES: "W",
    UPDATE: "RW",
    SCATTER: "W",
    GATHER: "R",
    ADD: "A",
    MEET: "",
}
"""Whether threads read, write, or add atomically."""

_SOURCE = f"""
template<typename T>
__device__ void body(const int *programs, const int *kinds, const int *firsts, const int *index, int *out)
{{
    __shared__ T s[{WORDS}];
    int t = threadIdx.x, program = programs[blockIdx.x], sum = 0;
    for (int i = t; i < {WORDS}; i += {THREADS}) s[i] = i;
    __syncthreads();
#pragma unroll 1
    for (int e = 0; e < {EPOCHS}; e++) {{
#pragma unroll 1
        for (int k = e * {STEPS}; k < (e + 1) * {STEPS}; k++) {{
            int step = program * {EPOCHS * STEPS} + k, kind = kinds[step], first = firsts[step];
            int i = index[step * {THREADS} + t];
            if (kind == {MEET}) {{ __syncwarp(); continue; }}
            if (i < 0) continue;
            T value = 7 * step + t;
            if (kind == {READ}) sum += s[first + t];
            if (kind == {WRITE}) s[first + t] = value;
            if (kind == {READ_TWOS}) sum += s[first + 2 * t];
            if (kind == {WRITE_THREES}) s[first + 3 * t] = value;
            if (kind == {UPDATE}) s[first + t] += value;
            if (kind == {SCATTER}) s[i] = value;
            if (kind == {GATHER}) sum += s[i];
            if (kind == {ADD}) add(&s[i]);
        }}
        __syncthreads();
    }}
    out[blockIdx.x * {THREADS} + t] = sum;
}}
"""
_ADD = """
__device__ void add(unsigned *at) { atomicAdd(at, 1); }
__device__ void add(unsigned long long *at) { atomicAdd(at, 1); }
__device__ void add(unsigned char *at) { *at += 1; }
"""
_TYPES = {"words": "unsigned", "longs": "unsigned long long", "bytes": "unsigned char"}
_KERNELS = "".join(
    f'extern "C" __global__ void {name}(const int *programs, const int *kinds, const int *firsts, const int *index, '
    f"int *out) {{ body<{type_}>(programs, kinds, firsts, index, out); }}\n"
    for name, type_ in _TYPES.items()
)


Mask = npt.NDArray[np.bool_]
_T = np.arange(THREADS)


class Step(NamedTuple):
    """Each thread t of ``mask`` does something to the word ``first + stride * t``, or to ``first + (t ^ turned)``."""

    kind: int
    first: int
    turned: int
    mask: Mask

    def words(self) -> npt.NDArray[np.int32]:
        """Return each thread's word; -1: none."""
        places = self.first + (_STRIDES[self.kind] * _T if self.kind in _STRIDES else _T ^ self.turned)
        return np.where(self.mask & (self.kind != MEET), places, -1).astype(np.int32)


Program = list[Step]
"""Steps of all epochs, ``STEPS`` each."""


def _epoch(rng: np.random.Generator) -> Program:
    """Make an epoch: half of the threads stay at words of their own, the others at words of each other."""
    first, half, turned = int(rng.integers(8, 150)), int(rng.choice([1, 2, 8, 32])), int(rng.choice([4, 16, 20]))
    adds, made = rng.random() < 0.15, []
    for _ in range(STEPS):
        own = bool(rng.random() < 0.6)
        kind = int(rng.choice([READ, WRITE, UPDATE, SCATTER, GATHER] if own else [SCATTER, GATHER]))
        mask = ((half & _T) == 0) == own
        if rng.random() < 0.5:
            mask &= rng.random(THREADS) < 0.6
        if rng.random() < 0.04:
            kind = MEET
        made.append(Step(ADD if adds else kind, first, 0 if own else turned, mask))
    if rng.random() < 0.2:
        made[0] = Step(int(rng.choice([READ_TWOS, WRITE_THREES])), 200, 0, _T >= 0)
    return made


def _changed(rng: np.random.Generator, program: Program) -> Program:
    """Let a program do a little else: a step, or an epoch."""
    made, k, other = list(program), int(rng.integers(len(program))), int(rng.integers(len(program)))
    epoch = slice(k - k % STEPS, k - k % STEPS + STEPS)
    way = rng.choice(["fewer", "more", "lanes", "shift", "turn", "copy", "meet", "no meeting", "order", "other warp"])
    if way == "fewer":
        made[k] = made[k]._replace(mask=made[k].mask & (rng.random(THREADS) < 0.5))
    elif way == "more":
        made[k] = made[k]._replace(mask=made[k].mask | (rng.random(THREADS) < 0.1))
    elif way == "lanes":  # as if threads had other numbers
        by = int(rng.choice([1, 2, 8, 32]))
        made[epoch] = [step._replace(mask=step.mask[_T ^ by]) for step in made[epoch]]
    elif way == "shift":
        made[k] = made[k]._replace(first=made[k].first + int(rng.choice([-1, 1, 2, 32])))
    elif way == "turn":
        made[k] = made[k]._replace(turned=made[k].turned ^ int(rng.choice([1, 4, 32])))
    elif way == "copy":
        made[k] = made[other]
    elif way == "meet":
        made[k] = made[k]._replace(kind=MEET)
    elif way == "no meeting":
        made = [step._replace(kind=GATHER) if step.kind == MEET else step for step in made]
    elif way == "order":
        made[epoch] = [made[epoch][n] for n in rng.permutation(STEPS)]
    else:
        made[k] = made[k]._replace(mask=np.roll(made[k].mask, 32))
    return made


def _races(program: Program, *, adds: bool) -> bool:
    """Tell whether two threads access a word in one epoch, one of them writes, and nothing in between orders that."""
    for epoch in range(EPOCHS):
        seen: dict[int, list[tuple[int, str, int]]] = {}
        met = 0
        for step in program[epoch * STEPS : (epoch + 1) * STEPS]:
            met += step.kind == MEET
            does = _DOES[step.kind] if adds or step.kind != ADD else "RW"
            words = step.words()
            for t in np.flatnonzero(words >= 0).tolist():
                before = seen.setdefault(int(words[t]), [])
                for other, did, when in before:
                    ordered = t // 32 == other // 32 and when < met
                    if other != t and not (does == did and does in "AR") and not ordered:
                        return True
                before.append((t, does, met))
    return False


def _block_of_the_race(kernel: cujit.Kernel, device: cujit.Device, programs: list[Program], order: list[int]) -> int:
    """Launch a block for each number of a program; give the first one with a race, or how many there are."""
    steps = [step for program in programs for step in program]
    kinds, firsts = ([step[k] for step in steps] for k in range(2))
    tables = [device.array(np.array(each, np.int32)) for each in (kinds, firsts, [step.words() for step in steps])]
    out = device.zeros(THREADS * len(order), np.int32)
    try:
        kernel[len(order), THREADS](device.array(np.array(order, np.int32)), *tables, out)
    except KernelFaultError as error:
        return error.block[0] if error.block and error.kind == "race" else -1
    return len(order)


@pytest.mark.parametrize("schedule", [None, 3], ids=["regions", "stacks"])
@pytest.mark.parametrize("type_", list(_TYPES))
@pytest.mark.parametrize("check", ["race", "all"])
def test_blocks_that_do_what_others_did_and_a_little_else(check: str, type_: str, schedule: int | None) -> None:
    """Blocks that run side by side, in an order of their own, need not be those of the first race."""
    rng = np.random.default_rng(55 + len(check) + len(type_))
    device = cujit.cpu(1, check=check, schedule=schedule)
    kernel = cujit.jit(_ADD + _SOURCE + _KERNELS, names=[type_], device=device)[type_]
    silent = 0
    for _ in range(MANY):
        programs = [[step for _ in range(EPOCHS) for step in _epoch(rng)]]
        for _ in range(3):
            programs.append(_changed(rng, programs[int(rng.integers(len(programs)))]))
        races = [_races(program, adds=type_ != "bytes") for program in programs]
        order = [0, 0, 1, 0, 1, *rng.integers(0, len(programs), BLOCKS - 5).tolist()]
        expected = {block for block, number in enumerate(order) if races[number]} or {BLOCKS}
        silent += BLOCKS in expected
        assert _block_of_the_race(kernel, device, programs, order) in (
            {min(expected)} if schedule is None else expected
        )
    assert 0.1 < silent / MANY < 0.9


_OTHERWISE = """
#define KERNEL(name) extern "C" __global__ void name(const int *how, int *out)
#define BEGIN \\
    __shared__ int s[64], u[64]; \\
    int t = threadIdx.x, h = how[blockIdx.x], low = t < 16, *to = out + blockIdx.x * 64 + t; \\
    s[t] = u[t] = t; \\
    __syncthreads();

KERNEL(halves) { BEGIN if (!(t & 1) && low == (h & 1)) s[t] = 7; if (t & 1 && low == h >> 1) *to = s[t ^ 1]; }
KERNEL(warps) { BEGIN if (t / 32 == (h & 1)) s[t % 32] = 7; if (t / 32 == h >> 1) *to = s[t % 32]; }
KERNEL(counts) { BEGIN if (h < 2) s[t] = 0; if (h) __syncthreads(); atomicAdd(&s[t / 2], 1); }
KERNEL(meets) { BEGIN s[t] = 7; if (h) __syncwarp(); *to = s[t ^ 1]; }
KERNEL(shuffled) { BEGIN s[t] = 7; if (h) __syncwarp(); *to = s[t & 32 | t * 5 & 31]; }
KERNEL(again) { BEGIN s[t] = 7; __syncwarp(); *to = s[t ^ 1] + u[t & 32 | t * 5 & 31]; if (h) __syncwarp(); s[t] = 8; }
"""
_CASES = [
    ("halves", 64, [1, 2], 3),
    ("halves", 32, [1, 2], 3),
    ("warps", 64, [0, 3], 2),
    ("counts", 64, [1, 2], 0),
    ("meets", 64, [1, 1], 0),
    ("shuffled", 64, [1, 1], 0),
    ("again", 64, [1, 1], 0),
]


@pytest.mark.parametrize("check", ["race", "all"])
@pytest.mark.parametrize(("name", "threads", "silent", "racy"), _CASES)
def test_what_blocks_before_may_do_is_a_race_done_otherwise(
    check: str, name: str, threads: int, silent: list[int], racy: int
) -> None:
    """One block does what two did; lanes of a warp don't meet; one warp does what another one did."""
    device = cujit.cpu(1, check=check)
    kernel = cujit.jit(_OTHERWISE, names=list({case[0]: 0 for case in _CASES}), device=device)[name]
    with pytest.raises(KernelFaultError) as caught:
        kernel[9, threads](device.array(np.array([*silent * 4, racy], np.int32)), device.zeros(9 * 64, np.int32))
    assert (caught.value.kind, caught.value.block) == ("race", (8, 0, 0))
