"""The last launches of a context, recorded as they are made, for errors that list the launches in flight."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Hashable

from cujit.devices.backend import title_of
from cujit.devices.launcher.state import Unsettled
from cujit.devices.shapes import Dim3, LaunchShape
from cujit.values import NamedTuple

RING_SIZE = 64
"""Launches that are remembered; a power of two."""

RING_ROW = 5
"""Words of 64 bits for each launch: its label, its stream, and its six sizes in 32 bits each."""


RING_TAIL = 1 + RING_SIZE * RING_ROW
"""Where ``Unsettled`` begins, in words."""

MOST_LABELS = 4096
"""Kernels whose names are remembered."""


class LaunchNote(NamedTuple):
    """A recorded launch."""

    kernel: str
    shape: LaunchShape
    stream: int

    def __str__(self) -> str:
        where = f"stream {self.stream:#x}" if self.stream else "the default stream"
        sizes = f"grid {tuple(self.shape.grid)}, block {tuple(self.shape.block)}"
        return f"{title_of(self.kernel)}: {sizes}, {where}"


class LaunchRing:
    """The labels of the last ``RING_SIZE`` launches, in memory that machine code writes to.

    At ``address`` is a ``uint64`` count of launches, followed by ``RING_SIZE`` rows. A launch with count ``n`` writes
    row ``n % RING_SIZE``, and then increments the count. If several threads launch simultaneously, a row may be lost.
    ``unsettled`` follows the rows.
    """

    def __init__(self, most_labels: int = MOST_LABELS) -> None:
        self._most_labels = most_labels
        self._words = (ctypes.c_uint64 * (RING_TAIL + ctypes.sizeof(Unsettled) // 8))()
        self.unsettled = Unsettled.from_buffer(self._words, 8 * RING_TAIL)
        self.staging: object = None
        """Keeps the page-locked memory of ``unsettled``."""
        self.names: dict[int, Hashable] = {}
        """What labels stand for. Native code adds kernels, whose handles are their labels."""
        self._labels: dict[Hashable, int] = {}
        self._next = 1
        self._finished = 0
        self._lock = threading.Lock()

    @property
    def address(self) -> int:
        """Where the count is; the ring keeps its memory as long as it lives."""
        return ctypes.addressof(self._words)

    def label(self, kernel: Hashable) -> int:
        """Return the label of a kernel, or of a graph, for its launches; the oldest labels are forgotten."""
        with self._lock:
            known = self._labels.get(kernel)
            if known is not None:
                return known
            if len(self.names) >= self._most_labels:
                for oldest in list(self.names)[: self._most_labels // 4 + 1]:
                    self._labels.pop(self.names.pop(oldest), None)
            label = self._next
            self._next += 1
            self._labels[kernel], self.names[label] = label, kernel
            return label

    def note(self, label: int, shape: LaunchShape | None = None, stream: int = 0) -> None:
        """Record a launch of a kernel. Without a shape, the label is the whole description."""
        count, sizes = self._words[0], (0,) * 6 if shape is None else (*shape.grid, *shape.block)
        at = 1 + count % RING_SIZE * RING_ROW
        pairs = (low | high << 32 for low, high in zip(sizes[::2], sizes[1::2], strict=True))
        self._words[at : at + RING_ROW] = [label, stream, *pairs]
        self._words[0] = count + 1

    @property
    def count(self) -> int:
        """How many launches there were."""
        return int(self._words[0])

    def finish(self, count: int) -> None:
        """Forget the first ``count`` launches, because they are done."""
        self._finished = max(self._finished, count)

    def in_flight(self) -> list[str]:
        """Return descriptions of the launches that may not be done, newest first."""
        count = self.count
        first = max(self._finished, count - RING_SIZE)
        return [str(self._row(n % RING_SIZE)) for n in reversed(range(first, count))]

    def _row(self, number: int) -> LaunchNote | str:
        label, stream, *pairs = self._words[1 + number * RING_ROW : 1 + (number + 1) * RING_ROW]
        x, y, z, *block = (half for pair in pairs for half in (pair & 0xFFFFFFFF, pair >> 32))
        kernel = str(self.names.get(label, "a launch whose name is forgotten"))
        return kernel if not x else LaunchNote(kernel, LaunchShape(Dim3(x, y, z), Dim3(*block)), stream)
