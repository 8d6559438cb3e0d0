"""The choice of the image for the driver. cujit chooses before the driver call, so that an error can describe an image
that would run.
"""

from __future__ import annotations

from cujit.artifact import Artifact, ImageKind
from cujit.devices.cuda.routes import Chosen, RoutePlace, route_ptx
from cujit.devices.cuda.rules import cubin_refusal, emulation_refusal
from cujit.devices.jit_options import JitOptions
from cujit.errors import LoadError
from cujit.errors.hints import Hint

_AS_PTX = ", which is PTX under cujit emulate"


def choose_image(artifact: Artifact, place: RoutePlace, options: JitOptions | None = None) -> Chosen:
    """Return the bytes to load at ``place``, a description of the route, and the assembler's log.

    Raises:
        LoadError: the image does not run on that GPU.
        FormatError: the image is damaged.
        DriverError: the PTX of the image is newer than the driver, and no other route works.
    """
    options = options or JitOptions()
    if artifact.kind is ImageKind.PTX:
        return route_ptx(artifact.data, _what(artifact), place, options)
    if artifact.kind is ImageKind.CUBIN:
        return _cubin(artifact, place)
    if artifact.kind is ImageKind.FATBIN:
        return _fatbin(artifact, place, options)
    raise LoadError(f"can't load {_what(artifact)}")


def _what(artifact: Artifact) -> str:
    return f"the {artifact.kind.value}{f' {artifact.name}' if artifact.name else ''}"


def _cubin(artifact: Artifact, place: RoutePlace) -> Chosen:
    """Return a cubin to load, if the cubin is linked and runs on the GPU."""
    from cujit.formats.cubin import read_cubin  # start-up: not every image is read

    cubin = read_cubin(artifact.data)
    if refusal := cubin_refusal(cubin, place.arch, place.name, is_emulated=place.is_emulated):
        raise LoadError(f"{_what(artifact)} {refusal.why}", help=refusal.help)
    return Chosen(artifact.data, f"cubin {cubin.arch}{_AS_PTX * place.is_emulated}")


def _fatbin(artifact: Artifact, place: RoutePlace, options: JitOptions) -> Chosen:
    """Return a fatbin to load if one of its images runs on the GPU, or PTX from the fatbin. The driver chooses an image
    by the same rules.
    """
    from cujit.formats.fatbin import EntryKind, read_fatbin, select  # start-up: not every image is read

    fatbin = read_fatbin(artifact.data)
    entry = select(fatbin, place.arch, emulated=place.is_emulated)
    if entry is None:
        have = ", ".join(map(str, fatbin)) or "nothing"
        if select(fatbin, place.arch, emulated=not place.is_emulated) is not None:
            refusal = emulation_refusal(place.is_emulated)
            raise LoadError(f"{_what(artifact)} {refusal.why}", help=refusal.help)
        lto = any(e.kind is EntryKind.LTOIR for e in fatbin)
        raise LoadError(
            f"{_what(artifact)} contains {have}, and none of these can run on {place.name}, which is {place.arch}",
            help=f"add the target {place.arch}, or PTX: {place.arch.virtual}"
            + (
                Hint(
                    "; link LTO-IR first: cujit.link([...], arch=...)",
                    shell="; link LTO-IR first: cujit link FILE -o x.cubin",
                )
                if lto
                else ""
            ),
            code="load-mismatch",
        )
    if entry.kind is EntryKind.PTX:
        return route_ptx(entry.payload(), f"the {entry} of {_what(artifact)}", place, options, origin="of the fatbin")
    return Chosen(artifact.data, f"cubin {entry.arch} of the fatbin{_AS_PTX * place.is_emulated}")
