"""The last launches of a context, written down as they are made, for who has to say later what was running."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Hashable

from cujit.devices.backend import title_of
from cujit.devices.shapes import LaunchShape
from cujit.values import NamedTuple

RING_SIZE = 64
"""Launches that are remembered; a power of two."""


class LaunchNote(NamedTuple):
    """A launch as it is written down; its words are made when somebody asks for them."""

    kernel: str
    shape: LaunchShape
    stream: int

    def __str__(self) -> str:
        where = f"stream {self.stream:#x}" if self.stream else "the default stream"
        sizes = f"grid {tuple(self.shape.grid)}, block {tuple(self.shape.block)}"
        return f"{title_of(self.kernel)}: {sizes}, {where}"


class LaunchRing:
    """The labels of the last ``RING_SIZE`` launches, in memory that machine code writes to.

    At ``address`` is a ``uint64`` that counts launches, and after it ``RING_SIZE`` words: the launch of count ``n``
    writes its label to word ``n % RING_SIZE`` and then counts. Threads that do so at once lose a label at worst.
    """

    def __init__(self, most_labels: int = 4096) -> None:
        self._most_labels = most_labels
        self._words = (ctypes.c_uint64 * (1 + RING_SIZE))()
        self._names: dict[int, Hashable] = {}
        self._labels: dict[Hashable, int] = {}
        self._next = 1
        self._finished = 0
        self._lock = threading.Lock()

    @property
    def address(self) -> int:
        """Where the count is; the ring keeps its memory as long as it lives."""
        return ctypes.addressof(self._words)

    def label(self, launch: Hashable) -> int:
        """Give the label of a launch, whose words are its ``str()``, when it is prepared; the oldest are forgotten."""
        with self._lock:
            known = self._labels.get(launch)
            if known is not None:
                return known
            if len(self._labels) >= self._most_labels:
                oldest = next(iter(self._labels))
                del self._names[self._labels.pop(oldest)]
            label = self._next
            self._next += 1
            self._labels[launch], self._names[label] = label, launch
            return label

    def note(self, label: int) -> None:
        """Write down a launch."""
        count = self._words[0]
        self._words[1 + count % RING_SIZE] = label
        self._words[0] = count + 1

    @property
    def count(self) -> int:
        """How many launches there were."""
        return int(self._words[0])

    def finish(self, count: int) -> None:
        """Forget the first ``count`` launches: they are done."""
        self._finished = max(self._finished, count)

    def in_flight(self) -> list[str]:
        """Tell the launches that may not be done, the newest first."""
        count = self.count
        first = max(self._finished, count - RING_SIZE)
        labels = [self._words[1 + n % RING_SIZE] for n in reversed(range(first, count))]
        return [str(self._names.get(label, "a launch whose name is forgotten")) for label in labels]
