"""Record what a GPU computes for every row: ``python tests/instructions/record.py OUT.npz``."""

from __future__ import annotations

import datetime
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from cujit.machine import gpu
from cujit.toolchain import driver
from instructions.runner import every_row, run_rows
from instructions.table import all_rows, key_of


def main() -> None:
    """Write one array a row, and where they come from."""
    device = gpu()
    results = run_rows(device, every_row())
    cuda = ".".join(map(str, driver.open_driver().version))
    origin = f"{device.product}; driver of CUDA {cuda}; {datetime.date.today().isoformat()}"
    arrays: dict[str, Any] = {key_of(all_rows()[index]): result for index, result in results.items()}
    np.savez_compressed(sys.argv[1], **{"origin": np.array(origin), **arrays})
    print(f"{len(arrays)} rows from {origin}")


if __name__ == "__main__":
    main()
