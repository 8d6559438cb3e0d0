"""``cujit farm``: worklists built by many processes, on this machine or on many."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from cujit.cache.cache import Cache
from cujit.cache.pack import Pack, write_pack
from cujit.cache.store import PACK_SUFFIX
from cujit.cache.trust import Trust
from cujit.cli.cache.shared import filling_options, signer_of
from cujit.cli.compiler_options import memory_option
from cujit.cli.console import json_option, note, print_json, several
from cujit.cli.files import folder_option, output_option
from cujit.cli.help import CommandGroup
from cujit.cli.pack import check_name
from cujit.cli.worklist import build_list, build_options, list_options, run_build, source_date_epoch
from cujit.errors import OptionError, listed, spell
from cujit.farm.arch_sharing import WAYS
from cujit.farm.driver import cache_of
from cujit.remote import RemoteStore
from cujit.values import NamedTuple
from cujit.worklist import read as read_worklist

_limits = several(
    click.option("--deadline", "deadline_s", type=click.FloatRange(0, min_open=True), metavar="SECONDS",
                 help="Maximum time per compile, in seconds."),
    memory_option("Maximum address space per compile, in MiB, including libraries and stacks."),
)  # fmt: skip


@click.group("farm", cls=CommandGroup)
def command() -> None:
    """Compile worklists in many processes or on many machines."""


class _Shard(NamedTuple):
    """One of several parts of a worklist."""

    number: int
    total: int

    @property
    def file_name(self) -> str:
        return f"shard-{self.number}-of-{self.total}{PACK_SUFFIX}"


def _read_shard(_ctx: click.Context, _param: click.Parameter, text: str) -> _Shard:
    match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise click.BadParameter(f"{spell(text)} is not a shard, such as 1/8 to 8/8")
    return _Shard(int(match[1]), int(match[2]))


@command.command("shard")
@click.argument("shard", callback=_read_shard, metavar="I/N")
@build_options
@folder_option("Directory for the packs of all shards.")
def shard(shard: _Shard, lists: Sequence[Path], folder: Path, as_json: bool, **given: Any) -> None:
    """Compile one of N parts of a worklist into a pack in DIR.

    The parts have the numbers 1 to N. Run one command for each part, in any order, on any machines, for example as a
    Slurm array or as an indexed Kubernetes job. If a command is killed, run it again. Then run cujit farm merge DIR.
    """
    part = read_worklist(lists).shard(shard.number, shard.total)
    folder.mkdir(parents=True, exist_ok=True)
    output = folder / shard.file_name
    if part.uses:
        build_list(output, part, as_json=as_json, **given)
        return
    write_pack(output, (), made_s=source_date_epoch())
    if as_json:
        print_json({"output": str(output), "made": 0, "hit": 0})
    else:
        note(f"{output}: this part of the worklist is empty")


@command.command("merge")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR")
@output_option("Pack to write.", required=True)
@json_option
def merge(folder: Path, output: Path, as_json: bool) -> None:
    """Merge the packs of all shards into one pack.

    If a shard is missing, cujit reports the shard and writes nothing.
    """
    check_name(output)
    packs = _complete(folder)
    stats = write_pack(output, packs, made_s=source_date_epoch())
    if as_json:
        print_json({"output": str(output), "shards": len(packs), **stats._asdict()})
    else:
        note(f"{output}: {stats.records} records of {len(packs)} shards")


def _complete(folder: Path) -> list[Pack]:
    """Open the packs of all shards in a directory.

    Raises:
        OptionError: there are no packs, they have different shard counts, or a shard is missing.
    """
    names = {path.name for path in folder.iterdir()}
    counts = {int(match[1]) for name in names if (match := re.fullmatch(r"shard-[0-9]+-of-([0-9]+)\.pack", name))}
    if len(counts) != 1:
        found = f"shards of {listed(map(str, sorted(counts)), 4)} parts" if counts else "no shards"
        raise OptionError(f"{folder} contains {found}", help="run cujit farm shard I/N for each I from 1 to N")
    (count,) = counts
    shards = [_Shard(number, count) for number in range(1, count + 1)]
    missing = [f"{one.number}/{count}" for one in shards if one.file_name not in names]
    if missing:
        raise OptionError(
            f"{folder} doesn't contain {len(missing)} of the {count} shards: {listed(missing, 8)}",
            help=f"run cujit farm shard {missing[0]} with the same worklist",
        )
    return [Pack((folder / one.file_name).absolute(), Trust.of_process()) for one in shards]


@command.command("build")
@list_options
@click.option(
    "--executor",
    default="processes",
    metavar="NAME",
    help="Where to compile: processes:8, dask://host:8786, ray, or mpi under mpirun … python -m mpi4py.futures -m "
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
    recompiles the image only if it writes a pack.
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
