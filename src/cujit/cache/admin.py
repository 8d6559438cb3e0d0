"""Administration of a cache: inspect entries, export images, and trim, verify, or clear the cache."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

from cujit.artifact import Artifact, ImageKind
from cujit.cache.cache import Cache
from cujit.cache.files import parts_of_files
from cujit.cache.key import Key, KeyDifference, differences
from cujit.cache.provenance import Counters
from cujit.cache.record import EntryRecord, Summary
from cujit.cache.remote.ledger import forget
from cujit.cache.store import Root, Store, StoreEntry
from cujit.errors import FormatError, MissingError, NameNotFoundError, OptionError, spell
from cujit.values import dataclass

_HEX = frozenset("0123456789abcdef")


@dataclass(frozen=True)
class Info:
    """Summary of a cache. ``total_bytes`` is the size of the entries in the writable root. ``roots`` lists all roots in
    order.
    """

    root: Path | None
    roots: tuple[Path, ...]
    entries: int
    total_bytes: int
    cap_bytes: int
    counters: Counters


@dataclass(frozen=True)
class Listed:
    """A cache entry: its place, its size, the hour of its last use in Unix time, and its summary.

    ``summary`` is None if the entry is damaged.
    """

    root: Path
    digest: str
    size_bytes: int
    used_s: float
    summary: Summary | None


@dataclass(frozen=True)
class Shown:
    """A verified cache entry with the parts of its key."""

    root: Path
    record: EntryRecord
    key: Key


@dataclass(frozen=True)
class RecordVerdict:
    """Result of ``verify`` for one entry. ``fault`` is empty if the entry is good. ``remade`` is whether it was
    recompiled.
    """

    digest: str
    name: str
    remade: bool
    fault: str


def info(cache: Cache) -> Info:
    """Return the number of entries and bytes in a cache.

    Raises:
        CacheRefusedError: other users could have written to a root.
        OSError: a root can't be read.
    """
    entries = [] if cache.store is None else list(cache.store.entries())
    return Info(
        None if cache.store is None else cache.store.root,
        tuple(store.root for store in cache.stores),
        len(entries),
        sum(entry.size_bytes for entry in entries),
        0 if cache.budget is None else cache.budget.cap_bytes,
        cache.counters,
    )


def ls(cache: Cache) -> Iterator[Listed]:
    """Yield the entries of every root, most recently used first. Their summaries are not verified.

    Raises:
        CacheRefusedError: other users could have written to a root.
        OSError: a root can't be read.
    """
    found = [(store, entry) for store in cache.stores for entry in store.entries()]
    for store, entry in sorted(found, key=lambda pair: -pair[1].used_s):
        head = store.peek(entry.digest)
        yield Listed(store.root, entry.digest, entry.size_bytes, entry.used_s, head and head[0])


def show(cache: Cache, prefix: str) -> Shown:
    """Read the entry whose key begins with the hexadecimal digits ``prefix``.

    Raises:
        CacheRefusedError: other users could have written to a root.
        FormatError: the entry is damaged.
        NameNotFoundError: no key begins with the prefix.
        OptionError: the prefix is invalid, or several keys begin with it.
        OSError: a root can't be read.
    """
    if not isinstance(prefix, str) or not prefix or not _HEX.issuperset(prefix):
        raise OptionError(
            f"a key consists of hexadecimal digits, but you passed {spell(prefix)}",
            help="run cujit cache ls to list keys",
        )
    found: dict[str, Root] = {}
    for store in cache.stores:
        for entry in store.entries():
            if entry.digest.startswith(prefix):
                found.setdefault(entry.digest, store)
    if not found:
        raise NameNotFoundError(
            f"no cache entry has a key that starts with {prefix}", help="run cujit cache ls to list keys"
        )
    if len(found) > 1:
        some = ", ".join(digest[: len(prefix) + 4] for digest in sorted(found)[:8])
        raise OptionError(
            f"{len(found)} cache entries have keys that start with {prefix}",
            help=f"use more digits of one of these keys: {some}",
        )
    ((digest, store),) = found.items()
    lookup = store.get(digest)
    if lookup.record is None:
        raise FormatError(lookup.damage or f"the cache entry {digest} no longer exists")
    return Shown(store.root, lookup.record, lookup.record.key())


def compare(before: Shown, after: Shown) -> tuple[KeyDifference, ...]:
    """Return the inputs that differ between two entries. For files of another compiler's cache, also compare the files.

    Raises:
        FormatError: an entry doesn't contain the files that it declares.
    """
    found = differences(before.key.parts, after.key.parts)
    images = before.record.artifact, after.record.artifact
    if all(image.kind is ImageKind.FILES for image in images):
        found += differences(*(parts_of_files(image.data) for image in images))
    return found


def export(cache: Cache, prefix: str, path: str | os.PathLike[str]) -> Path:
    """Write the image of an entry in its own format, which NVIDIA's tools can read, and return the path.

    Raises:
        CujitError: see ``show``.
        FileError: the file can't be written.
    """
    return show(cache, prefix).record.artifact.save(path)


def trim(cache: Cache, to_bytes: int) -> int:
    """Delete the least recently used entries until the writable root has ``to_bytes``, and return the number of deleted
    bytes.

    Raises:
        CacheRefusedError: other users could have written to the root.
        MissingError: there is no writable root.
        OptionError: the size is negative.
        OSError: an entry can't be deleted.
    """
    if to_bytes < 0:
        raise OptionError(f"the target size must be 0 bytes or more, not {to_bytes}")
    if cache.budget is None:
        raise MissingError(
            "this cache has no writable root", help="set CUJIT_CACHE_DIR to a directory that you can write to"
        )
    return cache.budget.trim(to_bytes)


def clear(cache: Cache) -> int:
    """Delete all entries of the writable root and of this process, and return the number of deleted bytes.

    Raises:
        CacheRefusedError: other users could have written to the root.
        MissingError: there is no writable root.
        OSError: an entry can't be deleted.
    """
    freed = trim(cache, 0)
    if cache.store is not None:
        cache.store.clear_bad()
        forget(cache.store)
    if cache.hints is not None:
        cache.hints.clear()
    cache.forget()
    return freed


def sample_size(entries: int, fraction: float) -> int:
    """Return the size of a sample, which is at least one unless the fraction is 0."""
    return max(round(fraction * entries), 1) if fraction and entries else 0


def verify(
    cache: Cache, fraction: float, remake: Callable[[Shown], Artifact | None], *, seed: int = 0
) -> Iterator[RecordVerdict]:
    """Verify a sample of the entries in the writable root, and compare each image with a recompiled image.

    ``fraction`` is the share of entries, from 0 to 1, which ``seed`` draws. ``remake`` recompiles the Artifact of an
    entry, or returns None if it can't. In that case, only the entry's SHA-256 is checked. A damaged entry is set aside.

    Raises:
        CacheRefusedError: other users could have written to the root.
        OptionError: the fraction is out of range.
        OSError: an entry can't be read.
    """
    if not 0 <= fraction <= 1:
        raise OptionError(f"the fraction must be between 0 and 1, not {fraction}")
    entries = [] if cache.store is None else sorted(cache.store.entries(), key=lambda e: e.digest)
    sample = random.Random(seed).sample(entries, sample_size(len(entries), fraction))
    return (verdict for entry in sample if (verdict := _verdict(cache.store, entry, remake)) is not None)


def _verdict(
    store: Store | None, entry: StoreEntry, remake: Callable[[Shown], Artifact | None]
) -> RecordVerdict | None:
    """Return the verdict for one entry, or None if the entry no longer exists."""
    lookup = None if store is None else store.get(entry.digest)
    if store is None or lookup is None or (lookup.record is None and not lookup.damage):
        return None
    if lookup.record is None:
        return RecordVerdict(entry.digest, "", False, lookup.damage)
    record = lookup.record
    name = record.artifact.name
    try:
        again = remake(Shown(store.root, record, record.key()))
    except FormatError as e:
        return RecordVerdict(entry.digest, name, False, e.message)
    if again is None:
        return RecordVerdict(entry.digest, name, False, "")
    return RecordVerdict(entry.digest, name, True, _difference(record.artifact, again))


def _difference(kept: Artifact, made: Artifact) -> str:
    if kept.data == made.data:
        return ""
    if len(kept.data) != len(made.data):
        return f"the entry is {len(kept.data)} bytes long, but the recompiled image is {len(made.data)}"
    at = next(i for i, (a, b) in enumerate(zip(kept.data, made.data, strict=True)) if a != b)
    return f"the entry and the recompiled image differ from byte {at} on"
