"""nvJitLink, the run-time device linker: checked calls, no policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from cujit.artifact import Kind
from cujit.errors import ToolError
from cujit.toolchain.libraries import Handle, Ledger, load_binding, open_library

__all__ = ["Linker", "NvJitLink"]

_INPUT_TYPE = {
    Kind.CUBIN: "CUBIN",
    Kind.PTX: "PTX",
    Kind.LTOIR: "LTOIR",
    Kind.FATBIN: "FATBIN",
    Kind.OBJECT: "OBJECT",
    Kind.LIBRARY: "LIBRARY",
}


class NvJitLink:
    """The nvJitLink that is installed; ``version`` is (major, minor)."""

    def __init__(self) -> None:
        """Open the library.

        Raises:
            ToolchainNotFoundError: nvJitLink or cuda-bindings is not installed.
            ToolError: the library answers with an error.
        """
        self.api = load_binding("nvjitlink", "nvJitLink")
        self.tool = "nvJitLink"
        self.ledger = Ledger()
        with self.checked("nvJitLinkVersion"):
            major, minor = open_library("nvJitLink", self.api.version)
        self.version: tuple[int, int] = (major, minor)
        self.tool = f"nvJitLink {major}.{minor}"

    def __repr__(self) -> str:
        return f"<{self.tool}>"

    @contextmanager
    def checked(self, call: str, log: Callable[[], str] = str) -> Iterator[None]:
        """Turn the exception of cuda.bindings into a ToolError with call, result, tool and log."""
        try:
            yield
        except self.api.nvJitLinkError as e:
            result = f"NVJITLINK_{self.api.Result(e.status).name}"
            raise ToolError(
                f"{self.tool} refused {call}", tool=self.tool, call=call, result=result, log=log()
            ) from None

    def linker(self, options: Sequence[str]) -> Linker:
        """Start a link; ``-arch=sm_…`` has to be among the options.

        Raises:
            ToolError: an option is wrong.
        """
        with self.checked("nvJitLinkCreate"):
            raw = self.api.create(len(options), list(options))
        return Linker(self, raw)


class Linker(Handle):
    """One nvJitLinkHandle: add images, complete once, take the result. Use it in a ``with`` statement."""

    def __init__(self, nvjitlink: NvJitLink, raw: Any) -> None:
        self._nvjitlink = nvjitlink
        super().__init__("nvJitLink handle", raw, nvjitlink.api.destroy, nvjitlink.ledger)

    def __enter__(self) -> Linker:
        return self

    def add(self, kind: Kind, data: bytes, name: str) -> None:
        """Add one image; ``name`` is what the log calls it.

        Raises:
            ToolError: the image is refused.
        """
        api = self._nvjitlink.api
        input_type = getattr(api.InputType, _INPUT_TYPE[kind])
        with self._nvjitlink.checked("nvJitLinkAddData", self.error_log):
            api.add_data(self.raw, input_type, data, len(data), name)

    def complete(self) -> None:
        """Link; other threads run meanwhile.

        Raises:
            ToolError: the images do not link; ``log`` says why.
        """
        with self._nvjitlink.checked("nvJitLinkComplete", self.error_log):
            self._nvjitlink.api.complete(self.raw)

    def cubin(self) -> bytes:
        """The linked machine code."""
        return self._take("linked_cubin", "nvJitLinkGetLinkedCubin")

    def ptx(self) -> bytes:
        """The linked PTX, without the NUL that ends it; the link needs ``-lto`` and ``-ptx``."""
        return self._take("linked_ptx", "nvJitLinkGetLinkedPtx").rstrip(b"\0")

    def error_log(self) -> str:
        """What went wrong, in the linker's words."""
        return self._take("error_log", "nvJitLinkGetErrorLog").rstrip(b"\0").decode("utf-8", "replace")

    def info_log(self) -> str:
        """What else the linker wrote."""
        return self._take("info_log", "nvJitLinkGetInfoLog").rstrip(b"\0").decode("utf-8", "replace")

    def _take(self, what: str, call: str) -> bytes:
        api = self._nvjitlink.api
        with self._nvjitlink.checked(call):
            buffer = bytearray(getattr(api, f"get_{what}_size")(self.raw))
            if buffer:
                getattr(api, f"get_{what}")(self.raw, buffer)
        return bytes(buffer)
