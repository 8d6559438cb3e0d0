"""Linking: images of device code into one cubin, or LTO-IR into one PTX or one LTO-IR, through nvJitLink."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from cujit.arch import Arch
from cujit.arch.support import dotted, install, require_arch
from cujit.artifact import Artifact, ImageKind
from cujit.compiler.backends.diagnostics import parse_log
from cujit.compiler.backends.ptx_link import check_ptx
from cujit.compiler.backends.results import require_result
from cujit.compiler.inputs.images import InputImage, check_one_definition, kernels_of, merged, named
from cujit.compiler.options.values import Options, Tool, newer_than
from cujit.errors import LinkError, OptionError, ToolError
from cujit.errors.hints import Hint
from cujit.formats.cubin import read_cubin
from cujit.formats.ltoir import read_ltoir
from cujit.formats.mangling import spelled
from cujit.formats.ptx.heads import entry_signatures
from cujit.toolchain.aliases import as_recorded
from cujit.toolchain.libraries import requesting_machine_code
from cujit.toolchain.toolset import Toolchain

LTOIR_SINCE = (13, 4)
"""The first release of nvJitLink that links to ``lto_…``. Source: 13.0 to 13.3 refuse it as an incompatible option."""


def link_images(
    artifacts: Sequence[Artifact],
    to: ImageKind,
    arch: Arch | None,
    options: Options,
    toolchain: Toolchain,
) -> Artifact:
    """Link ``artifacts`` for one architecture. Default: the highest architecture of the inputs.

    This refuses inputs that nvJitLink would drop or merge silently: code that isn't relocatable, images for another
    architecture, and a symbol that is defined twice.

    Raises:
        LinkError: the images don't link. The message names the input and the symbol.
        ArchError: the linker doesn't know the architecture.
        FormatError: an input has an invalid format.
        OptionError: the linker doesn't accept an option.
        ToolchainNotFoundError: nvJitLink is not installed.
    """
    rendered = options.render(Tool.NVJITLINK)
    if not artifacts:
        raise LinkError("there is nothing to link", code="link-input")
    linker = toolchain.nvjitlink
    if to is ImageKind.LTOIR and linker.version < LTOIR_SINCE:
        raise OptionError(
            f"{linker.tool} can't create LTO-IR; the first release that can is {dotted(LTOIR_SINCE)}",
            help=f"run pip install 'nvidia-nvjitlink>={dotted(LTOIR_SINCE)}'",
            code="option-rejected",
        )
    images = InputImage.all_of(artifacts)
    target = _target(images, arch)
    _require_arch(target, toolchain)
    for image in images:
        image.check(target)
        if to is ImageKind.LTOIR and not image.has_ltoir:
            raise LinkError(
                f"{image.name} is {image.artifact.kind.value}; only LTO-IR and sources can be linked into "
                "LTO-IR output",
                help=Hint(
                    "compile it with to='ltoir', or link it later to a cubin",
                    shell="compile it with --to ltoir, or link it later to a cubin",
                ),
                code="link-input",
            )
    check_one_definition(images, target)
    check_ptx(images)
    is_lto = bool(options.get("dlto")) or any(image.has_ltoir for image in images)
    arguments = [f"-arch={target.lto if to is ImageKind.LTOIR else target}"]
    arguments += ["-lto"] * (is_lto and not options.get("dlto")) + ["-ptx"] * (to is ImageKind.PTX)
    arguments += rendered
    data, log = _run(images, arguments, to, toolchain, newer_than(linker.version, options))
    cubin = read_cubin(data) if to is ImageKind.CUBIN else None
    if cubin is not None and cubin.is_empty:
        raise LinkError(
            f"the link for {target} produced an empty image because {_all_names(images)} contain no code for it",
            tool=linker.tool,
            log=log,
            help=Hint(
                "compile the inputs with rdc=True, or as PTX or LTO-IR; in LLVM IR, mark each kernel",
                shell="compile the inputs with -O rdc, or as PTX or LTO-IR; in LLVM IR, mark each kernel",
            ),
            code="link-empty",
        )
    names, signatures = merged(artifacts)
    kernels = kernels_of(cubin) if cubin else entry_signatures(data) if to is ImageKind.PTX else ()
    names = named(names, [kernel for kernel in kernels if _OF_RUNTIME not in kernel])
    made = {ImageKind.CUBIN: target, ImageKind.PTX: target.virtual, ImageKind.LTOIR: target.lto}[to]
    linked = Artifact(to, data, made, names, signatures, log, _all_names(images), linker.tool)
    return require_result(linked, options.extra)


_OF_RUNTIME = "_cuda_device_runtime_cu_"
"""What names of kernels have that libcudadevrt keeps to itself."""


def _all_names(images: Sequence[InputImage]) -> str:
    return " + ".join(image.name for image in images)


def _target(images: Sequence[InputImage], arch: Arch | None) -> Arch:
    if arch is not None:
        return _as_specific_as(images, arch.real)
    known = [image.arch for image in images if image.arch is not None]
    if not known:
        raise LinkError(
            "none of the inputs specifies the architecture to link for",
            help=Hint("write arch='sm_…'", shell="<--arch> sm_…"),
            code="link-input",
        )
    return max(known).real


def _as_specific_as(images: Sequence[InputImage], arch: Arch) -> Arch:
    """Return the architecture variant of PTX or a cubin for a link to PTX. Plain code also runs there."""
    linked = (image.arch for image in images if image.artifact.kind in (ImageKind.PTX, ImageKind.CUBIN) and image.arch)
    return next((one.real for one in linked if one.suffix and not arch.suffix and one.number == arch.number), arch)


def _require_arch(target: Arch, toolchain: Toolchain) -> None:
    """Check the target with NVRTC's list of the same release, because nvJitLink has no list."""
    nvjitlink = toolchain.nvjitlink
    nvrtc = toolchain.nvrtc
    if nvrtc.version == nvjitlink.version or target.number not in nvrtc.arches:
        require_arch(target, nvrtc.arches, "nvJitLink", nvjitlink.version)


def _run(
    images: Sequence[InputImage], arguments: Sequence[str], to: ImageKind, toolchain: Toolchain, newer: Sequence[str]
) -> tuple[bytes, str]:
    nvjitlink = toolchain.nvjitlink
    try:
        with nvjitlink.linker(arguments) as linker:
            for image in images:
                linker.add(image.artifact.kind, image.artifact.data, image.name)
            with requesting_machine_code():
                linker.complete()
            data = {ImageKind.CUBIN: linker.cubin, ImageKind.PTX: linker.ptx, ImageKind.LTOIR: linker.ltoir}[to]()
            return as_recorded(data, is_text=to is ImageKind.PTX), linker.info_log()
    except ToolError as e:
        raise _explain(e, images, arguments, newer) from None


_UNRESOLVED = re.compile(r"(?:Undefined reference to|Unresolved extern (?:function|variable)) '([^']+)'")
_UNRESOLVED_HELP = Hint(
    "add the image that defines it, and compile code to be linked with rdc=True or to='ltoir'",
    shell="add the image that defines it, and compile code to be linked with -O rdc or --to ltoir",
)
_LIBDEVICE_HELP = Hint(
    "these functions are in libdevice: write cujit.Source.nvvm(…, libdevice=True)",
    shell="these functions are in libdevice: add --libdevice",
)
_DUPLICATE = re.compile(r"Multiple definition of '([^']+)'|globals named '([^']+)': symbol multiply defined")
_TOO_NEW = re.compile(r"Unsupported \.version ([\d.]+); current version is '([\d.]+)'")

_OUTDATED = "may need newer version of nvJitLink"
"""What the log of nvJitLink 12.9 says where later releases have a result for it."""


def _newer(images: Sequence[InputImage], tool: str) -> Iterator[str]:
    """Return the name of LTO-IR from a later release than the linker's, with its release if it is known."""
    own = [int(number) for number in re.findall(r"\d+", tool)]
    for image in (image for image in images if image.artifact.kind is ImageKind.LTOIR):
        wrote = read_ltoir(image.artifact.data).toolkit
        if wrote is None or [*wrote] > own:
            yield image.name if wrote is None else f"{image.name} of CUDA {dotted(wrote)}"


def _explain(
    error: ToolError, images: Sequence[InputImage], arguments: Sequence[str], newer: Sequence[str]
) -> Exception:
    inputs = _all_names(images)
    if error.call == "nvJitLinkCreate":
        return OptionError(
            f"{error.tool} rejects the arguments {' '.join(arguments)}: {'; '.join(newer) or error.result}",
            help=Hint(
                "see docs/options.md for the options; cujit passes extra=(…) to the linker unchanged",
                shell="see docs/options.md for the options; cujit passes -O extra=… to the linker unchanged",
            ),
            code="option-rejected",
        )
    if symbols := list(dict.fromkeys(_UNRESOLVED.findall(error.log))):
        return LinkError(
            f"{inputs} refer to undefined symbols: {', '.join(map(spelled, symbols))}",
            help=_LIBDEVICE_HELP if all(s.startswith("__nv_") for s in symbols) else _UNRESOLVED_HELP,
            **error.facts,
            code="undefined-symbol",
        )
    if duplicates := ["".join(pair) for pair in _DUPLICATE.findall(error.log)]:
        return LinkError(
            f"{inputs} define these symbols more than once: {', '.join(map(spelled, duplicates))}",
            **error.facts,
            code="duplicate-symbol",
        )
    if match := _TOO_NEW.search(error.log):
        return LinkError(
            f"PTX {match[1]} in {inputs} is too new for {error.tool}, which supports PTX up to version {match[2]}",
            help=f"run {install('cu13')} to update nvJitLink",
            **error.facts,
            code="link-version",
        )
    if error.result == "NVJITLINK_ERROR_OUTDATED_LIBRARY" or _OUTDATED in error.log:
        return LinkError(
            f"{', '.join(_newer(images, error.tool)) or inputs}: the LTO-IR is newer than {error.tool}",
            help=f"run {install('cu13')} to update nvJitLink, or compile with the NVRTC of the same release",
            **error.facts,
            code="link-version",
        )
    first = next((str(d) for d in parse_log(error.log) if d.severity == "error"), error.result)
    return LinkError(f"can't link {inputs}: {first}", **error.facts)
