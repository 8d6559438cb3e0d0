"""Results of scans, stored in the process and on this node's disk, so that later scans only read stats.

A manifest is a hint. It is valid only if every file has its recorded stat and every directory with missing names is
unchanged. A lost or damaged manifest costs a scan. Stats mean nothing on another machine, so hints stay on this one.
"""

from __future__ import annotations

import functools
import itertools
import operator
import os
import struct
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

from cujit.cache.key import Part
from cujit.compiler.includes.files import (
    Files,
    Listings,
    NotModelledError,
    Stamp,
    is_absent,
    is_old,
    stamp_of,
    stats_of,
)
from cujit.values import NamedTuple, group_by
from cujit.values.hashing import sha256
from cujit.values.typed import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from cujit.compiler.includes.closure import Closure

_MAGIC = b"cujit includes 6\n"
_KEPT = 256
_LARGEST_BYTES = 1 << 25
_COUNTS = struct.Struct("<8I")
_STAMP = struct.Struct("<5Q")
_GET_STAMP = operator.attrgetter("st_size", "st_mtime_ns", "st_ctime_ns", "st_ino", "st_dev")


class HintStore(Protocol):
    """Storage of hints: bytes by name for this machine and user. Neither method raises, and a hint may be lost."""

    def get(self, name: str) -> bytes | None:
        """Return the bytes stored under a name of letters, digits, and hyphens, or None."""

    def has(self, name: str) -> bool:
        """Return whether there are bytes under a name, without reading them."""

    def put(self, name: str, data: bytes) -> None:
        """Keep bytes under a name, whole or not at all."""


class Directory(NamedTuple):
    """A directory with missing names in it or below it: its recorded stat, and the paths of the names.

    ``names`` are the paths, separated by NUL. They are checked only if the directory changed.
    """

    path: str
    stamp: Stamp
    names: bytes

    @property
    def absent(self) -> tuple[str, ...]:
        """The paths of the names, one by one."""
        return tuple(map(os.fsdecode, self.names.split(b"\0")))

    def holds(self) -> bool:
        """Return whether every name is still missing."""
        try:
            if stamp_of(os.stat(self.path)) == self.stamp and self.stamp != _UNKNOWN:
                return True
            return all(map(is_absent, self.absent))
        except (OSError, NotModelledError):
            return False


_UNKNOWN: Stamp = (0, 0, 0, 0, 0)


class Manifest(NamedTuple):
    """The parts of a key that came out of a scan, and what must still be so for them to be true.

    ``paths`` are those of files, as bytes, with their ``stamps``; ``fresh`` are (path, SHA-256) of files too new for
    their stat to tell. The first ``recorded`` of the files are as their distributions brought them: they were looked at
    once, and from then on their ``records`` are, each a path with its stamp. ``askers`` are macros that ask for headers
    wherever they are called. ``via`` says how all of it was known.
    """

    parts: tuple[Part, ...] = ()
    paths: tuple[bytes, ...] = ()
    stamps: tuple[Stamp, ...] = ()
    fresh: tuple[tuple[str, str], ...] = ()
    directories: tuple[Directory, ...] = ()
    records: tuple[tuple[bytes, Stamp], ...] = ()
    recorded: int = 0
    askers: tuple[str, ...] = ()
    via: str = ""

    @property
    def files(self) -> tuple[tuple[str, Stamp], ...]:
        """Files that are identified by their stats, as path and stamp."""
        return tuple(zip(map(os.fsdecode, self.paths), self.stamps, strict=True))

    @classmethod
    def of(cls, closure: Closure, parts: Iterable[Part]) -> Manifest:
        """Make the manifest of a scan that has just ended.

        Raises:
            NotModelledError: something changed meanwhile.
        """
        texts = {found.place.path: found.text for found in closure.found}
        old = {path: text for path, text in texts.items() if text.is_settled}
        manifest = cls(
            tuple(parts),
            tuple(map(os.fsencode, old)),
            tuple(text.stamp for text in old.values()),
            tuple((path, text.digest) for path, text in texts.items() if path not in old),
            directories_of([place.path for place in closure.absent]),
            askers=closure.askers,
        )
        listings = Listings({place.path.removesuffix(f"/{place.name}") for place in closure.absent})
        absent = [place.path for place in closure.absent]
        if not all(listings.lacks(path) or is_absent(path) for path in absent):
            raise NotModelledError("a header appeared while cujit was resolving includes")
        return manifest

    def holds(self, files: Files, *, wholly: bool = True) -> bool:
        """Return whether a scan would find the same, from stats alone if they suffice.

        Unless ``wholly`` is set, headers of a distribution count as unchanged if its record is unchanged.
        """
        try:
            known = 0 if wholly else self.recorded
            now = tuple(map(_GET_STAMP, _stats(self.paths[known:])))  # twice as fast as a loop
            if now != self.stamps[known:] or any(stamp_of(os.stat(path)) != stamp for path, stamp in self.records):
                return False
            for path, digest in self.fresh:
                text = files.read(path)
                if text is None or text.digest != digest:
                    return False
        except (OSError, ValueError, NotModelledError):
            return False
        return all(directory.holds() for directory in self.directories)

    def to_bytes(self) -> bytes:
        """Write it down."""
        stamps = [*self.stamps, *(directory.stamp for directory in self.directories)]
        texts = [
            [piece for p in self.parts for piece in (p.label, p.value, "" if p.size is None else str(p.size))],
            [piece for pair in self.fresh for piece in pair],
            [piece for directory in self.directories for piece in (directory.path, str(len(directory.names)))],
            self.askers,
        ]
        written = ["\0".join(block).encode("utf-8", "surrogateescape") for block in texts]
        blocks = [*written, b"\0".join(self.paths), b"".join(directory.names for directory in self.directories)]
        body = b"".join([*blocks, *(_STAMP.pack(*stamp) for stamp in stamps)])
        counts = _COUNTS.pack(*map(len, blocks), len(self.paths), len(self.directories))
        return _MAGIC + sha256(counts + body).digest() + counts + body

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest | None:
        """Parse a manifest, or return None if the bytes are not exactly as written."""
        start = len(_MAGIC) + 32
        if not data.startswith(_MAGIC) or len(data) < start + _COUNTS.size or len(data) > _LARGEST_BYTES:
            return None
        if sha256(data[start:]).digest() != data[len(_MAGIC) : start]:
            return None
        try:
            return cls._read(data, start)
        except (ValueError, struct.error):  # written whole, by another version
            return None

    @classmethod
    def _read(cls, data: bytes, start: int) -> Manifest:
        *lengths, files, _ = _COUNTS.unpack_from(data, start)
        at = start + _COUNTS.size
        blocks: list[bytes] = []
        for length in lengths:
            blocks.append(data[at : at + length])
            at += length
        stamps: list[Stamp] = list(_STAMP.iter_unpack(data[at:]))
        parts, fresh, places, askers = (
            block.decode("utf-8", "surrogateescape").split("\0") if block else [] for block in blocks[:4]
        )
        paths, names = blocks[4:]
        ends = list(itertools.accumulate(map(int, places[1::2])))
        return cls(
            tuple(
                Part(label, value, int(size) if size else None)
                for label, value, size in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
            ),
            tuple(paths.split(b"\0")) if paths else (),
            tuple(stamps[:files]),
            tuple(zip(fresh[::2], fresh[1::2], strict=True)),
            tuple(
                Directory(path, stamp, names[begin:end])
                for path, begin, end, stamp in zip(places[::2], [0, *ends], ends, stamps[files:], strict=False)
            ),
            askers=tuple(askers),
        )


def _stats(paths: tuple[bytes, ...]) -> list[os.stat_result]:
    """Return the stats of files relative to their common directory. Raise as ``stats_of``."""
    return stats_of(*_below(paths))


@functools.lru_cache(64)
def _below(paths: tuple[bytes, ...]) -> tuple[bytes, list[bytes]]:
    """Split paths into their common directory and the names below it."""
    way = os.path.commonpath([os.path.dirname(min(paths)), os.path.dirname(max(paths))]) if paths else b"/"
    return way, [path[len(way) :].lstrip(b"/") for path in paths]


def directories_of(absent: Sequence[str]) -> tuple[Directory, ...]:
    """Group the paths of names that are not there by the nearest directory that is."""
    known: dict[str, tuple[str, Stamp]] = {}

    def nearest(path: str) -> tuple[str, Stamp]:
        parent = os.path.dirname(path)
        if parent not in known:
            known[parent] = _stamped(parent) or nearest(parent)
        return known[parent]

    return tuple(
        Directory(path, stamp if is_old(stamp) else _UNKNOWN, b"\0".join(map(os.fsencode, names)))
        for (path, stamp), names in group_by((nearest(path), path) for path in absent).items()
    )


def _stamped(directory: str) -> tuple[str, Stamp] | None:
    try:
        return directory, stamp_of(os.stat(directory + "/." if directory else "/."))
    except (OSError, ValueError):
        return ("/", _UNKNOWN) if directory in ("", "/") else None


def _nothing() -> None:
    return None


class Memo:
    """Manifests of a process, which drops the oldest above a limit. A store, if any, holds more on disk."""

    def __init__(self, store: HintStore | None = None) -> None:
        self.files = Files()
        self.store = store
        self._known: OrderedDict[str, Manifest] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, name: str, shipped: Callable[[], Manifest | None] = _nothing) -> Manifest | None:
        """Return the manifest of a name if it is still valid, or None.

        If this process doesn't have it, ``shipped`` and then the store are searched.
        """
        with self._lock:
            manifest = self._known.get(name)
        if manifest is None or not manifest.holds(self.files, wholly=False):
            manifest = shipped() or self._hinted(name)
        if manifest is not None:
            self._keep(name, manifest)
        return manifest

    def _hinted(self, name: str) -> Manifest | None:
        data = self.store.get(f"includes-{name}") if self.store is not None else None
        manifest = Manifest.from_bytes(data) if data is not None else None
        return manifest._replace(via="hints") if manifest is not None and manifest.holds(self.files) else None

    def keep(self, name: str, manifest: Manifest) -> None:
        """Keep a manifest for later, here and on disk."""
        self._keep(name, manifest)
        if self.store is not None:
            self.store.put(f"includes-{name}", manifest.to_bytes())

    def _keep(self, name: str, manifest: Manifest) -> None:
        with self._lock:
            self._known[name] = manifest
            self._known.move_to_end(name)
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
