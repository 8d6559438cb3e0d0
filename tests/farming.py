"""Executors and workers that go wrong, for the tests of the farm; workers import this file by its name."""

from __future__ import annotations

import functools
import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import cujit
from cujit.cache.cache import Cache
from cujit.compiler.keys import builds
from cujit.compiler.runner import Runner
from cujit.farm import processes as farm_processes
from cujit.farm.worker import work
from processes import children_of, lives
from waiting import eventually

__all__ = [
    "DRIVER",
    "Elsewhere",
    "goes_on",
    "killing_pool",
    "pool",
    "serve_and_log",
    "serve_or_die",
    "variants",
    "workers",
]

DRIVER = """
import sys
import cujit
from farming import variants, workers
def tick(done, total, name):
    if done == 6:
        print(*workers(), flush=True)
cujit.farm.build(variants(400), executor="processes:2", sink=sys.argv[1], chunk_s=0.2, progress=tick)
"""
"""A process that drives a farm of many compiles, and says which processes it has after six."""

_TEMPLATE = "template <typename T, int N> __global__ void scale(T *x) { x[threadIdx.x] *= N; }"


def variants(count: int, first: int = 0) -> list[cujit.Request]:
    """Instances of one template."""
    source = cujit.Source.cuda(_TEMPLATE, name="scale.cu")
    return [cujit.request(source, names=[f"scale<float, {first + n}>"], arch="sm_90") for n in range(count)]


def pool(workers: int, **environment: str) -> ProcessPoolExecutor:
    """Processes of a user's own, with other variables in their environment; ``build`` is another NVRTC's."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(workers, context, initializer=_begin, initargs=(environment,))


def _begin(environment: dict[str, str]) -> None:
    if log := environment.pop("log", ""):
        _log_to(log)
    if build := environment.pop("build", ""):
        builds.read_build_id = lambda path: build  # noqa: ARG005
    os.environ.update(environment)


def _log_to(log: str) -> None:
    """Have this process write a line of each compile that it begins."""
    made = Runner._run_job

    def noted(self: Runner, job: Any, keyed: Any) -> Any:
        with open(log, "a") as file:
            file.write(f"{job.subject}\n")
        return made(self, job, keyed)

    Runner._run_job = noted  # type: ignore[method-assign]


def workers() -> list[int]:
    """The workers of farms that this process has started."""
    started = {pid: Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") for pid in children_of(os.getpid())}
    return [pid for pid, words in started.items() if words[4:5] and words[4].startswith((b"cujit.farm.", b"farming:"))]


def serve_or_die(answers: int) -> None:
    """Be a worker of ``processes`` that is killed whenever it is given the variant 13."""
    vars(farm_processes)["work"] = functools.partial(_killed, work)
    farm_processes.main(answers)


def serve_and_log(answers: int) -> None:
    """Be a worker of ``processes`` that writes a line of each compile that it begins, into ``log`` in its HOME."""
    _log_to(str(Path.home() / "log"))
    farm_processes.main(answers)


class Elsewhere(Executor):
    """Does tasks where the files of a directory are not; whatever goes there and comes back is pickled.

    ``root`` is what the machine has under the name of the root that images go to, if it is not the same.
    """

    def __init__(self, hidden: Path, root: Path | None = None) -> None:
        self.hidden, self.root = hidden, root
        self.sent = b""
        self.digests: list[str] = []
        self.names: list[list[str]] = []
        self.tasks = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        assert not kwargs
        self.sent = pickle.dumps((fn, args))
        self.tasks += 1
        self.names += [list(piece.recipe["names"]) for piece in args[0].pieces]
        self.digests += [piece.digest for piece in args[0].pieces]
        there, (task, given) = self.hidden.with_suffix(".hidden"), pickle.loads(self.sent)
        future: Future[Any] = Future()
        chunk = given[0] if self.root is None else given[0]._replace(root=str(self.root))
        self.hidden.rename(there)
        try:
            future.set_result(pickle.loads(pickle.dumps(task(chunk))))
        finally:
            there.rename(self.hidden)
        return future


class _Killing(ProcessPoolExecutor):
    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return super().submit(_killed, fn, *args, **kwargs)


def _killed(fn: Callable[..., Any], chunk: Any) -> Any:
    if any("scale<float, 13>" in piece.recipe["names"] for piece in chunk.pieces):
        os.kill(os.getpid(), signal.SIGKILL)
    return fn(chunk)


def killing_pool(workers: int) -> Executor:
    """Processes that are killed whenever they are given the variant 13."""
    return _Killing(workers, multiprocessing.get_context("spawn"))


def goes_on(root: Path, workers: Iterable[str]) -> None:
    """Hold that the workers of a ``DRIVER`` that was ended end too, and that the next farm goes on where it was."""
    eventually(lambda: not any(lives(int(each)) for each in workers))
    kept = sum(1 for _ in Cache(root).stores[0].entries())
    assert kept >= 6
    report = cujit.farm.build(variants(kept + 1), executor="processes:1", sink=root)
    assert (len(report.keys), report.failed) == (kept + 1, ())
