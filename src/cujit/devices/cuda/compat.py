"""Verdicts on which entries of an image load on which GPUs and drivers, with reasons. Only the image is read, and
nothing runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from cujit.arch import Arch
from cujit.arch.arch import KNOWN_ARCHES
from cujit.arch.support import RELEASES, Release, Version, dotted, driver_release, release_of_ptx, toolkit_of_ptx
from cujit.artifact import Artifact, ImageKind
from cujit.artifact.opening import naming, open_image
from cujit.devices.cuda.rules import (
    PtxHeader,
    cubin_refusal,
    newest_ptx,
    read_header,
    same_major_refusal,
    target_refusal,
)
from cujit.errors import CujitError, FormatError, OptionError, spell
from cujit.errors.hints import Hint
from cujit.formats.cubin import Cubin, read_cubin
from cujit.formats.elf import read_elf
from cujit.formats.fatbin import EntryKind, Fatbin, FatbinEntry, find_fatbins, read_fatbin, select
from cujit.formats.ltoir import read_ltoir
from cujit.formats.ptx.isa.table import NEWEST_PTX
from cujit.formats.ptx.obstacles import lowest_version, obstacles
from cujit.formats.ptx.parser import parse
from cujit.formats.ptx.recovered import ptx_of_cubin
from cujit.formats.ptx.syntax import PtxModule
from cujit.formats.ptx.versions import is_target
from cujit.formats.tileir import first_release_for, read_tileir
from cujit.values import dataclass, replace


@dataclass(frozen=True)
class Verdict:
    """Whether an entry of an image would load.

    ``entry`` is the name of the entry, such as ``cubin sm_90`` or ``ptx compute_80``. ``why`` states how the entry
    would run, or why it can't run. ``help`` is a suggestion, or an empty string. ``picked`` is True for the fatbin
    entry that would run.

    Example::

        (verdict,) = cujit.compat(cubin, device="sm_80")
        assert not verdict.loads and verdict.help
    """

    entry: str
    loads: bool
    why: str
    help: str = ""
    picked: bool = False

    def __str__(self) -> str:
        return f"{self.entry}: {'loads' if self.loads else 'does not load'}: {self.why}"


@dataclass(frozen=True)
class _Target:
    """The driver and GPU that an entry is to load on. None means any driver or GPU."""

    driver: Version | None
    device: Arch | None


def compat(
    image: Artifact | bytes | bytearray | memoryview | str | os.PathLike[str],
    *,
    driver: Version | int | str | None = None,
    device: Arch | str | None = None,
) -> list[Verdict]:
    """Return which entries of an image would load, and why the remaining entries wouldn't. cujit loads nothing and
    queries no driver.

    If the installed nvJitLink could assemble the PTX, the result mentions this, but doesn't count the entry as
    loadable.

    Args:
        image: an Artifact, the bytes of an image, its PTX as a multi-line str, or the path of a file.
        driver: CUDA version of the driver (``(13, 0)`` or ``"13.0"``) or its branch (``580``). Default: don't check the
            driver.
        device: architecture of the GPU (``"sm_90"``). Default: don't check the GPU.

    Raises:
        FormatError: the image is damaged, or its format is unknown.
        OptionError: the driver version is malformed or older than any version that cujit knows.
        ArchError: the architecture is malformed or unknown.
        FileError: the file can't be read.

    Example::

        for verdict in cujit.compat(fatbin, driver="12.4", device="sm_90"):
            print(verdict)
    """
    target = _Target(driver_version(driver), None if device is None else _real(Arch.parse(device)))
    artifact = open_image(image, "compat")
    with naming(artifact):
        return _verdicts(artifact, target)


def _verdicts(artifact: Artifact, target: _Target) -> list[Verdict]:
    if artifact.kind is ImageKind.PTX:
        return [_ptx(artifact.data, None, target)]
    if artifact.kind is ImageKind.CUBIN:
        return [_cubin(artifact.data, target)]
    if artifact.kind is ImageKind.FATBIN:
        return _fatbin(read_fatbin(artifact.data), target)
    if artifact.kind is ImageKind.LTOIR:
        return [_to_be_linked(f"ltoir {read_ltoir(artifact.data).arch}")]
    if artifact.kind is ImageKind.OPTIXIR:
        return [Verdict("OptiX IR", False, "OptiX compiles and loads it", "optixModuleCreate(…)")]
    if artifact.kind is ImageKind.TILEIR:
        return [_tileir(artifact.data, target)]
    if artifact.kind is ImageKind.NVVMIR:
        return [
            Verdict(
                "LLVM IR",
                False,
                "it must be compiled first",
                Hint("cujit.compile(cujit.Source.nvvm(...))", shell="run cujit compile FILE.ll"),
            )
        ]
    return _host_file(artifact, target) or [Verdict(artifact.kind.value, False, "it contains no device code")]


def driver_version(driver: Version | int | str | None) -> Version | None:
    """Return the CUDA version of a driver written as ``(13, 0)``, ``"13.0"``, or the branch ``580`` (also ``"580"``,
    ``"r580"``).

    Raises:
        OptionError: the value has none of these forms, or is older than every known release.
    """
    if driver is None:
        return None
    read = _read_driver(driver) if isinstance(driver, str) else driver
    if type(read) is int:
        known = [release for release in RELEASES if release.driver <= read]
        if not known:
            raise OptionError(f"unknown driver branch {spell(driver)}", help=_DRIVER_HELP, code="option-unknown")
        return known[-1].toolkit
    if isinstance(read, tuple) and len(read) == 2 and all(type(n) is int for n in read):
        if read < RELEASES[0].toolkit:
            raise OptionError(
                f"cujit doesn't know of a driver for CUDA {dotted(read)}", help=_DRIVER_HELP, code="option-unknown"
            )
        return read
    raise OptionError(f"unknown driver {spell(driver)}", help=_DRIVER_HELP, code="option-unknown")


def _read_driver(text: str) -> Version | int | None:
    """Return the driver branch in a text such as ``580`` or ``580.65.06``, or a CUDA version. Return None if the text
    is neither.
    """
    words = text.lower().removeprefix("r").split(".")
    if not all(word.isdecimal() and len(word) < 6 for word in words) or len(words) > 3:
        return None
    numbers = [int(word) for word in words]
    return numbers[0] if len(numbers) == 1 or numbers[0] >= RELEASES[0].driver else (numbers[0], numbers[1])


_DRIVER_HELP = "a driver is the CUDA version that it speaks, (13, 0), or its branch, 580"


def _real(arch: Arch) -> Arch:
    """The architecture of a GPU, which has no variants: sm_90 for sm_90a."""
    return Arch(arch.real.kind, arch.number)


def _to_be_linked(entry: str) -> Verdict:
    return Verdict(
        entry,
        False,
        "it must be linked first",
        Hint(
            "use cujit.link([...], arch=...), and load the cubin",
            shell="use cujit link FILE -o x.cubin, and load the cubin",
        ),
    )


# -- machine code -----------------------------------------------------------------------------------------


def _cubin(data: bytes, target: _Target) -> Verdict:
    cubin = read_cubin(data)
    entry = f"cubin {cubin.arch}"
    device = target.device or _real(cubin.arch)
    refusal = cubin_refusal(cubin, device, "the device")
    if refusal is None and target.driver is not None:
        refusal = same_major_refusal(cubin.arch, cubin.toolkit, target.driver)
    if refusal is not None:
        return Verdict(entry, False, refusal.why, refusal.help + _carried(cubin, data, target))
    return Verdict(entry, True, f"machine code{'' if target.device else f', {_where(cubin.arch)}'}")


def _carried(cubin: Cubin, data: bytes, target: _Target) -> str:
    """Return a hint to load the PTX in a cubin's line information, or "" if there is no such PTX or it
    does not load.
    """
    if not cubin.carries_ptx:
        return ""
    try:
        loads = _ptx(ptx_of_cubin(data).encode(), None, target).loads
    except FormatError:
        return ""
    return "; or load the PTX that it carries: cujit inspect FILE --extract DIR" * loads


def _where(arch: Arch) -> str:
    """Describe on which GPUs code for ``arch`` runs."""
    if arch.suffix == "a":
        return f"on sm_{arch.number} alone"
    if arch.is_real or arch.suffix == "f":
        return f"on sm_{arch.number} and later ones of capability {arch.capability[0]}.x"
    return f"on sm_{arch.number} and later"


# -- PTX --------------------------------------------------------------------------------------------------


def _ptx(text: bytes, entry: str | None, target: _Target) -> Verdict:
    header = read_header(text)
    if isinstance(header, str):
        return Verdict(entry or "ptx", False, f"it has no {header} line", "check that the file is complete")
    entry = entry or f"ptx {header.arch}"
    if header.version[0] > NEWEST_PTX[0]:
        return Verdict(entry, False, f"there is no PTX {dotted(header.version)}", _newest(f"PTX {dotted(NEWEST_PTX)}"))
    if header.version <= NEWEST_PTX and not is_target(str(header.arch.real)):
        return Verdict(entry, False, f"there is no target {header.arch.real}", _newest(f"sm_{max(KNOWN_ARCHES)}"))
    refusal = target_refusal(header.arch, target.device, "the device") if target.device else None
    if refusal is not None:
        return Verdict(entry, False, refusal.why, refusal.help)
    where = "" if target.device else f", {_where(header.arch)}"
    if target.driver is None:
        return Verdict(entry, True, f"PTX {dotted(header.version)}, {_least_driver(text, header)}{where}")
    newest = newest_ptx(target.driver)
    if newest is None or header.version <= newest:
        return Verdict(entry, True, f"PTX {dotted(header.version)}, through the driver's JIT{where}")
    return _newer_ptx(text, entry, header, newest, target, where)


def _newest(what: str) -> str:
    return f"the newest that cujit knows is {what}"


def _newer_ptx(text: bytes, entry: str, header: PtxHeader, newest: Version, target: _Target, where: str) -> Verdict:
    """Judge PTX that is newer than the driver: whether its version can be lowered."""
    driver = target.driver or newest
    module = _parsed(text)
    came = toolkit_of_ptx(header.version)
    row = KNOWN_ARCHES.get((target.device or header.arch).number)
    is_built = row is not None and came is not None and (row.last is None or row.last >= came)
    linker = f"an nvJitLink of CUDA {dotted(came)} or later" if came and is_built and came[0] <= driver[0] else ""
    if module is not None:
        found = obstacles(module, newest)
        if not found:
            how = f"lowered from PTX {dotted(header.version)} to {dotted(newest)}, through the driver's JIT"
            return Verdict(entry, True, f"{how}{f', or assembled by {linker}' if linker else ''}{where}")
        reasons = "; ".join(map(str, found))
    else:
        reasons = "its text is not readable"
    smallest = release_of_ptx(lowest_version(module) if module else header.version)
    ways = [
        f"{linker}, which assembles it" if linker else "",
        f"a driver of r{smallest.driver} or later" if smallest else "",
        "machine code (target sm_…)",
    ]
    return Verdict(
        entry,
        False,
        f"PTX {dotted(header.version)} is newer than the driver, which takes {dotted(newest)}, and can't be "
        f"lowered: {reasons}",
        "; or ".join(filter(None, ways)),
    )


def _least_driver(text: bytes, header: PtxHeader) -> str:
    module = _parsed(text)
    release: Release | None = release_of_ptx(lowest_version(module) if module else header.version)
    if release is None:
        return "through the JIT of a driver newer than cujit knows"
    return f"through the JIT of drivers of r{release.driver} (CUDA {dotted(release.toolkit)}) and later"


def _parsed(text: bytes) -> PtxModule | None:
    try:
        return parse(text.rstrip(b"\0").decode())
    except (CujitError, UnicodeDecodeError):
        return None


# -- fatbins ----------------------------------------------------------------------------------------------


def _tileir(data: bytes, target: _Target) -> Verdict:
    """Return the verdict on Tile IR. A driver compiles Tile IR of the same or an older release, for the GPUs that the
    release supports.
    """
    version, device = read_tileir(data).version, target.device
    entry, of_gpu = f"tileir {dotted(version)}", first_release_for(device) if device else version
    if of_gpu is None:
        return Verdict(entry, False, f"no driver compiles Tile IR for {device}", "bundle PTX or machine code for it")
    needed = max(version, of_gpu)
    if target.driver is not None and target.driver < needed:
        why = f"it needs a driver of CUDA {dotted(needed)}, and this is one of CUDA {dotted(target.driver)}"
        arch = f"sm_{device.number}" if device else "sm_…"
        help = Hint(f"cujit.compile(image, arch='{arch}')", shell=f"cujit compile FILE --arch {arch}")
        return Verdict(entry, False, why, help)
    return Verdict(entry, True, f"a driver of CUDA {dotted(needed)} or later compiles it")


def _fatbin(fatbin: Fatbin, target: _Target) -> list[Verdict]:
    picked = select(fatbin, target.device) if target.device else None
    found = []
    for entry, verdict in _judged(fatbin, target):
        is_picked = entry is picked and verdict.loads
        found.append(Verdict(verdict.entry, verdict.loads, verdict.why, verdict.help, is_picked))
    return found


def _judged(fatbin: Fatbin, target: _Target) -> Iterator[tuple[FatbinEntry, Verdict]]:
    for entry in fatbin:
        if entry.kind is EntryKind.CUBIN:
            yield entry, _cubin(entry.payload(), target)
        elif entry.kind is EntryKind.PTX:
            yield entry, _ptx(entry.payload(), str(entry), target)
        elif entry.kind is EntryKind.LTOIR:
            yield entry, _to_be_linked(str(entry))
        elif entry.kind is EntryKind.TILEIR:
            yield entry, _tileir(entry.payload(), target)
        else:
            yield entry, Verdict(str(entry), False, "cujit does not know this kind of code")


# -- host files -------------------------------------------------------------------------------------------

_LINKED = (2, 3)  # of ELF's e_type: executables and shared libraries. Source: System V ABI (gABI), "ELF Header".


def _host_file(artifact: Artifact, target: _Target) -> list[Verdict]:
    """Return the verdicts on the contents of a host file.

    The CUDA runtime loads each fatbin of an executable or a shared library separately, and uses one entry of each
    fatbin. Objects and archives must be linked into such a file first.
    """
    fatbins = find_fatbins(artifact.data)
    if artifact.kind is not ImageKind.OBJECT or read_elf(artifact.data).type not in _LINKED:
        return [_to_be_linked(f"{entry} of the {artifact.kind.value}") for fatbin in fatbins for entry in fatbin]
    return [
        replace(verdict, entry=f"{verdict.entry} of fatbin {number}")
        for number, fatbin in enumerate(fatbins)
        for verdict in _fatbin(fatbin, target)
    ]


def release_name(driver: Version) -> str:
    """Name a driver for a heading: ``CUDA 13.0 (r580)``."""
    return f"CUDA {dotted(driver)} (r{driver_release(driver).driver})"
