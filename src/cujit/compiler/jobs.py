"""Jobs: a compile, a link or a bundling as one frozen value, which knows its run and how it is written down.

Written down, a job is JSON and blobs of bytes; so it goes to a process apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from cujit.arch import Arch
from cujit.artifact import Artifact, Kind
from cujit.compiler.inputs.entry import Entry
from cujit.compiler.options.values import Options
from cujit.compiler.request import Request
from cujit.compiler.route import compile_request
from cujit.errors import CompileError, CujitError, FormatError
from cujit.toolchain.toolset import Toolchain

__all__ = ["BundleJob", "CompileJob", "Job", "LinkJob", "read_job"]

Written = tuple[dict[str, Any], Sequence[bytes]]


class Job(Protocol):
    """A piece of work for NVIDIA's tools; its ``step`` is a verb, its ``subject`` says of what and for what."""

    @property
    def step(self) -> str:
        """``compile``, ``link`` or ``bundle``."""

    @property
    def tool(self) -> str:
        """The library that does it."""

    @property
    def subject(self) -> str:
        """The input and the architecture: ``axpy.cu for sm_90``."""

    def run(self, toolchain: Toolchain) -> Artifact:
        """Do it here.

        Raises:
            CujitError: whatever the tool says.
        """

    def write(self) -> Written:
        """Write it down, for ``read_job``."""

    def own(self, result: Artifact) -> Artifact:
        """Give to a result what was not written down."""

    def own_error(self, error: CujitError) -> CujitError:
        """Give to an error what was not written down."""


@dataclass(frozen=True)
class CompileJob:
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

    def run(self, toolchain: Toolchain) -> Artifact:
        """Compile.

        Raises:
            CujitError: as of ``compile_request``.
        """
        return compile_request(self.request, toolchain)

    def write(self) -> Written:
        """Write down the request."""
        from cujit.compiler.keys.recipe import described

        return {"job": self.step, "request": described(self.request)}, ()

    def own(self, result: Artifact) -> Artifact:
        """Give the result as it is."""
        return result

    def own_error(self, error: CujitError) -> CujitError:
        """Give the error its request."""
        if isinstance(error, CompileError):
            error.request = self.request
        return error


@dataclass(frozen=True)
class LinkJob:
    """Images for one architecture."""

    artifacts: tuple[Artifact, ...]
    to: Kind
    arch: Arch | None
    options: Options
    step = "link"
    tool = "nvJitLink"

    @property
    def subject(self) -> str:
        """The images and the architecture."""
        names = " + ".join(artifact.name or artifact.kind.value for artifact in self.artifacts)
        return f"{names} for {self.arch}" if self.arch else names

    def run(self, toolchain: Toolchain) -> Artifact:
        """Link.

        Raises:
            CujitError: as of ``link_images``.
        """
        from cujit.compiler.backends.link import link_images

        return link_images(self.artifacts, self.to, self.arch, self.options, toolchain)

    def write(self) -> Written:
        """Write down images and options; names and signatures stay here."""
        head = {
            "job": self.step,
            "to": self.to.value,
            "arch": self.arch and str(self.arch),
            "options": dict(self.options),
            "extra": self.options.extra,
            "images": [_head(artifact) for artifact in self.artifacts],
        }
        return head, [artifact.data for artifact in self.artifacts]

    def own(self, result: Artifact) -> Artifact:
        """Give the result the names and signatures of the images."""
        from cujit.compiler.inputs.images import merged, named

        names, signatures = merged(self.artifacts)
        return replace(result, names=named(names, result.names.values()), signatures=signatures)

    def own_error(self, error: CujitError) -> CujitError:
        """Give the error as it is."""
        return error


@dataclass(frozen=True)
class BundleJob:
    """Images for several architectures."""

    entries: tuple[Entry, ...]
    compress: str | bool | None
    step = "bundle"
    tool = "nvFatbin"

    @property
    def subject(self) -> str:
        """The images."""
        return " + ".join(entry.image.name or entry.image.kind.value for entry in self.entries)

    def run(self, toolchain: Toolchain) -> Artifact:
        """Bundle.

        Raises:
            CujitError: as of ``bundle_images``.
        """
        from cujit.compiler.backends.bundle import bundle_images

        return bundle_images(self.entries, self.compress, toolchain)

    def write(self) -> Written:
        """Write down images and what is noted beside them; names and signatures stay here."""
        rows = [
            {**_head(entry.image), "options": entry.options, "identifier": entry.identifier} for entry in self.entries
        ]
        return {"job": self.step, "compress": self.compress, "images": rows}, [e.image.data for e in self.entries]

    def own(self, result: Artifact) -> Artifact:
        """Give the result the names and signatures of the images."""
        from cujit.compiler.inputs.images import merged

        names, signatures = merged([entry.image for entry in self.entries])
        return replace(result, names=names, signatures=signatures)

    def own_error(self, error: CujitError) -> CujitError:
        """Give the error as it is."""
        return error


def read_job(head: dict[str, Any], blobs: Sequence[bytes]) -> Job:
    """Read a job that was written down.

    Raises:
        FormatError: it is none.
    """
    from cujit.compiler.keys.recipe import request_of

    try:
        if head["job"] == CompileJob.step:
            return CompileJob(request_of(head["request"]))
        images = [_image(row, data) for row, data in zip(head["images"], blobs, strict=True)]
        if head["job"] == LinkJob.step:
            arch = None if head["arch"] is None else Arch.parse(head["arch"])
            options = Options.of(head["options"], {"extra": head["extra"]})
            return LinkJob(tuple(images), Kind(head["to"]), arch, options)
        notes = [(str(row["options"]), str(row["identifier"])) for row in head["images"]]
        return BundleJob(tuple(Entry(i, *note) for i, note in zip(images, notes, strict=True)), head["compress"])
    except (CujitError, LookupError, TypeError, ValueError, AttributeError) as e:
        raise FormatError(f"no job: {e}") from e


def _head(artifact: Artifact) -> dict[str, object]:
    return {
        "kind": artifact.kind.value,
        "arch": artifact.arch and str(artifact.arch),
        "name": artifact.name,
        "log": artifact.log,
    }


def _image(row: dict[str, Any], data: bytes) -> Artifact:
    arch = None if row["arch"] is None else Arch.parse(row["arch"])
    return Artifact(Kind(row["kind"]), data, arch, name=str(row["name"]), log=str(row["log"]))
