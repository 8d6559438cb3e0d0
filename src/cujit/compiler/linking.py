"""Several inputs to one image: sources of any language through LTO-IR, with images, into one link."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from cujit.arch import Arch
from cujit.arch.support import install
from cujit.artifact import Artifact, ImageKind
from cujit.compiler.backends.ptx_link import link_to_ptx, needs_our_linker
from cujit.compiler.image_jobs import LinkJob
from cujit.compiler.inputs.images import InputImage, as_artifact, not_linked
from cujit.compiler.inputs.source import Source
from cujit.compiler.jobs import CompileJob
from cujit.compiler.options.spelling import Spelling
from cujit.compiler.options.values import OPTIONS, Options, Tool
from cujit.compiler.request import Request
from cujit.compiler.runner import Runner, uncached
from cujit.errors import LinkError, OptionError
from cujit.errors.hints import Hint
from cujit.toolchain.libraries import DEVICE_RUNTIME, find_device_runtime
from cujit.values import replace

Part: TypeAlias = Source | Artifact
"""What a build or a link is made of: sources to compile, and images to link with them."""

_TOOL = {"cuda": Tool.NVRTC, "nvvm": Tool.NVVM}


def parts_of(given: object) -> tuple[Part, ...]:
    """Return the parts to build from a Source or an equivalent argument of ``compile``, or from a list of those and
    images.

    Raises:
        FormatError: a part is neither a source nor an image.
        OptionError: there are no parts, or one has the wrong type.
    """
    if not isinstance(given, list | tuple):
        return (Source.of(given),)
    if not given:
        raise OptionError("there is nothing to build", help="write build(source) or build([source, source, image])")
    return (Source.of(given[0]),) if len(given) == 1 else tuple(part_of(part) for part in given)


def part_of(given: object) -> Part:
    """Return one input of a link: a Source or LLVM IR, which is compiled first, or an image.

    Raises:
        FormatError: the format of the image is unknown.
        OptionError: the value has a different type.
        FileError: a file can't be read.
    """
    if isinstance(given, Source):
        return given
    artifact = as_artifact(given)
    return Source.nvvm(artifact) if artifact.kind is ImageKind.NVVMIR else artifact


def link_parts(
    parts: Sequence[Part], to: ImageKind, arch: Arch | None, options: Options, runner: Runner, names: Sequence[str] = ()
) -> Artifact:
    """Compile the sources among ``parts``, and link everything for one architecture.

    Sources become LTO-IR; where PTX is wanted and PTX is among the images, relocatable PTX. An option goes to every
    tool that has it; one that no tool of this link has is rejected. ``extra`` is for the linker. ``names`` are name
    expressions of the one source of CUDA C++ among the parts.

    Raises:
        LinkError: the images do not link, or nothing tells for which architecture.
        CompileError: a source does not compile.
        CujitError: see ``Runner.get``.
    """
    for index, part in enumerate(parts):
        if isinstance(part, Source) and part.language not in _TOOL:
            raise not_linked(index)
    sources = [part for part in parts if isinstance(part, Source)]
    given = [part for part in parts if isinstance(part, Artifact)]
    if not sources:
        return _link(given, to, arch, options, runner)
    target = (arch or _highest(parts)).real
    tools = dict.fromkeys(_TOOL[source.language] for source in sources)
    require_taken(options, [*tools, Tool.NVJITLINK])
    _require_owner(names, sources)
    route = target.virtual if to is ImageKind.PTX and needs_our_linker(given) else target.lto
    images = [
        part if isinstance(part, Artifact) else runner.get(_compile_job(part, route, options, runner, names))
        for part in parts
    ]
    has_ltoir = any(image.kind is ImageKind.LTOIR for image in images)
    return _link(images, to, target, options.only(Tool.NVJITLINK) if has_ltoir else Options(), runner)


def _link(images: Sequence[Artifact], to: ImageKind, arch: Arch | None, options: Options, runner: Runner) -> Artifact:
    """Link images; PTX to PTX by our own linker, without nvJitLink and cache."""
    if options.get("relocatable") and to is not ImageKind.CUBIN:
        raise OptionError(
            f"relocatable=True creates a cubin, not {to.value}",
            help=Hint(
                "use to='cubin', or to='ltoir' without relocatable=True",
                shell="use --to cubin, or --to ltoir without --relocatable",
            ),
        )
    if to is ImageKind.CUBIN and not options.get("relocatable") and any(map(needs_device_runtime, images)):
        images = with_device_runtime(images, runner)
    job = LinkJob(tuple(images), to, arch, options)
    job.check()
    if to is not ImageKind.PTX or not needs_our_linker(images):
        return _linked(job, runner)

    def link_lto(lto: Sequence[Artifact], target: Arch | None) -> Artifact:
        return runner.get(LinkJob(tuple(lto), ImageKind.PTX, target, options))

    return uncached(lambda: link_to_ptx(images, arch, options, link_lto), "PTX is linked as fast as it is read")


def _linked(job: LinkJob, runner: Runner) -> Artifact:
    """Link. Only the result of LTO-IR shows whether its kernels launch kernels."""
    try:
        return runner.get(job)
    except LinkError as e:
        if (
            job.to is not ImageKind.CUBIN
            or not _RUNTIME_SYMBOL.search(e.message.encode())
            or _has_runtime(job.artifacts)
        ):
            raise
    return runner.get(replace(job, artifacts=with_device_runtime(job.artifacts, runner)))


_RUNTIME_SYMBOL = re.compile(rb"__cudaCDP2[A-Z]|\bcudaCG(?:Synchronize|GetIntrinsicHandle|GetRank|GetSize)")
"""Names of libcudadevrt's functions, by which other code calls them."""
_RUNTIME_MARK = b"cuda_device_runtime"


def needs_device_runtime(image: Artifact) -> bool:
    """Return whether machine code or PTX calls NVIDIA's library for kernels that launch kernels."""
    return image.kind in (ImageKind.CUBIN, ImageKind.PTX) and _RUNTIME_SYMBOL.search(image.data) is not None


def _has_runtime(images: Iterable[Artifact]) -> bool:
    return any(_RUNTIME_MARK in image.data for image in images)


def with_device_runtime(images: Sequence[Artifact], runner: Runner) -> tuple[Artifact, ...]:
    """Add libcudadevrt to images that call it, if it is not among them.

    Raises:
        LinkError: it is not installed.
    """
    if _has_runtime(images):
        return tuple(images)
    path = find_device_runtime([home for _, home in runner.toolchain.settings.cuda_homes])
    if path is None:
        raise LinkError(
            f"{images[0].name} contains kernels that launch kernels, but cujit can't find {DEVICE_RUNTIME}",
            help=f"run {install('cu13')}, or add the path of {DEVICE_RUNTIME} to the inputs of the link",
        )
    return (*images, replace(Artifact.open(path), name=DEVICE_RUNTIME))


def _compile_job(source: Source, route: Arch, options: Options, runner: Runner, names: Sequence[str]) -> CompileJob:
    """Return a job that compiles a source to LTO-IR or to relocatable PTX, by ``route``."""
    own_options = options.only(_TOOL[source.language], extra=False)
    if not route.is_lto:
        own_options = Options.of(own_options, {"rdc": True})
    wanted = names if source.language == "cuda" else ()
    return CompileJob(
        Request.of(source, ImageKind.LTOIR if route.is_lto else ImageKind.PTX, route, wanted, own_options, runner)
    )


def _highest(parts: Iterable[Part]) -> Arch:
    images = [InputImage.of(part, index) for index, part in enumerate(parts) if isinstance(part, Artifact)]
    known = [image.arch for image in images if image.arch is not None]
    if not known:
        raise LinkError(
            "none of the inputs specifies the architecture to link for",
            help=Hint("write arch='sm_…'", shell="<--arch> sm_…"),
            code="link-input",
        )
    return max(known)


def require_taken(options: Options, tools: Sequence[Tool]) -> None:
    """Refuse an option that none of some tools supports.

    Raises:
        OptionError: there is such an option.
    """
    for name in options:
        if not any(isinstance(OPTIONS[name].spelling(tool), Spelling) for tool in tools):
            raise OptionError(
                f"none of {', '.join(tool.value for tool in tools)} supports the option {name}",
                code="option-rejected",
            )


def _require_owner(names: Sequence[str], sources: Sequence[Source]) -> None:
    if names and sum(source.language == "cuda" for source in sources) != 1:
        raise OptionError(
            "names lists CUDA C++ name expressions, but with several sources, cujit can't tell which source "
            "they belong to",
            help=Hint(
                "compile each source with its own names (to='ltoir') and pass the Artifacts",
                shell="compile each source with its own names (--to ltoir) and pass the Artifacts",
            ),
            code="name-expression",
        )
