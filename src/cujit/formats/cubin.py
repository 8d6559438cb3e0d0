"""Cubins: their kernels, and the parameters and resource usage of each kernel.

Source of every layout here: cubins of CUDA 12.0 to 13.5 for sm_75 to sm_121, compared with the output of NVIDIA's
tools. Two ABIs are in use: 7 (CUDA 12 up to sm_90) and 8 (sm_100 and later, and all of CUDA 13).
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Iterable, Mapping

from cujit.arch import Arch, ArchKind
from cujit.arch.support import Version
from cujit.artifact import image_bytes, magic
from cujit.errors import ArchError, FormatError, NameNotFoundError, spell
from cujit.formats.container import Container, is_container, read_container
from cujit.formats.cubin_info import (
    Attribute,
    InfoRecord,
    KernelParameter,
    parameter_of,
    read_records,
    symbol_values,
)
from cujit.formats.elf import Elf, ElfSymbol, Note, Section, read_elf
from cujit.signature import Parameter, ParameterClass, Signature
from cujit.values import dataclass, field, replace

PTX_SECTION = ".nv_debug_ptx_txt"
"""Where line information keeps the PTX that a cubin was made of; a number follows in what was compiled to be linked."""

_MACHINE = magic.EM_CUDA
_RELOCATABLE, _EXECUTABLE = 1, 2
_ABI_8 = 8
_KERNEL = 0x10  # of st_other
_MANAGED = 0x4
_SHARED = 0x40  # in what is to be linked
_CUDA_OBJECT = 13  # the symbol type of variables in what is to be linked
_RESERVED_SHARED_BYTES = 1024  # per block, from sm_90 on, inside of the section's size
_RESERVED_SHARED_SINCE = 90
_UNKNOWN_STACK = 0xFFFFFFFF
_NO_REGISTER_LIMIT = 255
_RELEASE = re.compile(rb"release ([0-9]{1,3})\.([0-9]{1,3})")

Block = tuple[int, int, int]


class MemorySpace(enum.Enum):
    """Where a variable lives."""

    GLOBAL = "global"
    CONSTANT = "constant"
    MANAGED = "managed"


@dataclass(frozen=True)
class CubinVariable:
    """A ``__device__``, ``__constant__`` or ``__managed__`` variable; ``size`` in bytes."""

    name: str
    size: int
    space: MemorySpace


@dataclass(frozen=True)
class CubinKernel:
    """One kernel. A number is None if the image doesn't record it.

    ``shared_bytes`` is the static shared memory of the source, and ``reserved_shared_bytes`` is the additional part of
    the system. ``stack_bytes`` is per thread and includes all calls. In a relocatable cubin, it is only the kernel's
    frame. ``constant_bytes`` maps each constant bank to its size, including the banks of the module. ``max_block`` is
    from ``__launch_bounds__``, and ``required_block`` is from ``reqntid``. The minimum number of blocks per SM is not
    recorded, only the resulting ``max_registers``. A parameter is POINTER if the image records this, otherwise UNKNOWN.
    The offsets of parameters are the offsets where the code reads them. ``parameter_bytes`` is the size of the
    parameters in constant bank 0. ``has_unbounded_stack`` distinguishes an unknown stack size (recursion) from a size
    that is not recorded. Toolkits before 13.4 record 0 for recursion. ``mbarriers`` counts the barrier objects in
    shared memory that the code initializes, and ``barriers`` counts the hardware barriers. ``virtual_resources`` is the
    VRC_CTA_INIT_COUNT of sm_100 and later: 128 if tensor memory is allocated. ``cluster`` is the cluster size that the
    source requests, and ``max_cluster_blocks`` is the maximum number of blocks in a cluster.
    """

    name: str
    registers: int | None
    stack_bytes: int | None
    shared_bytes: int
    reserved_shared_bytes: int
    constant_bytes: Mapping[int, int] = field(hash=False)
    barriers: int
    signature: Signature
    code_bytes: int
    max_block: Block | None = None
    required_block: Block | None = None
    cluster: Block | None = None
    max_registers: int | None = None
    has_unbounded_stack: bool = False
    max_cluster_blocks: int | None = None
    mbarriers: int = 0
    virtual_resources: int = 0
    parameter_bytes: int = 0

    @property
    def max_threads(self) -> int | None:
        """The number of threads per block that the source allows or requires, or None if unspecified."""
        block = self.required_block or self.max_block
        return math.prod(block) if block else None


@dataclass(frozen=True)
class Cubin:
    """One cubin.

    ``functions`` are the device functions with a symbol, and ``undefined`` are the symbols that linking must provide.
    ``toolkit`` is the CUDA release that wrote the cubin. ``commands`` are the command lines that ptxas recorded.
    ``ptx`` is the PTX that runs instead of the cubin under ``cujit emulate``, if it was compiled there. Images that the
    emulator's driver links have no machine code, so their kernels are only in the PTX. Without the emulator, there is
    no ``ptx``. ``carries_ptx`` is whether the line information contains the PTX that the cubin was compiled from.
    """

    arch: Arch
    abi: int
    is_relocatable: bool
    toolkit: Version | None
    kernels: tuple[CubinKernel, ...]
    functions: tuple[str, ...] = ()
    variables: tuple[CubinVariable, ...] = ()
    undefined: tuple[str, ...] = ()
    commands: tuple[str, ...] = field(default=(), repr=False)
    ptx: bytes = field(default=b"", repr=False)
    carries_ptx: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether the cubin contains nothing to launch, call, or read.

        nvJitLink returns such an image without an error if the input cubins were not compiled for linking.
        """
        return not (self.kernels or self.functions or self.variables or self.ptx)

    def kernel(self, name: str) -> CubinKernel:
        """Return a kernel by its lowered name.

        Raises:
            NameNotFoundError: there is no such kernel. The message lists the kernels of the cubin.
        """
        for kernel in self.kernels:
            if kernel.name == name:
                return kernel
        have = ", ".join(k.name for k in self.kernels) or ("PTX, and no machine code" if self.ptx else "none")
        raise NameNotFoundError(
            f"this cubin doesn't contain the kernel {spell(name)}", help=f"choose one of its kernels: {have}"
        )


def read_cubin(data: bytes) -> Cubin:
    """Read a cubin.

    For a cubin from ``cujit emulate``, the result describes the SASS in the cubin, if any.

    Args:
        data: bytes of the cubin.

    Raises:
        FormatError: the value is not the bytes of a cubin, or the cubin is truncated or inconsistent.

    Example::

        print(cujit.inspection.read_cubin(cubin.data).arch)
    """
    elf = read_elf(image_bytes(data))
    if elf.machine != _MACHINE:
        raise FormatError(f"the ELF file is for machine {elf.machine}, but a cubin must be for {_MACHINE}", offset=18)
    if elf.type not in (_RELOCATABLE, _EXECUTABLE):
        raise FormatError(f"the cubin has the unknown ELF type {elf.type}", offset=16)
    held = read_container(elf.data)
    return _CubinReader(elf).read() if held is None else _of_container(held)


def _of_container(held: Container) -> Cubin:
    if not held.cubin:
        return Cubin(held.arch, _ABI_8, held.is_relocatable, None, (), ptx=held.ptx)
    if is_container(held.cubin):
        raise FormatError("a PTX container contains another PTX container")
    return replace(read_cubin(held.cubin), ptx=held.ptx)


class _CubinReader:
    """One reading of one cubin."""

    def __init__(self, elf: Elf) -> None:
        self._elf = elf
        self._symbols = elf.symbols(skip=ElfSymbol.SECTION)
        self._commands = _commands(elf)
        self._number = (elf.flags >> 8 if elf.abi_version >= _ABI_8 else elf.flags) & 0xFF
        self._module = self._records(elf.section(".nv.info"))
        self._values = symbol_values(self._module, _SYMBOL_ATTRIBUTES)
        self._info = {s.info: s for s in elf.sections if s.name.startswith(".nv.info.")}
        self._banks = _constant_banks(elf.sections)
        self._facts: dict[int, _Facts] = {}

    def read(self) -> Cubin:
        elf = self._elf
        named = [s for s in self._symbols if s.name]
        functions = [s for s in named if s.type == ElfSymbol.FUNCTION and s.section]
        return Cubin(
            arch=self._arch(),
            abi=elf.abi_version,
            is_relocatable=elf.type == _RELOCATABLE,
            toolkit=_toolkit(elf),
            kernels=tuple(self._kernel(s) for s in functions if s.other & _KERNEL),
            functions=tuple(s.name for s in functions if not s.other & _KERNEL),
            variables=tuple(filter(None, map(self._variable, named))),
            undefined=tuple(s.name for s in named if s.section == 0 and not _is_internal(s)),
            commands=self._commands,
            carries_ptx=any(map(is_ptx_section, elf.sections)),
        )

    def _arch(self) -> Arch:
        try:
            return Arch(ArchKind.REAL, self._number, self._suffix())
        except ArchError as e:
            raise FormatError(f"the cubin has an unknown architecture: flags {self._elf.flags:#x}", offset=48) from e

    def _suffix(self) -> str:
        """``a`` is in the flags up to CUDA 12.9, then in ``.nv.compat``; ``f`` only in a command line."""
        elf = self._elf
        bit = 0x8 if elf.abi_version >= _ABI_8 else 0x800
        if elf.flags & bit or self._is_accelerated():
            return "a"
        words = {word for command in self._commands for word in command.split()}
        for suffix in ("a", "f"):
            if f"sm_{self._number}{suffix}" in words:
                return suffix
        return ""

    def _is_accelerated(self) -> bool:
        records = self._records(self._elf.section(".nv.compat"))
        return any(r.attribute == _CUDA_ACCELERATOR_TARGET and r.value == 1 for r in records)

    def _records(self, section: Section | None) -> list[InfoRecord]:
        return read_records(self._elf.content(section), section.offset) if section else []

    def _code(self, symbol: ElfSymbol) -> Section:
        if symbol.section >= len(self._elf.sections):
            raise FormatError(f"{symbol.name} is in section {symbol.section}, which doesn't exist")
        return self._elf.sections[symbol.section]

    def _kernel(self, symbol: ElfSymbol) -> CubinKernel:
        code = self._code(symbol)
        facts = self._facts.get(code.index)
        if facts is None:
            facts = self._facts[code.index] = _facts_of(code, self._records(self._info.get(code.index)), self._elf)
        shared, reserved = self._shared(symbol.name)
        stack = self._value(Attribute.MIN_STACK_SIZE, symbol)
        if stack is None:
            stack = self._value(Attribute.FRAME_SIZE, symbol)
        return CubinKernel(
            name=symbol.name,
            registers=self._value(Attribute.REGCOUNT, symbol),
            stack_bytes=None if stack == _UNKNOWN_STACK else stack,
            has_unbounded_stack=stack == _UNKNOWN_STACK,
            shared_bytes=shared,
            reserved_shared_bytes=reserved,
            constant_bytes=self._banks.get("", {}) | self._banks.get(symbol.name, {}),
            code_bytes=code.size,
            **vars(facts),
        )

    def _value(self, attribute: Attribute, symbol: ElfSymbol) -> int | None:
        return self._values[attribute].get(symbol.index)

    def _shared(self, kernel: str) -> tuple[int, int]:
        """Return the bytes of static shared memory of the source, and the bytes of the system in the same section."""
        section = self._elf.section(f".nv.shared.{kernel}")
        size = section.size if section else 0
        has_reserve = self._number >= _RESERVED_SHARED_SINCE and self._elf.type == _EXECUTABLE
        reserved = _RESERVED_SHARED_BYTES if has_reserve and size >= _RESERVED_SHARED_BYTES else 0
        return size - reserved, reserved

    def _variable(self, symbol: ElfSymbol) -> CubinVariable | None:
        if symbol.type not in (ElfSymbol.OBJECT, _CUDA_OBJECT) or not symbol.section or symbol.name[0] in "$.":
            return None
        section = self._code(symbol).name
        if section == ".nv.constant3":
            return CubinVariable(symbol.name, symbol.size, MemorySpace.CONSTANT)
        if not section.startswith(".nv.global"):
            return None
        space = MemorySpace.MANAGED if symbol.other & _MANAGED else MemorySpace.GLOBAL
        return CubinVariable(symbol.name, symbol.size, space)


def is_ptx_section(section: Section) -> bool:
    """Return whether a section of a cubin contains PTX."""
    return section.name == PTX_SECTION or section.name.startswith(f"{PTX_SECTION}.")


_SYMBOL_ATTRIBUTES = (Attribute.REGCOUNT, Attribute.MIN_STACK_SIZE, Attribute.FRAME_SIZE)
_PARAMETER_ATTRIBUTES = (Attribute.KPARAM_INFO, Attribute.KPARAM_INFO_V2)
_CUDA_ACCELERATOR_TARGET = 9  # of .nv.compat
_CONSTANT = ".nv.constant"


def _is_internal(symbol: ElfSymbol) -> bool:
    """Whether an undefined symbol is the linker's own business: its tables, and dynamic shared memory."""
    return symbol.name.startswith((".nv.", "__nv_reservedSMEM", "__UFT", "__UDT")) or symbol.other == _SHARED


def _toolkit(elf: Elf) -> Version | None:
    """Return the CUDA release, or None if it is not recorded.

    It is from the note ``cuinfo`` (times ten), otherwise from the text of ``tkinfo``, otherwise from the version of ABI
    7.
    """
    for note in _notes(elf, ".note.nv.cuinfo"):
        if len(note.content) >= 6:
            return divmod(int.from_bytes(note.content[4:6], "little"), 10)
    for note in _notes(elf, ".note.nv.tkinfo"):
        match = _RELEASE.search(note.content)
        if match:
            return int(match[1]), int(match[2])
    return divmod(elf.version, 10) if elf.abi_version < _ABI_8 and elf.version >= 100 else None


def _notes(elf: Elf, name: str) -> tuple[Note, ...]:
    section = elf.section(name)
    return elf.notes(section) if section else ()


def _commands(elf: Elf) -> tuple[str, ...]:
    """The last of the texts of each ``tkinfo`` note: tool, version, build, command line."""
    texts = [n.content.rstrip(b"\0").rpartition(b"\0")[2] for n in _notes(elf, ".note.nv.tkinfo")]
    return tuple(t.decode("utf-8", "backslashreplace").strip() for t in texts)


def _constant_banks(sections: Iterable[Section]) -> dict[str, dict[int, int]]:
    """Kernel name (or "" for the module) to bank to bytes."""
    banks: dict[str, dict[int, int]] = {}
    for section in sections:
        if not section.name.startswith(_CONSTANT):
            continue
        head, _, kernel = section.name.removeprefix(_CONSTANT).partition(".")
        if head.isascii() and head.isdecimal() and len(head) <= 2:
            banks.setdefault(kernel, {})[int(head)] = section.size
    return banks


@dataclass(frozen=True)
class _Facts:
    """Information about a kernel from the records of its code section."""

    barriers: int
    signature: Signature
    max_block: Block | None
    required_block: Block | None
    cluster: Block | None
    max_registers: int | None
    max_cluster_blocks: int | None
    mbarriers: int
    virtual_resources: int
    parameter_bytes: int


def _facts_of(code: Section, records: list[InfoRecord], elf: Elf) -> _Facts:
    first = {r.attribute: r for r in reversed(records)}
    limit = _short(first, Attribute.MAXREG_COUNT, _NO_REGISTER_LIMIT)
    rank = first.get(Attribute.MAX_CLUSTER_RANK)
    return _Facts(
        barriers=_short(first, Attribute.NUM_BARRIERS) if elf.abi_version >= _ABI_8 else code.flags >> 20 & 0x7F,
        signature=_signature(_parameters(code.name.removeprefix(".text."), records)),
        max_block=_block(first, Attribute.MAX_THREADS),
        required_block=_block(first, Attribute.REQNTID),
        cluster=_block(first, Attribute.CTA_PER_CLUSTER),
        max_registers=None if limit == _NO_REGISTER_LIMIT else limit,
        max_cluster_blocks=rank.words(1)[0] if rank else None,
        mbarriers=_short(first, Attribute.NUM_MBARRIERS),
        virtual_resources=_short(first, Attribute.VRC_CTA_INIT_COUNT),
        parameter_bytes=_short(first, Attribute.CBANK_PARAM_SIZE),
    )


def _short(first: Mapping[int, InfoRecord], attribute: Attribute, default: int = 0) -> int:
    """The value of a record of a short format."""
    record = first.get(attribute)
    return default if record is None else record.value


def _block(first: Mapping[int, InfoRecord], attribute: Attribute) -> Block | None:
    record = first.get(attribute)
    if record is None:
        return None
    x, y, z = record.words(3)
    return x, y, z


def _parameters(kernel: str, records: list[InfoRecord]) -> list[KernelParameter]:
    """Return the parameters in order. Refuse missing and overlapping parameters."""
    found = sorted(parameter_of(r) for r in records if r.attribute in _PARAMETER_ATTRIBUTES)
    end = 0
    for expected, p in enumerate(found):
        if p.ordinal != expected:
            raise FormatError(f"parameter {expected} of {kernel} is missing or duplicated")
        if p.offset < end:
            raise FormatError(
                f"parameter {p.ordinal} of {kernel} is at offset {p.offset}, but the parameters before it end at {end}"
            )
        end = p.offset + p.size
    return found


def _signature(found: list[KernelParameter]) -> Signature:
    parameters = []
    for p in found:
        kind = ParameterClass.POINTER if p.is_pointer else ParameterClass.UNKNOWN
        parameters.append(Parameter(kind, p.size, offset=p.offset))
    return Signature(tuple(parameters))
