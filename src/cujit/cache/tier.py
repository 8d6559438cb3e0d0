"""Tiers, which the cache searches after its roots, such as a cache on another machine.

To add a tier, write a class with the methods of ``Tier``. ``cujit.Cache(root, tiers=[…])`` searches its tiers in order.
"""

from __future__ import annotations

from cujit.values import NamedTuple
from cujit.values.typed import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from cujit.cache.key import Key
    from cujit.cache.record import EntryRecord


class Fetched(NamedTuple):
    """An answer: a record that the tier has proved, its bytes and who signed it; or ``fault``, why there is none.

    A record that the tier lacks has no fault. A ``FormatError`` refuses a record. ``signer`` is empty if nobody
    signed the record; the cache keeps a signed record only together with its signer.
    """

    record: EntryRecord | None = None
    data: bytes = b""
    signer: str = ""
    fault: Exception | None = None


class Tier(Protocol):
    """A read-only cache after the roots. Threads may call it at the same time."""

    @property
    def url(self) -> str:
        """The address, for messages."""

    def get(self, key: Key) -> Fetched:
        """Return the proved record of a key. The cache counts a ``CujitError`` or an ``OSError`` as a fault."""

    def after_fork(self) -> None:
        """Reset the state that other threads of the parent may have been changing, in a forked child."""
