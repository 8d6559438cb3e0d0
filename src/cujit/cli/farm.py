"""``cujit farm``: worklists built by many processes, on this machine or on many."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cujit.cache.cache import Cache
from cujit.cli.cache.shared import filling_options, signer_of
from cujit.cli.console import several
from cujit.cli.files import output_option
from cujit.cli.pack import check_name
from cujit.cli.worklist import list_options, run_build
from cujit.errors import OptionError
from cujit.farm.driver import cache_of
from cujit.farm.sharing import WAYS
from cujit.remote import RemoteStore

_limits = several(
    click.option("--deadline", "deadline_s", type=click.FloatRange(0, min_open=True), metavar="SECONDS",
                 help="The most that one compile may take."),
    click.option("--memory", "memory_mib", type=click.IntRange(1), metavar="MIB",
                 help="The most address space that one compile may map, libraries and stacks too."),
)  # fmt: skip


@click.group("farm")
def command() -> None:
    """Compile worklists by many processes, on this machine or on many."""


@command.command("build")
@list_options
@click.option(
    "--executor",
    default="processes",
    show_default=True,
    metavar="NAME",
    help="What compiles: processes:8, dask://host:8786, or mpi under mpirun … python -m mpi4py.futures -m cujit.",
)
@click.option(
    "--root",
    "cache",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    callback=lambda _ctx, _param, root: cache_of(root),
    help="The directory that images go to, which every worker sees; else the cache of the environment.",
)
@click.option("--join", type=click.IntRange(1), default=1, show_default=True, metavar="N",
              help="How many instances of one source are compiled together; each image holds all of them.")  # fmt: skip
@click.option("--share", type=click.Choice(WAYS),
              help="What is made once for several architectures, where a source does not ask for them.")  # fmt: skip
@_limits
@output_option("A pack to write of all images in the end.")
@click.option(
    "--store",
    metavar="URL",
    help="A shared cache that each image is published in as soon as it is made: https://…, s3://…, file:///….",
)
@filling_options
def build(
    output: Path | None,
    cache: Cache,
    memory_mib: int | None,
    store: str | None,
    key: Path | None,
    scope: str,
    valid_days: int,
    with_recipes: bool,
    **given: Any,
) -> None:
    """Compile what is listed, each key once, the costliest first; what is there already is left as it is.

    A compile that kills its process, or takes more than it may, is tried once more alone, then left out and listed
    with what it died of. Then, and where something does not compile or is not published, the exit status is 1. What
    the store has, signed by the key, is not compiled again, unless for a pack.
    """
    if output is not None:
        check_name(output)
    if store is None and key is not None:
        raise OptionError("--key signs what is published, and there is no --store", help="--store URL")
    if store is not None:
        given["store"] = RemoteStore(store, signer_of(key, scope, valid_days), with_recipes=with_recipes)
    memory_bytes = None if memory_mib is None else memory_mib << 20
    run_build(output, cache=cache, memory_bytes=memory_bytes, **given)
