"""Remake ``tests/goldens/cuda12``: ``.venv-12.9/bin/python tests/golden-makers/cuda12.py``.

That is the environment of ``make toolkits`` with ``cujit[cu12]``: the images are built by cujit itself, with the
toolkit that is the last for sm_50 to sm_72. No GPU is needed.
"""

from __future__ import annotations

from pathlib import Path

import cujit
from cujit.program import toolchain

GOLDENS = Path(__file__).resolve().parents[1] / "goldens" / "cuda12"
NAMES = ["axpy<double>"]


def main() -> None:
    """Make every image, and the note of what made it."""
    tools = toolchain()
    if tools.nvrtc.version != (12, 9):
        raise SystemExit(f"this is the toolkit of CUDA {tools.nvrtc.version}; the goldens are of 12.9")
    source = cujit.Source.cuda(GOLDENS / "kernels.cu", name="kernels.cu")
    reals = [f"sm_{number}" for number in tools.nvrtc.arches]
    images = {
        "every.fatbin": cujit.build(source, [*reals, "sm_90a", "sm_100f", "compute_50"], names=NAMES, compress=True),
        "oldest.ptx": cujit.compile(source, to="ptx", arch="compute_50", names=NAMES),
        "linked.cubin": cujit.link([cujit.compile(source, arch="compute_50", names=NAMES, rdc=True)], arch="sm_60"),
    }
    for name, image in images.items():
        image.save(GOLDENS / name)
    made = f"NVRTC {'.'.join(map(str, tools.nvrtc.version))}, nvFatbin and nvJitLink of the same release, by cujit\n"
    (GOLDENS / "made.txt").write_text("".join(f"{name}: {made}" for name in images))


if __name__ == "__main__":
    main()
