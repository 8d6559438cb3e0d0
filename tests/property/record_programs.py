"""Record what a GPU computes of 500 random programs, compiled with and without contraction.

``record_programs.py build FOLDER`` compiles them to cubins of 25 programs each, with no GPU; on a machine with one,
``record_programs.py launch FOLDER FILE`` launches them and writes the golden, a checksum of each result.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np

import cujit
from property.programs import BLOCK, COUNTERS, GRID, WORDS, Program, inputs

COUNT, TOGETHER = 500, 25


def build(folder: Path) -> None:
    """Compile the programs, each kernel and function by the name of its seed."""
    for first in range(0, COUNT, TOGETHER):
        text = ""
        for seed in range(first, first + TOGETHER):
            own = re.sub(r"\bcall(\d)\b", rf"call\1_{seed}", Program(seed).source)
            text += own.replace("void k(", f"void k{seed}(")
        for fmad in (0, 1):
            made = cujit.compile(text, arch="sm_90", fmad=bool(fmad))
            (folder / f"u{first // TOGETHER}_{fmad}.cubin").write_bytes(made.data)


def launch(folder: Path, to: Path) -> None:
    """Launch what was built, and write the checksums."""
    device = cujit.default_device()
    found: dict[str, dict[str, int]] = {"0": {}, "1": {}}
    for path in sorted(folder.glob("u*_*.cubin")):
        unit, fmad = path.stem[1:].split("_")
        module = cujit.load(path.read_bytes(), device)
        for seed in range(TOGETHER * int(unit), TOGETHER * (int(unit) + 1)):
            out = device.array(np.zeros(GRID * BLOCK * WORDS + COUNTERS, np.uint32))
            module[f"k{seed}"][GRID, BLOCK](device.array(inputs()), out)
            found[fmad][str(seed)] = zlib.crc32(out.numpy().tobytes())
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    gpu = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    to.write_text(json.dumps({"source": gpu, **found}) + "\n")


if __name__ == "__main__":
    build(Path(sys.argv[2])) if sys.argv[1] == "build" else launch(Path(sys.argv[2]), Path(sys.argv[3]))
