"""``cujit compile``: one source for one architecture, to PTX, a cubin, LTO-IR, OptiX IR or Tile IR."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from cujit.arch import Arch, ArchKind
from cujit.artifact import Artifact, ImageKind
from cujit.artifact.writing import write_file
from cujit.cli.arches import arch_option
from cujit.cli.compiler_options import (
    WrittenOptions,
    compiler_options,
    limit_options,
    names_option,
)
from cujit.cli.console import json_option, print_json
from cujit.cli.files import file_argument, kind_of_output, note_log, output_option, write_image
from cujit.cli.nvcc_arguments import CompilerCommand
from cujit.inspection.sass import disassemble
from cujit.program import compile

_KINDS = (ImageKind.PTX, ImageKind.CUBIN, ImageKind.LTOIR, ImageKind.OPTIXIR, ImageKind.TILEIR)
_KIND_OF = {ArchKind.VIRTUAL: ImageKind.PTX, ArchKind.LTO: ImageKind.LTOIR}


@click.command("compile", cls=CompilerCommand)
@file_argument
@output_option(
    "Image file to write. Default: the name of FILE with the extension for the image kind, in the working directory."
)
@click.option(
    "--to",
    type=click.Choice([kind.value for kind in _KINDS]),
    help="Kind of image. Default: the kind that the output file's extension or the architecture implies, otherwise "
    "ptx.",
)
@arch_option(
    "Architecture to compile for: sm_… (cubin), compute_… (PTX), lto_… (LTO-IR), or native. "
    "Default: the lowest architecture that the compiler supports.",
)
@names_option
@compiler_options
@limit_options
@json_option
def command(
    file: Path,
    output: Path | None,
    to: str | None,
    arch: str | None,
    names: Sequence[str],
    compiler: WrittenOptions,
    as_json: bool,
    **limits: Any,
) -> None:
    """Compile FILE to PTX, a cubin, LTO-IR, OptiX IR, or Tile IR.

    FILE contains CUDA C++, LLVM IR, or Tile IR. cujit prints compiler warnings to standard error. If the output file
    name ends in .sass, cujit writes SASS. To compile for several architectures, use cujit build.
    """
    sass = output if output is not None and output.suffix.lower() == ".sass" else None
    if sass is not None and to not in (None, "cubin"):
        raise click.UsageError(f"{sass}: SASS is disassembled from a cubin, but --to is {to}")
    wanted = None if arch is None else Arch.parse(arch)
    kind = ImageKind.CUBIN if sass is not None else kind_of_output(output, _wanted_kind(to, wanted), _KINDS)
    options = compiler.read()
    image = compile(compiler.source(file), to=kind, arch=arch, names=names, options=options, **limits)
    if sass is not None:
        _write_sass(image, sass, as_json)
        return
    place = output or Path(file.with_suffix(f".{image.kind.value}").name)
    write_image(image, place, as_json, names=dict(image.names))


def _write_sass(image: Artifact, output: Path, as_json: bool) -> None:
    """Write the SASS of a cubin, and print which."""
    note_log(image)
    write_file(output, disassemble(image.data).encode())
    about = {"output": str(output), "kind": "sass", "arch": str(image.arch)}
    print_json(about) if as_json else click.echo(f"{output}: sass for {image.arch}")


def _wanted_kind(to: str | None, arch: Arch | None) -> ImageKind | None:
    """Return the kind that ``--to`` specifies, otherwise the kind that the architecture implies. PTX for sm_90 is
    usual.
    """
    by_arch = None if arch is None else _KIND_OF.get(arch.kind)
    kind = ImageKind(to) if to is not None else None
    if arch is not None and kind is not None and by_arch not in (None, kind):
        raise click.UsageError(f"{arch} implies {by_arch.value}, but --to is {to}: use --arch {arch.real}")
    return kind or by_arch
