"""Filling a shared cache, by whoever has a key to sign with, and taking out of it ahead of time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

from cujit.cache.cache import Cache
from cujit.cache.key import is_digest
from cujit.cache.pack import encoded_anew, portable
from cujit.cache.record import PORTABLE, decode, peek
from cujit.cache.remote.ledger import Ledger, brought
from cujit.cache.remote.signing import Signer, TrustedKey, TrustedKeys
from cujit.cache.remote.tier import FORMAT, FORMAT_NAME, fetch, object_name, read_format
from cujit.cache.remote.transport import shown_url, transport_of
from cujit.cache.store import Root, Store
from cujit.errors import CacheRefusedError, FormatError, MissingError, OptionError, RemoteError, spell

T = TypeVar("T")

_SOCKET_S = 30.0
_AT_ONCE = 8
_PAUSES_S = (0.25, 0.5, 1.0)
_READ_BACK = 100


class Pushed(NamedTuple):
    """What was published: ``new`` objects of ``new_bytes``; ``kept`` were there; ``skipped`` had been pulled."""

    new: int
    kept: int
    skipped: int
    new_bytes: int


class Pulled(NamedTuple):
    """What was taken: ``new`` records of ``new_bytes``; ``had`` were here; keys that are ``missing`` or ``refused``."""

    new: int
    had: int
    new_bytes: int
    missing: tuple[str, ...]
    refused: tuple[tuple[str, str], ...]


class RemoteStore:
    """A shared cache that is written to, by whoever holds a key and may write to the store; for any number of threads.

    Example::

        store = RemoteStore("s3://bucket/kernels", Signer.read("farm.key", scope="main"))
        store.put(record)
    """

    def __init__(self, url: str, signer: Signer, *, with_recipes: bool = False) -> None:
        """Open the store, and mark it as a shared cache if it is new.

        ``with_recipes`` publishes sources, logs and names of files too.

        Raises:
            MissingError: a package that it needs is not installed.
            OptionError: the URL names no store.
            RemoteError: it does not answer, or is something else.
        """
        self.url = shown_url(url)
        self._transport = transport_of(url, _SOCKET_S)
        self._signer = signer
        self._with_recipes = with_recipes
        mine = TrustedKey("the signer", signer.public, frozenset((signer.scope,)), float("inf"), is_revoked=False)
        self._keys = TrustedKeys({mine.id: mine})
        self._written = 0
        if not _patiently(lambda: read_format(self._transport)):
            _patiently(lambda: self._transport.put(FORMAT_NAME, FORMAT))

    def put(self, record: bytes, *, replace: bool = False) -> int:
        """Sign a record and publish it; return how many bytes were written, 0 where its key was there already.

        ``replace`` writes it all the same, as after a change of keys. Now and then one is read back.

        Raises:
            FormatError: it is damaged, or its work never goes to another machine; or another came back.
            RemoteError: the store does not answer.
        """
        digest = peek(record)[0].digest
        entry = decode(record, digest)
        if entry.key().kind not in PORTABLE:
            raise FormatError(f"{entry.work} never goes to another machine: {digest}")
        data = encoded_anew(entry, made_s=entry.made_s, make_ms=entry.make_ms, with_recipes=self._with_recipes)
        content = self._signer.head(digest, data) + data
        if not _patiently(lambda: self._transport.put(object_name(digest), content, replace=replace)):
            return 0
        self._written += 1
        if self._written % _READ_BACK == 1:
            self._read_back(digest, data)
        return len(content)

    def _read_back(self, digest: str, data: bytes) -> None:
        try:
            came = _patiently(lambda: fetch(self._transport, self._keys, digest)).data
        except FileNotFoundError as e:
            raise RemoteError(f"{self.url} does not have what was just written: {object_name(digest)}") from e
        if came != data:
            raise FormatError(f"{self.url} gives another record than was just written: {object_name(digest)}")


def push(
    url: str,
    roots: Sequence[Root],
    signer: Signer,
    *,
    with_recipes: bool = False,
    replace: bool = False,
) -> Pushed:
    """Publish what caches and packs hold and another machine could use.

    What was itself pulled from a shared cache is left out: nobody signs what others have made. So are machine code of
    this processor and modules by version.

    Args:
        url: the store, as in ``CUJIT_REMOTE``; it has to be writable.
        roots: where the records are, as ``cujit.Cache.stores`` has them.
        signer: the key, and the scope.
        with_recipes: publish sources, logs and names of files too.
        replace: write what is there already once more, as after a change of keys.

    Raises:
        CacheRefusedError: others could have written to a root.
        FormatError: a record is damaged.
        OSError: a root cannot be read.
        RemoteError: the store does not answer.
    """
    store = RemoteStore(url, signer, with_recipes=with_recipes)
    theirs = set().union(*(brought(root) for root in roots if isinstance(root, Store)))
    wanted = portable(roots)

    def one(digest: str) -> int:
        return store.put(_record(roots, digest), replace=replace)

    written = _each(one, sorted(wanted - theirs))
    new = [size for size in written if size]
    return Pushed(len(new), len(written) - len(new), len(wanted & theirs), sum(new))


def pull(url: str, keys: Iterable[str], cache: Cache, trust: Path) -> Pulled:
    """Take the records of keys out of a shared cache into the root of a cache, ahead of time.

    Args:
        url: the store, as in ``CUJIT_REMOTE``.
        keys: digests of keys, of 64 hex digits.
        cache: what is there already is not asked for; the rest is kept in its root.
        trust: the file of keys that are believed, as in ``CUJIT_TRUST``.

    Raises:
        CacheRefusedError: others could have written to a root, or to the file of keys.
        FormatError: it is no file of keys, or there is no shared cache.
        MissingError: there is no root to write to.
        OSError: the root cannot be written.
        RemoteError: the store does not answer.
    """
    store, believed, transport = cache.store, TrustedKeys.read(trust), transport_of(url, _SOCKET_S)
    if store is None:
        raise MissingError("this cache has no root to write to", help="CUJIT_CACHE_DIR=<a directory of yours>")
    if not _patiently(lambda: read_format(transport)):
        raise RemoteError(f"{shown_url(url)} has no FORMAT: there is no shared cache", help="cujit cache push")
    store.prepare()
    ledger = Ledger(store, trust, cache.hints)
    wanted = sorted({_digest(key) for key in keys})
    missing = [digest for digest in wanted if all(root.get(digest).record is None for root in cache.stores)]

    def one(digest: str) -> tuple[int, str]:
        try:
            fetched = _patiently(lambda: fetch(transport, believed, digest))
        except FileNotFoundError:
            return 0, ""
        except FormatError as e:
            return 0, e.message
        if reason := cache.adopt(digest, fetched, ledger):
            raise CacheRefusedError(f"{store.root} cannot keep {digest[:12]}: {reason}")
        return len(fetched.data), ""

    return _counted(len(wanted), dict(zip(missing, _each(one, missing), strict=True)))


def _counted(wanted: int, done: Mapping[str, tuple[int, str]]) -> Pulled:
    """Count what came, by key its size, or why there is none."""
    sizes = [size for size, _ in done.values() if size]
    absent = tuple(digest for digest, (size, why) in done.items() if not size and not why)
    refused = tuple((digest, why) for digest, (_, why) in done.items() if why)
    return Pulled(len(sizes), wanted - len(done), sum(sizes), absent, refused)


def _record(roots: Sequence[Root], digest: str) -> bytes:
    for root in roots:
        entry = root.get(digest).record
        if entry is not None:
            return encoded_anew(entry, made_s=entry.made_s, make_ms=entry.make_ms, with_recipes=True)
    raise FormatError(f"no good record of the key {digest} in {', '.join(str(root.root) for root in roots)}")


def _each(work: Callable[[str], T], digests: Sequence[str]) -> list[T]:
    """Do the same for each key, several at once: most of the time is that of the network."""
    pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="cujit-remote")
    try:
        return list(pool.map(work, digests))
    finally:
        pool.shutdown(cancel_futures=True)


def _patiently(ask: Callable[[], T]) -> T:
    """Ask again a few times where a store does not answer; it may say how long it wants to be left alone."""
    for pause_s in _PAUSES_S:
        try:
            return ask()
        except RemoteError as e:  # noqa: PERF203
            time.sleep(pause_s if e.retry_after_s is None else e.retry_after_s)
    return ask()


def _digest(key: str) -> str:
    if not is_digest(key):
        raise OptionError(f"{spell(key)} is no whole key", help="64 hex digits: cujit cache ls --json")
    return key
