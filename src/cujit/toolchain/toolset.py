"""The toolchain as one value: each library opened once, when first needed, and its headers found once."""

from __future__ import annotations

import os

from cujit.forks import cached_property
from cujit.toolchain.headers import BUNDLE, HeaderSearch, Settings, bundle_directory, find_headers
from cujit.values import NamedTuple
from cujit.values.typed import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from cujit.toolchain.nvfatbin import NvFatbin
    from cujit.toolchain.nvjitlink import NvJitLink
    from cujit.toolchain.nvrtc import Nvrtc
    from cujit.toolchain.nvvm import Nvvm
    from cujit.toolchain.tileiras import Tileiras


class Compiler(NamedTuple):
    """Capabilities of a compiler: the numbers of its architectures in ascending order, and its CUDA release."""

    tool: str
    arches: tuple[int, ...]
    version: tuple[int, int]


class Compilers(Protocol):
    """An object that knows the capabilities of the compilers."""

    def compiler(self, language: str) -> Compiler:
        """Return the compiler of ``cuda``, ``nvvm`` or ``tile``.

        Raises:
            ToolchainNotFoundError: it is not installed.
        """


class Toolchain:
    """Compilers, linker, and packer of a process for one set of Settings. Creating it opens nothing.

    Each library's module is imported with the library. Results from a cache need none.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.notes: dict[object, Any] = {}
        """What others find out about it and keep for the process, by keys of theirs; they know how long it holds."""

    @cached_property
    def nvrtc(self) -> Nvrtc:
        """The compiler of CUDA C++.

        Raises:
            ToolchainNotFoundError: it is not installed.
        """
        from cujit.toolchain.nvrtc import Nvrtc  # start-up: each library is opened when it is first used

        return Nvrtc()

    @cached_property
    def nvvm(self) -> Nvvm:
        """The compiler of LLVM IR.

        Raises:
            ToolchainNotFoundError: it is not installed.
        """
        from cujit.toolchain.nvvm import Nvvm  # start-up: each library is opened when it is first used

        return Nvvm()

    @cached_property
    def nvjitlink(self) -> NvJitLink:
        """The linker.

        Raises:
            ToolchainNotFoundError: it is not installed.
        """
        from cujit.toolchain.nvjitlink import NvJitLink  # start-up: each library is opened when it is first used

        return NvJitLink()

    @cached_property
    def nvfatbin(self) -> NvFatbin:
        """The packer of fatbins.

        Raises:
            ToolchainNotFoundError: it is not installed.
        """
        from cujit.toolchain.nvfatbin import NvFatbin  # start-up: each library is opened when it is first used

        return NvFatbin()

    @cached_property
    def tileiras(self) -> Tileiras:
        """The assembler of Tile IR.

        Raises:
            ToolchainNotFoundError: it is not installed.
        """
        from cujit.toolchain.tileiras import Tileiras  # start-up: for Tile IR alone

        return Tileiras([home for _, home in self.settings.cuda_homes])

    def compiler(self, language: str) -> Compiler:
        """Return the compiler of ``cuda``, ``nvvm`` or ``tile``, which is opened for this.

        Raises:
            ToolchainNotFoundError: it is not installed.
        """
        if language == "nvvm":
            return Compiler("libNVVM", self.nvvm.arches, self.nvvm.release)
        if language == "tile":
            return Compiler("tileiras", self.tileiras.arches, self.tileiras.version)
        return Compiler("NVRTC", self.nvrtc.arches, self.nvrtc.version)

    @cached_property
    def headers(self) -> HeaderSearch:
        """The toolkit's headers that belong to the compiler.

        Raises:
            ToolchainNotFoundError: the compiler is not installed.
        """
        return find_headers(self.settings, self.nvrtc.version[0], self.nvrtc.library_path)

    def install_headers(self) -> None:
        """Install the headers that NVRTC bundles, if headers of the toolkit are missing and NVRTC bundles any.

        It is done once for each user and NVRTC, and again if they were removed. What fails is among what ``headers``
        tried.

        Raises:
            ToolchainNotFoundError: the compiler is not installed.
        """
        search = self.headers
        is_removed = any(d.found_via == BUNDLE and not os.path.exists(d.path) for d in search.directories)
        directory = (is_removed or search.missing) and bundle_directory(self.nvrtc.library_path)
        if not directory or (directory in self.notes and not is_removed):
            return
        from cujit.toolchain.bundled import install_bundle  # start-up: where the toolkit's headers are not installed

        self.notes[directory] = why_not = install_bundle(directory)
        found = find_headers(self.settings, self.nvrtc.version[0], self.nvrtc.library_path)
        self.__dict__["headers"] = found._replace(tried=(*found.tried, *([why_not] if why_not else ())))

    @property
    def live_handles(self) -> int:
        """How many handles of the libraries that were opened are open now; 0 between calls."""
        opened = (self.__dict__.get(name) for name in ("nvrtc", "nvvm", "nvjitlink", "nvfatbin"))
        return sum(library.ledger.live for library in opened if library is not None)
