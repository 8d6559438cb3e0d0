"""Coverage-guided fuzzing of every reader of foreign bytes: ``python fuzz/readers.py READER [libFuzzer options]``.

A reader may answer with a value or with an error of cujit's own; anything else is a finding.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import atheris

with atheris.instrument_imports(include=["cujit"]):
    from cujit.errors import CujitError
    from cujit.formats.cubin import read_cubin
    from cujit.formats.fatbin import read_fatbin
    from cujit.formats.ltoir import read_ltoir
    from cujit.formats.mangling import entity_name, normalise_expression
    from cujit.formats.ptx.parser import parse


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _mangling(data: bytes) -> None:
    entity_name(_text(data))
    normalise_expression(_text(data))


def _fatbin(data: bytes) -> None:
    for entry in read_fatbin(data).entries:
        entry.payload()


READERS: dict[str, Callable[[bytes], object]] = {
    "ptx": lambda data: parse(_text(data)),
    "fatbin": _fatbin,
    "cubin": read_cubin,
    "ltoir": read_ltoir,
    "mangling": _mangling,
}


def main() -> None:
    """Fuzz the reader named first."""
    if len(sys.argv) < 2 or sys.argv[1] not in READERS:
        raise SystemExit(f"usage: readers.py {{{'|'.join(READERS)}}} [libFuzzer options]")
    read = READERS[sys.argv.pop(1)]

    def one(data: bytes) -> None:
        try:
            read(data)
        except CujitError:
            return

    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
