"""Saved launches run in a separate process. It may loop, crash, or write anywhere without affecting this process.

The separate process receives the file and returns data, which is untrusted: this process unpickles nothing and checks
every size before it allocates memory.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import selectors
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cujit.artifact.reading import file_errors, path_of, read_file, shown_path
from cujit.devices.cpu.observe.measures import ProfiledKernel
from cujit.devices.options import check_timeout
from cujit.devices.process import is_device_name
from cujit.errors import (
    ArgumentError,
    CujitError,
    FormatError,
    KernelFaultError,
    OptionError,
    ToolCrashError,
    ToolError,
    ToolTimeoutError,
    read_int,
    spell,
)
from cujit.errors.hints import Hint
from cujit.errors.stories import Story
from cujit.formats.saved_launch import MAX_FILE_BYTES, SavedArgument, SavedLaunch, read_saved, write_saved
from cujit.machine import default_device
from cujit.reproducer.fork_server import LENGTH, STATUS, ForkServer, fork
from cujit.values import dataclass
from cujit.workers.answers import printable, read_answer
from cujit.workers.process import how_ended

TIMEOUT_S = 60.0
TRACE_LIMIT = 100_000
OUTPUT_BYTES = 1 << 20
"""What is kept of what a kernel prints."""

_TOOL = "the separate process"
_READY_S = 60.0
"""Seconds beyond the launch's own: to start, compile, and say where the blocks of a launch stood that was ended."""
_KILL_S = 30.0
"""Seconds until a process that is to be killed is, after which the server is at fault."""
_MEMORY_MIB = 4096
_COPIES = 6
"""How often the memory of a launch is in the process apart while it is read, run and sent."""
_ANSWER_BYTES = 256 << 20
_WORDS_BYTES = 4096
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Rerun:
    """What a saved launch did when it was run again.

    ``arguments`` are NumPy arrays as the kernel left them (bytes where NumPy has no such elements), and the bytes of
    every other parameter. ``device``, ``product`` and ``route`` say where and how it ran, ``seconds`` how long the
    launch took. ``printed`` is what the kernel printed, of which ``dropped_bytes`` more are not kept. ``trace`` has the
    text and the values, ``profile`` the costs, where they were asked for. ``error`` is what ended the launch early.
    ``without_filter`` is why the system calls of the process were not filtered, "" if they were, or on a GPU.

    Example::

        rerun = cujit.reproducer.run("bug.launch", device="cpu")
        print(rerun.arguments[2], rerun.printed)
    """

    saved: SavedLaunch
    device: str
    product: str
    route: str
    seconds: float
    arguments: tuple[npt.NDArray[Any] | bytes, ...]
    printed: str = ""
    dropped_bytes: int = 0
    trace: Mapping[str, Any] | None = None
    profile: ProfiledKernel | None = None
    error: CujitError | None = None
    without_filter: str = ""


def open(path: str | os.PathLike[str]) -> SavedLaunch:
    """Read a saved launch, and run nothing.

    Args:
        path: path of the file.

    Raises:
        FormatError: it is no saved launch, damaged, cut off, of another version, or says what cannot be.
        OptionError: ``path`` is not a path.
        FileError: the file can't be read.

    Example::

        saved = cujit.reproducer.open("bug.launch")
        assert saved.grid == (4, 1, 1)
    """
    text = path_of(path)
    with contextlib.suppress(OSError):
        if (size := os.stat(text).st_size) > MAX_FILE_BYTES:
            raise FormatError(
                f"{shown_path(text)} is {size:,} bytes long; the maximum for a saved launch is {MAX_FILE_BYTES:,}"
            )
    try:
        return read_saved(read_file(text))
    except FormatError as e:
        raise FormatError(f"{shown_path(text)}: {e.message}", help=e.help) from e


def run(
    saved: SavedLaunch | str | os.PathLike[str],
    *,
    device: str | None = None,
    check: str | None = None,
    trace: tuple[int | Sequence[int], int | Sequence[int]] | None = None,
    profile: bool = False,
    timeout_s: float = TIMEOUT_S,
    memory_mib: int | None = None,
    trusted: bool = False,
) -> Rerun:
    """Run a saved launch in a process apart, which has no rights but its memory.

    Args:
        saved: the file, or what ``open`` made of it.
        device: ``cpu``, ``cuda:0``, …; None is the first GPU, or else the CPU device.
        check: as for ``cujit.cpu(check=…)``; runs on the CPU device.
        trace: block and thread whose instructions are kept; runs on the CPU device.
        profile: count what the launch costs; runs on the CPU device.
        timeout_s: how long the launch may run, in seconds.
        memory_mib: how much address space the process may have on the CPU device, in MiB; None is 4096 and six times
            the launch's memory.
        trusted: go on where the system has no filter of system calls.

    Raises:
        KernelFaultError: a check reported an error, or the kernel failed.
        ToolTimeoutError: it took longer than ``timeout_s``, and did not end when it was asked to.
        ToolCrashError: the process apart died: of a signal, a system call that it may not make, or for want of memory.
        MissingError: the system has no filter of system calls, or no such device.
        LoadError: no image in the file runs on the device.
        FormatError: see ``open``.
        CujitError: whatever else a launch raises.

    Example::

        try:
            cujit.reproducer.run("bug.launch", check="memory")
        except cujit.errors.KernelFaultError as error:
            print(error)
    """
    rerun = run_once(
        saved, device=device, check=check, trace=trace and (*trace, TRACE_LIMIT), profile=profile,
        timeout_s=timeout_s, memory_mib=memory_mib, trusted=trusted,
    )  # fmt: skip
    if rerun.error is not None:
        raise rerun.error
    return rerun


def run_once(
    saved: SavedLaunch | str | os.PathLike[str],
    *,
    device: str | None = None,
    check: str | None = None,
    trace: tuple[int | Sequence[int], int | Sequence[int], int] | None = None,
    profile: bool = False,
    timeout_s: float = TIMEOUT_S,
    memory_mib: int | None = None,
    trusted: bool = False,
) -> Rerun:
    """Run a launch as ``run`` does, but return a kernel's fault as ``Rerun.error`` together with the other results.

    The third number of ``trace`` is its limit.

    Raises:
        CujitError: as ``run``, except for errors that end a launch early.
    """
    launch = saved if isinstance(saved, SavedLaunch) else open(saved)
    name = _device(device, [what for what in (check, trace, profile or None) if what is not None])
    seconds = check_timeout(timeout_s)
    if memory_mib is None:
        memory_mib = _MEMORY_MIB + (_COPIES * launch.memory_bytes >> 20)
    request = {
        "device": name,
        "check": check,
        "trace": trace,
        "profile": profile,
        "timeout_s": seconds,
        "memory_mib": read_int(memory_mib, "memory_mib", OptionError, least=1),
        "cpu_s": math.ceil((seconds + _READY_S) * (os.cpu_count() or 1)),
        "trusted": trusted,
        "kernel": launch.kernel,
    }
    with file_errors():
        return _Child(launch, request).rerun()


def _device(name: str | None, watched: Sequence[object]) -> str:
    """Return the device to run on. Observers require the CPU device."""
    if name is None:
        return "cpu" if watched else default_device().name
    if not isinstance(name, str) or not is_device_name(name):
        raise OptionError(f"unknown device {spell(name)}", help="write 'cpu' or 'cuda:0'", code="option-unknown")
    if name != "cpu" and watched:
        raise ArgumentError(
            f"checks, traces and profiles require the CPU device, not {name}",
            help="remove the check, trace or profile, or replay on 'cpu'",
            code="device-mismatch",
        )
    return name


# -- the process ------------------------------------------------------------------------------------------------


_Take = Callable[[bytes], bool]
"""Takes a piece of what comes; False where it is more than there can be."""


class _Child:
    """A separate process, from its start to its end."""

    def __init__(self, saved: SavedLaunch, request: Mapping[str, Any]) -> None:
        self._saved = saved
        self._request = request
        self._most = _ANSWER_BYTES + saved.memory_bytes
        self._answer = bytearray()
        self._printed = bytearray()
        self._words = bytearray()
        self._dropped = 0

    def rerun(self) -> Rerun:
        """Start the child, read its output until it ends or its time is over, and read the answer."""
        with contextlib.ExitStack() as ours:
            server, line, takes = self._begin(ours)
            is_late = self._listen(takes)
            line.shutdown(socket.SHUT_WR)  # if it lives it is killed
            line.settimeout(_KILL_S)
            received = b""
            with contextlib.suppress(OSError):  # the server is gone, or does not answer
                received = line.recv(STATUS.size)
        status, words = (STATUS.unpack(received)[0], "") if received else server.ended()
        self._take_words(words.encode())
        return self._read(status, is_late)

    def _begin(self, ours: contextlib.ExitStack) -> tuple[ForkServer, socket.socket, dict[int, _Take]]:
        """Return the server that forks the child, the connection to the child, and the reader of each pipe."""
        request = json.dumps(self._request).encode()
        takes: dict[int, _Take] = {}
        with contextlib.ExitStack() as theirs:
            order = theirs.enter_context(os.fdopen(os.memfd_create("cujit-launch"), "wb"))
            order.write(LENGTH.pack(len(request)) + request + write_saved(self._saved))
            order.seek(0)
            files = [order.fileno()]
            for take in (self._take_printed, self._take_words, self._take_answer):
                reading, writing = os.pipe()
                takes[ours.enter_context(os.fdopen(reading, "rb")).fileno()] = take
                files.append(theirs.enter_context(os.fdopen(writing, "wb")).fileno())
            line, far = socket.socketpair()
            ours.enter_context(line)
            files.append(theirs.enter_context(far).fileno())
            server = fork(files, is_gpu=self._request["device"] != "cpu")
        return server, line, takes

    def _listen(self, takes: Mapping[int, _Take]) -> bool:
        """Receive data until every pipe is closed, and return whether the time ended before."""
        until = time.monotonic() + self._request["timeout_s"] + _READY_S
        with selectors.DefaultSelector() as selector:
            for pipe, take in takes.items():
                selector.register(pipe, selectors.EVENT_READ, take)
            while selector.get_map() and (left := until - time.monotonic()) > 0:
                for key, _ in selector.select(left):
                    if not (data := os.read(key.fd, _CHUNK)):
                        selector.unregister(key.fd)
                    elif not key.data(data):
                        return False  # more than there can be
            return bool(selector.get_map())

    def _take_printed(self, data: bytes) -> bool:
        room = OUTPUT_BYTES - len(self._printed)
        self._printed += data[:room]
        self._dropped += max(len(data) - room, 0)
        return True

    def _take_words(self, data: bytes) -> bool:
        self._words = (self._words + data)[-_WORDS_BYTES:]
        return True

    def _take_answer(self, data: bytes) -> bool:
        self._answer += data
        return len(self._answer) <= self._most

    # -- what it said -----------------------------------------------------------------------------------------

    def _read(self, status: int, is_late: bool) -> Rerun:
        """Return the values of the answer.

        Raises:
            ToolTimeoutError, ToolCrashError: there is no answer, or it is malformed.
            CujitError: the launch could not start.
        """
        if is_late:
            raise ToolTimeoutError(
                f"{self._saved.kernel} ran in a separate process for {self._request['timeout_s']:g} s without "
                "finishing",
                tool=_TOOL,
                help=Hint("set a larger timeout_s", shell="set a larger --timeout"),
            )
        if len(self._answer) < LENGTH.size:
            raise self._death(status)
        try:
            size = LENGTH.unpack_from(self._answer)[0] + LENGTH.size
            answer = read_answer(bytes(self._answer[LENGTH.size : size]))
            error = None if "error" not in answer else _error(answer["error"])
            if error is not None and not (isinstance(error, KernelFaultError) and "seconds" in answer):
                # p[-i] = 0 went over the names of a module, and time.perf_counter() was a NameError: the kernel's
                if answer.get("launched") and not isinstance(error, ToolCrashError):
                    raise ValueError(error.message)
                raise error
            blocks = memoryview(self._answer)[size:]
            if len(blocks) != self._saved.memory_bytes:
                raise ValueError(f"received {len(blocks)} bytes of memory, but sent {self._saved.memory_bytes}")
            profile = None if answer.get("profile") is None else ProfiledKernel.from_json(answer["profile"])
            if profile is not None:
                profile.to_json()  # adds up: what is no number shows here
            return Rerun(
                self._saved,
                str(answer["device"]),
                str(answer["product"]),
                str(answer["route"]),
                float(answer["seconds"]),
                self._arguments(blocks),
                self._printed.decode("utf-8", "replace"),
                self._dropped,
                answer.get("trace"),
                profile,
                error,
                str(answer["without_filter"]),
            )
        except (LookupError, TypeError, ValueError, OverflowError, AttributeError, RecursionError) as e:
            if isinstance(e, CujitError):
                raise
            raise ToolCrashError(
                f"{self._saved.kernel}: the separate process sent an invalid answer; its kernel may have "
                "written to arbitrary memory",
                tool=_TOOL,
                log=self._last_words() or f"{type(e).__name__}: {e}",
                help='check="memory" (--check memory) reports the invalid access',
            ) from None

    def _arguments(self, blocks: memoryview) -> tuple[npt.NDArray[Any] | bytes, ...]:
        starts, at = [], 0
        for block in self._saved.memory:
            starts.append(at)
            at += len(block.data)
        return tuple(_argument(argument, blocks, starts) for argument in self._saved.arguments)

    def _last_words(self) -> str:
        return printable(self._words.decode("utf-8", "replace"))

    def _death(self, status: int) -> ToolCrashError:
        name, how = how_ended(status)
        help = 'check="memory" (--check memory) reports the invalid access'
        if name == "SIGSYS":
            how, help = (
                "made a system call that kernels may not make (SIGSYS)",
                "do not run the launch outside this process",
            )
        elif name in ("SIGXCPU", "SIGKILL"):
            help = f"allow more than {self._request['memory_mib']:,} MiB and {self._request['timeout_s']:g} s"
        return ToolCrashError(
            f"{self._saved.kernel}: the separate process {how}",
            tool=_TOOL,
            result=name,
            log=self._last_words(),
            help=help,
        )


def _argument(argument: SavedArgument, blocks: memoryview, starts: Sequence[int]) -> npt.NDArray[Any] | bytes:
    place = argument.place
    if place is None:
        return argument.data
    begin = starts[place.block] + place.offset
    data = bytes(blocks[begin : begin + argument.nbytes])
    if not argument.dtype or argument.shape is None:
        return data
    return np.frombuffer(data, argument.dtype).reshape(argument.shape)


def _error_class(name: str) -> type[CujitError]:
    """Return cujit's error class with a name."""
    found = [CujitError]
    for cls in found:
        found += [below for below in cls.__subclasses__() if below.__module__ == CujitError.__module__]
    return next((cls for cls in found if cls.__name__ == name), CujitError)


def _error(facts: Mapping[str, Any]) -> CujitError:
    """Return the error that the process describes."""
    error = _of_class(facts)
    error.set_code(str(facts.get("code", error.code)))
    if isinstance(error, KernelFaultError) and facts["story"] is not None:
        error.tell(Story.from_json(facts["story"]))
    return error


def _of_class(facts: Mapping[str, Any]) -> CujitError:
    cls = _error_class(str(facts["class"]))
    message, help = str(facts["message"]), facts.get("help")
    help = None if help is None else Hint(str(help), str(facts.get("shell", help)))
    if cls is KernelFaultError:
        error = KernelFaultError(
            message,
            kind=str(facts["kind"]),
            kernel=str(facts["kernel"]),
            block=_three(facts["block"]),
            thread=_three(facts["thread"]),
            line=int(facts["line"]),
            address=None if facts["address"] is None else int(facts["address"]),
            help=help,
        )
        error.source = str(facts["source"])
        return error
    if issubclass(cls, ToolError):
        received = {name: str(facts.get(name, "")) for name in ("tool", "call", "result", "log")}
        return cls(message, **received, help=help)
    return (FormatError if issubclass(cls, FormatError) else cls)(message, help=help)


def _three(given: Any) -> tuple[int, int, int] | None:
    if given is None:
        return None
    x, y, z = map(int, given)
    return x, y, z
