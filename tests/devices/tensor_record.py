"""Record what a GPU makes of tensor copies: ``python tests/devices/tensor_record.py tests/goldens/tensor.npz``.

A copy that ends the GPU's context ends its process with it. So every family of cases has a process of its own; what is
left of a family that ended early comes last, again in a process of its own. What worked is written in any case.
"""

from __future__ import annotations

import datetime
import multiprocessing
import os
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from cujit.machine import gpu
from cujit.toolchain import driver
from devices.tensor_table import CASES, FAMILIES, Array, Case, run

_CONTEXT = multiprocessing.get_context("fork")
"""The parent never opens the driver, so that its children can; they have all modules already."""

_FIRST_S, _EACH_S, _ALL_S = 20, 10, 50
"""Seconds that the first answer of a process, each further one, and everything may take."""


def _origin() -> Array:
    cuda = ".".join(map(str, driver.open_driver().version))
    return np.array(f"{gpu().product}; driver of CUDA {cuda}; {datetime.date.today().isoformat()}")


def _work(cases: Sequence[Case], to: Connection) -> None:
    """Answer with the origin, then with the bytes of each case; or with why there is none, and end."""
    try:
        to.send(_origin())
        for case in cases:
            to.send(run(gpu(), case))
    except Exception as e:  # whatever it was, the context is not trusted after it; errors do not travel well
        to.send(f"{type(e).__name__}: {e}")
    os._exit(0)  # without asking a dead context to clean up


def _answers(cases: Sequence[Case], until: float) -> Iterator[Array | str]:
    """Run cases in a process and give its answers; a text is why it gives no more."""
    from_, to = _CONTEXT.Pipe(duplex=False)
    worker = _CONTEXT.Process(target=_work, args=(cases, to), daemon=True)
    worker.start()
    to.close()
    try:
        for k in range(len(cases) + 1):
            patience = _EACH_S if k else _FIRST_S
            if not from_.poll(max(0.0, min(patience, until - time.monotonic()))):
                yield "no answer in time"
                return
            yield from_.recv()
    except EOFError:
        yield "its process ended"
    finally:
        worker.kill()
        worker.join()
        from_.close()


def _write(path: Path, arrays: dict[str, Any]) -> None:
    """Write all that there is so far; a file that is there already stays whole until then."""
    new = path.with_name(f"{path.name}.new")
    with new.open("wb") as file:
        np.savez_compressed(file, **arrays)
    new.replace(path)


def main(path: Path) -> int:
    """Write the bytes of every case that works, and where they come from; 1 where none does."""
    until = time.monotonic() + _ALL_S
    arrays: dict[str, Any] = {}
    queue = deque(FAMILIES.values())
    while queue and time.monotonic() < until:
        cases = queue.popleft()
        names = ["origin", *(c.name for c in cases)]
        for k, answer in enumerate(_answers(cases, until)):
            if isinstance(answer, str):
                print(f"failed: {names[k]}: {answer}", flush=True)
                if k and cases[k:]:
                    queue.append(cases[k:])
                break
            arrays[names[k]] = answer
        _write(path, arrays)
    missing = [c.name for c in CASES if c.name not in arrays]
    print(f"{len(CASES) - len(missing)} of {len(CASES)} copies from {arrays.get('origin')}; without {missing}")
    return 0 if len(arrays) > 1 else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
