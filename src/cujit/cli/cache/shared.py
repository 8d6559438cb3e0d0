"""``cujit cache keygen``, ``push``, and ``pull``: a signed cache that many machines share."""

from __future__ import annotations

import os
from pathlib import Path

import click

from cujit.cache.cache import Cache
from cujit.cache.remote.signing import keygen as make_key
from cujit.cache.settings import CacheSettings
from cujit.cli.arches import arches_option
from cujit.cli.cache.common import cache_option, short, shown_size
from cujit.cli.console import json_option, note, print_json, several
from cujit.cli.exit_codes import ExitCode
from cujit.cli.help import Command
from cujit.errors import OptionError
from cujit.remote import Signer
from cujit.remote import pull as pull_keys
from cujit.remote import push as push_roots
from cujit.worklist import keys as keys_of
from cujit.worklist import read as read_worklist

_SCOPE = click.option("--scope", default="main", metavar="NAME", help="Scope of the signatures. Default: main.")

signing_options = several(
    click.option("--key", type=click.Path(path_type=Path), metavar="FILE", help="Private key to sign with."),
    _SCOPE,
    click.option(
        "--valid-days", type=int, default=365, metavar="N", help="Validity of the signatures, in days. Default: 365."
    ),
)
"""By whom something is signed, as ``signer_of`` takes it."""

filling_options = several(
    signing_options,
    click.option(
        "--with-recipes", is_flag=True, help="Also publish sources and logs, which contain paths from this machine."
    ),
)
"""By whom a shared cache is filled, as ``signer_of`` takes it, and with what."""


def signer_of(key: Path | None, scope: str, valid_days: int) -> Signer:
    """Return the signer that the options specify.

    Raises:
        OptionError: the options specify none.
    """
    if key is None:
        raise OptionError(
            "cujit has no key to sign images with",
            help="pass --key FILE; cujit cache keygen FILE creates a key",
            code="trust-missing",
        )
    return Signer.read(key, scope=scope, valid_days=valid_days)


trust_option = click.option(
    "--trust",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File of trusted public keys. Default: the value of CUJIT_TRUST.",
)


def trust_of(given: Path | None) -> Path:
    """Return the file of trusted keys from the options or the environment.

    Raises:
        OptionError: neither specifies one.
    """
    own = CacheSettings.from_environment(os.environ).trust
    trust = given or (None if own is None else Path(own))
    if trust is None:
        raise OptionError(
            "no key is trusted, so cujit can't download images",
            help="pass --trust FILE, or set CUJIT_TRUST",
            code="trust-missing",
        )
    return trust


@click.command("keygen", cls=Command)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@_SCOPE
@click.option(
    "--key-name", "name", metavar="TEXT", help="Name to show for the key in messages. Default: the name of FILE."
)
@json_option
def keygen(file: Path, scope: str, name: str | None, as_json: bool) -> None:
    """Create a signing key for a remote cache.

    cujit writes the private key to FILE and prints a trust file. Keep FILE on the machine that publishes to the remote
    cache. On each machine that reads from the remote cache, save the printed text to a file, and set CUJIT_TRUST to its
    path.
    """
    click.echo(make_key(file, name=name or file.stem, scope=scope), nl=False)
    if not as_json:
        note(f"{file}: keep this private key only where you publish to the remote cache")


@click.command("push", cls=Command)
@click.argument("url")
@click.argument("roots", nargs=-1, type=click.Path(exists=True, path_type=Path), metavar="[ROOT...]")
@filling_options
@click.option("--replace", is_flag=True, help="Sign and publish existing images again, for example with a new key.")
@json_option
def push(
    url: str,
    roots: tuple[Path, ...],
    key: Path | None,
    scope: str,
    valid_days: int,
    with_recipes: bool,
    replace: bool,
    as_json: bool,
) -> None:
    """Sign cached images and publish them to a remote cache.

    URL is https://…, s3://…, gs://…, az://… or file:///…. ROOT is a cache or a pack. Default: the cache directory.
    cujit skips machine-specific entries (CPU-device code), modules with a version key, and images that it pulled.
    """
    cache = Cache(None, read_only=roots) if roots else Cache.of(CacheSettings.from_environment(os.environ))
    signer = signer_of(key, scope, valid_days)
    pushed = push_roots(url, cache.stores, signer, with_recipes=with_recipes, replace=replace)
    if as_json:
        print_json(pushed._asdict())
    else:
        note(f"{pushed.new} published ({shown_size(pushed.new_bytes)}), {pushed.kept} already there")


@click.command("pull", cls=Command)
@click.argument("url")
@click.argument("keys", nargs=-1, metavar="[KEY...]")
@click.option("--list", "lists", multiple=True, type=click.Path(exists=True, path_type=Path), metavar="LIST",
              help="Worklist or directory of recordings that lists the images to fetch.")  # fmt: skip
@arches_option("Architecture to fetch images for. Default: the architectures in the list.")
@trust_option
@cache_option
@json_option
def pull(
    url: str,
    keys: tuple[str, ...],
    lists: tuple[Path, ...],
    arches: tuple[str, ...],
    trust: Path | None,
    cache: Cache,
    as_json: bool,
) -> None:
    """Fetch images from a remote cache ahead of time.

    KEY is a complete cache key. The exit status is 1 if an image is missing or rejected.
    """
    listed, failed = keys_of(read_worklist(lists), arch=arches) if lists else ({}, ())
    trust = trust_of(trust)
    if not keys and not lists:
        raise OptionError("there is nothing to download", help="pass keys, or --list LIST")
    pulled = pull_keys(url, [*keys, *listed], cache, trust)
    if as_json:
        without_key = [{**one._asdict(), "arch": str(one.arch)} for one in failed]
        print_json({**pulled._asdict(), "refused": dict(pulled.refused), "without_key": without_key})
    else:
        note(f"{pulled.new} fetched ({shown_size(pulled.new_bytes)}), {pulled.had} already here")
        for digest in pulled.missing:
            note(f"  missing: {short(digest)} {listed.get(digest, '')}")
        for digest, why in pulled.refused:
            note(f"  refused: {short(digest)} {listed.get(digest, '')}: {why}")
        for one in failed:
            note(f"  {one.name} for {one.arch}: {one.reason}")
    if pulled.missing or pulled.refused or failed:
        click.get_current_context().exit(ExitCode.WRONG_INPUT)
