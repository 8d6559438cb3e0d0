"""WorkerPool of a server: one is at work, the newest scene wins, and whoever is behind is killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator

from cujit.explore.scene import LaunchLimits, Scene
from cujit.workers.interpreter import interpreter

_BEGIN = "import sys; sys.path[:] = sys.argv[1:-2]; from cujit.explore.worker import main; main()"
_IDLE = 2
"""WorkerPool that wait: the next scene need not wait for an interpreter to start, nor the one after a kill."""
_MEMORY_MIB = 8192
"""Address space of a worker, or as much as a launch may have: libraries of compilers map much of it."""
_LINE_BYTES = 64 << 20
_LAST = (b'{"stage":"done"', b'{"stage":"failed"')
_COMPILE_S = 120.0
"""Seconds that a scene has beyond the time of its launch."""


class _Worker:
    """One process, and whether somebody wanted its end."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.is_superseded = False
        self.is_late = False

    def kill(self) -> None:
        """End it, and what it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)


class WorkerPool:
    """Looks at scenes, one at a time."""

    def __init__(self, path: str, limits: LaunchLimits) -> None:
        """Look at texts of a file."""
        self._path = path
        self._limits = limits
        self._idle: list[_Worker] = []
        self._busy: _Worker | None = None
        self._starting: set[asyncio.Task[None]] = set()
        self._newest = 0
        self._is_closed = False

    def begin(self, idle: int = 1) -> None:
        """Have workers start beside what else is done, until so many wait."""
        for _ in range(idle - len(self._idle) - len(self._starting)):
            task = asyncio.get_running_loop().create_task(self._add())
            self._starting.add(task)
            task.add_done_callback(self._starting.discard)

    async def close(self) -> None:
        """End all of them."""
        self._is_closed = True
        for task in [*self._starting]:
            with contextlib.suppress(Exception):
                await task
        for worker in filter(None, (self._busy, *self._idle)):
            worker.kill()
            await worker.process.wait()

    async def look(self, scene: Scene) -> AsyncGenerator[bytes]:
        """Give the lines of an answer as they come; an earlier scene that is still at work is given up.

        The last line is of stage ``done`` or ``failed``, or ``superseded`` where a later scene came.
        """
        self._newest += 1
        number = self._newest
        if self._busy is not None:
            self._busy.is_superseded = True
            self._busy.kill()
        worker = await self._taken()
        if number != self._newest:
            self._idle.append(worker)
            yield _line("superseded")
            return
        self._busy, is_done = worker, False
        try:
            async for line in self._answer(worker, scene):
                is_done = line.startswith(_LAST)
                yield line
            if not is_done:
                yield await self._death(worker)
        finally:
            if self._busy is worker:
                self._busy = None
            await self._put_back(worker, is_done=is_done)

    async def _answer(self, worker: _Worker, scene: Scene) -> AsyncIterator[bytes]:
        """Ask a worker, and give what it says until it is done, dead or late."""
        limits = self._limits
        request = {"scene": scene.to_json(), "path": self._path, **vars(limits)}
        assert worker.process.stdin
        assert worker.process.stdout
        until, line = time.monotonic() + limits.timeout_s + _COMPILE_S, b""
        with contextlib.suppress(ConnectionError, asyncio.TimeoutError):
            worker.process.stdin.write(json.dumps(request).encode() + b"\n")
            await worker.process.stdin.drain()
            while not line.startswith(_LAST):
                line = await asyncio.wait_for(worker.process.stdout.readline(), until - time.monotonic())
                if not line:
                    return
                yield line
            return
        worker.is_late = time.monotonic() >= until

    async def _death(self, worker: _Worker) -> bytes:
        """Say why there is no answer."""
        worker.kill()
        status = await worker.process.wait()
        if worker.is_superseded:
            return _line("superseded")
        if self._is_closed:
            return _line("failed", message="the explorer was ended", help=None)
        if worker.is_late:
            late = f"it took longer than {self._limits.timeout_s + _COMPILE_S:g} s, and was given up"
            return _line("failed", message=late, help="a smaller source")
        name = signal.Signals(-status).name if status < 0 else f"status {status}"
        help = "cujit compile FILE --isolate says more"
        return _line("failed", message=f"the process that compiles and reports died: {name}", help=help)

    async def _taken(self) -> _Worker:
        """Take a worker that waits, or start one."""
        while self._idle:
            worker = self._idle.pop()
            if worker.process.returncode is None:
                return worker
        return await self._started()

    async def _put_back(self, worker: _Worker, *, is_done: bool) -> None:
        """Have a worker wait for the next scene, if it can."""
        if is_done and worker.process.returncode is None and not worker.is_superseded and not self._is_closed:
            self._idle.append(worker)
        else:
            worker.kill()
        if not self._is_closed:
            self.begin(_IDLE)
        if is_done:
            return
        await worker.process.wait()

    async def _add(self) -> None:
        worker = await self._started()
        if self._is_closed:
            worker.kill()
        self._idle.append(worker)

    async def _started(self) -> _Worker:
        memory_mib = max(self._limits.memory_mib or 0, _MEMORY_MIB)
        arguments = [*map(os.path.abspath, sys.path), str(os.getpid()), str(memory_mib)]
        process = await asyncio.create_subprocess_exec(
            interpreter(),
            "-c",
            _BEGIN,
            *arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C in a terminal is for the server alone
            limit=_LINE_BYTES,
        )
        return _Worker(process)


def _line(stage: str, **more: object) -> bytes:
    return json.dumps({"stage": stage, **more}, separators=(",", ":")).encode() + b"\n"
