"""Native threads that run the blocks of a launch: ``runtime/pool.c``.

The threads are Python's in name only: each enters native code once and stays there, without the interpreter's lock.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Callable

from cujit.devices.cpu.native.library import address_of, ask_python, install_handlers
from cujit.devices.cpu.run.faults import Site, settle
from cujit.devices.cpu.run.launch import Launch

__all__ = ["Pool"]

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
        self.watch()
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

    def watch(self) -> None:
        """Have faults of kernels come here before any handler of signals that was put in place meanwhile."""
        install_handlers()

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
        self.watch()
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
