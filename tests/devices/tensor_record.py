"""Record what a GPU makes of tensor copies: ``python tests/devices/tensor_record.py tests/goldens/tensor.npz``.

A copy that ends the GPU's context ends its process with it; the others go on in a new one.
"""

from __future__ import annotations

import datetime
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures import TimeoutError as Late
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from cujit.errors import CujitError
from cujit.machine import gpu
from cujit.toolchain import driver
from devices.tensor_table import CASES, Array, run

_PATIENCE_S = 60


def _one(index: int) -> Array | str:
    try:
        return run(gpu(), CASES[index])
    except CujitError as e:  # the driver refused the map, or the GPU the copy; errors do not travel well
        return f"{type(e).__name__}: {e}"


def _origin() -> str:
    cuda = ".".join(map(str, driver.open_driver().version))
    return f"{gpu().product}; driver of CUDA {cuda}; {datetime.date.today().isoformat()}"


def _process() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))


def _recorded(worker: ProcessPoolExecutor, index: int) -> Array | str:
    try:
        return worker.submit(_one, index).result(_PATIENCE_S)
    except (Late, BrokenProcessPool) as e:
        return type(e).__name__


def main() -> int:
    """Write the bytes of every case, and where they come from; 1 where a case failed."""
    arrays: dict[str, Any] = {}
    failed = 0
    worker = _process()
    origin = worker.submit(_origin).result(_PATIENCE_S)
    for index, case in enumerate(CASES):
        result = _recorded(worker, index)
        if not isinstance(result, str):
            arrays[case.name] = result
            continue
        print(f"failed {case.name}: {result}")
        failed += 1
        worker.shutdown(wait=False, cancel_futures=True)
        worker = _process()
    worker.shutdown()
    np.savez_compressed(sys.argv[1], **{"origin": np.array(origin), **arrays})
    print(f"{len(arrays)} of {len(CASES)} copies from {origin}; {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
