"""Who watches what is loaded on a device, traces and coverage: they hear of the sources of a module."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from cujit.values import NamedTuple


class Text(NamedTuple):
    """A source that is no file: what to call it, and what it says."""

    shown: str
    text: str


class Sources:
    """The sources that are no files, of what is loaded just now, by the names that ``.file`` says."""

    def __init__(self) -> None:
        self._texts: dict[str, Text] = {}

    def know(self, name: str, text: Text) -> None:
        """Add one; threads that look meanwhile have the table as it was."""
        self._texts = {**self._texts, name: text}

    def forget(self) -> None:
        """Drop them all: another module may mean other texts by the same names."""
        self._texts = {}

    def copy(self) -> Sources:
        """Keep what is known now."""
        other = Sources()
        other._texts = dict(self._texts)
        return other

    def find(self, file: str) -> Text | None:
        """Return the text behind a name. None if it is a file or not known.

        NVRTC takes the names of headers in memory for paths from the working directory on (measured, 13.5).
        """
        if file in self._texts:
            return self._texts[file]
        found = (text for name, text in self._texts.items() if file.endswith(f"/{name.removeprefix('./')}"))
        return None if os.path.isfile(file) else next(found, None)


class Watcher(Protocol):
    """Somebody who watches what is loaded on a device.

    ``options`` are what the compiler needs for it: ``lineinfo``.
    """

    @property
    def options(self) -> tuple[str, ...]:
        """Names of options to switch on, unless they are said otherwise."""

    @property
    def sources(self) -> Sources:
        """Where to say which sources are no files while a module is loaded."""


_EMULATED: list[Callable[[], Sequence[Watcher]]] = []


def watch_emulated(watchers: Callable[[], Sequence[Watcher]]) -> None:
    """Set the watchers of what is loaded on the GPU of ``cujit emulate``, which runs in this process."""
    _EMULATED[:] = [watchers]


def emulated_watchers() -> Sequence[Watcher]:
    """Return the watchers of what is loaded on the GPU of ``cujit emulate``."""
    return _EMULATED[0]() if _EMULATED else ()


def wanted_options(watchers: Sequence[Watcher]) -> dict[str, bool]:
    """List the options of the compiler that they want."""
    return {name: True for watcher in watchers for name in watcher.options}


@contextlib.contextmanager
def known_to(watchers: Sequence[Watcher], texts: Mapping[str, Text]) -> Iterator[None]:
    """Register the sources that are not files with the watchers, while a module is loaded."""
    for watcher in watchers:
        for name, text in texts.items():
            watcher.sources.know(name, text)
    try:
        yield
    finally:
        for watcher in watchers:
            watcher.sources.forget()
