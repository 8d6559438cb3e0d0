"""The runner: gets what a job makes, from the cache, or from the tool if need be.

With and without a cache the same Artifact comes out, and the same errors.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

from cujit.artifact import Artifact
from cujit.cache.cache import Cache
from cujit.cache.provenance import Outcome, Provenance
from cujit.compiler.jobs import CompileJob, Job
from cujit.compiler.keys.maker import Keyed, KeyMaker, Uncacheable
from cujit.compiler.options.limits import WorkLimits
from cujit.errors import CompileError, ToolTimeoutError
from cujit.forks import begins_anew
from cujit.toolchain.stopping import Ended, Stop, finish
from cujit.toolchain.toolset import Compiler, Toolchain

if TYPE_CHECKING:
    from cujit.cache.admin import Shown

__all__ = ["Runner", "uncached"]

_NO_LIMITS = WorkLimits()
_CHANGED = "its inputs or its tool were changed while it was made"


class Runner:
    """Toolchain, cache and the keys of both, for any number of threads; keep one as long as the process needs it.

    ``cache`` is None where nothing is cached, and ``off`` says why. Making it opens no library and no file.
    """

    def __init__(self, toolchain: Toolchain, cache: Cache | None = None, *, off: str = "no cache was given") -> None:
        self.toolchain = toolchain
        self.cache = cache
        self.keys = None if cache is None else KeyMaker(toolchain, cache.hints)
        self.stop: Stop | None = None
        self._limits = _NO_LIMITS
        self._off = off
        if self.keys is not None:
            begins_anew(self.keys)

    def within(self, limits: WorkLimits) -> Runner:
        """Give the same runner for the work of one call: under limits, and with a ``stop`` that ends all of it."""
        runner = copy(self)
        runner._limits, runner.stop = limits, Stop()
        return runner

    def compiler(self, language: str) -> Compiler:
        """Tell what the compiler of ``cuda`` or ``nvvm`` can do.

        Raises:
            ToolchainNotFoundError: it is not installed.
        """
        return (self.toolchain if self.keys is None else self.keys).compiler(language)

    def get(self, job: Job) -> Artifact:
        """Do a job, or take what such a job has made before.

        Raises:
            CujitError: as of the job's ``check`` and ``run``.
            ToolTimeoutError: there was not enough time.
            ToolCrashError: the process apart died.
        """
        job.check()
        keyed = Uncacheable(self._off) if self.keys is None else job.key(self.keys)
        if isinstance(keyed, Uncacheable):
            return job.renamed(uncached(lambda: self._made(job), keyed.reason))
        try:
            return job.renamed(self._kept(job, keyed))
        except CompileError as e:
            if e.request == job.request:
                raise
        # It was the error of an equal source elsewhere, with the paths of that.
        return uncached(lambda: self._made(job), "it does not compile")

    def _kept(self, job: Job, keyed: Keyed) -> Artifact:
        keys, cache = self.keys, self.cache
        assert keys is not None
        assert cache is not None
        artifact, provenance = cache.get_or_make(
            keyed.key,
            lambda: self._made(job),
            why_not_keep=lambda: "" if keys.is_still(keyed) else _CHANGED,
            recipe=job.recipe,
            most_wait_s=self._limits.left_s,
        )
        return replace(artifact, provenance=provenance)

    def remake(self, shown: Shown) -> Artifact | None:
        """Make an entry of the cache again; None without a recipe, or where headers or tools are of another content.

        It is what ``cujit.cache.admin.verify`` asks for.

        Raises:
            FormatError: the recipe is none.
            CujitError: the same inputs no longer compile.
        """
        if not shown.record.recipe or self.keys is None:
            return None
        from cujit.compiler.keys.recipe import read_recipe  # start-up: for `cujit cache verify` alone

        job = CompileJob(read_recipe(shown.record.recipe))
        job.check()
        keyed = job.key(self.keys)
        return job.run(self.toolchain) if isinstance(keyed, Keyed) and keyed.key == shown.key else None

    def _made(self, job: Job) -> Artifact:
        limits = self._limits

        def work() -> Artifact:
            if not limits.isolate:
                return job.run(self.toolchain)
            from cujit.compiler.apart.parent import run_apart  # start-up: for isolate=True alone

            return run_apart(job, self.toolchain.settings, limits.memory_mib)

        try:
            if limits.left_s == 0:
                raise Ended
            return finish(work, self.stop or Stop(), limits.until)
        except Ended:
            raise _too_long(job, limits) from None


def uncached(make: Callable[[], Artifact], reason: str) -> Artifact:
    """Make an Artifact that no cache keeps, and say why not."""
    begin = time.perf_counter()
    artifact = make()
    make_ms = (time.perf_counter() - begin) * 1e3
    return replace(artifact, provenance=Provenance(Outcome.UNCACHED, make_ms=make_ms, reason=reason))


def _too_long(job: Job, limits: WorkLimits) -> ToolTimeoutError:
    given = "" if limits.timeout_s is None else f" in the {limits.timeout_s:g} s that it had"
    more = "" if limits.isolate else "; in a process apart (isolate=True, --isolate) what is given up ends at once"
    return ToolTimeoutError(
        f"{job.tool} did not {job.step} {job.subject}{given}",
        tool=job.tool,
        help=f"more time (timeout_s=, --timeout), fewer kernels or instances of templates at a time{more}",
    )
