"""The separate processes: a server process is ready, and each forked process runs one saved launch
with minimal rights.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import importlib
import json
import os
import pkgutil
import selectors
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cujit.artifact import Artifact, ImageKind
from cujit.devices.device import Device
from cujit.devices.process import process_devices
from cujit.devices.watch import Text, known_to
from cujit.errors import ArgumentError, CujitError, KernelFaultError, LoadError, NameNotFoundError, ToolError, counted
from cujit.errors.hints import Hint
from cujit.formats.saved_launch import SavedLaunch, read_saved
from cujit.loading import Module, load
from cujit.reproducer.fork_server import LENGTH, STATUS
from cujit.reproducer.sandbox import end_with_parent, give_up_rights, limit_memory, limit_resources
from cujit.values import attributes

if TYPE_CHECKING:
    from cujit.devices.arrays.array import DeviceArray
    from cujit.devices.cpu.observe.profile import Profile
    from cujit.devices.cpu.observe.trace import Trace

NAME = "cujit-launch"
"""What ``ps`` and ``top`` call a process that runs a launch."""

_ANSWERS = 3
"""The descriptor for answers."""

_IDLE_S = 60.0
"""Seconds without a launch until the process that is ready ends: it has 100 MB."""


# -- the process that is ready ----------------------------------------------------------------------------------


def serve(orders: int, kind: str) -> None:
    """Prepare for launches on a ``cpu`` or ``gpu``, and fork a process for each request on the socket ``orders``."""
    if kind == "cpu":
        _import_all()
    _Server(socket.socket(fileno=orders)).run()


class _Server:
    """Forks processes. Each process has a pipe from its requester, who closes the pipe to have the process killed."""

    def __init__(self, orders: socket.socket) -> None:
        self._orders: socket.socket | None = orders
        self._lines: dict[int, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(orders, selectors.EVENT_READ, self._take)
        ended, wakes = socket.socketpair()
        wakes.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakes.fileno())
        self._pairs = ended, wakes
        self._selector.register(ended, selectors.EVENT_READ, self._reap)

    def run(self) -> None:
        """Fork until no more requests can come, or none came for a while, and every process has ended."""
        while self._orders or self._lines:
            ready = self._selector.select(None if self._lines else _IDLE_S)
            for key, _ in ready:
                key.data()
            if not ready and self._orders:
                self._orders.shutdown(socket.SHUT_RD)  # an order that was on its way is there, and the last one

    def _take(self) -> None:
        assert self._orders
        data, files, *_ = socket.recv_fds(self._orders, 1, 5)
        if not data:
            self._selector.unregister(self._orders)
            self._orders = None
            return
        parent = os.getpid()
        process = os.fork()
        if not process:
            _become(files)
            main(_ANSWERS, parent)
        for file in files[:-1]:
            os.close(file)
        line = self._lines[process] = socket.socket(fileno=files[-1])
        self._selector.register(line, selectors.EVENT_READ, functools.partial(self._kill, process))

    def _kill(self, process: int) -> None:
        if process in self._lines:  # else it has ended meanwhile
            self._selector.unregister(self._lines[process])
            os.kill(process, signal.SIGKILL)

    def _reap(self) -> None:
        self._pairs[0].recv(64)
        while self._lines:
            process, status = os.waitpid(-1, os.WNOHANG)
            if not process:
                return
            with self._lines.pop(process) as line:
                with contextlib.suppress(KeyError):  # it was killed
                    self._selector.unregister(line)
                with contextlib.suppress(OSError):  # nobody listens any more
                    line.send(STATUS.pack(os.waitstatus_to_exitcode(status)))


def _become(files: Sequence[int]) -> None:
    """Install files as standard input, output, error, and answers. Close all other files of the server."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    kept = [fcntl.fcntl(file, fcntl.F_DUPFD, max(files) + 1) for file in files[:4]]
    for to, file in enumerate(kept):
        os.dup2(file, to)
    os.closerange(_ANSWERS + 1, os.sysconf("SC_OPEN_MAX"))
    with contextlib.suppress(OSError):  # a container may have no /proc
        Path("/proc/self/comm").write_text(NAME)  # in place: a name of the kernel's


# -- one launch -------------------------------------------------------------------------------------------------


def main(answers: int, parent: int) -> None:
    """Read the request and the saved launch from standard input, and answer on a descriptor."""
    data = sys.stdin.buffer
    request: dict[str, Any] = json.loads(data.read(LENGTH.unpack(data.read(LENGTH.size))[0]))
    end_with_parent(parent)
    answer: dict[str, Any] = {"without_filter": ""}
    memory: list[bytes] = []
    try:
        run = Run(request)
        if not run.device.is_gpu:
            # Before anything runs: the CPU device has wide guards where addresses are not limited.
            limit_memory(request["memory_mib"])
            try:
                _ready(run.device)
            except CujitError as e:
                if isinstance(e.__cause__, MemoryError | OSError):
                    raise MemoryError from e
                raise
            answer["without_filter"] = _enter(request)
        saved = read_saved(data.read())
        memory = run.launch(saved, answer)
    except MemoryError:
        message = f"{request['kernel']}: there is not enough memory"
        answer["error"] = {"class": "ToolCrashError", "message": message, "result": "MemoryError"}
    except CujitError as e:
        answer["error"] = _facts(e)
    except Exception as e:
        answer["error"] = {"class": "CujitError", "message": f"a fault of cujit in the separate process: {e!r}"}
    sys.stdout.flush()
    reply = json.dumps(answer).encode()
    with os.fdopen(answers, "wb") as file:
        file.write(LENGTH.pack(len(reply)) + reply)
        for block in memory:
            file.write(block)
    sys.stdout.flush()
    os._exit(0)  # threads of the kernel may still run


def _facts(error: CujitError) -> dict[str, Any]:
    """Write an error in plain values."""
    name = next(cls.__name__ for cls in type(error).__mro__ if cls.__module__ == CujitError.__module__)
    known: dict[str, Any] = {"class": name, "message": error.message, "help": error.help, "code": error.code}
    if isinstance(error.help, Hint):
        known["shell"] = error.help.shell
    if isinstance(error, KernelFaultError):
        known |= attributes(error, "kind kernel block thread line address source")
        known["story"] = error.story and error.story.to_json()
    return known | (error.facts if isinstance(error, ToolError) else {})


def _enter(request: Mapping[str, Any]) -> str:
    """Drop all rights. If the system has no filters, and that was allowed, return why."""
    os.environ["CUJIT_CACHE"] = "0"
    limit_resources(request["cpu_s"])
    why = ""
    try:
        give_up_rights()
    except CujitError as e:
        if not request["trusted"]:
            raise
        why = e.message
    return why


# -- what has to be there before no file is opened any more ----------------------------------------------------

_TINY = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry tiny(.param .u64 p) { .reg .b64 %rd<2>; .reg .b32 %r<2>;
  ld.param.u64 %rd1, [p]; ld.global.u32 %r1, [%rd1]; st.global.u32 [%rd1], %r1; trap; }
"""


_LATE = ("copy", "dataclasses", "difflib", "elftools.elf.elffile", "inspect")
"""What modules of ours import when somebody needs it."""


def _import_all() -> None:
    """Import and load all that a launch, and the words of a fault, may need."""
    for name in ("cujit.devices", "cujit.formats", "cujit.events", "cujit.compiler.inputs"):
        package = importlib.import_module(name)
        for found in pkgutil.walk_packages(package.__path__, f"{name}."):
            if ".cuda" not in found.name:
                importlib.import_module(found.name)
    for name in _LATE:
        importlib.import_module(name)
    from cujit.devices.cpu.native.library import PARTS, address_of  # after the rest: only where the CPU device runs
    from cujit.devices.jit import compile_ir  # as above

    for part in PARTS:
        address_of(part.symbols[0])
    # Kernels from the cache need no llvmlite, and a process without rights can open none.
    compile_ir("define i32 @ready() {\n  ret i32 0\n}\n", "ready")


def _ready(device: Device) -> None:
    """Execute all steps of a launch on this device once, including a fault at its end."""
    array = device.zeros(1, np.uint32)
    try:
        load(_TINY, device)["tiny"][1, 1](array)
    except KernelFaultError as e:
        str(e)


# -- the launch -------------------------------------------------------------------------------------------------


class Run:
    """A launch with its requested options."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        self.trace: Trace | None = None
        self.profile: Profile | None = None
        self.device = process_devices().named(request["device"])
        if not self.device.is_gpu:
            self.device = self._watching(request)

    def _watching(self, request: Mapping[str, Any]) -> Device:
        """Create the requested CPU device."""
        # after the choice: a GPU does without them
        from cujit.devices.cpu.observe.profile import Profile
        from cujit.devices.cpu.observe.trace import Trace

        if request["trace"] is not None:
            block, thread, most = request["trace"]
            self.trace = Trace(block, thread, limit=most)
        self.profile = Profile() if request["profile"] else None
        watchers = [watcher for watcher in (self.trace, self.profile) if watcher is not None]
        return process_devices().cpu(None, watchers, check=request["check"], timeout_s=request["timeout_s"])

    def launch(self, saved: SavedLaunch, answer: dict[str, Any]) -> list[bytes]:
        """Run the launch. Return the memory that it changed, and put the rest into ``answer``."""
        for watcher in (self.trace, self.profile):
            if watcher is not None:
                watcher.clear()  # of what made ready
        module = self._load(saved)
        answer |= {"route": module.route, "device": self.device.name, "product": self.device.product}
        kernel = module[saved.lowered]
        arrays = [self._array(saved, number) for number in range(len(saved.memory))]
        self._restore(module, saved)
        signature = kernel.signature
        if len(signature) != len(saved.arguments):
            takes = counted(len(signature), "parameter")
            raise ArgumentError(f"{saved.kernel} has {takes} in its image, but {len(saved.arguments)} were saved")
        buffer = bytearray(signature.size)
        for parameter, offset, argument in zip(signature, signature.offsets, saved.arguments, strict=True):
            if parameter.size != len(argument.data):
                raise ArgumentError(
                    f"{saved.kernel}: the saved value of {argument.type} is {len(argument.data)} bytes long"
                )
            place, value = argument.place, argument.data
            if place is not None:
                at = arrays[place.block].address + saved.memory[place.block].skip + place.offset
                value = at.to_bytes(len(argument.data), "little")
            buffer[offset : offset + parameter.size] = value
        launch = kernel.prepare(
            saved.grid,
            saved.block,
            shared_bytes=saved.shared_bytes,
            cluster=saved.cluster,
            cooperative=saved.cooperative,
        )
        answer["launched"] = not self.device.is_gpu  # from here on the kernel may write where it likes
        begin = time.perf_counter()
        try:
            launch.packed(bytes(buffer))
            self.device.synchronize()
        except KernelFaultError as e:
            answer["error"] = _facts(e)  # what the kernel did until then is there to be looked at
        answer["seconds"] = time.perf_counter() - begin
        if self.trace is not None:
            answer["trace"] = {"text": str(self.trace), "launches": [each.to_json() for each in self.trace.launches]}
        if self.profile is not None and self.profile.kernels:
            answer["profile"] = self.profile.kernels[0].to_json()
        return [array.numpy()[block.skip :].tobytes() for array, block in zip(arrays, saved.memory, strict=True)]

    def _load(self, saved: SavedLaunch) -> Module:
        """Load the first image that runs here. The CPU device uses the last, which contains the most information."""
        names = {} if saved.kernel == saved.lowered else {saved.kernel: saved.lowered}
        texts = {text.name: Text(text.shown, text.text) for text in saved.texts}
        refused: CujitError = LoadError("the saved launch doesn't contain an image")
        for data in saved.images if self.device.is_gpu else reversed(saved.images):
            image = Artifact.of(data, name="the saved image")
            if image.kind is ImageKind.TUNING:
                continue
            image = Artifact(image.kind, image.data, names=names, name=image.name)
            try:
                with known_to(self.device.backend.watchers, texts):
                    return load(image, self.device)
            except LoadError as e:
                refused = e
        raise refused

    def _restore(self, module: Module, saved: SavedLaunch) -> None:
        """Set the variables of the module. An image may lack unused variables."""
        for name, data in saved.variables:
            try:
                variable = module.variable(name)
            except NameNotFoundError:
                continue
            if variable.nbytes != len(data):
                raise ArgumentError(
                    f"the saved value of the variable {name} is {len(data)} bytes long, but the variable is "
                    f"{variable.nbytes}"
                )
            variable.copy_from(np.frombuffer(data, np.uint8))

    def _array(self, saved: SavedLaunch, number: int) -> DeviceArray:
        """Copy a memory block to the device with its original offset from a multiple of 256 bytes."""
        data, skip = saved.memory[number]
        array = self.device.empty(skip + len(data), np.uint8)
        self.device.upload(array.address + skip, memoryview(data))
        here = [f"{k} ({a.type})" for k, a in enumerate(saved.arguments, 1) if a.place and a.place.block == number]
        words = f"the {len(data):,} bytes of argument{'s' * (len(here) > 1)} {' and '.join(here)}"
        self.device.backend.called(array.address, words)
        return array
