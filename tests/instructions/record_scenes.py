"""Record what a GPU makes of every scene: ``python tests/instructions/record_scenes.py OUT.npz [GOLDENS.npz]``.

With GOLDENS, only the scenes that this file lacks are run, and OUT is both together.
"""

from __future__ import annotations

import datetime
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from cujit.arch import Arch
from cujit.errors import CujitError
from cujit.machine import gpu
from cujit.toolchain import driver
from instructions.scene import every_scene, golden_of, run_scene


def main() -> int:
    """Write all arrays of every scene that this GPU runs, and where they come from; 1 where a scene failed."""
    device = gpu()
    known = dict(np.load(sys.argv[2])) if len(sys.argv) > 2 else {}
    arrays: dict[str, Any] = {}
    failed = 0
    for scene in every_scene().values():
        if golden_of(scene, known) is not None:
            continue
        if Arch.parse(scene.target).number > device.arch.number:
            print(f"left out {scene.name}: {scene.target} does not run on {device}")
            continue
        try:
            results = run_scene(device, scene)
        except CujitError as e:
            print(f"failed {scene.name}: {e}")
            failed += 1
            continue
        arrays.update({f"{scene.name}:{k}": result for k, result in enumerate(results)})
    cuda = ".".join(map(str, driver.open_driver().version))
    origin = f"{device.product}; driver of CUDA {cuda}; {datetime.date.today().isoformat()}"
    np.savez_compressed(sys.argv[1], **{**known, "origin": np.array(origin), **arrays})
    print(f"{len(arrays)} arrays of {len(every_scene())} scenes from {origin}; {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
