"""Shared parts of the documented calls of every library: checked handles, buffers, sizes, names, and options.

A wrong argument never reaches the C library, which would access invalid memory. The library's own error class refuses
it as a usage error, which is also a ValueError and a TypeError.
"""

from __future__ import annotations

import operator
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, NoReturn, TypeAlias

from cujit.errors import ToolError, spell
from cujit.forks import register_reset
from cujit.toolchain.handles import HandleLedger, HandleNumber
from cujit.toolchain.libraries import load_binding, open_library
from cujit.toolchain.results import ResultCode

Readable: TypeAlias = Any
"""bytes, bytearray, memoryview, a NumPy array: anything with the buffer protocol, but no str and no address."""

Buffer: TypeAlias = Any
"""A writable Readable: bytearray, a NumPy array, a writable memoryview, a ctypes array."""


class CallError(ToolError):
    """A documented call that was refused; ``status`` is the library's code, ``result`` the code's C name.

    ``CallError(8)`` makes the error of a bare code, as the classes of cuda.bindings do.
    """

    codes: ClassVar[type[ResultCode]]
    bad_handle: ClassVar[ResultCode]
    bad_argument: ClassVar[ResultCode]
    """The codes of calls which are not made because a handle, or another argument, is wrong."""

    def __init__(
        self,
        status: int,
        message: str = "",
        *,
        tool: str = "",
        call: str = "",
        log: str = "",
        help: str | None = None,
    ) -> None:
        self.status: ResultCode = self.codes(int(status))
        words = f"{self.status.name} ({int(status)})"
        super().__init__(
            message or words, tool=tool, call=call, result=self.status.c_name, log=log.rstrip("\0"), help=help
        )


class _Callers:
    """The threads inside NVIDIA's libraries. A child forked during their calls finds locks that are never released."""

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self.were_lost = False
        register_reset(self)

    def after_fork(self) -> None:
        self.were_lost = self.were_lost or bool(self.threads)
        self.threads.clear()


_callers = _Callers()


def may_be_locked() -> bool:
    """Return whether a call may wait forever: another thread was in a library when this process was forked.

    Measured with NVRTC 13.5: of the children that are forked while another thread compiles, half never end a compile.
    """
    return _callers.were_lost


class ToolLibrary:
    """An NVIDIA library behind its documented calls. The bindings are imported at the first call.

    ``name`` is its name for users, and ``binding`` the module of cuda.bindings. ``refused`` is the error class for its
    failures. ``misused`` is derived from it for calls that aren't made because an argument is wrong.
    """

    def __init__(self, name: str, binding: str, refused: type[CallError]) -> None:
        """Import the bindings of the library.

        Raises:
            ToolchainNotFoundError: cuda-bindings is not installed, or has no such module.
        """
        self.name = name
        self.binding = binding
        self.api: Any = load_binding(binding, name)
        self.ledger = HandleLedger()
        self.tool = name
        self._refused = refused
        self.misused: type[CallError] = type("UsageError", (refused, ValueError, TypeError), {})

    # Calls

    def call(
        self, function: str, method: str, *arguments: Any, log: Callable[[], str] = str, about: Callable[[], str] = str
    ) -> Any:
        """Call a function of the bindings. ``function`` is its C name, and ``about()`` describes the failed operation.

        Raises:
            CallError: the library returned an error or lacks the function. ``log`` returns its log.
            ToolchainNotFoundError: the library is not installed or can't be opened.
        """
        try:
            return self._has(function, lambda: getattr(self.api, method)(*arguments))
        except Exception as e:
            status = _status(e)
            if status is None or isinstance(e, ToolError):
                raise
            raise self.error(status, function, log(), about=about()) from None

    def answer(self, function: str, *arguments: Any) -> tuple[Any, ...]:
        """Call a function of bindings that return ``(code, value…)``, and return this tuple.

        Raises:
            CallError: the library lacks the function.
            ToolchainNotFoundError: the library is not installed or can't be opened.
        """
        given: tuple[Any, ...] = self._has(function, lambda: getattr(self.api, function)(*arguments))
        return given

    def _has(self, function: str, call: Callable[[], Any]) -> Any:
        me = threading.get_ident()
        _callers.threads.add(me)
        try:
            return open_library(self.name, self.binding, call)
        except AttributeError:
            self.misuse(
                function, f"this version of cuda-bindings doesn't provide {function}", "pip install -U cuda-bindings"
            )
        except ToolError:
            raise
        except Exception as e:
            if type(e.__cause__).__name__ == "FunctionNotFoundError":
                self.misuse(function, f"this {self.tool} has no {function}", "update the toolkit to a newer release")
            raise
        finally:
            _callers.threads.discard(me)

    def error(
        self, status: int, function: str, log: str = "", help: str | None = None, *, about: str = ""
    ) -> CallError:
        """Make the error of a call that the library refused; ``about`` is the option or the input that it refused."""
        words = f"{self.tool} refused {function}: {self._refused.codes(status).name} ({status})"
        words += f": {about}" if about else ""
        return self._refused(status, words, tool=self.tool, call=function, log=log, help=help)

    def misuse(self, function: str, message: str, help: str | None = None) -> NoReturn:
        """Refuse an argument before the call is made.

        Raises:
            CallError: always.
        """
        raise self.misused(
            self._refused.bad_argument, f"{function}: {message}", tool=self.tool, call=function, help=help
        )

    def refused_options(self, options: Sequence[str], create: Callable[[list[str]], Any], base: str = "") -> str:
        """Return the options that the library rejects. Each is tried together with ``base``."""

        def is_taken(some: list[str]) -> bool:
            try:
                self.api.destroy(create(some))
            except Exception as e:
                if (status := _status(e)) is None:
                    raise
                return self._refused.codes(status).name != "ERROR_UNRECOGNIZED_OPTION"
            return True

        needed = [option for option in options if base and option.startswith(base)]
        wrong = [option for option in options if option not in needed and not is_taken([*needed, option])]
        return " ".join(wrong or options)

    # Handles

    def made(self, what: str, raw: Any) -> HandleNumber:
        """Enter a handle that the library has just made."""
        handle = HandleNumber.of(what, raw)
        self.ledger.opened(handle)
        return handle

    @contextmanager
    def using(self, function: str, given: object, *keep: object) -> Iterator[Any]:
        """Check a handle, and yield the value for the bindings. No other thread uses or destroys the handle meanwhile.

        Objects in ``keep`` live as long as the handle.

        Raises:
            CallError: it is not an open handle of this library.
        """
        handle = self._handle(function, given)
        with handle.lock:
            self._handle(function, handle)
            handle.kept += keep
            yield handle.raw

    @contextmanager
    def ending(self, function: str, given: object) -> Iterator[Any]:
        """Check a handle as ``using`` does, for the call that destroys it.

        Raises:
            CallError: it is not an open handle of this library.
        """
        handle = self._handle(function, given)
        with handle.lock:
            self._handle(function, handle)
            self.ledger.closed(handle)
            yield handle.raw
            handle.kept.clear()

    def _handle(self, function: str, given: object) -> HandleNumber:
        if isinstance(given, bool) or not hasattr(given, "__index__"):
            raise self._no_handle(function, f"{spell(given)} is not a valid handle")
        number = given if isinstance(given, HandleNumber) else operator.index(given)
        found = self.ledger.find(number)
        if found is not None:
            return found
        if not isinstance(number, HandleNumber):
            raise self._no_handle(
                function,
                f"{number:#x} is not an open handle of {self.name}: this process never created it, or has destroyed it",
            )
        if not number.what.startswith(self.name):
            raise self._no_handle(function, f"this handle belongs to another library: {number.what}")
        raise self._no_handle(function, f"this {number.what} has been destroyed")

    def _no_handle(self, function: str, message: str) -> CallError:
        return self.misused(
            self._refused.bad_handle,
            f"{function}: {message}",
            tool=self.tool,
            call=function,
            help="pass a handle that a create call returned and that hasn't been destroyed",
        )

    # Arguments

    def text(self, function: str, what: str, given: object, *, optional: bool = False) -> str:
        """Check a str that C reads up to a NUL. An optional None becomes an empty string.

        Raises:
            CallError: it is not a str, or contains a NUL.
        """
        if given is None and optional:
            return ""
        if not isinstance(given, str):
            self.misuse(function, f"{what} is {type(given).__name__}, expected str")
        if "\0" in given:
            self.misuse(function, f"{what} holds a NUL, where C would stop reading: {spell(given)}")
        try:
            given.encode()
        except UnicodeEncodeError as e:
            self.misuse(function, f"{what} can't be written as UTF-8: {e.reason}")
        return given

    def texts(self, function: str, what: str, count: object, given: object) -> list[str]:
        """Check a list of options and that ``count`` is its length.

        Raises:
            CallError: it is not a list of str, or has another length.
        """
        if given is None:
            given = ()
        if isinstance(given, str | bytes | int) or not isinstance(given, Sequence):
            self.misuse(
                function, f"{what} is {type(given).__name__}, expected a list of str", "options=['-arch=compute_90']"
            )
        plain = [item.decode("utf-8", "surrogateescape") if isinstance(item, bytes) else item for item in given]
        listed = [self.text(function, f"{what}[{i}]", item) for i, item in enumerate(plain)]
        self.count(function, what, count, len(listed))
        return listed

    def count(self, function: str, what: str, given: object, real: int) -> int:
        """Check that a number or a size is the real one.

        Raises:
            CallError: it is no int, or another one.
        """
        if isinstance(given, bool) or not hasattr(given, "__index__"):
            self.misuse(function, f"the size of {what} is {spell(given)}, expected an int")
        if operator.index(given) != real:
            self.misuse(function, f"the stated size of {what} is {given}, but the real size is {real}", f"say {real}")
        return real

    def data(self, function: str, what: str, given: Readable, size: object) -> bytes:
        """Check bytes to read and that ``size`` is their number.

        Raises:
            CallError: the argument is not bytes, or has another size.
        """
        if isinstance(given, str):
            self.misuse(function, f"{what} is str, expected bytes", f"{what}.encode()")
        try:
            content = memoryview(given).tobytes()
        except TypeError:
            self.misuse(function, f"{what} is {type(given).__name__}, expected bytes, bytearray or memoryview")
        self.count(function, what, size, len(content))
        return content

    def into(self, function: str, given: Buffer, needed: int) -> memoryview:
        """Check a buffer for ``needed`` bytes, and return a view of this size.

        Raises:
            CallError: it is read-only, too small, or not a buffer.
        """
        instead = f"pass bytearray({needed}), or a writable memoryview or NumPy array of at least that many bytes"
        try:
            view = memoryview(given)
        except TypeError:
            self.misuse(function, f"the buffer is {type(given).__name__}, which can't be written", instead)
        if view.readonly:
            self.misuse(function, f"the buffer is {type(given).__name__}, which is immutable", instead)
        if not view.c_contiguous:
            self.misuse(function, "the buffer is not contiguous", instead)
        if view.nbytes < needed:
            self.misuse(function, f"the buffer is too small: {view.nbytes} bytes for {needed}", instead)
        try:
            return (view.cast("B") if view.nbytes else memoryview(bytearray()))[:needed]
        except (TypeError, ValueError):
            self.misuse(function, f"the items of the buffer are {view.format!r}; they must be plain numbers", instead)

    def fill(self, function: str, given: Buffer, needed: int, read: Callable[[bytearray], object]) -> None:
        """Let ``read`` fill a buffer of exactly ``needed`` bytes, and copy it to the user's buffer.

        Raises:
            CallError: the user's buffer is read-only, too small, or not a buffer.
        """
        target = self.into(function, given, needed)
        content = bytearray(needed)
        if needed:
            read(content)
            target[:] = content

    # What it made, and wrote; ``what`` is how the bindings call it: ``linked_cubin``

    def size(self, handle: object, function: str, what: str) -> int:
        """Return the size in bytes of a result of the library.

        Raises:
            CallError: it is not an open handle of this library, or there is no such result.
        """
        with self.using(function, handle) as raw:
            size: int = self.call(function, f"get_{what}_size", raw)
        return size

    def get(self, handle: object, function: str, what: str, buffer: Buffer) -> None:
        """Write a result of the library to a buffer.

        Raises:
            CallError: as ``size`` and ``fill``.
        """
        with self.using(function, handle) as raw:
            size = self.call(f"{function}Size", f"get_{what}_size", raw)
            self.fill(function, buffer, size, lambda content: self.call(function, f"get_{what}", raw, content))

    def take(self, handle: object, function: str, what: str) -> bytes:
        """Return the content that the library has for a handle.

        Raises:
            CallError: as of ``size``.
        """
        content = bytearray(self.size(handle, f"{function}Size", what))
        self.get(handle, function, what, content)
        return bytes(content)

    def log(self, raw: Any, what: str) -> str:
        """Read a log for an error. A second failure must not hide the first."""
        try:
            content = bytearray(getattr(self.api, f"get_{what}_size")(raw))
            if content:
                getattr(self.api, f"get_{what}")(raw, content)
        except Exception as e:
            if _status(e) is None:
                raise
            return ""
        return as_text(content)

    def file(self, function: str, given: object) -> str:
        """Check the path of a file to read.

        Raises:
            CallError: there is no file, it is a directory, empty, or not readable.
        """
        if not isinstance(given, str | os.PathLike):
            self.misuse(function, f"the file name is {type(given).__name__}, expected str or a path")
        path = self.text(function, "the file name", os.fspath(given))
        if os.path.isdir(path):
            self.misuse(function, f"{path} is a directory")
        if not os.path.exists(path):
            self.misuse(function, f"there is no file {path}")
        if not os.path.getsize(path) and os.path.isfile(path):
            self.misuse(function, f"{path} is empty")
        if not os.access(path, os.R_OK):
            self.misuse(function, f"you don't have permission to read {path}")
        return path


def _status(error: Exception) -> int | None:
    """Return the result code of an error from any binding, or None for another error."""
    status = getattr(error, "status", None)
    return None if status is None else int(status)


def as_text(content: bytes | bytearray) -> str:
    """Return a library's output up to its final NUL."""
    return content.rstrip(b"\0").decode("utf-8", "replace")
