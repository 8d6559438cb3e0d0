"""Linking to PTX: PTX through our own linker, LTO-IR through nvJitLink first; neither needs a GPU, PTX no toolkit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cujit.arch import Arch
from cujit.artifact import Artifact, ImageKind
from cujit.compiler.inputs.images import InputImage, merged, named
from cujit.compiler.options.values import Options
from cujit.errors import FormatError, LinkError, OptionError, spell
from cujit.errors.hints import Hint
from cujit.formats.fatbin import EntryKind, FatbinEntry
from cujit.formats.ptx.linking import Input, check_agreement, link_modules
from cujit.formats.ptx.parser import parse
from cujit.formats.ptx.printer import print_module
from cujit.formats.ptx.syntax import PtxModule
from cujit.formats.ptx.versions import check_head
from cujit.values import replace
from cujit.version import __version__

LinkLto = Callable[[Sequence[Artifact], Arch | None], Artifact]


def needs_our_linker(artifacts: Sequence[Artifact]) -> bool:
    """Return whether some of the images are not LTO-IR, so that nvJitLink cannot link them to PTX."""
    return any(artifact.kind is not ImageKind.LTOIR for artifact in artifacts)


def link_to_ptx(artifacts: Sequence[Artifact], arch: Arch | None, options: Options, link_lto: LinkLto) -> Artifact:
    """Link PTX, and the PTX or LTO-IR of fatbins, objects, and archives, into one PTX text. ``options`` are for LTO-IR.

    ``link_lto`` first links LTO-IR to PTX. LTO-IR may use everything that PTX defines. PTX may use only the kernels and
    variables of LTO-IR, because the optimizer leaves no function.

    Raises:
        LinkError: the images do not link. The error contains every reason with its input and line.
        PtxSyntaxError: an input is not PTX.
        OptionError: ``arch`` is for LTO-IR, or there are options but no LTO-IR.
        CujitError: as ``link_lto``.
    """
    if not artifacts:
        raise LinkError("there is nothing to link", code="link-input")
    if arch is not None and arch.is_lto:
        raise OptionError(f"PTX is linked for a virtual architecture: use {arch.virtual}, not {arch}")
    images = InputImage.all_of(artifacts)
    found = [part for image in images for part in _parts(image, arch)]
    lto, ptx = ([part for part in found if part.kind is kind] for kind in (ImageKind.LTOIR, ImageKind.PTX))
    if not lto and (options or options.extra):
        raise OptionError(
            f"linking PTX to PTX doesn't support options: {spell(options)}",
            help="pass the options where you load the PTX",
            code="option-rejected",
        )
    if lto:
        ptx.append(link_lto(lto, arch or _highest(found)))
    return replace(_linked(ptx, arch, has_lto=bool(lto)), name=" + ".join(image.name for image in images))


def _linked(ptx: Sequence[Artifact], arch: Arch | None, *, has_lto: bool) -> Artifact:
    try:
        linked = link_modules([Input(p.name, _module(p)) for p in ptx], arch)
    except LinkError as e:
        is_for_lto = has_lto and "no input defines it" in e.message
        raise LinkError(e.message, tool=_TOOL, help=_NO_FUNCTIONS if is_for_lto else e.help) from None
    names, signatures = merged([_renamed(part, new) for part, new in zip(ptx, linked.renamed, strict=True)])
    module, log = linked.module, "\n".join(linked.notes)
    names = named(names, (entry.name for entry in module.entries))
    target = arch.virtual if arch else _arch_of(module.target[0])
    return Artifact(ImageKind.PTX, print_module(module).encode(), target, names, signatures, log, tool=_TOOL)


def check_ptx(images: Sequence[InputImage]) -> None:
    """Refuse PTX with conflicting names before nvJitLink, because release 13.5 prints an error and succeeds.

    PTX that doesn't parse is left to nvJitLink.

    Raises:
        LinkError: two images define a name, or declare it differently.
    """
    ptx = [image for image in images if image.artifact.kind is ImageKind.PTX]
    if len(ptx) < 2:
        return
    try:
        inputs = [Input(image.name, parse(image.artifact.text, name=image.name)) for image in ptx]
    except FormatError:
        return
    check_agreement(inputs)


_TOOL = f"cujit {__version__}"
_NO_FUNCTIONS = Hint(
    "PTX can't call functions in LTO-IR: compile the input with to='ptx', rdc=True",
    shell="PTX can't call functions in LTO-IR: compile the input with --to ptx, -O rdc",
)


def _module(part: Artifact) -> PtxModule:
    """Parse an image if its version and its target exist."""
    text = _text(part)
    module = parse(text, name=part.name)
    check_head(module, text, part.name)
    return module


def _text(part: Artifact) -> str:
    """The text of an image, or the error that names it.

    Raises:
        FormatError: it is no text.
    """
    try:
        return part.text
    except FormatError as e:
        raise FormatError(f"{part.name}: {e.message}", help=e.help) from None


def _parts(image: InputImage, arch: Arch | None) -> list[Artifact]:
    """Return the PTX and LTO-IR in an image, with their names in messages.

    Raises:
        LinkError: the image contains neither for ``arch``.
    """
    artifact = image.artifact
    if artifact.kind in (ImageKind.PTX, ImageKind.LTOIR):
        return [replace(artifact, name=image.name)]
    found = []
    for fatbin in image.fatbins:
        entries = [e for e in fatbin.entries if e.arch and e.kind in _KINDS and (arch is None or _suits(e.arch, arch))]
        if entries:
            best = max(entries, key=_preference)
            found.append(Artifact(_KINDS[best.kind], best.payload(), best.arch, name=image.name))
    if not found:
        what = "for it " if arch else ""
        raise LinkError(
            f"{image.name} contains no PTX or LTO-IR {what}that cujit could convert to PTX",
            help=Hint(
                "machine code can't be converted back to PTX: compile the source with to='ptx', rdc=True",
                shell="machine code can't be converted back to PTX: compile the source with --to ptx, -O rdc",
            ),
            code="link-input",
        )
    return found


_KINDS = {EntryKind.PTX: ImageKind.PTX, EntryKind.LTOIR: ImageKind.LTOIR}


def _suits(have: Arch, wanted: Arch) -> bool:
    return have.virtual.runs_on(wanted.real)


def _preference(entry: FatbinEntry) -> tuple[bool, Arch]:
    assert entry.arch is not None  # _parts asks
    return entry.kind is EntryKind.PTX, entry.arch


def _renamed(part: Artifact, new: Mapping[str, str]) -> Artifact:
    """Return an Artifact with the lowered names after the link."""
    if not new:
        return part
    names = {name: new.get(lowered, lowered) for name, lowered in part.names.items()}
    signatures = {new.get(lowered, lowered): signature for lowered, signature in part.signatures.items()}
    return replace(part, names=names, signatures=signatures)


def _highest(parts: Sequence[Artifact]) -> Arch | None:
    return max((image.arch for image in InputImage.all_of(parts) if image.arch is not None), default=None)


def _arch_of(target: str) -> Arch | None:
    try:
        return Arch.parse(target).virtual
    except ValueError:
        return None
