"""nvJitLink, the run-time device linker: NVIDIA's documented calls by their names, checked, and a Linker over them.

The functions take and give what ``cuda.bindings.nvjitlink`` documents; wrong handles, sizes and buffers are
refused before C sees them. Source: nvJitLink user guide; cuda.bindings.nvjitlink.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from cujit.artifact import ImageKind
from cujit.errors import spell
from cujit.forks import once
from cujit.toolchain.calls import Buffer, CallError, Readable, ToolLibrary, as_text
from cujit.toolchain.handles import LibraryHandle
from cujit.toolchain.libraries import library_path, load_binding
from cujit.toolchain.results import InputType
from cujit.toolchain.results import NvJitLinkResult as Result

__all__ = [
    "InputType",
    "Linker",
    "NvJitLink",
    "Result",
    "add_data",
    "add_file",
    "complete",
    "create",
    "destroy",
    "get_error_log",
    "get_error_log_size",
    "get_info_log",
    "get_info_log_size",
    "get_linked_cubin",
    "get_linked_cubin_size",
    "get_linked_ltoir",
    "get_linked_ltoir_size",
    "get_linked_ptx",
    "get_linked_ptx_size",
    "nvJitLinkError",
    "version",
]


class nvJitLinkError(CallError):  # noqa: N801  # NVIDIA's name
    """An error of nvJitLink. ``status`` is a Result, and ``error_log`` and ``info_log`` are the logs of the handle."""

    codes = Result
    bad_handle, bad_argument = Result.ERROR_NULL_INPUT, Result.ERROR_INVALID_INPUT
    info_log: str = ""

    @property
    def error_log(self) -> str:
        """The linker's error messages, same as ``log``."""
        return self.log


def __getattr__(name: str) -> InputType:
    """Find an input type under its C name, and say of LLVM IR, which is none, how it is linked."""
    if name.startswith("NVJITLINK_INPUT_"):
        if name in InputType.__members__:
            return InputType[name]
        listed = ", ".join(member for member in InputType.__members__ if member.startswith("NVJITLINK_INPUT_"))
        raise AttributeError(
            f"there is no input kind {name}; the kinds are {listed}. Compile LLVM IR to LTO-IR first, with "
            "libNVVM's -gen-lto or with cujit.compile(cujit.Source.nvvm(…), to='ltoir')"
        )
    raise AttributeError(f"module {spell(__name__)} has no attribute {spell(name)}")


@once
def _library() -> ToolLibrary:
    library = ToolLibrary("nvJitLink", "nvjitlink", nvJitLinkError)
    major, minor = library.call("nvJitLinkVersion", "version")
    library.tool = f"nvJitLink {major}.{minor}"
    return library


def version() -> tuple[int, int]:
    """Return the version of the library, (major, minor).

    Raises:
        ToolchainNotFoundError: nvJitLink or cuda-bindings is not installed; so for every call here.
    """
    major, minor = _library().call("nvJitLinkVersion", "version")
    return major, minor


def create(num_options: int, options: Sequence[str]) -> int:
    """Start a link, and return its handle. The options must include ``-arch=sm_…``.

    Raises:
        nvJitLinkError: an option is wrong, or ``num_options`` is not their number.
    """
    library, function = _library(), "nvJitLinkCreate"
    listed = library.texts(function, "options", num_options, options)

    def about() -> str:
        if not any(option.startswith("-arch=") for option in listed):
            return f"no -arch=sm_… among {' '.join(listed) or 'no options'}"
        return library.refused_options(listed, lambda some: library.api.create(len(some), some), "-arch")

    return library.made("nvJitLink handle", library.call(function, "create", len(listed), listed, about=about))


def destroy(handle: int) -> None:
    """Release a handle and everything that it holds.

    Raises:
        nvJitLinkError: it is no open handle of nvJitLink.
    """
    library, function = _library(), "nvJitLinkDestroy"
    with library.ending(function, handle) as raw:
        library.call(function, "destroy", raw)


def add_data(handle: int, input_type: int, data: Readable, size: int, name: str) -> None:
    """Add an image from memory. ``size`` is its size in bytes, and ``name`` its name in logs.

    Raises:
        nvJitLinkError: the handle, the type, or the size is wrong, or the image is rejected.
    """
    library, function = _library(), "nvJitLinkAddData"
    kind = _input_type(function, input_type)
    content = library.data(function, "data", data, size)
    shown = library.text(function, "name", name, optional=True).encode()
    with library.using(function, handle, content, shown) as raw:
        _add(raw, function, kind, content, len(content), shown)


def add_file(handle: int, input_type: int, file_name: str | os.PathLike[str]) -> None:
    """Add an image from a file.

    Raises:
        nvJitLinkError: there is no such file, it is a directory or empty, or the image is refused.
    """
    library, function = _library(), "nvJitLinkAddFile"
    kind = _input_type(function, input_type)
    path = library.file(function, file_name).encode()
    with library.using(function, handle, path) as raw:
        _add(raw, function, kind, path)


def complete(handle: int) -> None:
    """Link the inputs. Other threads run meanwhile.

    Raises:
        nvJitLinkError: the images do not link. ``error_log`` contains the reason.
    """
    _call(handle, "nvJitLinkComplete", "complete")


def get_linked_cubin_size(handle: int) -> int:
    """Return the size of the linked machine code, in bytes.

    Raises:
        nvJitLinkError: the link is not complete.
    """
    return _library().size(handle, "nvJitLinkGetLinkedCubinSize", "linked_cubin")


def get_linked_cubin(handle: int, cubin: Buffer) -> None:
    """Write the linked machine code into a buffer.

    Raises:
        nvJitLinkError: the link is not complete, or the buffer is too small or immutable.
    """
    _library().get(handle, "nvJitLinkGetLinkedCubin", "linked_cubin", cubin)


def get_linked_ptx_size(handle: int) -> int:
    """Return the size of the linked PTX, in bytes, with the NUL at its end. The link needs ``-lto`` and ``-ptx``.

    Raises:
        nvJitLinkError: the link is not complete, or makes no PTX.
    """
    return _library().size(handle, "nvJitLinkGetLinkedPtxSize", "linked_ptx")


def get_linked_ptx(handle: int, ptx: Buffer) -> None:
    """Write the linked PTX to a buffer.

    Raises:
        nvJitLinkError: there is none, or the buffer is too small or read-only.
    """
    _library().get(handle, "nvJitLinkGetLinkedPtx", "linked_ptx", ptx)


def get_linked_ltoir_size(handle: int) -> int:
    """Return the size of the linked LTO-IR in bytes. The link needs ``-lto``.

    Raises:
        nvJitLinkError: there is none, or this nvJitLink doesn't return it.
    """
    return _library().size(handle, "nvJitLinkGetLinkedLTOIRSize", "linked_ltoir")


def get_linked_ltoir(handle: int, ltoir: Buffer) -> None:
    """Write the linked LTO-IR to a buffer.

    Raises:
        nvJitLinkError: there is none, or the buffer is too small or read-only.
    """
    _library().get(handle, "nvJitLinkGetLinkedLTOIR", "linked_ltoir", ltoir)


def get_error_log_size(handle: int) -> int:
    """Return the size of the error log, in bytes, with the NUL at its end.

    Raises:
        nvJitLinkError: the handle is not open.
    """
    return _library().size(handle, "nvJitLinkGetErrorLogSize", "error_log")


def get_error_log(handle: int, log: Buffer) -> None:
    """Write the error log into a buffer.

    Raises:
        nvJitLinkError: the buffer is too small or immutable.
    """
    _library().get(handle, "nvJitLinkGetErrorLog", "error_log", log)


def get_info_log_size(handle: int) -> int:
    """Return the size of the information log, in bytes, with the NUL at its end.

    Raises:
        nvJitLinkError: the handle is not open.
    """
    return _library().size(handle, "nvJitLinkGetInfoLogSize", "info_log")


def get_info_log(handle: int, log: Buffer) -> None:
    """Write the information log into a buffer.

    Raises:
        nvJitLinkError: the buffer is too small or immutable.
    """
    _library().get(handle, "nvJitLinkGetInfoLog", "info_log", log)


def _input_type(function: str, given: object) -> int:
    numbers = {int(member) for member in InputType}
    if isinstance(given, bool) or not isinstance(given, int) or int(given) not in numbers:
        names = ", ".join(InputType.__members__)
        _library().misuse(function, f"{spell(given)} is not an InputType", f"one of {names}")
    return int(given)


def _call(handle: int, function: str, method: str) -> None:
    library = _library()
    with library.using(function, handle) as raw, _with_info_log(raw):
        library.call(function, method, raw, log=lambda: library.log(raw, "error_log"))


def _add(raw: int, function: str, *arguments: Any) -> None:
    """Add an input by the C function itself, or by the bindings where it is not found under its name.

    The library keeps the pointer to the name for its messages, and the bindings free the name after the call
    (measured, nvJitLink 13.5 with cuda-bindings 13.5: messages with other memory's bytes in place of the name).
    """
    library, c_function = _library(), _c_function(function)
    with _with_info_log(raw):
        if c_function is None:
            method = "add_data" if function == "nvJitLinkAddData" else "add_file"
            words = [*arguments[:-1], arguments[-1].decode()]
            name = words[-1]
            library.call(function, method, raw, *words, log=lambda: library.log(raw, "error_log"), about=lambda: name)
        elif status := c_function(raw, *arguments):
            raise library.error(status, function, library.log(raw, "error_log"), about=arguments[-1].decode())


_C_ARGUMENTS = {
    "nvJitLinkAddData": (ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p),
    "nvJitLinkAddFile": (ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p),
}


@functools.cache
def _c_function(function: str) -> Any:
    """Return a C function of the library in use by its name in nvJitLink.h, or None if it is missing."""
    major, minor = version()
    try:
        found = getattr(ctypes.CDLL(library_path("nvJitLink") or ""), f"__{function}_{major}_{minor}")
    except (OSError, AttributeError):
        return None
    found.argtypes, found.restype = _C_ARGUMENTS[function], ctypes.c_int
    return found


@contextmanager
def _with_info_log(raw: int) -> Iterator[None]:
    """Add the information log to an error that passes."""
    try:
        yield
    except nvJitLinkError as e:
        e.info_log = _library().log(raw, "info_log")
        raise


_INPUT_TYPE = {
    ImageKind.CUBIN: InputType.CUBIN,
    ImageKind.PTX: InputType.PTX,
    ImageKind.LTOIR: InputType.LTOIR,
    ImageKind.FATBIN: InputType.FATBIN,
    ImageKind.OBJECT: InputType.OBJECT,
    ImageKind.LIBRARY: InputType.LIBRARY,
}


class NvJitLink:
    """The nvJitLink that is installed; ``version`` is (major, minor)."""

    def __init__(self) -> None:
        """Open the library.

        Raises:
            ToolchainNotFoundError: nvJitLink or cuda-bindings is not installed.
            nvJitLinkError: the library answers with an error.
        """
        load_binding("nvjitlink", "nvJitLink")  # it may be gone since the last time
        self.version = version()
        self.tool = _library().tool
        self.ledger = _library().ledger

    def __repr__(self) -> str:
        return f"<{self.tool}>"

    def linker(self, options: Sequence[str]) -> Linker:
        """Start a link. The options must include ``-arch=sm_…``.

        Raises:
            nvJitLinkError: an option is wrong.
        """
        return Linker(create(len(options), options))


class Linker(LibraryHandle):
    """One nvJitLinkHandle: add images, complete once, take the result. Use it in a ``with`` statement."""

    destroy = staticmethod(destroy)

    def add(self, kind: ImageKind, data: bytes, name: str) -> None:
        """Add one image. ``name`` is its name in the log.

        Raises:
            nvJitLinkError: the image is rejected.
        """
        add_data(self.raw, _INPUT_TYPE[kind], data, len(data), name)

    def complete(self) -> None:
        """Link. Other threads run meanwhile.

        Raises:
            nvJitLinkError: the images do not link. ``log`` contains the reason.
        """
        complete(self.raw)

    def cubin(self) -> bytes:
        """The linked machine code."""
        return _library().take(self.raw, "nvJitLinkGetLinkedCubin", "linked_cubin")

    def ptx(self) -> bytes:
        """The linked PTX, without the NUL that ends it; the link needs ``-lto`` and ``-ptx``."""
        return _library().take(self.raw, "nvJitLinkGetLinkedPtx", "linked_ptx").rstrip(b"\0")

    def ltoir(self) -> bytes:
        """The linked LTO-IR; the link needs ``-lto`` and ``-arch=lto_…``."""
        return _library().take(self.raw, "nvJitLinkGetLinkedLTOIR", "linked_ltoir")

    def error_log(self) -> str:
        """The linker's error messages."""
        return as_text(_library().take(self.raw, "nvJitLinkGetErrorLog", "error_log"))

    def info_log(self) -> str:
        """Other messages of the linker."""
        return as_text(_library().take(self.raw, "nvJitLinkGetInfoLog", "info_log"))
