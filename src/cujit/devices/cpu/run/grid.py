"""Running a grid: blocks in increasing number from one counter, over native threads (``runtime/pool.c``).

The threads are Python's in name only: each enters native code once and stays there, without the interpreter's lock.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Callable
from typing import NamedTuple

from cujit.devices.cpu.native.library import address_of, ask_python, install_handlers
from cujit.devices.cpu.run.faults import Site, settle
from cujit.devices.cpu.run.launch import Launch
from cujit.devices.shapes import LaunchShape
from cujit.errors import CujitError
from cujit.forks import Lock

__all__ = ["Pool", "Share", "Workers", "available_threads", "no_memory"]

_SMALL = 2048
"""Threads of a grid below which waking another core costs more than it saves (measured: waking takes 10 us)."""

_SHARES = 8
"""How many times each thread comes for blocks: few enough that the counter is cheap, enough to even out the end."""

_MOST_BLOCKS = 1024


def available_threads() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Share(NamedTuple):
    """How a grid is spread: its blocks, the threads beside the calling one, and the blocks taken at a time."""

    blocks: int
    helpers: int
    chunk: int


_MAKE = ctypes.CFUNCTYPE(ctypes.c_void_p)
_ONE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_RUN = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint64
)


class Pool:
    """``helpers`` threads beside the calling one; they end with the pool. Not usable in a forked child.

    ``address`` is where machine code finds it, ``entry`` the function ``run(pool, job, launch, helpers, shared_bytes,
    local_bytes)`` that does what ``run`` here does.
    """

    def __init__(self, helpers: int) -> None:
        self.entry = address_of("cujit_pool_run")
        install_handlers()
        ask_python()
        self.address = _MAKE(address_of("cujit_pool_make"))()
        if not self.address:
            raise MemoryError("no memory for a pool of threads")
        self._run = _RUN(self.entry)
        work = _ONE(address_of("cujit_pool_work"))
        self._threads = [
            threading.Thread(target=work, args=(self.address,), daemon=True, name="cujit-cpu") for _ in range(helpers)
        ]
        for thread in self._threads:
            thread.start()
        ends = (_ONE(address_of(f"cujit_pool_{name}")) for name in ("stop", "free"))
        end = weakref.finalize(self, _end, os.getpid(), self.address, self._threads, *ends)
        end.atexit = False  # a process ends while a launch of a daemon thread goes on, and leaves the threads to it

    def run(
        self,
        function: int,
        launch: int,
        helpers: int,
        shared_bytes: int,
        local_bytes: int,
        site: Site | None = None,
    ) -> None:
        """Call ``function(launch, shared, local)`` here and in up to ``helpers`` threads; return when all are done.

        What the kernel printed is written to ``sys.stdout``. ``site`` is for the error's words.

        Raises:
            KernelFaultError: the kernel could not go on.
        """
        install_handlers()  # before any handler of signals that was put in place meanwhile
        self._run(self.address, function, launch, helpers, shared_bytes, local_bytes)
        settle(Launch.from_address(launch), site)


def _end(
    pid: int, pool: int, threads: list[threading.Thread], stop: Callable[[int], None], free: Callable[[int], None]
) -> None:
    """Send the workers home; they exist only in the process that made them."""
    if os.getpid() == pid:
        stop(pool)
        for thread in threads:
            thread.join()
        free(pool)


class Workers:
    """The threads that run the blocks of launches; the calling thread is one of them.

    ``timeout_s`` is how long a launch may run that does not say it itself.

    A fork leaves threads behind: a child makes its own pool at its first launch.
    """

    def __init__(self, count: int, timeout_s: float | None = None) -> None:
        self.count = count
        self.timeout_s = timeout_s
        self.met: set[int] = set()
        """Streams in which a cooperative launch has run."""
        self._pool: Pool | None = None
        self._pid = 0
        self._lock = Lock()

    def _ready(self) -> Pool:
        if self._pool is None or self._pid != os.getpid():
            with self._lock:
                if self._pool is None or self._pid != os.getpid():
                    self._pool = Pool(self.count - 1)
                    self._pid = os.getpid()
        return self._pool

    def share(self, shape: LaunchShape) -> Share:
        """Choose how many threads beside the calling one run the blocks of a grid, and how many blocks one takes."""
        blocks = shape.grid.volume
        helpers = min(self.count, blocks) - 1 if blocks * shape.block.volume >= _SMALL else 0
        return Share(blocks, helpers, max(1, min(blocks // (_SHARES * (helpers + 1)), _MOST_BLOCKS)))

    def pool(self) -> Pool:
        """Give the pool of this process to machine code, which does not look who is in front at each launch."""
        install_handlers()
        return self._ready()

    def run(
        self, address: int, launch: Launch, share: Share, shared_bytes: int, local_bytes: int, site: Site | None = None
    ) -> None:
        """Run all blocks of the grid and return when they are done; ``site`` is for the words of an error.

        Raises:
            KernelFaultError: the kernel could not go on.
            CujitError: there is no memory for the shared and local memory of one block.
        """
        launch.blocks, launch.chunk = share.blocks, share.chunk
        self._ready().run(address, ctypes.addressof(launch), share.helpers, shared_bytes, local_bytes, site)
        if launch.next < share.blocks:
            raise no_memory(shared_bytes, local_bytes)


def no_memory(shared_bytes: int, local_bytes: int) -> CujitError:
    """Make the error of a block whose memory there is not, sizes in bytes."""
    return CujitError(f"no memory for a block: {shared_bytes} bytes shared and {local_bytes} bytes local")
