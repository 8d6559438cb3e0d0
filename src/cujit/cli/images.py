"""A built fatbin: its compression and its contents, as table rows and JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cujit.artifact import Artifact
from cujit.cli.console import note, print_json, print_table, shown_bytes
from cujit.compiler.inputs.entry import COMPRESSIONS
from cujit.formats.cubin import read_cubin
from cujit.formats.fatbin import EntryKind, FatbinEntry, read_fatbin

compress_option = click.option(
    "--compress", type=click.Choice(COMPRESSIONS), help="How to compress the images. Default: balance."
)


def print_fatbin(fatbin: Artifact, output: Path, as_json: bool) -> None:
    """Write a fatbin and print its contents. The compiler's log goes to standard error.

    Raises:
        FileError: the file can't be written.
    """
    path = fatbin.save(output)
    if fatbin.log.strip():
        note(fatbin.log.strip())
    images = image_records(fatbin.data)
    if as_json:
        print_json({"output": str(path), "bytes": len(fatbin), "images": images, "names": dict(fatbin.names)})
        return
    print_images(images)
    click.echo(f"{path}: {shown_bytes(len(fatbin))} bytes")


def image_records(fatbin: bytes) -> list[dict[str, Any]]:
    """Return a description of every image of a fatbin. For cubins, it includes the registers of the kernels.

    Raises:
        FormatError: the fatbin, or a cubin in it, is damaged.
    """
    return [_record(entry) for entry in read_fatbin(fatbin)]


def _record(entry: FatbinEntry) -> dict[str, Any]:
    record: dict[str, Any] = {
        "kind": entry.kind.name.lower(),
        "arch": str(entry.arch) if entry.arch else None,
        "bytes": entry.size,
        "stored_bytes": entry.stored_bytes,
        "compression": entry.compression.value,
    }
    if entry.kind is EntryKind.CUBIN:
        record["kernels"] = [
            {"name": k.name, "registers": k.registers, "shared_bytes": k.shared_bytes}
            for k in read_cubin(entry.payload()).kernels
        ]
    return record


def print_images(records: list[dict[str, Any]]) -> None:
    """Print the result of ``image_records``."""
    rows = [
        (
            record["kind"],
            record["arch"] or "",
            shown_bytes(record["bytes"]),
            _compressed(record),
            ", ".join(str(k["registers"]) for k in record.get("kernels", ())),
        )
        for record in records
    ]
    print_table(("kind", "arch", "bytes", "compressed", "registers"), rows, right=("bytes",))


def _compressed(record: dict[str, Any]) -> str:
    if record["compression"] == "none":
        return "no"
    return f"{shown_bytes(record['stored_bytes'])} ({record['compression']})"
