"""The sync check: barriers that some threads of a block skip, and what other threads do meanwhile."""

from __future__ import annotations

import re

import numpy as np
import pytest

import cujit
from cujit.errors import KernelFaultError

pytestmark = pytest.mark.usefixtures("unoptimised")

THREADS = 64

WRONG = {
    "part of a warp skips it": "if (t < 40) SYNC; o[t] = s[t ^ 1];",
    "a warp skips it": "if (t < 32) SYNC; o[t] = s[t ^ 1];",
    "a warp skips it, by its number": "if (t / 32 == 0) SYNC; o[t] = s[t ^ 1];",
    "threads skip it in the last round": (
        "for (int k = 0; k < n; k++) if (64 * k + t < 240) { s[t] += k; SYNC; } o[t] = s[t];"
    ),
    "threads leave its loop one by one": "for (int k = t; k < 100; k += 64) { s[t] += k; SYNC; } o[t] = s[t];",
    "threads break": '_Pragma("unroll 1") for (int k = 0; k < n; k++) { SYNC; if (k > t) break; } o[t] = 1;',
    "threads skip two of them": "if (t < 40) SYNC; s[t] += 1; if (t < 50) SYNC; o[t] = s[t];",
    "behind an early return": "if (t == 63) return; if (t < 40) SYNC; o[t] = s[t];",
    "by data": "if (x[t] < 40) SYNC; o[t] = s[t];",
    "one that counts": "int c = 0; if (t < 40) c = __syncthreads_count(1); o[t] = c;",
    "one that is not aligned": 'if (t < 40) asm volatile("barrier.sync 0;" ::: "memory"); o[t] = 1;',
    "a guard": 'asm volatile("{ .reg .pred p; setp.lt.u32 p, %0, 40; @p bar.sync 0; }" :: "r"(t)); o[t] = 1;',
}
"""Threads that go on skip a barrier at which others wait."""

ELSEWHERE = {
    "in branches": "if (t < 32) { s[t] += 1; SYNC; o[t] = 1; } else { SYNC; o[t] = s[t - 32]; }",
    "different rounds": "for (int k = 0; k < 2; k++) if (t / 32 == k) SYNC; o[t] = 1;",
    "one of two": "if (t < 32) { s[t] += 1; SYNC; } s[t] += 2; SYNC; o[t] = s[63 - t];",
}
"""Warps wait at different barriers."""

RIGHT = {
    "an early return": "if (t >= 40) return; s[t] = 2; SYNC; o[t] = s[39 - t];",
    "a warp returns early": "if (t >= 32) return; s[t] = 2; SYNC; o[t] = s[31 - t];",
    "all in a condition": "if (t < 40) { s[t] = 2; SYNC; o[t] = s[39 - t]; }",
    "steps that threads leave": "for (int k = 32; k; k /= 2) { if (t >= k) return; s[t] += s[t + k]; SYNC; } o[t] = 1;",
    "a condition that holds for all": "if (t < 64) SYNC; o[t] = s[63 - t];",
    "data that hold for all": "if (t == 63) return; for (int k = 0; k < 9; k++) if (x[k] % 3 == 0) SYNC; o[t] = 1;",
    "a branch of the block": "if (n > 1) { s[t] = 2; SYNC; } else { s[t] = 3; SYNC; } o[t] = s[63 - t];",
    "a named one for a warp": 'if (t < 32) asm volatile("bar.sync 1, 32;" ::: "memory"); SYNC; o[t] = 1;',
    "some that are not aligned": (
        'if (t < 32) asm volatile("barrier.sync 0;" ::: "memory"); else asm volatile("barrier.sync 0;" ::: "memory");'
    ),
    "a loop in which threads return": (
        '_Pragma("unroll 1") for (int k = 0; k < n; k++) { if (x[70 + k] % 2) SYNC; o[t] = k; if (k > t) return; }'
    ),
}


def _run(body: str) -> None:
    source = (
        '#define SYNC __syncthreads()\nextern "C" __global__ void k(const int *x, int *o, int n) {\n'
        f"    __shared__ int s[{THREADS}]; int t = threadIdx.x; s[t] = t; SYNC;\n    {body}\n}}\n"
    )
    device = cujit.cpu(1, check="sync")
    kernel = cujit.jit(source, device=device, options={"lineinfo": True})["k"]
    kernel[2, THREADS](device.array(np.arange(100, dtype=np.int32)), device.zeros(THREADS, np.int32), 4)


@pytest.mark.parametrize("name", WRONG)
def test_barriers_that_threads_skip_are_found_with_their_line(name: str) -> None:
    with pytest.raises(KernelFaultError) as caught:
        _run(WRONG[name])
    assert caught.value.kind == "sync"
    assert re.search(r"thread \(\d+, 0, 0\) skips a barrier that this thread waits at", caught.value.message)
    assert re.search(r"bar(rier)?\.(sync|red)[^\n]*\n  from [^\n]*:4\b", caught.value.message), caught.value.message


@pytest.mark.parametrize("name", ELSEWHERE)
def test_warps_at_different_barriers_are_found_with_lines(name: str) -> None:
    with pytest.raises(KernelFaultError) as caught:
        _run(ELSEWHERE[name])
    assert caught.value.kind == "sync"
    assert "waits at another barrier than thread" in caught.value.message
    assert caught.value.message.count("bar.sync") == 2


@pytest.mark.parametrize("name", RIGHT)
def test_threads_that_have_exited_may_miss_barriers(name: str) -> None:
    _run(RIGHT[name])
