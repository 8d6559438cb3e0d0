"""Trust in cache directories: the owner of each directory and entry, and the users who can write to them.

The writer of an entry controls what runs on the GPU. cujit therefore reads a cache only if nobody except its user,
root, and one group on request can have written to it.
"""

from __future__ import annotations

import array
import contextlib
import os
import stat

from cujit.errors import CacheRefusedError, OptionError, spell
from cujit.forks import cached_property
from cujit.values import dataclass
from cujit.values.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_GROUP_WRITES, _ALL_WRITE = stat.S_IWGRP, stat.S_IWOTH


@dataclass(frozen=True)
class Trust:
    """Trusted writers: ``owners`` are user ids, and ``gid`` is a group that shares the cache, or None.

    ``owners`` includes the owner of ``/``, which is root or replaces root in a container without it.
    """

    uid: int
    owners: frozenset[int]
    gid: int | None = None

    @classmethod
    def of_process(cls, trusted_gid: int | None = None) -> Trust:
        """Return trust in this process's user, root, and the group ``trusted_gid``, if any.

        Raises:
            OptionError: the group id is invalid.
        """
        if trusted_gid is not None and (type(trusted_gid) is not int or trusted_gid < 0):
            raise OptionError(
                f"trusted_gid is {spell(trusted_gid)}, expected a numeric group ID",
                help="write trusted_gid=grp.getgrnam('…').gr_gid",
            )
        uid = os.geteuid()
        owners = {0, uid}
        with contextlib.suppress(OSError):
            owners.add(os.stat("/").st_uid)
        return cls(uid, frozenset(owners), trusted_gid)

    @cached_property
    def words(self) -> bytes:
        """The same for native code, in words of 32 bits: whether there is a group, the group, and the owners."""
        gid = (0, 0) if self.gid is None else (1, self.gid)
        return array.array("I", [*gid, *sorted(self.owners)]).tobytes()

    @property
    def directory_mode(self) -> int:
        """The mode of new directories: for the user only, or also for the group."""
        return 0o700 if self.gid is None else 0o2770

    @property
    def file_mode(self) -> int:
        """The mode of the files that are made."""
        return 0o600 if self.gid is None else 0o660

    def objection(self, status: os.stat_result) -> str:
        """Describe why a file or directory is not trusted, as the end of a sentence. Empty if it is trusted."""
        group = status.st_gid == self.gid  # None equals no group
        if status.st_uid not in self.owners and not group:
            return f"belongs to user {status.st_uid}, not to user {self.uid}"
        if status.st_mode & _ALL_WRITE:
            return "is writable by everyone"
        if status.st_mode & _GROUP_WRITES and not group:
            return f"is writable by group {status.st_gid}"
        return ""

    def check_root(self, root: Path | str) -> None:
        """Check every directory on the way to ``root``, and ``root``, as written and as symbolic links lead.

        What does not exist is not checked. A directory above that everyone may write to must be sticky, as /tmp is.
        A link on the way must belong to an owner that is believed.

        Raises:
            CacheRefusedError: one of them can be changed by others: the message says which, ``help`` how to end that.
            OSError: one of them cannot be looked at.
        """
        written = resolved = os.path.abspath(root)
        steps = _steps(written)
        if any(stat.S_ISLNK(status.st_mode) for _, status in steps):
            resolved = os.path.realpath(written)
            steps += _steps(resolved)
        for directory, status in steps:
            self._check_step(directory, status, last=directory == resolved)

    def _check_step(self, directory: str, status: os.stat_result, *, last: bool) -> None:
        link = stat.S_ISLNK(status.st_mode)
        if not link and not stat.S_ISDIR(status.st_mode):
            raise CacheRefusedError(f"the cache path {directory} is not a directory", help=_ELSEWHERE)
        objection = self.objection(status)
        harmless = link or (not last and status.st_mode & stat.S_ISVTX)  # the mode of a link says nothing
        if not objection or (harmless and status.st_uid in self.owners):
            return
        raise CacheRefusedError(f"the cache directory {directory} {objection}", help=_remedy(directory, status))

    def may_write(self, root: Path | str) -> bool:
        """Return whether this user should write to a root. The superuser never writes to another user's cache.

        Raises:
            OSError: ``root`` can't be inspected.
        """
        return self.uid != 0 or os.stat(root).st_uid in self.owners


def _steps(path: str) -> list[tuple[str, os.stat_result]]:
    """Yield the status of each existing directory on an absolute path."""
    steps, names = [], path.split("/")  # text, for pathlib would take four times as long
    with contextlib.suppress(FileNotFoundError):
        for count in range(1, len(names) + 1 if path != "/" else 2):
            directory = "/".join(names[:count]) or "/"
            steps.append((directory, os.lstat(directory)))
    return steps


_ELSEWHERE = "CUJIT_CACHE_DIR=<a directory of yours>"


def _remedy(directory: str, status: os.stat_result) -> str:
    writers = "".join(
        letter for bit, letter in ((_GROUP_WRITES, "g"), (_ALL_WRITE, "o")) if stat.S_IMODE(status.st_mode) & bit
    )
    is_shared = status.st_mode & stat.S_ISVTX  # as /tmp is, on purpose
    if status.st_uid == os.geteuid() and writers and not is_shared:
        import shlex  # start-up: for who has such a directory

        return f"chmod {writers}-w {shlex.quote(directory)}"
    return _ELSEWHERE
