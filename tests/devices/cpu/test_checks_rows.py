"""The race check against an oracle: rows of accesses of all widths and strides, which programs have as constants."""

from __future__ import annotations

import os

import numpy as np
import pytest

import cujit
from cujit.errors import KernelFaultError
from cujit.values import NamedTuple
from sweeps import part

pytestmark = pytest.mark.usefixtures("unoptimised")

THREADS, BYTES, EPOCHS, STEPS = 64, 4096, 3, 4
MANY = int(os.environ.get("CUJIT_RACES", "25"))
"""Programs of each seed; ``make checked`` sets more."""

_TYPES = {1: "unsigned char", 2: "unsigned short", 4: "unsigned", 8: "unsigned long long", 16: "uint4"}
_GUARDS = {"1": lambda t: t >= 0, "t < 20": lambda t: t < 20, "t & 5": lambda t: (t & 5) != 0,
           "t % 3 == 0": lambda t: t % 3 == 0, "t >= 32": lambda t: t >= 32,
           "t % 32 == 8": lambda t: t % 32 == 8}  # fmt: skip
_VALUE = """
template<typename T> __device__ T all_bytes(unsigned v) { return (T)(v * 0x0101010101010101ull); }
template<> __device__ uint4 all_bytes<uint4>(unsigned v) { v *= 0x01010101u; return make_uint4(v, v, v, v); }
__device__ unsigned sum_of(uint4 v) { return v.x ^ v.y ^ v.z ^ v.w; }
__device__ unsigned sum_of(unsigned long long v) { return (unsigned)(v ^ v >> 32); }
"""


class Step(NamedTuple):
    """Threads that a guard holds for access elements: number ``stride * (t ^ turned) + first``, and others near it.

    ``reads`` and ``writes`` are how many elements further; what is read is read first.
    """

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    size: int
    stride: int
    turned: int
    first: int
    guard: str
    meets: bool
    """Whether the lanes of each warp meet before."""

    def code(self, number: int) -> str:
        """Write it in CUDA."""
        type_ = _TYPES[self.size]
        value = f"all_bytes<{type_}>({number % STEPS * THREADS} + t)"
        does = [f"x = 5 * x + sum_of(p[{k}]);" for k in self.reads] + [f"p[{k}] = {value};" for k in self.writes]
        begin = f"{type_} *p = ({type_} *)s + {self.stride} * (int)(t ^ {self.turned}) + {self.first};"
        return f"    {'__syncwarp(); ' if self.meets else ''}if ({self.guard}) {{ {begin} {' '.join(does)} }}\n"

    def bytes_of(self) -> list[tuple[int, int, bool]]:
        """List each byte that a thread accesses, with the thread and whether it is written."""
        threads = [t for t in range(THREADS) if _GUARDS[self.guard](t)]
        return [
            (t, self.size * (self.stride * (t ^ self.turned) + self.first + k) + byte, wrote)
            for places, wrote in ((self.reads, False), (self.writes, True))
            for k in places
            for t in threads
            for byte in range(self.size)
        ]


def _several(rng: np.random.Generator, most: int) -> tuple[int, ...]:
    """Choose elements that are accessed one after the other."""
    count = int(rng.choice([1, 1, 1, 2, 3]))
    return tuple(int(k) for k in rng.choice(most + 1, min(count, most + 1), replace=False))


def _kind(rng: np.random.Generator, made: Step, most: int, share: float) -> Step:
    """Choose what a step reads and writes, of ``most`` elements behind its first one."""
    writes, both = bool(rng.random() < share), bool(rng.random() < 0.3)
    reads = _several(rng, most) if both or not writes else ()
    return made._replace(reads=reads, writes=_several(rng, most) if writes else ())


def _step(rng: np.random.Generator, own: Step) -> Step:
    """Make a step: most are at the places of ``own``, which every thread has for itself."""
    made = own._replace(meets=bool(rng.random() < 0.2), guard=str(rng.choice(list(_GUARDS))))
    if rng.random() < 0.7:
        return _kind(rng, made, abs(own.stride) - 1, 0.5)
    size = int(rng.choice(list(_TYPES)))
    stride = int(rng.choice([1, 1, 2, 3, -1, 0, own.stride]))
    room = BYTES // size - THREADS * abs(stride)
    if room < 1:
        return _kind(rng, made, abs(own.stride) - 1, 0.5)
    first = int(rng.integers(room))
    most = min(room - 1 - first, int(rng.choice([0, 1, 2, 40])))
    first += (THREADS - 1) * abs(stride) * (stride < 0)
    return _kind(rng, made._replace(size=size, stride=stride, turned=0, first=first), most, 0.3)


def _program(rng: np.random.Generator) -> list[list[Step]]:
    epochs = []
    for _ in range(EPOCHS):
        size = int(rng.choice(list(_TYPES)))
        stride = int(rng.choice([s for s in (1, 1, 1, 2, 3, 4, 5, 9, 17, 33) if s * size * THREADS <= BYTES]))
        first = int(rng.integers(BYTES // size - stride * THREADS + 1))
        own = Step((), (), size, stride, int(rng.choice([0, 0, 1, 16, 32])), first, "1", meets=False)
        epochs.append([_step(rng, own) for _ in range(STEPS)])
    return epochs


def _races(epochs: list[list[Step]]) -> bool:
    """Tell whether two threads access a byte, one of them writes, and nothing in between orders that."""
    for steps in epochs:
        seen: dict[int, list[tuple[int, bool, int]]] = {}
        met = 0
        for step in steps:
            met += step.meets
            for thread, place, writes in step.bytes_of():
                for other, wrote, when in seen.setdefault(place, []):
                    ordered = thread // 32 == other // 32 and when < met
                    if other != thread and (wrote or writes) and not ordered:
                        return True
                seen[place].append((thread, writes, met))
    return False


def _source(programs: list[list[list[Step]]]) -> str:
    kernels = []
    for k, epochs in enumerate(programs):
        body = "".join(
            "".join(step.code(n) for n, step in enumerate(steps)) + "    __syncthreads();\n" for steps in epochs
        )
        kernels.append(
            f'extern "C" __global__ void rows{k}(unsigned *out) {{\n'
            f"    __shared__ __align__(16) unsigned char s[{BYTES}];\n    unsigned t = threadIdx.x, x = 0;\n"
            f"    for (int k = t; k < {BYTES}; k += {THREADS}) s[k] = 0;\n    __syncthreads();\n"
            f"{body}    out[t] = x;\n}}\n"
        )
    return _VALUE + "".join(kernels)


def _kind_of(kernel: cujit.Kernel, out: cujit.DeviceArray) -> str:
    """Launch a kernel; give the kind of what is found."""
    try:
        kernel[1, THREADS](out)
    except KernelFaultError as error:
        return error.kind
    return ""


@pytest.mark.parametrize("schedule", [None, 3], ids=["regions", "stacks"])
@pytest.mark.parametrize("check", ["race", "all"])
def test_row_races_match_those_of_an_oracle(check: str, schedule: int | None) -> None:
    """Warps that have stacks of their own meet by another way than those that run from barrier to barrier."""
    rng = np.random.default_rng(34 + len(check))
    programs = [_program(rng) for _ in range(MANY)]
    device = cujit.cpu(1, check=check, schedule=schedule)
    some = part(range(MANY), 3)
    source = cujit.Source.cuda(_source([programs[k] for k in some]), name="rows.cu")
    kernels = cujit.load(cujit.compile(source, arch="compute_80"), device)
    expected = ["race" if _races(each) else "" for each in programs]
    assert 0.2 < expected.count("race") / len(programs) < 0.8
    out = device.zeros(THREADS, np.uint32)
    found = [_kind_of(kernels[f"rows{k}"], out) for k in range(len(some))]
    assert found == [expected[k] for k in some], [k for k, kind in zip(some, found, strict=True) if kind != expected[k]]
