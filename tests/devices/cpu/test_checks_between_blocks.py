"""One access by each of two blocks, and what is between them: the race check of global memory against an oracle."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pytest

import cujit
from cujit.errors import KernelFaultError
from cujit.values import NamedTuple
from groups import GROUPS
from sweeps import part

pytestmark = pytest.mark.usefixtures("unoptimised")

THREADS, ELEMENTS = 64, 256
MANY = int(os.environ.get("CUJIT_RACES", "72"))
"""Programs of the sweep, of which a run tries a part."""

_TYPES = {1: "unsigned char", 2: "unsigned short", 4: "unsigned", 8: "unsigned long long"}
_PLACES: dict[str, Callable[[int], int]] = {
    "t": lambda t: t,
    "63 - t": lambda t: 63 - t,
    "t ^ 5": lambda t: t ^ 5,
    "t + 33": lambda t: t + 33,
    "2 * t": lambda t: 2 * t,
    "3 * t + 1": lambda t: 3 * t + 1,
    "t * 37 % 128": lambda t: t * 37 % 128,
    "t / 8": lambda t: t // 8,
    "70": lambda _: 70,
}
_GUARDS: dict[str, Callable[[int], bool]] = {
    "true": lambda t: t >= 0,
    "t < 32": lambda t: t < 32,
    "t % 32 < 9": lambda t: t % 32 < 9,
    "t == 40": lambda t: t == 40,
}
_SET, _WAIT = "if (t == 0) atomicExch(flag, 1);", "if (t == 0) while (!atomicAdd(flag, 0));\n    __syncthreads();"
_RELEASE = 'if (t == 0) asm volatile("st.release.gpu.u32 [%0], 1;" :: "l"(flag) : "memory");'
_ACQUIRE = (
    'if (t == 0) do asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory"); while (!seen);\n'
    "    __syncthreads();"
)
_BETWEEN = {
    "nothing": ("", "", False),
    "a flag": (f"__syncthreads(); {_SET}", _WAIT, False),
    "a fence of the block": (f"__syncthreads(); __threadfence_block(); {_SET}", _WAIT, False),
    "a late fence": ("__syncthreads(); if (t == 0) { atomicExch(flag, 1); __threadfence(); }", _WAIT, False),
    "a fence": (f"__threadfence(); __syncthreads(); {_SET}", _WAIT, True),
    "a release": (f"__syncthreads(); {_RELEASE}", _ACQUIRE, True),
    "the grid": ("cooperative_groups::this_grid().sync();",) * 2 + (True,),
}
"""What the first block does behind its access, and the second one before its own, and whether that orders both."""
_WAYS = {
    "the same parameter": "all",
    "another parameter": "again",
    "a pointer in memory": "*table",
    "one of two parameters": "flag[1] ? (void *)out : all",
    "a function": "out_of_line(table, again)",
}
"""How the second block computes the address of the array."""
_PARAMETERS = "void *all, void *again, void **table, unsigned *flag, unsigned *out"
_FUNCTION = "__device__ __noinline__ void *out_of_line(void **table, void *other) { return table ? *table : other; }\n"
_DOES = {"reads": "x += p[{0}];", "writes": "p[{0}] = (T)({1} + t);", "adds": "atomicAdd(p + {0}, (T)({1} + t));"}


class _Access(NamedTuple):
    """Threads that a guard holds for access an element each, at a place of their own, or one that several have."""

    does: str
    place: str
    guard: str

    def code(self, least: int) -> str:
        """Write it in CUDA; what is written is never 0, and that of one block never that of the other."""
        return f"if ({self.guard}) {{ {_DOES[self.does].format(f'({self.place})', least)} }}"

    def elements(self) -> set[int]:
        """Tell which elements are accessed."""
        return {_PLACES[self.place](t) for t in range(THREADS) if _GUARDS[self.guard](t)}


class _Program(NamedTuple):
    size: int
    first: _Access
    second: _Access
    between: str
    way: str

    def source(self, number: int) -> str:
        """Write a kernel of two blocks."""
        tells, waits, _ = _BETWEEN[self.between]
        return (
            f'extern "C" __global__ void pair{number}({_PARAMETERS}) {{\n'
            f"    typedef {_TYPES[self.size]} T; T *p = (T *)all; unsigned t = threadIdx.x, x = 0, seen = 0;\n"
            f"    if (blockIdx.x == 0) {{ {self.first.code(1)}\n    {tells} }}\n"
            f"    else {{ {waits}\n    p = (T *)({_WAYS[self.way]}); {self.second.code(1 + THREADS)} }}\n"
            f"    out[blockIdx.x * {THREADS} + t] = x + seen;\n}}\n"
        )

    @property
    def races(self) -> bool:
        """Whether both blocks access an element, one of them writes, not both by atomics, and nothing orders that."""
        does = {self.first.does, self.second.does}
        return (
            not _BETWEEN[self.between][2]
            and does not in ({"reads"}, {"adds"})
            and not self.first.elements().isdisjoint(self.second.elements())
        )


def _program(rng: np.random.Generator) -> _Program:
    size = int(rng.choice(list(_TYPES)))
    kinds = list(_DOES) if size >= 4 else ["reads", "writes"]
    first, second = (
        _Access(str(rng.choice(kinds)), str(rng.choice(list(_PLACES))), str(rng.choice(list(_GUARDS))))
        for _ in range(2)
    )
    return _Program(size, first, second, str(rng.choice(list(_BETWEEN))), str(rng.choice(list(_WAYS))))


def _found(kernel: cujit.Kernel, device: cujit.Device) -> str:
    array, flag, out = (device.zeros(n, np.uint32) for n in (2 * ELEMENTS, 2, 2 * THREADS))
    table = device.array(np.array([array.address], np.uint64))
    try:
        kernel.prepare(2, THREADS, cooperative=True)(array, array, table, flag, out)
        device.synchronize()
    except KernelFaultError as error:
        return error.kind
    return ""


def _kernels_of(programs: list[_Program], device: cujit.Device) -> list[cujit.Kernel]:
    kernels = [each.source(k) for k, each in enumerate(programs)]
    text = "".join([GROUPS, _FUNCTION, *kernels])
    module = cujit.jit(cujit.Source.cuda(text, name="pairs.cu"), device=device)
    return [module[f"pair{k}"] for k in range(len(programs))]


def test_read_before_a_write_is_found_for_any_address_form() -> None:
    reads, writes = (_Access(does, "t", "true") for does in ("reads", "writes"))
    programs = [_Program(4, reads, writes, "nothing", way) for way in _WAYS]
    devices = [cujit.cpu(1, check="race") for _ in programs]
    assert [_found(_kernels_of(programs, each)[k], each) for k, each in enumerate(devices)] == ["race"] * len(_WAYS)


@pytest.mark.parametrize("check", ["race", "all"])
def test_only_the_race_between_blocks_in_global_memory_is_found(check: str) -> None:
    rng, device = np.random.default_rng(41 + len(check)), cujit.cpu(1, check=check)
    programs = part([_program(rng) for _ in range(MANY)], 4, check)
    expected = ["race" if each.races else "" for each in programs]
    found = [_found(kernel, device) for kernel in _kernels_of(programs, device)]
    assert [(programs[k], kind) for k, kind in enumerate(found) if kind != expected[k]] == []


@pytest.mark.parametrize(
    ("arrival", "kind"),
    [
        ("barrier.cluster.arrive.aligned;", ""),
        ("fence.acq_rel.cluster; barrier.cluster.arrive.relaxed.aligned;", ""),
        ("barrier.cluster.arrive.relaxed.aligned;", "race"),
    ],
)
def test_relaxed_cluster_arrival_orders_only_fenced_accesses(arrival: str, kind: str) -> None:
    code = f"""extern "C" __global__ void __cluster_dims__(2) pair(unsigned *all, unsigned *out) {{
        if (blockIdx.x == 0) all[threadIdx.x] = threadIdx.x + 1;
        asm volatile("{arrival} barrier.cluster.wait.aligned;" ::: "memory");
        out[blockIdx.x * {THREADS} + threadIdx.x] = blockIdx.x ? all[threadIdx.x] : 0;
    }}"""
    device = cujit.cpu(1, check="race")
    array, out = (device.zeros(n, np.uint32) for n in (THREADS, 2 * THREADS))
    found = ""
    try:
        cujit.jit(code, device=device, arch="sm_90")["pair"].prepare(2, THREADS)(array, out)
        device.synchronize()
    except KernelFaultError as error:
        found = error.kind
    assert found == kind
