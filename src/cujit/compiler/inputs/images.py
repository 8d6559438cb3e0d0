"""Facts about an image that a linker or packer requires."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from cujit.arch import Arch
from cujit.artifact import Artifact, ImageKind
from cujit.artifact.artifact import is_buffer
from cujit.errors import FormatError, LinkError, OptionError
from cujit.errors.hints import Hint
from cujit.forks import cached_property
from cujit.formats.container import read_container
from cujit.formats.cubin import Cubin, read_cubin
from cujit.formats.elf import ElfSymbol, read_elf
from cujit.formats.fatbin import EntryKind, Fatbin, FatbinEntry, find_fatbins
from cujit.formats.ltoir import read_ltoir
from cujit.formats.mangling import spelled
from cujit.formats.ptx.heads import entry_signatures
from cujit.signature import Signature
from cujit.values import dataclass

T = TypeVar("T")

_CONTAINERS = (ImageKind.FATBIN, ImageKind.OBJECT, ImageKind.LIBRARY)
_TARGET = re.compile(rb"^\s*\.target\s+(sm_\w+)", re.MULTILINE)
_PTX_DEFINED = re.compile(
    rb"^\s*\.visible\s+\.(?:func|entry)\s+(?:\([^)]*\)\s*)?([\w$]+)[^;{]*\{"
    rb"|^\s*\.visible\s+\.(?:global|const)\b[^;={]*?([\w$]+)(?:\[[^\]]*\])*\s*(?:=|;)",
    re.MULTILINE,
)


def as_artifact(given: object) -> Artifact:
    """Return the Artifact of an Artifact, the path of an image, or its bytes.

    Raises:
        FormatError: the format of the image is unknown.
        OptionError: the value has another type.
        FileError: the file can't be read.
    """
    if isinstance(given, Artifact):
        return given
    if is_buffer(given):
        return Artifact.of(given)  # type: ignore[arg-type]
    if isinstance(given, os.PathLike) or (isinstance(given, str) and given and "\n" not in given):
        return Artifact.open(given)
    if isinstance(given, str):
        return Artifact.of(given)
    raise OptionError(f"expected an image as an Artifact, a path or bytes, not {type(given).__name__}")


@dataclass(frozen=True)
class InputImage:
    """An Artifact among the inputs of one link; ``index`` counts from 0 and makes its name unique."""

    artifact: Artifact
    index: int

    @classmethod
    def of(cls, artifact: Artifact, index: int) -> InputImage:
        """Create the input of a link.

        Raises:
            LinkError: device code of this kind can't be linked.
        """
        if artifact.kind is ImageKind.NVVMIR:
            raise LinkError(
                f"input {index + 1} is LLVM IR, which must be compiled before linking",
                help=Hint("compile the input with to='ltoir'", shell="compile the input with --to ltoir"),
                code="link-input",
            )
        if artifact.kind is ImageKind.OPTIXIR:
            raise LinkError(
                f"input {index + 1} is OptiX IR, which only optixModuleCreate compiles and links",
                help=Hint("compile the input with to='ltoir'", shell="compile the input with --to ltoir"),
                code="link-input",
            )
        if artifact.kind is ImageKind.TILEIR:
            raise not_linked(index)
        if artifact.kind is ImageKind.TUNING:
            raise LinkError(f"input {index + 1} is a record from cujit.tune, not an image", code="link-input")
        if artifact.kind is ImageKind.FILES:
            raise LinkError(
                f"input {index + 1} contains files from another compiler's cache, not an image", code="link-input"
            )
        return cls(artifact, index)

    @classmethod
    def all_of(cls, artifacts: Sequence[Artifact]) -> list[InputImage]:
        """Create the inputs of one link.

        Raises:
            LinkError: as ``of``.
        """
        return [cls.of(artifact, index) for index, artifact in enumerate(artifacts)]

    @property
    def name(self) -> str:
        """The name in logs, such as ``2:axpy.cu``."""
        return f"{self.index + 1}:{os.path.basename(self.artifact.name) or self.artifact.kind.value}"

    @cached_property
    def cubin(self) -> Cubin:
        """The image read as a cubin."""
        return self._read(read_cubin)

    @cached_property
    def arch(self) -> Arch | None:
        """The architecture of the image, or None if it contains several or none is known."""
        artifact = self.artifact
        if artifact.arch is not None:
            return artifact.arch
        if artifact.kind is ImageKind.CUBIN:
            return self.cubin.arch
        if artifact.kind is ImageKind.PTX:
            match = _TARGET.search(artifact.data)
            return Arch.parse(match[1].decode()).virtual if match else None
        return self._read(read_ltoir).arch if artifact.kind is ImageKind.LTOIR else None

    @cached_property
    def kernels(self) -> frozenset[str] | None:
        """The lowered names of the kernels of a linked cubin or of PTX, or None for an unlinked image."""
        if self.artifact.kind is ImageKind.PTX:
            return frozenset(self._read(entry_signatures))
        if self.artifact.kind is not ImageKind.CUBIN or self.cubin.is_relocatable:
            return None
        return frozenset(kernels_of(self.cubin))

    @cached_property
    def fatbins(self) -> tuple[Fatbin, ...]:
        """The fatbins in the image: the image itself, or those of a host object or archive."""
        if self.artifact.kind in _CONTAINERS:
            return self._read(find_fatbins)
        return ()

    def _read(self, reader: Callable[[bytes], T]) -> T:
        """Read the image. Errors contain its name.

        Raises:
            FormatError: the image is damaged.
        """
        try:
            return reader(self.artifact.data)
        except FormatError as e:
            raise FormatError(f"{self.name}: {e.message}", help=e.help) from e

    @property
    def has_ltoir(self) -> bool:
        """Whether the linker needs ``-lto`` for it."""
        entries = (e for fatbin in self.fatbins for e in fatbin.entries)
        return self.artifact.kind is ImageKind.LTOIR or any(e.kind is EntryKind.LTOIR for e in entries)

    def check(self, target: Arch) -> None:
        """Refuse an image that nvJitLink would ignore or reject with a less clear error.

        Raises:
            LinkError: the image has no code that can be linked for ``target``.
        """
        if self.artifact.kind in _CONTAINERS:
            self._check_fatbins(target)
            return
        if self.arch is not None and not self.arch.runs_on(target):
            raise LinkError(
                f"{self.name} is for {self.arch} and can't be linked for {target}",
                help=f"compile it for {target}, or link for {self.arch.real}",
                code="link-input",
            )
        if self.artifact.kind is ImageKind.CUBIN and not self.cubin.is_relocatable:
            raise LinkError(
                f"{self.name} is an executable cubin, and the linker would omit its code",
                help=Hint(
                    "compile it with rdc=True, to='ltoir' or to='ptx'",
                    shell="compile it with -O rdc, or --to ltoir, or --to ptx",
                ),
                code="link-input",
            )

    def _check_fatbins(self, target: Arch) -> None:
        if any(_linkable(entry, target) for fatbin in self.fatbins for entry in fatbin.entries):
            return
        held = ", ".join(str(e) for fatbin in self.fatbins for e in fatbin.entries) or "nothing"
        raise LinkError(
            f"{self.name} contains no relocatable code for {target}; it contains {held}",
            help=Hint(
                "the linker accepts PTX, LTO-IR, and cubins compiled with rdc=True",
                shell="the linker accepts PTX, LTO-IR, and cubins compiled with -O rdc",
            ),
            code="link-input",
        )

    def defined(self, target: Arch) -> frozenset[str]:
        """The symbols that only one image may define, as far as the formats show."""
        if self.artifact.kind is ImageKind.CUBIN:
            return self._read(_symbols_of_cubin)
        if self.artifact.kind is ImageKind.PTX:
            return _symbols_of_ptx(self.artifact.data)
        return frozenset[str]().union(*(_symbols_of_fatbin(fatbin, target) for fatbin in self.fatbins))


def not_linked(index: int) -> LinkError:
    """Make the error that an input of a link is Tile IR."""
    return LinkError(
        f"input {index + 1} is Tile IR, which must be compiled for an architecture and can't be linked",
        help=Hint(
            "compile it to a cubin: cujit.compile(image, arch='sm_…')",
            shell="compile it to a cubin: cujit compile FILE --arch sm_…",
        ),
        code="link-input",
    )


def _linkable(entry: FatbinEntry, target: Arch) -> bool:
    if entry.arch is None or not entry.arch.runs_on(target):
        return False
    if entry.kind is EntryKind.CUBIN:
        return read_cubin(entry.payload()).is_relocatable
    return entry.kind in (EntryKind.PTX, EntryKind.LTOIR)


def _symbols_of_fatbin(fatbin: Fatbin, target: Arch) -> frozenset[str]:
    """Return the symbols of the entry that the linker uses: SASS before PTX, and the highest architecture."""
    entries = [e for e in fatbin.entries if e.kind is not EntryKind.LTOIR and _linkable(e, target)]
    if not entries:
        return frozenset()
    best = max(entries, key=lambda e: (e.kind is EntryKind.CUBIN, e.arch))
    return (_symbols_of_cubin if best.kind is EntryKind.CUBIN else _symbols_of_ptx)(best.payload())


def kernels_of(cubin: Cubin) -> list[str]:
    """Return the names of a cubin's kernels. A container of the emulator may contain only PTX."""
    return [*entry_signatures(cubin.ptx)] if cubin.ptx else [kernel.name for kernel in cubin.kernels]


def _symbols_of_cubin(cubin: bytes) -> frozenset[str]:
    """Functions and variables of global binding; templates and inline functions are weak and may repeat."""
    held = read_container(cubin)
    if held is not None:
        return _symbols_of_cubin(held.cubin) if held.cubin else _symbols_of_ptx(held.ptx)
    return frozenset(
        s.name
        for s in read_elf(cubin).symbols()
        if s.binding == ElfSymbol.GLOBAL and s.section and s.type in (ElfSymbol.OBJECT, ElfSymbol.FUNCTION)
    )


def _symbols_of_ptx(text: bytes) -> frozenset[str]:
    return frozenset((a or b).decode() for a, b in _PTX_DEFINED.findall(text))


def check_one_definition(images: Sequence[InputImage], target: Arch) -> None:
    """Refuse a symbol that two images define.

    nvJitLink 13.5 accepts cubins and PTX with such a symbol silently, and the process may crash later (measured). It
    rejects LTO-IR itself.

    Raises:
        LinkError: a symbol is defined twice. The message names the symbol and both images.
    """
    first: dict[str, InputImage] = {}
    for image in images:
        for symbol in sorted(image.defined(target)):
            if symbol in first:
                raise LinkError(
                    f"{first[symbol].name} and {image.name} both define {spelled(symbol)}",
                    help="declare one of them static or inline, or remove one image",
                    code="duplicate-symbol",
                )
            first[symbol] = image


def named(names: Mapping[str, str], kernels: Iterable[str]) -> dict[str, str]:
    """Add unnamed kernels to names, under their lowered names."""
    known = set(names.values())
    return {**names, **{kernel: kernel for kernel in kernels if kernel not in known}}


def merged(artifacts: Sequence[Artifact]) -> tuple[Mapping[str, str], Mapping[str, Signature]]:
    """Merge the names and signatures of the images. The first image with a name takes precedence."""
    names: dict[str, str] = {}
    signatures: dict[str, Signature] = {}
    for artifact in reversed(artifacts):
        names |= artifact.names
        signatures |= artifact.signatures
    return names, signatures
