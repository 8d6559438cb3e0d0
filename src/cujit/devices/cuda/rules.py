"""Rules for which image runs where, based on the image, the GPU's architecture, and the driver's version.

The functions return the reason for a refusal, or None. ``image`` raises errors with the reasons, and ``compat`` lists
them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cujit.arch import Arch, ArchKind
from cujit.arch.arch import KNOWN_ARCHES
from cujit.arch.support import NEWEST, RELEASES, Version, driver_release, extra_for, install, knows
from cujit.errors.hints import Hint
from cujit.values import NamedTuple

if TYPE_CHECKING:
    from cujit.formats.cubin import Cubin

# Source: PTX ISA 9.1, "PTX Module Directives": .version major.minor, .target of sm_NN[af] first.
_VERSION = re.compile(rb"^[ \t]*\.version\s+(\d+)\.(\d+)", re.MULTILINE)
_TARGET = re.compile(rb"^[ \t]*\.target\s+sm_(\d+)([af]?)", re.MULTILINE)


class LoadRefusal(NamedTuple):
    """The reason why an image does not run on a GPU or driver, and a hint for an image that would run."""

    why: str
    help: str


class PtxHeader(NamedTuple):
    """The header of a PTX text. ``arch`` is the virtual architecture of its target."""

    version: Version
    arch: Arch


def read_header(text: bytes) -> PtxHeader | str:
    """Return the ``.version`` and ``.target`` of PTX, or the name of the missing directive."""
    version, target = _VERSION.search(text), _TARGET.search(text)
    if version is None:
        return ".version"
    if target is None or int(target[1]) < 10:
        return ".target sm_…"
    arch = Arch(ArchKind.VIRTUAL, int(target[1]), target[2].decode())
    return PtxHeader((int(version[1]), int(version[2])), arch)


def newest_ptx(driver: Version) -> Version | None:
    """Return the newest PTX version that a driver or tool of a CUDA version accepts. Return None if the CUDA version is
    beyond the table.
    """
    return None if driver > RELEASES[-1].toolkit else driver_release(driver).ptx


def target_refusal(arch: Arch, device: Arch, name: str) -> LoadRefusal | None:
    """Return why PTX for ``arch`` does not run on the GPU ``name`` of architecture ``device``, or None
    if the PTX runs.
    """
    if arch.runs_on(device):
        return None
    return LoadRefusal(
        f"is for {arch}, but {name} is {device}",
        f"build for {device}, or PTX of {device.virtual} or an older one without a suffix{_by(device)}",
    )


def _by(device: Arch) -> str:
    """Name the extra that builds for a GPU which the newest toolkit has dropped."""
    return "" if knows(NEWEST, device) else f"; {install(extra_for(device))} brings the last toolkit that does"


def target_on(arch: Arch, device: Arch) -> Arch:
    """Return the architecture for which PTX for ``arch`` is assembled on ``device``. The result has the suffix of
    ``arch``.
    """
    return Arch(ArchKind.REAL, device.number, arch.suffix)


def cubin_refusal(cubin: Cubin, device: Arch, name: str, *, is_emulated: bool = False) -> LoadRefusal | None:
    """Return why a cubin does not run on the GPU ``name`` of architecture ``device``, or None if the cubin runs.

    The GPU may be emulated.
    """
    if bool(cubin.ptx) != is_emulated:
        return emulation_refusal(is_emulated)
    if cubin.is_relocatable:
        return LoadRefusal(
            "is relocatable: it was compiled for linking (rdc)",
            Hint(
                "use cujit.link([...], arch=...), and load the cubin",
                shell="use cujit link FILE -o x.cubin, and load the cubin",
            ),
        )
    if not cubin.arch.runs_on(device):
        return LoadRefusal(
            f"is for {cubin.arch}, but {name} is {device}",
            f"build for {device}, or as PTX: target {device.virtual}{_by(device)}",
        )
    return None


def emulation_refusal(is_emulated: bool) -> LoadRefusal:
    """Return why machine code does not run on an emulated GPU, or why emulator code does not run elsewhere."""
    if is_emulated:
        return LoadRefusal(
            "is machine code of a GPU, which cujit emulate does not execute",
            "compile it under cujit emulate, or load PTX, or a fatbin with a target compute_…",
        )
    return LoadRefusal(
        "was created by cujit emulate, and runs only under cujit emulate",
        "recompile it without cujit emulate",
    )


def same_major_refusal(arch: Arch, toolkit: Version | None, driver: Version) -> LoadRefusal | None:
    """Return why a driver of CUDA version ``driver`` does not load machine code from ``toolkit``, or None if the code
    loads.

    Source: CUDA Compatibility, "Minor Version Compatibility": code of any release of a major version runs on every
    driver of that major version and of later ones; an older major version promises nothing.
    """
    if toolkit is not None and toolkit[0] > driver[0]:
        first = (
            next(r for r in RELEASES if r.toolkit[0] == toolkit[0]) if toolkit[0] <= RELEASES[-1].toolkit[0] else None
        )
        return LoadRefusal(
            f"was made by CUDA {toolkit[0]}.{toolkit[1]}; drivers of CUDA {driver[0]}.{driver[1]} load code of CUDA "
            f"{driver[0]} and older",
            (f"update the driver to r{first.driver} or later, or " if first else "")
            + f"build it with CUDA {driver[0]}",
        )
    return _unknown_arch(arch, driver)


def _unknown_arch(arch: Arch, driver: Version) -> LoadRefusal | None:
    row = KNOWN_ARCHES.get(arch.number)
    if row is None or row.first <= driver:
        return None
    release = driver_release(row.first)
    return LoadRefusal(
        f"is for {arch}, which came with CUDA {row.first[0]}.{row.first[1]}; the driver is of CUDA "
        f"{driver[0]}.{driver[1]}",
        f"update the driver to r{release.driver} or later",
    )
