"""The watchers of modules that a device loads, such as traces and coverage. They receive the sources of each module."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from cujit.values import NamedTuple


class Text(NamedTuple):
    """A source that is not a file, with its display name and its text."""

    shown: str
    text: str


class Sources:
    """The sources without files of the modules that are being loaded, by their names in ``.file`` directives."""

    def __init__(self) -> None:
        self._texts: dict[str, Text] = {}

    def know(self, name: str, text: Text) -> None:
        """Add a source. The table is replaced and not modified, so that other threads can read it during the call."""
        self._texts = {**self._texts, name: text}

    def forget(self) -> None:
        """Remove all sources, because another module may use the same names for other texts."""
        self._texts = {}

    def copy(self) -> Sources:
        """Return a copy of the current sources."""
        other = Sources()
        other._texts = dict(self._texts)
        return other

    def find(self, file: str) -> Text | None:
        """Return the source with a name, or None if the name is unknown or is a file.

        NVRTC treats the names of in-memory headers as paths relative to the working directory (measured, 13.5).
        """
        if file in self._texts:
            return self._texts[file]
        found = (text for name, text in self._texts.items() if file.endswith(f"/{name.removeprefix('./')}"))
        return None if os.path.isfile(file) else next(found, None)


class Watcher(Protocol):
    """An observer of the modules that a device loads.

    ``options`` are the compiler options that the observer requires, such as ``lineinfo``.
    """

    @property
    def options(self) -> tuple[str, ...]:
        """Names of compiler options that are enabled unless the caller sets them."""

    @property
    def sources(self) -> Sources:
        """The table in which sources without files are registered while a module is loaded."""


_EMULATED: list[Callable[[], Sequence[Watcher]]] = []


def watch_emulated(watchers: Callable[[], Sequence[Watcher]]) -> None:
    """Set the watchers of modules that are loaded on the GPU of ``cujit emulate``, which runs in this process."""
    _EMULATED[:] = [watchers]


def emulated_watchers() -> Sequence[Watcher]:
    """Return the watchers of modules that are loaded on the GPU of ``cujit emulate``."""
    return _EMULATED[0]() if _EMULATED else ()


def wanted_options(watchers: Sequence[Watcher]) -> dict[str, bool]:
    """Return the compiler options that the watchers require, each with the value True."""
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
