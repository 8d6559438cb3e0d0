"""``cujit inspect``: prints the contents of an image from its bytes alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import click

from cujit.arch import Arch
from cujit.artifact import ImageKind
from cujit.artifact.writing import write_file
from cujit.cli.arches import arches_option
from cujit.cli.console import json_option, print_json, settings, show
from cujit.cli.exit_codes import ExitCode
from cujit.cli.files import FILE, complete_kernel, open_built
from cujit.cli.help import Command
from cujit.cli.inspect.extract import extract
from cujit.cli.inspect.tables import KernelFilter, render_changes, render_images
from cujit.errors import ArchError, FormatError, NameNotFoundError, listed, spell
from cujit.inspection.choose import names_matching
from cujit.inspection.compare import compare
from cujit.inspection.read import inspect
from cujit.inspection.records import comparison_record, inspections_record
from cujit.inspection.sass import disassemble, find_nvdisasm
from cujit.inspection.values import Inspection
from cujit.toolchain.tileiras import disassemble as tile_text
from cujit.values import NamedTuple, replace

_SHOWN_NAMES = 12
_DIRECTORY = click.Path(file_okay=False, path_type=Path)


class InsteadOptions(NamedTuple):
    """Options that replace the list of images. At most one of them is set."""

    ptx: bool
    sass: bool
    tile: bool
    directory: Path | None
    needs: bool
    against: Path | None
    page: Path | None


_instead_options = settings(
    "instead",
    InsteadOptions,
    click.option("--ptx", is_flag=True, help="Print the PTX, including PTX recovered from a cubin's line information."),
    click.option("--sass", is_flag=True, help="Print the SASS. Requires nvdisasm: pip install 'cujit[sass]'."),
    click.option("--tile", is_flag=True, help="Print the Tile IR. Requires tileirdisasm: pip install 'cujit[tile]'."),
    click.option(
        "--extract",
        "directory",
        metavar="DIR",
        type=_DIRECTORY,
        help="Write every image, and the PTX of cubins, to files in DIR.",
    ),
    click.option(
        "--needs",
        is_flag=True,
        help="List the PTX instructions in FILE and the ones that the CPU device doesn't support.",
    ),
    click.option("--against", metavar="OTHER", type=FILE, help="List what grew or shrank between FILE and OTHER."),
    click.option(
        "--html",
        "page",
        metavar="PATH",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Write a self-contained HTML report: source, PTX, SASS by line, and occupancy.",
    ),
)


@click.command("inspect", cls=Command)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=FILE)
@click.option(
    "--kernels",
    "pattern",
    metavar="PATTERN",
    shell_complete=complete_kernel,
    help="Show only kernels with a matching name, such as axpy, 'axpy<*>' or '_Z4axpy*'.",
)
@arches_option("Show only images for this architecture, such as sm_90 or compute_80.")
@click.option("--all", "everything", is_flag=True, help="Show all images and kernels, without a limit.")
@_instead_options
@click.option(
    "--assembler-log",
    "logs",
    multiple=True,
    metavar="FILE",
    type=FILE,
    help="Assembler log for FILE or OTHER, from -O verbose or -Xptxas -v. Spills are reported only in this log.",
)
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    files: tuple[Path, ...],
    pattern: str | None,
    arches: tuple[str, ...],
    everything: bool,
    instead: InsteadOptions,
    logs: tuple[Path, ...],
    as_json: bool,
) -> None:
    """List the kernels and images in FILE and print their code.

    FILE is PTX, a cubin, LTO-IR, Tile IR, a fatbin, an object, a library, an executable, or an archive. You need
    neither a GPU nor a driver. The exit status is 1 if a FILE is damaged.
    """
    paths = files if instead.against is None else (*files, instead.against)
    _check_usage(instead, ctx.params, len(paths))
    found = _inspected(paths, logs, arches)
    keep = _kernels_called(pattern, found)
    if instead.against is not None:
        comparison = compare(*found, keep=keep)
        print_json(comparison_record(comparison)) if as_json else show(render_changes(comparison, everything))
    elif instead.needs:
        from cujit.cli.inspect.needs import show_needs  # brings the CPU device, which nothing else here needs

        if not show_needs(found, everything=everything, as_json=as_json):
            ctx.exit(ExitCode.WRONG_INPUT)
    elif instead.page is not None:
        from cujit.report import of as report_of  # brings the CPU device, which nothing else here needs

        image = open_built(files[0], next(iter(logs), None))
        write_file(instead.page, report_of(image, arch=next(iter(arches), None), kernels=keep.names).html())
    elif instead.ptx or instead.sass:
        (_print_ptx if instead.ptx else _print_sass)(found, keep)
    elif instead.tile:
        _print_tile(found, keep)
    elif instead.directory is not None:
        extract(((image, i.name) for i in found for image in keep.chosen(i)), instead.directory, as_json=as_json)
    else:
        _show_images(found, keep, everything=everything, as_json=as_json)
    if any(map(_is_damaged, found)):
        ctx.exit(ExitCode.WRONG_INPUT)


def _show_images(found: Sequence[Inspection], keep: KernelFilter, *, everything: bool, as_json: bool) -> None:
    if as_json:
        print_json(inspections_record(found, keep))
        return
    for inspection in found:
        show(render_images(inspection, keep, everything))


def _is_damaged(inspection: Inspection) -> bool:
    return any(image.is_read and image.error for image in inspection)


def _check_usage(instead: InsteadOptions, given: Mapping[str, Any], files: int) -> None:
    """Refuse options that do not go together; ``files`` counts B too."""
    if sum(map(bool, instead)) > 1:
        raise click.UsageError("--ptx, --sass, --tile, --extract, --needs, --html and --against are mutually exclusive")
    if instead.needs and given["pattern"] is not None:
        raise click.UsageError("--needs analyzes whole images: remove --kernels")
    if given["as_json"] and (instead.ptx or instead.sass or instead.tile):
        raise click.UsageError("--ptx, --sass and --tile can't be combined with --json")
    if instead.page and len(given["arches"]) > 1:
        raise click.UsageError("--html reports on one architecture: specify --arch once")
    if instead.page and files > 1:
        raise click.UsageError(f"--html requires one FILE, not {files}")
    if instead.against and files > 2:
        raise click.UsageError(f"--against requires one FILE, not {files - 1}")
    if given["logs"] and len(given["logs"]) != files:
        times = f"--assembler-log appears {len(given['logs'])} times for {files} files"
        raise click.UsageError(f"{times}: specify one log per file")


def _inspected(paths: Sequence[Path], logs: Sequence[Path], arches: Sequence[str]) -> list[Inspection]:
    """Inspect files with their logs, and keep the images for these architectures. Without architectures, keep all."""
    wanted = {Arch.parse(arch) for arch in arches}
    found = [inspect(open_built(path, log)) for path, log in zip_longest(paths, logs)]
    if not wanted:
        return found
    kept = [replace(i, images=tuple(image for image in i if image.arch in wanted)) for i in found]
    if not any(map(len, kept)):
        have = dict.fromkeys(str(there) for i in found for there in i.arches)
        raise ArchError(
            f"the file contains no images for {' or '.join(map(str, sorted(wanted)))}",
            help=f"it contains {', '.join(have) or 'no device code'}",
            code="arch-mismatch",
        )
    return kept


def _kernels_called(pattern: str | None, found: Sequence[Inspection]) -> KernelFilter:
    if pattern is None:
        return KernelFilter()
    kernels = [kernel for inspection in found for kernel in inspection.kernels]
    names = names_matching(pattern, kernels)
    if not names:
        have = listed((kernel.display for kernel in kernels), _SHOWN_NAMES) or "none"
        raise NameNotFoundError(
            f"no kernel matches {spell(pattern)}", help=f"choose one of the kernels in the file: {have}"
        )
    return KernelFilter(frozenset(names))


def _print_ptx(found: list[Inspection], keep: KernelFilter) -> None:
    """Print the PTX of each image. If there are several, a comment precedes each."""
    images = [(i, image) for i in found for image in i.with_ptx if image in keep.chosen(i)]
    if not images:
        raise FormatError(
            "the file contains no PTX", help="run cujit inspect FILE to list its contents; --sass disassembles cubins"
        )
    for inspection, image in images:
        if len(images) > 1:
            click.echo(f"// {inspection.name}: image {image.index}, {image}")
        click.echo(image.ptx().strip("\n"))


def _print_tile(found: list[Inspection], keep: KernelFilter) -> None:
    """Print the text of each Tile IR."""
    images = [(i, image) for i in found for image in keep.chosen(i) if image.kind is ImageKind.TILEIR]
    if not images:
        raise FormatError("the file contains no Tile IR", help="run cujit compile FILE --to tileir to create Tile IR")
    for inspection, image in images:
        click.echo(f"// {inspection.name}: image {image.index}, {image}")
        click.echo(tile_text(image.payload()).rstrip())


def _print_sass(found: list[Inspection], keep: KernelFilter) -> None:
    """Print the disassembly of each cubin or of the selected kernels."""
    images = [(i, image) for i in found for image in keep.chosen(i) if image.kind is ImageKind.CUBIN]
    if not images:
        raise FormatError("the file contains no SASS", help="run cujit build FILE --target sm_90 to create SASS")
    nvdisasm = find_nvdisasm()
    for inspection, image in images:
        if image.error:
            click.echo(f"// {inspection.name}: image {image.index}, {image}: {image.error}")
            continue
        names = [kernel.name for kernel in image.kernels if keep(kernel)] if keep.names is not None else []
        click.echo(f"// {inspection.name}: image {image.index}, {image}")
        click.echo(disassemble(image.payload(), names, nvdisasm=nvdisasm).rstrip())
