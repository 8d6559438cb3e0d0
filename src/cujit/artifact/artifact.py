"""Artifact, the result and the input of every stage."""

from __future__ import annotations

import enum
import os
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from cujit.arch import Arch
from cujit.artifact import magic
from cujit.artifact.reading import BOM, path_of, read_file, shown_path
from cujit.artifact.writing import write_file
from cujit.errors import FormatError, OptionError, spell
from cujit.errors.hints import Hint
from cujit.signature import Signature
from cujit.values import dataclass, field
from cujit.values.typed import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pathlib import Path


class ImageKind(enum.Enum):
    """Format of the data in an Artifact.

    Example::

        assert ptx.kind is cujit.ImageKind.PTX and fatbin.kind is cujit.ImageKind.FATBIN
    """

    PTX = "ptx"
    CUBIN = "cubin"
    LTOIR = "ltoir"
    OPTIXIR = "optixir"
    """What ``optixModuleCreate`` of NVIDIA OptiX takes."""
    FATBIN = "fatbin"
    OBJECT = "object"
    """A host object, shared library or executable that holds fatbins."""
    LIBRARY = "library"
    """An archive (``.a``) of host objects."""
    NVVMIR = "nvvmir"
    """LLVM IR for NVVM, as text or bitcode."""
    TILEIR = "tileir"
    """CUDA Tile IR: bytecode for every architecture, of CUDA Tile C++ or cuTile Python."""
    TUNING = "tuning"
    """No image: what ``cujit.tune`` measured, as JSON, in a cache among images."""
    FILES = "files"
    """No image: the files of another compiler's cache, such as Triton's, in a cache among images."""
    OTHER = "other"
    """An entry of a fatbin of a kind that cujit does not know, or one whose header is damaged."""


_MAGIC: tuple[tuple[bytes, ImageKind], ...] = (
    (magic.FATBIN, ImageKind.FATBIN),
    (magic.LTOIR, ImageKind.LTOIR),
    (magic.TILEIR, ImageKind.TILEIR),
    (magic.ARCHIVE, ImageKind.LIBRARY),
    *((first, ImageKind.NVVMIR) for first in magic.BITCODE),
    (b'{"cujit tuning":', ImageKind.TUNING),
    (magic.FILES, ImageKind.FILES),
)
_EM_CUDA_WORD = magic.EM_CUDA.to_bytes(2, "little")
# None (what the CPU device keeps of a module has no code), Intel 80386, PowerPC 64, ARM, x86-64, AArch64, RISC-V.
# Source: gABI, "ELF Header", e_machine.
_HOSTS = (0, 3, 21, 40, 62, 183, 243)
_TEXT = (ImageKind.PTX, ImageKind.NVVMIR)
_FIRST_CHARACTERS = 2048


def kind_of(data: bytes) -> ImageKind:
    """Return the kind of an image, which its bytes alone determine. The file's extension doesn't matter.

    Raises:
        FormatError: there are no bytes, or their format is unknown.
    """
    if not data:
        raise FormatError("the image is empty", offset=0)
    if data.startswith(magic.ELF):
        return _kind_of_elf(data)
    for first, kind in _MAGIC:
        if data.startswith(first):
            return ImageKind.OPTIXIR if kind is ImageKind.LTOIR and _is_optix(data) else kind
    return _kind_of_text(data)


_TAGS_AT, _TAG_OPTIX, _TAG_END = 24, b"\x0f\0\1\0", b"\x63\0\0\0"


def _is_optix(data: bytes) -> bool:
    """Return whether data that begins like LTO-IR is OptiX IR. A tag in the header distinguishes them.

    Source: both from nvcc 13.0 and NVRTC 13.5, compared over architectures and options.
    """
    for at in range(_TAGS_AT, min(len(data), 256) - 3, 4):
        tag = data[at : at + 4]
        if tag in (_TAG_OPTIX, _TAG_END):
            return tag == _TAG_OPTIX
    return False


def _kind_of_elf(data: bytes) -> ImageKind:
    if len(data) < 64:
        raise FormatError("the ELF header is truncated", offset=len(data))
    machine = int.from_bytes(data[18:20], "big" if data[5] == 2 else "little")
    if machine == magic.EM_CUDA:
        return ImageKind.CUBIN
    if machine not in _HOSTS:
        raise FormatError(
            f"this is an ELF file for machine {machine}, which is neither a GPU nor a supported host", offset=18
        )
    return ImageKind.OBJECT


def _kind_of_text(data: bytes) -> ImageKind:
    try:
        text = data.rstrip(b"\0").decode("utf-8-sig")
    except UnicodeDecodeError as e:
        is_utf16 = data.startswith((b"\xff\xfe", b"\xfe\xff"))
        hint = " (it looks like UTF-16: save it as UTF-8)" if is_utf16 else ""
        raise FormatError(
            f"expected PTX, a cubin, LTO-IR, a fatbin, an object, a library, LLVM IR or Tile IR{hint}; the data begins "
            f"with {spell(data[:8])}…",
            offset=0,
        ) from e
    for line in _lines(text):
        word = line.strip()
        if word.startswith(".version"):
            return _whole(text, ImageKind.PTX)
        if word.startswith(
            ("target triple", "target datalayout", "source_filename", "; ModuleID", "define ", "declare ")
        ):
            return _whole(text, ImageKind.NVVMIR)
    raise FormatError(
        f"the text is neither PTX (it has no .version line) nor LLVM IR; it begins with {spell(text[:40])}",
        offset=0,
        help=Hint(
            "to compile CUDA C++, call cujit.compile instead of cujit.load",
            shell="to compile CUDA C++, run cujit compile",
        ),
    )


def _lines(text: str) -> Iterator[str]:
    """Yield the lines of a text. The first lines, which usually suffice, come before the rest of the text is split."""
    yield from text[:_FIRST_CHARACTERS].splitlines()[:-1]
    yield from text.splitlines()


def _whole(text: str, kind: ImageKind) -> ImageKind:
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise FormatError(f"line {line}: the text contains a NUL byte, and most tools stop reading at a NUL byte")
    return kind


def is_buffer(data: object) -> bool:
    """Return whether an object is bytes or supports the buffer protocol, as arrays do."""
    try:
        memoryview(data)  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


def image_bytes(data: object) -> bytes:
    """Return the bytes of an image, from bytes, a buffer, or text (PTX or LLVM IR).

    Raises:
        FormatError: the object has another type, or the text isn't valid Unicode.
    """
    if isinstance(data, bytes):
        return data
    if isinstance(data, str):
        try:
            return data.encode()
        except UnicodeEncodeError as e:
            raise FormatError(
                f"the text is not valid Unicode: there is an unpaired surrogate at index {e.start}"
            ) from e
    try:
        return memoryview(data).tobytes()  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):
        pass
    hint = "pass the bytes of the image"
    if isinstance(data, Artifact):
        hint = "pass artifact.data"
    elif isinstance(data, os.PathLike):
        hint = "Artifact.open(path) reads a file"
    raise FormatError(f"expected an image as bytes or text, not {type(data).__name__}", help=hint)


class ArtifactOrigin(Protocol):
    """Where an Artifact came from, such as ``cujit.cache.Provenance``."""

    @property
    def outcome(self) -> enum.Enum:
        """Whether the image came from memory or a file, or was compiled now."""

    @property
    def is_hit(self) -> bool:
        """Whether the image came from the cache."""

    @property
    def reason(self) -> str:
        """Why no cache contains the image, or empty if a cache contains it."""

    @property
    def make_ms(self) -> float:
        """How long it took to compile the image, now or earlier, in milliseconds."""

    def why(self) -> object | None:
        """Return which inputs differ from those of the nearest cache entry after a miss, or None without one."""


@dataclass(frozen=True, repr=False)
class Artifact:
    """An image and its metadata. An Artifact never changes.

    ``names`` maps each requested name expression (``axpy<float>``) to its lowered name. ``signatures`` maps lowered
    names to kernel signatures, if the build provides them. ``arch`` is the architecture, or None for a fatbin, which
    can contain several architectures. ``log`` contains the output of the tools, and ``name`` identifies the source of
    the image. ``tool`` is the name and version of the tool that created the image. ``provenance`` states whether the
    image came from the cache. ``provenance`` is None for an image that this process didn't compile, link, or bundle.
    ``places`` maps directories that are recorded in line tables (``/cujit-source/src``) to directories on this machine.
    Comparisons of Artifacts ignore ``provenance`` and ``places``.

    Example::

        image = cujit.Artifact.of(ptx.data, name="axpy.ptx")
        assert image.kind is cujit.ImageKind.PTX
    """

    kind: ImageKind
    data: bytes = field(repr=False)
    arch: Arch | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    signatures: Mapping[str, Signature] = field(default_factory=dict)
    log: str = ""
    name: str = ""
    tool: str = ""
    provenance: ArtifactOrigin | None = field(default=None, compare=False, repr=False)
    places: tuple[tuple[str, str], ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.kind, ImageKind):
            raise OptionError(
                f"the kind of an Artifact must be an ImageKind, not {type(self.kind).__name__} {spell(self.kind)}",
                help="Artifact.of(data) detects the kind from the content",
            )
        if not isinstance(self.data, bytes):
            raise OptionError(
                f"the data of an Artifact must be bytes, not {type(self.data).__name__}",
                help="Artifact.of(data) also accepts text and buffers",
            )
        if self.arch is not None and not isinstance(self.arch, Arch):
            raise OptionError(
                f"the arch of an Artifact must be an Arch, not {spell(self.arch)}", help="Arch.parse('sm_90')"
            )
        for what, value in (("names", self.names), ("signatures", self.signatures)):
            if not isinstance(value, Mapping):
                raise OptionError(
                    f"the {what} of an Artifact must be a mapping, not {spell(value)}",
                    help="remove the names and signatures",
                )
        object.__setattr__(self, "names", MappingProxyType(dict(self.names)))
        object.__setattr__(self, "signatures", MappingProxyType(dict(self.signatures)))

    @classmethod
    def of(cls, data: bytes | bytearray | memoryview | str, *, name: str = "") -> Artifact:
        """Wrap an image in an Artifact. cujit detects the kind of image from its content.

        Args:
            data: the image, as bytes or text.
            name: name of the image in messages.

        Raises:
            FormatError: the value is neither bytes nor text, or its format is unknown.

        Example::

            assert cujit.Artifact.of(cubin.data).kind is cujit.ImageKind.CUBIN
        """
        image = data if type(data) is bytes else image_bytes(data)
        is_cubin = image[:7] == magic.ELF_64 and image[magic.EM_CUDA_AT] == _EM_CUDA_WORD and len(image) >= 64
        kind = ImageKind.CUBIN if is_cubin else kind_of(image)
        return unchecked(_BARE, kind=kind, data=image.removeprefix(BOM) if kind in _TEXT else image, name=name)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Artifact:
        """Read an image from a file. cujit detects the kind of image from its content, not from the file name.

        Args:
            path: path of the file.

        Raises:
            FormatError: the file is empty, or its format is unknown.
            OptionError: ``path`` is not a path.
            FileError: the file can't be read.

        Example::

            fatbin.save("axpy.fatbin")
            assert cujit.Artifact.open("axpy.fatbin").data == fatbin.data
        """
        data = read_file(path)
        name = shown_path(path_of(path))
        try:
            return cls.of(data, name=name)
        except FormatError as e:
            raise FormatError(f"{name}: {e.message}", help=e.help) from e

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the image to a file that NVIDIA's tools can read, and return the path.

        Args:
            path: path of the file.

        Raises:
            OptionError: ``path`` is not a path.
            FileError: the file can't be written. ``filename`` is its path.

        Example::

            path = cubin.save("axpy.cubin")
        """
        return write_file(path, self.data)

    def to_python(self) -> str:
        """Return the source of a Python module that contains the image and a function ``load(device=None)``.

        Example::

            Path("axpy_image.py").write_text(fatbin.to_python())
        """
        from cujit.artifact.embedding import python_module  # start-up: few write one

        return python_module(self)

    def to_c(self, name: str = "image") -> str:
        """Return a C99 and C++ header that contains the image, its size, and the lowered names of its kernels.

        The header declares ``name_image``, ``NAME_SIZE``, ``name_kernel_…``, and ``name_kernels``.

        Args:
            name: prefix of the declared names.

        Raises:
            OptionError: ``name`` is not a C identifier.

        Example::

            Path("axpy.h").write_text(fatbin.to_c("axpy"))
        """
        from cujit.artifact.embedding import c_header  # start-up: few write one

        return c_header(self, name)

    @property
    def text(self) -> str:
        """The image as text, for PTX and LLVM IR.

        Raises:
            FormatError: the image is binary.
        """
        if self.kind not in _TEXT:
            raise FormatError(f"{self.kind.value} is a binary format, not text")
        try:
            return self.data.rstrip(b"\0").decode()
        except UnicodeDecodeError as e:
            raise FormatError(f"this {self.kind.value} image is not valid text", offset=e.start) from e

    def __hash__(self) -> int:
        return hash((self.kind, self.arch, self.data))

    def __reduce__(self) -> tuple[object, ...]:
        # A mapping proxy goes neither into a pickle nor into a deep copy.
        known = (dict(self.names), dict(self.signatures), self.log, self.name, self.tool)
        return type(self), (self.kind, self.data, self.arch, *known, self.provenance, self.places)

    def __len__(self) -> int:
        return len(self.data)

    def __repr__(self) -> str:
        arch = f" {self.arch}" if self.arch else ""
        names = f" names={list(self.names)}" if self.names else ""
        return f"<Artifact {self.kind.value}{arch} {len(self.data)} bytes{names}>"


_NONE: Mapping[str, Any] = MappingProxyType({})
_BARE = {"arch": None, "names": _NONE, "signatures": _NONE, "log": "", "tool": "", "provenance": None, "places": ()}
"""The fields of an image of which nothing but its bytes is known."""


def place_of(file: str, places: Iterable[tuple[str, str]]) -> str:
    """Return the path on this machine of a file in a line table, or its name if no place contains such a file."""
    paths = [path + file.removeprefix(name) for name, path in places if file.startswith(f"{name}/")]
    return next(filter(os.path.isfile, paths), paths[0] if paths else file)


def unchecked(fields: Mapping[str, object], **more: object) -> Artifact:
    """Create an Artifact from fields that were already checked: the fields of a record or of another Artifact.

    This takes a tenth of the time of ``Artifact(…)``, and every cache hit creates one.
    """
    artifact = object.__new__(Artifact)
    artifact.__dict__.update(fields, **more)
    return artifact
