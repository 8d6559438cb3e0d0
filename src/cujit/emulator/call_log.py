"""Records of the emulator's calls: every call for a log, and refused requests for a table.

Several processes append to one file, each line by one ``write``. The file therefore also contains the calls of a
process that was killed.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import threading
from collections.abc import Sequence
from pathlib import Path

from cujit.emulator.results import Result
from cujit.emulator.settings import EmulatorSettings
from cujit.errors import OptionError
from cujit.values import NamedTuple

_STANDARD_ERROR = 2


class Notes:
    """The files that settings ask for.

    Raises:
        OptionError: a file can't be written.
    """

    def __init__(self, settings: EmulatorSettings) -> None:
        self._log = _STANDARD_ERROR if settings.log == "-" else open_notes(settings.log)
        self._needs = open_notes(settings.needs)
        self.watches = self._log is not None or self._needs is not None

    def requested(self, name: str) -> None:
        """Note that a process calls a function for the first time."""
        self._need("asked", name)

    def refused(self, name: str) -> None:
        """Note a call that no entry point answers."""
        self._need("refused", name)
        self.called(name, (), Result.NOT_SUPPORTED)

    def answered(self, name: str, arguments: Sequence[object], answer: int, words: str = "") -> None:
        """Record a call with its result. Calls between cujit's own C and Python code are not recorded."""
        if answer in Result._value2member_map_:
            if answer:
                self._need("failed", name, Result(answer).spelled)
            self.called(name, arguments, answer, words)

    def _need(self, *words: str) -> None:
        if self._needs is not None:
            _write(self._needs, json.dumps(words))

    def called(self, name: str, arguments: Sequence[object], answer: int, words: str = "") -> None:
        """Write a call into the log."""
        if self._log is None:
            return
        shown = ", ".join(hex(each) if isinstance(each, int) else str(each) for each in arguments)
        place = f"{os.getpid()}/{threading.get_native_id()}"
        _write(self._log, f"{place} {name}({shown}) {Result(answer).spelled}{f': {words}' if words else ''}")


def open_notes(path: str) -> int | None:
    """Open a file to append records to, and return its descriptor, or None without a path.

    Raises:
        OptionError: the file can't be written.
    """
    if not path:
        return None
    try:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC  # in place: many processes add lines
        return os.open(path, flags, 0o644)
    except OSError as e:
        raise OptionError(
            f"the emulator can't write to {path}: {e.strerror}",
            help="specify a file in a directory that you can write to",
        ) from e


def _write(file: int, line: str) -> None:
    with contextlib.suppress(OSError):
        os.write(file, f"{line}\n".encode(errors="replace"))


class RequestedFunction(NamedTuple):
    """A function that processes requested: the number of refused calls, and the number of calls with each error."""

    name: str
    refused: int
    errors: dict[str, int]


def read_needs(path: Path) -> list[RequestedFunction]:
    """Read the records that all processes of a command appended to a file.

    Refused requests come first, sorted by the number of calls: functions without an entry point, and functions that
    return ``CUDA_ERROR_NOT_SUPPORTED``. The requests that end most programs precede them.
    """
    refused: collections.Counter[str] = collections.Counter()
    errors: collections.defaultdict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    names: set[str] = set()
    for line in path.read_text().splitlines():
        what, name, *more = json.loads(line)
        names.add(name)
        if what == "refused" or more[:1] == [Result.NOT_SUPPORTED.spelled]:
            refused[name] += 1
        elif what == "failed":
            errors[name][more[0]] += 1
    found = [RequestedFunction(name, refused[name], dict(errors[name])) for name in names]
    return sorted(
        found, key=lambda need: (need.name != RUNTIME_ASKS, -need.refused, -sum(need.errors.values()), need.name)
    )


RUNTIME_ASKS = "cuGetExportTable"
"""What NVIDIA's CUDA runtime calls to learn whether the driver is NVIDIA's."""
