"""Record what a GPU looks up in textures: ``python tests/devices/textures_record.py tests/goldens/textures.npz``."""

from __future__ import annotations

import datetime
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from cujit.machine import gpu
from cujit.toolchain import driver
from devices.textures_table import CASES, run


def main() -> None:
    """Write the words of each case, and where they come from."""
    device = gpu()
    arrays: dict[str, Any] = {case.name: run(device, case) for case in CASES}
    cuda = ".".join(map(str, driver.open_driver().version))
    origin = f"{device.product}; driver of CUDA {cuda}; {datetime.date.today().isoformat()}"
    np.savez_compressed(sys.argv[1], **{"origin": np.array(origin), **arrays})
    print(f"{len(arrays)} lookups from {origin}")


if __name__ == "__main__":
    main()
