"""Damage to real images: every reader must give a value or a FormatError for it, in bounded time and memory."""

from __future__ import annotations

import contextlib
import random
import time
import tracemalloc
from collections.abc import Callable, Iterator

from cujit.errors import FormatError

Reader = Callable[[bytes], object]


def cuts(image: bytes, count: int) -> Iterator[bytes]:
    """The image cut off at every offset of its first bytes, and at ``count`` offsets over all of it."""
    step = max(1, len(image) // count)
    for length in sorted({*range(min(200, len(image))), *range(0, len(image), step)}):
        yield image[:length]


def flips(image: bytes, count: int, *, seed: int = 0, only: int | None = None) -> Iterator[bytes]:
    """``count`` copies with one to four bytes changed, within the first ``only`` bytes if that is given."""
    source = random.Random(seed)
    for _ in range(count):
        copy = bytearray(image)
        for _ in range(source.randint(1, 4)):
            value = source.choice((0, 1, 0x7F, 0x80, 0xFF, source.randrange(256)))
            copy[source.randrange(only or len(image))] = value
        yield bytes(copy)


def survives(reader: Reader, damaged: bytes) -> None:
    """Run a reader; FormatError is the only exception that may leave it."""
    with contextlib.suppress(FormatError):
        reader(damaged)


def refuses(reader: Reader, damaged: bytes) -> bool:
    """Whether the reader raises FormatError."""
    try:
        reader(damaged)
    except FormatError:
        return True
    return False


def cost(reader: Reader, damaged: bytes) -> tuple[float, int]:
    """Seconds and peak bytes that a reader takes."""
    tracemalloc.start()
    start = time.perf_counter()
    survives(reader, damaged)
    seconds, peak = time.perf_counter() - start, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return seconds, peak
