"""Which functions a driver exports, and in which versions and flavours of a stream.

``functions.txt`` has a line per function: its name, then the CUDA versions that brought each of its forms. A form with
``_ptsz`` or ``_ptds`` takes the default stream as the calling thread's own. Source: ``cudaTypedefs.h`` and those of
the profiler, GL, EGL and VDPAU of CUDA 13.5, whose names of types say all of that; ``tests/emulator/test_functions.py``
compares the file with the installed headers.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

from cujit.values import NamedTuple
from cujit.workers.package_files import data_path

FLAGS = 1 << 0 | 1 << 1
PER_THREAD = 1 << 1
"""Flag of ``cuGetProcAddress``: forms whose default stream is the calling thread's. Source: CUDA Driver API manual."""


class FunctionForm(NamedTuple):
    """One exported function: ``function`` is its name without the flavour, which is ``_ptsz``, ``_ptds`` or "".

    ``since`` is the CUDA version that brought it: 12050 is 12.5.
    """

    function: str
    flavour: str
    since: int

    @property
    def export(self) -> str:
        """The name that the library exports: ``cuMemcpyHtoD_v2_ptds``."""
        return self.function + self.flavour


@functools.cache
def forms() -> dict[str, tuple[FunctionForm, ...]]:
    """List the forms of each function, the oldest first.

    The second version is called ``_v2`` and so on; a flavour has the number of the version that it is a flavour of.
    """
    found = {}
    for line in Path(data_path("emulator", "functions.txt")).read_text().splitlines():
        base, *words = line.split()
        spelled = [re.fullmatch(r"(\d+)(\w*)", word) for word in words]
        rows = [(int(word[1]), word[2]) for word in spelled if word]
        plain = [since for since, flavour in rows if not flavour]
        found[base] = tuple(
            FunctionForm(_versioned(base, sum(each <= since for each in plain)), flavour, since)
            for since, flavour in rows
        )
    return found


def _versioned(base: str, number: int) -> str:
    return base if number <= 1 else f"{base}_v{number}"


@functools.cache
def exports() -> dict[str, str]:
    """Return every exported name, and the function that it is a variant of."""
    return {form.export: form.function for each in forms().values() for form in each}


def find(base: str, version: int, flags: int = 0) -> FunctionForm | None:
    """Return the newest form of a function in CUDA ``version`` (12050 means 12.5), or None if that version lacks it."""
    rows = forms().get(base, ())
    preferred = [form for form in rows if form.flavour] if flags & PER_THREAD else []
    preferred = preferred or [form for form in rows if not form.flavour]
    return max((form for form in preferred if form.since <= version), key=lambda form: form.since, default=None)
