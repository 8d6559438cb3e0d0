"""Engines, which run tasks: any ``concurrent.futures.Executor``, or an engine with one of these names.

``processes:8`` runs 8 processes on this machine, and ``processes`` runs one per processor. ``dask://host:8786`` is the
cluster of a Dask scheduler. ``ray`` is the Ray cluster that includes this machine, and ``ray://host:10001`` is a remote
Ray cluster. ``mpi`` is the ranks of ``mpirun -n 9 python -m mpi4py.futures``, of which the first is the driver.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from cujit.arch.support import install
from cujit.errors import MissingError, OptionError, ToolCrashError, read_int, spell
from cujit.farm.processes import Processes
from cujit.farm.tasks import ChunkResult, WorkChunk
from cujit.farm.worker import work

_HELP = "executor='processes:8', 'dask://host:8786', 'ray', 'mpi', or any concurrent.futures.Executor"
_CONNECT_S = 10


class Engine:
    """An executor or cujit's own workers. ``slots`` is the number of tasks that run at a time."""

    def __init__(self, executor: Executor | Processes, slots: int) -> None:
        self.slots = slots
        self._executor = executor

    def submit(self, chunk: WorkChunk) -> Future[ChunkResult]:
        """Hand in a task."""
        if isinstance(self._executor, Processes):
            return self._executor.submit(chunk)
        return self._executor.submit(work, chunk)

    def kill(self) -> bool:
        """End all workers, so that their tasks fail. Return False if the workers belong to a user's executor."""
        if not isinstance(self._executor, Processes):
            return False
        self._executor.kill()
        return True


@contextmanager
def engine_of(executor: Executor | str, workers: int | None) -> Iterator[Engine]:
    """Yield the engine for an executor or a name. A named executor is closed at the end, and a user's executor stays
    open.

    Raises:
        OptionError: the executor is unknown, or ``workers`` is not a number of at least 1.
        MissingError: a package that the executor needs is not installed.
        ToolCrashError: no scheduler answers at the address.
    """
    if workers is not None:
        read_int(workers, "workers", OptionError, least=1)
    if isinstance(executor, Executor):
        yield Engine(executor, workers or _slots(executor))
        return
    open_named = next((make for name, make in _NAMED.items() if name.fullmatch(str(executor))), None)
    if open_named is None:
        raise OptionError(f"unknown executor {spell(executor)}", help=_HELP, code="option-unknown")
    with open_named(str(executor)) as engine:
        engine.slots = workers or engine.slots
        yield engine


def _slots(executor: Executor) -> int:
    """Return how many tasks a user's executor runs at a time: its workers, or the threads of its Dask cluster."""
    client: Any = getattr(executor, "_client", None)
    if hasattr(client, "nthreads"):
        return sum(client.nthreads().values()) or 1
    own = getattr(executor, "_max_workers", None) or getattr(executor, "num_workers", None)  # of Python's, of mpi4py's
    return own or os.cpu_count() or 1


@contextmanager
def _processes(name: str) -> Iterator[Engine]:
    count = name.partition(":")[2]
    slots = read_int(int(count or os.cpu_count() or 1), "processes", OptionError, least=1)
    processes = Processes(slots)
    try:
        yield Engine(processes, slots)
    except BaseException:
        processes.drop()
        processes.kill()
        raise
    finally:
        processes.close()


@contextmanager
def _dask(name: str) -> Iterator[Engine]:
    try:
        from distributed import Client  # whoever has no cluster does without
    except ImportError as e:
        raise MissingError(f"{name} requires Dask: {e}", help=install("farm")) from e
    address = name.replace("dask://", "tcp://")
    try:
        client = Client(address, timeout=_CONNECT_S, set_as_default=False)
    except OSError as e:
        raise ToolCrashError(
            f"can't reach a Dask scheduler at {address}: {e}", help="run dask scheduler --port 8786"
        ) from e
    with client, client.get_executor(pure=False, retries=0) as executor:
        yield Engine(executor, _slots(executor))


@contextmanager
def _mpi(name: str) -> Iterator[Engine]:
    try:
        from mpi4py.futures import MPIPoolExecutor  # it starts MPI, and whoever has none does without
    except (ImportError, RuntimeError) as e:
        raise MissingError(f"{name} requires mpi4py and an MPI library: {e}", help="run pip install mpi4py") from e
    with MPIPoolExecutor() as executor:
        yield Engine(executor, _slots(executor))


class _RayTasks(Executor):
    """An executor of tasks in a Ray cluster, which Ray never retries."""

    def __init__(self, ray: Any) -> None:
        self._task = ray.remote(max_retries=0)(_called)

    def submit(self, function: Callable[..., Any], /, *args: Any, **keywords: Any) -> Future[Any]:
        """Hand in a call."""
        future: Future[Any] = self._task.remote(function, args, keywords).future()
        return future


def _called(function: Callable[..., Any], args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    return function(*args, **keywords)


@contextmanager
def _ray(name: str) -> Iterator[Engine]:
    try:
        import ray  # whoever has no cluster does without
    except ImportError as e:
        raise MissingError(f"{name} requires Ray: {e}", help="run pip install ray") from e
    is_ours = not ray.is_initialized()
    if is_ours:
        try:
            ray.init(address="auto" if name == "ray" else name, log_to_driver=False)
        except (ConnectionError, RuntimeError, TimeoutError) as e:
            raise ToolCrashError(f"can't reach a Ray cluster: {e}", help="run ray start --head") from e
    try:
        yield Engine(_RayTasks(ray), int(ray.cluster_resources().get("CPU", 1)))
    finally:
        if is_ours:
            ray.shutdown()


_NAMED: dict[re.Pattern[str], Callable[[str], AbstractContextManager[Engine]]] = {
    re.compile(r"processes(:[0-9]{1,5})?"): _processes,
    re.compile(r"dask://[^/]+:[0-9]+"): _dask,
    re.compile(r"ray(://[^/]+:[0-9]+)?"): _ray,
    re.compile(r"mpi"): _mpi,
}
