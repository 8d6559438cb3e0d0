"""``cujit worklist``: merges, prints, and builds lists of compile requests, and compares them with packs."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from cujit.cache.cache import Cache
from cujit.cli.arches import arches_option
from cujit.cli.cache.common import cache_option, short, shown_size
from cujit.cli.console import json_option, note, print_json, print_table, printable, progress, several
from cujit.cli.exit_codes import ExitCode
from cujit.cli.files import output_option
from cujit.cli.help import CommandGroup
from cujit.errors import MissingError, NameNotFoundError, OptionError, spell
from cujit.warmup import worklist as warmup_worklist
from cujit.worklist import RecipeUse, Unbuilt, Worklist
from cujit.worklist import build as build_worklist
from cujit.worklist import cover as cover_worklist
from cujit.worklist import merge as merge_worklists
from cujit.worklist import read as read_worklist

_LIST = click.Path(exists=True, path_type=Path)
_LISTS = click.argument("lists", nargs=-1, required=True, type=_LIST, metavar="LIST...")
_PROJECT = click.option(
    "--project",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Directory to substitute for {project}. Default: the project that contains the working directory.",
)


@click.group("worklist", cls=CommandGroup)
def command() -> None:
    """Manage worklists: lists of kernels to compile in advance.

    LIST is a worklist or a directory of recordings. To write recordings to DIR, set CUJIT_RECORD=DIR or call
    cujit.record_worklist(DIR). A worklist contains the sources and macros of the recorded kernels.
    """


@command.command("merge")
@_LISTS
@output_option("Worklist to write.", required=True)
@click.option(
    "--min-uses",
    type=click.IntRange(0),
    default=1,
    metavar="N",
    help="Drop requests with fewer than N calls. Default: 1.",
)
@click.option(
    "--min-ms",
    type=click.FloatRange(0),
    default=0.0,
    metavar="MS",
    help="Drop requests that compiled in less than MS milliseconds. Default: 0.",
)
@click.option(
    "--seen-within",
    callback=lambda _c, _p, text: text and _days(text),
    metavar="DAYS",
    help="Drop requests that weren't made within the last DAYS, for example 90d.",
)
@click.option("--cap", type=click.IntRange(1), metavar="N", help="Keep only the N requests with the most calls.")
@arches_option("Architecture to keep. Default: all.")
@json_option
def merge(
    lists: tuple[Path, ...],
    output: Path,
    min_uses: int,
    min_ms: float,
    seen_within: int | None,
    cap: int | None,
    arches: tuple[str, ...],
    as_json: bool,
) -> None:
    """Merge worklists and recordings into one worklist.

    The command prints the number of dropped requests for each reason, such as "never compiled".
    """
    merged = merge_worklists(
        lists, min_uses=min_uses, min_ms=min_ms, seen_within_days=seen_within, cap=cap, arch=arches
    )
    merged.worklist.save(output)
    uses = merged.worklist.uses
    sources = len({use.recipe for use in uses})
    if as_json:
        print_json({"output": str(output), "requests": len(uses), "sources": sources, "cut": dict(merged.cut)})
        return
    note(f"{output}: {len(uses)} requests of {sources} sources")
    for reason, count in merged.cut.items():
        note(f"  cut {count}: {reason}")


@command.command("declare")
@click.argument("modules", nargs=-1, required=True, metavar="MODULE...")
@arches_option("Architecture to declare the kernels for.")
@output_option("Worklist to write.", required=True)
@_PROJECT
@json_option
def declare(
    modules: tuple[str, ...], arches: tuple[str, ...], output: Path, project: Path | None, as_json: bool
) -> None:
    """Write a worklist of the kernels that libraries declare.

    cujit imports each Python MODULE, which calls cujit.warmup.declare. cujit compiles nothing.
    """
    if not arches:
        raise OptionError("there is no architecture to declare the kernels for", help="pass --arch sm_90")
    try:
        for module in modules:
            importlib.import_module(module)
    except ImportError as e:
        raise MissingError(f"can't import {module}: {e}", help="set PYTHONPATH to its directory") from e
    written = warmup_worklist(arch=arches, project=project)
    written.save(output)
    if as_json:
        print_json({"output": str(output), "requests": len(written.uses), "sources": len(written.recipes)})
    else:
        note(f"{output}: {len(written.uses)} requests of {len(written.recipes)} sources")


@command.command("show")
@_LISTS
@click.option(
    "--recipe",
    metavar="RECIPE",
    help="Print the source code of one recipe. RECIPE is a unique prefix of the recipe's digest.",
)
@json_option
def show(lists: tuple[Path, ...], recipe: str | None, as_json: bool) -> None:
    """List the sources, kernels, and architectures in a worklist.

    cujit also lists the requests that other machines can't compile.
    """
    worklist = read_worklist(lists)
    if recipe is not None:
        _print_source(worklist, recipe, as_json=as_json)
        return
    rows = [_row(worklist, use) for use in worklist.uses]
    if as_json:
        print_json(rows)
        return
    cells = [
        (
            short(str(row["recipe"])),
            str(row["name"]),
            str(row["arch"]),
            " ".join(map(str, row["names"])),
            " ".join(row["macros"]),
            str(row["calls"]),
            f"{row['make_ms']:.0f}",
            str(row["outcome"]),
            str(row["seen"]),
        )
        for row in rows
    ]
    columns = ("recipe", "name", "arch", "instances", "macros", "calls", "ms", "got", "seen")
    print_table(columns, [tuple(map(printable, row)) for row in cells], right=("calls", "ms"))
    for row in rows:
        if row["elsewhere"]:
            note(printable(f"not portable: {row['name']} for {row['arch']}: {row['elsewhere']}"))


list_options = several(
    _LISTS,
    arches_option("Architecture to compile for. Default: recorded, which means the architectures in the list.", "arch"),
    click.option(
        "--add-ptx", "ptx", is_flag=True, help="Add PTX for the highest architecture, to support future GPUs."
    ),
    _PROJECT,
    json_option,
)
"""What of a list is built, as ``run_build`` takes it."""

build_options = several(
    list_options,
    cache_option,
    click.option("--jobs", type=click.IntRange(1), metavar="N", help="Number of compiler processes."),
)
"""What the verbs that build a list by this machine are given."""


@command.command("build")
@build_options
def build(**given: Any) -> None:
    """Compile the requests of a worklist into the cache.

    cujit skips images that already exist. If a source doesn't compile, cujit lists it with its first error message, and
    the exit status is 1. To write a pack, use cujit pack build.
    """
    run_build(None, **given)


def run_build(output: Path | None, *, lists: Sequence[Path], cache: Cache, as_json: bool, **how: Any) -> None:
    """Build worklists with ``worklist.build``, print the result, and exit with 1 if something is missing."""
    build_list(output, read_worklist(lists), cache=cache, as_json=as_json, **how)


def build_list(output: Path | None, worklist: Worklist, *, cache: Cache, as_json: bool, **how: Any) -> None:
    """Build a worklist with ``worklist.build``, print the result, and exit with 1 if something is missing."""
    with progress("compiling") as tick:
        report = build_worklist(worklist, pack=output, cache=cache, made_s=source_date_epoch(), progress=tick, **how)
    if as_json:
        print_json({"output": output and str(output), **report.as_json()})
    else:
        where = f"{output}: {shown_size(report.pack.file_bytes)}, " if report.pack else ""
        for line in f"{where}{report}".splitlines():
            note(printable(line))
    if not report.is_good:
        click.get_current_context().exit(ExitCode.WRONG_INPUT)


@command.command("cover")
@click.argument("pack", type=_LIST)
@_LISTS
@arches_option("Look up the requests for this architecture instead of the recorded architectures.")
@click.option("--at-least", type=click.FloatRange(0, 100), default=100.0, metavar="PERCENT",
              help="Exit with status 1 if PACK covers less than PERCENT of the calls. Default: 100.")  # fmt: skip
@_PROJECT
@json_option
def cover(
    pack: Path, lists: tuple[Path, ...], arches: tuple[str, ...], at_least: float, project: Path | None, as_json: bool
) -> None:
    """Print the percentage of requests that a pack covers.

    PACK is a pack or a cache directory. cujit compiles nothing, but recomputes the keys with the headers and the
    compiler on this machine.
    """
    covered = cover_worklist(read_worklist(lists), [pack], arch=arches, project=project)
    if as_json:
        shares = {"share_of_calls": covered.share_of_calls, "share_of_time": covered.share_of_time}
        print_json({**vars(covered), **shares, "missing": _unbuilt(covered.missing)})
    else:
        click.echo(f"{covered.share_of_calls:.1%} of {covered.calls} calls")
        click.echo(f"{covered.share_of_time:.1%} of {covered.make_ms / 1e3:.1f} s of compiling")
        for one in covered.missing:
            note(printable(f"  {one.name} for {one.arch}: {one.reason}"))
    if covered.share_of_calls * 100 < at_least:
        click.get_current_context().exit(ExitCode.WRONG_INPUT)


def source_date_epoch() -> int:
    """Return the time to record in outputs: 0, or the value of ``SOURCE_DATE_EPOCH``.

    Raises:
        OptionError: the value is not a valid time.
    """
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "0")
    if not (epoch.isascii() and epoch.isdecimal()):
        raise OptionError(
            f"SOURCE_DATE_EPOCH is {spell(epoch)}, expected seconds since 1970",
            help="unset SOURCE_DATE_EPOCH, or set it to seconds since 1970",
            code="environment-value",
        )
    return int(epoch)


def _days(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,6})d?", text)
    if match is None:
        raise click.BadParameter(f"{spell(text)} is not a number of days, such as 90d")
    return int(match[1])


def _row(worklist: Worklist, use: RecipeUse) -> dict[str, Any]:
    recipe = worklist.recipes[use.recipe]
    macros = [*(name for name, _ in recipe.get("define", ())), *recipe.get("options", {}).get("define", {})]
    row = {"names": list(recipe.get("names", ())), "macros": macros}
    row["headers"] = [name for name, _ in recipe.get("headers", ())]
    return {"name": worklist.name(use.recipe), **use._asdict(), **row, "arch": str(use.arch)}


def _print_source(worklist: Worklist, beginning: str, *, as_json: bool) -> None:
    found = [digest for digest in worklist.recipes if digest.startswith(beginning)]
    if len(found) != 1:
        raise NameNotFoundError(
            f"{len(found)} recipes have digests that start with {spell(beginning)}",
            help="run cujit worklist show to list the digests",
        )
    recipe = worklist.recipes[found[0]]
    if as_json:
        print_json(dict(recipe))
    else:
        click.echo(recipe["text"])


def _unbuilt(listed: Sequence[Unbuilt]) -> list[dict[str, str]]:
    return [{**one._asdict(), "arch": str(one.arch)} for one in listed]
