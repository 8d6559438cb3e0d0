"""Options of the compiler on the command line: ``-O``, ``-I`` and ``-D``, read by the option table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from cujit.arch import ArchKind
from cujit.arch.arch import known_names
from cujit.cli.console import several
from cujit.compiler.options.table import OPTIONS, OptionType
from cujit.program import Options, Source

OPTION_NAMES = ", ".join(OPTIONS)
_TRUTH = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


define_options = several(
    click.option(
        "-O",
        "--option",
        "said",
        multiple=True,
        metavar="KEY[=VALUE]",
        shell_complete=lambda _context, _parameter, begun: [
            n for n in OPTIONS if n.startswith(begun.replace("-", "_"))
        ],
        help="Say an option of the compiler, by its name in docs/options.md: -O std=c++20 -O lineinfo.",
    ),
    click.option("-I", "include", multiple=True, metavar="DIR", help="Search this directory for headers."),
    click.option("-D", "define", multiple=True, metavar="NAME[=VALUE]", help="Define a macro."),
)

compiler_options = several(
    define_options,
    click.option(
        "--libdevice", is_flag=True, help="Give LLVM IR NVIDIA's library of mathematical functions (__nv_sinf)."
    ),
)


def is_llvm_ir(file: Path) -> bool:
    """Whether a file is LLVM IR by its ending."""
    return file.suffix.lower() in (".ll", ".bc")


def source_of(file: Path, *, libdevice: bool) -> Source:
    """Read the source in a file: CUDA C++, or LLVM IR (.ll, .bc) with the library that ``--libdevice`` adds.

    Raises:
        click.UsageError: ``--libdevice`` was said of another file.
        FileError: it cannot be read.
        FormatError: it is neither.
    """
    if not libdevice:
        return Source.of(file)
    if not is_llvm_ir(file):
        raise click.UsageError(f"--libdevice is for LLVM IR, and {file.name} is none (.ll, .bc)")
    return Source.nvvm(file, libdevice=True)


def complete_arch(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """List the architectures that begin so, for shells."""
    return [name for kind in ArchKind for name in known_names(kind) if name.startswith(begun)]


def arch_option(help: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a verb ``-a`` and ``--arch``, as ``arch``."""
    return click.option("-a", "--arch", metavar="ARCH", shell_complete=complete_arch, help=help)


names_option = click.option(
    "-n",
    "--name",
    "names",
    multiple=True,
    metavar="EXPRESSION",
    help="An instance of a template: 'axpy<float>'.",
)

limit_options = several(
    click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        help="Give up what is not done by then.",
    ),
    click.option("--isolate", is_flag=True, help="Compile in a process apart, whose death is an error."),
    click.option(
        "--memory",
        "memory_mib",
        type=click.IntRange(min=1),
        metavar="MIB",
        help="With --isolate: the address space of the process apart, in MiB.",
    ),
)


def read_options(said: Sequence[str], include: Sequence[str] = (), define: Sequence[str] = ()) -> Options:
    """Read ``KEY=VALUE`` by the option table; a bare ``KEY`` switches on. Lists grow with every mention.

    Raises:
        OptionError: an option is unknown, or its value is of the wrong type or out of bounds.
    """
    values: dict[str, Any] = {}
    for text in (*said, *(f"include={d}" for d in include), *(f"define={d}" for d in define)):
        key, separator, value = text.partition("=")
        name = key.strip().replace("-", "_")
        _add(values, name, value if separator else None)
    return Options.of(values, {})


def _add(values: dict[str, Any], name: str, text: str | None) -> None:
    row = OPTIONS.get(name)
    kind = OptionType.TEXTS if name == "extra" else row.type if row else OptionType.TEXT
    said = text or ""
    many: list[Any] = values.setdefault(name, []) if kind in (OptionType.TEXTS, OptionType.INTS) else []
    if kind is OptionType.TEXTS:
        many.append(said)
    elif kind is OptionType.INTS:
        many += map(_int, said.split(","))
    elif kind is OptionType.DEFINES:
        macro, separator, value = said.partition("=")
        values.setdefault(name, {})[macro] = value if separator else None
    elif kind is OptionType.BOOL and (text is None or said.lower() in _TRUTH):
        values[name] = text is None or _TRUTH[said.lower()]
    else:
        values[name] = _int(said) if kind is OptionType.INT else said


def _int(text: str) -> object:
    """Read an int; anything else is left for the table to refuse."""
    try:
        return int(text)
    except ValueError:
        return text
