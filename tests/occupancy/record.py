"""Record what a GPU's driver says of occupancy: ``python tests/occupancy/record.py FILE`` on a machine with one.

Each row is a kernel's demand (registers, static shared bytes, barriers, most threads), a block size, dynamic shared
bytes, and the blocks that the driver says one multiprocessor holds.
"""

from __future__ import annotations

import datetime
import json
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1])]

from cujit.devices.process import process_devices  # noqa: E402
from cujit.loading import load  # noqa: E402
from cujit.occupancy.subject import subject  # noqa: E402
from cujit.program import compile  # noqa: E402
from devices.cuda.gpus import context_of  # noqa: E402
from occupancy.kernels import CODE, DYNAMIC, NAMES  # noqa: E402

BLOCKS = (32, 64, 96, 160, 256, 384, 640, 1024)


def main() -> None:
    """Write the file."""
    gpu = process_devices().gpu()
    image = compile(CODE, arch=gpu.arch, names=NAMES)
    module = load(image, gpu)
    rows = []
    for name in NAMES:
        demand = subject(image, kernel=name, on=gpu).demand
        asked = (demand.registers, demand.shared_bytes, demand.barriers, demand.max_threads)
        for block, dynamic in zip(BLOCKS, DYNAMIC, strict=True):
            for more in dict.fromkeys((0, dynamic)):
                fits = demand.shared_bytes + more <= gpu.limits.shared_bytes_optin
                if block <= demand.largest_block and fits:
                    rows.append([*asked, block, more, module[name]._loaded.active_blocks(block, more)])
    head = {
        "gpu": gpu.product,
        "arch": str(gpu.arch),
        "driver": list(context_of(gpu).driver.version),
        "date": datetime.date.today().isoformat(),
    }
    lines = ",\n  ".join(json.dumps(row) for row in rows)
    Path(sys.argv[1]).write_text(json.dumps(head)[:-1] + f', "rows": [\n  {lines}\n]}}\n')


if __name__ == "__main__":
    main()
