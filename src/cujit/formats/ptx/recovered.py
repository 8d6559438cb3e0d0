"""Recovery of the PTX that a cubin was compiled from.

The line information of the cubin contains the text, which must agree with the code. ptxas keeps every line of the text,
without its indentation and ended by a NUL. Comments, ``.loc``, ``.file``, and the content of debug sections are empty
lines, so lines count as in the original. The line tables of the code are used to restore ``.loc`` and ``.file``. A
linked cubin has one text for each of its parts. (Measured: ptxas, NVRTC and nvJitLink 13.5, the ptxas of Triton 3.9,
tileiras 13.5.)
"""

from __future__ import annotations

import re

from cujit.arch import Arch
from cujit.artifact import Artifact, ImageKind
from cujit.errors import ArchError, FormatError, LinkError, PtxSyntaxError, counted, listed, spell
from cujit.errors.hints import Hint
from cujit.formats.container import read_container
from cujit.formats.cubin import Cubin, CubinKernel, is_ptx_section, read_cubin
from cujit.formats.elf import Elf, Section, read_elf
from cujit.formats.ptx.heads import heads
from cujit.formats.ptx.linking import Input, link_modules
from cujit.formats.ptx.parameters import signature_of_entry
from cujit.formats.ptx.parser import parse
from cujit.formats.ptx.places import with_places
from cujit.formats.ptx.printer import print_module
from cujit.formats.ptx.syntax import PtxModule
from cujit.signature import Signature
from cujit.values import replace

_COMPRESSED = 0x800  # Source: System V gABI, "Section Attribute Flags", SHF_COMPRESSED.
_SHOWN_NAMES = 6

_TARGET = re.compile(r"(?<!\S)\.target\s+(\w+)")
_HIDDEN = re.compile(r"(?<!\S)\.hidden\s+\.param\b")
_EXTERN = re.compile(
    r"\.extern\s+(?:\.func\s+(?:\([^()]{0,999}\)\s*)?|\.(?:global|const)\s(?:[^;=]{0,999}?\s)?)([\w$]+)\s*[(;\[]",
    re.ASCII,
)
_NO_TEXT = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")


def as_ptx(image: Artifact) -> Artifact:
    """Return the PTX of an image that is PTX or a cubin, with the other information about the image.

    Raises:
        FormatError: the image is of another kind, or no PTX can be recovered from the cubin.
    """
    if image.kind is ImageKind.PTX:
        return image
    if image.kind is not ImageKind.CUBIN:
        raise FormatError(f"the image is {image.kind.value}, not PTX")
    text = ptx_of_cubin(image.data)
    arch = _target(text)
    made = arch.virtual if arch is not None else None
    return replace(image, kind=ImageKind.PTX, data=text.encode(), arch=made, log="", provenance=None)


def ptx_of_cubin(data: bytes) -> str:
    """Recover the PTX that a cubin was compiled from. A comment in its first line labels the text as recovered.

    The PTX of a container of ``cujit emulate`` is returned unchanged.

    Raises:
        FormatError: the cubin is damaged, contains no PTX, or contains PTX that does not agree with it.
            Such PTX has other kernels or parameters, another architecture, or only a part of the cubin.
    """
    held = read_container(data)
    if held is not None:
        return _decoded(held.ptx, "the container")
    elf, cubin = read_elf(data), read_cubin(data)
    try:
        text = _recovered(elf, cubin)
    except FormatError as e:
        message = f"can't recover PTX from the cubin for {cubin.arch}: {e.message}"
        raise FormatError(message, help=e.help or _HELP) from None
    return _labelled(text, f"recovered by cujit from the line information of a cubin for {cubin.arch}")


_HELP = Hint(
    "build it with line information (lineinfo=True, nvcc -lineinfo), or compile the source to PTX",
    shell="build it with line information (-O lineinfo, nvcc -lineinfo), or compile the source to PTX",
)


def _recovered(elf: Elf, cubin: Cubin) -> str:
    sections = list(filter(is_ptx_section, elf.sections))
    if not sections:
        raise FormatError("it has no line information")
    if sum(section.size for section in sections) > len(elf.data):
        raise FormatError(f"its {counted(len(sections), 'section')} of PTX overlap", offset=sections[-1].offset)
    texts = [_text(elf, section) for section in sections]
    _require_agreement(cubin, texts)
    return texts[0] if len(texts) == 1 else _linked(texts)


# -- the text -----------------------------------------------------------------------------------------------


def _text(elf: Elf, section: Section) -> str:
    if section.flags & _COMPRESSED:
        raise FormatError("its PTX is compressed, although NVIDIA's compilers never compress it", offset=section.offset)
    text = _decoded(elf.content(section).replace(b"\0", b"\n"), f"section {section.name}")
    return with_places(_without_sources(text), elf, section)


def _decoded(data: bytes, where: str) -> str:
    try:
        text = data.rstrip(b"\0").decode()
    except UnicodeDecodeError as e:
        raise FormatError(f"{where} contains PTX that is not text", offset=e.start) from None
    found = _NO_TEXT.search(text)
    if found is not None:
        raise FormatError(f"{where} contains PTX that is not text: {spell(found[0])}", offset=found.start())
    return text


_SOURCES = re.compile(r"^\.nv_intermediate_source_section\b", re.MULTILINE)
_SOURCE_WORDS = re.compile(r'"[^"\n]*"|^\.source_begin\b|^\.source_end\b|[{}]', re.MULTILINE)


def _without_sources(text: str) -> str:
    """Empty the lines that quote Tile IR, because they refer to files and ptxas omits the table of files.

    Source: PTX ISA 9.5, 11.5.6; the output of tileiras 13.5.
    """
    pieces, kept = [], 0
    while (found := _SOURCES.search(text, kept)) is not None:
        end = _end_of_sources(text, found.end())
        pieces += [text[kept : found.start()], "\n" * text.count("\n", found.start(), end)]
        kept = end
    return "".join((*pieces, text[kept:]))


def _end_of_sources(text: str, start: int) -> int:
    depth, is_source = 0, False
    for word in _SOURCE_WORDS.finditer(text, start):
        if word[0].startswith(".source"):
            is_source = word[0] == ".source_begin"
        elif not is_source and word[0] in "{}":
            depth += 1 if word[0] == "{" else -1
            if depth <= 0:
                return word.end()
    raise FormatError("the PTX contains a source quotation that doesn't end", offset=start)


def _linked(texts: list[str]) -> str:
    """Link the texts of a cubin's parts, as the cubin was linked."""
    try:
        inputs = [Input(f"part {number}", _parsed(text)) for number, text in enumerate(texts, 1)]
        return print_module(link_modules(inputs).module)
    except LinkError as e:
        raise FormatError(f"the {len(texts)} parts of its PTX can't be linked: {e.message}") from None


def _parsed(text: str) -> PtxModule:
    try:
        return parse(text)
    except PtxSyntaxError as e:
        raise FormatError(f"its PTX can't be parsed: {e.message}") from None


def _labelled(text: str, label: str) -> str:
    """Append a comment to the first line, so that no line moves."""
    first, newline, rest = text.partition("\n")
    return f"{first}{' ' if first else ''}// {label}{newline or chr(10)}{rest}"


# -- agreement with the code --------------------------------------------------------------------------------


def _target(text: str) -> Arch | None:
    found = _TARGET.search(text)
    try:
        return Arch.parse(found[1]) if found else None
    except ArchError:
        return None


def _require_agreement(cubin: Cubin, texts: list[str]) -> None:
    """Refuse texts that do not agree with the code in architecture, kernels, parameters, or undefined names."""
    for target in map(_target, texts):
        if target is None or not (target.number == cubin.arch.number or target.virtual.runs_on(cubin.arch)):
            raise FormatError(f"its PTX is for {target or 'no known target'}, but its machine code is for {cubin.arch}")
    entries = [_entries(text) for text in texts]
    in_code, in_text = {kernel.name for kernel in cubin.kernels}, {name for part in entries for name in part}
    _require_none(in_code - in_text, "kernel", "is in its machine code, and not in its PTX")
    _require_none(in_text - in_code, "kernel", "is in its PTX, and not in its machine code")
    for kernel in cubin.kernels:
        _require_parameters(kernel, [part[kernel.name] for part in entries if kernel.name in part])
    _require_whole(cubin, texts)


def _require_parameters(kernel: CubinKernel, found: list[Signature]) -> None:
    if not any(_is_alike(signature, kernel.signature) for signature in found):
        sizes = " and ".join(str([p.size for p in taken]) for taken in (found[0], kernel.signature))
        raise FormatError(
            f"kernel {kernel.name}: its PTX and its machine code declare parameters of different sizes: {sizes} bytes"
        )


def _entries(text: str) -> dict[str, Signature]:
    if _HIDDEN.search(text):
        raise FormatError(
            "its kernels have hidden parameters (.hidden .param) for tensor maps, which the GPU driver sets",
            help="build the kernels for sm_80 to sm_89, where Tile IR doesn't need tensor maps; the CPU "
            "device can run them",
        )
    try:
        return {entry.name: signature_of_entry(entry) for entry in heads(text).entries}
    except PtxSyntaxError as e:
        raise FormatError(f"the parameters in its PTX can't be parsed: {e.diagnostic.message}") from None


def _is_alike(of_ptx: Signature, of_code: Signature) -> bool:
    """Return whether two signatures have equal sizes and offsets.

    Offsets may differ if a parameter is aligned to more than 16 bytes, because ptxas then chooses them.
    """
    if [p.size for p in of_ptx] != [p.size for p in of_code]:
        return False
    return of_ptx.offsets == of_code.offsets or any((p.align or 1) > 16 for p in of_ptx)


def _require_whole(cubin: Cubin, texts: list[str]) -> None:
    """Refuse the texts of a cubin that was linked from parts, if a part had no line information."""
    there = {*cubin.functions, *(variable.name for variable in cubin.variables)}
    wanted = {found[1] for text in texts for found in _EXTERN.finditer(text)} & there
    if wanted:
        modules = [_parsed(text) for text in texts]
        wanted -= {f.name for m in modules for f in m.functions if f.body is not None}
        wanted -= {v.name for m in modules for v in m.variables if v.linkage != "extern"}
    _require_none(wanted, "symbol", "is in its machine code alone: a part was built without line information")


def _require_none(names: set[str], what: str, disagree: str) -> None:
    if names:
        raise FormatError(f"{what} {listed(sorted(names), _SHOWN_NAMES)} {disagree}")
