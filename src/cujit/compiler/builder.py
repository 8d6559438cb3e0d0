"""The workshop: every compile, link and bundle goes from its key to the cache, and from there to the tool if need be.

With and without a cache the same Artifact comes out, and the same errors.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

from cujit.arch import Arch
from cujit.artifact import Artifact, Kind
from cujit.cache.cache import Cache
from cujit.cache.provenance import Outcome, Provenance
from cujit.compiler.jobs import BundleJob, CompileJob, Job, LinkJob
from cujit.compiler.keys.maker import Keyed, KeyMaker, Uncacheable
from cujit.compiler.options.limits import Limits
from cujit.compiler.options.values import Options, Tool
from cujit.compiler.request import Request
from cujit.compiler.route import check_request
from cujit.errors import CompileError, ToolTimeoutError
from cujit.forks import begins_anew
from cujit.toolchain.stopping import Ended, Stop, finish
from cujit.toolchain.toolset import Compiler, Toolchain

if TYPE_CHECKING:
    from cujit.compiler.inputs.entry import Entry

__all__ = ["Workshop"]

_NO_LIMITS = Limits()
_CHANGED = "its inputs or its tool were changed while it was made"


class Workshop:
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

    def within(self, limits: Limits) -> Workshop:
        """Give the same workshop for the work of one call: under limits, and with a ``stop`` that ends all of it."""
        shop = copy(self)
        shop._limits, shop.stop = limits, Stop()
        return shop

    def compiler(self, language: str) -> Compiler:
        """Tell what the compiler of ``cuda`` or ``nvvm`` can do.

        Raises:
            ToolchainNotFoundError: it is not installed.
        """
        return (self.toolchain if self.keys is None else self.keys).compiler(language)

    def compile(self, request: Request) -> Artifact:
        """Compile, or take what such a compile has made before.

        Raises:
            CujitError: as of ``compile_request``.
        """
        check_request(request)
        job = CompileJob(request)
        try:
            artifact = self._get(job, lambda keys: keys.of_request(request), lambda: _recipe(request))
        except CompileError as e:
            if e.request == request:
                raise
        else:
            return _renamed(artifact, request.source.name)
        # It is the error of an equal source elsewhere, with the paths of that.
        return self._bare(lambda: self._made(job), "it does not compile")

    def link(self, artifacts: Sequence[Artifact], to: Kind, arch: Arch | None, options: Options) -> Artifact:
        """Link, or take what such a link has made before; of PTX to PTX without nvJitLink and cache.

        Raises:
            CujitError: as of ``link_images`` and ``link_to_ptx``.
        """
        from cujit.compiler.backends.ptxlink import link_to_ptx, needs_our_linker

        options.render(Tool.NVJITLINK)
        if to is Kind.PTX and needs_our_linker(artifacts):
            return self._bare(
                lambda: link_to_ptx(artifacts, arch, options, lambda lto, top: self.link(lto, Kind.PTX, top, options)),
                "PTX is linked as fast as it is read",
            )
        job = LinkJob(tuple(artifacts), to, arch, options)
        return self._get(job, lambda keys: keys.of_link(artifacts, to, arch, options))

    def bundle(self, entries: Sequence[Entry], compress: str | bool | None) -> Artifact:
        """Bundle, or take what such a bundling has made before.

        Raises:
            CujitError: as of ``bundle_images``.
        """
        from cujit.compiler.backends.bundle import check_compression

        check_compression(compress)
        if compress is None and any(entry.image.kind is Kind.LTOIR for entry in entries):
            compress = "none"  # nvFatbin packs LTO-IR in a way that NVIDIA's libraries alone can read
        artifact = self._get(BundleJob(tuple(entries), compress), lambda keys: keys.of_bundle(entries, compress))
        return _renamed(artifact, entries[0].image.name)

    def _get(
        self, job: Job, key: Callable[[KeyMaker], Keyed | Uncacheable], recipe: Callable[[], bytes] = bytes
    ) -> Artifact:
        keys, cache = self.keys, self.cache
        if keys is None or cache is None:
            return self._bare(lambda: self._made(job), self._off)
        keyed = key(keys)
        if isinstance(keyed, Uncacheable):
            return self._bare(lambda: self._made(job), keyed.reason)

        def why_not_keep() -> str:
            return "" if keys.is_still(keyed) else _CHANGED

        artifact, provenance = cache.get_or_make(
            keyed.key,
            lambda: self._made(job),
            why_not_keep=why_not_keep,
            recipe=recipe,
            most_wait_s=self._limits.left_s,
        )
        return replace(artifact, provenance=provenance)

    @staticmethod
    def _bare(make: Callable[[], Artifact], reason: str) -> Artifact:
        begin = time.perf_counter()
        artifact = make()
        make_ms = (time.perf_counter() - begin) * 1e3
        return replace(artifact, provenance=Provenance(Outcome.UNCACHED, make_ms=make_ms, reason=reason))

    def _made(self, job: Job) -> Artifact:
        limits = self._limits

        def work() -> Artifact:
            if not limits.isolate:
                return job.run(self.toolchain)
            from cujit.compiler.apart.parent import run_apart

            return run_apart(job, self.toolchain.settings, limits.memory_mib)

        try:
            if limits.left_s == 0:
                raise Ended
            return finish(work, self.stop or Stop(), limits.until)
        except Ended:
            raise _too_long(job, limits) from None


def _too_long(job: Job, limits: Limits) -> ToolTimeoutError:
    given = "" if limits.timeout_s is None else f" in the {limits.timeout_s:g} s that it had"
    more = "" if limits.isolate else "; in a process apart (isolate=True, --isolate) what is given up ends at once"
    return ToolTimeoutError(
        f"{job.tool} did not {job.step} {job.subject}{given}",
        tool=job.tool,
        help=f"more time (timeout_s=, --timeout), fewer kernels or instances of templates at a time{more}",
    )


def _recipe(request: Request) -> bytes:
    from cujit.compiler.keys.recipe import write_recipe  # for what is made and kept

    return write_recipe(request)


def _renamed(artifact: Artifact, name: str) -> Artifact:
    """Give an Artifact the name that its source has here, in its log too; it may have been made elsewhere.

    The log keeps the paths of headers of where it was made: which of its words are such paths is not known.
    """
    if artifact.name == name:
        return artifact
    beginning = re.compile(rf"^{re.escape(artifact.name)}(?=[(: ])", re.MULTILINE)
    log = beginning.sub(lambda _: name, artifact.log) if artifact.name else artifact.log
    return replace(artifact, name=name, log=log)
