"""Engines: what runs tasks. Any ``concurrent.futures.Executor`` does; some are known by name.

``processes:8`` are that many processes of this machine, ``processes`` one per processor.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager

from cujit.errors import OptionError, read_int, spell
from cujit.farm.tasks import Chunk, ChunkResult
from cujit.farm.worker import work

_PROCESSES = re.compile(r"processes(?::([0-9]{1,5}))?")
_HELP = "executor='processes:8', or any concurrent.futures.Executor"


class Engine:
    """An executor, and how many tasks it does at a time; ``make`` makes another one where it is ours and broke."""

    def __init__(self, executor: Executor, slots: int, make: Callable[[], Executor] | None = None) -> None:
        self.executor = executor
        self.slots = slots
        self._make = make

    def submit(self, chunk: Chunk) -> Future[ChunkResult]:
        """Hand in a task."""
        return self.executor.submit(work, chunk)

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
    """
    if workers is not None:
        read_int(workers, "workers", OptionError, least=1)
    if isinstance(executor, str):
        match = _PROCESSES.fullmatch(executor)
        if match is None:
            raise OptionError(f"no executor is called {spell(executor)}", help=_HELP)
        slots = read_int(int(match[1] or os.cpu_count() or 1), "processes", OptionError, least=1)
        engine = Engine(_pool(slots), slots, lambda: _pool(slots))
        try:
            yield engine
        finally:
            engine.executor.shutdown(cancel_futures=True)
    elif isinstance(executor, Executor):
        yield Engine(executor, workers or getattr(executor, "_max_workers", None) or os.cpu_count() or 1)
    else:
        raise OptionError(f"executor is {spell(executor)}; it takes a concurrent.futures.Executor", help=_HELP)


def _pool(slots: int) -> Executor:
    # Fresh processes: a fork of one with threads may have locks that nobody opens.
    return ProcessPoolExecutor(slots, multiprocessing.get_context("spawn"), initializer=_end_with_parent)


def _end_with_parent() -> None:
    """Have this process end when its parent does, for which its queue would wait for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
