"""Cache directories of other tools in packs, for machines that only read.

A pack has an entry for each directory that has files. Its key is the name of the tool and the path, and its data is the
files. The files are executed, so they are unpacked only from a pack that a trusted key signed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from cujit.artifact import Artifact, ImageKind
from cujit.artifact.reading import file_errors
from cujit.artifact.writing import write_file
from cujit.cache.cache import Cache
from cujit.cache.files import check_name, pack_files, unpack_files
from cujit.cache.key import Part, make_key
from cujit.cache.pack import Pack, PackStats, open_verified, write_pack
from cujit.cache.provenance import Outcome
from cujit.cache.remote.signing import KeyFile
from cujit.cache.trust import Trust
from cujit.errors import CacheRefusedError, FormatError, OptionError, spell
from cujit.values import NamedTuple

WORK = "directory"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_SKIPPED = (".lock", ".tmp")
_MOST_BYTES = 1 << 40


class Extracted(NamedTuple):
    """Files that were written to a directory, and files that were there with the same content."""

    new: int
    kept: int


@file_errors()
def pack_directory(directory: Path, output: Path, *, name: str) -> PackStats:
    """Write the files of a tool's cache directory to a pack, and return the pack's statistics.

    Links, hidden files, and files that end in ``.lock`` or ``.tmp`` are omitted. Equal files produce equal bytes.

    Args:
        directory: the directory, with its subdirectories.
        output: the pack to write. Its name ends in ``.pack``.
        name: a name for the tool and its version, such as ``tilelang-0.1.15``.

    Raises:
        FormatError: a file name can't be part of a pack, or the files of one directory exceed 1 GiB.
        FileError: a file can't be read or written.
        OptionError: the name is invalid, or the directory has no such files.
    """
    _check_tool(name)
    with tempfile.TemporaryDirectory() as folder:  # in place: a cache, which is gone again
        cache = Cache(Path(folder, "cache"), cap_bytes=_MOST_BYTES, memory_bytes=0)
        for path, files in _directories(directory):
            key = make_key(WORK, [Part.text("name", name), Part.text("path", path)])
            kept = cache.keep(key, Artifact(ImageKind.FILES, pack_files(files), None, name=name, tool=name))
            if kept.outcome is Outcome.UNCACHED:
                raise FormatError(f"{directory / path} can't be part of a pack: {kept.reason}")
        stats = write_pack(output, cache.stores)
    if not stats.records:
        output.unlink()
        raise OptionError(f"{directory} contains no files", help="run the tool first, so that it compiles its kernels")
    return stats


@file_errors()
def extract_directory(pack: Path, output: Path, trust: Path, *, name: str) -> Extracted:
    """Write the files of a tool from a signed pack to the tool's cache directory.

    Before the first file is written, every record of the pack is verified. A new directory appears with all its files.

    Args:
        pack: a pack that ``pull_pack`` wrote.
        output: the tool's directory, which only this user can write to.
        trust: the file of keys that are believed, as in ``CUJIT_TRUST``.
        name: the name that ``pack_directory`` was given.

    Raises:
        CacheRefusedError: the pack is not signed by trusted keys, or others could write to it or to the directory.
        FormatError: a record of the pack is damaged.
        FileError: a file can't be written.
        OptionError: the name is invalid, or the pack has nothing under this name.
    """
    _check_tool(name)
    opened = open_verified(pack, KeyFile(trust).objection_to)
    if not opened.signers():
        raise CacheRefusedError(f"the pack {pack} isn't signed", help="use a pack that cujit pack pull wrote")
    names = sorted({record_name for record_name, _, _ in _records(opened)})
    if name not in names:
        raise OptionError(
            f"{pack} contains no directory of {name}",
            help=f"use one of the names {', '.join(names)}"
            if names
            else "run cujit pack directory to make such a pack",
        )
    os.makedirs(output, 0o700, exist_ok=True)
    found = Extracted(0, 0)
    for record_name, path, files in _records(opened):
        if record_name == name:
            new, kept = _write(output / path, files)
            found = Extracted(found.new + new, found.kept + kept)
    return found


def _check_tool(name: object) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise OptionError(f"{spell(name)} is not a valid name of a tool", help="write a name such as tilelang-0.1.15")


def _directories(top: Path) -> Iterator[tuple[str, dict[str, bytes]]]:
    """List each directory that has files, by its path below ``top``."""
    for place, folders, names in os.walk(top, onerror=_raise):
        folders[:] = sorted(folder for folder in folders if not folder.startswith("."))
        paths = {name: Path(place, name) for name in sorted(names) if not name.startswith(".")}
        files = {
            name: path.read_bytes()
            for name, path in paths.items()
            if path.is_file() and not path.is_symlink() and path.suffix not in _SKIPPED
        }
        if files:
            path = os.path.relpath(place, top)
            yield "" if path == os.curdir else path, files


def _raise(error: OSError) -> None:
    raise error


def _records(pack: Pack) -> Iterator[tuple[str, str, dict[str, bytes]]]:
    """List the directories in a pack: the name of the tool, the path, and the files, parents first."""
    found = []
    for entry in pack.entries():
        head = pack.peek(entry.digest)
        if head is not None and head[0].work == WORK:
            (path,) = (part.value for part in head[1] if part.label == "path")
            found.append((head[0].name, path, entry.digest))
    for name, path, digest in sorted(found):
        record = pack.get(digest).record
        if record is None:
            raise FormatError(f"the record {digest[:12]} of {pack.root} is damaged")
        for part in path.split("/") if path else ():
            check_name(part)
        yield name, path, unpack_files(record.artifact.data)


def _write(directory: Path, files: Mapping[str, bytes]) -> tuple[int, int]:
    """Write the files of one directory, and return how many are new, and how many were there."""
    if not directory.exists():
        directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_private(directory.parent)
        if _is_made(directory, files):
            return len(files), 0
    _check_private(directory)
    changed = [name for name, content in files.items() if not _has(directory / name, content)]
    for name in changed:
        write_file(directory / name, files[name], mode=0o600, links="replace")
    return len(changed), len(files) - len(changed)


def _is_made(directory: Path, files: Mapping[str, bytes]) -> bool:
    """Create a directory and all its files atomically. Return False if another process created it first."""
    folder = Path(tempfile.mkdtemp(prefix=".cujit-", dir=directory.parent))  # in place: a directory of files
    try:
        for name, content in files.items():
            write_file(folder / name, content, mode=0o600, links="replace")
        with contextlib.suppress(OSError):
            os.rename(folder, directory)  # in place: as above
            return True
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return False


def _has(path: Path, content: bytes) -> bool:
    """Return whether a file with this content exists that only trusted users could change."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return False
    return not Trust.of_process().objection(status) and path.read_bytes() == content


def _check_private(directory: Path) -> None:
    try:
        Trust.of_process().check_root(directory)
    except CacheRefusedError as e:
        raise CacheRefusedError(
            f"cujit doesn't write to {directory}: {e.message}", help="use a directory that only you can write to"
        ) from e
