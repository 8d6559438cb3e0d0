"""Building of worklists into a cache and a pack, and the share of a list that a pack covers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from cujit.arch import Arch, ArchKind
from cujit.arch.support import require_arch
from cujit.cache.cache import Cache
from cujit.cache.process import default_cache
from cujit.compiler.build import threads_of
from cujit.compiler.jobs import CompileJob
from cujit.compiler.keys.maker import Uncacheable
from cujit.compiler.request import Request
from cujit.compiler.runner import Runner
from cujit.errors import CujitError, FormatError
from cujit.farm.driver import build as build_requests
from cujit.farm.report import Failure, Report
from cujit.farm.worker import first_message
from cujit.toolchain.headers import Settings
from cujit.toolchain.toolset import Toolchain
from cujit.values import NamedTuple, dataclass, replace
from cujit.worklist.lists import Worklist
from cujit.worklist.places import Places, project_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from cujit.farm.driver import FarmKeywords

RECORDED = "recorded"
"""Among architectures: those of the list."""

_PER_PROCESS = 8
"""Compiles that are worth a process: one begins in 0.5 s of CPU, and a small kernel takes 60 ms."""


class Unbuilt(NamedTuple):
    """A request that is not covered, and why: the first message of cujit."""

    name: str
    recipe: str
    arch: Arch
    reason: str


@dataclass(frozen=True)
class Cover:
    """The share of a list that a pack covers, by calls and by the milliseconds to compile each request once."""

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
        """From 0 to 1, or 1 if no time is known."""
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
    executor: Executor | str | None = None,
    **settings: Unpack[FarmKeywords],
) -> Report:
    """Compile what a list has, what took longest first, through a cache, and put it into a pack.

    The same list, headers and compiler make the same bytes. What does not compile is left out and said.

    Args:
        worklist: what ``read`` or ``merge`` gave.
        arch: the architectures to build for; ``"recorded"`` stands for those of the list, and is meant without any.
        ptx: add PTX of the highest architecture, which GPUs of tomorrow compile for themselves.
        pack: the file to write, whose name ends in ``.pack``; None leaves all in the cache.
        cache: where images are looked for and kept; None is the process's.
        project: the directory that ``{project}`` stands for; None is the one that the working directory is in.
        jobs: how many processes compile at a time; None takes one per processor, and one alone for a short list.
        executor: what compiles instead, here or on other machines, as ``cujit.farm.build`` takes it.
        settings: ``store``, ``deadline_s``, ``memory_bytes``, ``made_s``, ``progress`` and what else
            ``cujit.farm.build`` takes.

    Raises:
        ArchError: an architecture is malformed or unknown, or the compiler does not build for it.
        FormatError: the list is empty.
        OptionError: the cache is off.
        ToolchainNotFoundError: there is no compiler.
        FileError: cujit can't write the pack or read the cache.
    """
    work = _Work.of(worklist, default_cache() if cache is None else cache, project)
    units = work.units(arch, ptx=ptx)
    for target in _named(arch):
        compiler = work.runner.compiler("cuda")
        require_arch(target, compiler.arches, compiler.tool, compiler.version)
    times: dict[Request, float] = {}
    settings.setdefault("make_ms", times.__getitem__)
    failed = []
    for unit in units:
        try:
            times[worklist.request(unit.recipe, unit.arch, work.places)] = unit.make_ms
        except CujitError as e:  # noqa: PERF203
            failed.append(Failure(unit.name, unit.arch, e.message))
    with ThreadPoolExecutor(_processes(jobs, len(units)), "cujit-worklist") as threads:  # each has a process apart
        report = build_requests(
            times,
            executor=threads if executor is None else executor,
            sink=work.runner.cache,
            pack=pack,
            **settings,
        )
    return replace(report, failed=(*failed, *report.failed))


def cover(
    worklist: Worklist,
    roots: Sequence[Path],
    *,
    arch: Sequence[str | Arch] = (),
    project: str | os.PathLike[str] | None = None,
) -> Cover:
    """Return what share of the calls in a list packs or cache directories would have answered. Nothing is compiled.

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
    work = _Work.of(worklist, shipped, project)
    calls = covered = 0
    ms = covered_ms = 0.0
    missing = []
    for unit in work.units(arch):
        reason = work.lacks(unit, shipped)
        calls, ms = calls + unit.calls, ms + unit.make_ms
        if reason:
            missing.append(unit.unbuilt(reason))
        else:
            covered, covered_ms = covered + unit.calls, covered_ms + unit.make_ms
    return Cover(calls, covered, ms, covered_ms, tuple(missing))


def keys(
    worklist: Worklist, *, arch: Sequence[str | Arch] = (), project: str | os.PathLike[str] | None = None
) -> tuple[dict[str, str], tuple[Unbuilt, ...]]:
    """Compute the keys of a list with the local headers and compiler, without compiling.

    Return the digest of each key with the name of its source, and the requests without a key.

    Args:
        worklist: result of ``read`` or ``merge``.
        arch: as for ``build``.
        project: as for ``build``.

    Raises:
        ArchError: the architecture doesn't exist.
        FormatError: the list is empty.
    """
    work = _Work.of(worklist, Cache(None), project)
    found: dict[str, str] = {}
    failed = []
    for unit in work.units(arch):
        try:
            found[work.key(unit)] = unit.name
        except CujitError as e:  # noqa: PERF203
            failed.append(unit.unbuilt(first_message(e)))
    return found, tuple(failed)


@dataclass(frozen=True)
class _WorkUnit:
    """One compile of a list, with the calls of all its uses."""

    name: str
    recipe: str
    arch: Arch
    calls: int = 0
    make_ms: float = 0.0

    def unbuilt(self, reason: str) -> Unbuilt:
        return Unbuilt(self.name, self.recipe, self.arch, reason)


class _Work(NamedTuple):
    """A list, the toolchain that compiles it, and the places of its headers."""

    worklist: Worklist
    runner: Runner
    places: Places

    @classmethod
    def of(cls, worklist: Worklist, cache: Cache, project: str | os.PathLike[str] | None) -> _Work:
        runner = Runner.allowed(Toolchain(Settings.from_environment(os.environ)), cache)
        directory = project_of(os.getcwd()) if project is None else os.path.abspath(os.fspath(project))
        return cls(worklist, runner, Places(directory, runner.toolkit))

    def units(self, arch: Sequence[str | Arch], *, ptx: bool = False) -> list[_WorkUnit]:
        """Return the distinct compiles in the order of the recipes and of each recipe's architectures.

        Raises:
            FormatError: there are none.
            ArchError: an architecture is malformed or unknown.
        """
        named, is_recorded = _named(arch), not arch or RECORDED in arch
        uses = [use for use in self.worklist.uses if use.outcome != "failed"]
        if not uses:
            raise FormatError("the list is empty", help="set CUJIT_RECORD to a directory to record compile requests")
        newest = max([*named, *(use.arch for use in uses if is_recorded)])
        found: dict[tuple[str, Arch], _WorkUnit] = {}
        for use in uses:
            targets = [use.arch] * is_recorded
            if use.arch.is_lto:
                targets += [Arch(ArchKind.LTO, one.number, one.suffix) for one in named]
            else:  # PTX without a suffix, which would bind it to one GPU
                targets += [*named, *[Arch(ArchKind.VIRTUAL, newest.number)] * ptx]
            for target in dict.fromkeys(targets):
                name = self.worklist.name(use.recipe)
                known = found.get((use.recipe, target)) or _WorkUnit(name, use.recipe, target)
                calls, make_ms = known.calls + use.calls, max(known.make_ms, use.make_ms)
                found[use.recipe, target] = _WorkUnit(name, use.recipe, target, calls, make_ms)
        return list(found.values())

    def key(self, unit: _WorkUnit) -> str:
        """Make the digest of the key of a unit, of the headers and the compiler that are here.

        Raises:
            CujitError: it cannot be made here.
        """
        assert self.runner.keys is not None
        job = CompileJob(self.worklist.request(unit.recipe, unit.arch, self.places))
        job.check()
        keyed = job.key(self.runner.keys)
        if isinstance(keyed, Uncacheable):
            raise FormatError(f"the image can't be cached: {keyed.reason}")
        return keyed.key.digest

    def lacks(self, unit: _WorkUnit, shipped: Cache) -> str:
        """Return why no root contains the result of a unit, or an empty string if one does."""
        try:
            digest = self.key(unit)
        except CujitError as e:
            return first_message(e)
        return "" if any(root.peek(digest) for root in shipped.stores) else "it is missing"


def _named(arch: Sequence[str | Arch]) -> list[Arch]:
    return [Arch.parse(one) for one in arch if one != RECORDED]


def _processes(jobs: int | None, compiles: int) -> int:
    return min(threads_of(jobs), max(1, compiles if jobs is not None else compiles // _PER_PROCESS))
