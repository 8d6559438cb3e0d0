"""Wait for what others do, in threads or processes that nothing joins.

Who waits by hand looks once to end the loop and once more to hold what he saw, and between the two looks the others go
on: a file that had been replaced got its old number back, once in some hundred runs. Here one look is both.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["eventually"]

_Seen = TypeVar("_Seen")


def eventually(look: Callable[[], _Seen], within_s: float = 60) -> _Seen:
    """Look until something true is seen, and give that; fail after ``within_s`` seconds."""
    end = time.monotonic() + within_s
    while not (seen := look()):
        assert time.monotonic() < end, f"not within {within_s:g} s: {look.__qualname__} sees {seen!r}"
        time.sleep(0.01)
    return seen
