"""``cujit build``: one source for several architectures, in one fatbin."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from cujit.cli.compiler_options import compiler_options, limit_options, read_options
from cujit.cli.console import json_option, note, print_json, progress, shown_bytes
from cujit.cli.files import file_argument, output_option
from cujit.cli.images import image_records, print_images
from cujit.compiler.inputs.entry import COMPRESSIONS
from cujit.program import build


@click.command("build")
@file_argument
@click.option(
    "-t",
    "--target",
    "targets",
    multiple=True,
    default=["all"],
    show_default=True,
    metavar="ARCH",
    help="What to build for: sm_… gives machine code, compute_… PTX, lto_… LTO-IR; or all, portable, native.",
)
@click.option(
    "-n",
    "--name",
    "names",
    multiple=True,
    metavar="EXPRESSION",
    help="An instance of a template to build: 'axpy<float>'.",
)
@output_option("The fatbin to write; without it the source's name ending in .fatbin, in the working directory.")
@click.option(
    "--compress", type=click.Choice(COMPRESSIONS), help="How to compress the images; balance if nothing is said."
)
@click.option("-j", "--jobs", type=click.IntRange(min=1), metavar="N", help="Threads; without it one per processor.")
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
    said: Sequence[str],
    include: Sequence[str],
    define: Sequence[str],
    as_json: bool,
    **limits: Any,
) -> None:
    """Compile the CUDA C++ or LLVM IR in FILE for several architectures and bundle the images into one fatbin.

    What the compiler warns of goes to standard error.
    """
    options = read_options(said, include, define)
    with progress("building") as tick:
        fatbin = build(
            file,
            targets,
            names=names,
            options=options,
            compress=compress,
            progress=tick,
            jobs=jobs,
            **limits,
        )
    path = fatbin.save(output or Path(file.with_suffix(".fatbin").name))
    if fatbin.log.strip():
        note(fatbin.log.strip())
    images = image_records(fatbin.data)
    if as_json:
        print_json({"output": str(path), "bytes": len(fatbin), "images": images, "names": dict(fatbin.names)})
        return
    print_images(images)
    click.echo(f"{path}: {shown_bytes(len(fatbin))} bytes")
