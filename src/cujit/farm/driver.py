"""The driver of a farm, which submits compiles in chunks and reports their results.

The most expensive compiles are submitted first. If a process dies, its chunk is repeated. If the second process dies
too, each compile of the chunk runs separately. This identifies the compile that kills processes by its key.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from pathlib import Path
from typing import TYPE_CHECKING

from cujit.arch import Arch
from cujit.cache.cache import Cache
from cujit.cache.key import differences
from cujit.cache.pack import write_pack
from cujit.cache.process import default_cache
from cujit.cache.remote.filling import RemoteStore
from cujit.cache.store import Store
from cujit.compiler.build import Progress, parse_targets
from cujit.compiler.options.limits import WorkLimits
from cujit.compiler.request import Request
from cujit.compiler.runner import Runner
from cujit.errors import DeviceNotFoundError, OptionError, ToolCrashError, counted, read_int, spell
from cujit.errors.hints import Hint
from cujit.farm.arch_sharing import check_share
from cujit.farm.engines import Engine, engine_of
from cujit.farm.planner import Intake, Unit
from cujit.farm.processes import WorkerDiedError
from cujit.farm.publishing import publishing
from cujit.farm.report import BuildTally, BuiltImage, Failure, Report
from cujit.farm.tasks import ChunkResult, PieceResult, WorkChunk
from cujit.toolchain.headers import Settings
from cujit.toolchain.toolset import Toolchain
from cujit.values import NamedTuple
from cujit.values.keywords import has_keywords, take

if TYPE_CHECKING:
    from typing import TypedDict

    from typing_extensions import Unpack

    class FarmKeywords(TypedDict, total=False):
        """The fields of ``FarmSettings``."""

        store: RemoteStore | None
        deadline_s: float | None
        memory_bytes: int | None
        make_ms: Callable[[Request], float]
        chunk_s: float
        join: int
        share: str | None
        workers: int | None
        made_s: int
        progress: Progress | None


_FLYING = 3
"""Chunks that are handed out for each process, so that none waits for the driver."""

_MOST_PIECES = 64

_DEATHS_EACH = 3
"""How often each worker may die before any of them has done anything."""

_MOST_UNKEPT = 10
"""Images that could not be kept, one after the other, before the rest is given up: the disk is full."""

_PATIENCE_S = 60
"""What workers have beside the deadlines of their compiles, before they are taken for hung."""

_DEATHS = ("KilledWorker", "WorkerCrashedError")
"""Exceptions that stand for a worker that died, by their names: of Dask and of Ray."""

_NO_CAP = 1 << 62


def _unknown_ms(_: Request) -> float:
    return 0.0


class FarmSettings(NamedTuple):
    """Settings of a farm: the shared cache for images, the limits of a compile, and how compiles are combined."""

    store: RemoteStore | None = None
    deadline_s: float | None = None
    memory_bytes: int | None = None
    make_ms: Callable[[Request], float] = _unknown_ms
    chunk_s: float = 2.0
    join: int = 1
    share: str | None = None
    workers: int | None = None
    made_s: int = 0
    progress: Progress | None = None


@has_keywords(FarmSettings)
def build(
    requests: Iterable[Request],
    targets: str | Arch | Sequence[str | Arch] = (),
    *,
    executor: Executor | str = "processes",
    sink: Cache | str | os.PathLike[str] | None = None,
    pack: str | os.PathLike[str] | None = None,
    **settings: Unpack[FarmKeywords],
) -> Report:
    """Compile requests in the processes of an executor, and write the images to a cache directory, a pack, or a shared
    cache.

    Workers write images to a directory that all workers can access, and return only the keys.

    Args:
        requests: results of ``cujit.request``, in any iterable. cujit reads a generator while it compiles.
        targets: architectures, as for ``cujit.build``. Every request is compiled for each architecture. Default: the
            architectures of the requests.
        executor: any ``concurrent.futures.Executor``, or ``"processes:8"``, ``"dask://host:8786"``, ``"ray"``, or
            ``"mpi"``.
            ``"processes"`` starts one process per core.
        sink: directory to write the images to, or a Cache. Default: the process's cache.
        pack: path of a pack (``.pack``) to write at the end, with all images.
        store: a shared cache. cujit signs each image in this process and publishes the image immediately. Images that
            already exist in the shared cache are recompiled only for a pack.
        deadline_s: maximum seconds per compile.
        memory_bytes: maximum address space per compile, including libraries and stacks.
        make_ms: function that returns the expected compile time of a request in milliseconds, or 0 if unknown.
        chunk_s: target amount of work per task, in seconds.
        join: number of requests that differ only in ``names`` to compile together. Each request then takes about 40%
            less time, with the same key, names, and signatures. Each image also contains the other kernels, so the
            image is larger and its bytes differ.
        share: ``"ptx"`` or ``"ltoir"``: kind of image to compile once for several architectures, if the source doesn't
            depend on the architecture. nvJitLink then generates the SASS for each architecture. Default: compile
            separately for each architecture.
        workers: number of tasks that the executor runs at a time. Default: ask the executor.
        made_s: time to record in the pack, as Unix time.
        progress: function to call with ``(done, total, name)`` after every compile. If ``requests`` has no length,
            ``total`` grows.

    Raises:
        ArchError: a target is malformed or unknown, or the compiler doesn't support it.
        OptionError: an argument has a wrong type or value, or the cache is off.
        MissingError: there is no compiler, or the executor needs Dask, Ray, or MPI, which isn't installed.
        ToolCrashError: the executor failed. Completed images stay in the cache.
        CujitError: the compiler of the first request can't start. The report contains the errors of later requests.
        FileError: cujit can't write the pack or read the cache.

    Example::

        kernels = [cujit.request(CODE, names=["axpy<double>"], arch="sm_90")]       # or thousands
        report = cujit.farm.build(kernels, executor="processes:1", sink="kernels", pack="kernels.pack")
    """
    begin, how = time.monotonic(), take(FarmSettings, settings, build)
    cache = cache_of(sink)
    runner = Runner.allowed(Toolchain(Settings.from_environment(os.environ)), cache)
    arches = parse_targets(targets, _no_gpu, runner) if targets else ()
    memory_mib = None if how.memory_bytes is None else _mebibytes(how.memory_bytes)
    limits = WorkLimits.of(how.deadline_s, True, memory_mib)
    read_int(how.join, "join", OptionError, least=1)
    root, task = _where_and_how(runner, cache, limits)
    task = task._replace(join=how.join, share=check_share(how.share))
    is_packed, tally = pack is not None, BuildTally()
    with engine_of(executor, how.workers) as engine, publishing(how.store, cache.stores, tally) as publisher:
        intake = Intake(requests, arches, runner, how.make_ms, tally, publisher, task, is_packed=is_packed)
        _Farm(intake, engine, root, task, how.chunk_s * 1e3, how.progress).run()
    stats = None
    if pack is not None:
        wanted = tally.kept()
        pins, closures = intake.pins, intake.closures
        stats = write_pack(Path(pack), cache.stores, wanted=wanted, requests=pins, closures=closures, made_s=how.made_s)
    return tally.report(time.monotonic() - begin, stats)


def cache_of(sink: object) -> Cache:
    """Return the cache for images. None means the process's cache, and a named directory has no size limit.

    Raises:
        OptionError: the value is neither a cache nor a directory, or the cache is off.
    """
    if sink is None or isinstance(sink, Cache):
        cache = default_cache() if sink is None else sink
        if cache.store is None:
            raise OptionError(
                "the farm stores images in a cache, but there is no writable cache",
                help="sink=, CUJIT_CACHE",
                code="option-conflict",
            )
        return cache
    if not isinstance(sink, str | os.PathLike):
        raise OptionError(f"sink is {spell(sink)}, expected a directory or a cujit.Cache", help="write sink='kernels'")
    return Cache(Path(os.fspath(sink)), cap_bytes=_NO_CAP, memory_bytes=0)


def _where_and_how(runner: Runner, cache: Cache, limits: WorkLimits) -> tuple[Store, WorkChunk]:
    """Return the store for images, and a task without pieces that contains the common settings of all tasks."""
    store, budget = cache.store, cache.budget
    assert store is not None
    assert budget is not None
    root, gid, mode = str(store.root), store.trust.gid, str(runner.compiling)
    return store, WorkChunk((), root, budget.cap_bytes, gid, mode, limits.timeout_s, limits.memory_mib)


def _mebibytes(memory_bytes: object) -> int:
    if type(memory_bytes) is not int or memory_bytes < 1 << 20:
        raise OptionError(f"memory_bytes is {spell(memory_bytes)}, expected a number of bytes", help="4 << 30")
    return memory_bytes >> 20


def _no_gpu() -> Sequence[Arch]:
    raise DeviceNotFoundError(
        "a farm builds for other machines, so it doesn't support the target 'native'", help="write 'sm_90' or 'all'"
    )


class _Farm:
    """A build in progress.

    ``_ready`` contains units, cheapest first. ``_again`` contains chunks to repeat after their process died. ``_alone``
    contains units to run separately after two processes died.
    """

    def __init__(
        self,
        intake: Intake,
        engine: Engine,
        store: Store,
        task: WorkChunk,
        chunk_ms: float,
        progress: Progress | None,
    ) -> None:
        """Store the source of units, the engine that runs tasks, the store for images, and the
        settings of all tasks.
        """
        self._intake, self._engine, self._store, self._task = intake, engine, store, task
        self._chunk_ms, self._progress = chunk_ms, progress
        self._ready: list[Unit] = []
        self._again: deque[list[Unit]] = deque()
        self._alone: deque[list[Unit]] = deque()
        self._flying: dict[Future[ChunkResult], list[Unit]] = {}
        self._deaths = self._unkept = self._landings = 0
        self._given_up = ""

    def run(self) -> None:
        """Do all of it.

        Raises:
            ToolCrashError: the executor failed.
        """
        try:
            while not self._given_up and self._fill():
                done, _ = wait(self._flying, self._patience_s(), return_when=FIRST_COMPLETED)
                if not done and not self._engine.kill():
                    raise ToolCrashError(
                        f"no worker has answered for {self._patience_s():.0f} s, although compiles have a deadline",
                        help="make the same call again to continue; executor='processes:8' stops workers that hang",
                    )
                for future in done:
                    self._landed(future, self._flying.pop(future))
        except BaseException:
            for future in self._flying:
                future.cancel()
            raise
        if self._given_up:
            wait(self._flying)
            for future, units in self._flying.items():
                self._landed(future, units)
            self._drop()

    def _patience_s(self) -> float | None:
        """Return the seconds that may pass before a chunk finishes if every worker works. Return None without
        deadlines.
        """
        deadline_s = self._task.deadline_s
        if deadline_s is None:
            return None
        # Each may be tried twice, and linked for its architecture besides.
        return _PATIENCE_S + 4 * deadline_s * max(map(len, self._flying.values()))

    def _fill(self) -> bool:
        """Submit chunks until enough are in progress. Return False if there are no more."""
        while len(self._flying) < self._engine.slots * _FLYING:
            units = self._next()
            if not units:
                break
            pieces = tuple(unit.piece(self._intake.keys) for unit in units)
            try:
                self._flying[self._engine.submit(self._task._replace(pieces=pieces))] = units
            except BrokenExecutor as e:
                raise self._broke(e) from e
        return bool(self._flying)

    def _next(self) -> list[Unit]:
        if self._again:
            return self._again.popleft()
        if self._alone and (not self._flying and not self._ready and self._intake.is_over):
            return self._alone.popleft()
        most_ms = self._refill()
        units: list[Unit] = []
        while self._ready and len(units) < _MOST_PIECES:
            most_ms -= self._ready[-1].make_ms
            if units and most_ms < 0 and not self._goes_with(units, self._ready[-1]):
                break
            units.append(self._ready.pop())
        return units

    def _goes_with(self, units: Sequence[Unit], unit: Unit) -> bool:
        """Return whether a unit is made together with the last of these units."""
        if not unit.group or unit.group != units[-1].group:
            return False
        names = {one.request.names for one in units if one.group == unit.group}
        return unit.request.names in names or len(names) % self._task.join > 0

    def _refill(self) -> float:
        """Read more requests if few units are ready, and return the milliseconds of work for the next chunk."""
        chunks = self._engine.slots * _FLYING
        if len(self._ready) < chunks * _MOST_PIECES and not self._intake.is_over:
            self._ready += self._intake.take()
            costs: dict[int, float] = {}
            for unit in self._ready:
                costs[unit.group] = max(unit.make_ms, costs.get(unit.group, 0.0))
            costs.pop(0, None)
            self._ready.sort(key=lambda one: (costs.get(one.group, one.make_ms), one.group, one.names))
        if not self._intake.is_over:
            return self._chunk_ms
        # The last chunks are small, so that all processes end together.
        return min(self._chunk_ms, sum(unit.make_ms for unit in self._ready) / chunks)

    # -- what comes back ---------------------------------------------------------------------------------------

    def _landed(self, future: Future[ChunkResult], units: list[Unit]) -> None:
        """Process the result of a chunk.

        Raises:
            ToolCrashError: the executor broke, or too many workers died.
        """
        try:
            done = future.result()
        except WorkerDiedError as e:
            self._lost(units)
            self._died(e)
            return
        except BrokenExecutor as e:
            raise self._broke(e) from e
        except Exception as e:
            if type(e).__name__ not in _DEATHS:
                raise ToolCrashError(
                    f"a worker couldn't run its task: {type(e).__name__}: {e}",
                    help="install the same cujit and the same toolkit on every worker",
                ) from e
            self._lost(units)
            return
        self._deaths, self._landings = 0, self._landings + 1
        self._intake.tally.cpu_s += done.cpu_s
        for unit, ended in zip(units, done.ended, strict=True):
            self._take(unit, ended, done.host)

    def _take(self, unit: Unit, ended: PieceResult, host: str) -> None:
        tally, store = self._intake.tally, self._store
        reason, key = ended.reason, unit.key.digest
        if ended.outcome in ("made", "hit") and not store.has(key):
            reason = f"it is not in {store.root} here, as it was on {host}: all machines have to see one directory"
        if ended.outcome == "refused" and not reason:
            reason = f"{host} has another key of it: " + "; ".join(map(str, differences(unit.key.parts, ended.parts)))
        self._unkept = self._unkept + 1 if ended.outcome == "not kept" else 0
        if self._unkept >= _MOST_UNKEPT:
            self._given_up = reason
        if reason:
            failure = Failure.of(unit.request, reason, key, ended.signal, ended.log, ended.peak_bytes)
            (tally.quarantined if ended.outcome == "quarantined" else tally.failed).append(failure)
        else:
            tally.keys[bytes.fromhex(key)] = True
            self._intake.kept(unit, is_made=ended.outcome == "made")
        if ended.outcome == "made" and not reason:
            shown = unit.request.source.name, str(unit.request.arch)
            tally.add(BuiltImage(*shown, key, ended.make_ms, ended.size_bytes))
            if self._task.share:
                tally.share(ended.is_shared, unit.why_alone or ended.why_alone)
            self._intake.learn(unit, ended.make_ms)
        self._tick(unit.request)

    def _tick(self, request: Request) -> None:
        self._intake.done += 1
        if self._progress:
            self._progress(self._intake.done, self._intake.total, request.source.name)

    def _lost(self, units: list[Unit]) -> None:
        """Schedule a chunk again after its process died.

        After the second death, each unit is scheduled separately. After the third death, the unit is recorded as the
        cause.
        """
        for unit in units:
            unit.deaths += 1
        if units[0].deaths == 1:
            self._again.append(units)
        elif units[0].deaths == 2:
            self._alone.extend([unit] for unit in units)
        else:
            reason, key = "the worker that compiled it alone died", units[0].key.digest
            self._intake.tally.quarantined.append(Failure.of(units[0].request, reason, key, "worker"))
            self._deaths = 0 if self._landings else self._deaths
            self._tick(units[0].request)

    def _died(self, error: WorkerDiedError) -> None:
        """Count the death of a worker.

        Raises:
            ToolCrashError: too many workers died without any work finished between the deaths.
        """
        self._deaths += 1
        if self._deaths > _DEATHS_EACH * self._engine.slots:
            built = counted(len(self._intake.tally.kept()), "image")
            raise ToolCrashError(
                f"workers die before they finish any work, after {built}: {error}",
                help=Hint(
                    "call cujit.compile(…, isolate=True) to see whether a process can compile on this machine",
                    shell="run cujit compile FILE --isolate to see whether a process can compile on this machine",
                ),
            ) from error

    def _broke(self, error: BrokenExecutor) -> ToolCrashError:
        """Return the error for a user's executor that broke. Finished results are processed first."""
        wait(self._flying)  # none of it comes to a good end any more
        done = [future for future in self._flying if future.done() and future.exception() is None]
        for future in done:
            self._landed(future, self._flying.pop(future))
        built = counted(len(self._intake.tally.kept()), "image")
        return ToolCrashError(
            f"the executor failed after {built}, which are stored: {error}",
            help="make the same call again to continue; executor='processes:8' restarts workers",
        )

    def _drop(self) -> None:
        """Record all remaining requests as not begun."""
        waiting = [*self._ready, *(unit for units in (*self._again, *self._alone) for unit in units)]
        while waiting or not self._intake.is_over:
            for unit in waiting:
                self._intake.tally.failed.append(
                    Failure.of(unit.request, f"not begun: {self._given_up}", unit.key.digest)
                )
            waiting = self._intake.take()
