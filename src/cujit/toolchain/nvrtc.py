"""NVRTC, the run-time C++ compiler: NVIDIA's documented calls by their names, checked, and a Program over them.

The functions take and give what ``cuda.bindings.nvrtc`` documents: what the library answers comes back as
``(nvrtcResult, value…)``, and is not raised. A handle, a size or a buffer that C must not see is raised, as an
``nvrtcError``. Source: NVRTC user guide; cuda.bindings.nvrtc.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cujit.errors import spell
from cujit.forks import once
from cujit.toolchain.calls import Buffer, CallError, ToolLibrary, as_text
from cujit.toolchain.handles import HandleNumber, LibraryHandle
from cujit.toolchain.libraries import library_path, load_binding, real_path
from cujit.toolchain.process_state import process_state
from cujit.toolchain.results import NvrtcResult
from cujit.toolchain.stopping import Stop, current_stop

nvrtcResult = NvrtcResult  # noqa: N816  # NVIDIA's name
nvrtcProgram = HandleNumber  # noqa: N816  # NVIDIA's name
Text = bytes | str
Answer = tuple[Any, ...]


class nvrtcError(CallError):  # noqa: N801  # in the manner of NVIDIA's other libraries
    """A refusal of NVRTC, or a call that was not made; ``status`` is an nvrtcResult."""

    codes = NvrtcResult
    bad_handle, bad_argument = NvrtcResult.NVRTC_ERROR_INVALID_PROGRAM, NvrtcResult.NVRTC_ERROR_INVALID_INPUT


@once
def _library() -> ToolLibrary:
    library = ToolLibrary("NVRTC", "nvrtc", nvrtcError)
    _, major, minor = library.answer("nvrtcVersion")
    library.tool = f"NVRTC {major}.{minor}"
    return library


def nvrtcVersion() -> Answer:  # noqa: N802  # NVIDIA's names, from here on
    """Return (result, major, minor).

    Raises:
        ToolchainNotFoundError: NVRTC or cuda-bindings is not installed; so for every call here.
    """
    return _answer("nvrtcVersion")


def nvrtcGetErrorString(result: int) -> Answer:  # noqa: N802
    """Return (result, name of the code as bytes)."""
    api = _library().api
    known = result in {int(code) for code in api.nvrtcResult}
    text = _library().answer("nvrtcGetErrorString", api.nvrtcResult(result))[1] if known else b"NVRTC_ERROR unknown"
    return NvrtcResult.NVRTC_SUCCESS, text


def nvrtcGetNumSupportedArchs() -> Answer:  # noqa: N802
    """Return (result, how many architectures NVRTC builds for)."""
    return _answer("nvrtcGetNumSupportedArchs")


def nvrtcGetSupportedArchs() -> Answer:  # noqa: N802
    """Return (result, list of the numbers of the architectures)."""
    return _answer("nvrtcGetSupportedArchs")


def nvrtcCreateProgram(  # noqa: N802
    src: Text,
    name: Text | None,
    numHeaders: int,  # noqa: N803
    headers: Sequence[Text] | None,
    includeNames: Sequence[Text] | None,  # noqa: N803
) -> Answer:
    """Create a program from C++ text and in-memory headers, and return (result, handle).

    Raises:
        nvrtcError: a text contains a NUL, or ``numHeaders`` is not the number of headers and names.
    """
    function = "nvrtcCreateProgram"
    texts = _strings(function, "headers", numHeaders, headers)
    names = _strings(function, "includeNames", numHeaders, includeNames)
    source, called = _string(function, "src", src), _string(function, "name", b"" if name is None else name)
    result, raw = _answer(function, source, called, len(texts), texts, names)
    return result, None if result else _library().made("NVRTC program", raw)


def nvrtcDestroyProgram(prog: int) -> Answer:  # noqa: N802
    """Destroy a program, and return (result,).

    Raises:
        nvrtcError: it is not an open program of NVRTC.
    """
    with _library().ending("nvrtcDestroyProgram", prog) as raw:
        return _answer("nvrtcDestroyProgram", raw)


def nvrtcCompileProgram(prog: int, numOptions: int, options: Sequence[Text] | None) -> Answer:  # noqa: N802, N803
    """Compile, and return (result,). Other threads run meanwhile. Stack limit and signal handlers are restored.

    Raises:
        nvrtcError: the handle is wrong, or ``numOptions`` is not the number of options.
    """
    function = "nvrtcCompileProgram"
    listed = _strings(function, "options", numOptions, options)
    with process_state():
        return _call(prog, function, len(listed), listed)


def nvrtcSetFlowCallback(prog: int, callback: int, payload: int) -> Answer:  # noqa: N802
    """Make NVRTC call ``int callback(payload, NULL)`` while it compiles, and stop if that returns 1. Return (result,).

    Both are addresses; they have to be valid until the compile is done.

    Raises:
        nvrtcError: the handle is wrong, an address is no int, or this NVRTC does not have the call.
    """
    function = "nvrtcSetFlowCallback"
    for what, address in (("callback", callback), ("payload", payload)):
        if isinstance(address, bool) or not isinstance(address, int) or not 0 <= address < 1 << 64:
            _library().misuse(function, f"{what} is {spell(address)}, expected an address, an int")
    return _call(prog, function, callback, payload)


def nvrtcAddNameExpression(prog: int, name_expression: Text) -> Answer:  # noqa: N802
    """Request a lowered name before the compile, and return (result,)."""
    function = "nvrtcAddNameExpression"
    return _call(prog, function, _string(function, "name_expression", name_expression))


def nvrtcGetLoweredName(prog: int, name_expression: Text) -> Answer:  # noqa: N802
    """Return (result, lowered name as bytes) of an expression that was added before the compile."""
    function = "nvrtcGetLoweredName"
    return _call(prog, function, _string(function, "name_expression", name_expression))


def nvrtcGetPTXSize(prog: int) -> Answer:  # noqa: N802
    """Return (result, size of the PTX in bytes with the NUL at its end)."""
    return _call(prog, "nvrtcGetPTXSize")


def nvrtcGetPTX(prog: int, ptx: Buffer) -> Answer:  # noqa: N802
    """Write the PTX into a buffer; give (result,).

    Raises:
        nvrtcError: the buffer is too small or immutable; so for every call here that fills a buffer.
    """
    return _get(prog, "nvrtcGetPTX", ptx)


def nvrtcGetCUBINSize(prog: int) -> Answer:  # noqa: N802
    """Return (result, size of the machine code in bytes). The size is 0 after a compile for a virtual architecture."""
    return _call(prog, "nvrtcGetCUBINSize")


def nvrtcGetCUBIN(prog: int, cubin: Buffer) -> Answer:  # noqa: N802
    """Write the cubin to a buffer, and return (result,)."""
    return _get(prog, "nvrtcGetCUBIN", cubin)


def nvrtcGetLTOIRSize(prog: int) -> Answer:  # noqa: N802
    """Return (result, size of the LTO-IR in bytes). The compile needs ``-dlto``."""
    return _call(prog, "nvrtcGetLTOIRSize")


def nvrtcGetLTOIR(prog: int, LTOIR: Buffer) -> Answer:  # noqa: N802, N803
    """Write the LTO-IR to a buffer, and return (result,)."""
    return _get(prog, "nvrtcGetLTOIR", LTOIR)


def nvrtcGetOptiXIRSize(prog: int) -> Answer:  # noqa: N802
    """Return (result, size of the OptiX IR in bytes). The compile needs ``--optix-ir``."""
    return _call(prog, "nvrtcGetOptiXIRSize")


def nvrtcGetOptiXIR(prog: int, optixir: Buffer) -> Answer:  # noqa: N802
    """Write the OptiX IR to a buffer, and return (result,)."""
    return _get(prog, "nvrtcGetOptiXIR", optixir)


def nvrtcGetTileIRSize(prog: int) -> Answer:  # noqa: N802
    """Return (result, size of the Tile IR in bytes). The compile needs ``--enable-tile`` and a tile function."""
    return _call(prog, "nvrtcGetTileIRSize")


def nvrtcGetTileIR(prog: int, TileIR: Buffer) -> Answer:  # noqa: N802, N803
    """Write the Tile IR to a buffer, and return (result,)."""
    return _get(prog, "nvrtcGetTileIR", TileIR)


def nvrtcGetProgramLogSize(prog: int) -> Answer:  # noqa: N802
    """Return (result, size of the log in bytes with the NUL at its end)."""
    return _call(prog, "nvrtcGetProgramLogSize")


def nvrtcGetProgramLog(prog: int, log: Buffer) -> Answer:  # noqa: N802
    """Write the log to a buffer, and return (result,)."""
    return _get(prog, "nvrtcGetProgramLog", log)


def nvrtcGetPCHHeapSize() -> Answer:  # noqa: N802
    """Return (result, size of the heap for precompiled headers in bytes)."""
    return _answer("nvrtcGetPCHHeapSize")


def nvrtcSetPCHHeapSize(size: int) -> Answer:  # noqa: N802
    """Set the size of the heap for precompiled headers in bytes, and return (result,).

    Raises:
        nvrtcError: the size is not an int of at least 0.
    """
    if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size < 1 << 63:
        _library().misuse("nvrtcSetPCHHeapSize", f"size is {spell(size)}, expected an int of at least 0")
    return _answer("nvrtcSetPCHHeapSize", size)


def nvrtcGetPCHCreateStatus(prog: int) -> Answer:  # noqa: N802
    """Return (result,) of the creation of a precompiled header."""
    return _call(prog, "nvrtcGetPCHCreateStatus")


def nvrtcGetPCHHeapSizeRequired(prog: int) -> Answer:  # noqa: N802
    """Return (result, size in bytes that the heap would have needed)."""
    return _call(prog, "nvrtcGetPCHHeapSizeRequired")


def nvrtcGetBundledHeadersInfo() -> Answer:  # noqa: N802
    """Return (result, ``nvrtcBundledHeadersInfo``, log as bytes or None): the headers that this NVRTC has in it."""
    return _answer("nvrtcGetBundledHeadersInfo")


def nvrtcInstallBundledHeaders(installPath: Text, flags: int) -> Answer:  # noqa: N802, N803
    """Write the headers that this NVRTC has in it into a directory; return (result, log as bytes or None).

    Raises:
        nvrtcError: the path holds a NUL, or ``flags`` has the bit that first deletes everything in the directory.
    """
    function = "nvrtcInstallBundledHeaders"
    if isinstance(flags, bool) or not isinstance(flags, int) or flags & _FORCE_OVERWRITE:
        _library().misuse(function, f"flags is {spell(flags)}, expected 0, or 2 to not wait for another process")
    return _answer(function, _string(function, "installPath", installPath), flags)


_FORCE_OVERWRITE = 1
"""``NVRTC_INSTALL_HEADERS_FORCE_OVERWRITE``. Neither this nor ``nvrtcRemoveBundledHeaders`` can be called here: both
delete everything in the directory, also what NVRTC did not write."""


def _answer(function: str, *arguments: Any) -> Answer:
    result, *values = _library().answer(function, *arguments)
    return (NvrtcResult(int(result)), *values)


def _call(prog: int, function: str, *arguments: Any) -> Answer:
    with _library().using(function, prog) as raw:
        return _answer(function, raw, *arguments)


def _get(prog: int, function: str, buffer: Buffer) -> Answer:
    library = _library()
    with library.using(function, prog) as raw:
        result, size = _answer(f"{function}Size", raw)
        if result:
            return (result,)
        answers: list[Answer] = [(result,)]
        library.fill(function, buffer, size, lambda content: answers.append(_answer(function, raw, content)))
        return answers[-1]


def _string(function: str, what: str, given: object) -> bytes:
    library = _library()
    text = given if isinstance(given, bytes) else library.text(function, what, given).encode()
    if b"\0" in text:
        library.misuse(function, f"{what} holds a NUL, where C would stop reading")
    return text


def _strings(function: str, what: str, count: int, given: object) -> list[bytes]:
    library = _library()
    if given is None:
        given = ()
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        library.misuse(function, f"{what} is {type(given).__name__}, expected a list of bytes")
    library.count(function, what, count, len(given))
    return [_string(function, f"{what}[{i}]", item) for i, item in enumerate(given)]


class Nvrtc:
    """The NVRTC that is installed: its version, what it builds for, and programs to compile with it.

    ``version`` is (major, minor), ``arches`` the numbers of the architectures it builds for, rising.
    """

    def __init__(self) -> None:
        """Open the library.

        Raises:
            ToolchainNotFoundError: NVRTC or cuda-bindings is not installed.
            nvrtcError: the library answers with an error.
        """
        load_binding("nvrtc", "NVRTC")  # it may be gone since the last time
        major, minor = _checked("nvrtcVersion", nvrtcVersion())
        self.version: tuple[int, int] = (major, minor)
        self.tool = _library().tool
        self.ledger = _library().ledger
        (arches,) = _checked("nvrtcGetSupportedArchs", nvrtcGetSupportedArchs())
        self.arches: tuple[int, ...] = tuple(sorted(arches))

    @property
    def library_path(self) -> str | None:
        """The file of the library, or None if cuda.pathfinder doesn't report it."""
        path = library_path("nvrtc")
        return path and real_path(path)

    def __repr__(self) -> str:
        return f"<{self.tool} for {', '.join(f'sm_{n}' for n in self.arches)}>"

    def program(self, text: bytes, name: bytes, headers: Sequence[tuple[bytes, bytes]] = ()) -> Program:
        """Make a program from C++ text; ``headers`` are (name, text) pairs that ``#include`` finds first.

        Raises:
            nvrtcError: NVRTC refused.
        """
        names, texts = [name for name, _ in headers], [text for _, text in headers]
        (raw,) = _checked("nvrtcCreateProgram", nvrtcCreateProgram(text, name, len(texts), texts, names))
        return Program(raw)


class Program(LibraryHandle):
    """One nvrtcProgram: add names, compile once, take the images. Use it in a ``with`` statement."""

    destroy = staticmethod(nvrtcDestroyProgram)

    def add_name(self, expression: bytes) -> None:
        """Ask for the lowered name of a kernel or variable, and so for its instance.

        Raises:
            nvrtcError: NVRTC refused.
        """
        _checked("nvrtcAddNameExpression", nvrtcAddNameExpression(self.raw, expression))

    def compile(self, options: Sequence[bytes]) -> None:
        """Compile; other threads run meanwhile. It ends early when the ``Stop`` of this thread is asked.

        Raises:
            nvrtcError: it does not compile, or an option is wrong; ``result`` tells which, ``log`` why.
        """
        if stop := current_stop():
            self._heed(stop)
        answer = nvrtcCompileProgram(self.raw, len(options), options)
        if answer[0]:
            _checked("nvrtcCompileProgram", answer, log=self.log())

    def _heed(self, stop: Stop) -> None:
        try:
            nvrtcSetFlowCallback(self.raw, *stop.flow_callback())
        except _library().misused:
            return  # a release without the call compiles to its end
        self.raw.kept.append(stop)

    def log(self) -> str:
        """The compiler's log."""
        return as_text(self._take("ProgramLog"))

    def lowered_name(self, expression: bytes) -> str:
        """Return the lowered name of an expression that was added before the compile.

        Raises:
            nvrtcError: it was not added, or the program is not compiled.
        """
        (lowered,) = _checked("nvrtcGetLoweredName", nvrtcGetLoweredName(self.raw, expression))
        return str(lowered, "utf-8")

    def ptx(self) -> bytes:
        """The PTX, without the NUL that ends it."""
        return self._take("PTX").rstrip(b"\0")

    def cubin(self) -> bytes:
        """The machine code; empty when the compile was for a virtual architecture."""
        return self._take("CUBIN")

    def ltoir(self) -> bytes:
        """The LTO-IR; the compile needs ``-dlto``."""
        return self._take("LTOIR")

    def optixir(self) -> bytes:
        """The OptiX IR; the compile needs ``--optix-ir``."""
        return self._take("OptiXIR")

    def tileir(self) -> bytes:
        """The Tile IR; empty unless the compile had ``--enable-tile`` and the source has tile kernels."""
        return self._take("TileIR")

    def _take(self, what: str) -> bytes:
        (size,) = _checked(f"nvrtcGet{what}Size", _call(self.raw, f"nvrtcGet{what}Size"))
        content = bytearray(size)
        _checked(f"nvrtcGet{what}", _get(self.raw, f"nvrtcGet{what}", content))
        return bytes(content)


def _checked(function: str, answer: Answer, log: str = "") -> Sequence[Any]:
    """Return the values of an answer.

    Raises:
        nvrtcError: the result is not success.
    """
    if answer[0]:
        raise _library().error(int(answer[0]), function, log)
    return answer[1:]
