"""Execution of a grid on native threads (``runtime/pool.c``), which fetch blocks in increasing order from one counter.

Each thread enters native code once and stays there, without the interpreter's lock. This module also applies a kernel's
launch directives.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Callable, Mapping

from cujit.devices.cpu.native.library import address_of, ask_python, install_handlers
from cujit.devices.cpu.run.launch import Launch
from cujit.devices.cpu.run.site import FaultSite
from cujit.devices.options import LaunchOptions, check_cluster, check_own_cluster
from cujit.devices.shapes import Dim3, LaunchShape
from cujit.errors import CujitError, LaunchError
from cujit.forks import Lock
from cujit.threads import start
from cujit.values import NamedTuple, dataclass, replace

_SMALL = 2048
"""Threads of a grid below which waking another core costs more than it saves (measured: waking takes 10 us)."""

_SHARES = 8
"""How many times each thread comes for blocks: few enough that the counter is cheap, enough to even out the end."""

_MOST_BLOCKS = 1024


class Share(NamedTuple):
    """The distribution of a grid: its blocks, its helper threads, and the blocks that a thread fetches at a time."""

    blocks: int
    helpers: int
    chunk: int


_MAKE = ctypes.CFUNCTYPE(ctypes.c_void_p)
_ONE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_RUN = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint64
)


class Pool:
    """A pool of ``helpers`` threads in addition to the calling thread. The threads end with the pool.

    A forked child can't use the pool. ``address`` is the pool's address for machine code. ``entry`` is the address of
    the function ``run(pool, job, launch, helpers, shared_bytes, local_bytes)``, which does the work of the method
    ``run``.
    """

    def __init__(self, helpers: int) -> None:
        self.entry = address_of("cujit_pool_run")
        install_handlers()
        ask_python()
        self.address = _MAKE(address_of("cujit_pool_make"))()
        if not self.address:
            raise MemoryError("there isn't enough memory to create a thread pool")
        self._run = _RUN(self.entry)
        work = _ONE(address_of("cujit_pool_work"))
        self._threads = [start(work, self.address, name="cujit-cpu", daemon=True) for _ in range(helpers)]
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
        site: FaultSite | None = None,
    ) -> None:
        """Call ``function(launch, shared, local)`` in this thread and in up to ``helpers`` others, and return when all
        are done.

        The kernel's output is written to ``sys.stdout``. ``site`` is for the error message.

        Raises:
            KernelFaultError: the kernel failed.
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
    """The threads that run the blocks of launches, including the calling thread.

    ``timeout_s`` is the time limit for launches that set no time limit.

    A fork doesn't copy threads, so a child process creates a new pool at its first launch.
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
        """Return the distribution of a grid: the number of helper threads, and the number of blocks that a thread
        fetches at a time.
        """
        blocks = shape.grid.volume
        helpers = min(self.count, blocks) - 1 if blocks * shape.block.volume >= _SMALL else 0
        return Share(blocks, helpers, max(1, min(blocks // (_SHARES * (helpers + 1)), _MOST_BLOCKS)))

    def pool(self) -> Pool:
        """Return this process's pool for machine code.

        Signal handlers are installed here, because launches by machine code don't check the order of the handlers.
        """
        install_handlers()
        return self._ready()

    def run(
        self,
        address: int,
        launch: Launch,
        share: Share,
        shared_bytes: int,
        local_bytes: int,
        site: FaultSite | None = None,
    ) -> None:
        """Run all blocks of the grid, and return when all are done. ``site`` is for error messages.

        Raises:
            KernelFaultError: the kernel failed.
            CujitError: there isn't enough memory for the shared and local memory of one block.
        """
        launch.blocks, launch.chunk = share.blocks, share.chunk
        self._ready().run(address, ctypes.addressof(launch), share.helpers, shared_bytes, local_bytes, site)
        if launch.next < share.blocks:
            raise no_memory(shared_bytes, local_bytes)


def settle(launch: Launch, site: FaultSite | None = None) -> None:
    """Write the kernel's output, then raise the error that ended the launch, if any.

    Raises:
        KernelFaultError: the kernel failed, or the host ended the launch.
        Whatever a Python signal handler raised.
    """
    if launch.output or launch.fault_kind or launch.stands or any(launch.raised):
        from cujit.devices.cpu.run.faults import end  # start-up: most launches print nothing, and end well

        end(launch, site or FaultSite("", Dim3(1)))


def no_memory(shared_bytes: int, local_bytes: int) -> CujitError:
    """Return the error for a block without enough memory. The sizes are in bytes."""
    return CujitError(
        f"there isn't enough memory for a block, which needs {shared_bytes} bytes of shared and {local_bytes} "
        "bytes of local memory",
        code="out-of-memory",
    )


# -- the block and the clusters that a launch has to have, and how its grid counts ----------------------

# What directives say. Source: PTX ISA 9.1, chapter 11, "Performance-Tuning Directives" and "Cluster Dimension
# Directives"; where they leave it open, what an H200 took and refused (``tests/goldens/launches.json``).

MAX_THREADS = 1024
"""Threads of a block. Source: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"."""

_LARGEST_CLUSTER = 16
"""Blocks of a cluster. Source: CUDA C++ Programming Guide, "Thread Block Clusters": 8, or 16 on request."""


@dataclass(frozen=True)
class Bounds:
    """The launch sizes that a kernel was compiled for.

    ``block`` and ``cluster`` are the required shapes, or None if the launch may choose. ``max_threads`` is the maximum
    number of threads in a block. ``largest_cluster`` is the maximum number of blocks in a cluster. ``needs_cluster`` is
    whether the launch must specify a cluster. ``counts_clusters`` is whether the grid of a launch counts clusters
    instead of blocks.
    """

    block: Dim3 | None
    cluster: Dim3 | None
    max_threads: int
    largest_cluster: int
    needs_cluster: bool
    counts_clusters: bool

    @classmethod
    def of(cls, directives: Mapping[str, tuple[int, ...]]) -> Bounds:
        """Read the directives of an entry."""

        def size(name: str) -> Dim3 | None:
            values = directives.get(name)
            return Dim3(*values) if values and all(values) else None

        block, most, cluster = size("reqntid"), size("maxntid"), size("reqnctapercluster")
        rank = directives.get("maxclusterrank")
        return cls(
            block,
            cluster,
            min([MAX_THREADS, *(each.volume for each in (block, most) if each is not None)]),
            min([_LARGEST_CLUSTER, *(rank or ())]),
            "explicitcluster" in directives and cluster is None,
            "blocksareclusters" in directives,
        )

    @property
    def is_free(self) -> bool:
        """Whether the kernel runs with every block and without a cluster."""
        return self.block is None and self.cluster is None and not self.needs_cluster

    def shape(self, shape: LaunchShape, cluster: Dim3 | None = None) -> LaunchShape:
        """Return the grid and block that run, with the grid in blocks. A block of one thread is replaced by the block
        that the kernel requires.
        """
        if self.block is not None and shape.block == Dim3(1):
            shape = replace(shape, block=self.block)
        blocks = cluster or self.cluster
        if self.counts_clusters and blocks is not None:
            shape = replace(shape, grid=Dim3(*(n * size for n, size in zip(shape.grid, blocks, strict=True))))
        return shape

    def check(self, kernel: str, shape: LaunchShape, options: LaunchOptions) -> None:
        """Check a launch with the grid and block that the method ``shape`` returned.

        Raises:
            LaunchError: the kernel was compiled for another block or cluster.
        """
        if self.block is not None and (shape.block != self.block or self.block.volume > MAX_THREADS):
            raise LaunchError(
                f"{kernel}: the block has {_product(shape.block)} threads, but the kernel was compiled for "
                f"blocks of {_product(self.block)} (.reqntid)",
                help=f"launch with block={tuple(self.block)}",
                code="block-size",
            )
        check_own_cluster(kernel, options.cluster, self.cluster, must_be_set=self.needs_cluster)
        cluster = options.cluster or self.cluster
        if cluster is not None:
            check_cluster(kernel, shape, cluster, self.largest_cluster)


NO_BOUNDS = Bounds.of({})
"""The bounds of a kernel without directives."""


def _product(block: Dim3) -> str:
    return " × ".join(map(str, block))
