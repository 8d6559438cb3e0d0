"""``cujit build``: one source for several architectures, in one fatbin."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from cujit.artifact import ImageKind
from cujit.cli.arches import arches_option
from cujit.cli.compiler_options import (
    WrittenOptions,
    compiler_options,
    limit_options,
    names_option,
)
from cujit.cli.console import json_option, progress
from cujit.cli.files import file_argument, kind_of_output, output_option
from cujit.cli.images import compress_option, print_fatbin
from cujit.cli.nvcc_arguments import CompilerCommand
from cujit.program import build


@click.command("build", cls=CompilerCommand)
@file_argument
@arches_option(
    "Target to build for: sm_… (cubin), compute_… (PTX), lto_… (LTO-IR), all, portable, or native. Default: all.",
    "-t",
    "--target",
    "-a",
    "targets",
)
@names_option
@output_option("Fatbin file to write. Default: the name of FILE with the extension .fatbin, in the working directory.")
@compress_option
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of compiler threads. Default: one per processor.",
)
@compiler_options
@limit_options
@json_option
def command(
    file: Path,
    targets: Sequence[str],
    names: Sequence[str],
    output: Path | None,
    compress: str | None,
    jobs: int | None,
    compiler: WrittenOptions,
    as_json: bool,
    **limits: Any,
) -> None:
    """Compile FILE for several architectures into one fatbin.

    FILE contains CUDA C++ or LLVM IR. cujit compiles FILE once for each target and prints compiler warnings to standard
    error. To create a single image, use cujit compile.
    """
    kind_of_output(output, None, (ImageKind.FATBIN,))
    options, source = compiler.read(), compiler.source(file)
    with progress("building") as tick:
        fatbin = build(
            source,
            targets,
            names=names,
            options=options,
            compress=compress,
            progress=tick,
            jobs=jobs,
            **limits,
        )
    print_fatbin(fatbin, output or Path(file.with_suffix(".fatbin").name), as_json)
