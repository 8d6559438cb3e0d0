"""Jobs: a compile, a link or a bundling as one frozen value, which knows its key, its run and its recipe.

A job goes to a process apart by pickle.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

from cujit.arch import Arch
from cujit.artifact import Artifact, Kind
from cujit.cache.key import Part
from cujit.compiler.inputs.entry import Entry, check_compression
from cujit.compiler.keys.arguments import unmodelled
from cujit.compiler.keys.maker import Keyed, KeyMaker, Uncacheable
from cujit.compiler.options.values import Options, Tool
from cujit.compiler.request import Request
from cujit.errors import CompileError
from cujit.toolchain.toolset import Toolchain


class Job(Protocol):
    """A piece of work for NVIDIA's tools; its ``step`` is a verb, its ``subject`` says of what and for what.

    ``request`` is what its CompileErrors say was asked for; ``compiles`` is False where images are only packed.
    """

    step: ClassVar[str]
    compiles: ClassVar[bool] = True
    request: Request | None

    @property
    def tool(self) -> str:
        """The library that does it."""

    @property
    def subject(self) -> str:
        """The input and the architecture: ``axpy.cu for sm_90``."""

    def check(self) -> None:
        """Refuse, before any library is opened, what the tool could not take.

        Raises:
            OptionError: it does not have an option that was said.
        """

    def key(self, keys: KeyMaker) -> Keyed | Uncacheable:
        """Make its key, or say why it has none."""

    def run(self, toolchain: Toolchain) -> Artifact:
        """Do it here.

        Raises:
            CujitError: whatever the tool says.
        """

    def recipe(self) -> bytes:
        """Write down how to do it again; nothing where that is not known."""
        return b""

    def renamed(self, result: Artifact) -> Artifact:
        """Give to a result the name that it has here; it may have been made elsewhere."""
        return result


@dataclass(frozen=True)
class CompileJob(Job):
    """One source for one architecture."""

    request: Request
    step = "compile"

    @property
    def tool(self) -> str:
        """The compiler of its language."""
        return "libNVVM" if self.request.source.language == "nvvm" else "NVRTC"

    @property
    def subject(self) -> str:
        """The source and the architecture."""
        return f"{self.request.source.name} for {self.request.arch}"

    def check(self) -> None:
        """Refuse options that the compiler does not have, and include directories that are none."""
        self.request.check()

    def key(self, keys: KeyMaker) -> Keyed | Uncacheable:
        """Make its key from the request, the headers that it could read, and the compiler."""
        return keys.of_request(self.request)

    def run(self, toolchain: Toolchain) -> Artifact:
        """Compile with the back end for the source's language."""
        try:
            return self._compiled(toolchain)
        except CompileError as e:
            e.request = self.request
            raise

    def _compiled(self, toolchain: Toolchain) -> Artifact:
        if self.request.source.language == "nvvm":
            from cujit.compiler.backends.nvvm import compile_nvvm  # start-up: a hit of the cache calls no tool

            return compile_nvvm(self.request, toolchain)
        from cujit.compiler.backends.nvrtc import compile_cuda  # start-up: a hit of the cache calls no tool

        return compile_cuda(self.request, toolchain)

    def recipe(self) -> bytes:
        """Write down the request."""
        from cujit.compiler.keys.recipe import write_recipe  # for what is made and kept

        return write_recipe(self.request)

    def renamed(self, result: Artifact) -> Artifact:
        """Give the result the name of the source."""
        return _renamed(result, self.request.source.name)


@dataclass(frozen=True)
class LinkJob(Job):
    """Images for one architecture, the highest of theirs if ``arch`` is None."""

    artifacts: tuple[Artifact, ...]
    to: Kind
    arch: Arch | None
    options: Options
    step = "link"
    tool = "nvJitLink"
    request = None

    @property
    def subject(self) -> str:
        """The images and the architecture."""
        names = " + ".join(artifact.name or artifact.kind.value for artifact in self.artifacts)
        return f"{names} for {self.arch}" if self.arch else names

    def check(self) -> None:
        """Refuse options that the linker does not have."""
        self.options.render(Tool.NVJITLINK)

    def key(self, keys: KeyMaker) -> Keyed | Uncacheable:
        """Make its key from images and arguments."""
        arguments = self.options.render(Tool.NVJITLINK)
        if why := unmodelled(arguments, Tool.NVJITLINK, self.options.extra):
            return Uncacheable(why)
        shown = " + ".join(os.path.basename(a.name) or a.kind.value for a in self.artifacts)
        return keys.of_images(self.step, self.tool, [
            Part.text("name", shown),
            Part.text("result", self.to.value),
            Part.text("arch", str(self.arch)),
            *(Part.text("argument", argument) for argument in arguments),
            *(part for artifact in self.artifacts for part in _parts(artifact)),
        ])  # fmt: skip

    def run(self, toolchain: Toolchain) -> Artifact:
        """Link."""
        from cujit.compiler.backends.link import link_images  # start-up: a hit of the cache calls no tool

        return link_images(self.artifacts, self.to, self.arch, self.options, toolchain)


@dataclass(frozen=True)
class BundleJob(Job):
    """Images for several architectures."""

    entries: tuple[Entry, ...]
    compress: str
    step = "bundle"
    compiles = False
    tool = "nvFatbin"
    request = None

    @classmethod
    def of(cls, entries: Sequence[Entry], compress: str | bool | None) -> BundleJob:
        """Take the entries; LTO-IR is not compressed by itself, for NVIDIA's libraries alone could read it then.

        Raises:
            OptionError: there is no such compression.
        """
        has_ltoir = any(entry.image.kind is Kind.LTOIR for entry in entries)
        return cls(tuple(entries), "none" if compress is None and has_ltoir else check_compression(compress))

    @property
    def subject(self) -> str:
        """The images."""
        return " + ".join(entry.image.name or entry.image.kind.value for entry in self.entries)

    def key(self, keys: KeyMaker) -> Keyed | Uncacheable:
        """Make its key from entries and compression."""
        return keys.of_images(self.step, "nvfatbin", [
            Part.text("name", os.path.basename(self.entries[0].image.name) if self.entries else ""),
            Part.text("compress", self.compress),
            *(part for entry in self.entries for part in (
                *_parts(entry.image),
                Part.content("image log", entry.image.log),
                Part.text("for later", entry.options),
                Part.text("identifier", entry.identifier),
            )),
        ])  # fmt: skip

    def run(self, toolchain: Toolchain) -> Artifact:
        """Bundle."""
        from cujit.compiler.backends.bundle import bundle_images  # start-up: a hit of the cache calls no tool

        return bundle_images(self.entries, self.compress, toolchain)

    def renamed(self, result: Artifact) -> Artifact:
        """Give the result the name of the first image."""
        return _renamed(result, self.entries[0].image.name)


def _parts(artifact: Artifact) -> Iterator[Part]:
    yield Part.text("image", f"{artifact.kind.value} {artifact.arch} {os.path.basename(artifact.name)}")
    yield Part.content("image content", artifact.data)
    # What is known of the kernels goes over into the result.
    known = (sorted(artifact.names.items()), sorted(artifact.signatures.items()))
    yield Part.content("image names", repr(known))


def _renamed(artifact: Artifact, name: str) -> Artifact:
    """Give an Artifact another name, in its log too.

    The log keeps the paths of headers of where it was made: which of its words are such paths is not known.
    """
    if artifact.name == name:
        return artifact
    beginning = re.compile(rf"^{re.escape(artifact.name)}(?=[(: ])", re.MULTILINE)
    log = beginning.sub(lambda _: name, artifact.log) if artifact.name else artifact.log
    return replace(artifact, name=name, log=log)
