"""Several inputs to one image: sources of any language through LTO-IR, with images, into one link."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cujit.arch import Arch
from cujit.artifact import Artifact, Kind
from cujit.compiler.backends.ptxlink import needs_our_linker
from cujit.compiler.builder import Workshop
from cujit.compiler.inputs.images import Image, as_artifact
from cujit.compiler.inputs.source import Source
from cujit.compiler.options.spelling import Spelling
from cujit.compiler.options.table import OPTIONS
from cujit.compiler.options.values import Options, Tool
from cujit.compiler.route import make_request
from cujit.errors import LinkError, OptionError

__all__ = ["link_inputs", "part_of"]

_TOOL = {"cuda": Tool.NVRTC, "nvvm": Tool.NVVM}


def part_of(given: object) -> Source | Artifact:
    """Take one input of a link: a Source or LLVM IR, which will be compiled, or an image.

    Raises:
        FormatError: it is no image that cujit knows.
        OptionError: it is none of these.
        FileError: a file cannot be read.
    """
    if isinstance(given, Source):
        return given
    artifact = as_artifact(given)
    return Source.nvvm(artifact) if artifact.kind is Kind.NVVMIR else artifact


def link_inputs(
    parts: Sequence[Source | Artifact],
    to: Kind,
    arch: Arch | None,
    options: Options,
    workshop: Workshop,
    names: Sequence[str] = (),
) -> Artifact:
    """Compile the sources among ``parts``, and link everything for one architecture.

    Sources become LTO-IR; where PTX is wanted and PTX is among the images, relocatable PTX. An option goes to every
    tool that has it; one that no tool of this link has is rejected. ``extra`` is for the linker. ``names`` are name
    expressions of the one source of CUDA C++ among the parts.

    Raises:
        LinkError: the images do not link, or nothing tells for which architecture.
        CompileError: a source does not compile.
        CujitError: see ``Workshop.link`` and ``Workshop.compile``.
    """
    sources = [part for part in parts if isinstance(part, Source)]
    if not sources:
        return workshop.link([p for p in parts if isinstance(p, Artifact)], to, arch, options)
    target = (arch or _highest(parts)).real
    tools = dict.fromkeys(_TOOL[source.language] for source in sources)
    _require_taken(options, [*tools, Tool.NVJITLINK])
    _require_owner(names, sources)
    given = [part for part in parts if isinstance(part, Artifact)]
    road = target.virtual if to is Kind.PTX and needs_our_linker(given) else target.lto
    images = [_image(part, road, options, workshop, names) for part in parts]
    has_ltoir = any(image.kind is Kind.LTOIR for image in images)
    return workshop.link(images, to, target, options.only(Tool.NVJITLINK) if has_ltoir else Options())


def _image(part: Source | Artifact, road: Arch, options: Options, workshop: Workshop, names: Sequence[str]) -> Artifact:
    """An image as it is, or a source compiled to LTO-IR or to relocatable PTX, as ``road`` says."""
    if isinstance(part, Artifact):
        return part
    said = options.only(_TOOL[part.language], extra=False)
    if not road.is_lto:
        said = Options.of(said, {"rdc": True})
    wanted = names if part.language == "cuda" else ()
    kind = Kind.LTOIR if road.is_lto else Kind.PTX
    return workshop.compile(make_request(part, kind, road, wanted, said, workshop))


def _highest(parts: Iterable[Source | Artifact]) -> Arch:
    images = [Image.of(part, index) for index, part in enumerate(parts) if isinstance(part, Artifact)]
    known = [image.arch for image in images if image.arch is not None]
    if not known:
        raise LinkError("none of the inputs tells for which architecture to link", help="arch='sm_…'")
    return max(known)


def _require_taken(options: Options, tools: Sequence[Tool]) -> None:
    for name in options:
        if not any(isinstance(OPTIONS[name].spelling(tool), Spelling) for tool in tools):
            raise OptionError(f"none of {', '.join(tool.value for tool in tools)} takes the option {name}")


def _require_owner(names: Sequence[str], sources: Sequence[Source]) -> None:
    if names and sum(source.language == "cuda" for source in sources) != 1:
        raise OptionError(
            "names are name expressions of CUDA C++, and it is not clear of which of the sources",
            help="compile each source with its names (to='ltoir') and give the Artifacts",
        )
