"""What a release must do where it was just installed: ``python -X dev -W error release_smoke.py``, nothing beside it.

``release_check.py`` copies it out of the tree and runs it, so that no file of the tree is found by accident. It says in
one line what it did, or ends with a traceback. Threads compile and launch at once, under a global lock or without one.
"""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import cujit
from cujit.errors import CompileError

SOURCE = """
template <typename T> __global__ void scale(T* x, T by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= by;
}
"""
COUNT = 1000
THREADS = 8


def _scaled(number: int) -> None:
    """Compile a source of its own or another thread's, launch it on the CPU device, and hold what it gives."""
    source = f"{SOURCE}// {number % 4}"
    module = cujit.jit(source, names=["scale<float>"], device=cujit.cpu())
    device = module.device
    x = device.array(np.arange(COUNT, dtype=np.float32))
    module["scale<float>"][(COUNT + 255) // 256, 256](x, np.float32(number), np.int32(COUNT))
    assert np.array_equal(x.numpy(), np.arange(COUNT, dtype=np.float32) * np.float32(number))


def _together() -> None:
    """Do that in threads, several at a time with one source."""
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(_scaled, range(1, 4 * THREADS + 1)))


def _hits() -> None:
    """Compile twice, and get the second from the cache."""
    first = cujit.compile(SOURCE, names=["scale<double>"], arch="sm_90")
    again = cujit.compile(SOURCE, names=["scale<double>"], arch="sm_90")
    assert bytes(first.data) == bytes(again.data)


def _refuses() -> None:
    """Get an error of cujit's own for a source that does not compile."""
    said = ""
    try:
        cujit.compile("__global__ void k() { nothing(); }", arch="sm_90")
    except CompileError as error:
        said = str(error)
    assert "nothing" in said


def main() -> None:
    """Do all of it."""
    where = Path(cujit.__file__).parent
    assert "site-packages" in where.parts, f"cujit is taken from {where}, and not from what was installed"
    _hits()
    _refuses()
    _together()
    shown = subprocess.run(
        [sys.executable, "-W", "error", "-m", "cujit", "--version"], check=True, capture_output=True, text=True
    )
    assert cujit.__version__ in shown.stdout
    lock = "under a global lock" if getattr(sys, "_is_gil_enabled", lambda: True)() else "without a global lock"
    print(f"cujit {cujit.__version__} does what it should, in {THREADS} threads {lock}")


if __name__ == "__main__":
    main()
