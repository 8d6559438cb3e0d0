"""The machine code of an image that a GPU would run."""

from __future__ import annotations

from typing import NoReturn

from cujit.arch import Arch
from cujit.artifact import Artifact, ImageKind
from cujit.errors import ArchError, FormatError
from cujit.errors.hints import Hint
from cujit.formats.cubin import Cubin, read_cubin
from cujit.formats.fatbin import EntryKind, Fatbin, FatbinEntry, find_fatbins, select

_HOW_TO_LINK = {
    ImageKind.PTX: Hint(
        "compile for an architecture with cujit.compile(source, arch='sm_90'), or assemble PTX with "
        "cujit.link([ptx], arch='sm_90')",
        shell="compile for an architecture with cujit compile FILE -a sm_90, or assemble PTX with cujit link "
        "FILE -a sm_90 -o x.cubin",
    ),
    ImageKind.LTOIR: Hint(
        "create machine code with cujit.link([image], arch='sm_90')",
        shell="create machine code with cujit link FILE -a sm_90 -o x.cubin",
    ),
    ImageKind.OPTIXIR: Hint(
        "compile the source to machine code with cujit.compile(source, arch='sm_90')",
        shell="compile the source to machine code with cujit compile FILE -a sm_90",
    ),
    ImageKind.TILEIR: Hint(
        "compile it to machine code with cujit.compile(image, arch='sm_90')",
        shell="compile it to machine code with cujit compile FILE -a sm_90",
    ),
    ImageKind.NVVMIR: Hint(
        "create machine code with cujit.compile(cujit.Source.nvvm(...), arch='sm_90')",
        shell="create machine code with cujit compile FILE.ll -a sm_90",
    ),
}


def cubins_for(artifact: Artifact, device: Arch | None) -> list[Cubin]:
    """The machine code of an image that a GPU would run, one cubin for each container in it."""
    if artifact.kind in _HOW_TO_LINK:
        raise FormatError(
            f"register usage is known only for machine code, but this image is {artifact.kind.value}",
            help=_HOW_TO_LINK[artifact.kind],
        )
    if artifact.kind is ImageKind.CUBIN:
        return [_only_cubin(artifact, device)]
    fatbins = find_fatbins(artifact.data)
    if not any(fatbins):
        raise FormatError(f"{artifact.name or 'this image'} contains no device code")
    arch = device or _only_arch(fatbins)
    chosen = [entry for entry in (select(fatbin, arch) for fatbin in fatbins) if entry is not None]
    found = [_machine_code(entry.payload()) for entry in chosen if entry.kind is EntryKind.CUBIN]
    if not found:
        _refuse(artifact, fatbins, arch, chosen)
    return found


def _only_cubin(artifact: Artifact, device: Arch | None) -> Cubin:
    cubin = _machine_code(artifact.data)
    if device is not None and not cubin.arch.runs_on(device):
        raise ArchError(
            f"this cubin is for {cubin.arch} and doesn't run on {device}",
            help=f"build it for {device}",
            code="arch-mismatch",
        )
    return cubin


def _machine_code(data: bytes) -> Cubin:
    cubin = read_cubin(data)
    if cubin.ptx and not cubin.kernels:
        raise FormatError(
            "register usage is known only for machine code, but this image was created by cujit emulate and "
            "contains PTX",
            help="compile the source without cujit emulate",
        )
    return cubin


def _only_arch(fatbins: tuple[Fatbin, ...]) -> Arch:
    arches = sorted({e.arch for fatbin in fatbins for e in fatbin.cubin_entries if e.arch is not None})
    if len(arches) == 1:
        return arches[0].real
    if not arches:
        raise FormatError("this image contains no machine code", help=_HOW_TO_LINK[ImageKind.PTX])
    raise ArchError(
        f"this image contains machine code for {', '.join(map(str, arches))}",
        help=Hint("choose one with on='H200' or on='sm_90'", shell="choose one with --on H200 or --on sm_90"),
        code="arch-mismatch",
    )


def _refuse(artifact: Artifact, fatbins: tuple[Fatbin, ...], arch: Arch, chosen: list[FatbinEntry]) -> NoReturn:
    """Raise an error that explains why an image contains no linked machine code for an architecture."""
    name = artifact.name or "this image"
    if any(e.arch is not None and e.arch.runs_on(arch) for fatbin in fatbins for e in fatbin.cubin_entries):
        raise FormatError(
            f"the machine code of {name} for {arch} must be linked first, because linking can change its "
            "register usage",
            help=Hint(f"cujit.link([image], arch='{arch}')", shell=f"run cujit link FILE -a {arch} -o x.cubin"),
        )
    why = f"{name} contains nothing that runs on {arch}"
    if chosen:
        why = f"{arch} would run the PTX in {name}, and the driver chooses its registers when it compiles the PTX"
    raise ArchError(why, help=f"build it with the target {arch}")
