"""Record how a GPU sums: ``python tests/instructions/record_sums.py OUT.json``."""

from __future__ import annotations

import datetime
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from cujit.machine import gpu
from cujit.toolchain import driver
from instructions.sums import forms, measured


def main() -> int:
    """Write the digests of every form, and where they come from."""
    device = gpu()
    cuda = ".".join(map(str, driver.open_driver().version))
    origin = f"{device.product}; driver of CUDA {cuda}; {datetime.date.today().isoformat()}"
    found = {name: measured(device, form) for name, form in forms().items()}
    Path(sys.argv[1]).write_text(json.dumps({"origin": origin, "forms": found}, indent=1) + "\n")
    print(f"{len(found)} forms from {origin}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
