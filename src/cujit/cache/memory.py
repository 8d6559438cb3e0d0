"""In-memory cache of the most recently used values, limited by their size in bytes."""

from __future__ import annotations

from collections import OrderedDict

from cujit.values.typed import Generic, TypeVar

T = TypeVar("T")


class RecentCache(Generic[T]):
    """Values by key with at most ``cap_bytes`` in total. The least recently used value is dropped first. Callers hold
    the lock.
    """

    def __init__(self, cap_bytes: int) -> None:
        self._cap_bytes = cap_bytes
        self._used_bytes = 0
        self._values: OrderedDict[str, tuple[T, int]] = OrderedDict()

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def get(self, key: str) -> T | None:
        """Return a value and mark it as used, or return None if there is none."""
        found = self._values.get(key)
        if found is None:
            return None
        self._values.move_to_end(key)
        return found[0]

    def put(self, key: str, value: T, size_bytes: int) -> None:
        """Remember a value; one that is larger than all the room is not."""
        if size_bytes > self._cap_bytes:
            return
        self.forget(key)
        self._values[key] = value, size_bytes
        self._used_bytes += size_bytes
        while self._used_bytes > self._cap_bytes:
            self._used_bytes -= self._values.popitem(last=False)[1][1]

    def forget(self, key: str) -> None:
        """Forget a value, if it is there."""
        if key in self._values:
            self._used_bytes -= self._values.pop(key)[1]

    def clear(self) -> None:
        """Forget everything."""
        self._values.clear()
        self._used_bytes = 0
