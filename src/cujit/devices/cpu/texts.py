"""Which text of an image the CPU device executes."""

from __future__ import annotations

from collections.abc import Sequence

from cujit.arch import Arch
from cujit.artifact import Artifact, ImageKind
from cujit.errors import FormatError, LoadError
from cujit.errors.hints import Hint
from cujit.values.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from cujit.formats.fatbin import FatbinEntry

ARCH = Arch.parse("sm_90")
"""What the device passes for: PTX up to this architecture's is what compilers are asked for."""

_COMPILED = "compiled for this processor"


def ptx_of(artifact: Artifact) -> tuple[str, str]:
    """Return the PTX that the CPU device executes for an image, and a description of the PTX.

    Raises:
        LoadError: the image contains no PTX.
    """
    if artifact.kind is ImageKind.PTX:
        return artifact.text, f"PTX {_COMPILED}"
    if artifact.kind is ImageKind.FATBIN:
        return _ptx_of_fatbin(artifact.data)
    if artifact.kind is ImageKind.CUBIN:
        found = _recovered(artifact.data)
        if isinstance(found, FormatError):
            raise LoadError(f"the CPU device executes PTX, but {found.message}", help=found.help)
        return found, f"PTX recovered from the cubin, {_COMPILED}"
    raise LoadError(
        f"the CPU device executes PTX, not a {artifact.kind.value}",
        help=Hint(
            "compile with to='ptx', or build a fatbin with a compute_… target",
            shell="compile with --to ptx, or build a fatbin with a compute_… target",
        ),
    )


def _ptx_of_fatbin(data: bytes) -> tuple[str, str]:
    """Return the PTX of the newest architecture that an sm_90 GPU supports, otherwise of the oldest architecture after
    it.

    If the fatbin contains no PTX, the PTX of a cubin is chosen in the same way.
    """
    from cujit.formats.fatbin import read_fatbin  # start-up: PTX is loaded without it

    fatbin = read_fatbin(data)
    for arch, entry in _best_first(fatbin.ptx_entries):
        return Artifact(ImageKind.PTX, entry.payload()).text, f"PTX {arch} of the fatbin, {_COMPILED}"
    refused = ""
    for arch, entry in _best_first(fatbin.cubin_entries):
        found = _recovered(entry.payload())
        if isinstance(found, str):
            return found, f"PTX recovered from the cubin {arch} of the fatbin, {_COMPILED}"
        refused = refused or f": {found.message}"
    raise LoadError(
        f"the CPU device executes PTX, but this fatbin contains no PTX{refused}",
        help="add a compute_… target when you build it",
    )


def _best_first(entries: Sequence[FatbinEntry]) -> list[tuple[Arch, FatbinEntry]]:
    known = {e.arch: e for e in reversed(entries) if e.arch is not None}
    fitting = sorted((arch for arch in known if arch.runs_on(ARCH)), reverse=True)
    others = sorted(known.keys() - set(fitting))
    return [(arch, known[arch]) for arch in (*fitting, *others)]


def _recovered(cubin: bytes) -> str | FormatError:
    from cujit.formats.ptx.recovered import ptx_of_cubin  # start-up: PTX has no need of it

    try:
        return ptx_of_cubin(cubin)
    except FormatError as e:
        return e
