"""Jobs for images: links and bundles. A process that only compiles imports neither."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from cujit.arch import Arch
from cujit.artifact import Artifact, ImageKind
from cujit.cache.key import Part
from cujit.compiler.inputs.entry import Entry, check_compression
from cujit.compiler.jobs import Job, renamed_as
from cujit.compiler.keys.maker import Keyed, KeyMaker, Uncacheable
from cujit.compiler.options.arguments import unmodelled
from cujit.compiler.options.values import Options, Tool
from cujit.toolchain.toolset import Toolchain
from cujit.values import dataclass


@dataclass(frozen=True)
class LinkJob(Job):
    """A link of images for one architecture. If ``arch`` is None, the highest architecture of the images is used."""

    artifacts: tuple[Artifact, ...]
    to: ImageKind
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
        """Refuse options that the linker doesn't support."""
        self.options.render(Tool.NVJITLINK)

    def key(self, keys: KeyMaker) -> Keyed | Uncacheable:
        """Make its key from images and arguments."""
        arguments = self.options.render(Tool.NVJITLINK)
        if why := unmodelled(arguments, Tool.NVJITLINK, self.options.extra):
            return Uncacheable(why)
        shown = " + ".join(os.path.basename(a.name) or a.kind.value for a in self.artifacts)
        return keys.of_images(self.step, self.tool, self.to, [
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

    def renamed(self, result: Artifact) -> Artifact:
        """Return the result with the directories of the file names in the images."""
        return renamed_as(result, result.name, _places(self.artifacts))


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
        """Create the job. LTO-IR isn't compressed by default, because only NVIDIA's libraries could then read it.

        Raises:
            OptionError: the compression is unknown.
        """
        has_ltoir = any(entry.image.kind is ImageKind.LTOIR for entry in entries)
        return cls(tuple(entries), "none" if compress is None and has_ltoir else check_compression(compress))

    @property
    def subject(self) -> str:
        """The images."""
        return " + ".join(entry.image.name or entry.image.kind.value for entry in self.entries)

    def key(self, keys: KeyMaker) -> Keyed | Uncacheable:
        """Make its key from entries and compression."""
        return keys.of_images(self.step, "nvfatbin", ImageKind.FATBIN, [
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
        """Return the result under the name of the first image."""
        return renamed_as(result, self.entries[0].image.name, _places(entry.image for entry in self.entries))


def _places(artifacts: Iterable[Artifact]) -> tuple[tuple[str, str], ...]:
    return tuple(dict.fromkeys(place for artifact in artifacts for place in artifact.places))


def _parts(artifact: Artifact) -> Iterator[Part]:
    yield Part.text("image", f"{artifact.kind.value} {artifact.arch} {os.path.basename(artifact.name)}")
    yield Part.content("image content", artifact.data)
    # What is known of the kernels goes over into the result.
    known = (sorted(artifact.names.items()), sorted(artifact.signatures.items()))
    yield Part.content("image names", repr(known))
