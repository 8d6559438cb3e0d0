"""All exceptions that cujit raises.

::

    CujitError
    ├── ArchError               an architecture is malformed, unknown, dropped or unsupported here      (ValueError)
    ├── OptionError             an option is unknown, has the wrong type, or isn't supported            (ValueError)
    ├── FileError               a file doesn't exist, or can't be read or written                       (OSError)
    ├── FormatError             bytes or text are damaged or not in the expected format                 (ValueError)
    │   └── PtxSyntaxError      the PTX is malformed: line, column, caret
    ├── ToolError               a call to an NVIDIA library failed: call, result, version, log
    │   ├── CompileError        the source doesn't compile: request, diagnostics
    │   │   └── HeaderNotFoundError   an ``#include`` wasn't found: searched directories
    │   ├── LinkError           the images can't be linked
    │   ├── BundleError         the images can't be combined into one fatbin
    │   ├── ToolTimeoutError    the work took longer than its time limit
    │   ├── ToolCrashError      a separate process (``isolate=True``) crashed or reached its memory limit
    │   └── DriverError         a call to the CUDA driver failed
    ├── MissingError            a required component is missing
    │   ├── ToolchainNotFoundError    a library of the CUDA toolkit: the wheel to install
    │   ├── DriverNotFoundError       the CUDA driver
    │   └── DeviceNotFoundError       a GPU with the requested number
    ├── NotCompiledError        the image isn't in the cache, and compiling is forbidden: nearest entry
    │   └── NotTunedError       no tuning result exists and measuring is forbidden, or no candidate runs
    ├── LoadError               this device can't load the image
    │   └── UnsupportedError    the CPU device doesn't support some of the PTX: each construct, by line
    ├── NameNotFoundError       the module has no such kernel or variable: existing names               (KeyError)
    ├── AttributeNotFoundError  a name of another library: the cujit name to use                        (AttributeError)
    ├── LaunchError             a launch exceeds a limit: the limit and both numbers                    (ValueError)
    │   └── ArgumentError       the arguments don't match the kernel's parameters                       (TypeError)
    ├── KernelFaultError        a kernel couldn't continue: reason, block, thread, line, address
    ├── CacheRefusedError       other users could have modified the cache directory
    ├── RemoteError             a shared cache doesn't respond, or its response is invalid              (OSError)
    ├── BudgetError             a kernel exceeds its budget, or its usage is unknown                    (AssertionError)
    └── ClosedError             a handle, module or array is used after it was released
"""

from __future__ import annotations

import copyreg
import operator
import sys
import warnings
from collections.abc import Iterable, Sequence

from cujit.values import dataclass

TYPE_CHECKING = False  # start-up: as of typing, which takes long to import
if TYPE_CHECKING:
    from cujit.errors.stories import Story

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

    ``line`` and ``column`` count from 1, and 0 means that the compiler did not report them. ``severity`` is ``error``,
    ``warning``, ``note`` or ``remark``. ``code`` is the compiler's identifier of the message (``#20014-D``), or empty.
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
    """Return the ``repr`` of a value for a message, or a short text if the ``repr`` fails or is too long."""
    if isinstance(value, int) and value.bit_length() > _LONGEST_BITS:
        return f"an int of {value.bit_length()} bits"
    try:
        text = repr(value)
    except Exception:  # of anybody's object
        return f"a {type(value).__name__} whose repr fails"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


_INSIDE = (__name__.partition(".")[0] + ".", "contextlib")


def warn(message: str, category: type[Warning]) -> None:
    """Issue a warning at the line outside this package that called it."""
    level, frame = 1, sys._getframe(0)
    while frame.f_globals.get("__name__", "").startswith(_INSIDE) and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def without_frames(error: CujitError) -> CujitError:
    """Remove the frames below the caller from an error's traceback, and return the error.

    These are cujit's frames, which the user doesn't need because the message is sufficient. Python's development mode
    (``-X dev``) keeps them.
    """
    return error if sys.flags.dev_mode else error.with_traceback(None)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as ``1 block`` or ``1,000 blocks``."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def alike(word: str, names: Iterable[str], *, most: int = 3, least: float = 0.6) -> list[str]:
    """Return the names most similar to a word, the best first.

    ``least`` is the minimum similarity. 0 accepts all names, and 1 accepts only the word itself.
    """
    from difflib import get_close_matches  # start-up: for who misspells

    return get_close_matches(word, list(names), n=most, cutoff=least)


def listed(names: Iterable[str], most: int, like: str = "") -> str:
    """Return a comma-separated list of the first unique names, and the number of further names.

    If ``like`` is not empty, the names most similar to it are first.
    """
    every = list(dict.fromkeys(names))
    near = alike(like, every, most=most, least=0.0) if like else []
    shown = list(dict.fromkeys((*near, *every)))[:most]
    return ", ".join(shown) + (f" and {len(every) - most:,} more" if len(every) > most else "")


def read_int(value: object, what: str, error: type[CujitError], *, least: int | None = None) -> int:
    """Return the value of an int or an object that Python accepts as an index. Refuse a bool.

    Raises:
        CujitError: the value is not an int, or is below ``least``. ``error`` is the class.
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
    """The base class of all errors, with a message, a hint in ``help`` and a stable error ``code``.

    By default, the code is the class name; ``code=`` overrides it if a class has several meanings. In Python 3.11 and
    later, the traceback ends with the command that explains the code.
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
        return f"{self.message}\n  hint: {self.help}" if self.help else self.message

    def __reduce__(self) -> tuple[object, ...]:
        # By what it has become: some cannot be made of their message alone, as a copy and a pickle would.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class ArchError(CujitError, ValueError):
    """An architecture is malformed, unknown, no longer supported, or not supported here."""


class OptionError(CujitError, ValueError):
    """An option is unknown, has the wrong type, or is rejected by the back end in use."""


class FileError(CujitError, OSError):
    """A file doesn't exist, isn't a regular file, or can't be read or written; ``filename`` is its path."""

    def __init__(self, message: str, *, filename: str = "", errno: int | None = None, help: str | None = None) -> None:
        super().__init__(message, help=help)
        self.filename = filename
        self.errno = errno


class FormatError(CujitError, ValueError):
    """Bytes or text are damaged or not in the expected format. ``offset`` is the byte offset, or None."""

    def __init__(self, message: str, *, offset: int | None = None, help: str | None = None) -> None:
        super().__init__(f"{message} (at byte {offset})" if offset is not None else message, help=help)
        self.offset = offset


class PtxSyntaxError(FormatError):
    """PTX can't be parsed, or no assembler accepts it; ``line`` and ``column`` count from 1."""

    def __init__(
        self, message: str, *, line: int, column: int, source_line: str, name: str = "<ptx>", help: str | None = None
    ) -> None:
        self.diagnostic = Diagnostic("error", message, name, line, column, source_line=source_line)
        super().__init__(str(self.diagnostic), help=help)
        self.line = line
        self.column = column


class ToolError(CujitError):
    """A call to an NVIDIA library failed.

    ``tool`` is the library with its version (``NVRTC 13.4``), ``call`` is the C function, ``result`` is the name of the
    code that the function returned, and ``log`` is the output of the library.
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
        """The tool, call, result, and log, as keyword arguments for another error that explains this one."""
        return {"tool": self.tool, "call": self.call, "result": self.result, "log": self.log}

    def __str__(self) -> str:
        parts = [self.message]
        if self.call:
            parts.append(f"  call: {self.call} -> {self.result}" + (f" ({self.tool})" if self.tool else ""))
        if self.log.strip() and self.log.strip() not in self.message:
            parts.append("  log:\n" + "\n".join(f"    {line}" for line in self.log.strip().splitlines()))
        if self.help:
            parts.append(f"  hint: {self.help}")
        return "\n".join(parts)


class CompileError(ToolError):
    """The source doesn't compile; ``request`` is the compile request, and ``diagnostics`` contains the messages."""

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
    """An ``#include`` wasn't found; the message lists the directories that were searched."""


class LinkError(ToolError):
    """The images can't be linked."""


class BundleError(ToolError):
    """The images can't be combined into one fatbin."""


class ToolTimeoutError(ToolError):
    """An operation took longer than ``timeout_s``; the message names the step, the input and the elapsed time."""


class ToolCrashError(ToolError):
    """A separate process crashed; ``result`` is the name of the signal, and ``log`` is the last output."""


class DriverError(ToolError):
    """A CUDA driver call failed; ``log`` contains driver messages since the last error (CUDA 12.9 and later)."""


class MissingError(CujitError):
    """A required component is missing on this machine."""


class ToolchainNotFoundError(MissingError):
    """A library of the CUDA toolkit isn't installed; ``help`` names the extra that includes it."""


class DriverNotFoundError(MissingError):
    """The CUDA driver isn't installed or doesn't respond."""


class DeviceNotFoundError(MissingError):
    """The requested GPU doesn't exist."""


class NotCompiledError(CujitError):
    """An image isn't in the cache, and ``CUJIT_COMPILE`` or the cache forbids compiling it.

    ``nearest`` is the cache entry with the most similar inputs, including the differences, or None. ``searched`` lists
    the paths that were searched.
    """

    def __init__(
        self, message: str, *, nearest: object = None, searched: Sequence[str] = (), help: str | None = None
    ) -> None:
        super().__init__(message, help=help)
        self.nearest = nearest
        self.searched = tuple(searched)


class NotTunedError(NotCompiledError):
    """A tuning result doesn't exist and ``CUJIT_TUNE`` forbids measuring, or no candidate ran."""


class LoadError(CujitError):
    """The device can't load the image."""


class UnsupportedError(LoadError):
    """The CPU device doesn't support some of the PTX; ``items`` lists each construct as ``(line, text, why)``."""

    def __init__(self, message: str, *, items: Sequence[tuple[int, str, str]] = (), help: str | None = None) -> None:
        super().__init__(message, help=help)
        self.items = tuple(items)


class NameNotFoundError(CujitError, KeyError):
    """The module has no kernel or variable with this name."""


class AttributeNotFoundError(CujitError, AttributeError):
    """The name belongs to another library, not to cujit; ``help`` shows the cujit code to write."""


class LaunchError(CujitError, ValueError):
    """A launch exceeds a limit of the kernel or of the device."""


class ArgumentError(LaunchError, TypeError):
    """The arguments don't match the kernel's parameters."""


class KernelFaultError(CujitError):
    """A kernel couldn't continue. The launch ended early, and the memory that it wrote may be incomplete.

    ``kind`` is the reason, and ``kernel`` is the kernel's name as in its source. ``block`` and ``thread`` are indices
    ``(x, y, z)``, or None if unknown. ``line`` is the PTX line, or 0 if unknown. ``address`` is the accessed address,
    or None. ``source`` is the line of the source as ``file:line``, or empty if unknown. ``story`` shows the actions of
    two threads in a race or a deadlock, or is None. Use ``print(error.story)``, or ``error.story.svg()`` for a picture.
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
        self.source = ""
        self.story: Story | None = None

    def tell(self, story: Story) -> None:
        """Add a story, also to the end of the traceback."""
        self.story = story
        self.__notes__.insert(0, str(story))


class BudgetError(CujitError, AssertionError):
    """A kernel exceeds its budget, or its resource usage can't be determined; ``report`` contains every row."""

    def __init__(self, message: str, *, report: object = None, help: str | None = None) -> None:
        super().__init__(message, help=help)
        self.report = report


class CacheRefusedError(CujitError):
    """Other users could have modified the cache directory; ``help`` is the command that repairs it."""


class RemoteError(CujitError, OSError):
    """A shared cache doesn't respond, or its response is invalid; ``retry_after_s`` is the delay that it requests."""

    def __init__(self, message: str, *, retry_after_s: float | None = None, help: str | None = None) -> None:
        super().__init__(message, help=help)
        self.retry_after_s = retry_after_s


class CacheWarning(UserWarning):
    """The cache can't be used here; cujit compiles without it."""


class CompileWarning(UserWarning):
    """cujit compiled an image that ``CUJIT_COMPILE=warn`` or the cache expects to be in the cache."""


class CheckWarning(UserWarning):
    """A kernel accessed memory outside a view but inside the view's array, which may be intended."""


class ClosedError(CujitError):
    """A handle, a module or an array was used after it was released."""
