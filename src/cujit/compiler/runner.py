"""The runner, which returns the result of a job from the cache, or runs the tool.

Results and errors are equal with and without a cache.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Sequence

from cujit.arch import Arch
from cujit.artifact import Artifact
from cujit.artifact.artifact import unchecked
from cujit.cache.cache import Cache
from cujit.cache.key import Key, Part
from cujit.cache.provenance import Outcome, Provenance, with_headers
from cujit.cache.settings import CacheSettings, Compiling, values_of
from cujit.cache.store import Hit, Lookup
from cujit.cache.trust import Trust
from cujit.compiler.jobs import CompileJob, Job
from cujit.compiler.keys.builds import Build
from cujit.compiler.keys.maker import Keyed, KeyMaker, Uncacheable
from cujit.compiler.options.limits import WorkLimits
from cujit.compiler.options.values import Options
from cujit.compiler.request import Request
from cujit.errors import (
    CompileError,
    CompileWarning,
    CujitError,
    FileError,
    FormatError,
    NotCompiledError,
    OptionError,
    ToolTimeoutError,
    warn,
    without_frames,
)
from cujit.errors.hints import Hint
from cujit.forks import register_reset
from cujit.toolchain.headers import Settings
from cujit.toolchain.stopping import Ended, Stop, finish
from cujit.toolchain.toolset import Compiler, Toolchain
from cujit.values import ready, replace
from cujit.values.imported import imported
from cujit.values.typed import TYPE_CHECKING, Protocol, TypeAlias
from cujit.workers.environment import COMPILERS_READ

if TYPE_CHECKING:
    from cujit.cache.admin import Shown
    from cujit.cache.record import Summary
    from cujit.cache.store import Root

_NO_LIMITS = WorkLimits()
DECIDING = (*COMPILERS_READ, "CUJIT_EMULATE", "LD_PRELOAD")
"""Variables of the environment that decide on keys."""
KeyedBy: TypeAlias = Callable[[str, tuple[str, ...]], Keyed | None]
"""Makes the key of a text with sorted names; None leaves it to ``KeyMaker.of_request``."""
_MOST_ALIKE = 64
_COMPILE_HELP = "build it in advance into a pack or cache in CUJIT_CACHE_ROOTS, or set CUJIT_COMPILE=auto"
_CHANGED = "its inputs or its tool changed during the compile"


class Listener(Protocol):
    """An observer of compile requests."""

    def on_compile(
        self,
        request: Request,
        keyed: Keyed | Uncacheable,
        result: Artifact | CujitError,
        toolkit: Callable[[], Sequence[str]],
    ) -> None:
        """Receive a request, its key, and its result. ``toolkit`` lists the toolkit's include directories."""


LISTENERS: list[Listener] = []
"""The listeners of the process, for as long as each wants to hear."""


def warm() -> None:
    """Write the methods that a hit of the cache calls, in a process that waits and will compile."""
    ready(Arch, Build, CacheSettings, Compiler, Hit, Key, Keyed, Lookup, Part, Settings, Trust)


class Runner:
    """A toolchain with a cache and their keys, usable by any number of threads. Keep one for the life of the process.

    ``cache`` is None if caching is off, and ``off`` contains the reason. ``compiling`` is the policy for misses.
    Creating a runner opens no library and no file.
    """

    def __init__(
        self,
        toolchain: Toolchain,
        cache: Cache | None = None,
        *,
        off: str = "no cache was given",
        compiling: Compiling = Compiling.AUTO,
    ) -> None:
        self.toolchain = toolchain
        self.cache = cache
        self.compiling = compiling
        may_open = not compiling.is_forbidden
        if cache is not None:
            self.keys: KeyMaker | None = KeyMaker(
                toolchain,
                cache.hints,
                closures=cache.closures,
                has_closures=lambda: cache.is_supplied,
                may_open=may_open,
            )
        else:
            self.keys = None if may_open else KeyMaker(toolchain, may_open=False)
        self.stop: Stop | None = None
        self._limits = _NO_LIMITS
        self._off = off
        self._listeners: tuple[Listener, ...] = ()
        self._alike: dict[object, KeyedBy | None] = {}
        self._of_none: dict[object, Keyed] = {}
        if self.keys is not None:
            register_reset(self.keys)

    @classmethod
    def allowed(cls, toolchain: Toolchain, cache: Cache) -> Runner:
        """Return a runner that compiles no more than the cache and ``CUJIT_COMPILE`` both allow.

        Raises:
            OptionError: the variable has a value that it cannot have.
        """
        return cls(toolchain, cache, compiling=max(Compiling.from_environment(os.environ), cache.compiling))

    def within(self, limits: WorkLimits) -> Runner:
        """Return the same runner for the work of one call: under limits, and with a ``stop`` that ends all of it."""
        runner = self._copied()
        runner._limits, runner.stop = limits, Stop()
        return runner

    def with_listeners(self, listeners: Sequence[Listener]) -> Runner:
        """Return a runner with listeners that observe its requests."""
        runner = self._copied()
        runner._listeners = tuple(listeners)
        return runner

    def _copied(self) -> Runner:
        runner = object.__new__(Runner)
        runner.__dict__.update(self.__dict__)
        return runner

    def toolkit(self) -> Sequence[str]:
        """List the directories of the toolkit's headers.

        Raises:
            ToolchainNotFoundError: the compiler is not installed.
        """
        return self.toolchain.headers.paths if self.keys is None else self.keys.toolkit()

    def compiler(self, language: str) -> Compiler:
        """Return the capabilities of the compiler for ``cuda`` or ``nvvm``.

        Raises:
            ToolchainNotFoundError: the compiler is not installed.
        """
        return (self.toolchain if self.keys is None else self.keys).compiler(language)

    def get(self, job: Job) -> Artifact:
        """Return the cached result of a job, or do the job.

        Raises:
            CujitError: as the job's ``check`` and ``run``.
            NotCompiledError: no cache contains the result, and compiling is forbidden.
            ToolTimeoutError: there was not enough time.
            ToolCrashError: the separate process died.
        """
        begin = time.perf_counter()
        job.check()
        if pinned := self._pinned(job):
            return self._notify(job, *pinned, begin)
        keyed = Uncacheable(self._off) if self.keys is None or self.cache is None else job.key(self.keys)
        try:
            result = self._resolve(job, keyed)
        except CujitError as e:
            if job.request is not None:
                self._emit(job.request, keyed, e)
            _emit_compiled(job, keyed, begin, e)
            raise without_frames(e) from e.__cause__
        return self._notify(job, keyed, result, begin)

    def _notify(self, job: Job, keyed: Keyed | Uncacheable, result: Artifact, begin: float) -> Artifact:
        if self._listeners and job.request is not None:
            self._emit(job.request, keyed, result)
        known = result.provenance
        if not isinstance(known, Provenance) or not known.is_hit:
            _emit_compiled(job, keyed, begin)
        elif imported("cujit.events") or imported("logging"):  # else nobody can hear of it
            _emit_hit(job.step, job.subject, known)
        return result

    def hit(self, alike: object, text: str, names: tuple[str, ...]) -> Artifact | None:
        """Take what a text with sorted names has made before, the short way: one key, one file.

        ``alike`` names what the request has in common with others, and the way is open once ``learn`` has seen one of
        these. It gives what ``get`` would. None leaves it to ``get``: nothing is there, or the text is not enough.
        """
        keyed_by = self._alike.get((alike, values_of(DECIDING, os.environ)))
        return None if keyed_by is None or self._listeners else self.hit_by(keyed_by, text, names)

    def hit_by(self, keyed_by: KeyedBy, text: str, names: tuple[str, ...]) -> Artifact | None:
        """Do the same with what ``learn`` returned, in a process without listeners, under the same environment."""
        keyed = keyed_by(text, names)
        if keyed is None or self.cache is None:
            return None
        key, _, manifest, _, _ = keyed
        if hit := self.cache.hit(key.digest, key.kind):
            made, make_ms, place = hit
            provenance = Provenance(Outcome.DISK, key, place, make_ms, "", manifest.via)
            vars(made)["provenance"] = provenance  # nobody else has looked at it
        else:
            try:
                found = self.cache.find(key, is_read=True)
            except CompileError:  # which ``get`` raises with the names of here
                return None
            if found is None:
                return None
            provenance, made = found[1], _with_provenance(*found, keyed)
        if imported("cujit.events") or imported("logging"):
            _emit_hit(CompileJob.step, f"{made.name} for {made.arch}", provenance)
        return made

    def learn(self, alike: object, request: Request) -> KeyedBy | None:
        """Open the short way for what is alike: texts that are compiled as that of a request was.

        Return what makes their keys. The way stays shut, with None, where tiers are asked, or the packs of a
        distribution are, which have keys of their own.

        Raises:
            ToolchainNotFoundError: the compiler is not installed.
        """
        cache = self.cache
        if cache is None or cache.tiers or cache.own_packs or self.compiling.is_forbidden:
            return None
        return self._keyed_by(alike, lambda: request)

    def key_of_none(self, options: Options) -> Keyed | Uncacheable | None:
        """Return the key of an empty source, which stands for the build of the compiler and for options.

        It is None without keys.

        Raises:
            OptionError: the compiler doesn't support one of the options.
            ToolchainNotFoundError: the compiler is not installed.
        """
        if self.keys is None:
            return None
        around = options, values_of(DECIDING, os.environ)
        known = self._of_none.get(around)
        if known is not None and self.keys.is_of(known):
            return known

        def request() -> Request:
            return Request.of("", None, None, (), options, self)

        keyed_by = self._keyed_by(("none", options), request)
        keyed = keyed_by and keyed_by("", ())
        if keyed is None:
            return self.keys.of_request(request())
        if len(self._of_none) >= _MOST_ALIKE:
            self._of_none.clear()
        self._of_none[around] = keyed
        return keyed

    def _keyed_by(self, alike: object, request: Callable[[], Request]) -> KeyedBy | None:
        around = alike, values_of(DECIDING, os.environ)
        if around not in self._alike and self.keys is not None:
            if len(self._alike) >= _MOST_ALIKE:
                self._alike.clear()
            self._alike[around] = self.keys.alike(request())
        return self._alike.get(around)

    def _emit(self, request: Request, keyed: Keyed | Uncacheable, result: Artifact | CujitError) -> None:
        for listener in self._listeners:
            listener.on_compile(request, keyed, result, self.toolkit)

    def _resolve(self, job: Job, keyed: Keyed | Uncacheable) -> Artifact:
        if self.compiling.is_forbidden and job.compiles:
            found = self._lookup(job, keyed)
            if found is None:
                raise self._miss_error(job, keyed)
            return found
        if isinstance(keyed, Uncacheable):
            return job.renamed(uncached(lambda: self._run_job(job, keyed), keyed.reason))
        try:
            return job.renamed(self._from_cache(job, keyed))
        except CompileError as e:
            if e.request == job.request:
                raise
        # It was the error of an equal source elsewhere, with the paths of that.
        return uncached(lambda: self._run_job(job, keyed), "it does not compile")

    def find(self, job: Job) -> Artifact | None:
        """Return the cached result of a job without doing the job.

        Raises:
            CujitError: as the job's ``check``.
        """
        job.check()
        if self.keys is None or self.cache is None:
            return None
        begin = time.perf_counter()
        if pinned := self._pinned(job):
            return self._notify(job, *pinned, begin)
        keyed = job.key(self.keys)
        found = self._lookup(job, keyed)
        return None if found is None else self._notify(job, keyed, found, begin)

    def _pinned(self, job: Job) -> tuple[Keyed, Artifact] | None:
        """Return the result in a pack of the requesting distribution, for any build of its compiler.

        The local compiler may have another release only if it could not be used anyway.
        """
        keys, cache, request = self.keys, self.cache, job.request
        if keys is None or cache is None or request is None or not cache.own_packs:
            return None
        pin = keys.pin(request)

        def is_answer(summary: Summary, pack: Root) -> bool:
            is_near = self.compiling.is_forbidden or keys.release() in ("", summary.tool.partition(",")[0])
            return is_near and keys.is_as_pinned(request, str(pin), pack.closures)

        found = None if pin is None else cache.pinned(pin, is_answer)
        if found is None:
            return None
        artifact, provenance = found
        assert provenance.key is not None
        return Keyed(provenance.key), job.renamed(unchecked(vars(artifact), provenance=provenance))

    def _lookup(self, job: Job, keyed: Keyed | Uncacheable) -> Artifact | None:
        if self.cache is None or isinstance(keyed, Uncacheable):
            return None
        found = self.cache.find(keyed.key, is_read=True)
        return None if found is None else job.renamed(_with_provenance(*found, keyed))

    def _miss_error(self, job: Job, keyed: Keyed | Uncacheable) -> NotCompiledError:
        """Return the error that names the missing result, the nearest entry, and the searched places."""
        lines = [f"no cache has {job.subject}, and {job.tool} is not called to {job.step} it ({self.compiling})"]
        nearest, roots = None, () if self.cache is None else tuple(str(root.root) for root in self.cache.stores)
        if self.cache is not None:
            roots += tuple(tier.url for tier in self.cache.tiers)
        if isinstance(keyed, Uncacheable):
            lines.append(f"it has no cache key: {keyed.reason}")
        elif self.cache is not None:
            nearest = self.cache.why(keyed.key)
            lines.append(str(nearest).replace("\n", "\n  ") if nearest else "there is no similar entry")
        lines.append(f"searched: {', '.join(roots) or 'nothing'}")
        return NotCompiledError("\n  ".join(lines), nearest=nearest, searched=roots, help=_COMPILE_HELP)

    def _from_cache(self, job: Job, keyed: Keyed) -> Artifact:
        keys, cache = self.keys, self.cache
        assert keys is not None
        assert cache is not None
        artifact, provenance = cache.get_or_make(
            keyed.key,
            lambda: self._run_job(job, keyed),
            why_not_keep=lambda: "" if keys.is_still(keyed) else _CHANGED,
            recipe=job.recipe,
            most_wait_s=self._limits.left_s,
        )
        return _with_provenance(artifact, provenance, keyed)

    def remake(self, shown: Shown) -> Artifact | None:
        """Make an entry of the cache again; None without a recipe, or where that gives another, or may not be.

        It is what ``cujit.cache.admin.verify`` asks for.

        Raises:
            FormatError: the recipe is none.
            CujitError: the same inputs no longer compile.
        """
        if not shown.record.recipe or self.keys is None or self.compiling.is_forbidden:
            return None
        from cujit.compiler.keys.recipe import read_recipe  # start-up: for `cujit cache verify` alone

        job = CompileJob(read_recipe(shown.record.recipe))
        job.check()
        keyed = job.key(self.keys)
        return self._run(job, keyed) if isinstance(keyed, Keyed) and keyed.key == shown.key else None

    def answers(self, roots: Iterable[Root]) -> tuple[dict[str, str], dict[str, bytes]]:
        """Return the result of ``KeyMaker.answers`` for compiled entries of caches if the headers are unchanged.

        Raises:
            CacheRefusedError: other users could have written to a root.
            OSError: a root can't be read.
        """
        from cujit.compiler.keys.recipe import read_recipe  # start-up: for whoever makes a pack

        made: dict[str, Request] = {}
        if self.keys is None:
            return {}, {}
        for root in roots:
            for entry in root.entries():
                record = root.get(entry.digest).record
                with contextlib.suppress(FormatError, OptionError, FileError):
                    request = read_recipe(record.recipe if record is not None else b"")
                    keyed = self.keys.of_request(request)
                    if isinstance(keyed, Keyed) and keyed.key.digest == entry.digest:
                        made[entry.digest] = request
        return self.keys.answers(made)

    def _run_job(self, job: Job, keyed: Keyed | Uncacheable) -> Artifact:
        limits = self._limits
        if self.compiling is Compiling.WARN and job.compiles:
            warn(self._miss_error(job, keyed).message, CompileWarning)

        from cujit.events.hub import nvtx_range  # start-up: a hit of the cache calls no tool

        try:
            if limits.left_s == 0:
                raise Ended
            with nvtx_range(f"{job.step} {job.subject}"):
                return finish(lambda: self._run(job, keyed), self.stop or Stop(), limits.until)
        except Ended:
            raise _too_long(job, limits) from None

    def _run(self, job: Job, keyed: Keyed | Uncacheable) -> Artifact:
        """Do a job here, or in a separate process if requested or required."""
        from cujit.toolchain.calls import may_be_locked  # start-up: a hit of the cache calls no tool

        if not (self._limits.isolate or job.isolated or may_be_locked()):
            return self._run_here(job, keyed)
        from cujit.compiler.isolation.parent import run_isolated  # start-up: for isolate=True, and after some forks

        return run_isolated(job, self.toolchain.settings, self._limits.memory_mib)

    def _run_here(self, job: Job, keyed: Keyed | Uncacheable) -> Artifact:
        """Do a job in this process; a compile may precompile its headers, if they are known by content."""
        if not isinstance(job, CompileJob) or job.request.options.get("pch") is False:
            return job.run(self.toolchain)
        keys = self.keys
        if keys is None and job.request.options.get("pch"):
            keys = KeyMaker(self.toolchain)
            keyed = job.key(keys)
        headers = keyed.headers_of(job.request) if isinstance(keyed, Keyed) else ""
        if keys is None or not headers:
            return job.run(self.toolchain)
        assert isinstance(keyed, Keyed)
        try:
            return CompileJob(job.request, headers).run(self.toolchain)
        finally:
            if not keys.is_still(keyed):
                from cujit.toolchain.precompiled import precompiled_headers  # start-up: a hit calls no tool

                precompiled_headers().discard(headers)


def _emit_hit(step: str, subject: str, known: Provenance) -> None:
    """Emit a ``CacheHit`` event for a cached result."""
    from cujit.events.hub import emit  # start-up: for who can hear of it
    from cujit.events.values import CacheHit  # start-up: as above

    key = None if known.key is None else known.key.digest
    emit(CacheHit, step, subject, known.outcome.value, key, known.make_ms / 1e3)


def _emit_compiled(job: Job, keyed: Keyed | Uncacheable, begin: float, error: CujitError | None = None) -> None:
    """Emit a ``Made`` event for a finished or failed job."""
    from cujit.events.hub import emit  # start-up: a hit of the cache calls no tool
    from cujit.events.values import Made  # start-up: as above

    key, reason = (keyed.key.digest, "") if isinstance(keyed, Keyed) else (None, keyed.reason)
    emit(Made, job.step, job.subject, job.tool, time.perf_counter() - begin, key, reason, error)


def _with_provenance(artifact: Artifact, provenance: Provenance, keyed: Keyed) -> Artifact:
    if keyed.manifest.via:
        provenance = with_headers(provenance, keyed.manifest.via)
    return unchecked(vars(artifact), provenance=provenance)


def uncached(make: Callable[[], Artifact], reason: str) -> Artifact:
    """Create an Artifact that no cache contains, with the reason."""
    begin = time.perf_counter()
    artifact = make()
    make_ms = (time.perf_counter() - begin) * 1e3
    return replace(artifact, provenance=Provenance(Outcome.UNCACHED, make_ms=make_ms, reason=reason))


def _too_long(job: Job, limits: WorkLimits) -> ToolTimeoutError:
    given = "" if limits.timeout_s is None else f" in the {limits.timeout_s:g} s that it had"
    more = Hint(
        "allow more time (timeout_s), or compile fewer kernels or template instances at once",
        shell="allow more time (--timeout), or compile fewer kernels or template instances at once",
    )
    if not limits.isolate:
        end = "in a separate process ({}) what is given up ends at once"
        more += Hint(f"; {end.format('isolate=True')}", shell=f"; {end.format('--isolate')}")
    return ToolTimeoutError(f"{job.tool} couldn't {job.step} {job.subject}{given}", tool=job.tool, help=more)
