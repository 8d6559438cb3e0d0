"""Modules of LLVM IR as a user gives them: text, bitcode, a file, or an Artifact; and what their text tells."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cujit.artifact import Artifact, Kind, kind_of
from cujit.artifact.reading import BOM, path_of, read_file, shown_path, without_bom
from cujit.errors import FormatError, OptionError, spell
from cujit.forks import cached_property

__all__ = ["ENDINGS", "Module", "file_of", "read_modules"]

ENDINGS = (".ll", ".bc")
"""How the name of a file of LLVM IR ends, where a string could be text as well."""

# Comments, strings and quoted names: nothing in them is a type.
_NOISE = re.compile(r';[^\n]*|"[^"\n]*"')
# The type `ptr` of opaque pointers, and no name, label or metadata field. Source: LLVM Language Reference.
_OPAQUE = re.compile(r"(?<![\w.$@%!#-])ptr(?![\w.$:-])")
_INTEGER = re.compile(r"(?<![\w.$@%!#-])i(\d{3,})(?![\w.$:-])")
_LAYOUT = re.compile(r'^\s*target\s+datalayout\s*=\s*"([^"]*)"', re.MULTILINE)
# Source: LLVM Language Reference, "Data Layout".
_LAYOUT_ITEM = re.compile(r"[eE]|p\d*(:\d+)+|[ivaf]\d*(:\d+)+|n\d+(:\d+)*|S\d+|[PAG]\d+|m:[a-z]|F[in]\d+|ni(:\d+)+")
_WIDEST_INTEGER_BITS = 128
_ANNOTATIONS = re.compile(r"^\s*!nvvm\.annotations\s*=\s*!\{([^}\n]*)\}", re.MULTILINE)
_NODE = re.compile(r"^\s*!(\d+)\s*=\s*(?:distinct\s+)?!\{(.*)\}", re.MULTILINE)
# An operand of a node: a name, a quoted text or a bracket with all that is in it, and what is between them.
_OPERAND = re.compile(r'(?:"[^"\n]*"|\((?:[^()]|\([^()]*\))*\)|\{[^{}]*\}|[^",(){}])+')


@dataclass(frozen=True)
class Module:
    """One module: its name, as logs say it, and its bytes, text or bitcode."""

    name: str
    data: bytes

    @cached_property
    def text(self) -> str | None:
        """The text; None when the module is bitcode."""
        if self.data[:4] in (b"BC\xc0\xde", b"\xde\xc0\x17\x0b"):
            return None
        return self.data.decode("utf-8", "replace")

    @cached_property
    def opaque_line(self) -> int:
        """The first line, from 1, with the type ``ptr`` of opaque pointers; 0 when there is none or it is bitcode."""
        return next((line for line, _ in self._find(_OPAQUE)), 0)

    def fatal(self) -> str | None:
        """Say what the LLVM 7 in libNVVM would end the process for, or None.

        Source: measured, 12.9 to 13.4: an integer of 256 bits, a data layout that does not parse.
        """
        for line, match in self._find(_INTEGER):
            if int(match[1]) > _WIDEST_INTEGER_BITS:
                return f"{self.name}:{line}: {match[0]} is wider than the {_WIDEST_INTEGER_BITS} bits that NVVM IR has"
        layout = _LAYOUT.search(self.text or "")
        wrong = [item for item in (layout[1].split("-") if layout else ()) if not _LAYOUT_ITEM.fullmatch(item)]
        return f"{self.name}: {wrong[0]!r} in the data layout means nothing" if wrong else None

    def bad_annotation(self) -> str | None:
        """Say which node of ``!nvvm.annotations`` would end the process in libNVVM, or None.

        Source: measured, 13.5, for compute_90 and compute_100: a node without operands, a property without a value or
        with null, and one whose name is no string. A node is a function or variable, then names and values in turn.
        """
        text = self.text or ""
        listed = {number for names in _ANNOTATIONS.findall(text) for number in re.findall(r"!(\d+)", names)}
        for match in _NODE.finditer(text):
            _, *pairs = operands = [operand.strip() for operand in _OPERAND.findall(match[2]) if operand.strip()] or [
                ""
            ]
            names, values = pairs[::2], pairs[1::2]
            is_good = operands[0] and len(names) == len(values) and "null" not in values
            if match[1] in listed and not (is_good and all(name.startswith('!"') for name in names)):
                line = text.count("\n", 0, match.start(1)) + 1
                return f"{self.name}:{line}: !{match[1]} = !{{{match[2]}}} is no annotation: a kernel, names and values"
        return None

    def line(self, number: int) -> str:
        """Give one line of the text, counted from 1; "" past the end, and for bitcode."""
        lines = (self.text or "").splitlines()
        return lines[number - 1] if 0 < number <= len(lines) else ""

    def _find(self, pattern: re.Pattern[str]) -> Iterator[tuple[int, re.Match[str]]]:
        for number, line in enumerate(_NOISE.sub("", self.text or "").splitlines(), start=1):
            yield from ((number, match) for match in pattern.finditer(line))


def read_modules(given: Sequence[object], name: str | None) -> tuple[Module, ...]:
    """Take modules; one alone is called ``name``, several that have no file are numbered.

    Raises:
        FormatError: one of them is no LLVM IR.
        OptionError: there are none, or one is of the wrong type.
        FileError: a file cannot be read.
    """
    if not given:
        raise OptionError("no module of LLVM IR", help="Source.nvvm(text), or bytes of bitcode, or a path")
    alone = len(given) == 1
    modules = [
        _read(item, (name if alone else None) or f"module{'' if alone else number}.ll", alone and name is not None)
        for number, item in enumerate(given, start=1)
    ]
    return tuple(modules)


def _read(given: object, name: str, is_named: bool) -> Module:
    if isinstance(given, Artifact):
        return _module(given.data, name if is_named or not given.name else given.name)
    path = file_of(given, ENDINGS)
    if path is not None:
        return _module(read_file(path).removeprefix(BOM), name if is_named else shown_path(path_of(path)))
    if isinstance(given, str):
        return _module(without_bom(given).encode("utf-8", "surrogatepass"), name)
    if isinstance(given, bytes | bytearray | memoryview):
        return _module(bytes(given).removeprefix(BOM), name)
    raise OptionError(f"a module of LLVM IR is str, bytes or a path, not {type(given).__name__}")


def file_of(given: object, endings: tuple[str, ...]) -> str | os.PathLike[str] | None:
    """Tell whether ``given`` is a file: a path, or a string of one line that ends as names of such files do.

    A line that begins as a comment or a directive is text, whatever its ending.

    A name of a file that is not there is given too, for whoever reads it to say so.
    """
    if isinstance(given, os.PathLike):
        return given
    if not isinstance(given, str) or any(c in given for c in "\n\r\0") or not given.lower().endswith(endings):
        return None
    return given if os.path.exists(given) or not given.lstrip().startswith(("//", "/*", "#", ";")) else None


def _module(data: bytes, name: str) -> Module:
    if any(c in name for c in "\0\n\r"):
        raise OptionError(f"{spell(name)} is no name for a module")
    try:
        kind = kind_of(data)
    except FormatError as e:
        raise FormatError(f"{name} is no LLVM IR: {e.message}", help=_HELP) from None
    if kind is not Kind.NVVMIR:
        raise FormatError(f"{name} is {kind.value}, not LLVM IR", help="images of device code go to cujit.link")
    module = Module(name, data)
    if module.text is None:
        return module
    module = Module(name, data.rstrip(b"\0"))
    if b"\0" in module.data:
        line = module.data.count(b"\n", 0, module.data.index(b"\0")) + 1
        raise FormatError(f"{name}:{line}: a NUL byte in the text; the compiler would stop reading there")
    return module


_HELP = 'a module begins with its target triple and data layout: target triple = "nvptx64-nvidia-cuda"'
