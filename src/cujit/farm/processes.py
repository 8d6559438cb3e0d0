"""Worker processes of this machine. Each worker runs one task after the other, and its death affects
no other worker.
"""

from __future__ import annotations

import queue
import threading
import traceback
from concurrent.futures import BrokenExecutor, Future

from cujit.errors import CujitError, ToolCrashError
from cujit.farm.tasks import ChunkResult, WorkChunk
from cujit.farm.worker import work
from cujit.forks import Lock
from cujit.threads import start
from cujit.workers.environment import COMPILE, kept
from cujit.workers.interpreter import interpreter
from cujit.workers.process import Worker, how_ended
from cujit.workers.serving import serve

_ENTRY = "cujit.farm.processes:main"
_DEATH_S = 5.0


class WorkerDiedError(BrokenExecutor):
    """A worker died during its task. The other workers continue, and a new worker replaces it."""


class Processes:
    """A number of worker processes on this machine. Each starts with its first task.

    Args:
        slots: number of workers.

    Raises:
        UnsupportedError: there is no Python interpreter to start, as in a frozen program.
    """

    def __init__(self, slots: int) -> None:
        interpreter()
        self._slots = slots
        self._tasks: queue.SimpleQueue[tuple[Future[ChunkResult], WorkChunk] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._living: set[Worker] = set()
        self._lock = Lock()

    @property
    def pids(self) -> list[int]:
        """The processes that live."""
        with self._lock:
            return [worker.process.pid for worker in self._living]

    def submit(self, chunk: WorkChunk) -> Future[ChunkResult]:
        """Hand in a task; its future fails with ``WorkerDiedError`` if the worker dies with it."""
        future: Future[ChunkResult] = Future()
        self._tasks.put((future, chunk))
        if len(self._threads) < self._slots:
            self._threads.append(start(self._work, name="cujit-farm", daemon=True))
        return future

    def drop(self) -> None:
        """Cancel the tasks that are not begun."""
        while not self._tasks.empty():
            task = self._tasks.get()
            if task is not None:
                task[0].cancel()

    def kill(self) -> None:
        """End all workers, so that their tasks fail."""
        with self._lock:
            for worker in self._living:
                worker.kill()

    def close(self) -> None:
        """Drop tasks that have not begun, and end the workers after their current tasks."""
        self.drop()
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        """Run tasks in one worker, and start another worker if it died."""
        worker: Worker | None = None
        while (task := self._tasks.get()) is not None:
            future, chunk = task
            if not future.set_running_or_notify_cancel():
                continue
            try:
                worker = worker or self._started()
                future.set_result(_run_chunk(worker, chunk))
            except BaseException as e:
                if worker is not None:
                    self._end(worker)
                    worker = None
                future.set_exception(e)
        if worker is not None:
            self._end(worker)

    def _started(self) -> Worker:
        worker = Worker(_ENTRY, environment=kept(COMPILE))
        with self._lock:
            self._living.add(worker)
        return worker

    def _end(self, worker: Worker) -> None:
        with self._lock:
            self._living.discard(worker)
        worker.end()


def _run_chunk(worker: Worker, chunk: WorkChunk) -> ChunkResult:
    """Run a task in a worker.

    Raises:
        WorkerDiedError: it died.
        CujitError: it could not do the task.
    """
    answer = worker.exchange(chunk)
    if isinstance(answer, ChunkResult):
        return answer
    if isinstance(answer, CujitError):
        raise answer
    worker.await_death(_DEATH_S)
    words = worker.last_words()
    _, how = how_ended(worker.end()[0])
    raise WorkerDiedError(f"a worker {how}" + (f": {words.splitlines()[-1]}" if words.strip() else ""))


def main(answers: int) -> None:
    """Serve; ``answers`` is the descriptor to write to."""
    serve(answers, _answer)


def _answer(chunk: WorkChunk) -> ChunkResult | CujitError:
    try:
        return work(chunk)
    except Exception as e:
        return ToolCrashError(f"internal error of cujit in a worker: {e!r}", log=traceback.format_exc())
