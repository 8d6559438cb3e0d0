"""Entries of a fatbin: images, their metadata, and their compression."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cujit.artifact import Artifact, ImageKind
from cujit.compiler.options.table import is_utf8
from cujit.errors import FormatError, OptionError, spell
from cujit.errors.hints import Hint
from cujit.values import dataclass

if TYPE_CHECKING:
    from cujit.formats.fatbin_entry import FatbinEntry

COMPRESSIONS = ("default", "none", "size", "speed", "balance", "concat")
"""How a fatbin is compressed; ``default`` as nvFatbin does by itself: PTX alone; ``concat`` all images as one.

Source: nvFatbin 13 user guide, ``-compress-mode``; 12.9 has only on and off.
"""

_USUAL = "balance"
"""The smallest for the time to make and to load it; measured on an H200 (docs/shipping.md, "Fatbin size")."""


@dataclass(frozen=True)
class Entry:
    """An image to bundle, with the metadata of its fatbin entry.

    Args:
        image: the Artifact.
        options: options for the tool that later compiles the PTX, LTO-IR, or Tile IR, such as ``-O1``.
        identifier: name that NVIDIA's tools show for the entry.

    Raises:
        OptionError: ``image`` is not an Artifact, or another argument contains text that a fatbin can't store.

    Example::

        image = cujit.bundle([cujit.Entry(ptx, options="-O1", identifier="axpy.cu"), cubin])
    """

    image: Artifact
    options: str = ""
    identifier: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.image, Artifact):
            raise OptionError(
                f"the image of an Entry must be an Artifact, not {type(self.image).__name__}",
                help="write Entry(Artifact.open(path)) or Entry(Artifact.of(data))",
            )
        for name in ("options", "identifier"):
            text = getattr(self, name)
            if not isinstance(text, str) or "\0" in text or not is_utf8(text):
                raise OptionError(f"the {name} of an Entry is {spell(text)}, expected a str without NUL characters")
        if not self.options:
            return
        if self.image.kind not in (ImageKind.PTX, ImageKind.LTOIR, ImageKind.TILEIR):
            raise OptionError(
                "an Entry can set options only for PTX, LTO-IR and Tile IR, which are compiled later, not for "
                f"{self.image.kind.value}",
                help=Hint(
                    "pass the options when you compile: cujit.compile(…, extra=[…])",
                    shell="pass the options when you compile: cujit compile -O extra=…",
                ),
            )
        if not self.options.lstrip().startswith("-"):
            raise OptionError(
                f"the options of an Entry are {spell(self.options)}, which is not a valid option string",
                help="options='-O1'",
                code="option-unknown",
            )

    @classmethod
    def all_of(cls, given: object) -> list[Entry]:
        """Return the entries of an Entry, an Artifact, the path of an image, or its bytes. A fatbin gives all its
        images.

        Raises:
            FormatError: the format of the image is unknown, or the fatbin can't be extracted.
            OptionError: the value has a different type.
        """
        from cujit.compiler.inputs.images import as_artifact  # start-up: brings the readers of images

        entry = given if isinstance(given, Entry) else cls(as_artifact(given))
        if entry.image.kind is not ImageKind.FATBIN:
            return [entry]
        from cujit.formats.fatbin import read_fatbin  # start-up: brings the readers of images

        return [cls._in(entry.image, held) for held in read_fatbin(entry.image.data)]

    @classmethod
    def _in(cls, fatbin: Artifact, held: FatbinEntry) -> Entry:
        name = f"{held} in {fatbin.name or 'a fatbin'}"
        try:
            kind = ImageKind(held.kind.name.lower())
        except ValueError:
            raise FormatError(f"cujit can't bundle {name}: this kind of image isn't supported") from None
        data = held.payload()
        image = Artifact(kind, data, held.arch, fatbin.names, fatbin.signatures, fatbin.log, name, fatbin.tool)
        return cls(image, held.options, held.identifier)


def check_compression(compress: str | bool | None) -> str:
    """Return the value of COMPRESSIONS for a user's argument.

    Raises:
        OptionError: the argument is neither one of them, nor a bool, nor None.
    """
    if compress is None or isinstance(compress, bool):
        return "none" if compress is False else _USUAL
    if not isinstance(compress, str) or compress not in COMPRESSIONS:
        raise OptionError(f"compress is {spell(compress)}, expected a bool or one of {', '.join(COMPRESSIONS)}")
    return compress
