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
                 help="Maximum time per compile, in seconds."),
    memory_option("Maximum address space per compile, in MiB, including libraries and stacks."),
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
    help="Where to compile: processes:8, dask://host:8786, or mpi under mpirun … python -m mpi4py.futures -m "
    "cujit. Default: processes.",
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
              help="Number of template instances to compile together if they share a source. Default: 1.")  # fmt: skip
@click.option("--share", type=click.Choice(WAYS),
              help="Kind of image to compile once for several architectures if the source doesn't depend on the "
                   "architecture.")  # fmt: skip
@_limits
@output_option("Pack file to write at the end, with all images.")
@click.option(
    "--store",
    metavar="URL",
    help="Remote cache to publish each image to, as a URL: https://…, s3://… or file:///….",
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

    cujit compiles each key once and keeps existing images. If a compile kills its process or exceeds a limit, cujit
    retries it once, on its own. If the retry fails, cujit lists the compile with the reason. The exit status is 1 if a
    kernel could not be compiled or published. If the remote cache already has an image signed with the key, cujit
    recompiles the image only to write a pack.
    """
    if output is not None:
        check_name(output)
    if store is None and key is not None:
        raise OptionError(
            "--key signs published images, but --store is missing", help="pass --store URL", code="option-conflict"
        )
    if store is not None:
        given["store"] = RemoteStore(store, signer_of(key, scope, valid_days), with_recipes=with_recipes)
    memory_bytes = None if memory_mib is None else memory_mib << 20
    run_build(output, cache=cache, memory_bytes=memory_bytes, **given)
