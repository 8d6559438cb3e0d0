"""Directory names that are equal on every machine, for tools that write paths into their output.

NVRTC writes the path of each file into line tables, debug information, and ``__FILE__``, and no option maps a prefix.
cujit therefore opens a directory under a fixed descriptor number while NVRTC compiles, and passes ``/proc/self/fd/902``
as its path. In the output, a name of equal length replaces this path: ``/cujit-source/i00``.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence

from cujit.forks import once, register_reset
from cujit.threads import Condition
from cujit.toolchain.stopping import Ended, current_stop
from cujit.values import NamedTuple, later
from cujit.values.typed import TYPE_CHECKING

if TYPE_CHECKING:
    import re
else:
    re = later("re")  # start-up: for what is compiled

SOURCE, WORKING = 900, 901
"""The numbers of the source's directory and of the working directory."""
_INCLUDE, _MOST_INCLUDE = 902, 48
_TOOLKIT, _MOST_TOOLKIT = 950, 50
_ALIAS = "/proc/self/fd/{}"
_RECORDED = "/cujit-source/{}"
_SLICE_S = 0.05


class Named(NamedTuple):
    """A directory with the number that it is open under."""

    number: int
    path: str

    @property
    def alias(self) -> str:
        """The path that a tool receives."""
        return _ALIAS.format(self.number)

    @property
    def recorded(self) -> str:
        """The path that an image holds, which has the length of the alias."""
        return _recorded(self.number)


def _recorded(number: int) -> str:
    if number < _INCLUDE:
        return _RECORDED.format("src" if number == SOURCE else "cwd")
    label = f"i{number - _INCLUDE:02}" if number < _TOOLKIT else f"t{number - _TOOLKIT:02}"
    return _RECORDED.format(label)


def is_of_toolkit(file: str) -> bool:
    """Return whether an image uses this name for a header of the toolkit."""
    return re.match(r"/cujit-source/t\d\d/", file) is not None


def numbered(include: Sequence[str], toolkit: Sequence[str]) -> list[Named] | None:
    """Number the include directories and those of the toolkit, or return None if they are too many."""
    if len(include) > _MOST_INCLUDE or len(toolkit) > _MOST_TOOLKIT:
        return None
    first = [Named(_INCLUDE + index, path) for index, path in enumerate(include)]
    return first + [Named(_TOOLKIT + index, path) for index, path in enumerate(toolkit)]


_IN_BYTES = rb"/proc/self/fd/(9\d\d)(?!\d)"  # compiled when it is first used: start-up
_SEPARATORS = b", ", b","


def as_recorded(image: bytes, *, is_text: bool) -> bytes:
    """Replace aliases in the output of a tool. PTX (``is_text``) also contains strings as numbers."""
    made = re.sub(_IN_BYTES, lambda match: _recorded(int(match[1])).encode(), image)
    for separator in _SEPARATORS if is_text else ():
        begin = _as_numbers("/proc/self/fd/9", separator)
        if begin in made:
            digits = separator + rb"(\d\d)" + separator + rb"(\d\d)(?!\d)"
            made = re.sub(re.escape(begin) + digits, lambda match, s=separator: _renumbered(match, s), made)  # type: ignore[misc]
    return made


def _renumbered(match: re.Match[bytes], separator: bytes) -> bytes:
    number = f"9{chr(int(match[1]))}{chr(int(match[2]))}"
    return _as_numbers(_recorded(int(number)), separator) if number.isdigit() else match[0]


def _as_numbers(text: str, separator: bytes) -> bytes:
    return separator.join(b"%d" % byte for byte in text.encode())


class Aliases:
    """Descriptor numbers of this process. cujit keeps a number from its first use on. Numbers in use by others are
    avoided.
    """

    def __init__(self) -> None:
        self._changed = Condition()
        self._owned: dict[int, tuple[int, int]] = {}
        self._open: tuple[Named, ...] = ()
        self._inside = 0
        register_reset(self)

    def after_fork(self) -> None:
        """Open the lock, in a child: the compiles of other threads do not go on there."""
        self._changed = Condition()
        self._inside = 0

    def are_ours(self, numbers: Sequence[int]) -> bool:
        """Reserve numbers, and return whether this process has all of them and its files are visible in ``/proc``."""
        with self._changed:
            return all(map(self._take, numbers))

    def _take(self, number: int) -> bool:
        if number in self._owned and _identity(number) == self._owned[number]:
            return True
        try:
            root = os.open("/", os.O_PATH | os.O_CLOEXEC)
            try:
                got = fcntl.fcntl(root, fcntl.F_DUPFD_CLOEXEC, number)
            finally:
                os.close(root)
        except OSError:  # the limit of open files is lower
            return False
        known = _identity(got)
        if got != number or known is None or not _is_seen(number, known):
            os.close(got)
            return False
        self._owned[number] = known
        return True

    @contextlib.contextmanager
    def open(self, named: Sequence[Named]) -> Iterator[bool]:
        """Open directories under their numbers during the block. Yield False if that is not possible.

        Threads with the same directories run concurrently, and a thread with other directories waits.

        Raises:
            Ended: the work of this thread was stopped.
        """
        wanted = tuple(named)
        with self._changed:
            while self._inside and self._open != wanted:
                stop = current_stop()
                if stop is not None and stop.is_requested:
                    raise Ended
                self._changed.wait(_SLICE_S)
            are_open = bool(self._inside) or all(map(self._bind, wanted))
            self._open = wanted
            self._inside += are_open
        try:
            yield are_open
        finally:
            with self._changed:
                self._inside -= are_open
                self._changed.notify_all()

    def _bind(self, named: Named) -> bool:
        if not self._take(named.number):
            return False
        try:
            fd = os.open(named.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:  # a directory that is not there has no files that an image could name
            fd = os.open("/proc/self/fdinfo", os.O_PATH | os.O_CLOEXEC)
        try:
            os.dup2(fd, named.number, inheritable=False)
        finally:
            os.close(fd)
        known = _identity(named.number)
        assert known is not None
        self._owned[named.number] = known
        return True


def _identity(fd: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(fd)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _is_seen(number: int, known: tuple[int, int]) -> bool:
    try:
        status = os.stat(_ALIAS.format(number))
    except OSError:  # no /proc
        return False
    return (status.st_dev, status.st_ino) == known


@once
def aliases() -> Aliases:
    """Return the directory numbers of this process."""
    return Aliases()
