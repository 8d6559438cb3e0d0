"""Filling a shared cache, by whoever has a key to sign with, and taking out of it ahead of time."""

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


@file_errors()
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
        FileError: a root cannot be read.
        RemoteError: the store does not answer.
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
        FileError: the root cannot be written.
        RemoteError: the store does not answer.
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
    """Count what came, by key its size, or why there is none."""
    sizes = [size for size, _ in done.values() if size]
    absent = tuple(digest for digest, (size, why) in done.items() if not size and not why)
    refused = tuple((digest, why) for digest, (_, why) in done.items() if why)
    return Pulled(len(sizes), wanted - len(done), sum(sizes), absent, refused)


def _each(work: Callable[[str], T], digests: Sequence[str]) -> list[T]:
    """Do the same for each key, several at once: most of the time is that of the network."""
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
