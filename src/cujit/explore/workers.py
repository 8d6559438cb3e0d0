"""The worker processes of a server, of which one works at a time.

A newer scene replaces the scene in progress and kills its worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator

from cujit.errors import UnsupportedError
from cujit.explore.scene import LaunchLimits, Scene
from cujit.workers.child import BEGIN, GREETING
from cujit.workers.environment import COMPILE, kept
from cujit.workers.process import Worker, how_ended

_ENTRY = "cujit.explore.worker:main"
_BEGIN = BEGIN
_IDLE = 2
"""Workers that wait: the next scene need not wait for an interpreter to start, nor the one after a kill."""
_MEMORY_MIB = 8192
"""Address space of a worker, or as much as a launch may have: libraries of compilers map much of it."""
_LINE_BYTES = 64 << 20
_LAST = (b'{"stage":"done"', b'{"stage":"failed"')
_COMPILE_S = 120.0
"""Seconds that a scene has beyond the time of its launch."""


class _Worker(Worker):
    """One worker process, and whether the server ended it for a newer scene or a missed deadline."""

    def __init__(self, memory_mib: int) -> None:
        super().__init__(_ENTRY, os.getpid(), memory_mib, environment=kept(COMPILE), begin=_BEGIN)
        self.is_superseded = False
        self.is_late = False
        self._lines: asyncio.StreamReader | None = None
        self._orders: asyncio.StreamWriter | None = None

    async def ask(self, request: bytes) -> None:
        """Send a line, and await the greeting of a process that is new.

        Raises:
            ConnectionError, asyncio.IncompleteReadError: it ended.
            UnsupportedError: it is no Python with this version of cujit.
        """
        is_new = self._orders is None
        if self._orders is None:
            await self._connect()
        assert self._orders
        assert self._lines
        self._orders.write(request)
        await self._orders.drain()
        if is_new:
            self.check_greeting(await self._lines.readexactly(len(GREETING)))

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        self._lines = asyncio.StreamReader(limit=_LINE_BYTES)
        answers, self.answers = self.answers, -1
        protocol = asyncio.StreamReaderProtocol(self._lines)
        await loop.connect_read_pipe(lambda: protocol, os.fdopen(answers, "rb", buffering=0))
        transport, flow = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, self.process.stdin)
        self._orders = asyncio.StreamWriter(transport, flow, None, loop)

    async def line(self, timeout_s: float) -> bytes:
        """Return the next line, or empty bytes at the end.

        Raises:
            asyncio.TimeoutError: no line arrived in time.
            ValueError: the line exceeds the length limit.
        """
        assert self._lines
        return await asyncio.wait_for(self._lines.readline(), timeout_s)

    async def ended(self) -> int:
        """Wait until the process ends, close its pipes, and return its exit status."""
        status = await asyncio.to_thread(self.process.wait)
        if self._orders is not None:
            self._orders.close()
        self.close()
        return status


class WorkerPool:
    """Worker processes that compile and launch scenes, one scene at a time."""

    def __init__(self, path: str, limits: LaunchLimits) -> None:
        """Create the pool for scenes of one file."""
        self._path = path
        self._limits = limits
        self._idle: list[_Worker] = []
        self._busy: _Worker | None = None
        self._starting: set[asyncio.Task[None]] = set()
        self._ending: set[asyncio.Task[int]] = set()
        self._newest = 0
        self._is_closed = False

    def begin(self, idle: int = 1) -> None:
        """Start workers in the background, until ``idle`` workers wait."""
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
            await worker.ended()
        await asyncio.gather(*self._ending)

    async def look(self, scene: Scene) -> AsyncGenerator[bytes]:
        """Yield the lines of an answer as they arrive. An earlier scene in progress is abandoned.

        The last line has the stage ``done`` or ``failed``, or ``superseded`` if a later scene arrived.
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
            self._put_back(worker, is_done=is_done)

    async def _answer(self, worker: _Worker, scene: Scene) -> AsyncIterator[bytes]:
        """Send a scene to a worker, and yield its lines until it finishes, dies, or exceeds its time."""
        limits = self._limits
        request = {"scene": scene.to_json(), "path": self._path, **vars(limits)}
        until, line = time.monotonic() + limits.timeout_s + _COMPILE_S, b""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.TimeoutError, ValueError):
            try:
                await worker.ask(json.dumps(request).encode() + b"\n")
            except UnsupportedError as e:
                yield _line("failed", message=e.message, help=e.help)
                return
            while not line.startswith(_LAST):
                line = await worker.line(until - time.monotonic())
                if not line:
                    return
                yield line
            return
        worker.is_late = time.monotonic() >= until

    async def _death(self, worker: _Worker) -> bytes:
        """Return a line that explains why there is no answer."""
        worker.kill()
        status = await worker.ended()
        if worker.is_superseded:
            return _line("superseded")
        if self._is_closed:
            return _line("failed", message="the explorer was stopped", help=None)
        if worker.is_late:
            late = f"the request was canceled after {self._limits.timeout_s + _COMPILE_S:g} s"
            return _line("failed", message=late, help="try a smaller source")
        name = how_ended(status)[0] if status < 0 else f"status {status}"
        help = "cujit compile FILE --isolate says more"
        return _line("failed", message=f"the worker process died: {name}", help=help)

    async def _taken(self) -> _Worker:
        """Return an idle worker, or start a worker."""
        while self._idle:
            worker = self._idle.pop()
            if worker.is_alive:
                return worker
            self._end(worker)
        return await self._started()

    def _put_back(self, worker: _Worker, *, is_done: bool) -> None:
        """Return a worker to the idle workers, to wait for the next scene, if it can."""
        if is_done and worker.is_alive and not worker.is_superseded and not self._is_closed:
            self._idle.append(worker)
        else:
            self._end(worker)
        if not self._is_closed:
            self.begin(_IDLE)

    def _end(self, worker: _Worker) -> None:
        """Kill a worker without waiting for its end. The caller may be canceled, and then it can't await anything."""
        worker.kill()
        task = asyncio.get_running_loop().create_task(worker.ended())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _add(self) -> None:
        worker = await self._started()
        if self._is_closed:
            worker.kill()
        self._idle.append(worker)

    async def _started(self) -> _Worker:
        memory_mib = max(self._limits.memory_mib or 0, _MEMORY_MIB)
        return _Worker(memory_mib)


def _line(stage: str, **more: object) -> bytes:
    return json.dumps({"stage": stage, **more}, separators=(",", ":")).encode() + b"\n"
