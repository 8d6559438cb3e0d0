"""NVRTC, the run-time C++ compiler: checked calls, no policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cujit.errors import ToolError
from cujit.toolchain.libraries import Handle, Ledger, load_binding, open_library

__all__ = ["Nvrtc", "Program"]


class Nvrtc:
    """The NVRTC that is installed: its version, what it builds for, and programs to compile with it.

    ``version`` is (major, minor), ``arches`` the numbers of the architectures it builds for, rising.
    """

    def __init__(self) -> None:
        """Open the library.

        Raises:
            ToolchainNotFoundError: NVRTC or cuda-bindings is not installed.
            ToolError: the library answers with an error.
        """
        self.api = load_binding("nvrtc", "NVRTC")
        self.tool = "NVRTC"
        self.ledger = Ledger()
        major, minor = self.check("nvrtcVersion", open_library("NVRTC", self.api.nvrtcVersion), several=True)
        self.version: tuple[int, int] = (major, minor)
        self.tool = f"NVRTC {major}.{minor}"
        self.arches: tuple[int, ...] = tuple(
            sorted(self.check("nvrtcGetSupportedArchs", self.api.nvrtcGetSupportedArchs()))
        )

    @property
    def library_path(self) -> str | None:
        """The file that the library was opened from; None when cuda.pathfinder does not tell."""
        from cuda.pathfinder import load_nvidia_dynamic_lib

        try:
            path: str | None = load_nvidia_dynamic_lib("nvrtc").abs_path
        except (RuntimeError, OSError):
            return None
        return path

    def __repr__(self) -> str:
        return f"<{self.tool} for {', '.join(f'sm_{n}' for n in self.arches)}>"

    def check(self, call: str, answer: tuple[Any, ...], *, log: str = "", several: bool = False) -> Any:
        """Give the value of an answer of cuda.bindings, ``(result, value…)``.

        Raises:
            ToolError: the result is not success; it carries call, result, tool and log.
        """
        result = answer[0]
        if int(result):
            raise ToolError(f"{self.tool} refused {call}", tool=self.tool, call=call, result=result.name, log=log)
        if several:
            return answer[1:]
        return answer[1] if len(answer) > 1 else None

    def program(self, text: bytes, name: bytes, headers: Sequence[tuple[bytes, bytes]] = ()) -> Program:
        """Make a program from C++ text; ``headers`` are (name, text) pairs that ``#include`` finds first.

        Raises:
            ToolError: NVRTC refused.
        """
        names, texts = [name for name, _ in headers], [text for _, text in headers]
        raw = self.check("nvrtcCreateProgram", self.api.nvrtcCreateProgram(text, name, len(texts), texts, names))
        return Program(self, raw)


class Program(Handle):
    """One nvrtcProgram: add names, compile once, take the images. Use it in a ``with`` statement."""

    def __init__(self, nvrtc: Nvrtc, raw: Any) -> None:
        self._nvrtc = nvrtc
        super().__init__("NVRTC program", raw, nvrtc.api.nvrtcDestroyProgram, nvrtc.ledger)

    def __enter__(self) -> Program:
        return self

    def add_name(self, expression: bytes) -> None:
        """Ask for the lowered name of a kernel or variable, and so for its instance.

        Raises:
            ToolError: NVRTC refused.
        """
        answer = self._nvrtc.api.nvrtcAddNameExpression(self.raw, expression)
        self._nvrtc.check("nvrtcAddNameExpression", answer)

    def compile(self, options: Sequence[bytes]) -> None:
        """Compile; other threads run meanwhile.

        Raises:
            ToolError: it does not compile, or an option is wrong; ``result`` tells which, ``log`` why.
        """
        raw = self.raw
        answer = self._nvrtc.api.nvrtcCompileProgram(raw, len(options), list(options))
        if int(answer[0]):
            self._nvrtc.check("nvrtcCompileProgram", answer, log=self.log())

    def log(self) -> str:
        """What the compiler wrote."""
        api, check = self._nvrtc.api, self._nvrtc.check
        size = check("nvrtcGetProgramLogSize", api.nvrtcGetProgramLogSize(self.raw))
        if size <= 1:
            return ""
        buffer = bytearray(size)
        check("nvrtcGetProgramLog", api.nvrtcGetProgramLog(self.raw, buffer))
        return buffer.rstrip(b"\0").decode("utf-8", "replace")

    def lowered_name(self, expression: bytes) -> str:
        """Give the lowered name of an expression that was added before the compile.

        Raises:
            ToolError: it was not added, or the program is not compiled.
        """
        answer = self._nvrtc.api.nvrtcGetLoweredName(self.raw, expression)
        lowered: bytes = self._nvrtc.check("nvrtcGetLoweredName", answer)
        return lowered.decode()

    def ptx(self) -> bytes:
        """The PTX, without the NUL that ends it."""
        return self._image("PTX").rstrip(b"\0")

    def cubin(self) -> bytes:
        """The machine code; empty when the compile was for a virtual architecture."""
        return self._image("CUBIN")

    def ltoir(self) -> bytes:
        """The LTO-IR; the compile needs ``-dlto``."""
        return self._image("LTOIR")

    def _image(self, kind: str) -> bytes:
        api, check = self._nvrtc.api, self._nvrtc.check
        size = check(f"nvrtcGet{kind}Size", getattr(api, f"nvrtcGet{kind}Size")(self.raw))
        buffer = bytearray(size)
        if size:
            check(f"nvrtcGet{kind}", getattr(api, f"nvrtcGet{kind}")(self.raw, buffer))
        return bytes(buffer)
