"""``cujit cache show``: prints the contents, the inputs, and the source of an entry."""

from __future__ import annotations

import datetime
import json

import click

from cujit.artifact import ImageKind
from cujit.cache import admin
from cujit.cache.admin import Shown
from cujit.cache.cache import Cache
from cujit.cache.files import unpack_files
from cujit.cli.cache.common import cache_option, part_record, shown_size
from cujit.cli.console import json_option, print_json, printable, shown_time
from cujit.cli.help import Command
from cujit.compiler.keys.recipe import read_recipe
from cujit.errors import NameNotFoundError
from cujit.tuning.records import TuningRecord


@click.command("show", cls=Command)
@click.argument("key")
@click.option("--source", "wants_source", is_flag=True, help="Print only the source code of the entry.")
@cache_option
@json_option
def show(cache: Cache, key: str, wants_source: bool, as_json: bool) -> None:
    """Print the contents and the inputs of a cache entry."""
    if wants_source:
        _print_source(admin.show(cache, key), as_json)
    else:
        show_entry(cache, key, as_json=as_json)


def show_entry(cache: Cache, key: str, *, as_json: bool) -> None:
    """Print the contents and the inputs of an entry."""
    shown = admin.show(cache, key)
    if as_json:
        print_json(_record(shown))
    else:
        _print_shown(shown)


def _print_source(shown: Shown, as_json: bool) -> None:
    """Print the source. JSON output also contains the in-memory headers."""
    if not shown.record.recipe:
        what = f"a {shown.record.work}" if shown.record.work in ("link", "bundle") else "an entry of this size"
        raise NameNotFoundError(
            f"cujit doesn't store source code for {what}", help="run cujit cache show KEY to list the inputs to the key"
        )
    source = read_recipe(shown.record.recipe).source
    texts = [(m.name, m.text) for m in source.modules] or [(source.name, source.text)]
    if as_json:
        listed = [{"name": name, "text": text} for name, text in texts]
        headers = [{"name": name, "text": text} for name, text in source.headers]
        print_json({"language": source.language, "sources": listed, "headers": headers})
        return
    for name, text in texts:
        if len(texts) > 1:
            click.echo(f"; {name}")
        click.echo(f"; {name} is bitcode" if text is None else text.rstrip("\n"))


def _record(shown: Shown) -> dict[str, object]:
    record, artifact = shown.record, shown.record.artifact
    return {
        "key": record.digest,
        "root": str(shown.root),
        "work": record.work,
        "name": artifact.name,
        "kind": artifact.kind.value,
        "arch": str(artifact.arch) if artifact.arch else None,
        "image_bytes": len(artifact),
        "tool": artifact.tool,
        "made_s": record.made_s,
        "make_ms": record.make_ms,
        "names": dict(artifact.names),
        "signatures": {name: [p.type for p in s.parameters] for name, s in artifact.signatures.items()},
        "log": artifact.log,
        "files": {name: len(data) for name, data in unpack_files(artifact.data).items()}
        if artifact.kind is ImageKind.FILES
        else None,
        "tuning": json.loads(artifact.data) if artifact.kind is ImageKind.TUNING else None,
        "parts": [part_record(part) for part in shown.key.parts],
    }


def _print_shown(shown: Shown) -> None:
    record, artifact = shown.record, shown.record.artifact
    made = datetime.datetime.fromtimestamp(record.made_s).astimezone()
    rows = [
        ("key", record.digest),
        ("in", str(shown.root)),
        ("name", artifact.name),
        ("image", f"{artifact.kind.value} {artifact.arch or ''}".rstrip() + f", {shown_size(len(artifact))}"),
        ("made", f"{made:%Y-%m-%d %H:%M} in {shown_time(record.make_ms / 1e3)} by {artifact.tool or record.work}"),
    ]
    for label, text in rows:
        click.echo(printable(f"{label:6}{text}"))
    _print_list("kernels", [f"{name} = {lowered}" for name, lowered in artifact.names.items()])
    _print_list("signatures", [f"{name}: {signature}" for name, signature in artifact.signatures.items()])
    if artifact.kind is ImageKind.TUNING:
        _print_list("candidates", str(TuningRecord.of_json(artifact.data)).splitlines()[1:])
    if artifact.kind is ImageKind.FILES:
        files = unpack_files(artifact.data).items()
        _print_list("files", [f"{name}: {shown_size(len(data))}" for name, data in files])
    _print_list("log", artifact.log.strip().splitlines())
    _print_list("made from", [str(part) for part in shown.key.parts])


def _print_list(title: str, lines: list[str]) -> None:
    if lines:
        click.echo("\n".join([f"\n{title}", *(printable(f"  {line}") for line in lines)]))
