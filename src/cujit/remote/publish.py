"""Publishing to a shared cache with a signing key, and pulling from it ahead of time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TypeVar

from cujit.artifact.reading import file_errors
from cujit.cache.cache import Cache
from cujit.cache.key import is_digest
from cujit.cache.pack import portable
from cujit.cache.remote.filling import AT_ONCE, SOCKET_S, RemoteStore, patiently, record_of
from cujit.cache.remote.ledger import Ledger, brought
from cujit.cache.remote.signing import Signer, TrustedKeys
from cujit.cache.remote.tier import fetch, read_format
from cujit.cache.remote.transport import shown_url, transport_of
from cujit.cache.store import Root
from cujit.errors import CacheRefusedError, FormatError, MissingError, OptionError, RemoteError, spell
from cujit.threads import as_done
from cujit.values import NamedTuple

T = TypeVar("T")


class Pushed(NamedTuple):
    """Counts of a push: ``new`` objects of ``new_bytes``.

    ``kept`` objects were already in the store. ``skipped`` objects had been pulled from a shared cache.
    """

    new: int
    kept: int
    skipped: int
    new_bytes: int


class Pulled(NamedTuple):
    """Counts of a pull: ``new`` records of ``new_bytes``, and ``had`` records that already existed locally.

    ``missing`` are the absent keys. ``refused`` are the refused keys with reasons.
    """

    new: int
    had: int
    new_bytes: int
    missing: tuple[str, ...]
    refused: tuple[tuple[str, str], ...]


@file_errors()
def push(
    url: str,
    roots: Sequence[Root],
    signer: Signer,
    *,
    with_recipes: bool = False,
    replace: bool = False,
) -> Pushed:
    """Publish the records of caches and packs that other machines can use.

    Records that were pulled from a shared cache are omitted, because signers sign only their own work. CPU machine code
    and modules by version are omitted too.

    Args:
        url: the store, as in ``CUJIT_REMOTE``. It must be writable.
        roots: the directories of the records, as in ``cujit.Cache.stores``.
        signer: the key, and the scope.
        with_recipes: publish sources, logs, and file names too.
        replace: rewrite existing objects, for example after a change of keys.

    Raises:
        CacheRefusedError: other users could have written to a root.
        FormatError: a record is damaged.
        FileError: a root can't be read.
        RemoteError: the store doesn't respond.
    """
    store = RemoteStore(url, signer, with_recipes=with_recipes)
    theirs = brought(roots)
    wanted = portable(roots)

    def one(digest: str) -> int:
        return store.put(record_of(roots, digest), replace=replace)

    written = _each(one, sorted(wanted - theirs))
    new = [size for size in written if size]
    return Pushed(len(new), len(written) - len(new), len(wanted & theirs), sum(new))


@file_errors()
def pull(url: str, keys: Iterable[str], cache: Cache, trust: Path) -> Pulled:
    """Copy the records of keys from a shared cache to the root of a cache, ahead of time.

    Args:
        url: the store, as in ``CUJIT_REMOTE``.
        keys: digests of keys, of 64 hex digits.
        cache: the cache that stores the records in its root. Existing records are not requested.
        trust: the file of trusted keys, as in ``CUJIT_TRUST``.

    Raises:
        CacheRefusedError: other users could have written to a root, or to the file of keys.
        FormatError: the file of keys is invalid, or there is no shared cache.
        MissingError: there is no writable root.
        FileError: the root can't be written.
        RemoteError: the store doesn't respond.
    """
    store, believed, transport = cache.store, TrustedKeys.read(trust), transport_of(url, SOCKET_S)
    if store is None:
        raise MissingError(
            "this cache has no writable root", help="set CUJIT_CACHE_DIR to a directory that you can write to"
        )
    if not patiently(lambda: read_format(transport)):
        raise RemoteError(
            f"{shown_url(url)} is not a shared cache: it has no FORMAT file", help="run cujit cache push to create one"
        )
    store.prepare()
    ledger = Ledger(store, trust, cache.hints)
    wanted = sorted({_digest(key) for key in keys})
    missing = [digest for digest in wanted if all(root.get(digest).record is None for root in cache.stores)]

    def one(digest: str) -> tuple[int, str]:
        try:
            fetched = patiently(lambda: fetch(transport, believed, digest))
        except FileNotFoundError:
            return 0, ""
        except FormatError as e:
            return 0, e.message
        if reason := cache.adopt(digest, fetched, ledger):
            raise CacheRefusedError(f"{store.root} can't store {digest[:12]}: {reason}")
        return len(fetched.data), ""

    return _counted(len(wanted), dict(zip(missing, _each(one, missing), strict=True)))


def _counted(wanted: int, done: Mapping[str, tuple[int, str]]) -> Pulled:
    """Return the counts of a pull from the size of each key's record, or the reason for its refusal."""
    sizes = [size for size, _ in done.values() if size]
    absent = tuple(digest for digest, (size, why) in done.items() if not size and not why)
    refused = tuple((digest, why) for digest, (_, why) in done.items() if why)
    return Pulled(len(sizes), wanted - len(done), sum(sizes), absent, refused)


def _each(work: Callable[[str], T], digests: Sequence[str]) -> list[T]:
    """Return the results of the same work for each key.

    The work runs in parallel, because the network takes most of the time.
    """
    found: dict[int, T] = {}
    with closing(as_done([partial(work, digest) for digest in digests], AT_ONCE, "cujit-remote")) as done:
        for number, result in done:
            found[number] = result()
    return [found[number] for number in range(len(digests))]


def _digest(key: str) -> str:
    if not is_digest(key):
        raise OptionError(
            f"{spell(key)} is not a complete key",
            help="use all 64 hexadecimal digits, which cujit cache ls --json prints",
        )
    return key
