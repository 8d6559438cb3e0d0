"""Provenance of an Artifact, and the counters of a cache."""

from __future__ import annotations

import enum
from collections.abc import Callable

from cujit.cache.key import Key
from cujit.cache.store import Explanation
from cujit.values import dataclass, field, later
from cujit.values.typed import TYPE_CHECKING

if TYPE_CHECKING:
    import pathlib
    from pathlib import Path
else:
    pathlib = later("pathlib")  # start-up: a hit works with text


class Outcome(enum.Enum):
    """The origin of an Artifact: whether cujit created the image or found it in the cache."""

    MEMORY = "memory"
    """This process had it."""
    DISK = "disk"
    """It was read from a root."""
    REMOTE = "remote"
    """The shared cache had it, signed by a key that is believed."""
    SHIPPED = "shipped"
    """The distribution that asks for it brought it; its compiler may have been another build than that of here."""
    WAITED = "waited"
    """Another thread or process was making it."""
    MADE = "made"
    """It was made now."""
    UNCACHED = "uncached"
    """It was made now, and is not kept: ``Provenance.reason`` says why."""


@dataclass(frozen=True, init=False)
class Provenance:
    """The origin of an Artifact: whether cujit created the image or found it in the cache.

    ``key`` is None if an input is unknown. ``root`` is the directory that cujit read the entry from or wrote the entry
    to, or None. ``make_ms`` is the time of the compile that created the image, now or earlier. ``reason`` states why
    the image isn't cached, or why its architecture differs from the requested architecture. ``headers`` states how
    cujit found the headers: with the ``request table`` of a pack, with ``hints`` from an earlier process, or with a
    ``scan``. ``headers`` is empty if the source includes no files.

    Example::

        print(ptx.provenance.outcome.value, ptx.provenance.key, ptx.provenance.is_hit)
    """

    outcome: Outcome
    key: Key | None = None
    root: Path | None = None
    make_ms: float = 0.0
    reason: str = ""
    headers: str = ""
    _explain: Callable[[Key], Explanation | None] | None = field(default=None, repr=False, compare=False)

    def __init__(
        self,
        outcome: Outcome,
        key: Key | None = None,
        root: Path | str | None = None,
        make_ms: float = 0.0,
        reason: str = "",
        headers: str = "",
        _explain: Callable[[Key], Explanation | None] | None = None,
    ) -> None:
        """Set the fields directly, because every cache hit calls this. The ``__init__`` of ``dataclass`` takes three
        times as long.
        """
        fields = self.__dict__
        fields["outcome"], fields["key"], fields["_place"], fields["make_ms"] = outcome, key, root, make_ms
        fields["reason"], fields["headers"], fields["_explain"] = reason, headers, _explain

    @property
    def is_hit(self) -> bool:
        """Whether the image came from the cache."""
        return self.outcome not in (Outcome.MADE, Outcome.UNCACHED)

    def why(self) -> Explanation | None:
        """After a cache miss, return the differences from the most similar cache entry. Return None after a hit, or if
        there is no similar entry.

        Example::

            print(cubin.provenance.why())
        """
        if self.is_hit or self.key is None or self._explain is None:
            return None
        return self._explain(self.key)

    def __reduce__(self) -> tuple[object, ...]:
        # A cache, which could explain, goes neither into a pickle nor into a deep copy.
        return type(self), (self.outcome, self.key, self.root, self.make_ms, self.reason, self.headers)


def with_headers(provenance: Provenance, headers: str) -> Provenance:
    """Return the same, with how headers were known."""
    made = object.__new__(Provenance)
    made.__dict__.update(vars(provenance), headers=headers)
    return made


def _root(provenance: Provenance) -> Path | None:
    """The directory that the image was read from or written to, or None."""
    place: Path | str | None = vars(provenance)["_place"]
    return pathlib.Path(place) if isinstance(place, str) else place


Provenance.root = property(_root)  # type: ignore[assignment]  # start-up: it is a Path when somebody looks at it


@dataclass(frozen=True)
class Counters:
    """What a cache has done in this process.

    ``waits`` are Artifacts that another thread or process made meanwhile. ``failures`` are errors of the system that
    were worked around, ``damaged`` the entries that were set aside, ``not_kept`` the Artifacts that were made and not
    written. ``remote_failures`` are questions that the shared cache did not answer, ``remote_refused`` what it gave and
    was not believed; neither is a miss. ``saved_ms`` is the time that making took for all that were not made again.
    """

    memory_hits: int = 0
    disk_hits: int = 0
    misses: int = 0
    makes: int = 0
    waits: int = 0
    failures: int = 0
    damaged: int = 0
    not_kept: int = 0
    remote_hits: int = 0
    remote_failures: int = 0
    remote_refused: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    made_ms: float = 0.0
    saved_ms: float = 0.0

    @property
    def hits(self) -> int:
        """Artifacts that did not have to be made by this process."""
        return self.memory_hits + self.disk_hits + self.remote_hits + self.waits
