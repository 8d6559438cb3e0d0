"""Which text of an image the CPU device executes."""

from __future__ import annotations

from cujit.arch import Arch
from cujit.artifact import Artifact, Kind
from cujit.errors import LoadError
from cujit.formats.fatbin import read_fatbin

ARCH = Arch.parse("sm_90")
"""What the device passes for: PTX up to this architecture's is what compilers are asked for."""


def ptx_of(artifact: Artifact) -> tuple[str, str]:
    """Find the PTX that the CPU device executes of an image, and say which it is.

    Raises:
        LoadError: it has none.
    """
    if artifact.kind is Kind.PTX:
        return artifact.text, "PTX compiled for this processor"
    if artifact.kind is Kind.FATBIN:
        return _ptx_of_fatbin(artifact.data)
    raise LoadError(
        f"the CPU device executes PTX, not a {artifact.kind.value}",
        help="compile with to='ptx', or build a fatbin with a compute_… target",
    )


def _ptx_of_fatbin(data: bytes) -> tuple[str, str]:
    """Choose the PTX of the newest architecture that an sm_90 GPU would take, or else the oldest beyond it."""
    entries = [(e.arch, e) for e in read_fatbin(data).ptx_entries if e.arch is not None]
    if not entries:
        raise LoadError(
            "the CPU device executes PTX, and this fatbin has none",
            help="build it with a compute_… target among the targets",
        )
    fitting = [arch for arch, _ in entries if arch.runs_on(ARCH)]
    best = max(fitting) if fitting else min(arch for arch, _ in entries)
    payload = next(e for arch, e in entries if arch == best).payload()
    route = f"PTX {best} of the fatbin, compiled for this processor"
    return Artifact(Kind.PTX, payload).text, route
