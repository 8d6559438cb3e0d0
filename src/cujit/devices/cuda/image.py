"""Which image the driver is given, decided before it is asked, so that a refusal says what would run."""

from __future__ import annotations

import re

from cujit.arch import Arch, ArchKind
from cujit.artifact import Artifact, Kind
from cujit.errors import DriverError, LoadError
from cujit.formats.cubin import read_cubin
from cujit.formats.fatbin import EntryKind, read_fatbin, select
from cujit.support import RELEASES, Version, driver_release, release_of_ptx

__all__ = ["check_ptx_version", "choose_image"]

# Source: PTX ISA 9.1, "PTX Module Directives": .version major.minor, .target of sm_NN[af] first.
_VERSION = re.compile(rb"^[ \t]*\.version\s+(\d+)\.(\d+)", re.MULTILINE)
_TARGET = re.compile(rb"^[ \t]*\.target\s+sm_(\d+)([af]?)", re.MULTILINE)


def choose_image(artifact: Artifact, device: Arch, name: str, driver: Version) -> tuple[bytes, str]:
    """Give the bytes to load on a GPU of architecture ``device`` called ``name``, and the route in words.

    ``driver`` is the CUDA version of the driver.

    Raises:
        LoadError: the image does not run there.
        FormatError: the image is damaged.
        DriverError: its PTX is newer than the driver.
    """
    if artifact.kind is Kind.PTX:
        return _ptx(artifact.data, artifact, device, name, driver)
    if artifact.kind is Kind.CUBIN:
        return _cubin(artifact, device, name)
    if artifact.kind is Kind.FATBIN:
        return _fatbin(artifact, device, name, driver)
    raise LoadError(f"{_what(artifact)} cannot be loaded")


def _what(artifact: Artifact) -> str:
    return f"the {artifact.kind.value}{f' {artifact.name}' if artifact.name else ''}"


def _cubin(artifact: Artifact, device: Arch, name: str) -> tuple[bytes, str]:
    """Take machine code, if it is linked and runs here."""
    cubin = read_cubin(artifact.data)
    if cubin.is_relocatable:
        raise LoadError(
            f"{_what(artifact)} is relocatable: it was compiled to be linked (rdc)",
            help="link it: cujit.link([...], arch=...), and load the cubin",
        )
    if not cubin.arch.runs_on(device):
        raise LoadError(
            f"{_what(artifact)} is for {cubin.arch}; {name} is {device}, on which it does not run",
            help=f"build for {device}, or as PTX: target {device.virtual}",
        )
    return artifact.data, f"cubin {cubin.arch}"


def _fatbin(artifact: Artifact, device: Arch, name: str, driver: Version) -> tuple[bytes, str]:
    """Take a fatbin, if one of its images runs here; the driver chooses by the same rules."""
    fatbin = read_fatbin(artifact.data)
    entry = select(fatbin, device)
    if entry is None:
        have = ", ".join(map(str, fatbin)) or "nothing"
        lto = any(e.kind is EntryKind.LTOIR for e in fatbin)
        raise LoadError(
            f"{_what(artifact)} holds {have}; {name} is {device}, on which none of these runs",
            help=f"build with the target {device}, or with PTX: {device.virtual}"
            + ("; LTO-IR is linked first: cujit.link([...], arch=...)" if lto else ""),
        )
    if entry.kind is EntryKind.PTX:
        check_ptx_version(entry.version, f"the {entry} of {_what(artifact)}", device, driver)
        return artifact.data, f"PTX {entry.arch} of the fatbin, through the driver's JIT"
    return artifact.data, f"cubin {entry.arch} of the fatbin"


def _ptx(text: bytes, artifact: Artifact, device: Arch, name: str, driver: Version) -> tuple[bytes, str]:
    """Take PTX for the driver's compiler, if its target runs here and its version is not too new."""
    version, target = _VERSION.search(text), _TARGET.search(text)
    if version is None or target is None:
        raise LoadError(
            f"{_what(artifact)} has no {'.version' if version is None else '.target sm_…'} line",
            help="is the file whole?",
        )
    arch = Arch(ArchKind.VIRTUAL, int(target[1]), target[2].decode())
    if not arch.runs_on(device):
        raise LoadError(
            f"{_what(artifact)} is for {arch}; {name} is {device}, on which it does not run",
            help=f"build for {device}, or PTX of {device.virtual} or an older one without a suffix",
        )
    check_ptx_version((int(version[1]), int(version[2])), _what(artifact), device, driver)
    # The driver reads text up to a zero byte.
    return text.rstrip(b"\0") + b"\0", f"PTX {arch} through the driver's JIT"


def check_ptx_version(version: Version, what: str, device: Arch, driver: Version) -> None:
    """Check that a driver of CUDA version ``driver`` compiles PTX of ``version``.

    Raises:
        DriverError: the PTX is newer.
    """
    if driver > RELEASES[-1].toolkit:  # a driver newer than the table; it will say itself
        return
    newest = driver_release(driver)
    if version <= newest.ptx:
        return
    needed = release_of_ptx(version)
    update = f", or update the driver to r{needed.driver} or later" if needed else ", or update the driver"
    raise DriverError(
        f"{what} is of PTX ISA {version[0]}.{version[1]}"
        + (f" (CUDA {needed.toolkit[0]}.{needed.toolkit[1]})" if needed else "")
        + f"; the driver is of CUDA {driver[0]}.{driver[1]} and compiles PTX up to "
        f"{newest.ptx[0]}.{newest.ptx[1]}",
        tool=f"CUDA driver {driver[0]}.{driver[1]}",
        call="cuLibraryLoadData",
        result="CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        help=f"build a cubin instead: target {device}{update}",
    )
