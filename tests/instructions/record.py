"""Record what a GPU computes for every row: ``python tests/instructions/record.py OUT.npz [GOLDENS.npz]``.

With GOLDENS, only the rows that this file lacks are run, and OUT is both together.
"""

from __future__ import annotations

import datetime
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from cujit.machine import gpu
from cujit.toolchain import driver
from instructions.runner import run_rows
from instructions.table import all_rows, key_of


def main() -> None:
    """Write one array a row, and where they come from."""
    device = gpu()
    known = dict(np.load(sys.argv[2])) if len(sys.argv) > 2 else {}
    results = run_rows(device, [row for row in all_rows() if key_of(row) not in known])
    cuda = ".".join(map(str, driver.open_driver().version))
    origin = f"{device.product}; driver of CUDA {cuda}; {datetime.date.today().isoformat()}"
    arrays: dict[str, Any] = {**known, "origin": np.array(origin), **results}
    np.savez_compressed(sys.argv[1], **arrays)
    print(f"{len(results)} rows from {origin}")


if __name__ == "__main__":
    main()
