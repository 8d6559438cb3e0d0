"""``cujit pack``: many images in one file, for wheels and for many processes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from cujit.cache.cache import Cache
from cujit.cache.pack import Pack, write_pack
from cujit.cache.record import Summary
from cujit.cache.store import PACK_SUFFIX
from cujit.cache.trust import Trust
from cujit.cli.cache.common import read_size, short, shown_size, summary_record
from cujit.cli.cache.show import show_entry
from cujit.cli.console import json_option, note, print_json, print_table, printable
from cujit.cli.exit_codes import ExitCode
from cujit.cli.files import FILE, file_argument, output_option
from cujit.cli.worklist import build_options, run_build, source_date_epoch
from cujit.errors import OptionError
from cujit.program import runner

_OUTPUT = output_option("The pack to write.", required=True)
_GROUPS: dict[str, Callable[[Summary], str]] = {
    "kernel": lambda summary: summary.names[0] if summary.names else summary.name,
    "arch": lambda summary: str(summary.arch or ""),
    "name": lambda summary: os.path.basename(summary.name),
    "work": lambda summary: summary.work,
}


@click.group("pack")
def command() -> None:
    """Put many images into one file that is never changed, and look into such files.

    A pack stands beside directories in CUJIT_CACHE_ROOTS; its name ends in .pack.
    """


@command.command("merge")
@click.argument("roots", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path), metavar="ROOT...")
@_OUTPUT
@click.option("--compress", is_flag=True, help="Pack each record by zstd; what a wheel holds is packed by the wheel.")
@click.option("--with-recipes", is_flag=True, help="Keep sources and logs, which hold paths of this machine.")
@json_option
def merge(roots: tuple[Path, ...], output: Path, compress: bool, with_recipes: bool, as_json: bool) -> None:
    """Write one pack of what caches and other packs hold; the same records make the same bytes.

    Machine code of this processor and modules by version are left out. SOURCE_DATE_EPOCH is noted as the time. Headers
    of what caches hold the recipe of are sought again, and what was found is noted for whoever reads the pack.
    """
    check_name(output)
    stores = Cache(None, read_only=roots).stores
    requests, closures = runner().answers(stores)
    stats = write_pack(
        output,
        stores,
        requests=requests,
        closures=closures,
        compress=compress,
        with_recipes=with_recipes,
        made_s=source_date_epoch(),
    )
    if as_json:
        print_json({"output": str(output), **stats._asdict()})
    else:
        note(f"{output}: {stats.records} records of {shown_size(stats.record_bytes)} in {shown_size(stats.file_bytes)}")


@command.command("build")
@build_options
@_OUTPUT
def build(output: Path, **given: Any) -> None:
    """Compile worklists, or directories of recordings, and write one pack of it; what the cache has is taken from it.

    The same list, headers and compiler make the same bytes. SOURCE_DATE_EPOCH is noted as the time. What does not
    compile is left out and listed by its first message; then the exit status is 1.
    """
    check_name(output)
    run_build(output, **given)


def check_name(output: Path) -> None:
    """Refuse a file that would not be known as a pack.

    Raises:
        OptionError: its name ends otherwise.
    """
    if output.suffix != PACK_SUFFIX:
        raise OptionError(
            f"{output} does not end in {PACK_SUFFIX}, by which a pack is known", help=f"-o {output}{PACK_SUFFIX}"
        )


@command.command("ls")
@file_argument
@json_option
def ls(file: Path, as_json: bool) -> None:
    """List what a pack holds, by name."""
    rows = sorted(_summaries(file), key=lambda row: (row[0].name, row[0].names, str(row[0].arch)))
    if as_json:
        print_json([{**summary_record(summary), "stored_bytes": stored} for summary, stored in rows])
        return
    cells = [
        (
            short(s.digest),
            os.path.basename(s.name),
            str(s.arch or ""),
            s.kind.value,
            ", ".join(s.names),
            shown_size(stored),
            s.work,
        )
        for s, stored in rows
    ]
    columns = ("key", "name", "arch", "kind", "kernels", "size", "by")
    print_table(columns, [tuple(map(printable, row)) for row in cells], right=("size",))


@command.command("show")
@file_argument
@click.argument("key")
@json_option
def show(file: Path, key: str, as_json: bool) -> None:
    """Tell what one record holds and what it was made from. KEY is the beginning of its key."""
    show_entry(Cache(None, read_only=[file]), key, as_json=as_json)


@command.command("verify")
@click.argument("files", nargs=-1, required=True, type=FILE, metavar="FILE...")
@json_option
def verify(files: tuple[Path, ...], as_json: bool) -> None:
    """Read every record of packs and prove it; the exit status is 1 where one is not as it was written."""
    faults = [
        {"file": str(file), "key": digest, "fault": fault}
        for file in files
        for digest, fault in _open(file).verify()
        if fault
    ]
    if as_json:
        print_json({"files": [str(file) for file in files], "faults": faults})
    else:
        for fault in faults:
            click.echo(printable(f"{fault['file']}: {short(fault['key'])}: {fault['fault']}"))
        note(f"{len(files)} packs, {len(faults)} faults")
    if faults:
        click.get_current_context().exit(ExitCode.WRONG_INPUT)


@command.command("size")
@click.argument("files", nargs=-1, required=True, type=FILE, metavar="FILE...")
@click.option("--by", default="arch", show_default=True, metavar="WORDS", help="kernel, arch, name, work; with commas.")
@click.option("--limit", callback=lambda c, p, text: text and read_size(c, p, text), metavar="SIZE", help="The most.")
@json_option
def size(files: tuple[Path, ...], by: str, limit: int | None, as_json: bool) -> None:
    """Tell what takes the room of packs; the exit status is 1 where they are larger than --limit together."""
    words = by.split(",")
    unknown = [word for word in words if word not in _GROUPS]
    if unknown:
        raise OptionError(f"--by {unknown[0]} is none of {', '.join(_GROUPS)}", help="--by kernel,arch")
    total = sum(file.stat().st_size for file in files)
    groups = _grouped([row for file in files for row in _summaries(file)], words)
    if as_json:
        rows = [{**dict(zip(words, group, strict=True)), "bytes": size} for group, size in groups]
        print_json({"bytes": total, "limit_bytes": limit, "groups": rows})
    else:
        cells = [(*map(printable, group), shown_size(size), f"{size / total:.0%}") for group, size in groups]
        print_table((*words, "size", "share"), cells, right=("size", "share"))
    if limit is not None and total > limit:
        note(f"{shown_size(total)} is more than --limit {shown_size(limit)}")
        click.get_current_context().exit(ExitCode.WRONG_INPUT)


def _grouped(rows: Sequence[tuple[Summary, int]], words: Sequence[str]) -> list[tuple[tuple[str, ...], int]]:
    sizes: Counter[tuple[str, ...]] = Counter()
    for summary, stored in rows:
        sizes[tuple(_GROUPS[word](summary) for word in words)] += stored
    return sizes.most_common()


def _summaries(file: Path) -> list[tuple[Summary, int]]:
    pack = _open(file)
    heads = [(pack.peek(entry.digest), entry.size_bytes) for entry in pack.entries()]
    return [(head[0], stored) for head, stored in heads if head is not None]


def _open(file: Path) -> Pack:
    return Pack(file.absolute(), Trust.of_process())
