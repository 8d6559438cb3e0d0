"""``cujit cache why``: prints which input changed and caused a recompile."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import click

from cujit.cache import admin
from cujit.cache.admin import Shown
from cujit.cache.cache import Cache
from cujit.cache.key import Key
from cujit.cache.store import Explanation
from cujit.cli.arches import arch_option
from cujit.cli.cache.common import cache_option, difference_record, print_differences, short, summary_record
from cujit.cli.compiler_options import WrittenOptions, compiler_options, names_option
from cujit.cli.console import json_option, print_json, printable, settings
from cujit.cli.nvcc_arguments import CompilerCommand
from cujit.compiler.keys.maker import Uncacheable
from cujit.program import request, runner
from cujit.values import NamedTuple


class RequestOptions(NamedTuple):
    """Options of the compile to explain, except compiler options."""

    to: str | None
    arch: str | None
    names: Sequence[str]


@click.command("why", cls=CompilerCommand)
@click.argument("key", required=False)
@click.argument("other", required=False)
@click.option(
    "--file",
    "source",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Source file to look up instead of KEY, compiled with the options below.",
)
@settings(
    "request_options",
    RequestOptions,
    click.option("--to", type=click.Choice(("ptx", "cubin", "ltoir")), help="Kind of image to look up for FILE."),
    arch_option("Architecture to look up for FILE."),
    names_option,
)
@compiler_options
@cache_option
@json_option
def why(
    cache: Cache,
    key: str | None,
    other: str | None,
    source: Path | None,
    request_options: RequestOptions,
    compiler: WrittenOptions,
    as_json: bool,
) -> None:
    """Explain a cache miss: print the inputs that differ.

    cujit compares KEY with OTHER. Without OTHER, cujit compares KEY with the most similar entry. With --file, cujit
    prints whether compiling FILE is a cache hit. After a miss, cujit prints the differences from the most similar
    entry.
    """
    if (key is None) == (source is None):
        raise click.UsageError("specify KEY or --file FILE")
    if source is not None:
        options = compiler.read()
        keys = runner(cache).keys
        assert keys is not None
        wanted = compiler.source(source)
        made = keys.of_request(request(wanted, options=options, **request_options._asdict()))
        if isinstance(made, Uncacheable):
            _print_uncacheable(made.reason, as_json)
        else:
            is_there = cache.find(made.key) is not None
            _print_nearest(None if is_there else cache.why(made.key), made.key, as_json, is_there=is_there)
        return
    if any((*request_options, *compiler)):
        raise click.UsageError("compiler options require --file")
    shown = admin.show(cache, str(key))
    if other is None:
        _print_explained(cache.why(shown.key), cache, shown, as_json)
    else:
        _print_two(shown, admin.show(cache, other), as_json)


def _print_uncacheable(reason: str, as_json: bool) -> None:
    if as_json:
        print_json({"key": None, "is_there": False, "reason": reason, "nearest": None, "differences": []})
    else:
        click.echo(f"cujit never caches such a compile: {reason}")


def _print_explained(found: Explanation | None, cache: Cache, shown: Shown, as_json: bool) -> None:
    """Print the differences between two readable entries."""
    if found is not None:
        found = Explanation(found.nearest, admin.compare(admin.show(cache, found.nearest.digest), shown))
    _print_nearest(found, shown.key, as_json)


def _print_nearest(found: Explanation | None, key: Key, as_json: bool, *, is_there: bool | None = None) -> None:
    """Print the differences from the most similar other entry. ``is_there`` is None if the key is that of an entry."""
    if as_json:
        print_json(
            {
                "key": key.digest,
                "is_there": is_there is not False,
                "reason": "",
                "nearest": found and summary_record(found.nearest),
                "differences": [difference_record(d) for d in found.differences] if found else [],
            }
        )
    elif is_there:
        click.echo(f"the image is in the cache: {short(key.digest)}")
    else:
        _print_explanation(found, key)


def _print_explanation(found: Explanation | None, key: Key) -> None:
    if found is None:
        click.echo(f"there is no other entry of the kind {key.kind}")
        return
    near = found.nearest
    shown = ", ".join(filter(None, (os.path.basename(near.name), str(near.arch or near.kind.value))))
    click.echo(printable(f"the nearest entry is {short(near.digest)} ({shown}); since then:"))
    print_differences(found.differences)


def _print_two(before: Shown, after: Shown, as_json: bool) -> None:
    found, old, new = admin.compare(before, after), before.key, after.key
    if as_json:
        records = [difference_record(d) for d in found]
        print_json({"before": old.digest, "after": new.digest, "differences": records})
        return
    works = f" ({old.kind}, {new.kind})" if old.kind != new.kind else ""
    click.echo(f"from {short(old.digest)} to {short(new.digest)}{works}:")
    print_differences(found)
