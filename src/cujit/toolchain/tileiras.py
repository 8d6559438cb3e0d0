"""The programs of CUDA Tile IR: ``tileiras``, which makes machine code of it, and ``tileirdisasm``, which prints it.

Both read files alone. tileiras loads libNVVM and starts the ptxas beside it. Source: their ``--help``, 13.5; their
system calls.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from cujit.arch.support import install
from cujit.artifact.writing import temporary_directory, write_file
from cujit.errors import ToolchainNotFoundError, ToolError
from cujit.forks import cached_property
from cujit.toolchain.libraries import find_program
from cujit.toolchain.programs import run_program
from cujit.values.hashing import sha256

_RELEASE = re.compile(r"\brelease (\d+)\.(\d+)")
_ARCH = re.compile(r"^\s*=sm_(\d+)\s", re.MULTILINE)


class Tileiras:
    """The assembler of Tile IR that is installed; ``path`` is its file."""

    def __init__(self, homes: Sequence[str] = ()) -> None:
        """Find the program: in wheels, in conda's prefix, in ``homes``, or on the PATH.

        Raises:
            ToolchainNotFoundError: it is not installed.
        """
        self.path = _found("tileiras", homes)

    @cached_property
    def _about(self) -> str:
        return run_program([self.path, "--version"])[0]

    @cached_property
    def version(self) -> tuple[int, int]:
        """The release, (major, minor).

        Raises:
            ToolError: the program does not state one.
        """
        found = _RELEASE.search(self._about)
        if found is None:
            raise ToolError(f"{self.path} doesn't report its release", tool="tileiras", log=self._about)
        return int(found[1]), int(found[2])

    @property
    def tool(self) -> str:
        """The program with its release."""
        return "tileiras {}.{}".format(*self.version)

    @cached_property
    def arches(self) -> tuple[int, ...]:
        """The numbers of the architectures that it builds for, rising."""
        return tuple(sorted(int(number) for number in _ARCH.findall(run_program([self.path, "--help"])[0])))

    @property
    def files(self) -> tuple[str, ...]:
        """The files that determine its output: the program, its libNVVM, and its ptxas."""
        home = os.path.dirname(os.path.dirname(os.path.realpath(self.path)))
        own = (f"{home}/bin/ptxas", *(f"{home}/{place}/libnvvm.so.4" for place in ("lib", "lib64", "nvvm/lib64")))
        return (os.path.realpath(self.path), *filter(os.path.exists, own))

    @cached_property
    def identity(self) -> str:
        """The builds of those files, by what the programs state, and by size.

        The programs have no identifier of a linker, and reading all of them takes most of a second.
        """
        stated = [self._about, *(run_program([file, "--version"])[0] for file in self.files if file.endswith("ptxas"))]
        sizes = " ".join(str(os.path.getsize(file)) for file in self.files)
        return f"{sha256(chr(10).join(stated).encode()).hexdigest()}/{sizes}"

    def assemble(self, data: bytes, arguments: Sequence[str]) -> tuple[bytes, str]:
        """Assemble Tile IR to a cubin, and return the cubin with the program's output.

        Raises:
            ToolError: the program rejects the Tile IR or an argument. ``log`` contains the reason.
            ToolCrashError: the program crashed.
        """
        with temporary_directory() as directory:
            source, made = write_file(directory / "image.tileir", data), directory / "image.cubin"
            command = [self.path, *arguments, os.fspath(source), "-o", os.fspath(made)]
            out, log = run_program(command, environment={"TMPDIR": os.fspath(directory)})
            try:
                return made.read_bytes(), out + log
            except OSError as e:
                raise ToolError("tileiras didn't write a cubin", tool=self.tool, log=out + log) from e


def disassemble(data: bytes, homes: Sequence[str] = (), *, lines: bool = False) -> str:
    """Return Tile IR as text, optionally with the source ``lines`` of its operations.

    Raises:
        ToolchainNotFoundError: tileirdisasm is not installed.
        ToolError: it rejects the Tile IR.
    """
    program = _found("tileirdisasm", homes)
    with temporary_directory() as directory:
        file = os.fspath(write_file(directory / "image.tileir", data))
        return run_program([program, *(["--print-debug-info"] * lines), file])[0]


def _found(name: str, homes: Sequence[str]) -> str:
    path = find_program(name, homes)
    if path is None:
        raise ToolchainNotFoundError(f"{name} is not installed", help=f"run {install('tile')} to install {name}")
    return path
