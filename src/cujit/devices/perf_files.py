"""Files that describe machine code to profilers if ``CUJIT_PERF`` requests it: function names and lines for perf.

Debuggers need only the debug information in the objects, because LLVM registers each object that it loads with gdb.

Source: Linux, ``tools/perf/Documentation``, "jit-interface.txt" (maps) and "jitdump-specification.txt".
"""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import os
import stat
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cujit.artifact.writing import write_file
from cujit.devices.jit import NativeFunction
from cujit.devices.line_table import CodeLine, code_lines
from cujit.devices.perf import PERF_VARIABLE
from cujit.errors import FileError
from cujit.forks import Lock, once, register_reset
from cujit.formats.elf import Elf, ElfSymbol, read_elf
from cujit.values import NamedTuple

_MAPS = Path("/tmp")  # where perf looks for maps, whatever TMPDIR says
_OURS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC  # in place: perf reads what grows

_LOAD, _LINES = 0, 2
_FILE_HEADER = struct.Struct("<IIIIIIQQ")
_RECORD_HEADER = struct.Struct("<IIQ")
_LOADED = struct.Struct("<IIQQQQ")
_LINE_COUNT = struct.Struct("<QQ")
_LINE = struct.Struct("<QII")
_MAGIC, _FORMAT = 0x4A695444, 1


def ptx_path(text: str) -> Path:
    """Write PTX to a file for profilers and debuggers, unless the file exists, and return its path.

    Equal texts have equal paths.

    Raises:
        FileError: the file can't be written.
    """
    data = text.encode()
    path = _folder() / f"{hashlib.sha256(data).hexdigest()[:16]}.ptx"
    with _writing(path):
        if not path.exists():
            write_file(path, data)
    return path


def tell(object_: bytes, symbol: str, code: NativeFunction, called: Callable[[str], str]) -> None:
    """Report the functions of a loaded object to perf. ``symbol`` is one of them, and ``called`` returns display names.

    Raises:
        FileError: a file for perf can't be written.
    """
    elf, lines = read_elf(object_), code_lines(object_)
    begin = code.code[0]
    functions = [
        _Function(
            called(each.name),
            begin + each.value,
            each.size,
            [line._replace(offset=begin + line.offset) for line in lines if 0 <= line.offset - each.value < each.size],
        )
        for each in _functions(elf, symbol)
    ]
    _announced().add(functions, elf.machine)


class _Function(NamedTuple):
    """One function in memory; ``lines`` with addresses."""

    name: str
    address: int
    size: int
    lines: list[CodeLine]


def _functions(elf: Elf, symbol: str) -> list[ElfSymbol]:
    """Return the functions in the same section as the function ``symbol``, in the order of their offsets."""
    symbols = elf.symbols()
    section = next(each.section for each in symbols if each.name == symbol)
    found = (each for each in symbols if each.type == ElfSymbol.FUNCTION and each.section == section)
    return sorted(found, key=lambda each: each.value)


class _Announced:
    """The files of this process, opened when there is something to write; a forked child has its own."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._map: list[str] = []
        self._dump: _Dump | None = None
        register_reset(self)

    def add(self, functions: list[_Function], machine: int) -> None:
        with self._lock:
            rows = [f"{each.address:x} {each.size:x} {each.name}\n" for each in functions]
            self._map += rows
            _append_to_map(rows)
            if self._dump is None:
                self._dump = _Dump(machine)
            self._dump.add(functions)

    def after_fork(self) -> None:
        """Report the code that the child inherits from its parent. perf knows the parent's dump."""
        self._dump = None
        with suppress(FileError):
            _append_to_map(self._map)


@once
def _announced() -> _Announced:
    return _Announced()


def _append_to_map(rows: Iterable[str]) -> None:
    """Append rows to the perf map of this process, which CPython and others also write.

    Rows from an earlier process with the same process ID are removed.
    """
    path = _MAPS / f"perf-{os.getpid()}.map"
    flags = _OURS | os.O_APPEND  # in place: CPython adds lines, too
    with _writing(path), os.fdopen(os.open(path, flags, 0o600), "w") as file:
        status = os.fstat(file.fileno())
        _require_ours(status, path)
        if status.st_mtime < _began_s():
            file.truncate(0)
        file.write("".join(rows))


def _began_s() -> float:
    """Return when this process began, in seconds since 1970. Source: proc(5), "/proc/pid/stat", field 22."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")


class _Dump:
    """The file that ``perf inject --jit`` reads: code, names and lines. ``machine`` is of the ELF header."""

    def __init__(self, machine: int) -> None:
        path = _folder() / f"jit-{os.getpid()}.dump"
        with _writing(path):
            self._file = os.fdopen(os.open(path, _OURS | os.O_TRUNC, 0o600), "wb")  # in place: perf maps it
            head = (_MAGIC, _FORMAT, _FILE_HEADER.size, machine, 0, os.getpid(), time.monotonic_ns(), 0)
            self._file.write(_FILE_HEADER.pack(*head))
            self._file.flush()
            # By this mapping perf finds the file: it records what becomes executable.
            self._mark = mmap.mmap(self._file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC)
        self._count = 0

    def add(self, functions: Iterable[_Function]) -> None:
        for each in functions:
            if each.lines:
                self._record(_LINES, _lines_record(each))
            self._count += 1
            self._record(_LOAD, _code_record(each, self._count))
        self._file.flush()

    def _record(self, kind: int, content: bytes) -> None:
        self._file.write(_RECORD_HEADER.pack(kind, _RECORD_HEADER.size + len(content), time.monotonic_ns()) + content)


def _lines_record(function: _Function) -> bytes:
    """Return the record of a function's lines. Code without a line belongs to the previous line."""
    known = [line for line in function.lines if line.line]
    rows = [_LINE.pack(line.offset, line.line, 0) + line.file.encode() + b"\0" for line in known]
    return _LINE_COUNT.pack(function.address, len(rows)) + b"".join(rows)


def _code_record(function: _Function, number: int) -> bytes:
    at, size = function.address, function.size
    head = _LOADED.pack(os.getpid(), threading.get_native_id(), at, at, size, number)
    return head + function.name.encode() + b"\0" + ctypes.string_at(at, size)


def _folder() -> Path:
    """Return the folder of dumps and PTX, closed to other users.

    Raises:
        FileError: it cannot be made, or is another user's.
    """
    path = Path(tempfile.gettempdir()) / f"cujit-perf-{os.geteuid()}"
    with _writing(path):
        path.mkdir(0o700, exist_ok=True)
        status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise FileError(
            f"{path} is not a directory", filename=str(path), help="set TMPDIR to a directory that you can write to"
        )
    _require_ours(status, path)
    return path


def _require_ours(status: os.stat_result, path: Path) -> None:
    if status.st_uid != os.geteuid():
        raise FileError(f"{path} belongs to another user", filename=str(path), help=f"unset {PERF_VARIABLE}")


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Convert an OSError from the body to a FileError that contains the path.

    Raises:
        FileError: the body raised an OSError.
    """
    try:
        yield
    except OSError as e:
        if isinstance(e, FileError) and e.help:
            raise
        raise FileError(
            f"can't write {path}, which {PERF_VARIABLE} requires: {os.strerror(e.errno or 0)}",
            filename=str(path), errno=e.errno,
            help=f"unset {PERF_VARIABLE}, or set TMPDIR to a directory that you can write to",
        ) from e  # fmt: skip
