"""Files that replace NVIDIA's compilers, and the environment variables by which clients find them.

The assembler and ``nvcc`` are executables. cujit writes libraries for the installed compiler libraries.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import shlex
import sys
from pathlib import Path

from cujit.emulator import library_files
from cujit.errors import UnsupportedError
from cujit.forks import once
from cujit.formats.elf import read_elf
from cujit.toolchain.headers import Settings
from cujit.toolchain.libraries import STANDS_BEFORE, find_library
from cujit.workers.interpreter import interpreter

_LIBRARIES = ("nvrtc", "nvJitLink")
FUNCTION = re.compile(r"(?:__)?((?:nvrtc|nvJitLink)[A-Z]\w*?)(?:_\d+_\d+)?")
"""How functions are called; nvJitLink's have a number of the version behind the name, too."""

_PROGRAMS = {"ptxas": "assembler", "nvcc": "nvcc"}
"""Programs that stand for NVIDIA's, and their modules here."""


class RealLibrary:
    """An NVIDIA library that a library of cujit replaces: its path, and its functions in a fixed order."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        with self.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            elf = read_elf(data)  # type: ignore[arg-type]  # which is read as bytes are
            found = {symbol.name for symbol in elf.symbols(".dynsym") if symbol.section}
            has_versions = elf.section(".gnu.version_d") is not None
        self.node = self.soname if has_versions else ""
        """The version of all its functions, as linkers write it into programs: the soname (readelf -V, CUDA 13.5)."""
        self.functions = sorted(name for name in found if FUNCTION.fullmatch(name))

    @property
    def soname(self) -> str:
        """The name that loaders know, ``libnvrtc.so.13``."""
        return self.path.name

    def text(self) -> str:
        """Return a text for ``attach``. A different NVIDIA library gives a different text, and therefore a different
        file.
        """
        found = self.path.stat()
        return "\n".join((str(self.path), f"{found.st_size} {found.st_mtime_ns}", *self.functions))


@once
def _real_libraries() -> list[RealLibrary]:
    homes = [home for _, home in Settings.from_environment(os.environ).cuda_homes]
    return [RealLibrary(path) for path in (find_library(name, homes) for name in _LIBRARIES) if path]


def folder() -> Path:
    """Create the folder of the compilers if it doesn't exist, with replacement libraries and programs.

    Raises: as of ``library_files.library_of`` and ``library_files.keep``.
    """
    files = {
        real.soname: library_files.library_of(real.soname, real.functions, "compilers", real.text(), real.node)
        for real in _real_libraries()
    }
    before = {f"{STANDS_BEFORE}{real.soname}": str(real.path).encode() for real in _real_libraries()}
    with contextlib.suppress(UnsupportedError):  # a frozen program has no interpreter for it, and seldom calls one
        files |= {name: _script(module) for name, module in _PROGRAMS.items()}
    return library_files.keep({**files, **before})


def _script(module: str) -> bytes:
    """Write a program: a script of this Python, which finds cujit where this process has."""
    package = str(Path(__file__).parent.parent.parent)
    lines = (
        "#!/bin/sh",
        f"'''exec' {shlex.quote(interpreter())} \"$0\" \"$@\"",
        "' '''",
        "import sys",
        f"sys.path += [p for p in {[package, *filter(None, sys.path)]!r} if p not in sys.path]",
        f"from cujit.emulator.{module} import main",
        "sys.exit(main(sys.argv[1:]))",
    )
    return "\n".join(lines).encode() + b"\n"


def environment() -> dict[str, str]:
    """Return the environment variables by which a process and its clients find the compilers and cache their results.

    Raises: as of ``folder``.
    """
    where = folder()
    libraries = sorted(str(path) for path in where.iterdir() if path.name.startswith("lib"))
    assembler, programs = where / "ptxas", os.environ.get("PATH", os.defpath).split(os.pathsep)
    paths = {
        "TRITON_PTXAS_PATH": str(assembler),
        "TRITON_PTXAS_BLACKWELL_PATH": str(assembler),
        "PATH": os.pathsep.join(dict.fromkeys((str(where), *programs))),
    }
    caches = library_files.root_folder() / "caches"
    return {
        "LD_PRELOAD": " ".join([*libraries, *filter(None, [os.environ.get("LD_PRELOAD", "")])]),
        **(paths if assembler.exists() else {}),
        "TRITON_CACHE_DIR": str(caches / "triton"),
        "NUMBA_CACHE_DIR": str(caches / "numba"),
        "CUPY_CACHE_DIR": str(caches / "cupy"),
    }
