"""Engines: what runs tasks. Any ``concurrent.futures.Executor`` does; some are known by name.

``processes:8`` are that many processes of this machine, ``processes`` one per processor. ``dask://host:8786`` is the
cluster of a Dask scheduler; ``mpi`` are the ranks of ``mpirun -n 9 python -m mpi4py.futures``, the first one drives.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from cujit.arch.support import install
from cujit.errors import MissingError, OptionError, ToolCrashError, UnsupportedError, read_int, spell
from cujit.farm.tasks import Chunk, ChunkResult
from cujit.farm.worker import work
from cujit.workers.interpreter import interpreter, is_frozen

_HELP = "executor='processes:8', 'dask://host:8786', 'mpi', or any concurrent.futures.Executor"
_CONNECT_S = 10


class Engine:
    """An executor, and how many tasks it does at a time; ``make`` makes another one where it is ours and broke."""

    def __init__(self, executor: Executor, slots: int, make: Callable[[], Executor] | None = None) -> None:
        self.executor = executor
        self.slots = slots
        self._make = make

    def submit(self, chunk: Chunk) -> Future[ChunkResult]:
        """Hand in a task.

        A worker of ours may start here. It does not hear the Ctrl-C of a terminal, which would find it anywhere, also
        where it would say so with a traceback: the driver ends it.
        """
        if self._make is None:
            return self.executor.submit(work, chunk)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            return self.executor.submit(work, chunk)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def kill(self) -> bool:
        """End all workers, so that their tasks fail; False where they are the user's."""
        if self._make is None:
            return False
        # ``kill_workers`` says it from Python 3.14 on.
        processes: dict[int, multiprocessing.process.BaseProcess] = getattr(self.executor, "_processes", None) or {}
        for process in tuple(processes.values()):
            process.kill()
        return True

    def renew(self) -> bool:
        """Put another executor in the place of one that broke; False where it is the user's."""
        if self._make is None:
            return False
        self.executor.shutdown(wait=False, cancel_futures=True)
        self.executor = self._make()
        return True


@contextmanager
def engine_of(executor: Executor | str, workers: int | None) -> Iterator[Engine]:
    """Open an executor by its name, and close it again; or take the user's, which stays open.

    Raises:
        OptionError: it is none, or ``workers`` is no number of at least 1.
        MissingError: what it needs is not installed.
        ToolCrashError: there is no scheduler at its address.
    """
    if workers is not None:
        read_int(workers, "workers", OptionError, least=1)
    if isinstance(executor, Executor):
        yield Engine(executor, workers or _slots(executor))
        return
    open_named = next((make for name, make in _NAMED.items() if name.fullmatch(str(executor))), None)
    if open_named is None:
        raise OptionError(f"no executor is called {spell(executor)}", help=_HELP)
    with open_named(str(executor)) as engine:
        engine.slots = workers or engine.slots
        yield engine


def _slots(executor: Executor) -> int:
    """Tell how many tasks a user's executor does at a time: its workers, or the threads of its Dask cluster."""
    client: Any = getattr(executor, "_client", None)
    if hasattr(client, "nthreads"):
        return sum(client.nthreads().values()) or 1
    own = getattr(executor, "_max_workers", None) or getattr(executor, "num_workers", None)  # of Python's, of mpi4py's
    return own or os.cpu_count() or 1


@contextmanager
def _processes(name: str) -> Iterator[Engine]:
    count = name.partition(":")[2]
    slots = read_int(int(count or os.cpu_count() or 1), "processes", OptionError, least=1)
    engine = Engine(_pool(slots), slots, lambda: _pool(slots))
    try:
        yield engine
    except KeyboardInterrupt:
        engine.kill()
        raise
    finally:
        engine.executor.shutdown(cancel_futures=True)


@contextmanager
def _dask(name: str) -> Iterator[Engine]:
    try:
        from distributed import Client  # whoever has no cluster does without
    except ImportError as e:
        raise MissingError(f"{name} needs Dask: {e}", help=install("farm")) from e
    address = name.replace("dask://", "tcp://")
    try:
        client = Client(address, timeout=_CONNECT_S, set_as_default=False)
    except OSError as e:
        raise ToolCrashError(f"there is no Dask scheduler at {address}: {e}", help="dask scheduler --port 8786") from e
    with client, client.get_executor(pure=False, retries=0) as executor:
        yield Engine(executor, _slots(executor))


@contextmanager
def _mpi(name: str) -> Iterator[Engine]:
    try:
        from mpi4py.futures import MPIPoolExecutor  # it starts MPI, and whoever has none does without
    except (ImportError, RuntimeError) as e:
        raise MissingError(f"{name} needs mpi4py and an MPI library: {e}", help="pip install mpi4py") from e
    with MPIPoolExecutor() as executor:
        yield Engine(executor, _slots(executor))


_NAMED: dict[re.Pattern[str], Callable[[str], AbstractContextManager[Engine]]] = {
    re.compile(r"processes(:[0-9]{1,5})?"): _processes,
    re.compile(r"dask://[^/]+:[0-9]+"): _dask,
    re.compile(r"mpi"): _mpi,
}


def _pool(slots: int) -> Executor:
    """Make processes of this machine.

    Raises:
        UnsupportedError: there is no Python interpreter to start, as in a frozen program.
    """
    program = interpreter()
    if is_frozen():  # multiprocessing would start the program itself
        raise UnsupportedError(
            "executor='processes' starts Python processes, and a frozen program can't",
            help="pass an executor of yours: cujit.farm.build(…, executor=ThreadPoolExecutor(8))",
        )
    context = multiprocessing.get_context("spawn")  # fresh: a fork of a process with threads may have locked locks
    if program != sys.executable:  # a program that embeds Python, which multiprocessing would start again
        context.set_executable(program)
    return ProcessPoolExecutor(slots, context, initializer=_end_with_parent)


def _end_with_parent() -> None:
    """Have this process end when its parent does, for which its queue would wait for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
