"""nvFatbin, the run-time packer of fatbins: checked calls, no policy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from cujit.errors import ToolError
from cujit.toolchain.libraries import Handle, Ledger, load_binding, open_library

__all__ = ["NvFatbin", "Packer"]


class NvFatbin:
    """The nvFatbin that is installed; ``version`` is (major, minor)."""

    def __init__(self) -> None:
        """Open the library.

        Raises:
            ToolchainNotFoundError: nvFatbin or cuda-bindings is not installed.
            ToolError: the library answers with an error.
        """
        self.api = load_binding("nvfatbin", "nvFatbin")
        self.tool = "nvFatbin"
        self.ledger = Ledger()
        with self.checked("nvFatbinVersion"):
            major, minor = open_library("nvFatbin", self.api.version)
        self.version: tuple[int, int] = (major, minor)
        self.tool = f"nvFatbin {major}.{minor}"

    def __repr__(self) -> str:
        return f"<{self.tool}>"

    @contextmanager
    def checked(self, call: str) -> Iterator[None]:
        """Turn the exception of cuda.bindings into a ToolError with call, result and tool."""
        try:
            yield
        except self.api.nvFatbinError as e:
            result = f"NVFATBIN_{self.api.Result(e.status).name}"
            raise ToolError(f"{self.tool} refused {call}", tool=self.tool, call=call, result=result) from None

    def packer(self, options: Sequence[str] = ()) -> Packer:
        """Start a fatbin.

        Raises:
            ToolError: an option is wrong.
        """
        with self.checked("nvFatbinCreate"):
            raw = self.api.create(list(options), len(options))
        return Packer(self, raw)


class Packer(Handle):
    """One nvFatbinHandle: add images, take the fatbin. Use it in a ``with`` statement.

    ``arch`` is the number with its suffix and without a prefix (``"90a"``); ``identifier`` is the name that
    NVIDIA's tools show for the entry; ``options`` are for the tool that compiles the entry later.
    """

    def __init__(self, nvfatbin: NvFatbin, raw: Any) -> None:
        self._nvfatbin = nvfatbin
        super().__init__("nvFatbin handle", raw, nvfatbin.api.destroy, nvfatbin.ledger)

    def __enter__(self) -> Packer:
        return self

    def add_cubin(self, data: bytes, arch: str, identifier: str = "") -> None:
        """Add machine code.

        Raises:
            ToolError: it is no cubin of that architecture.
        """
        with self._nvfatbin.checked("nvFatbinAddCubin"):
            self._nvfatbin.api.add_cubin(self.raw, data, len(data), arch, identifier)

    def add_ptx(self, data: bytes, arch: str, identifier: str = "", options: str = "") -> None:
        """Add PTX text; the NUL that the library wants at its end is put there.

        Raises:
            ToolError: it is no PTX.
        """
        text = data.rstrip(b"\0") + b"\0"
        with self._nvfatbin.checked("nvFatbinAddPTX"):
            self._nvfatbin.api.add_ptx(self.raw, text, len(text), arch, identifier, options)

    def add_ltoir(self, data: bytes, arch: str, identifier: str = "", options: str = "") -> None:
        """Add LTO-IR.

        Raises:
            ToolError: it is no LTO-IR.
        """
        with self._nvfatbin.checked("nvFatbinAddLTOIR"):
            self._nvfatbin.api.add_ltoir(self.raw, data, len(data), arch, identifier, options)

    def add_reloc(self, data: bytes) -> None:
        """Add the relocatable PTX of a host object.

        Raises:
            ToolError: it holds none.
        """
        with self._nvfatbin.checked("nvFatbinAddReloc"):
            self._nvfatbin.api.add_reloc(self.raw, data, len(data))

    def fatbin(self) -> bytes:
        """The packed fatbin.

        Raises:
            ToolError: packing failed.
        """
        api = self._nvfatbin.api
        with self._nvfatbin.checked("nvFatbinSize"):
            buffer = bytearray(api.size(self.raw))
        with self._nvfatbin.checked("nvFatbinGet"):
            api.get(self.raw, buffer)
        return bytes(buffer)
