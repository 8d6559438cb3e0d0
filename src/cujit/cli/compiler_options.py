"""Options of the compiler on the command line: ``-O``, ``-I`` and ``-D``, read by the option table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from cujit.cli.console import settings, several
from cujit.compiler.options.table import OPTIONS
from cujit.compiler.options.values import read_options
from cujit.program import Options, Source
from cujit.values import NamedTuple

OPTION_NAMES = ", ".join(OPTIONS)

_DEFINE_OPTIONS = (
    click.option(
        "-O",
        "--option",
        "option_words",
        multiple=True,
        metavar="KEY[=VALUE]",
        shell_complete=lambda _context, _parameter, begun: [
            n for n in OPTIONS if n.startswith(begun.replace("-", "_"))
        ],
        help="Set a compiler option listed in docs/options.md, such as -O std=c++20 or -O lineinfo.",
    ),
    click.option("-I", "include", multiple=True, metavar="DIR", help="Search DIR for header files."),
    click.option("-D", "define", multiple=True, metavar="NAME[=VALUE]", help="Define a macro."),
)

_LIBDEVICE = click.option(
    "--libdevice",
    is_flag=True,
    help="Link LLVM IR with libdevice, NVIDIA's math library, for functions such as __nv_sinf.",
)


class WrittenOptions(NamedTuple):
    """Compiler options from ``-O``, ``-I``, ``-D``, ``--libdevice``, and, for commands that launch, ``--arch``."""

    option_words: Sequence[str]
    include: Sequence[str]
    define: Sequence[str]
    libdevice: bool = False
    jit_arches: Sequence[str] = ()

    @property
    def words(self) -> list[str]:
        """The options in the form that the explorer accepts."""
        return [*self.option_words, *(f"-I{path}" for path in self.include), *(f"-D{macro}" for macro in self.define)]

    def read(self) -> Options:
        """Read the options.

        Raises:
            OptionError: one is unknown, or has an invalid value.
        """
        return read_options(self.option_words, self.include, self.define)

    def source(self, file: Path) -> Source:
        """Read the source in a file: CUDA C++, or LLVM IR (.ll, .bc) with libdevice if ``--libdevice`` is set.

        Raises:
            click.UsageError: ``--libdevice`` is set for another kind of file.
            FileError: the file can't be read.
            FormatError: the file has another format.
        """
        if not self.libdevice:
            return Source.of(file)
        if not is_llvm_ir(file):
            raise click.UsageError(f"--libdevice requires LLVM IR (.ll, .bc), and {file.name} is not")
        return Source.nvvm(file, libdevice=True)


define_options = settings("compiler", WrittenOptions, *_DEFINE_OPTIONS)
"""Add ``-O``, ``-I`` and ``-D`` to a command, as ``compiler``."""

compiler_options = settings("compiler", WrittenOptions, *_DEFINE_OPTIONS, _LIBDEVICE)
"""Add the compiler options to a command, as ``compiler``. They include ``--arch`` of a command that launches."""


def is_llvm_ir(file: Path) -> bool:
    """Whether a file is LLVM IR by its ending."""
    return file.suffix.lower() in (".ll", ".bc")


names_option = click.option(
    "-n",
    "--name",
    "names",
    multiple=True,
    metavar="EXPRESSION",
    help="Name expression of a template instance to compile, such as 'axpy<float>'.",
)


def memory_option(help: str) -> Callable[[Any], Any]:
    """Return ``--memory``, which limits the address space of a process."""
    return click.option("--memory", "memory_mib", type=click.IntRange(min=1), metavar="MIB", help=help)


limit_options = several(
    click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        help="Stop with an error after this many seconds.",
    ),
    click.option(
        "--isolate",
        is_flag=True,
        help="Do the work in a separate process, and report a crash in that process as an error.",
    ),
    memory_option("With --isolate: maximum address space of the separate process, in MiB."),
)
