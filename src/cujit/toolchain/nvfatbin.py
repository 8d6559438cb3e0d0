"""nvFatbin, the run-time packer of fatbins: NVIDIA's documented calls by their names, checked, and a Packer over them.

The functions take and give what ``cuda.bindings.nvfatbin`` documents; wrong handles, sizes and buffers are
refused before C sees them. Source: nvFatbin user guide; cuda.bindings.nvfatbin.
"""

from __future__ import annotations

from collections.abc import Sequence

from cujit.errors import spell
from cujit.forks import once
from cujit.toolchain.calls import Buffer, CallError, Readable, ToolLibrary
from cujit.toolchain.handles import LibraryHandle
from cujit.toolchain.libraries import load_binding
from cujit.toolchain.results import NvFatbinResult as Result

__all__ = [
    "FatbinPacker",
    "NvFatbin",
    "Result",
    "add_cubin",
    "add_index",
    "add_ltoir",
    "add_ptx",
    "add_reloc",
    "add_tile_ir",
    "create",
    "destroy",
    "get",
    "get_error_string",
    "nvFatbinError",
    "size",
    "version",
]


class nvFatbinError(CallError):  # noqa: N801  # NVIDIA's name
    """A refusal of nvFatbin; ``status`` is a Result."""

    codes = Result
    bad_handle, bad_argument = Result.ERROR_NULL_POINTER, Result.ERROR_NULL_POINTER


@once
def _library() -> ToolLibrary:
    library = ToolLibrary("nvFatbin", "nvfatbin", nvFatbinError)
    major, minor = library.call("nvFatbinVersion", "version")
    library.tool = f"nvFatbin {major}.{minor}"
    return library


def version() -> tuple[int, int]:
    """Return the version of the library, (major, minor).

    Raises:
        ToolchainNotFoundError: nvFatbin or cuda-bindings is not installed; so for every call here.
    """
    major, minor = _library().call("nvFatbinVersion", "version")
    return major, minor


def get_error_string(result: int) -> str:
    """Return the library's sentence about a Result."""
    text: str = _library().call("nvFatbinGetErrorString", "get_error_string", int(result))
    return text


def create(options: Sequence[str], options_count: int) -> int:
    """Start a fatbin, and return its handle.

    Raises:
        nvFatbinError: an option is wrong, or ``options_count`` is not their number.
    """
    library, function = _library(), "nvFatbinCreate"
    listed = library.texts(function, "options", options_count, options)

    def about() -> str:
        return library.refused_options(listed, lambda some: library.api.create(some, len(some)))

    return library.made("nvFatbin handle", library.call(function, "create", listed, len(listed), about=about))


def destroy(handle: int) -> None:
    """Release a handle and everything that it holds.

    Raises:
        nvFatbinError: it is no open handle of nvFatbin.
    """
    library, function = _library(), "nvFatbinDestroy"
    with library.ending(function, handle) as raw:
        library.call(function, "destroy", raw)


def add_cubin(handle: int, code: Readable, size: int, arch: str, identifier: str) -> None:
    """Add machine code; ``arch`` is the number with its suffix (``"90a"``).

    Raises:
        nvFatbinError: handle or size is wrong, or it is no cubin of that architecture.
    """
    _add(handle, "nvFatbinAddCubin", "add_cubin", code, size, arch=arch, identifier=identifier)


def add_ptx(handle: int, code: Readable, size: int, arch: str, identifier: str, options_cmd_line: str) -> None:
    """Add PTX. ``options_cmd_line`` is for the driver's assembler. A missing final NUL is added.

    Raises:
        nvFatbinError: the handle or the size is wrong, or it is not PTX for that architecture.
    """
    library, function = _library(), "nvFatbinAddPTX"
    content = library.data(function, "code", code, size)
    ended = content if content.endswith(b"\0") else content + b"\0"
    texts = {"arch": arch, "identifier": identifier, "options_cmd_line": options_cmd_line}
    _add(handle, function, "add_ptx", ended, len(ended), **texts)


def add_ltoir(handle: int, code: Readable, size: int, arch: str, identifier: str, options_cmd_line: str) -> None:
    """Add LTO-IR; ``options_cmd_line`` is for its later link.

    Raises:
        nvFatbinError: handle or size is wrong, or it is no LTO-IR.
    """
    texts = {"arch": arch, "identifier": identifier, "options_cmd_line": options_cmd_line}
    _add(handle, "nvFatbinAddLTOIR", "add_ltoir", code, size, **texts)


def add_index(handle: int, code: Readable, size: int, identifier: str) -> None:
    """Add an index file of a library of LTO-IR.

    Raises:
        nvFatbinError: handle or size is wrong, or it is no index.
    """
    _add(handle, "nvFatbinAddIndex", "add_index", code, size, identifier=identifier)


def add_tile_ir(handle: int, code: Readable, size: int, identifier: str, options_cmd_line: str) -> None:
    """Add CUDA Tile IR.

    Raises:
        nvFatbinError: the handle or the size is wrong, it is not Tile IR, or this nvFatbin doesn't support it.
    """
    texts = {"identifier": identifier, "options_cmd_line": options_cmd_line}
    _add(handle, "nvFatbinAddTileIR", "add_tile_ir", code, size, **texts)


def add_reloc(handle: int, code: Readable, size: int) -> None:
    """Add the relocatable entries of a host object.

    Raises:
        nvFatbinError: the handle or the size is wrong, or the object contains none.
    """
    _add(handle, "nvFatbinAddReloc", "add_reloc", code, size)


def size(handle: int) -> int:
    """Return the current size of the fatbin, in bytes.

    Raises:
        nvFatbinError: the handle is wrong, or packing failed.
    """
    library, function = _library(), "nvFatbinSize"
    with library.using(function, handle) as raw:
        bytes_needed: int = library.call(function, "size", raw)
    return bytes_needed


def get(handle: int, buffer: Buffer) -> None:
    """Write the fatbin into a buffer.

    Raises:
        nvFatbinError: the handle is wrong, or the buffer is too small or immutable.
    """
    library, function = _library(), "nvFatbinGet"
    with library.using(function, handle) as raw:
        # The library wants to be asked for the size first.
        needed = library.call("nvFatbinSize", "size", raw)
        library.fill(function, buffer, needed, lambda content: library.call(function, "get", raw, content))


def _add(handle: int, function: str, method: str, code: Readable, size: int, **texts: str) -> None:
    library = _library()
    content = library.data(function, "code", code, size)
    encoded = [library.text(function, what, text, optional=what != "arch") for what, text in texts.items()]
    described = ", ".join([f"{what} {spell(text)}" for what, text in texts.items() if text] + [f"{len(content)} bytes"])
    with library.using(function, handle, content) as raw:
        library.call(function, method, raw, content, len(content), *encoded, about=lambda: described)


class NvFatbin:
    """The nvFatbin that is installed; ``version`` is (major, minor)."""

    def __init__(self) -> None:
        """Open the library.

        Raises:
            ToolchainNotFoundError: nvFatbin or cuda-bindings is not installed.
            nvFatbinError: the library answers with an error.
        """
        load_binding("nvfatbin", "nvFatbin")  # it may be gone since the last time
        self.version = version()
        self.tool = _library().tool
        self.ledger = _library().ledger

    def __repr__(self) -> str:
        return f"<{self.tool}>"

    def packer(self, options: Sequence[str] = ()) -> FatbinPacker:
        """Start a fatbin.

        Raises:
            nvFatbinError: an option is wrong.
        """
        return FatbinPacker(create(options, len(options)))


class FatbinPacker(LibraryHandle):
    """One nvFatbinHandle: add images, take the fatbin. Use it in a ``with`` statement.

    ``arch`` is the number with its suffix and without a prefix (``"90a"``); ``identifier`` is the name that
    NVIDIA's tools show for the entry; ``options`` are for the tool that compiles the entry later.
    """

    destroy = staticmethod(destroy)

    def add_cubin(self, data: bytes, arch: str, identifier: str = "") -> None:
        """Add machine code.

        Raises:
            nvFatbinError: it is no cubin of that architecture.
        """
        add_cubin(self.raw, data, len(data), arch, identifier)

    def add_ptx(self, data: bytes, arch: str, identifier: str = "", options: str = "") -> None:
        """Add PTX text. The final NUL that the library requires is added.

        Raises:
            nvFatbinError: it is not PTX.
        """
        text = data.rstrip(b"\0")
        add_ptx(self.raw, text, len(text), arch, identifier, options)

    def add_ltoir(self, data: bytes, arch: str, identifier: str = "", options: str = "") -> None:
        """Add LTO-IR.

        Raises:
            nvFatbinError: it is no LTO-IR.
        """
        add_ltoir(self.raw, data, len(data), arch, identifier, options)

    def add_tile_ir(self, data: bytes, identifier: str = "", options: str = "") -> None:
        """Add Tile IR, which is independent of the architecture.

        Raises:
            nvFatbinError: this nvFatbin doesn't support it.
        """
        add_tile_ir(self.raw, data, len(data), identifier, options)

    def add_reloc(self, data: bytes) -> None:
        """Add the relocatable PTX of a host object.

        Raises:
            nvFatbinError: the object contains none.
        """
        add_reloc(self.raw, data, len(data))

    def fatbin(self) -> bytes:
        """The packed fatbin.

        Raises:
            nvFatbinError: packing failed.
        """
        content = bytearray(size(self.raw))
        get(self.raw, content)
        return bytes(content)
