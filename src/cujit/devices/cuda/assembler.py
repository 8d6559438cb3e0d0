"""Machine code from PTX, made by the installed nvJitLink before the driver loads it."""

from __future__ import annotations

from typing import Protocol

from cujit.arch import Arch
from cujit.arch.support import Version
from cujit.artifact import ImageKind
from cujit.devices.jit_options import JitOptions
from cujit.errors import ToolchainNotFoundError
from cujit.forks import once


class Assembler(Protocol):
    """A tool that assembles PTX into a cubin. ``version`` is the CUDA release of the tool."""

    @property
    def name(self) -> str:
        """How messages call it: ``nvJitLink 13.4``."""

    @property
    def version(self) -> Version:
        """Its CUDA release."""

    def assemble(self, text: bytes, target: Arch, options: JitOptions, name: str) -> tuple[bytes, str]:
        """Return the cubin and the assembler's log.

        Raises:
            ToolError: the text can't be assembled for ``target``.
        """


class NvJitLinkAssembler:
    """The nvJitLink that is installed.

    Raises:
        ToolchainNotFoundError: it is not.
    """

    def __init__(self) -> None:
        from cujit.toolchain.nvjitlink import NvJitLink  # optional: the driver assembles too

        self._library = NvJitLink()

    @property
    def name(self) -> str:
        """How messages call it."""
        return f"nvJitLink {self.version[0]}.{self.version[1]}"

    @property
    def version(self) -> Version:
        """Its CUDA release."""
        return self._library.version

    def assemble(self, text: bytes, target: Arch, options: JitOptions, name: str) -> tuple[bytes, str]:
        """Return the cubin and the assembler's log.

        Raises:
            ToolError: the text can't be assembled for ``target``.
        """
        with self._library.linker((f"-arch={target.real}", *options.nvjitlink_arguments)) as linker:
            linker.add(ImageKind.PTX, text.rstrip(b"\0"), name)
            linker.complete()
            return linker.cubin(), linker.info_log()


def installed_assembler() -> Assembler | None:
    """Return the installed nvJitLink, which is opened only once, or None if nvJitLink isn't installed."""
    try:
        return _opened()
    except ToolchainNotFoundError:
        return None


@once
def _opened() -> NvJitLinkAssembler:
    return NvJitLinkAssembler()
