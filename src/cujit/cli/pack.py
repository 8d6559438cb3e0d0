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
from cujit.cli.cache.shared import signer_of, signing_options, trust_of, trust_option
from cujit.cli.cache.show import show_entry
from cujit.cli.console import json_option, note, print_json, print_table, printable
from cujit.cli.exit_codes import ExitCode
from cujit.cli.files import FILE, file_argument, folder_option, output_option
from cujit.cli.help import CommandGroup
from cujit.cli.worklist import build_options, run_build, source_date_epoch
from cujit.errors import OptionError
from cujit.program import runner
from cujit.remote import export_hub, extract_directory, pack_directory, pull_pack, push_pack

_OUTPUT = output_option("Pack to write.", required=True)
_GROUPS: dict[str, Callable[[Summary], str]] = {
    "kernel": lambda summary: summary.names[0] if summary.names else summary.name,
    "arch": lambda summary: str(summary.arch or ""),
    "name": lambda summary: os.path.basename(summary.name),
    "work": lambda summary: summary.work,
}


@click.group("pack", cls=CommandGroup)
def command() -> None:
    """Build and inspect packs: read-only caches in one file.

    A pack is a read-only cache in one file with the extension .pack. To use a pack, add its path to CUJIT_CACHE_ROOTS.
    """


@command.command("merge")
@click.argument("roots", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path), metavar="ROOT...")
@_OUTPUT
@click.option(
    "--zstd",
    "compress",
    is_flag=True,
    help="Compress each record with zstd. A pack in a wheel doesn't need this, because wheels are compressed anyway.",
)
@click.option("--with-recipes", is_flag=True, help="Keep sources and logs, which contain paths from this machine.")
@json_option
def merge(roots: tuple[Path, ...], output: Path, compress: bool, with_recipes: bool, as_json: bool) -> None:
    """Merge caches and packs into one pack.

    The same records always produce the same bytes. cujit skips machine-specific entries (CPU-device code) and modules
    with a version key. The pack records the headers that each source included. The recorded time is SOURCE_DATE_EPOCH.
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
    """Compile worklists and write the images to one pack.

    LIST is a worklist or a directory of recordings. cujit takes existing images from the cache. The same list, headers,
    and compiler always produce the same bytes. The recorded time is SOURCE_DATE_EPOCH. If a source doesn't compile,
    cujit lists it with its first error message, and the exit status is 1.
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
            f"the name of a pack must end in {PACK_SUFFIX}, but this name is {output}", help=f"-o {output}{PACK_SUFFIX}"
        )


@command.command("ls")
@file_argument
@json_option
def ls(file: Path, as_json: bool) -> None:
    """List the images in a pack."""
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
    """Print one record of a pack and its inputs.

    KEY is the record's key or a unique prefix of the key.
    """
    show_entry(Cache(None, read_only=[file]), key, as_json=as_json)


@command.command("verify")
@click.argument("files", nargs=-1, required=True, type=FILE, metavar="FILE...")
@json_option
def verify(files: tuple[Path, ...], as_json: bool) -> None:
    """Verify the checksum of every record in one or more packs.

    The exit status is 1 if a record is damaged.
    """
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
@click.option(
    "--by",
    default="arch",
    metavar="WORDS",
    help="What to group by: kernel, arch, name, or work, or several of these separated by commas. Default: arch.",
)
@click.option(
    "--max-bytes",
    "limit",
    callback=lambda c, p, text: text and read_size(c, p, text),
    metavar="SIZE",
    help="Maximum total size, such as 50MB.",
)
@json_option
def size(files: tuple[Path, ...], by: str, limit: int | None, as_json: bool) -> None:
    """Print the size of packs by kernel, arch, name, or work.

    The exit status is 1 if the total size of the packs exceeds --max-bytes.
    """
    words = by.split(",")
    unknown = [word for word in words if word not in _GROUPS]
    if unknown:
        raise OptionError(
            f"{unknown[0]} is not a valid value for --by: use {', '.join(_GROUPS)}",
            help="--by kernel,arch",
            code="option-unknown",
        )
    total = sum(file.stat().st_size for file in files)
    groups = _grouped([row for file in files for row in _summaries(file)], words)
    if as_json:
        rows = [{**dict(zip(words, group, strict=True)), "bytes": size} for group, size in groups]
        print_json({"bytes": total, "limit_bytes": limit, "groups": rows})
    else:
        cells = [(*map(printable, group), shown_size(size), f"{size / total:.0%}") for group, size in groups]
        print_table((*words, "size", "share"), cells, right=("size", "share"))
    if limit is not None and total > limit:
        note(f"{shown_size(total)} is more than --max-bytes {shown_size(limit)}")
        click.get_current_context().exit(ExitCode.WRONG_INPUT)


@command.command("push")
@file_argument
@click.argument("url")
@signing_options
@json_option
def push(file: Path, url: str, key: Path | None, scope: str, valid_days: int, as_json: bool) -> None:
    """Sign a pack and push it to a container registry.

    URL is oci://HOST/REPOSITORY:TAG. cujit verifies every record first, and adds an attestation: a signed list
    of the images, compilers, and headers. cujit reads the credentials that docker login stored.
    """
    pushed = push_pack(url, file, signer_of(key, scope, valid_days))
    if as_json:
        print_json(pushed._asdict())
    else:
        note(f"{pushed.reference}: {shown_size(pushed.pack_bytes)}")


@command.command("export")
@file_argument
@click.option("--hub", "name", required=True, metavar="NAME", help="Name of the kernel on the kernel hub.")
@click.option(
    "--package",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Python package that uses the pack.",
)
@click.option("--license", required=True, metavar="ID", help="SPDX identifier of the license, such as Apache-2.0.")
@click.option(
    "--kernel-version",
    "version",
    type=click.IntRange(1),
    default=1,
    metavar="N",
    help="Version of the kernel. Default: 1.",
)
@folder_option("Directory of the repository to write.")
@json_option
def export(file: Path, folder: Path, as_json: bool, **about: Any) -> None:
    """Write a pack and a package in the kernel hub's layout.

    The kernels library loads the directory with get_local_kernel. The package loads its pack from kernels.pack, in the
    same directory as its __init__.py. The variant doesn't contain an extension module, so it works with every version
    of torch.
    """
    variant = export_hub(file, output=folder, **about)
    if as_json:
        print_json({"variant": str(variant)})
    else:
        note(printable(f"{variant}: load {folder} with kernels.get_local_kernel"))


@command.command("pull")
@click.argument("url")
@_OUTPUT
@trust_option
@click.option(
    "--bom",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="CycloneDX file to write: the images, compilers, and headers that the owner of the key attested.",
)
@json_option
def pull(url: str, output: Path, trust: Path | None, bom: Path | None, as_json: bool) -> None:
    """Pull a signed pack from a container registry.

    URL is oci://HOST/REPOSITORY:TAG. To accept only one version of the pack, add @sha256:… to the URL. cujit writes the
    pack only if a trusted key signed both the pack for this tag and its attestation. cujit never restores an older
    pack.
    """
    check_name(output)
    pulled = pull_pack(url, output, trust_of(trust), bom=bom)
    if as_json:
        print_json({**pulled._asdict(), "path": str(pulled.path)})
    else:
        note(printable(f"{pulled.path}: {shown_size(pulled.pack_bytes)}, signed by {pulled.signer}"))


_TOOL = click.option(
    "--tool", "name", required=True, metavar="NAME", help="Name of the tool and its version, such as tilelang-0.1.15."
)


@command.command("directory")
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR")
@_TOOL
@_OUTPUT
@json_option
def directory(directory: Path, output: Path, name: str, as_json: bool) -> None:
    """Write the cache directory of another tool to a pack.

    cujit leaves out links, hidden files, and files that end in .lock or .tmp. Push the pack to a registry with cujit
    pack push. On the other machines, run cujit pack pull and cujit pack extract.
    """
    check_name(output)
    stats = pack_directory(directory, output, name=name)
    if as_json:
        print_json({"output": str(output), **stats._asdict()})
    else:
        note(printable(f"{output}: {stats.records} directories in {shown_size(stats.file_bytes)}"))


@command.command("extract")
@file_argument
@_TOOL
@folder_option("Cache directory of the tool.")
@trust_option
@json_option
def extract(file: Path, folder: Path, name: str, trust: Path | None, as_json: bool) -> None:
    """Write a tool's files from a signed pack to its directory.

    DIR is the tool's cache directory. The files are executable code, so cujit writes them only if trusted keys signed
    the pack. cujit verifies every record before it writes the first file, and keeps existing files with the same
    content.
    """
    extracted = extract_directory(file, folder, trust_of(trust), name=name)
    if as_json:
        print_json(extracted._asdict())
    else:
        note(printable(f"{folder}: {extracted.new} new files, {extracted.kept} kept"))


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
