"""What people do with a cache: look into it, take images out, trim, verify and clear it."""

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
    """A cache at a glance. ``total_bytes`` counts whole entries of the writable root; ``roots`` are all, in order."""

    root: Path | None
    roots: tuple[Path, ...]
    entries: int
    total_bytes: int
    cap_bytes: int
    counters: Counters


@dataclass(frozen=True)
class Listed:
    """One entry: where it is, its size, when it was last used (Unix time, to the hour), and what it says of itself.

    ``summary`` is None where the entry is damaged.
    """

    root: Path
    digest: str
    size_bytes: int
    used_s: float
    summary: Summary | None


@dataclass(frozen=True)
class Shown:
    """One entry, proved, with the parts of its key."""

    root: Path
    record: EntryRecord
    key: Key


@dataclass(frozen=True)
class RecordVerdict:
    """What ``verify`` found of one entry: ``fault`` is empty where it is good, ``remade`` whether it was made again."""

    digest: str
    name: str
    remade: bool
    fault: str


def info(cache: Cache) -> Info:
    """Count a cache's entries and bytes.

    Raises:
        CacheRefusedError: others could have written to a root.
        OSError: a root cannot be read.
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
    """List the entries of every root, the last used first; what they say of themselves is not proved.

    Raises:
        CacheRefusedError: others could have written to a root.
        OSError: a root cannot be read.
    """
    found = [(store, entry) for store in cache.stores for entry in store.entries()]
    for store, entry in sorted(found, key=lambda pair: -pair[1].used_s):
        head = store.peek(entry.digest)
        yield Listed(store.root, entry.digest, entry.size_bytes, entry.used_s, head and head[0])


def show(cache: Cache, prefix: str) -> Shown:
    """Read the one entry whose key begins with ``prefix``, some hex digits.

    Raises:
        CacheRefusedError: others could have written to a root.
        FormatError: the entry is damaged.
        NameNotFoundError: there is none.
        OptionError: that is no beginning of a key, or there are several.
        OSError: a root cannot be read.
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
    """Write the bare image of an entry, as NVIDIA's tools read it, and return the path.

    Raises:
        CujitError: as of ``show``.
        FileError: the file can't be written.
    """
    return show(cache, prefix).record.artifact.save(path)


def trim(cache: Cache, to_bytes: int) -> int:
    """Delete what was used longest ago until ``to_bytes`` are left in the writable root; return the bytes deleted.

    Raises:
        CacheRefusedError: others could have written to the root.
        MissingError: there is no writable root.
        OptionError: a negative size.
        OSError: an entry cannot be deleted.
    """
    if to_bytes < 0:
        raise OptionError(f"the target size must be 0 bytes or more, not {to_bytes}")
    if cache.budget is None:
        raise MissingError(
            "this cache has no writable root", help="set CUJIT_CACHE_DIR to a directory that you can write to"
        )
    return cache.budget.trim(to_bytes)


def clear(cache: Cache) -> int:
    """Delete every entry of the writable root, those set aside too, and what this process remembers; return the bytes.

    Raises:
        CacheRefusedError: others could have written to the root.
        MissingError: there is no writable root.
        OSError: an entry cannot be deleted.
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
    """Return how many of ``entries`` a fraction of them is: at least one, unless the fraction is 0."""
    return max(round(fraction * entries), 1) if fraction and entries else 0


def verify(
    cache: Cache, fraction: float, remake: Callable[[Shown], Artifact | None], *, seed: int = 0
) -> Iterator[RecordVerdict]:
    """Prove a sample of the writable root's entries, and compare each image with one made again.

    ``fraction`` is the share of entries, from 0 to 1, drawn by ``seed``; see ``sample_size``. ``remake`` makes the
    Artifact of an entry again, or returns None where it cannot; then only the entry's own SHA-256 is checked. A
    damaged entry is set aside.

    Raises:
        CacheRefusedError: others could have written to the root.
        OptionError: a fraction out of range.
        OSError: an entry cannot be read.
    """
    if not 0 <= fraction <= 1:
        raise OptionError(f"the fraction must be between 0 and 1, not {fraction}")
    entries = [] if cache.store is None else sorted(cache.store.entries(), key=lambda e: e.digest)
    sample = random.Random(seed).sample(entries, sample_size(len(entries), fraction))
    return (verdict for entry in sample if (verdict := _verdict(cache.store, entry, remake)) is not None)


def _verdict(
    store: Store | None, entry: StoreEntry, remake: Callable[[Shown], Artifact | None]
) -> RecordVerdict | None:
    """Check one entry; None where it is gone."""
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
