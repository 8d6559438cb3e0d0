"""Files of a scan: read once, identified by their stats, and distinguished from missing files."""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping

from cujit.artifact.reading import no_file
from cujit.errors import CujitError, spell
from cujit.values import NamedTuple
from cujit.values.hashing import sha256
from cujit.values.typed import TYPE_CHECKING

if TYPE_CHECKING:  # reading headers needs large expressions; telling by stats that none changed does not
    from cujit.compiler.includes.directives import Facts
    from cujit.compiler.includes.has_include import HasIncludeCalls

TOO_NEW_NS = 2_000_000_000
"""A stat younger than this may be that of two contents. Source: ccache manual, "The direct mode"; FAT counts in 2 s."""

_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)
_LARGEST_BYTES = 1 << 26
_KEPT = 16384
# A name that no file system takes for another but in its letters' case: one with a tilde may be short for another, and
# others than these may be written in several ways.
_PLAIN = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.+-"

Stamp = tuple[int, int, int, int, int]
"""Size in bytes, mtime and ctime in ns, inode, device."""


class NotModelledError(CujitError):
    """Something that the compile may read cannot be known beforehand; caught where the key is made."""


class SourceText(NamedTuple):
    """A file that was read: its SHA-256 in hex, its facts, and its stat."""

    digest: str
    facts: Facts
    stamp: Stamp

    @property
    def is_settled(self) -> bool:
        """Whether a change from now on would show in the stat."""
        return is_old(self.stamp)


def is_old(stamp: Stamp) -> bool:
    """Return whether a stat was older than the clock's resolution when it was made, a few moments ago at most."""
    return max(stamp[1], stamp[2]) < time.time_ns() - TOO_NEW_NS


def stamp_of(status: os.stat_result) -> Stamp:
    """Return the fields of a stat that show a change."""
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev


def stats_of(directory: str | bytes, names: Iterable[str | bytes]) -> list[os.stat_result]:
    """Return the stats of files by their names relative to a directory, which halves the time for path resolution.

    Raises:
        OSError: a file or the directory doesn't exist.
    """
    way = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return [os.stat(name, dir_fd=way) for name in names]
    finally:
        os.close(way)


def is_absent(path: str) -> bool:
    """Return whether NVRTC would find no header: the name is missing or a directory, which NVRTC skips (measured,
    13.5).

    Raises:
        NotModelledError: this can't be determined.
    """
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except OSError as e:
        if e.errno in _NOT_THERE:
            return True
        raise NotModelledError(f"{path}: {e.strerror}") from None
    except ValueError:
        raise NotModelledError(f"the name {spell(path)} contains a NUL character") from None


class Listings:
    """Contents of directories, each listed once, because most names in a search don't exist.

    ``roots`` are directories that are listed without checking their parents.
    """

    def __init__(self, roots: Iterable[str] = ()) -> None:
        self._below = tuple(f"{root}/" for root in roots)
        self._known: dict[str, frozenset[str] | None] = {}

    def lacks(self, path: str) -> bool:
        """Return whether a name certainly doesn't exist. Return False if a listing can't decide this.

        File systems that ignore case or have short names are queried.
        """
        directory, _, name = path.rpartition("/")
        names = self._names(directory)
        return names is not None and name.casefold() not in names and _is_plain(name)

    def _names(self, directory: str) -> frozenset[str] | None:
        try:
            return self._known[directory]
        except KeyError:
            pass
        names: frozenset[str] | None = frozenset()
        if not (directory.startswith(self._below) and self.lacks(directory)):
            try:
                names = frozenset(map(str.casefold, os.listdir(directory + "/")))
            except (FileNotFoundError, NotADirectoryError):
                names = frozenset()
            except (OSError, ValueError):
                names = None
        self._known[directory] = names
        return names


def _is_plain(name: str) -> bool:
    return not name.strip(_PLAIN) and name[:1] not in ("", ".", "+", "-") and name[-1] != "."


class Files:
    """The headers that a process has read, by path and stat; the eldest go when there are too many."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, SourceText] = OrderedDict()
        self._calls: OrderedDict[tuple[str, tuple[tuple[str, bool], ...]], HasIncludeCalls] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, path: str) -> SourceText | None:
        """Read a header, or return None if NVRTC would find none.

        Raises:
            NotModelledError: the header can't be read.
            FileError: the file is a FIFO or a device.
        """
        try:
            status = os.stat(path)
        except (OSError, ValueError):
            if is_absent(path):
                return None
            raise NotModelledError(f"{path} keeps appearing and disappearing") from None
        if stat.S_ISDIR(status.st_mode):
            return None
        if not stat.S_ISREG(status.st_mode):
            raise no_file(path, status.st_mode)  # NVRTC would wait for it, and all compiles after it
        with self._lock:
            known = self._known.get(path)
            if known is not None:
                self._known.move_to_end(path)
        if known is not None and known.stamp == stamp_of(status) and known.is_settled:
            return known
        text = _read(path, known)
        with self._lock:
            self._known[path] = text
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return text

    def calls(self, path: str, text: SourceText, names: Mapping[str, bool]) -> HasIncludeCalls:
        """Return the calls, in a header that was read, of macros that test for headers: ``names``, from ``askers``.

        Raises:
            NotModelledError: the header changed, or cannot be read.
        """
        # Start-up: a hit whose headers are as they were reads none.
        from cujit.compiler.includes.directives import read_calls

        of = text.digest, tuple(names.items())
        with self._lock:
            known = self._calls.get(of)
        if known is not None:
            return known
        data, _ = content(path)
        if sha256(data).hexdigest() != text.digest:
            raise NotModelledError(f"{path} changed while cujit was reading it")
        calls = read_calls(data, names)
        with self._lock:
            self._calls[of] = calls
            if len(self._calls) > _KEPT:
                self._calls.popitem(last=False)
        return calls


def _read(path: str, known: SourceText | None) -> SourceText:
    # Start-up: a hit whose headers are as they were reads none.
    from cujit.compiler.includes.directives import read_facts

    data, stamp = content(path)
    digest = sha256(data).hexdigest()
    facts = known.facts if known is not None and known.digest == digest else read_facts(data)
    return SourceText(digest, facts, stamp)


def content(path: str) -> tuple[bytes, Stamp]:
    """Read a file, and return its bytes with its stat, which must be equal before and after reading.

    Raises:
        NotModelledError: the file can't be read, changes while it is read, or has more than 64 MiB.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # one that became a FIFO is not waited for
        try:
            before = os.fstat(fd)
            data = _read_whole(fd, before.st_size) if stat.S_ISREG(before.st_mode) else b""
            after = os.fstat(fd)
        finally:
            os.close(fd)
    except OSError as e:
        raise NotModelledError(f"{path}: {e.strerror}") from None
    if stamp_of(before) != stamp_of(after) or not stat.S_ISREG(after.st_mode):
        raise NotModelledError(f"{path} changed while cujit was reading it")
    if len(data) > _LARGEST_BYTES:
        raise NotModelledError(f"{path} is larger than {_LARGEST_BYTES} bytes")
    return data, stamp_of(after)


def _read_whole(fd: int, size: int) -> bytes:
    """Read the size in the stat plus one byte, in one call for nearly every file."""
    pieces, left = [], min(size, _LARGEST_BYTES) + 1
    while left and (piece := os.read(fd, left)):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)
