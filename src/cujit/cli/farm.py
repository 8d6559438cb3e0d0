"""``cujit farm``: worklists built by many processes, on this machine or on many."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cujit.cache.cache import Cache
from cujit.cli.cache.shared import filling_options, signer_of
from cujit.cli.compiler_options import memory_option
from cujit.cli.console import several
from cujit.cli.files import output_option
from cujit.cli.help import CommandGroup
from cujit.cli.pack import check_name
from cujit.cli.worklist import list_options, run_build
from cujit.errors import OptionError
from cujit.farm.arch_sharing import WAYS
from cujit.farm.driver import cache_of
from cujit.remote import RemoteStore

_limits = several(
    click.option("--deadline", "deadline_s", type=click.FloatRange(0, min_open=True), metavar="SECONDS",
                 help="Maximum time of one compile."),
    memory_option("Maximum address space of one compile, including libraries and stacks, in MiB."),
)  # fmt: skip


@click.group("farm", cls=CommandGroup)
def command() -> None:
    """Compile worklists in many processes or on many machines."""


@command.command("build")
@list_options
@click.option(
    "--executor",
    default="processes",
    metavar="NAME",
    help="Where to compile: processes:8, dask://host:8786, or mpi under mpirun … python -m mpi4py.futures -m cujit. "
    "Default: processes.",
)
@click.option(
    "--root",
    "cache",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    callback=lambda _ctx, _param, root: cache_of(root),
    help="Directory for the images, visible to every worker. Default: the cache directory.",
)
@click.option("--join", type=click.IntRange(1), default=1, metavar="N",
              help="Number of template instances of one source to compile together. Default: 1.")  # fmt: skip
@click.option("--share", type=click.Choice(WAYS),
              help="Image to compile once for several architectures if the source doesn't depend on them.")  # fmt: skip
@_limits
@output_option("Pack to write with all images at the end.")
@click.option(
    "--store",
    metavar="URL",
    help="Remote cache to publish each image to: https://…, s3://…, file:///….",
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
    """Compile worklists with many workers, slowest kernels first.

    cujit compiles each key once and keeps images that exist. It retries a compile that kills its process or exceeds a
    limit once, alone, then lists it with the reason. The exit status is 1 if a kernel could not be compiled or
    published. If the store has an image signed by the key, cujit doesn't compile the image again, except for a pack.
    """
    if output is not None:
        check_name(output)
    if store is None and key is not None:
        raise OptionError(
            "--key signs what is published, and there is no --store", help="--store URL", code="option-conflict"
        )
    if store is not None:
        given["store"] = RemoteStore(store, signer_of(key, scope, valid_days), with_recipes=with_recipes)
    memory_bytes = None if memory_mib is None else memory_mib << 20
    run_build(output, cache=cache, memory_bytes=memory_bytes, **given)
