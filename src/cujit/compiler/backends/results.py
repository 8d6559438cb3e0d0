"""Compare the output of a tool with the request, because an argument of ``extra`` may have changed it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cujit.arch import Arch
from cujit.artifact import Artifact, ImageKind, kind_of
from cujit.compiler.inputs.images import InputImage
from cujit.errors import FormatError, OptionError, ToolError, spell


def require_result(artifact: Artifact, extra: Sequence[str], wanted: Iterable[str] = ()) -> Artifact:
    """Return the artifact if its image has the declared kind, architecture, and names.

    Args:
        artifact: output of the tool, with the requested metadata.
        extra: arguments from outside the option table. Without them, the architecture is as requested.
        wanted: lowered names that the image must contain.

    Raises:
        OptionError: an ``extra`` argument changed the result.
        ToolError: the tool itself returned something else.
    """
    found = _difference(artifact, bool(extra), wanted)
    if not found:
        return artifact
    requested = f"{artifact.kind.value} for {artifact.arch}" if artifact.arch else artifact.kind.value
    message = f"cujit requested {requested} of {artifact.name} from {artifact.tool}, but got {found}"
    if not extra:
        raise ToolError(message, tool=artifact.tool, log=artifact.log)
    raise OptionError(
        f"{message}: extra={spell(tuple(extra))} changes the kind of result",
        help="remove the argument, and set arch= and to= to choose the architecture and the kind of image",
        code="option-rejected",
    )


def _difference(artifact: Artifact, may_differ: bool, wanted: Iterable[str]) -> str:
    """Describe what the image is instead, or return an empty string if it matches the artifact."""
    if not artifact.data.rstrip(b"\0"):
        return "an empty image"
    try:
        kind = kind_of(artifact.data)
        if kind is not artifact.kind:
            return f"{kind.value}"
        arch = (
            InputImage(Artifact(kind, artifact.data), 0).arch if may_differ and kind is not ImageKind.FATBIN else None
        )
    except FormatError as e:
        return f"a damaged image ({e.message})"
    if arch is not None and artifact.arch is not None and not _is_same(arch, artifact.arch, kind):
        return f"{kind.value} for {arch}"
    # The body of LTO-IR is compressed; a fatbin's images were compared when each was made.
    readable = kind in (ImageKind.PTX, ImageKind.CUBIN)
    absent = [name for name in wanted if readable and name.encode() not in artifact.data]
    return f"an image without {', '.join(absent)}" if absent else ""


def _is_same(found: Arch, requested: Arch, kind: ImageKind) -> bool:
    """Compare architectures; the header of LTO-IR does not record the suffix ``f``."""
    suffix = requested.suffix.replace("f", "") if kind is ImageKind.LTOIR else requested.suffix
    return (found.number, found.suffix) == (requested.number, suffix)
