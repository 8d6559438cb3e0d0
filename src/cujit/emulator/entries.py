"""Entry points in Python: how one is declared, what is looked at before it, and how its errors become answers.

    @in_any_context("cuMemGetInfo_v2", "PP")
    def mem_get_info(free: int, total: int) -> None:
        store_u64(free, …)

What a body raises is the answer: ``RefusedCall`` names it, and every error of cujit's own tree has one. A fault of
ours is ``CUDA_ERROR_UNKNOWN``, with its traceback on standard error: it must not reach a caller who knows no Python.
"""

from __future__ import annotations

import ctypes
import re
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

from cujit.emulator.machine import cell_new, for_c, in_c, native
from cujit.emulator.process import emulation, say
from cujit.emulator.results import RefusedCall, Result
from cujit.emulator.structures import CellKind
from cujit.errors import (
    CompileError,
    CujitError,
    FormatError,
    LinkError,
    LoadError,
    NameNotFoundError,
    UnsupportedError,
)
from cujit.values import NamedTuple

_TYPES: dict[str, Any] = {
    "P": ctypes.c_uint64,
    "S": ctypes.c_uint64,
    "U": ctypes.c_uint32,
    "I": ctypes.c_int32,
    "F": ctypes.c_float,
}
"""Letters for the types of parameters: pointers, handles and sizes; a stream; unsigned and signed numbers of 32 bits;
floats. Where the flavour of a function has it so, a stream of 0 comes as ``OWN_STREAM``.
"""

LEGACY_STREAM, OWN_STREAM = 1, 2
"""Handles of the default streams: the context's, the calling thread's. Source: CUDA Driver API manual."""

_ANSWERS: tuple[tuple[type[CujitError], Result], ...] = (
    (NameNotFoundError, Result.NOT_FOUND),
    (UnsupportedError, Result.NOT_SUPPORTED),
    (FormatError, Result.INVALID_IMAGE),
    (LinkError, Result.INVALID_PTX),
    (CompileError, Result.INVALID_PTX),
    (LoadError, Result.INVALID_IMAGE),
)
"""What errors of cujit answer where an entry point does not say it itself."""


class EntryPoint(NamedTuple):
    """An entry point in Python. ``begin`` returns the first arguments of its body, or refuses the call."""

    name: str
    types: str
    begin: Callable[[], tuple[int, ...]]
    body: Callable[..., int | None]

    def answer(self, *arguments: int) -> int:
        """Answer a call."""
        result, notes = self.quiet_answer(*arguments), emulation().notes
        if notes.watches:
            notes.answered(self.name, arguments, result, emulation().words(result))
        return result

    def quiet_answer(self, *arguments: int) -> int:
        """Answer without a note: a call of the emulator's own."""
        try:
            emulation().call_counts[self.name] += 1
            return int(self.body(*self.begin(), *arguments) or 0)
        except RefusedCall as e:
            emulation().remember(e)
            return e.result
        except CujitError as e:
            answer = next((result for kind, result in _ANSWERS if isinstance(e, kind)), Result.UNKNOWN)
            emulation().remember(RefusedCall(answer, str(e)))
            return answer
        except KeyboardInterrupt:
            raise  # for the caller: see ``for_c``
        except BaseException:
            say(f"{self.name} failed because of a bug in cujit:\n{traceback.format_exc()}")
            return Result.UNKNOWN

    def pointer(self, own_stream: bool = False, *, is_noted: bool = True) -> Any:
        """Make the function that C calls, or the flavour of it; it lives as long as what is given. What C asks by
        itself is no call of the program, and is not noted.
        """
        types, answer = [_TYPES[letter] for letter in self.types], self.answer if is_noted else self.quiet_answer
        if own_stream and "S" in self.types:
            rest = [OWN_STREAM if letter == "S" else 0 for letter in self.types]

            def answer(*given: int) -> int:
                return self.answer(*(a or b for a, b in zip(given, rest, strict=True)))

        after = AFTER_END.get(self.name)
        last: Any = Result.SUCCESS if gives_back(self.name) else Result.DEINITIALIZED
        if after is not None:
            last = ctypes.CFUNCTYPE(ctypes.c_int32, *types)(native().address(after))
        return for_c(ctypes.c_int32, types, answer, last, Result.UNKNOWN)


AFTER_END = {"cuGetErrorName": "error_name", "cuGetErrorString": "error_string"}
"""The functions in C that answer calls when Python ends.

Functions that free or unload succeed at that time: the process ends, and clients abort on an error in a destructor. All
other functions give ``CUDA_ERROR_DEINITIALIZED``.
"""

_GIVES_BACK = re.compile(r"(?:Free|Destroy|Unload|Release|Unregister)(?![a-z])")


def gives_back(function: str) -> bool:
    """Return whether a function of the driver releases an object, by its name."""
    return _GIVES_BACK.search(function) is not None


ENTRIES: dict[str, EntryPoint] = {}
"""Every entry point in Python, by the driver's name without a stream's flavour."""

_ready = in_c("emulator_ready", ctypes.c_int32)
_context = in_c("emulator_context", ctypes.c_int32, ctypes.POINTER(ctypes.c_uint64))

_Body = Callable[..., int | None]


def _declaring(begin: Callable[[], tuple[int, ...]]) -> Callable[..., Callable[[_Body], _Body]]:
    def declare(names: str, types: str) -> Callable[[_Body], _Body]:
        def register(body: _Body) -> _Body:
            for name in names.split():
                assert name not in ENTRIES, f"{name} is declared twice"
                ENTRIES[name] = EntryPoint(name, types, begin, body)
            return body

        return register

    return declare


def checked(answer: int, words: str = "", *, hint: str = "") -> None:
    """Raise the error that C code returned, unless it is success."""
    if answer:
        raise RefusedCall(Result(answer), words, hint=hint)


def current_context() -> int:
    """Return the thread's context.

    Raises:
        Refused: the thread has no context, or the context has a sticky error.
    """
    found = ctypes.c_uint64()
    checked(_context(found))
    return found.value


def _started() -> tuple[int, ...]:
    checked(_ready())
    return ()


def _in_any_context() -> tuple[int, ...]:
    current_context()
    return ()


def _unfailed() -> tuple[int, ...]:
    answer = _context(ctypes.c_uint64())
    checked(0 if answer == Result.INVALID_CONTEXT else answer)
    return ()


always = _declaring(tuple)
"""Declare an entry point that is answered before ``cuInit``, too."""
started = _declaring(_started)
"""Declare an entry point that is answered after ``cuInit``."""
unfailed = _declaring(_unfailed)
"""Declare an entry point that names what it is about and needs no current context; if there is one, no error may stick
to it."""
in_any_context = _declaring(_in_any_context)
"""Declare an entry point that needs a current context, with no error that sticks to it."""
in_context = _declaring(lambda: (current_context(),))
"""Declare the same of an entry point whose body gets the context before the caller's arguments."""


def without_data(names: str, types: str, place: int) -> Callable[[_Body], _Body]:
    """Declare the older form of a call on edges, which lacks the argument for edge data."""

    def declare(body: _Body) -> _Body:
        started(names, types)(lambda *given: body(*given[:place], 0, *given[place:]))
        return body

    return declare


# -- memory of the caller -----------------------------------------------------------------------------------


def require(condition: object, result: Result = Result.INVALID_VALUE, words: str = "", *, hint: str = "") -> None:
    """Refuse a call unless a condition holds."""
    if not condition:
        raise RefusedCall(result, words, hint=hint)


_Found = TypeVar("_Found")


def got(found: _Found | None, result: Result = Result.INVALID_VALUE, words: str = "", *, hint: str = "") -> _Found:
    """Return a value that was looked up, or refuse the call if it is None."""
    if found is None:
        raise RefusedCall(result, words, hint=hint)
    return found


def store(pointer: int, type_: Any, value: int) -> None:
    """Write a number to the caller's memory. A null pointer is refused."""
    require(pointer)
    type_.from_address(pointer).value = value


def store_u32(pointer: int, value: int) -> None:
    """Write 32 bits."""
    store(pointer, ctypes.c_uint32, value & 0xFFFFFFFF)


def store_u64(pointer: int, value: int) -> None:
    """Write a pointer, a handle or a size."""
    store(pointer, ctypes.c_uint64, value)


def load_u64(pointer: int, index: int = 0) -> int:
    """Read a pointer, a handle or a size from an array of them."""
    require(pointer)
    return ctypes.c_uint64.from_address(pointer + 8 * index).value


def text_at(pointer: int) -> str:
    """Read a string of C."""
    require(pointer)
    return ctypes.string_at(pointer).decode(errors="surrogateescape")


def new_cell(kind: CellKind, context: int = 0) -> int:
    """Create a cell of a kind in a context, and return its handle.

    Raises:
        Refused: there is no memory for it.
    """
    handle: int = cell_new(kind, context)
    require(handle, Result.OUT_OF_MEMORY)
    return handle
