"""Every exception that cujit raises.

::

    CujitError
    ├── ArchError               an architecture that is malformed, unknown, dropped or not servable here   (ValueError)
    ├── OptionError             an option that is unknown, ill-typed, or rejected by the back end          (ValueError)
    ├── FileError               a file that is not there, or cannot be read or written                    (OSError)
    ├── FormatError             bytes or text that are not what they claim to be                           (ValueError)
    │   └── PtxSyntaxError      PTX text that no assembler takes: line, column, caret
    ├── ToolError               a call into one of NVIDIA's libraries failed: call, result, version, log
    │   ├── CompileError        source that does not compile: request, diagnostics
    │   │   └── HeaderNotFoundError   … because an ``#include`` was not found: what was searched
    │   ├── LinkError           images that do not link
    │   ├── BundleError         images that do not go into one fatbin
    │   ├── ToolTimeoutError    work that took longer than it was given
    │   ├── ToolCrashError      a process apart (``isolate=True``) that died at its work, or of its limit of memory
    │   └── DriverError         the CUDA driver refused
    ├── MissingError            the machine lacks something that was asked for
    │   ├── ToolchainNotFoundError    a library of the CUDA toolkit: which wheel brings it
    │   ├── DriverNotFoundError       the CUDA driver
    │   └── DeviceNotFoundError       a GPU with that number
    ├── NotCompiledError        an image that is not there, where compiling is forbidden: what is nearest
    │   └── NotTunedError       a tuning that is not there, where measuring is forbidden or no candidate runs
    ├── LoadError               an image that this device cannot take
    │   └── UnsupportedError    PTX that the CPU device does not execute (yet): every construct, by line
    ├── NameNotFoundError       a kernel or variable that is not in the module: which are               (KeyError)
    ├── AttributeNotFoundError  a name of another library: what to write instead                (AttributeError)
    ├── LaunchError             a launch that breaks a limit: which limit, both numbers                  (ValueError)
    │   └── ArgumentError       arguments that do not fit the kernel's parameters                       (TypeError)
    ├── KernelFaultError        a kernel that could not go on: why, block, thread, line, address
    ├── CacheRefusedError       a cache directory that others could have written to
    ├── RemoteError             a shared cache that does not answer, or not as one                        (OSError)
    ├── BudgetError             a kernel that uses more than it may, or of which that is not known      (AssertionError)
    └── ClosedError             a handle, module or array that was already released
"""

from __future__ import annotations

import copyreg
import operator
import sys
import warnings
from collections.abc import Iterable, Sequence

from cujit.values import dataclass

__all__ = [
    "ArchError",
    "ArgumentError",
    "AttributeNotFoundError",
    "BudgetError",
    "BundleError",
    "CacheRefusedError",
    "CacheWarning",
    "CheckWarning",
    "ClosedError",
    "CompileError",
    "CompileWarning",
    "CujitError",
    "DeviceNotFoundError",
    "Diagnostic",
    "DriverError",
    "DriverNotFoundError",
    "FileError",
    "FormatError",
    "HeaderNotFoundError",
    "KernelFaultError",
    "LaunchError",
    "LinkError",
    "LoadError",
    "MissingError",
    "NameNotFoundError",
    "NotCompiledError",
    "NotTunedError",
    "OptionError",
    "PtxSyntaxError",
    "RemoteError",
    "ToolCrashError",
    "ToolError",
    "ToolTimeoutError",
    "ToolchainNotFoundError",
    "UnsupportedError",
]


@dataclass(frozen=True)
class Diagnostic:
    """One message of a compiler about one place in the source.

    ``line`` and ``column`` count from 1; 0 means that the compiler did not say.
    ``severity`` is ``error``, ``warning``, ``note`` or ``remark``; ``code`` is the compiler's
    own name of the message (``#20014-D``) or empty.
    """

    severity: str
    message: str
    file: str = ""
    line: int = 0
    column: int = 0
    code: str = ""
    source_line: str = ""

    def __str__(self) -> str:
        numbers = [str(n) for n in (self.line, self.column) if n]
        place = ":".join([self.file, *numbers]) + ": " if self.file else ""
        code = f" [{self.code}]" if self.code else ""
        text = f"{place}{self.severity}: {self.message}{code}"
        if self.source_line:
            text += f"\n    {self.source_line}"
            if self.column:
                # Tabs stay tabs, so that the caret stands under its character.
                lead = "".join("\t" if c == "\t" else " " for c in self.source_line[: self.column - 1])
                text += f"\n    {lead}^"
        return text


_LONGEST = 300
_LONGEST_BITS = 128


MEMORY = "/cujit-source"
"""The directory that a program compiled from a string pretends to lie in; it does not exist.

NVRTC looks for ``#include "loc.h"`` in the directory of the program's name, and a bare name means the
working directory. A name in a directory that does not exist keeps such headers out, while toolkit headers
that include their neighbours still compile (measured with 12.9 and 13.4).
"""


def spell(value: object) -> str:
    """Write a value for a message, as ``repr`` does; one that cannot be written, or is too long, in other words."""
    if isinstance(value, int) and value.bit_length() > _LONGEST_BITS:
        return f"an int of {value.bit_length()} bits"
    try:
        text = repr(value)
    except Exception:  # of anybody's object
        return f"a {type(value).__name__} whose repr fails"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


_INSIDE = (__name__.partition(".")[0] + ".", "contextlib")


def warn(message: str, category: type[Warning]) -> None:
    """Warn of the line outside of this package which wanted something."""
    level, frame = 1, sys._getframe(0)
    while frame.f_globals.get("__name__", "").startswith(_INSIDE) and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def without_frames(error: CujitError) -> CujitError:
    """Drop the frames below the caller from the traceback, and return the error.

    They are cujit's own: the message says what the user needs. Python's development mode (``-X dev``) keeps them.
    """
    return error if sys.flags.dev_mode else error.with_traceback(None)


def counted(number: int, noun: str) -> str:
    """Write a number and what it counts: ``1 block``, ``1,000 blocks``."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def alike(word: str, names: Iterable[str], *, most: int = 3, least: float = 0.6) -> list[str]:
    """Return the names most similar to a word, the best first. ``least`` is 0 for all, and 1 for the word itself."""
    from difflib import get_close_matches  # start-up: for who misspells

    return get_close_matches(word, list(names), n=most, cutoff=least)


def listed(names: Iterable[str], most: int, like: str = "") -> str:
    """Write the first names, each once, with commas, and how many more there are; those ``like`` a text first."""
    every = list(dict.fromkeys(names))
    near = alike(like, every, most=most, least=0.0) if like else []
    shown = list(dict.fromkeys((*near, *every)))[:most]
    return ", ".join(shown) + (f" and {len(every) - most:,} more" if len(every) > most else "")


def read_int(value: object, what: str, error: type[CujitError], *, least: int | None = None) -> int:
    """Read an int, or what stands for one, and no bool.

    Raises:
        CujitError: it is none, or below ``least``: the ``error``.
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None:
        raise error(f"{what} is {type(value).__name__} {spell(value)}, expected an int")
    if least is not None and number < least:
        raise error(f"{what} is {spell(number)}, expected at least {least}")
    return number


class CujitError(Exception):
    """The root of the tree: a message, ``help`` that says what to try, and the stable ``code`` of the mistake.

    A class has a code, which is its name; ``code=`` overrides it if one class has several meanings. From Python 3.11 on
    the traceback ends with the command that explains the code.
    """

    code = "failure"

    def __init_subclass__(cls) -> None:
        if cls.__module__ == __name__:
            name = cls.__name__.removesuffix("Error")
            cls.code = "".join(f"-{c.lower()}" if c.isupper() else c for c in name)[1:]

    def __init__(self, message: str, *, help: str | None = None, code: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.help = help
        self.set_code(code or self.code)

    def set_code(self, code: str) -> None:
        """Set the code, and the line at the end of the traceback that names it."""
        self.code = code
        self.__notes__ = [f"For details, run: cujit explain {code}"]

    def __str__(self) -> str:
        return f"{self.message}\n  try: {self.help}" if self.help else self.message

    def __reduce__(self) -> tuple[object, ...]:
        # By what it has become: some cannot be made of their message alone, as a copy and a pickle would.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class ArchError(CujitError, ValueError):
    """An architecture that is malformed, unknown, dropped, or not servable here."""


class OptionError(CujitError, ValueError):
    """An option that is unknown, ill-typed, or rejected by the back end in use."""


class FileError(CujitError, OSError):
    """A file that is not there, is no regular file, or cannot be read or written; ``filename`` is its path."""

    def __init__(self, message: str, *, filename: str = "", errno: int | None = None, help: str | None = None) -> None:
        super().__init__(message, help=help)
        self.filename = filename
        self.errno = errno


class FormatError(CujitError, ValueError):
    """Bytes or text that are not what they claim to be; ``offset`` counts bytes from the start, or is None."""

    def __init__(self, message: str, *, offset: int | None = None, help: str | None = None) -> None:
        super().__init__(f"{message} (at byte {offset})" if offset is not None else message, help=help)
        self.offset = offset


class PtxSyntaxError(FormatError):
    """PTX text that does not parse, or says what no assembler takes; ``line`` and ``column`` count from 1."""

    def __init__(
        self, message: str, *, line: int, column: int, source_line: str, name: str = "<ptx>", help: str | None = None
    ) -> None:
        self.diagnostic = Diagnostic("error", message, name, line, column, source_line=source_line)
        super().__init__(str(self.diagnostic), help=help)
        self.line = line
        self.column = column


class ToolError(CujitError):
    """A call into one of NVIDIA's libraries failed.

    ``tool`` is the library with its version (``NVRTC 13.4``), ``call`` the C function, ``result``
    the name of the code that it returned, ``log`` what the tool wrote.
    """

    def __init__(
        self,
        message: str,
        *,
        tool: str = "",
        call: str = "",
        result: str = "",
        log: str = "",
        help: str | None = None,
        code: str = "",
    ) -> None:
        super().__init__(message, help=help, code=code)
        self.tool = tool
        self.call = call
        self.result = result
        self.log = log

    @property
    def facts(self) -> dict[str, str]:
        """What the tool said, as the arguments of an error that explains this one."""
        return {"tool": self.tool, "call": self.call, "result": self.result, "log": self.log}

    def __str__(self) -> str:
        parts = [self.message]
        if self.call:
            parts.append(f"  call: {self.call} -> {self.result}" + (f" ({self.tool})" if self.tool else ""))
        if self.log.strip() and self.log.strip() not in self.message:
            parts.append("  log:\n" + "\n".join(f"    {line}" for line in self.log.strip().splitlines()))
        if self.help:
            parts.append(f"  try: {self.help}")
        return "\n".join(parts)


class CompileError(ToolError):
    """Source that does not compile; ``request`` prints as the exact work asked for, ``diagnostics`` are values."""

    def __init__(
        self,
        message: str,
        *,
        request: object = None,
        diagnostics: Sequence[Diagnostic] = (),
        tool: str = "",
        call: str = "",
        result: str = "",
        log: str = "",
        help: str | None = None,
    ) -> None:
        super().__init__(message, tool=tool, call=call, result=result, log=log, help=help)
        self.request = request
        self.diagnostics = tuple(diagnostics)


class HeaderNotFoundError(CompileError):
    """An ``#include`` that was not found; the message lists what was searched."""


class LinkError(ToolError):
    """Images that do not link."""


class BundleError(ToolError):
    """Images that do not go into one fatbin."""


class ToolTimeoutError(ToolError):
    """Work that took longer than ``timeout_s``; the message says which step, of which input, and how long."""


class ToolCrashError(ToolError):
    """A process apart that died at its work; ``result`` is the name of the signal, ``log`` its last words."""


class DriverError(ToolError):
    """The CUDA driver refused a call; ``log`` has what it logged since the last error (CUDA 12.9 and later)."""


class MissingError(CujitError):
    """The machine lacks something that was asked for."""


class ToolchainNotFoundError(MissingError):
    """A library of the CUDA toolkit is not installed; ``help`` names the extra that brings it."""


class DriverNotFoundError(MissingError):
    """The CUDA driver is not installed, or does not answer."""


class DeviceNotFoundError(MissingError):
    """A GPU was asked for that is not there."""


class NotCompiledError(CujitError):
    """An image that is not there, where ``CUJIT_COMPILE`` or the cache forbids to compile it.

    ``nearest`` is the entry whose inputs differ least, with what differs (it prints as both), or None; ``searched`` are
    the paths where it was sought.
    """

    def __init__(
        self, message: str, *, nearest: object = None, searched: Sequence[str] = (), help: str | None = None
    ) -> None:
        super().__init__(message, help=help)
        self.nearest = nearest
        self.searched = tuple(searched)


class NotTunedError(NotCompiledError):
    """A tuning that is not there, where ``CUJIT_TUNE`` forbids to measure; or one of which no candidate ran."""


class LoadError(CujitError):
    """An image that this device cannot take."""


class UnsupportedError(LoadError):
    """PTX that the CPU device does not execute; ``items`` holds every construct as ``(line, text, why)``."""

    def __init__(self, message: str, *, items: Sequence[tuple[int, str, str]] = (), help: str | None = None) -> None:
        super().__init__(message, help=help)
        self.items = tuple(items)


class NameNotFoundError(CujitError, KeyError):
    """A kernel or variable that is not in the module."""


class AttributeNotFoundError(CujitError, AttributeError):
    """A name that another library has and cujit does not; ``help`` shows what to write."""


class LaunchError(CujitError, ValueError):
    """A launch that breaks a limit of the kernel or of the device."""


class ArgumentError(LaunchError, TypeError):
    """Arguments that do not fit the kernel's parameters."""


class KernelFaultError(CujitError):
    """A kernel that could not go on; the launch ended early and what it wrote may be incomplete.

    ``kind`` says why, ``kernel`` which, as its source spells it; ``block`` and ``thread`` are indices ``(x, y, z)`` or
    None where not known, ``line`` is the line of the PTX (0: not known), ``address`` that of the access or None.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: str = "",
        kernel: str = "",
        block: tuple[int, int, int] | None = None,
        thread: tuple[int, int, int] | None = None,
        line: int = 0,
        address: int | None = None,
        help: str | None = None,
    ) -> None:
        super().__init__(message, help=help, code=f"fault-{kind}".replace("_", "-") if kind else "")
        self.kind = kind
        self.kernel = kernel
        self.block = block
        self.thread = thread
        self.line = line
        self.address = address


class BudgetError(CujitError, AssertionError):
    """A kernel that uses more than its budget allows, or of which that is not known; ``report`` has every row."""

    def __init__(self, message: str, *, report: object = None, help: str | None = None) -> None:
        super().__init__(message, help=help)
        self.report = report


class CacheRefusedError(CujitError):
    """A cache directory that others could have written to; ``help`` is the command that puts it right."""


class RemoteError(CujitError, OSError):
    """A shared cache that does not answer, or not as one; ``retry_after_s`` is how long it wants to be left alone."""

    def __init__(self, message: str, *, retry_after_s: float | None = None, help: str | None = None) -> None:
        super().__init__(message, help=help)
        self.retry_after_s = retry_after_s


class CacheWarning(UserWarning):
    """The cache cannot do its work here; compilation goes on without it."""


class CompileWarning(UserWarning):
    """Something was compiled where ``CUJIT_COMPILE=warn``, or the cache, wants it found."""


class CheckWarning(UserWarning):
    """A check of the CPU device saw what may be meant: an access outside of a view, in the array that this is of."""


class ClosedError(CujitError):
    """A handle, a module or an array that was already released."""
