"""Building worklists: compile what is listed, into a cache and a pack; or tell how much of a list a pack has."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cujit.arch import Arch, ArchKind
from cujit.arch.support import require_arch
from cujit.cache.cache import Cache
from cujit.cache.pack import PackStats, write_pack
from cujit.cache.process import default_cache
from cujit.cache.provenance import Outcome, Provenance
from cujit.cache.settings import Compiling
from cujit.compiler.build import threads_of
from cujit.compiler.jobs import CompileJob
from cujit.compiler.keys.maker import Uncacheable
from cujit.compiler.options.limits import WorkLimits
from cujit.compiler.runner import Runner
from cujit.errors import CompileError, CujitError, FormatError, MissingError, OptionError, ToolTimeoutError
from cujit.toolchain.headers import Settings
from cujit.toolchain.toolset import Toolchain
from cujit.worklist.lists import Worklist
from cujit.worklist.places import Places, project_of

__all__ = ["BuiltList", "Cover", "Unbuilt", "build", "cover"]

RECORDED = "recorded"
"""Among architectures: those of the list."""

_PER_PROCESS = 8
"""Compiles that are worth a process: one begins in 0.5 s of CPU, and a small kernel takes 60 ms."""


class Unbuilt(NamedTuple):
    """A request that was not built, or is not covered, and why: the first message of the compiler, or of cujit."""

    name: str
    recipe: str
    arch: Arch
    reason: str


@dataclass(frozen=True)
class BuiltList:
    """What became of a list: ``keys`` by digest, of them ``made`` now; ``pack`` says what was written, if any was."""

    keys: tuple[str, ...]
    made: int
    failed: tuple[Unbuilt, ...]
    pack: PackStats | None = None


@dataclass(frozen=True)
class Cover:
    """What a pack has of a list, in calls and in the milliseconds of making each request once."""

    calls: int
    covered_calls: int
    make_ms: float
    covered_ms: float
    missing: tuple[Unbuilt, ...]

    @property
    def share_of_calls(self) -> float:
        """From 0 to 1."""
        return self.covered_calls / self.calls

    @property
    def share_of_time(self) -> float:
        """From 0 to 1; 1 where no time is known."""
        return self.covered_ms / self.make_ms if self.make_ms else 1.0


def build(
    worklist: Worklist,
    *,
    arch: Sequence[str | Arch] = (),
    ptx: bool = False,
    pack: str | os.PathLike[str] | None = None,
    cache: Cache | None = None,
    project: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
    made_s: int = 0,
    progress: Callable[[int, int, str], object] | None = None,
) -> BuiltList:
    """Compile what a list has, in its order, through a cache, and put it into a pack.

    The same list, headers and compiler make the same bytes. What does not compile is left out and said.

    Args:
        worklist: what ``read`` or ``merge`` gave.
        arch: the architectures to build for; ``"recorded"`` stands for those of the list, and is meant without any.
        ptx: add PTX of the highest architecture, which GPUs of tomorrow compile for themselves.
        pack: the file to write, whose name ends in ``.pack``; None leaves all in the cache.
        cache: where images are looked for and kept; None is the process's.
        project: the directory that ``{project}`` stands for; None is the one that the working directory is in.
        jobs: how many processes compile at a time; None takes one per processor, and one alone for a short list.
        made_s: the Unix time that is noted in the pack.
        progress: called with (done, total, name) after every compile.

    Raises:
        ArchError: an architecture is malformed or unknown, or the compiler does not build for it.
        FormatError: the list is empty.
        OptionError: the cache is off.
        ToolchainNotFoundError: there is no compiler.
        OSError: the pack cannot be written.
    """
    kept = default_cache() if cache is None else cache
    if kept.store is None:
        raise OptionError("a list is built into a cache, and there is none that is written", help="--dir, CUJIT_CACHE")
    runner, places = _tools(kept, project)
    units = _units(worklist, arch, ptx=ptx)
    for target in _named(arch):
        compiler = runner.compiler("cuda")
        require_arch(target, compiler.arches, compiler.tool, compiler.version)
    results = _compiled(worklist, units, places, runner, _processes(jobs, len(units)), progress)
    keys = dict(result for result in reversed(results) if not isinstance(result, Unbuilt))
    failed = tuple(result for result in results if isinstance(result, Unbuilt))
    stats = None
    if pack is not None:
        assert runner.keys is not None
        made = {
            result[0]: worklist.request(unit.recipe, unit.arch, places)
            for unit, result in zip(units, results, strict=True)
            if not isinstance(result, Unbuilt)
        }
        requests, closures = runner.keys.answers(made)
        wanted = list(keys)
        stats = write_pack(Path(pack), kept.stores, wanted=wanted, requests=requests, closures=closures, made_s=made_s)
    return BuiltList(tuple(reversed(keys)), sum(keys.values()), failed, stats)


def _compiled(
    worklist: Worklist,
    units: Sequence[_Unit],
    places: Places,
    runner: Runner,
    processes: int,
    progress: Callable[[int, int, str], object] | None,
) -> list[tuple[str, bool] | Unbuilt]:
    """Compile units, in this process or, if in several at a time, in as many apart; give their results in order."""
    runner = runner.within(WorkLimits.of(None, processes > 1, None))
    results = []
    with ThreadPoolExecutor(processes, thread_name_prefix="cujit-worklist") as pool:
        try:
            for unit, result in zip(
                units, pool.map(lambda unit: _built(worklist, unit, places, runner), units), strict=True
            ):
                results.append(result)
                if progress:
                    progress(len(results), len(units), worklist.name(unit.recipe))
        except BaseException:
            if runner.stop:
                runner.stop.ask()
            pool.shutdown(cancel_futures=True)
            raise
    return results


def cover(
    worklist: Worklist,
    roots: Sequence[Path],
    *,
    arch: Sequence[str | Arch] = (),
    project: str | os.PathLike[str] | None = None,
) -> Cover:
    """Tell what share of the calls of a list packs or cache directories would have answered; nothing is compiled.

    Args:
        worklist: what ``read`` or ``merge`` gave.
        roots: packs and directories, as ``CUJIT_CACHE_ROOTS`` has them.
        arch: ask as if the calls had been for these; None means as they were.
        project: see ``build``.

    Raises:
        ArchError: there is no such architecture.
        FormatError: the list is empty.
        CacheRefusedError: a root is damaged, or others could have written it.
        OSError: a root cannot be read.
    """
    shipped = Cache(None, read_only=roots)
    runner, places = _tools(shipped, project)
    calls = covered = 0
    ms = covered_ms = 0.0
    missing = []
    for unit in _units(worklist, arch):
        reason = _not_in(shipped, worklist, unit, places, runner)
        calls, ms = calls + unit.calls, ms + unit.make_ms
        if reason:
            missing.append(Unbuilt(worklist.name(unit.recipe), unit.recipe, unit.arch, reason))
        else:
            covered, covered_ms = covered + unit.calls, covered_ms + unit.make_ms
    return Cover(calls, covered, ms, covered_ms, tuple(missing))


def _tools(cache: Cache, project: str | os.PathLike[str] | None) -> tuple[Runner, Places]:
    compiling = max(Compiling.from_environment(os.environ), cache.compiling)
    runner = Runner(Toolchain(Settings.from_environment(os.environ)), cache, compiling=compiling)
    directory = os.path.abspath(os.getcwd() if project is None else os.fspath(project))
    return runner, Places(project_of(directory) if project is None else directory, runner.toolkit)


@dataclass(frozen=True)
class _Unit:
    """One compile of a list."""

    recipe: str
    arch: Arch
    calls: int
    make_ms: float


def _units(worklist: Worklist, arch: Sequence[str | Arch], *, ptx: bool = False) -> list[_Unit]:
    """Give the compiles of a list, each once: its recipes in their order, and of each the architectures in theirs."""
    named, is_recorded = _named(arch), not arch or RECORDED in arch
    uses = [use for use in worklist.uses if use.outcome != "failed"]
    if not uses:
        raise FormatError("there is nothing in this list", help="CUJIT_RECORD=<a directory> records what is compiled")
    newest = max([*named, *(use.arch for use in uses if is_recorded)])
    found: dict[tuple[str, Arch], _Unit] = {}
    for use in uses:
        targets = [use.arch] * is_recorded
        if use.arch.is_lto:
            targets += [Arch(ArchKind.LTO, one.number, one.suffix) for one in named]
        else:  # PTX without a suffix, which would bind it to one GPU
            targets += [*named, *[Arch(ArchKind.VIRTUAL, newest.number)] * ptx]
        for target in dict.fromkeys(targets):
            known = found.get((use.recipe, target), _Unit(use.recipe, target, 0, 0.0))
            calls, make_ms = known.calls + use.calls, max(known.make_ms, use.make_ms)
            found[use.recipe, target] = _Unit(use.recipe, target, calls, make_ms)
    return list(found.values())


def _named(arch: Sequence[str | Arch]) -> list[Arch]:
    return [Arch.parse(one) for one in arch if one != RECORDED]


def _processes(jobs: int | None, compiles: int) -> int:
    return min(threads_of(jobs), max(1, compiles if jobs is not None else compiles // _PER_PROCESS))


def _built(worklist: Worklist, unit: _Unit, places: Places, runner: Runner) -> tuple[str, bool] | Unbuilt:
    """Compile one unit; give the digest of its key and whether it was made now, or why it is not built."""
    try:
        artifact = runner.get(CompileJob(worklist.request(unit.recipe, unit.arch, places)))
    except (MissingError, ToolTimeoutError):
        raise
    except CujitError as e:
        return _unbuilt(worklist, unit, _first_message(e))
    known = artifact.provenance
    assert isinstance(known, Provenance)
    if known.key is None or known.outcome is Outcome.UNCACHED:
        return _unbuilt(worklist, unit, f"not cached: {known.reason}")
    return known.key.digest, known.outcome is Outcome.MADE


def _not_in(shipped: Cache, worklist: Worklist, unit: _Unit, places: Places, runner: Runner) -> str:
    """Say why no root answers a unit; "" where one does."""
    assert runner.keys is not None
    try:
        job = CompileJob(worklist.request(unit.recipe, unit.arch, places))
        job.check()
        keyed = job.key(runner.keys)
    except CujitError as e:
        return _first_message(e)
    if isinstance(keyed, Uncacheable):
        return f"not cached: {keyed.reason}"
    return "" if any(root.peek(keyed.key.digest) for root in shipped.stores) else "it is not there"


def _unbuilt(worklist: Worklist, unit: _Unit, reason: str) -> Unbuilt:
    return Unbuilt(worklist.name(unit.recipe), unit.recipe, unit.arch, reason)


def _first_message(error: CujitError) -> str:
    errors = [d for d in error.diagnostics if d.severity == "error"] if isinstance(error, CompileError) else []
    return str(errors[0] if errors else error.message).partition("\n")[0]
