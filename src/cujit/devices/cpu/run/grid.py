"""Running a grid: blocks in increasing number from one counter, over native threads."""

from __future__ import annotations

import ctypes
import os
from typing import NamedTuple

from cujit.devices.cpu.run.faults import Site
from cujit.devices.cpu.run.launch import Launch
from cujit.devices.cpu.run.pool import Pool
from cujit.devices.shapes import LaunchShape
from cujit.errors import CujitError
from cujit.forks import Lock

__all__ = ["Entry", "Share", "Workers", "available_threads", "no_memory"]

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


class Entry(NamedTuple):
    """A pool for machine code: ``run(pool, job, launch, helpers, shared_bytes, local_bytes)``, by address."""

    owner: Pool
    pool: int
    run: int


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

    def entry(self) -> Entry:
        """Say how machine code has the pool of this process run a job; whoever does keeps the ``Entry``."""
        pool = self._ready()
        pool.watch()  # machine code does not look who is in front at each launch, as ``run`` does
        return Entry(pool, pool.address, pool.entry)

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
