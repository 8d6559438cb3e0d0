"""Publishing of records to a shared cache by a client with a signing key and write access."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from cujit.cache.pack import encoded_anew
from cujit.cache.record import PORTABLE, decode, peek
from cujit.cache.remote.signing import Signer, TrustedKey, TrustedKeys
from cujit.cache.remote.tier import FORMAT, FORMAT_NAME, fetch, object_name, read_format
from cujit.cache.remote.transport import shown_url, transport_of
from cujit.cache.store import Root
from cujit.errors import FormatError, RemoteError

T = TypeVar("T")

SOCKET_S = 30.0
"""How long each wait for the network may take, where nobody waits for a kernel."""

AT_ONCE = 8
"""Questions to a store at a time: most of the time is that of the network."""

_PAUSES_S = (0.25, 0.5, 1.0)
_READ_BACK = 100


class RemoteStore:
    """A shared cache that is written to, by whoever holds a key and may write to the store; for any number of threads.

    Example::

        store = RemoteStore("s3://bucket/kernels", Signer.read("farm.key", scope="main"))
        store.put(record)
    """

    def __init__(self, url: str, signer: Signer, *, with_recipes: bool = False) -> None:
        """Open the store, and mark it as a shared cache if it is new.

        ``with_recipes`` also publishes sources, logs, and file names.

        Raises:
            MissingError: a required package is not installed.
            OptionError: the URL names no store.
            RemoteError: the store doesn't answer, or is something else.
        """
        self.url = shown_url(url)
        self._transport = transport_of(url, SOCKET_S)
        self._signer = signer
        self._with_recipes = with_recipes
        mine = TrustedKey("the signer", signer.public, frozenset((signer.scope,)), float("inf"), is_revoked=False)
        self._keys = TrustedKeys({mine.id: mine})
        self._written = 0
        if not patiently(lambda: read_format(self._transport)):
            patiently(lambda: self._transport.put(FORMAT_NAME, FORMAT))

    def put(self, record: bytes, *, replace: bool = False) -> int:
        """Sign and publish a record, and return the number of written bytes, or 0 if its key already existed.

        ``replace`` overwrites it, for example after a key rotation. Some records are read back as a check.

        Raises:
            FormatError: the record is damaged or can't be shared, or the bytes that were read back are wrong.
            RemoteError: the store doesn't answer.
        """
        digest = peek(record)[0].digest
        entry = decode(record, digest)
        if entry.key().kind not in PORTABLE:
            raise FormatError(f"cujit doesn't publish images of this type ({entry.work}): {digest}")
        data = encoded_anew(entry, made_s=entry.made_s, make_ms=entry.make_ms, with_recipes=self._with_recipes)
        content = self._signer.head(digest, data) + data
        if not patiently(lambda: self._transport.put(object_name(digest), content, replace=replace)):
            return 0
        self._written += 1
        if self._written % _READ_BACK == 1:
            self._read_back(digest)
        return len(content)

    def has(self, digest: str) -> bool:
        """Return whether the store contains a complete, unexpired record of a key with this signer's signature.

        Raises:
            RemoteError: the store doesn't answer.
        """
        try:
            patiently(lambda: fetch(self._transport, self._keys, digest))
        except (FileNotFoundError, FormatError):
            return False
        return True

    def _read_back(self, digest: str) -> None:
        """Verify the stored record. A record that another client wrote at the same time is equally good."""
        try:
            patiently(lambda: fetch(self._transport, self._keys, digest))
        except FileNotFoundError as e:
            raise RemoteError(
                f"{self.url} doesn't contain the object that cujit just uploaded: {object_name(digest)}"
            ) from e


def record_of(roots: Sequence[Root], digest: str) -> bytes:
    """Return the record of a key for ``RemoteStore.put``.

    Raises:
        CacheRefusedError: other users could have written to a root.
        FormatError: the record doesn't exist or is damaged.
        OSError: a root can't be read.
    """
    for root in roots:
        entry = root.get(digest).record
        if entry is not None:
            return encoded_anew(entry, made_s=entry.made_s, make_ms=entry.make_ms, with_recipes=True)
    raise FormatError(f"{', '.join(str(root.root) for root in roots)} contains no valid record with the key {digest}")


def patiently(ask: Callable[[], T]) -> T:
    """Retry a request a few times if a store doesn't answer. Wait as long as the store specifies."""
    for pause_s in _PAUSES_S:
        try:
            return ask()
        except RemoteError as e:  # noqa: PERF203
            time.sleep(pause_s if e.retry_after_s is None else e.retry_after_s)
    return ask()
