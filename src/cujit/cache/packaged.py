"""Packs in installed distributions, found by RECORD files and entry points without importing the distributions."""

from __future__ import annotations

import binascii
import contextlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from cujit.cache.filesystem import OpenFile
from cujit.cache.hints import Hints
from cujit.cache.pack import Pack
from cujit.cache.store import PACK_SUFFIX
from cujit.cache.trust import Trust
from cujit.errors import FormatError, MissingError, OptionError, spell
from cujit.values import NamedTuple

GROUP = "cujit.packs"
"""The entry points of wheels that bring packs for another distribution: its name, and the package that they lie in."""

_CHUNK_BYTES = 1 << 20


class RecordedPack(NamedTuple):
    """A pack in a distribution's RECORD. ``sha256`` is in hex, or empty if RECORD has none.

    ``is_own`` is whether the pack belongs to the requested distribution, instead of one that ships packs for it.
    """

    path: Path
    sha256: str
    distribution: str
    is_own: bool


def packs_of(distribution: str) -> tuple[RecordedPack, ...]:
    """Return the packs of an installed distribution, followed by packs of others that name it in ``cujit.packs``.

    Source: "Recording installed projects" and "Entry points specification" of the Python Packaging User Guide.

    Raises:
        MissingError: the distribution is not installed.
        OptionError: the name is invalid.
    """
    if not isinstance(distribution, str) or not re.fullmatch(r"[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?", distribution):
        raise OptionError(
            f"{spell(distribution)} is not a valid distribution name", help="cujit.Cache.packaged('mylib')"
        )
    wanted = normal_name(distribution)
    directories = {normal_name(os.path.basename(path).partition("-")[0]): path for path in reversed(list(_metadata()))}
    if wanted not in directories:
        _require_installed(distribution)
        return ()  # in an archive, say, out of which no pack can be opened
    packs = [*_packs_in(directories[wanted], "", distribution, is_own=True)]
    for path in sorted(directories.values()):
        for package in _provided(path, wanted):
            packs += _packs_in(path, package.replace(".", "/") + "/", package, is_own=False)
    return tuple(dict.fromkeys(packs))


def _metadata() -> Iterator[str]:
    """Return the metadata directories in Python's search order. Importing importlib.metadata would take 30 ms."""
    for place in dict.fromkeys(sys.path):
        with contextlib.suppress(OSError):
            names = sorted(name for name in os.listdir(place or ".") if name.endswith(".dist-info"))
            yield from (os.path.join(os.path.abspath(place), name) for name in names)


def _require_installed(distribution: str) -> None:
    import importlib.metadata  # for what no directory of the search path has

    try:
        importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        raise MissingError(
            f"the distribution {distribution} is not installed",
            help=f"run pip install {distribution}, or pip install -e . in its source tree",
        ) from None


def normal_name(name: str) -> str:
    """Return the normalized name of a distribution, which all its spellings and its metadata share."""
    return re.sub(r"[-_.]+", "_", name).lower()


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""


def _provided(metadata: str, wanted: str) -> Iterator[str]:
    """Return the packages with packs for a distribution, from the entry_points.txt of another distribution."""
    text = _read(f"{metadata}/entry_points.txt")
    section = f"\n{text.partition(f'[{GROUP}]')[2]}".partition("\n[")[0]
    for line in section.splitlines():
        name, _, value = line.partition("=")
        if normal_name(name.strip()) == wanted:
            yield value.partition(":")[0].strip()


def _packs_in(metadata: str, under: str, named: str, *, is_own: bool) -> Iterator[RecordedPack]:
    import csv  # start-up: for libraries that bring packs

    lines = [line for line in _read(f"{metadata}/RECORD").splitlines() if PACK_SUFFIX in line]
    for row in sorted(csv.reader(lines)):
        if row and row[0].endswith(PACK_SUFFIX) and row[0].startswith(under):
            path = Path(os.path.realpath(os.path.join(metadata, os.pardir, row[0])))  # some installers link files
            yield RecordedPack(path, _hex(row[1] if len(row) > 1 else ""), named, is_own)


def _hex(digits: str) -> str:
    kind, _, text = digits.partition("=")
    try:
        padded = text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4)
        return binascii.a2b_base64(padded).hex() if kind == "sha256" else ""
    except ValueError:
        return ""


class _AsItsCode(Trust):
    """Trusts a file like the Python code next to it: a user who can change either controls this process."""

    def objection(self, status: os.stat_result) -> str:  # noqa: ARG002, as of Trust
        return ""

    def check_root(self, root: Path | str) -> None:
        pass


class PackagedPack(Pack):
    """A pack of a distribution. One that is not as RECORD has it is refused.

    ``hints`` keeps that it was read, so that the next process need not read all of it.
    """

    def __init__(self, recorded: RecordedPack, hints: Hints | None) -> None:
        """Set the path. The file isn't opened yet."""
        trust = Trust.of_process()
        super().__init__(recorded.path, _AsItsCode(trust.uid, trust.owners))
        self.recorded = recorded
        self._hints = hints

    def _check_whole(self, file: OpenFile, status: os.stat_result) -> None:
        if not self.recorded.sha256:
            return
        name = f"pack-{self.recorded.sha256}"
        stamp = f"{self.root} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}".encode()
        if self._hints is not None and self._hints.get(name) == stamp:
            return
        import hashlib  # start-up: for a pack that nobody has read yet; it loads OpenSSL

        digest = hashlib.sha256()
        for at in range(0, status.st_size, _CHUNK_BYTES):
            digest.update(file.read(at, min(_CHUNK_BYTES, status.st_size - at)))
        if digest.hexdigest() != self.recorded.sha256:
            raise FormatError(f"the SHA-256 differs from the one in the RECORD file of {self.recorded.distribution}")
        if self._hints is not None:
            self._hints.put(name, stamp)
