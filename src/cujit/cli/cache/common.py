"""Shared parts of the ``cujit cache`` commands: the choice of the cache, sizes with units, and entries as rows."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import click

from cujit.cache.cache import Cache
from cujit.cache.key import KeyDifference, Part
from cujit.cache.record import Summary
from cujit.cache.settings import CacheSettings, parse_bytes
from cujit.cli.console import printable
from cujit.errors import OptionError
from cujit.values import attributes

_KEY_DIGITS = 12
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB")
_AGES = (("d", 86400), ("h", 3600), ("min", 60))


def read_size(_ctx: click.Context, _param: click.Parameter, text: str) -> int:
    """Read a number of bytes with a unit, as the callback of an argument: ``512MiB``, ``1.5 GB``, ``100000``.

    Raises:
        BadParameter: the value is invalid.
    """
    try:
        return parse_bytes(text)
    except OptionError as e:
        raise click.BadParameter(str(e)) from e


def shown_size(size_bytes: int) -> str:
    """Write a number of bytes with three digits and the unit that suits it."""
    scaled, unit = float(size_bytes), 0
    while scaled >= 1000 and unit < len(_BINARY) - 1:
        scaled, unit = scaled / 1024, unit + 1
    return f"{scaled:.3g} {_BINARY[unit]}"


def shown_age(unix_s: float) -> str:
    """Return the time since the last use as text. Entries store the last use to the hour."""
    age_s = time.time() - unix_s
    return next((f"{age_s / scale:.0f} {unit} ago" for unit, scale in _AGES if age_s >= scale), "now")


def short(digest: str) -> str:
    """Return a prefix of a key that ``show``, ``why``, and ``export`` accept."""
    return digest[:_KEY_DIGITS]


def cache_option(function: Callable[..., None]) -> Callable[..., None]:
    """Add the option ``--dir`` to a command, as ``cache``: the Cache of that directory, or of the environment."""
    return click.option(
        "--dir",
        "cache",
        metavar="DIR",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        callback=lambda _ctx, _param, directory: _open(directory),
        help="Cache directory. Default: the value of CUJIT_CACHE_DIR.",
    )(function)


def _open(directory: Path | None) -> Cache:
    """Open one directory, or the roots of the environment."""
    settings = CacheSettings.from_environment(os.environ)
    if directory is None:
        return Cache.of(settings)
    private = None if settings.runtime_dir is None else Path(settings.runtime_dir)
    return Cache(directory, cap_bytes=settings.cap_bytes, runtime_dir=private)


def summary_record(summary: Summary) -> dict[str, object]:
    """Describe an entry for JSON."""
    return {
        "key": summary.digest,
        **attributes(summary, "work name"),
        "kind": summary.kind.value,
        "arch": str(summary.arch) if summary.arch else None,
        "names": list(summary.names),
        "tool": summary.tool,
        "image_bytes": summary.payload_bytes,
        **attributes(summary, "make_ms made_s"),
    }


def part_record(part: Part | None) -> dict[str, object] | None:
    """Return a part of a key for JSON. ``bytes`` is None if the record contains the full value."""
    return None if part is None else {"label": part.label, "value": part.value, "bytes": part.size}


def difference_record(difference: KeyDifference) -> dict[str, object]:
    """Describe a difference of two keys for JSON."""
    before, after = part_record(difference.before), part_record(difference.after)
    return {"label": difference.label, "before": before, "after": after}


def print_differences(differences: tuple[KeyDifference, ...]) -> None:
    """Print which inputs differ, one a line."""
    for difference in differences:
        click.echo(printable(f"  {difference}"))
