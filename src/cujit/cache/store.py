"""The store: one directory with one file per entry, which any number of processes read, write and delete at once.

::

    CACHEDIR.TAG   makes back-up programs skip the directory
    FORMAT         the version of this layout; in another one nothing is read or written
    e/ab/<62 hex>  an entry: a record, published whole by link(2), never changed after
    tmp/           records being written
    bad/           damaged entries set aside, one per first digit of the key
    lock  usage    permanent; see lock.py and evict.py
"""

from __future__ import annotations

import contextlib
import enum
import errno
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator

from cujit.artifact import Artifact
from cujit.artifact.writing import is_stale, publish, temporary_name
from cujit.cache.filesystem import OPEN_FLAGS, UntrustedFileError, is_remote, read_trusted
from cujit.cache.key import Key, KeyDifference, Part, differences
from cujit.cache.record import (
    MAX_RECORD_BYTES,
    PREFIX_BYTES,
    EntryRecord,
    Summary,
    decode,
    entry_of,
    head_bytes,
    hit_of,
    peek,
)
from cujit.cache.trust import Trust
from cujit.errors import CacheRefusedError, FormatError
from cujit.forks import cached_property
from cujit.values import NamedTuple, later
from cujit.values.typed import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    import pathlib
    import re
    from pathlib import Path
else:
    pathlib = later("pathlib")  # start-up: a hit works with text
    re = later("re")  # start-up: few calls need it

T = TypeVar("T")

PACK_SUFFIX = ".pack"
"""What the name of a pack ends in; among the read-only roots it tells one from a directory."""

_FORMAT = b"cujit cache 1\n"
# Source: Cache Directory Tagging Specification 0.6: the file begins with this line.
_TAG = b"Signature: 8a477f597d28d172789f06886806bc55\n# A cache of cujit. Everything in it can be made again.\n"
_ENTRY_DIRECTORY, _ENTRY_NAME = "[0-9a-f]{2}", "[0-9a-f]{62}"  # compiled when they are first used: start-up
_TRIES = 3
_BUMP_AFTER_S = 3600.0
_KEPT_BAD_BYTES = 4 << 20


class StoreEntry(NamedTuple):
    """A file of the store: its key's digest, its size, and when it was last used (Unix time, to the hour)."""

    digest: str
    size_bytes: int
    used_s: float


class Lookup(NamedTuple):
    """What a read found: a record of ``size_bytes``, or None; ``damage`` says why a file that is there is not used."""

    record: EntryRecord | None = None
    size_bytes: int = 0
    damage: str = ""


class Hit(NamedTuple):
    """What a hit needs from a record: the Artifact and its compile time, with the fields of ``Lookup``."""

    artifact: Artifact | None = None
    make_ms: float = 0.0
    size_bytes: int = 0
    damage: str = ""


class Explanation(NamedTuple):
    """The entry nearest to a key that missed, and which inputs differ from it."""

    nearest: Summary
    differences: tuple[KeyDifference, ...]

    def __str__(self) -> str:
        lines = [f"the nearest entry is {self.nearest.name or self.nearest.work} ({self.nearest.digest[:12]})"]
        return "\n  ".join([*lines, *map(str, self.differences)])


class Published(enum.Enum):
    """Result of writing a record."""

    NEW = "new"
    KEPT_THEIRS = "kept theirs"
    """Another process had published the same key before."""
    REFUSED_FORMAT = "another format"
    """The directory is of another version of cujit."""


class Root(Protocol):
    """A place to search for records: a directory or a pack.

    ``root`` is its path, ``place`` is the path as text, and ``writable`` is whether records are written to it. Every
    method may raise ``CacheRefusedError`` and ``OSError``.
    """

    place: str
    writable: bool

    @property
    def root(self) -> Path:
        """Its path."""

    def get(self, digest: str) -> Lookup:
        """Read and prove the record of a key."""

    def find(self, digest: str, *, is_read: bool = False) -> Hit:
        """Verify the record of a key. Its Artifact may be read only on first use."""

    def has(self, digest: str) -> bool:
        """Return whether there is something for a key, without reading it."""

    def entries(self) -> Iterator[StoreEntry]:
        """List the records."""

    def peek(self, digest: str) -> tuple[Summary, tuple[Part, ...]] | None:
        """Read the summary of a record without verification. Return None if the record is missing or damaged."""

    def why(self, key: Key) -> Explanation | None:
        """Return the record of the same kind of work with the fewest different inputs."""

    def closures(self, search: str) -> Iterable[bytes]:
        """Return the known results of a header search, by its digest. A directory has none."""


class Store:
    """A root directory. It is opened on first use, and every method may raise ``OSError``."""

    def __init__(self, root: Path | str, trust: Trust, *, writable: bool) -> None:
        """Set the directory. The first ``put`` creates it if it doesn't exist."""
        self.place = str(root)
        self._entries = f"{root}/e/"
        self.trust = trust
        self.writable = writable
        self._is_ours = False
        self._remote: bool | None = None

    @cached_property
    def root(self) -> Path:
        """The directory."""
        return pathlib.Path(self.place)

    @property
    def is_remote(self) -> bool:
        """Whether other machines share the file system of the root.

        Raises:
            OSError: there is no root.
        """
        if self._remote is None:
            self._remote = is_remote(self.place)
        return self._remote

    def is_there(self) -> bool:
        """Return whether there is a root of this format. This checks once whether other users could have written to it.

        Raises:
            CacheRefusedError: other users could have written to the root.
            OSError: the root can't be inspected.
        """
        if not self._is_ours:
            if not os.path.lexists(self.place):
                return False
            self.trust.check_root(self.place)
            self._is_ours = self._read_format() == _FORMAT
        return self._is_ours

    def has(self, digest: str) -> bool:
        """Return whether there is a file for this key, without reading it."""
        return os.path.lexists(self._path(digest))

    def get(self, digest: str) -> Lookup:
        """Read and prove the entry of a key. One that is damaged or not trusted is set aside where we may write.

        Raises:
            CacheRefusedError: others could have written to the root.
            OSError: the entry is there and cannot be read.
        """
        return Lookup(*self._look_up(digest, decode))

    def _look_up(self, digest: str, read: Callable[[bytes, str], T]) -> tuple[T | None, int, str]:
        """Read an entry, its size, and why one that is there is not used."""
        if not self.is_there():
            return None, 0, ""
        path = self._path(digest)
        try:
            data, status = self._read(path)
            record = read(data, digest)
        except FileNotFoundError:
            return None, 0, ""
        except (UntrustedFileError, FormatError, PermissionError) as e:
            self._set_aside(path, digest)
            return None, 0, f"{path}: {e}"
        self._note_use(digest, status.st_mtime)
        return record, len(data), ""

    def _note_use(self, digest: str, used_s: float) -> None:
        """Note that an entry is used, which was last used then, unless that is less than an hour ago."""
        if abs(time.time() - used_s) > _BUMP_AFTER_S:
            self.touch(digest)

    def touch(self, digest: str) -> None:
        """Note that the entry of a key is used now, so that it is evicted after others."""
        if self.writable and not self.is_remote:
            with contextlib.suppress(OSError):
                os.utime(self._path(digest), follow_symlinks=False)

    def find(self, digest: str, *, is_read: bool = False) -> Hit:  # noqa: ARG002 - it always is
        """Read and verify the entry of a key, as ``get`` does.

        Raises:
            CacheRefusedError, OSError: as ``get``.
        """
        entry = entry_of(self._path(digest), digest, self.trust.words, OPEN_FLAGS) if self._is_ours else None
        if entry is not None:
            artifact, make_ms, size_bytes, used_s = entry
            self._note_use(digest, used_s)
            return tuple.__new__(Hit, (artifact, make_ms, size_bytes, ""))  # start-up: no method is written
        found, size_bytes, damage = self._look_up(digest, hit_of)
        if found is None:
            return Hit(damage=damage)
        return tuple.__new__(Hit, (*found, size_bytes, ""))  # start-up: no method is written

    def _read(self, path: str, tries: int = _TRIES) -> tuple[bytes, os.stat_result]:
        try:
            return read_trusted(path, self.trust, MAX_RECORD_BYTES)
        except OSError as e:
            if e.errno != errno.ESTALE or tries == 1:  # replaced on another machine: open the new one
                raise
            return self._read(path, tries - 1)

    def put(self, digest: str, record: bytes) -> Published:
        """Publish a complete record. If an entry exists, it stays, because it was good when it was written.

        Raises:
            CacheRefusedError: other users could have written to the root, or this user should not write there.
            OSError: the record can't be written. At most a temporary file remains.
        """
        if not self.prepare():
            return Published.REFUSED_FORMAT
        try:
            return self._put(digest, record)
        except FileNotFoundError:  # somebody deleted the cache under us, or a part of it
            self._create()
            return self._put(digest, record)

    def prepare(self) -> bool:
        """Create the directory if it doesn't exist. Return False if it has another format.

        Raises:
            CacheRefusedError: other users could have written to the root, or this user should not write there.
            OSError: the directory can't be created.
        """
        if not self.is_there() or not os.path.lexists(self.root):
            return self._create()
        self._check_writer()
        return True

    @property
    def other_version(self) -> str:
        """The reason why nothing is written after ``prepare`` or ``put`` found another format."""
        return f"{self.root} belongs to another version of cujit"

    def _put(self, digest: str, record: bytes) -> Published:
        path = self._path(digest)
        temporary = self._write(temporary_name(), record)
        try:
            return self._publish(temporary, path)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(temporary)

    def _write(self, name: str, content: bytes) -> Path:
        temporary = self.root / "tmp" / name
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC  # in place: tmp/ is the store's own
        fd = os.open(temporary, flags, 0o600)
        try:
            try:
                rest = memoryview(content)
                while rest:
                    rest = rest[os.write(fd, rest) :]
                if self.trust.gid is not None:
                    os.fchmod(fd, self.trust.file_mode)  # whatever the umask is
            finally:
                os.close(fd)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        return temporary

    def _publish(self, temporary: Path, path: str) -> Published:
        directory = os.path.dirname(path)
        if not os.path.lexists(directory):
            with contextlib.suppress(FileExistsError):
                self._make_directory(directory)
        try:
            publish(temporary, path)
        except FileExistsError:
            return Published.KEPT_THEIRS
        return Published.NEW

    def delete(self, digest: str) -> bool:
        """Delete the entry of a key. Return False if there is none.

        Raises:
            OSError: the entry exists but can't be deleted.
        """
        try:
            os.unlink(self._path(digest))
        except FileNotFoundError:
            return False
        return True

    def entries(self) -> Iterator[StoreEntry]:
        """Yield the entries in no particular order. Entries that other processes add or delete at the same time may be
        missing.

        Raises:
            CacheRefusedError: other users could have written to the root.
            OSError: the directory can't be read.
        """
        if not self.is_there():
            return
        for directory in _scan(self.root / "e"):
            if not re.fullmatch(_ENTRY_DIRECTORY, directory.name):
                continue
            for file in _scan(directory.path):
                if re.fullmatch(_ENTRY_NAME, file.name):
                    with contextlib.suppress(FileNotFoundError):
                        status = file.stat(follow_symlinks=False)
                        yield StoreEntry(directory.name + file.name, status.st_size, status.st_mtime)

    def peek(self, digest: str) -> tuple[Summary, tuple[Part, ...]] | None:
        """Read the summary of an entry, without its image and without verification. Return None if it is missing or
        damaged.

        Raises:
            OSError: the entry exists but can't be read.
        """
        path = self._path(digest)
        try:
            head, _ = read_trusted(path, self.trust, 4 * PREFIX_BYTES, head=True)
            if head_bytes(head) > len(head):
                head, _ = read_trusted(path, self.trust, head_bytes(head), head=True)
            summary, parts = peek(head)
        except (UntrustedFileError, FormatError, FileNotFoundError):
            return None
        return (summary, parts) if summary.digest == digest else None

    def why(self, key: Key) -> Explanation | None:
        """Return the entry of the same kind of work with the fewest different inputs. Entries with the same name come
        first.

        Raises:
            CacheRefusedError: other users could have written to the root.
            OSError: an entry can't be read.
        """
        return nearest(self, key)

    def closures(self, search: str) -> Iterable[bytes]:  # noqa: ARG002
        """Return nothing, because a directory stores no header searches."""
        return ()

    def remove_stale(self) -> int:
        """Delete the temporary files of dead processes, and return their number.

        Raises:
            OSError: the directory can't be read.
        """
        removed = 0
        for file in _scan(self.root / "tmp"):
            with contextlib.suppress(OSError):
                age = time.time() - file.stat(follow_symlinks=False).st_mtime
                if is_stale(file.name, age):
                    os.unlink(file.path)
                    removed += 1
        return removed

    def clear_bad(self) -> None:
        """Delete the entries that were set aside.

        Raises:
            CacheRefusedError: others could have written to the root.
            OSError: the directory cannot be read, or one of them not be deleted.
        """
        if not self.is_there():  # what lies in a directory that is no cache is somebody's
            return
        for file in _scan(self.root / "bad"):
            if re.fullmatch("[0-9a-f]", file.name):
                os.unlink(file.path)

    def _path(self, digest: str) -> str:
        return f"{self._entries}{digest[:2]}/{digest[2:]}"  # text, for pathlib would take a fifth of the time of a hit

    def _create(self) -> bool:
        """Create the missing parts of the layout. Return False if the directory has another format."""
        self.trust.check_root(self.root)
        missing = [path for path in (self.root, *self.root.parents) if not os.path.lexists(path)]
        for path in reversed(missing):
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, 0o700)
        if missing and self.trust.gid is not None:
            os.chown(self.root, -1, self.trust.gid)
            os.chmod(self.root, self.trust.directory_mode)
        self.trust.check_root(self.root)
        self._check_writer()
        if self._read_format() not in (b"", _FORMAT):
            return False
        for name in ("e", "tmp", "bad"):
            with contextlib.suppress(FileExistsError):
                self._make_directory(self.root / name)
        self._write_small("CACHEDIR.TAG", _TAG)
        self._write_small("FORMAT", _FORMAT)  # the last, so that whoever sees it sees the whole
        self._is_ours = True
        return True

    def _check_writer(self) -> None:
        if not self.trust.may_write(self.root):
            raise CacheRefusedError(
                f"root doesn't write to {self.root} because another user owns it", help="CUJIT_CACHE_DIR=<root's own>"
            )

    def _make_directory(self, path: str | Path) -> None:
        os.mkdir(path, 0o700)
        if self.trust.gid is not None:
            os.chmod(path, self.trust.directory_mode)  # whatever the umask is; the group comes from the directory above

    def _read_format(self) -> bytes:
        """Return the contents of ``FORMAT``, or empty bytes if it doesn't exist or a power failure emptied it."""
        try:
            return read_trusted(f"{self.place}/FORMAT", self.trust, 64)[0]
        except FileNotFoundError:
            return b""
        except UntrustedFileError as e:
            raise CacheRefusedError(
                f"can't use the cache file {self.root / 'FORMAT'}: {e}", help="delete the file"
            ) from e

    def _write_small(self, name: str, content: bytes) -> None:
        if not os.path.lexists(self.root / name) or os.stat(self.root / name).st_size == 0:
            os.replace(self._write(temporary_name(), content), self.root / name)  # in place: by tmp/

    def _set_aside(self, path: str, digest: str) -> None:
        """Move an invalid entry away, so that a valid one can be published."""
        if not self.writable:
            return
        with contextlib.suppress(OSError):
            status = os.lstat(path)
            if stat.S_ISDIR(status.st_mode):
                os.rmdir(path)
            elif status.st_size > _KEPT_BAD_BYTES:
                os.unlink(path)
            else:
                os.replace(path, self.root / "bad" / digest[0])  # in place: set aside
            return
        with contextlib.suppress(OSError):  # no room to keep it in: then without
            os.unlink(path)


def nearest(root: Root, key: Key) -> Explanation | None:
    """Return the record of the same kind of work with the fewest different inputs. Records with the same name come
    first.

    Raises:
        CacheRefusedError: other users could have written to the root.
        OSError: a record can't be read.
    """
    best: Explanation | None = None
    best_rank = (True, 0, 0.0)
    for entry in root.entries():
        found = root.peek(entry.digest) if entry.digest != key.digest else None
        if found is None or found[0].work != key.kind:
            continue
        summary, parts = found
        different = differences(parts, key.parts)
        rank = (not _same_name(parts, key), len(different), -entry.used_s)
        if best is None or rank < best_rank:
            best, best_rank = Explanation(summary, different), rank
    return best


def _scan(directory: Path | str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as found:
            return list(found)
    except FileNotFoundError:
        return []


def _same_name(parts: tuple[Part, ...], key: Key) -> bool:
    return key.name == next((part.value for part in parts if part.label == "name"), "")
