"""Fuzz one reader, guided by coverage: ``python fuzz/guided.py READER [libFuzzer options]``.

``seeds.py`` makes real images to start from.
"""

from __future__ import annotations

import functools
import sys

import atheris

with atheris.instrument_imports(include=["cujit"]):
    from readers import READERS, read_foreign


def main() -> None:
    """Fuzz the reader named first."""
    if len(sys.argv) < 2 or sys.argv[1] not in READERS:
        raise SystemExit(f"usage: guided.py {{{'|'.join(READERS)}}} [libFuzzer options]")
    atheris.Setup(sys.argv, functools.partial(read_foreign, sys.argv.pop(1)))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
