"""The toolchain as one value: each library opened once, when first needed, and its headers found once."""

from __future__ import annotations

from functools import cached_property

from cujit.toolchain.headers import HeaderSearch, Settings, find_headers
from cujit.toolchain.nvfatbin import NvFatbin
from cujit.toolchain.nvjitlink import NvJitLink
from cujit.toolchain.nvrtc import Nvrtc
from cujit.toolchain.nvvm import Nvvm

__all__ = ["Toolchain"]


class Toolchain:
    """Compilers, linker and packer of one process under one set of Settings. Making it opens nothing."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()

    @cached_property
    def nvrtc(self) -> Nvrtc:
        """The compiler of CUDA C++.

        Raises:
            ToolchainNotFoundError: it is not installed.
        """
        return Nvrtc()

    @cached_property
    def nvvm(self) -> Nvvm:
        """The compiler of LLVM IR.

        Raises:
            ToolchainNotFoundError: it is not installed.
        """
        return Nvvm()

    @cached_property
    def nvjitlink(self) -> NvJitLink:
        """The linker.

        Raises:
            ToolchainNotFoundError: it is not installed.
        """
        return NvJitLink()

    @cached_property
    def nvfatbin(self) -> NvFatbin:
        """The packer of fatbins.

        Raises:
            ToolchainNotFoundError: it is not installed.
        """
        return NvFatbin()

    @cached_property
    def headers(self) -> HeaderSearch:
        """The toolkit's headers that belong to the compiler.

        Raises:
            ToolchainNotFoundError: the compiler is not installed.
        """
        return find_headers(self.settings, self.nvrtc.version[0], self.nvrtc.library_path)

    @property
    def live_handles(self) -> int:
        """How many handles of the libraries that were opened are open now; 0 between calls."""
        opened = (self.__dict__.get(name) for name in ("nvrtc", "nvvm", "nvjitlink", "nvfatbin"))
        return sum(library.ledger.live for library in opened if library is not None)
