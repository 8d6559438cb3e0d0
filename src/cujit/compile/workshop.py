"""The workshop: every compile, link and bundle goes from its key to the cache, and from there to the tool if need be.

With and without a cache the same Artifact comes out, and the same errors.
"""

from __future__ import annotations

import os
import re
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from cujit.arch import Arch
from cujit.artifact import Artifact, Kind
from cujit.cache.cache import Cache
from cujit.cache.provenance import Outcome, Provenance
from cujit.compile.keys import Keyed, KeyMaker, Uncacheable
from cujit.compile.options import Options, Tool
from cujit.compile.request import Request
from cujit.compile.route import check_request, compile_request
from cujit.errors import CompileError
from cujit.toolchain.toolset import Compiler, Toolchain

if TYPE_CHECKING:
    from cujit.compile.entry import Entry

__all__ = ["Workshop"]

_CHANGED = "its inputs or its tool were changed while it was made"


class Workshop:
    """Toolchain, cache and the keys of both, for any number of threads; keep one as long as the process needs it.

    ``cache`` is None where nothing is cached, and ``off`` says why. Making it opens no library and no file.
    """

    def __init__(self, toolchain: Toolchain, cache: Cache | None = None, *, off: str = "no cache was given") -> None:
        self.toolchain = toolchain
        self.cache = cache
        self.keys = None if cache is None else KeyMaker(toolchain, cache.hints)
        self._off = off
        if self.keys is not None:
            _at_fork(self.keys)

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
        try:
            artifact = self._get(
                lambda keys: keys.of_request(request),
                lambda: compile_request(request, self.toolchain),
                lambda: _recipe(request),
            )
        except CompileError as e:
            if e.request == request:
                raise
        else:
            return _renamed(artifact, request.source.name)
        # It is the error of an equal source elsewhere, with the paths of that.
        return self._bare(lambda: compile_request(request, self.toolchain), "it does not compile")

    def link(self, artifacts: Sequence[Artifact], to: Kind, arch: Arch | None, options: Options) -> Artifact:
        """Link, or take what such a link has made before.

        Raises:
            CujitError: as of ``link_images``.
        """
        from cujit.compile.link import link_images

        options.render(Tool.NVJITLINK)
        return self._get(
            lambda keys: keys.of_link(artifacts, to, arch, options),
            lambda: link_images(artifacts, to, arch, options, self.toolchain),
        )

    def bundle(self, entries: Sequence[Entry], compress: str | bool | None) -> Artifact:
        """Bundle, or take what such a bundling has made before.

        Raises:
            CujitError: as of ``bundle_images``.
        """
        from cujit.compile.bundle import bundle_images, check_compression

        check_compression(compress)
        artifact = self._get(
            lambda keys: keys.of_bundle(entries, compress),
            lambda: bundle_images(entries, compress, self.toolchain),
        )
        return _renamed(artifact, entries[0].image.name)

    def _get(
        self,
        key: Callable[[KeyMaker], Keyed | Uncacheable],
        make: Callable[[], Artifact],
        recipe: Callable[[], bytes] = bytes,
    ) -> Artifact:
        keys, cache = self.keys, self.cache
        if keys is None or cache is None:
            return self._bare(make, self._off)
        keyed = key(keys)
        if isinstance(keyed, Uncacheable):
            return self._bare(make, keyed.reason)

        def why_not_keep() -> str:
            return "" if keys.is_still(keyed) else _CHANGED

        artifact, provenance = cache.get_or_make(keyed.key, make, why_not_keep=why_not_keep, recipe=recipe)
        return replace(artifact, provenance=provenance)

    @staticmethod
    def _bare(make: Callable[[], Artifact], reason: str) -> Artifact:
        begin = time.perf_counter()
        artifact = make()
        make_ms = (time.perf_counter() - begin) * 1e3
        return replace(artifact, provenance=Provenance(Outcome.UNCACHED, make_ms=make_ms, reason=reason))


def _recipe(request: Request) -> bytes:
    from cujit.compile.recipe import write_recipe  # for what is made and kept

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


def _at_fork(keys: KeyMaker) -> None:
    forked = weakref.WeakMethod(keys.after_fork)

    def in_child() -> None:
        method = forked()
        if method is not None:
            method()

    os.register_at_fork(after_in_child=in_child)
