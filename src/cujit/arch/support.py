"""CUDA releases with the PTX ISA and the driver that each supports: tables with their sources, and functions to search
them.
"""

from __future__ import annotations

from cujit.arch.arch import KNOWN_ARCHES, Arch, ArchKind
from cujit.errors import ArchError
from cujit.values import NamedTuple

Version = tuple[int, int]


class Release(NamedTuple):
    """A CUDA release: the version of the toolkit, of the PTX that it writes, and its first driver branch on Linux."""

    toolkit: Version
    ptx: Version
    driver: int


# Source: PTX ISA manual, "PTX Release History" (9.1 and 9.4 editions). Toolkits 12.0 to 13.5: the `.version`
# line that NVRTC of each release writes was read (12.0 12.4 12.6 12.8 12.9 13.0 13.1 13.2 13.3 13.4 13.5).
RELEASES: tuple[Release, ...] = (
    Release((9, 0), (6, 0), 384),
    Release((9, 1), (6, 1), 387),
    Release((9, 2), (6, 2), 396),
    Release((10, 0), (6, 3), 400),
    Release((10, 1), (6, 4), 418),
    Release((10, 2), (6, 5), 440),
    Release((11, 0), (7, 0), 445),
    Release((11, 1), (7, 1), 455),
    Release((11, 2), (7, 2), 460),
    Release((11, 3), (7, 3), 465),
    Release((11, 4), (7, 4), 470),
    Release((11, 5), (7, 5), 495),
    Release((11, 6), (7, 6), 510),
    Release((11, 7), (7, 7), 515),
    Release((11, 8), (7, 8), 520),
    Release((12, 0), (8, 0), 525),
    Release((12, 1), (8, 1), 530),
    Release((12, 2), (8, 2), 535),
    Release((12, 3), (8, 3), 545),
    Release((12, 4), (8, 4), 550),
    Release((12, 5), (8, 5), 555),
    Release((12, 6), (8, 5), 560),
    Release((12, 8), (8, 7), 570),
    Release((12, 9), (8, 8), 575),
    Release((13, 0), (9, 0), 580),
    Release((13, 1), (9, 1), 590),
    Release((13, 2), (9, 2), 595),
    Release((13, 3), (9, 3), 610),
    Release((13, 4), (9, 4), 615),
)


NEWEST: Version = RELEASES[-1].toolkit


def dotted(version: Version) -> str:
    """Return a version as text, such as ``13.4``."""
    return f"{version[0]}.{version[1]}"


def install(extra: str) -> str:
    """Return the command that installs an extra of cujit, quoted for every shell: ``pip install 'cujit[cu12]'``."""
    return f"pip install 'cujit[{extra}]'"


def extra_for(arch: Arch) -> str:
    """Return the extra whose toolkit supports an architecture: ``cu12`` if CUDA 13 dropped it."""
    return "cu13" if knows(NEWEST, arch) else "cu12"


def knows(toolkit: Version, arch: Arch) -> bool:
    """Return whether a toolkit supports an architecture. Unknown architectures count as supported."""
    row = KNOWN_ARCHES.get(arch.number)
    return row is None or row.last is None or row.last >= toolkit


def arches_of(toolkit: Version) -> tuple[int, ...]:
    """Return the numbers of the architectures that a toolkit supports, in ascending order."""
    return tuple(
        row.number
        for row in KNOWN_ARCHES.values()
        if row.first <= toolkit and knows(toolkit, Arch(ArchKind.REAL, row.number))
    )


def release_of_ptx(version: Version) -> Release | None:
    """Return the first CUDA release that supports a version of the PTX ISA, or None if the version is newer than the
    table.
    """
    return next((r for r in RELEASES if r.ptx >= version), None)


def toolkit_of_ptx(version: Version) -> Version | None:
    """Return the first toolkit that supports a version of the PTX ISA, even if the table lacks a driver for it.

    Source: the table above; NVRTC 13.0 to 13.5 write 9.0 to 9.5, so that the minor numbers have run together since 9.0.
    """
    release = release_of_ptx(version)
    if release is not None:
        return release.toolkit
    newest = RELEASES[-1]
    return (newest.toolkit[0], version[1]) if version[0] == newest.ptx[0] else None


def driver_release(cuda: Version) -> Release:
    """Return the newest release that a driver for CUDA ``cuda`` includes. Its JIT compiles PTX up to that release."""
    known = [r for r in RELEASES if r.toolkit <= cuda]
    return known[-1] if known else RELEASES[0]


def require_arch(arch: Arch, supported: tuple[int, ...], tool: str, version: Version) -> None:
    """Check that a tool that supports the architectures ``supported`` can compile for ``arch``.

    Raises:
        ArchError: the tool can't compile for ``arch``. The message says whether the toolkit dropped the architecture,
            doesn't support it yet, or lacks the suffix, and lists the supported architectures.
    """
    name = f"{tool} {dotted(version)}"
    if arch.number not in supported:
        raise _without_number(arch, supported, name, version)
    row = KNOWN_ARCHES.get(arch.number)
    since = {"a": row.a_since, "f": row.f_since}.get(arch.suffix) if row is not None else None
    if arch.suffix and (since is None or since > version):
        when = f"since CUDA {dotted(since)}" if since else "in no toolkit"
        raise ArchError(
            f"{name} doesn't support {arch}: the suffix '{arch.suffix}' exists for {arch.number} {when}",
            help=f"{arch.kind.value}_{arch.number}",
            code="arch-unsupported",
        )


def _without_number(arch: Arch, supported: tuple[int, ...], name: str, version: Version) -> ArchError:
    row = KNOWN_ARCHES.get(arch.number)
    have = ", ".join(f"{arch.kind.value}_{n}" for n in supported)
    if row is not None and row.last is not None and not knows(version, arch):
        return ArchError(
            f"{name} no longer compiles for {arch}: CUDA {dotted(row.last)} was the last toolkit that supported it",
            help=f"run {install(extra_for(arch))} to build for {arch}; {name} supports {have}",
            code="arch-unsupported",
        )
    first = f"CUDA {dotted(row.first)} was the first that does" if row else "no toolkit known to cujit does"
    below = max((n for n in supported if n < arch.number), default=None)
    portable = f"; PTX for compute_{below} runs on it through the driver's JIT" if below and not arch.suffix else ""
    return ArchError(
        f"{name} doesn't support {arch}: {first}", help=f"it supports {have}{portable}", code="arch-unsupported"
    )
