"""Sources, builders and threads for the tests of the registry."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

from cujit.kernel import Kernel

TIMES = """
template <typename T, int N> __global__ void times(T* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= N;
}
"""


def writes(n: int) -> str:
    return f'extern "C" __global__ void k(int *p) {{ *p = {n}; }}'


class Builder:
    """A builder that counts its calls, and of which nothing can be told but its type."""

    def __init__(self, *built: object) -> None:
        self.built = built
        self.calls = 0

    def __call__(self) -> object:
        self.calls += 1
        return self.built


def value(kernel: Kernel) -> int:
    p = kernel.device.array(np.zeros(1, np.int32))
    kernel[1, 1](p)
    return int(p.numpy()[0])


def in_threads(count: int, work: Callable[[], object]) -> list[object]:
    """Run the work in that many threads at a time; give its results and exceptions."""
    start = threading.Barrier(count)
    results: list[object] = []

    def run() -> None:
        start.wait()
        try:
            results.append(work())
        except Exception as e:
            results.append(e)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(results) == count
    return results
