"""Messages name the line of a header that was inlined, and the calls that led there, in one form."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import cujit
from cujit.devices.cpu.run.source_map import Lines
from cujit.errors import KernelFaultError
from cujit.formats.ptx.parser import parse
from cujit.report.report import _error_records

pytestmark = pytest.mark.usefixtures("unoptimised")

_INNER = """#pragma once
__device__ inline int inner(int *s, int t) {
    return s[t];
}
__device__ inline void put(int *s, int t) {
    s[t] = t;
}
__device__ inline void until(unsigned at) {
    asm volatile("{.reg .pred p; L: mbarrier.try_wait.parity.shared.b64 p, [%0], 0; @!p bra L;}" :: "r"(at) : "memory");
}
"""
_OUTER = """#pragma once
#include "inner.cuh"
__device__ inline int outer(int *s, int t) {
    return inner(s, t) * 2;
}
__device__ inline void store(int *s, int t) {
    put(s, t);
}
"""
_USER = """#include "outer.cuh"
extern "C" __global__ void race(int *x) {
    __shared__ int s[64];
    store(s, threadIdx.x);
    x[threadIdx.x] = outer(s, threadIdx.x ^ 32);
}
extern "C" __global__ void memory(int *x) {
    x[0] = outer(x, 1000 + threadIdx.x);
}
extern "C" __global__ void unwritten(int *x) {
    __shared__ int s[64];
    int v = outer(s, threadIdx.x);
    x[threadIdx.x] = v;
}
extern "C" __global__ void deadlock(int *x) {
    __shared__ unsigned long long bar;
    unsigned at = (unsigned)__cvta_generic_to_shared(&bar);
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(at) : "memory");
    __syncthreads();
    until(at);
}
extern "C" __global__ void twice(int *x) {
    x[threadIdx.x] = outer(x, threadIdx.x + 64) + outer(x, threadIdx.x + 128);
}
"""
_READS = "inner.cuh:3, inlined at outer.cuh:4, inlined at user.cu:"
_WRITES = "inner.cuh:6, inlined at outer.cuh:7, inlined at user.cu:"


@pytest.fixture(scope="module")
def program() -> cujit.Artifact:
    headers = {"outer.cuh": _OUTER, "inner.cuh": _INNER}
    source = cujit.Source.cuda(_USER, name="user.cu", headers=headers)
    return cujit.compile(source, arch="compute_90", lineinfo=True)


def _shown(text: str) -> str:
    """Leave out the directory where NVRTC takes headers in memory to be."""
    return text.replace(f"{Path.cwd()}/", "")


_FOUND = {
    "race": ("race", (f"\n  from {_READS}5\n  against", f"\n  from {_WRITES}4")),
    "memory": ("memory", (f"\n  from {_READS}8",)),
    "unwritten": ("init", (f"\n  from {_READS}12",)),
    "deadlock": (None, ("(inner.cuh:9, inlined at user.cu:20)",)),
}


@pytest.mark.parametrize("name", _FOUND)
def test_findings_name_the_header_and_the_calls(name: str, program: cujit.Artifact) -> None:
    check, words = _FOUND[name]
    device = cujit.cpu(1, check=check)
    x = device.zeros(64, np.int32)
    with pytest.raises(KernelFaultError) as caught:  # noqa: PT012 - the host finds some of them
        cujit.load(program, device)[name][1, 64](x)
        x.numpy()
    for each in words:
        assert each in _shown(str(caught.value))
        # A report, and its JSON, have the same text.
        assert each in _shown(_error_records(caught.value)[0]["text"])


def test_every_call_of_a_function_has_its_own_call_chain(program: cujit.Artifact) -> None:
    text = program.data.decode()
    lines = Lines(lambda: parse(text), text)
    chains = {lines.chain_of(k + 1) for k in range(text.count("\n"))}
    ends = {chain[-1].line for chain in chains if len(chain) == 3 and chain[0].line == 3}
    assert ends >= {5, 8, 12}
    assert max(map(len, chains)) == 3
    assert {chain[0] for chain in chains if chain} == {lines.source_of(k + 1) for k in range(text.count("\n"))} - {None}


def test_call_chain_ends_at_a_call_without_a_line() -> None:
    text = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k() {
.loc 1 3 5, function_name $L__x, inlined_at 2 7 1
ret; }
.file 1 "a.cuh"
.file 2 "b.cu"
"""
    assert Lines(lambda: parse(text), text).origin_of(6) == "a.cuh:3, inlined at b.cu:7"
