"""``cujit link``: several images, and sources, to one cubin or PTX."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from cujit.cli.compiler_options import compiler_options, read_options
from cujit.cli.console import json_option, note, print_json, shown_bytes
from cujit.cli.files import FILE, output_option
from cujit.program import Source, link


@click.command("link")
@click.argument("files", nargs=-1, required=True, type=FILE)
@output_option("The image to write.", required=True)
@click.option(
    "--to",
    type=click.Choice(["cubin", "ptx"]),
    help="What to make; without it PTX where the output is called .ptx, and a cubin else.",
)
@click.option("-a", "--arch", metavar="ARCH", help="For which architecture; without it the highest of the inputs.")
@compiler_options
@json_option
def command(
    files: Sequence[Path],
    output: Path,
    to: str | None,
    arch: str | None,
    said: Sequence[str],
    include: Sequence[str],
    define: Sequence[str],
    as_json: bool,
) -> None:
    """Link FILES (PTX, LTO-IR, relocatable cubins, fatbins, objects, archives, CUDA C++, LLVM IR) into one image.

    PTX is linked to PTX without a toolkit or a GPU, for the CPU device and for GPUs to come.
    """
    parts = [Source.cuda(file) if file.suffix in (".cu", ".cuh") else file for file in files]
    kind = to or ("ptx" if output.suffix == ".ptx" else "cubin")
    linked = link(parts, to=kind, arch=arch, options=read_options(said, include, define))
    path = linked.save(output)
    if linked.log.strip():
        note(linked.log.strip())
    if as_json:
        print_json({"output": str(path), "kind": kind, "arch": str(linked.arch), "bytes": len(linked)})
        return
    click.echo(f"{path}: {linked.kind.value} for {linked.arch}, {shown_bytes(len(linked))} bytes")
