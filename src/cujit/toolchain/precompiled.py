"""Precompiled headers: where NVRTC writes them, when it pays, and the heap that it makes them in.

NVRTC takes a precompiled header although a header in memory, or a file of the same size, has other text since
(measured, 13.5). So each lies in a directory of its own, named by content after everything that the compiler reads
before the first declaration. It holds addresses of its process, so the directories are the process's own, too.

``benchmarks/pch.py`` measures what a header costs to precompile and saves. It is as large as the memory of the front
end: 240 MiB to 330 MiB for headers of CCCL. NVRTC's heap has 256 MiB at first, and it does not tell if that is too
little.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator

from cujit.errors import CompileWarning, ToolError, warn
from cujit.forks import Lock, once, register_reset
from cujit.toolchain import nvrtc
from cujit.toolchain.nvrtc import Program

NO_ROOM = "unable to obtain mapped memory"
"""What NVRTC's log says if the file system has no room for the precompiled header. Source: measured, 13.5."""

HEAP_BYTES = 1 << 30
"""The heap before anything has needed more. Only what is used of it takes memory."""

_PREFIX = "cujit-pch-"
_AUTOMATIC_COMPILES = 2
_AUTOMATIC_S = 0.5
_FREE_BYTES = 8 << 30
_MOST_DIRECTORIES = 2
_MOST_SEEN = 256
_EXHAUSTED = nvrtc.nvrtcResult.NVRTC_ERROR_PCH_CREATE_HEAP_EXHAUSTED


class PrecompiledHeaders:
    """The precompiled headers of a process, for any number of threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._root = ""
        self._fd = -1
        self._directories: dict[str, str] = {}
        self._seen: dict[str, tuple[int, float]] = {}
        self._inside = 0
        self._heap_bytes = HEAP_BYTES
        self._has_room = True
        register_reset(self)
        atexit.register(self.close)

    def after_fork(self) -> None:
        """Begin again in a forked child: the directories are its parent's."""
        if self._fd >= 0:
            os.close(self._fd)
        self._root, self._fd, self._directories, self._inside = "", -1, {}, 0

    def close(self) -> None:
        """Remove the directories."""
        with self._lock:
            root, self._root, self._directories = self._root, "", {}
            fd, self._fd = self._fd, -1
        if root:
            shutil.rmtree(root, ignore_errors=True)
            os.close(fd)

    @contextlib.contextmanager
    def of(self, name: str, is_wanted: bool | None) -> Iterator[Compile]:
        """Open a compile whose headers are known by a name; ``is_wanted`` is None where it is for cujit to decide.

        After a compile that failed with ``NO_ROOM``, no other one gets a precompiled header.
        """
        directory = "" if is_wanted is False or not name else self._enter(name, bool(is_wanted))
        compile = Compile(directory, bool(is_wanted))
        try:
            yield compile
        except ToolError as e:
            if directory and NO_ROOM in e.log:
                self._has_room = False
                if is_wanted:
                    warn(
                        f"the headers are not precompiled because {self._root} doesn't have enough space",
                        CompileWarning,
                    )
            raise
        finally:
            with self._lock:
                self._inside -= bool(directory)
                self._heap_bytes = max(self._heap_bytes, compile.needed_bytes)
                if not directory and name:
                    count, seconds = self._seen.pop(name, (0, 0.0))
                    self._seen[name] = count + 1, seconds + compile.seconds
                    while len(self._seen) > _MOST_SEEN:
                        del self._seen[next(iter(self._seen))]

    def discard(self, name: str) -> None:
        """Remove the precompiled headers of changed files, by a prefix of their names."""
        with self._lock:
            directories = [self._directories.pop(known) for known in [*self._directories] if known.startswith(name)]
        for directory in directories:
            shutil.rmtree(directory, ignore_errors=True)

    def _enter(self, name: str, is_wanted: bool) -> str:
        with self._lock:
            if not self._has_room:
                return ""
            try:
                directory = self._directories.pop(name, "")
                if not directory:
                    if not (is_wanted or self._pays(name)):
                        return ""
                    directory = self._made(name)
                self._directories[name] = directory
                if not self._has_heap():
                    return ""
            except (OSError, nvrtc.nvrtcError):  # no room, or an NVRTC without them, which costs time and nothing else
                return ""
            self._inside += 1
            return directory

    def _pays(self, name: str) -> bool:
        count, seconds = self._seen.get(name, (0, 0.0))
        if count < _AUTOMATIC_COMPILES or seconds < count * _AUTOMATIC_S:
            return False
        room = os.statvfs(self._root or tempfile.gettempdir())
        return room.f_bavail * room.f_frsize >= _FREE_BYTES

    def _made(self, name: str) -> str:
        if not self._root:
            _sweep()
            self._root = tempfile.mkdtemp(prefix=_PREFIX)  # in place: NVRTC writes there
            self._fd = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        while len(self._directories) >= _MOST_DIRECTORIES:
            shutil.rmtree(self._directories.pop(next(iter(self._directories))), ignore_errors=True)
        directory = f"{self._root}/{name}"
        os.makedirs(directory, 0o700, exist_ok=True)
        return directory

    def _has_heap(self) -> bool:
        """Set the required size of the heap. NVRTC frees the old heap, so no compile may be using it."""
        result, size = nvrtc.nvrtcGetPCHHeapSize()
        if result or size >= self._heap_bytes or self._inside:
            return not result
        for directory in self._directories.values():  # they hold addresses in the old heap
            for file in os.listdir(directory):
                os.unlink(f"{directory}/{file}")
        (result,) = nvrtc.nvrtcSetPCHHeapSize(self._heap_bytes)
        return not result


class Compile:
    """One compile, with the arguments for its precompiled header."""

    def __init__(self, directory: str, is_wanted: bool) -> None:
        self._is_wanted = is_wanted
        self.arguments = [f"--pch-dir={directory}", "--pch", "--pch-messages=false", "--pch-verbose=false"]
        self.arguments = self.arguments if directory else []
        self.needed_bytes = 0
        self.seconds = 0.0

    @contextlib.contextmanager
    def measured(self, program: Program) -> Iterator[None]:
        """Time the block, which compiles, and query the status of the precompiled header."""
        begin = time.thread_time()
        yield
        self.seconds += time.thread_time() - begin
        if self.arguments and nvrtc.nvrtcGetPCHCreateStatus(program.raw)[0] == _EXHAUSTED:
            result, needed = nvrtc.nvrtcGetPCHHeapSizeRequired(program.raw)
            self.needed_bytes = 0 if result else needed + needed // 4
            if self._is_wanted and self.needed_bytes:
                warn(
                    "the headers are not precompiled: NVRTC's heap was too small. "
                    f"It has {self.needed_bytes >> 20} MiB for the next compile",
                    CompileWarning,
                )


@once
def precompiled_headers() -> PrecompiledHeaders:
    """Return the precompiled headers of the process."""
    return PrecompiledHeaders()


def _sweep() -> None:
    """Remove the directories of killed processes, whose locks are free."""
    parent = tempfile.gettempdir()
    for name in os.listdir(parent):
        if name.startswith(_PREFIX):
            with contextlib.suppress(OSError):
                _remove_dead(f"{parent}/{name}")


def _remove_dead(directory: str) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(fd).st_uid == os.geteuid():
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory, ignore_errors=True)
    finally:
        os.close(fd)
