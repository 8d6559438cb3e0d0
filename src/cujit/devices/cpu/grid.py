"""Running a grid: blocks in increasing number from one counter, over native threads."""

from __future__ import annotations

import ctypes
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor

from cujit.devices.base import LaunchShape
from cujit.devices.cpu.emit.frame import Launch
from cujit.devices.cpu.memory import HostBlock

__all__ = ["Workers", "available_threads"]

_RUN = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)

_SMALL = 4096
"""Threads of a grid below which handing work to another core costs more than it saves (measured: 20 us)."""


def available_threads() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Workers:
    """Threads that run the blocks of a launch; the calling thread is one of them.

    Each thread keeps memory for the shared and local memory of the block at hand. A fork leaves the threads behind:
    the child makes its own.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._arena = threading.local()
        self._pool: ThreadPoolExecutor | None = None
        self._pid = 0
        self._lock = threading.Lock()

    def _helpers(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None or self._pid != os.getpid():
                self._pool = ThreadPoolExecutor(max(self.count - 1, 1), thread_name_prefix="cujit-cpu")
                self._pid = os.getpid()
            return self._pool

    def run(self, address: int, shape: LaunchShape, launch: Launch, shared_bytes: int, local_bytes: int) -> None:
        """Run all blocks of the grid and return when they are done."""
        blocks = shape.grid.volume
        helpers = min(self.count, blocks) - 1 if blocks * shape.block.volume >= _SMALL else 0
        launch.blocks = blocks
        launch.chunk = max(1, min(blocks // (8 * (helpers + 1)), 1024))
        futures: list[Future[None]] = []
        if helpers:
            pool = self._helpers()
            futures = [pool.submit(self._work, address, launch, shared_bytes, local_bytes) for _ in range(helpers)]
        self._work(address, launch, shared_bytes, local_bytes)
        for future in futures:
            future.result()

    def _work(self, address: int, launch: Launch, shared_bytes: int, local_bytes: int) -> None:
        shared, local = self._memory("shared", shared_bytes), self._memory("local", local_bytes)
        _RUN(address)(ctypes.addressof(launch), shared.address, local.address)

    def _memory(self, name: str, size: int) -> HostBlock:
        block: HostBlock | None = getattr(self._arena, name, None)
        if block is None or block.size < size:
            block = HostBlock(size)
            setattr(self._arena, name, block)
        return block
