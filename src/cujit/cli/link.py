"""``cujit link``: several images, and sources, to one cubin, PTX or LTO-IR."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from cujit.artifact import ImageKind
from cujit.cli.arches import arch_option
from cujit.cli.compiler_options import (
    WrittenOptions,
    compiler_options,
    is_llvm_ir,
    limit_options,
)
from cujit.cli.console import json_option
from cujit.cli.files import FILE, kind_of_output, output_option, write_image
from cujit.cli.nvcc_arguments import CompilerCommand
from cujit.program import Source, link


@click.command("link", cls=CompilerCommand)
@click.argument("files", nargs=-1, required=True, type=FILE)
@output_option("Image to write.", required=True)
@click.option(
    "--to",
    type=click.Choice(["cubin", "ptx", "ltoir"]),
    help="Kind of image. Default: ptx or ltoir if the output file has that extension, otherwise cubin.",
)
@arch_option(
    "Architecture to link for. Default: the highest architecture among the inputs.",
)
@compiler_options
@limit_options
@json_option
def command(
    files: Sequence[Path],
    output: Path,
    to: str | None,
    arch: str | None,
    compiler: WrittenOptions,
    as_json: bool,
    **limits: Any,
) -> None:
    """Link PTX, LTO-IR, objects, and sources into one image.

    FILES can be PTX, LTO-IR, relocatable cubins, fatbins, objects, archives, CUDA C++, and LLVM IR. Linking PTX files
    into PTX requires neither a toolkit nor a GPU.
    """
    kind = (
        kind_of_output(output, ImageKind(to) if to else None, (ImageKind.CUBIN, ImageKind.PTX, ImageKind.LTOIR))
        or ImageKind.CUBIN
    )
    if compiler.libdevice and not any(map(is_llvm_ir, files)):
        raise click.UsageError("--libdevice requires LLVM IR, but no file ends in .ll or .bc")
    parts = [_part(file, compiler) for file in files]
    linked = link(parts, to=kind, arch=arch, options=compiler.read(), **limits)
    write_image(linked, output, as_json)


def _part(file: Path, compiler: WrittenOptions) -> Source | Path:
    if file.suffix in (".cu", ".cuh"):
        return Source.cuda(file)
    return compiler.source(file) if is_llvm_ir(file) else file
