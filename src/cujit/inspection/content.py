"""Reading one image: a cubin, PTX, LTO-IR or LLVM IR becomes its ``Content``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from cujit.arch import Arch, ArchKind
from cujit.arch.support import toolkit_of_ptx
from cujit.artifact import Artifact, ImageKind, magic
from cujit.devices.name_table import display_names
from cujit.errors import FormatError
from cujit.formats.cubin import Cubin, CubinKernel, read_cubin
from cujit.formats.ltoir import read_ltoir
from cujit.formats.ptx.parameters import bytes_of, signature_of_entry
from cujit.formats.ptx.parser import parse
from cujit.formats.ptx.syntax import Function, PtxModule, Variable
from cujit.formats.ptx.uses import construct_needs
from cujit.formats.tileir import TileIr, read_tileir
from cujit.inspection.logs import Spills, spills_of_log
from cujit.inspection.nvvm_ir import read_nvvmir
from cujit.inspection.values import Block, Content, KernelInfo, VariableInfo
from cujit.signature import Signature, merge_signatures
from cujit.values import attributes, dataclass, field, replace
from cujit.values.garbage import collecting_rarely

Signatures = Mapping[str, Signature]
_UNKNOWN_STACK_SINCE = (13, 4)  # ptxas 13.0 wrote 0 where 13.4 says that the stack is unknown


@dataclass(frozen=True)
class BuildFacts:
    """Facts of an Artifact besides its bytes: ``names`` by lowered name, signatures, and spills from its log."""

    names: Mapping[str, str] = field(default_factory=dict)
    signatures: Signatures = field(default_factory=dict)
    spills: Spills = field(default_factory=dict)

    @classmethod
    def by(cls, artifact: Artifact) -> BuildFacts:
        """Create the facts of an Artifact. If a kernel has several name expressions, the first
        requested one is used.
        """
        names: dict[str, str] = {}
        for expression, lowered in artifact.names.items():
            names.setdefault(lowered, expression)
        return cls(names, dict(artifact.signatures), spills_of_log(artifact.log))

    def displays(self, lowered: Iterable[str]) -> dict[str, str]:
        """Return the displayed name of each kernel. The names are unique."""
        return display_names(lowered, self.names)

    def spills_of(self, name: str, arch: Arch, *, has_no_stack: bool) -> tuple[int | None, int | None]:
        """Return the bytes of spill stores and loads in a kernel's own code, or None twice. Without a stack, there are
        none.

        Source: ptxas 13.5 counts the frame of spills in the stack also where they go to shared memory
        (``enable_smem_spilling``).
        """
        found = self.spills.get((name, str(arch))) or self.spills.get((name, ""))
        if found is not None:
            return found
        return (0, 0) if has_no_stack else (None, None)


def read_content(kind: ImageKind, data: bytes, facts: BuildFacts, arch: Arch | None, of_ptx: Signatures) -> Content:
    """Read an image. ``arch`` is its declared architecture, which may have a suffix that the image lacks.

    ``of_ptx`` are signatures from PTX of the same source, by lowered name.

    Raises:
        FormatError: the image is damaged.
    """
    if kind is ImageKind.CUBIN:
        return _cubin(read_cubin(data), facts, arch, of_ptx)
    if kind is ImageKind.PTX:
        return _ptx(data, facts)
    if kind is ImageKind.LTOIR:
        ltoir = read_ltoir(data)
        own = _variant(ltoir.arch, arch)
        return Content(arch=own, toolkit=ltoir.toolkit, note="only nvJitLink can read the body of LTO-IR")
    if kind is ImageKind.OPTIXIR:
        ltoir = read_ltoir(data)  # with tags of OptiX
        note = "only OptiX can read the body of OptiX IR"
        return Content(arch=_variant(ltoir.arch.virtual, arch), toolkit=ltoir.toolkit, note=note)
    if kind is ImageKind.NVVMIR:
        return _nvvmir(data, facts)
    if kind is ImageKind.TILEIR:
        return _tileir(read_tileir(data), facts)
    return Content(note="cujit can't read this kind of code")


def _tileir(image: TileIr, facts: BuildFacts) -> Content:
    note = "" if image.kernels is not None else "cujit does not know how this version encodes kernels"
    kernels = image.kernels or {}
    shown = facts.displays(kernels)
    infos = (
        KernelInfo(name, shown[name], kind=ImageKind.TILEIR, signature=facts.signatures.get(name, taken))
        for name, taken in kernels.items()
    )
    return Content(kernels=tuple(infos), toolkit=image.version, note=note)


# -- machine code -----------------------------------------------------------------------------------------


def _variant(own: Arch, stated: Arch | None) -> Arch:
    """Return the architecture of an image, with the suffix that is known from elsewhere."""
    return (
        stated
        if stated is not None and not own.suffix and (stated.kind, stated.number) == (own.kind, own.number)
        else own
    )


_EMULATED = "created by cujit emulate, which runs PTX instead"


def _cubin(cubin: Cubin, facts: BuildFacts, stated: Arch | None, of_ptx: Signatures) -> Content:
    arch = _variant(cubin.arch, stated)
    note = _EMULATED if cubin.ptx else ""
    if cubin.ptx and not cubin.kernels:
        held = _ptx(cubin.ptx, facts)
        kernels = tuple(replace(kernel, arch=arch, kind=ImageKind.CUBIN) for kernel in held.kernels)
        held = replace(held, arch=arch, kernels=kernels, is_relocatable=cubin.is_relocatable, note=note)
        return replace(held, carries_ptx=True)
    # Before that, 0 also stood for a stack of unknown size: that of recursion, which takes a function.
    zero_is_none = not cubin.functions or (cubin.toolkit or (0, 0)) >= _UNKNOWN_STACK_SINCE
    numbered = tuple(_with_unique_names(cubin.kernels))
    shown = facts.displays(k.name for k in numbered)
    return Content(
        arch=arch,
        kernels=tuple(_kernel_of_cubin(k, arch, shown[k.name], facts, of_ptx, zero_is_none) for k in numbered),
        variables=tuple(VariableInfo(v.name, v.size, v.space.value) for v in cubin.variables),
        note=note,
        carries_ptx=bool(cubin.ptx) or cubin.carries_ptx,
        **attributes(cubin, "toolkit abi is_relocatable functions undefined commands"),
    )


def _with_unique_names(kernels: Iterable[CubinKernel]) -> Iterator[CubinKernel]:
    """Number the kernels of one name, as a link to PTX does: those of several files that keep them for themselves."""
    seen: dict[str, int] = {}
    for kernel in kernels:
        count = seen[kernel.name] = seen.get(kernel.name, 0) + 1
        yield kernel if count == 1 else replace(kernel, name=f"{kernel.name}${count}")


def _kernel_of_cubin(
    k: CubinKernel, arch: Arch, display: str, facts: BuildFacts, of_ptx: Signatures, zero_is_none: bool
) -> KernelInfo:
    stores, loads = facts.spills_of(k.name, arch, has_no_stack=k.stack_bytes == 0 and zero_is_none)
    signature = merge_signatures(of_ptx.get(k.name), k.signature)
    return KernelInfo(
        display=display,
        arch=arch,
        kind=ImageKind.CUBIN,
        signature=merge_signatures(facts.signatures.get(k.name), signature),
        spill_store_bytes=stores,
        spill_load_bytes=loads,
        **attributes(k, _SAME),
    )


_SAME = " ".join({*CubinKernel.__match_args__} & {*KernelInfo.__match_args__} - {"signature"})
"""What is said of a kernel as its cubin says it."""


# -- PTX --------------------------------------------------------------------------------------------------


@collecting_rarely(200_000)  # a tree has no circles: it goes by itself
def _ptx(data: bytes, facts: BuildFacts) -> Content:
    try:
        text = data.rstrip(b"\0").decode()
    except UnicodeDecodeError as e:
        raise FormatError("the PTX is not text", offset=e.start) from e
    module = parse(text)
    arch = _virtual(module.target)
    shown = facts.displays(f.name for f in module.entries)
    defined = {f.name for f in module.functions if f.body is not None}
    return Content(
        arch=arch,
        toolkit=toolkit_of_ptx(module.version),
        ptx_version=module.version,
        target=module.target,
        needs=tuple(construct_needs(module)),
        kernels=tuple(_kernel_of_ptx(f, arch, shown[f.name], facts) for f in module.entries),
        functions=tuple(f.name for f in module.functions if f.body is not None and not f.is_entry),
        variables=tuple(_variables(module)),
        undefined=tuple(dict.fromkeys(f.name for f in module.functions if f.name not in defined))
        + tuple(v.name for v in module.variables if v.linkage == "extern" and v.space in _SPACES),
    )


_TARGET = re.compile(r"sm_([1-9][0-9]{1,3})([af]?)")
_SPACES = {"global": "global", "const": "constant"}


def _virtual(target: tuple[str, ...]) -> Arch | None:
    found = next(filter(None, map(_TARGET.fullmatch, target)), None)
    return Arch(ArchKind.VIRTUAL, int(found[1]), found[2]) if found else None


def _kernel_of_ptx(f: Function, arch: Arch | None, display: str, facts: BuildFacts) -> KernelInfo:
    directives = dict(f.directives)
    registers, rank = (_numbers(directives.get(word, ())) for word in ("maxnreg", "maxclusterrank"))
    signature = signature_of_entry(f)
    return KernelInfo(
        name=f.name,
        display=display,
        arch=arch,
        kind=ImageKind.PTX,
        signature=merge_signatures(facts.signatures.get(f.name), signature),
        max_block=_block(directives.get("maxntid", ())),
        required_block=_block(directives.get("reqntid", ())),
        cluster=_block(directives.get("reqnctapercluster", ())),
        max_registers=registers[0] if registers else None,
        max_cluster_blocks=rank[0] if rank else None,
        parameter_bytes=signature.size,
    )


def _numbers(words: tuple[str, ...]) -> list[int]:
    return [int(word) for word in words if word.isascii() and word.isdecimal()]


def _block(words: tuple[str, ...]) -> Block | None:
    numbers = _numbers(words)
    if not 1 <= len(numbers) <= 3:
        return None
    x, y, z = (*numbers, 1, 1)[:3]
    return x, y, z


def _variables(module: PtxModule) -> Iterable[VariableInfo]:
    for v in module.variables:
        if v.linkage != "extern" and v.space in _SPACES:
            yield VariableInfo(v.name, bytes_of(v) or None, _space(v))


def _space(v: Variable) -> str:
    return "managed" if "managed" in v.attributes else _SPACES[v.space]


# -- LLVM IR ----------------------------------------------------------------------------------------------


def _nvvmir(data: bytes, facts: BuildFacts) -> Content:
    if data.startswith(magic.BITCODE):
        return Content(note="LLVM bitcode: cujit does not read it")
    try:
        found = read_nvvmir(data.rstrip(b"\0").decode())
    except UnicodeDecodeError as e:
        raise FormatError("the LLVM IR is not text", offset=e.start) from e
    shown = facts.displays(found.kernels)
    kernels = tuple(
        KernelInfo(name, shown[name], kind=ImageKind.NVVMIR, signature=facts.signatures.get(name))
        for name in found.kernels
    )
    return Content(kernels=kernels, functions=found.functions, undefined=found.undefined)
