"""``cujit cache``: inspect, export, explain, trim, verify, and clear the cache."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import click

from cujit.cache import admin
from cujit.cache.cache import Cache
from cujit.cli.cache.common import cache_option, read_size, short, shown_age, shown_size, summary_record
from cujit.cli.cache.shared import keygen, pull, push
from cujit.cli.cache.show import show
from cujit.cli.cache.verify import verify
from cujit.cli.cache.why import why
from cujit.cli.console import json_option, print_json, print_table, printable, shown_time
from cujit.cli.help import CommandGroup
from cujit.toolchain.bundled import bundle_bytes, remove_bundles


@click.group("cache", cls=CommandGroup)
def command() -> None:
    """List, verify, and clear the compile cache; explain misses.

    KEY is a cache key or a unique prefix of a cache key.
    """


@command.command("info")
@cache_option
@json_option
def info(cache: Cache, as_json: bool) -> None:
    """Print the cache directories in search order, with sizes."""
    found = admin.info(cache)
    remote = next((tier.url for tier in cache.tiers), None)
    roots = [(store.root, [entry.size_bytes for entry in store.entries()]) for store in cache.stores]
    rows = [
        {
            "root": str(root),
            "writes": root == found.root,
            "entries": len(sizes),
            "bytes": sum(sizes),
            "cap_bytes": found.cap_bytes if root == found.root else None,
        }
        for root, sizes in roots
    ]
    headers = 0 if found.root is None else bundle_bytes(str(found.root))
    if as_json:
        print_json(
            {
                "root": found.root and str(found.root),
                "roots": rows,
                "remote": remote,
                "installed_headers_bytes": headers,
            }
        )
        return
    if not roots:
        click.echo(
            "nothing is cached: CUJIT_CACHE is off, or there is no home directory; set CUJIT_CACHE_DIR to a directory"
        )
        return
    if found.root is None:
        click.echo("there is no writable directory: set CUJIT_CACHE_DIR to one")
    cells = [
        (
            str(root),
            "yes" if root == found.root else "no",
            str(len(sizes)),
            shown_size(sum(sizes)),
            shown_size(found.cap_bytes) if root == found.root else "",
        )
        for root, sizes in roots
    ]
    print_table(("directory", "writes", "entries", "size", "most"), cells, right=("entries", "size", "most"))
    if headers:
        click.echo(f"CUDA headers that cujit installed: {shown_size(headers)}")
    if remote is not None:
        click.echo(f"then the shared cache {remote}")


@command.command("ls")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="List only the N most recently used entries.")
@cache_option
@json_option
def ls(cache: Cache, limit: int | None, as_json: bool) -> None:
    """List the cache entries, most recently used first."""
    listed = list(itertools.islice(admin.ls(cache), limit))
    if as_json:
        print_json([_listed_record(entry) for entry in listed])
        return
    columns = ("key", "name", "arch", "kind", "kernels", "size", "took", "used", "by")
    print_table(
        columns, [tuple(map(printable, _listed_row(entry))) for entry in listed], right=("size", "took", "used")
    )


def _listed_record(entry: admin.Listed) -> dict[str, object]:
    known: dict[str, object] = {"key": entry.digest} if entry.summary is None else summary_record(entry.summary)
    where = {"root": str(entry.root), "bytes": entry.size_bytes, "used_s": entry.used_s}
    return {**known, **where, "damaged": entry.summary is None}


def _listed_row(entry: admin.Listed) -> tuple[str, ...]:
    summary, size, used = entry.summary, shown_size(entry.size_bytes), shown_age(entry.used_s)
    if summary is None:
        return short(entry.digest), "(damaged)", "", "", "", size, "", used, ""
    first, *more = summary.names or ("",)
    kernels = f"{first} +{len(more)}" if more else first
    arch, took = str(summary.arch or ""), shown_time(summary.make_ms / 1e3)
    return (
        short(entry.digest),
        os.path.basename(summary.name),
        arch,
        summary.kind.value,
        kernels,
        size,
        took,
        used,
        summary.work,
    )


@command.command("export")
@click.argument("key")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@cache_option
@json_option
def export(cache: Cache, key: str, file: Path, as_json: bool) -> None:
    """Write the image of a cache entry to FILE."""
    shown = admin.show(cache, key)
    artifact = shown.record.artifact
    path = artifact.save(file)
    if as_json:
        record = {"output": str(path), "key": shown.key.digest, "kind": artifact.kind.value, "bytes": len(artifact)}
        print_json(record)
    else:
        click.echo(f"{path}: {artifact.kind.value}, {shown_size(len(artifact))}")


@command.command("trim")
@click.argument("size", callback=read_size)
@cache_option
@json_option
def trim(cache: Cache, size: int, as_json: bool) -> None:
    """Delete old entries until the cache is no larger than SIZE.

    cujit deletes the least recently used entries first. SIZE is a number of bytes with a unit, such as 512MiB, 2GB,
    or 0.
    """
    _print_freed(admin.trim(cache, size), cache, as_json)


@command.command("clear")
@click.option("--yes", is_flag=True, help="Delete without asking.")
@cache_option
@json_option
def clear(cache: Cache, yes: bool, as_json: bool) -> None:
    """Delete all entries in the writable cache directory.

    cujit also deletes the damaged entries that it moved aside, and the CUDA headers that it installed there.
    """
    found = admin.info(cache)
    if not yes:
        headers = found.root and bundle_bytes(str(found.root))
        also = f" and CUDA headers ({shown_size(headers)})" if headers else ""
        question = f"delete {found.entries} entries ({shown_size(found.total_bytes)}){also} in {found.root}?"
        click.confirm(question, abort=True, err=True)
    freed = admin.clear(cache)
    _print_freed(freed + (remove_bundles(str(found.root)) if found.root else 0), cache, as_json)


def _print_freed(freed_bytes: int, cache: Cache, as_json: bool) -> None:
    left = admin.info(cache)
    if as_json:
        print_json({"freed_bytes": freed_bytes, "entries": left.entries, "bytes": left.total_bytes})
    else:
        click.echo(
            f"{shown_size(freed_bytes)} deleted, {left.entries} entries ({shown_size(left.total_bytes)}) are left"
        )


for verb in (show, why, verify, keygen, push, pull):
    command.add_command(verb)
