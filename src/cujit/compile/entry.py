"""What a fatbin is bundled of: an image, and what is noted beside it."""

from __future__ import annotations

from dataclasses import dataclass

from cujit.artifact import Artifact
from cujit.compile.option_table import is_utf8
from cujit.errors import OptionError

__all__ = ["Entry"]


@dataclass(frozen=True)
class Entry:
    """An image to bundle, with what the packer notes beside it.

    ``options`` go to the tool that compiles PTX or LTO-IR later (``-O1``); ``identifier`` is the name that
    NVIDIA's tools show.

    Raises:
        OptionError: ``image`` is no Artifact, or one of the others is no text that a fatbin can hold.
    """

    image: Artifact
    options: str = ""
    identifier: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.image, Artifact):
            raise OptionError(
                f"the image of an Entry is an Artifact, not {type(self.image).__name__}",
                help="Entry(Artifact.open(path)), or Entry(Artifact.of(data))",
            )
        for name in ("options", "identifier"):
            text = getattr(self, name)
            if not isinstance(text, str) or "\0" in text or not is_utf8(text):
                raise OptionError(f"{name} of an Entry is {text!r}; it takes str without a NUL")

    @classmethod
    def of(cls, given: object) -> Entry:
        """Take an Entry, an Artifact, the path of an image, or its bytes.

        Raises:
            FormatError: it is no image that cujit knows.
            OptionError: it is none of these.
        """
        from cujit.compile.images import as_artifact

        return given if isinstance(given, Entry) else cls(as_artifact(given))
