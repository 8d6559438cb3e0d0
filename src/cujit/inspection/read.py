"""``inspect``: one value of whatever holds device code, read from its bytes alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cujit.arch import Arch
from cujit.artifact import Artifact, ImageKind
from cujit.artifact.opening import naming, open_image
from cujit.errors import FormatError
from cujit.forks import cached_property
from cujit.formats.fatbin import EntryKind, FatbinEntry, FatbinFlag, find_fatbins
from cujit.formats.ptx.heads import entry_signatures
from cujit.formats.salvage import Damaged, salvage
from cujit.inspection.content import BuildFacts, read_content
from cujit.inspection.values import Content, ImageInfo, Inspection
from cujit.signature import Signature
from cujit.values import dataclass, field

_SINGLE = (ImageKind.PTX, ImageKind.CUBIN, ImageKind.LTOIR, ImageKind.OPTIXIR, ImageKind.NVVMIR, ImageKind.TILEIR)


def inspect(anything: object) -> Inspection:
    """Return the contents of an image without loading it. This function needs neither a driver nor a GPU.

    For an Artifact, the result includes details from its build: name expressions, C++ types, and spills. cujit reads
    the images of fatbins and host files at first use. A damaged image has its ``error`` set. The other images stay
    readable.

    Args:
        anything: an Artifact, a loaded Module, the bytes of an image, its text (a multi-line str), or the path of a
            file. The file can be PTX, LLVM IR, a cubin, LTO-IR, a fatbin, a host object, a library, an executable, or
            an archive.

    Raises:
        FormatError: the image can't be read, or its format is unknown.
        FileError: the file can't be read.
        OptionError: the value is not a file name.
        ArgumentError: the value has a different type.

    Example::

        for kernel in cujit.inspect(cubin).kernels:
            print(kernel.name, kernel.registers)
    """
    artifact = open_image(anything, "inspect")
    facts = BuildFacts.by(artifact)
    with naming(artifact):
        images = _alone(artifact, facts) if artifact.kind in _SINGLE else _contained(artifact.data, facts)
    return Inspection(artifact.kind, artifact.name, len(artifact.data), images)


# -- an image by itself -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Bare:
    """A file, or bytes, that is one image; damage is an error."""

    kind: ImageKind
    data: bytes = field(repr=False)
    arch: Arch | None
    facts: BuildFacts = field(repr=False)

    def payload(self) -> bytes:
        return self.data

    def content(self) -> Content:
        return read_content(self.kind, self.data, self.facts, self.arch, {})


def _alone(artifact: Artifact, facts: BuildFacts) -> tuple[ImageInfo, ...]:
    kind, size = artifact.kind, len(artifact.data)
    image = ImageInfo(kind, 0, size, size, _source=_Bare(kind, artifact.data, artifact.arch, facts))
    _ = image.content  # damage shows here and not at first use
    return (image,)


# -- images in containers ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Packed:
    """An entry of a fatbin; ``ptx`` are the PTX entries of the same fatbin."""

    kind: ImageKind
    entry: FatbinEntry
    facts: BuildFacts = field(repr=False)
    ptx: tuple[_Packed, ...] = field(default=(), repr=False)

    def payload(self) -> bytes:
        return self.entry.payload()

    def content(self) -> Content:
        return self._content

    @cached_property
    def _content(self) -> Content:
        if self.entry.flags & FatbinFlag.SCRAMBLED:
            return Content(note="only nvJitLink can read compressed LTO-IR")
        if self.kind is ImageKind.OTHER:
            return Content(note=f"the entry has the unknown kind {self.entry.code:#x}")
        try:
            return read_content(self.kind, self.payload(), self.facts, self.entry.arch, self._of_ptx())
        except FormatError as e:
            return Content(error=e.message)

    def _of_ptx(self) -> dict[str, Signature]:
        found: dict[str, Signature] = {}
        for packed in reversed(self.ptx):
            found.update(packed.signatures)
        return found

    @cached_property
    def signatures(self) -> dict[str, Signature]:
        """The signatures in PTX. Signatures of the build apply to SASS separately."""
        try:
            return entry_signatures(self.payload())
        except FormatError:
            return {}


@dataclass(frozen=True)
class _Lost:
    """An entry that cannot be read at all."""

    damage: Damaged

    def payload(self) -> bytes:
        raise FormatError(self.damage.why, offset=self.damage.offset)

    def content(self) -> Content:
        return Content(error=self.damage.why)


def _contained(data: bytes, facts: BuildFacts) -> tuple[ImageInfo, ...]:
    images: list[ImageInfo] = []
    for container, entries in enumerate(_containers(data)):
        images += _images(entries, container, len(images), facts)
    return tuple(images)


def _containers(data: bytes) -> Sequence[Sequence[FatbinEntry | Damaged]]:
    """Return the entries of every fatbin, or the readable ones of a damaged file.

    Raises:
        FormatError: nothing is readable.
    """
    try:
        return [fatbin.entries for fatbin in find_fatbins(data)]
    except FormatError:
        found = salvage(data)
        if not any(isinstance(piece, FatbinEntry) for pieces in found for piece in pieces):
            raise
        return found


def _images(
    entries: Sequence[FatbinEntry | Damaged], container: int, first: int, facts: BuildFacts
) -> Iterator[ImageInfo]:
    ptx = [
        _Packed(ImageKind.PTX, entry, facts) if isinstance(entry, FatbinEntry) and entry.kind is EntryKind.PTX else None
        for entry in entries
    ]
    ptx_texts = tuple(filter(None, ptx))
    for index, (entry, packed) in enumerate(zip(entries, ptx, strict=True), first):
        if isinstance(entry, Damaged):
            lost = ImageInfo(ImageKind.OTHER, index, entry.size, entry.size, container, _source=_Lost(entry))
            _ = lost.content  # it is known to be damaged from the start
            yield lost
            continue
        kind = ImageKind[entry.kind.name]
        yield ImageInfo(
            kind,
            index,
            entry.size,
            entry.stored_bytes,
            container,
            entry.identifier,
            entry.options,
            entry.compression.value,
            entry.flags,
            entry.arch,
            _source=packed or _Packed(kind, entry, facts, ptx_texts),
        )
