"""A driver of CUDA that does nothing and counts its calls: what is left of the time of a program is the program's own.

``python tests/null_driver.py COMMAND …`` runs a command with it in place of ``libcuda.so.1``.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

NAME = "libcuda.so.1"
SOURCE = Path(__file__).parent / "null_driver.c"


def is_buildable() -> bool:
    """Tell whether the compiler is here, that of the wheel ``ziglang``."""
    return importlib.util.find_spec("ziglang") is not None and sys.platform == "linux"


def build(directory: Path) -> dict[str, str]:
    """Build the driver into a directory; return the environment of a process that finds it there."""
    options = (
        "-std=gnu11",
        "-O2",
        "-fPIC",
        "-shared",
        "-fvisibility=hidden",
        "-fno-sanitize=all",
        "-Wl,-soname,libcuda.so.1",
    )
    command = [sys.executable, "-m", "ziglang", "cc", *options, str(SOURCE), "-o", str(directory / NAME)]
    subprocess.run(command, check=True, capture_output=True)
    path = os.pathsep.join(filter(None, (str(directory), os.environ.get("LD_LIBRARY_PATH"))))
    return {**os.environ, "LD_LIBRARY_PATH": path, "NULL_DRIVER_CALLS": str(directory / "calls")}


def calls(directory: Path) -> dict[str, Counter[str]]:
    """Read what was called before each mark."""
    counts: dict[str, Counter[str]] = {}
    for line in (directory / "calls").read_text().splitlines():
        mark, name, count = line.rsplit(" ", 2)
        counts.setdefault(mark, Counter())[name] += int(count)
    return counts


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(subprocess.run(sys.argv[1:], env=build(Path(folder))).returncode)
