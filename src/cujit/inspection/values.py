"""Contents of an image: an ``Inspection`` of images, and the kernels of each image.

Contents are read on first access, so that a library of thousands of images is listed from its headers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Protocol

from cujit.arch import Arch
from cujit.arch.support import Version
from cujit.artifact import ImageKind
from cujit.devices.name_table import NameTable, name_key, without_arguments
from cujit.errors import FormatError, NameNotFoundError, listed
from cujit.forks import cached_property
from cujit.formats.mangling import demangle, entity_name
from cujit.formats.ptx.uses import Need
from cujit.signature import Signature
from cujit.values import dataclass, field

Block = tuple[int, int, int]
_SHOWN_NAMES = 12


@dataclass(frozen=True)
class KernelInfo:
    """A kernel in an image. Unknown values are None, never 0.

    ``name`` is the lowered name. ``display`` is the requested name expression, otherwise the name in the source,
    otherwise the lowered name. ``registers`` and ``stack_bytes`` are per thread. ``shared_bytes`` is the static shared
    memory per block. ``reserved_shared_bytes`` is the additional shared memory that the system reserves.
    ``spill_store_bytes`` and ``spill_load_bytes`` count the kernel's own spill instructions, without those of called
    functions. The spill sizes come from the assembler's log (``verbose=True``). Without a log, the spill sizes are 0 if
    the kernel has no stack. ``constant_bytes`` maps each constant bank to its size. ``code_bytes`` is the size of the
    SASS, and ``parameter_bytes`` is the size of the parameters.

    ``max_block`` comes from ``__launch_bounds__``, and ``required_block`` comes from ``reqntid``. ``cluster`` and
    ``max_cluster_blocks`` are in blocks. ``max_registers`` is per thread. ``has_unbounded_stack`` is True if
    ``stack_bytes`` is None because of recursion. ``mbarriers`` is the number of barrier objects in shared memory.
    ``virtual_resources`` is a block's share of the 128 units of tensor memory on sm_100 and later.

    Example::

        kernel = cujit.inspect(cubin).kernel("axpy<float>")
        print(kernel.display, kernel.registers, kernel.shared_bytes, kernel.code_bytes)
    """

    name: str
    display: str = ""
    arch: Arch | None = None
    kind: ImageKind = ImageKind.CUBIN
    signature: Signature | None = None
    registers: int | None = None
    stack_bytes: int | None = None
    spill_store_bytes: int | None = None
    spill_load_bytes: int | None = None
    shared_bytes: int | None = None
    reserved_shared_bytes: int | None = None
    constant_bytes: Mapping[int, int] | None = field(default=None, hash=False)
    barriers: int | None = None
    code_bytes: int | None = None
    max_block: Block | None = None
    required_block: Block | None = None
    cluster: Block | None = None
    max_registers: int | None = None
    has_unbounded_stack: bool | None = None
    max_cluster_blocks: int | None = None
    mbarriers: int | None = None
    virtual_resources: int | None = None
    parameter_bytes: int | None = None

    def __post_init__(self) -> None:
        if not self.display:
            object.__setattr__(self, "display", self.name)

    @property
    def max_threads(self) -> int | None:
        """The number of threads per block that the source allows or requires, or None if unspecified."""
        block = self.required_block or self.max_block
        return math.prod(block) if block else None

    @property
    def spill_bytes(self) -> int | None:
        """The total bytes of spill stores and spill loads, or None if unknown."""
        if self.spill_store_bytes is None or self.spill_load_bytes is None:
            return None
        return self.spill_store_bytes + self.spill_load_bytes

    def is_called(self, name: str) -> bool:
        """Return whether ``name`` is the kernel's lowered name, its displayed name, or its name in the source.

        A name in the source can include parameter types, as in ``scale(int*)``.

        Args:
            name: name to compare with the names of the kernel.

        Example::

            assert cujit.inspect(cubin).kernels[0].is_called("axpy<float>")
        """
        if name in (self.name, self.display):
            return True
        wanted = name_key(name)
        spellings = (self.display, entity_name(self.name), demangle(self.name))
        return any(spelling is not None and name_key(spelling) == wanted for spelling in spellings)

    def is_instance_of(self, template: str) -> bool:
        """Return whether the kernel is an instance of a template, as ``axpy<float>`` is of ``axpy``.

        Args:
            template: name of the template.

        Example::

            assert cujit.inspect(cubin).kernels[0].is_instance_of("axpy")
        """
        entity = entity_name(self.name) or ""
        return "<" in entity and name_key(without_arguments(entity)) == name_key(template)

    def __str__(self) -> str:
        return f"{self.display} ({self.kind.value}{f' {self.arch}' if self.arch else ''})"


@dataclass(frozen=True)
class VariableInfo:
    """A ``__device__``, ``__constant__``, or ``__managed__`` variable. ``size`` is in bytes, or None
    if it is unknown.
    """

    name: str
    size: int | None
    space: str


@dataclass(frozen=True)
class Content:
    """What reading an image found. ``arch`` is what the image itself says; ``error`` is what kept it from being read.

    ``note`` says why there is nothing where nothing is wrong (an encrypted body, say). ``carries_ptx`` says that a
    cubin has the PTX that it was made of.
    """

    arch: Arch | None = None
    toolkit: Version | None = None
    abi: int | None = None
    is_relocatable: bool | None = None
    ptx_version: Version | None = None
    target: tuple[str, ...] = ()
    needs: tuple[Need, ...] = ()
    kernels: tuple[KernelInfo, ...] = ()
    functions: tuple[str, ...] = ()
    variables: tuple[VariableInfo, ...] = ()
    undefined: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    note: str = ""
    error: str = ""
    carries_ptx: bool = False


class ImageSource(Protocol):
    """The source of an image's bytes and contents."""

    def payload(self) -> bytes:
        """Return the uncompressed bytes of the image."""
        ...

    def content(self) -> Content:
        """Read the image. Damage becomes ``Content.error``."""
        ...


@dataclass(frozen=True, eq=False)
class ImageInfo:
    """One image: an entry of a fatbin, or a file that contains one image.

    ``index`` is the index of the image in the Inspection, from 0. ``container`` is the index of the fatbin in a host
    file or archive, or None outside a fatbin. ``size`` is the uncompressed size, and ``stored_bytes`` is the size in
    the file. ``compression`` is ``none``, ``lz4``, or ``zstd``. ``flags``, ``identifier``, and ``options`` come from
    the fatbin entry. The other properties read the content of the image at first use.

    Example::

        for image in cujit.inspect(fatbin).images:
            print(image.index, image.kind, image.arch, image.size, image.stored_bytes)
    """

    kind: ImageKind
    index: int
    size: int
    stored_bytes: int
    container: int | None = None
    identifier: str = ""
    options: str = ""
    compression: str = "none"
    flags: int = 0
    _arch: Arch | None = None
    _source: ImageSource = field(repr=False, kw_only=True)

    @cached_property
    def content(self) -> Content:
        """The contents of the image, read once."""
        return self._source.content()

    @property
    def is_read(self) -> bool:
        """Whether the content has been read."""
        return "content" in self.__dict__

    def payload(self) -> bytes:
        r"""Return the uncompressed bytes of the image.

        Raises:
            FormatError: the image can't be decompressed, or only NVIDIA's linker can read the image.

        Example::

            assert cujit.inspect(fatbin).images[0].payload()[:4] == b"\x7fELF"
        """
        return self._source.payload()

    def ptx(self) -> str:
        """Return the PTX of a PTX image, or the PTX in the line information of a cubin.

        The first line of recovered PTX states that the PTX was recovered. The recovered PTX has the original line
        numbers, but no comments.

        Raises:
            FormatError: the image is of a different kind, the cubin has no line information, or the recovered PTX
                doesn't match the SASS.

        Example::

            lined = cujit.compile(CODE, names=["axpy<float>"], to="cubin", arch="sm_90", lineinfo=True)
            assert ".entry" in cujit.inspect(lined).images[0].ptx()
        """
        if self.kind is ImageKind.PTX:
            return self.payload().rstrip(b"\0").decode("utf-8", "replace")
        if self.kind is ImageKind.CUBIN:
            from cujit.formats.ptx.recovered import ptx_of_cubin  # start-up: few ask

            return ptx_of_cubin(self.payload())
        raise FormatError(f"{self} contains no PTX")

    @property
    def carries_ptx(self) -> bool:
        """Whether the image is a cubin whose line information contains its PTX."""
        return self.content.carries_ptx

    @property
    def arch(self) -> Arch | None:
        """The architecture that the fatbin entry specifies, otherwise the architecture that the image specifies."""
        return self._arch or self.content.arch

    @property
    def ptx_version(self) -> Version | None:
        """The ISA version of the PTX."""
        return self.content.ptx_version

    @property
    def target(self) -> tuple[str, ...]:
        """The operands of the ``.target`` directive."""
        return self.content.target

    @property
    def needs(self) -> tuple[Need, ...]:
        """The constructs in the PTX, with the ISA version and architecture that each construct requires."""
        return self.content.needs

    @property
    def toolkit(self) -> Version | None:
        """The CUDA release of the compiler."""
        return self.content.toolkit

    @property
    def abi(self) -> int | None:
        """The ABI version of a cubin: 7 or 8."""
        return self.content.abi

    @property
    def is_relocatable(self) -> bool | None:
        """Whether a cubin must be linked before it can be loaded."""
        return self.content.is_relocatable

    @property
    def kernels(self) -> tuple[KernelInfo, ...]:
        """The kernels, in the order of the image."""
        return self.content.kernels

    @property
    def functions(self) -> tuple[str, ...]:
        """The device functions that have symbols."""
        return self.content.functions

    @property
    def variables(self) -> tuple[VariableInfo, ...]:
        """The variables in the module."""
        return self.content.variables

    @property
    def undefined(self) -> tuple[str, ...]:
        """The undefined symbols, which the linker must resolve."""
        return self.content.undefined

    @property
    def commands(self) -> tuple[str, ...]:
        """The command lines recorded by the assembler."""
        return self.content.commands

    @property
    def note(self) -> str:
        """The reason why an undamaged image has no details, or an empty string."""
        return self.content.note

    @property
    def error(self) -> str:
        """Description of the damage. Empty if the image isn't damaged."""
        return self.content.error

    def __str__(self) -> str:
        return f"{self.kind.value} {self._arch or ''}".rstrip()


@dataclass(frozen=True)
class Inspection:
    """Contents of an image, a file, or a loaded module. ``size`` is the size in bytes, and ``name`` states the source.

    Example::

        print(cujit.inspect(fatbin))
    """

    kind: ImageKind
    name: str
    size: int
    images: tuple[ImageInfo, ...] = field(repr=False)

    @cached_property
    def kernels(self) -> tuple[KernelInfo, ...]:
        """The kernels of every image, flat, in order."""
        return tuple(kernel for image in self.images for kernel in image.kernels)

    @property
    def arches(self) -> tuple[Arch, ...]:
        """The architectures of the images, in order, without duplicates."""
        return tuple(dict.fromkeys(image.arch for image in self.images if image.arch is not None))

    @property
    def with_ptx(self) -> tuple[ImageInfo, ...]:
        """The PTX images, and the cubins that contain PTX and have no corresponding PTX image."""
        containers = {image.container for image in self.images if image.kind is ImageKind.PTX}
        return tuple(
            image
            for image in self.images
            if image.kind is ImageKind.PTX
            or (image.kind is ImageKind.CUBIN and image.container not in containers and image.carries_ptx)
        )

    @property
    def errors(self) -> tuple[tuple[ImageInfo, str], ...]:
        """The damaged images and their errors."""
        return tuple((image, image.error) for image in self.images if image.error)

    def __iter__(self) -> Iterator[ImageInfo]:
        return iter(self.images)

    def __str__(self) -> str:
        lines = [f"{self.name or self.kind.value}: {self.kind.value}, {self.size:,} bytes"]
        for image in self.images[:_SHOWN_NAMES]:
            names = [kernel.display for kernel in image.kernels]
            lines.append(f"  {image}: {listed(names, _SHOWN_NAMES) or image.error or image.note or 'no kernel'}")
        rest = len(self.images) - _SHOWN_NAMES
        return "\n".join(lines + [f"  and {rest:,} more"] * (rest > 0))

    def __len__(self) -> int:
        return len(self.images)

    def kernel(self, name: str, arch: Arch | str | None = None) -> KernelInfo:
        """Find a kernel by its lowered name, its name expression, or its name in the source, as ``Module`` does.

        If several images contain the kernel, SASS takes precedence over PTX. Among these, the first image takes
        precedence.

        Args:
            name: lowered name, name expression, or name in the source.
            arch: architecture of the image.

        Raises:
            NameNotFoundError: no kernel or several kernels have this name. The message lists the names.
            ArchError: ``arch`` is malformed.

        Example::

            assert cujit.inspect(fatbin).kernel("axpy<float>", "sm_90").registers > 0
        """
        wanted = None if arch is None else Arch.parse(arch)
        there = [k for k in self.kernels if wanted is None or k.arch == wanted]
        place = self.name or "this image"
        if wanted is not None and not there:
            have = ", ".join(map(str, self.arches)) or "none"
            raise NameNotFoundError(
                f"{place} doesn't contain a kernel for {wanted}", help=f"choose one of these: {have}"
            )
        names = dict.fromkeys(k.name for k in there)
        lowered = NameTable({k.display: k.name for k in there}, names, place).find(name)
        return min((k for k in there if k.name == lowered), key=lambda k: k.kind is not ImageKind.CUBIN)
