"""Arguments of tools that may be part of a key unchanged, because they name no file and measure nothing."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator

from cujit.compiler.options.spelling import Spelling
from cujit.compiler.options.table import OPTIONS, Tool
from cujit.values import later
from cujit.values.typed import TYPE_CHECKING

if TYPE_CHECKING:
    import re
else:
    re = later("re")  # start-up: few calls need it

# Arguments that read or write a file beside the include closure, or whose result is this one compile's own.
# Sources: NVRTC 13 user guide, "Supported Compile Options"; nvJitLink 13 user guide; each given to 13.5.
_FILES = {
    "create-pch": "it writes a precompiled header",
    "fdevice-time-trace": "it writes a file",
    "pch": "it writes and reads precompiled headers",
    "pch-dir": "it writes and reads precompiled headers",
    "time": "it measures this very compile",
    "use-pch": "it reads a precompiled header",
}
_SAY = {
    "I": "say include=[…]",
    "include-path": "say include=[…]",
    "include": "say pre_include=[…]",
    "pre-include": "say pre_include=[…]",
}
# Short names that the tools take besides those of the table. Sources: as above.
_SHORT_VALUES = "arch gpu-architecture std rdc dc maxrregcount ftz fmad prec-div prec-sqrt split-compile O opt D U"
_SHORT = frozenset(_SHORT_VALUES.split())
_PTXAS = ("Xptxas", "ptxas-options")
_DEFINE = ("--define-macro=", "-D=", "-D")
_UNDEFINE = ("--undefine-macro=", "-U=", "-U")
_ALWAYS_DEFINED = ("__CUDACC_RTC__", "__CUDACC__")
# What an assembler's argument may be: a number, a word; no path, no other file. Compiled when first used: start-up.
_PLAIN = r"--?[A-Za-z][\w-]*(?:=[\w,+-]*)?"
_NAMES_A_FILE = r"file|optf|output|input|dump|trace|-o(?![\w-])"
_DEBUG = frozenset(("G", "device-debug", "g"))
_PATHS = _DEBUG | {"lineinfo", "generate-line-info"}


def unmodelled(arguments: Iterable[str], tool: Tool, extra: Iterable[str] = ()) -> str | None:
    """Describe the argument that prevents caching and the reason, or return None if every argument is understood.

    ``extra`` are the arguments that don't come from the option table.
    """
    given = frozenset(extra)
    for argument in arguments:
        why = _why_not(argument, tool, argument in given)
        if why:
            return f"the argument {argument}: {why}"
    return None


def _why_not(argument: str, tool: Tool, is_extra: bool) -> str | None:
    if (_behind(argument, _UNDEFINE) or "").strip() in _ALWAYS_DEFINED:
        return "it takes away what NVRTC always defines"
    if _behind(argument, _DEFINE) is not None or argument.startswith("-U"):
        return None
    if is_extra and argument.startswith("-I") and argument != "-I":
        return _SAY["I"]
    option, equals, value = argument.partition("=")
    name = option.removeprefix("-").removeprefix("-")
    is_word = name.replace("-", "a").replace("_", "a").isalnum() and name[0].isascii() and name[0].isalpha()
    if name == option or not is_word:
        return "it is none of the form --name=value"
    return _why_not_named(name, value if equals else None, tool, is_extra)


def _behind(argument: str, beginnings: Iterable[str]) -> str | None:
    """Return the rest of an argument after the first matching prefix."""
    return next((argument.removeprefix(begin) for begin in beginnings if argument.startswith(begin)), None)


def _why_not_named(name: str, value: str | None, tool: Tool, is_extra: bool) -> str | None:
    if name in _PTXAS:
        is_plain = re.fullmatch(_PLAIN, value or "") and not re.search(_NAMES_A_FILE, value or "")
        return None if is_plain else "it may name a file to the assembler"
    if not is_extra or name in _FILES:
        return _FILES.get(name)
    is_open = value is not None and name not in _SAY and name not in _known(tool)
    return "it is not known here, and its value may name a file" if is_open else _SAY.get(name)


@functools.lru_cache(maxsize=len(Tool))
def _known(tool: Tool) -> frozenset[str]:
    names = set(_SHORT)
    for row in OPTIONS.values():
        spelling = row.spelling(tool)
        if isinstance(spelling, Spelling):
            names.update(name.lstrip("-") for name in re.findall(r"--?[A-Za-z][\w-]*", spelling.text))
    return frozenset(names)


def macros(arguments: Iterable[str]) -> Iterator[str]:
    """Yield the macros that arguments define, as they would appear after ``#define``."""
    for argument in arguments:
        macro = _behind(argument, _DEFINE)
        if macro is not None:
            name, equals, value = macro.partition("=")
            yield f"{name.strip()} {value if equals else '1'}"


def wants_paths(arguments: Iterable[str]) -> bool:
    """Return whether the result names files: with debug information or line numbers."""
    return any(a.partition("=")[0].lstrip("-") in _PATHS for a in arguments)


def wants_working_directory(arguments: Iterable[str]) -> bool:
    """Return whether the result contains the working directory. With only line numbers, it doesn't (measured, 13.5)."""
    return any(a.partition("=")[0].lstrip("-") in _DEBUG for a in arguments)
