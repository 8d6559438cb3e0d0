"""Results of a scan by content, written to a pack and verified on another machine without a scan.

A result is valid if every header has its recorded bytes and every missing name is still missing. A scan would then find
the same. The bytes of a header are read, unless the ``RECORD`` of its distribution and its stat show that the header is
unchanged: equal size, and no time after that of ``RECORD``. No header is skipped. If verification fails, a scan runs.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from itertools import starmap

from cujit.cache.key import Part
from cujit.compiler.includes.files import (
    Listings,
    NotModelledError,
    Stamp,
    content,
    is_absent,
    is_old,
    stamp_of,
    stats_of,
)
from cujit.compiler.includes.stat_cache import Manifest, directories_of
from cujit.values import NamedTuple
from cujit.values.hashing import sha256
from cujit.values.json_text import only_value
from cujit.values.typed import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:  # searching headers needs large expressions; proving what was found does not
    from cujit.compiler.includes.closure import Closure
    from cujit.compiler.includes.search import HeaderPlace

_SCHEMA = 1
_PACKAGES = "-packages/"
"""Where distributions are installed: ``site-packages``, of some systems ``dist-packages``."""
_PLAIN = str.maketrans("-.", "__")
"""As installers write the name of a distribution into that of its metadata."""


class Shipped(NamedTuple):
    """A verified closure: its manifest, the roots of its headers, and whether one may add paths to results."""

    manifest: Manifest
    roots: tuple[str, ...]
    says_where: bool


def write_closure(closure: Closure, parts: Iterable[Part], bases: Mapping[str, str], *, says_where: bool) -> bytes:
    """Serialize the result of a scan.

    ``parts`` are the resulting key parts without paths. ``bases`` are the directories of the roots.
    """
    import base64  # start-up: for whoever makes a pack

    found: dict[str, list[str]] = {}
    for place, text in ((header.place, header.text) for header in closure.found):
        digest = base64.urlsafe_b64encode(bytes.fromhex(text.digest)).decode().rstrip("=")
        found.setdefault(place.root, []).append(f"{place.name},sha256={digest},{text.stamp[0]}")  # as in a RECORD
    stamps = {str(header.place): header.text.stamp for header in closure.found}
    missed, odd = _missed(closure.absent, bases)
    record = {
        "schema": _SCHEMA,
        "parts": [(part.label, part.value, part.size) for part in parts],
        "roots": list(found),
        "says where": says_where,
        "found": found,
        "alike": _alike([stamps[f"{root}:{_name(line)}"] for root in sorted(found) for line in found[root]]),
        "missed": missed,
        "odd": odd,
        "settled": [(place.root, place.name, _settled(bases, place.root, place.name)) for place in closure.unsettled],
    }
    import json  # start-up: for whoever makes a pack

    return json.dumps(record, separators=(",", ":"), sort_keys=True).encode()


def prove(data: bytes, bases: Mapping[str, str]) -> Shipped | None:
    """Return the result of a scan on this machine, verified from the result of another machine.

    Return None if this is uncertain or the bytes are invalid. ``bases`` are the directories of the roots on this
    machine.
    """
    try:
        return _proved(only_value(str(data, "utf-8")), bases)
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError, NotModelledError):
        return None


def _proved(record: dict[str, Any], bases: Mapping[str, str]) -> Shipped | None:
    if record["schema"] != _SCHEMA:
        return None
    odd = [_path(bases, root, name) for root, name in record["odd"]]
    missed = [
        _path(bases, root, f"{place}/{name}" if place else name)
        for root, places in record["missed"].items()
        for place, names in places.items()
        for name in names
    ]
    directories = directories_of([*missed, *odd])  # as they are before they are looked at
    listings = Listings()
    if not all(listings.lacks(path) or not os.path.lexists(path) for path in missed) or not all(map(is_absent, odd)):
        return None
    if any(_settled(bases, root, spelled) != name for root, spelled, name in record["settled"]):
        return None
    manifest = _there(record["found"], bases, record["alike"])
    if manifest is None:
        return None
    parts = tuple(Part(str(label), str(value), size) for label, value, size in record["parts"])
    found = manifest._replace(parts=parts, directories=directories)
    return Shipped(found, tuple(map(str, record["roots"])), bool(record["says where"]))


def _path(bases: Mapping[str, str], root: str, name: str) -> str:
    return name if name.startswith("/") else f"{bases[root]}/{name}"


def _settled(bases: Mapping[str, str], root: str, name: str) -> str:
    from cujit.compiler.includes.search import HeaderPlace, settled  # start-up: few say `..` in a name

    return settled(HeaderPlace(root, name, _path(bases, root, name))).name


def _alike(stamps: Sequence[Stamp]) -> list[int]:
    """Return the first name of each header that has several names, or an empty result if no header has."""
    files = [stamp[3:] for stamp in stamps]
    if len(set(files)) == len(files):
        return []
    first: dict[tuple[int, int], int] = {}
    return [first.setdefault(file, number) for number, file in enumerate(files)]


# -- names that are missed -----------------------------------------------------------------------------------


def _missed(
    absent: Iterable[HeaderPlace], bases: Mapping[str, str]
) -> tuple[dict[str, dict[str, list[str]]], list[tuple[str, str]]]:
    """Return why names are missing: what each directory listing lacks, and the names that no listing covers."""
    lacking: dict[str, dict[str, set[str]]] = {}
    odd = []
    listings = Listings(bases.values())
    for place in absent:
        pieces = place.name.split("/")
        paths = (_path(bases, place.root, "/".join(pieces[: n + 1])) for n in range(len(pieces)))
        depth = next((n for n, path in enumerate(paths) if listings.lacks(path)), None)
        if place.name.startswith("/") or depth is None:  # a directory of that name, or one that only a look tells of
            odd.append((place.root, place.name))
        else:
            lacking.setdefault(place.root, {}).setdefault("/".join(pieces[:depth]), set()).add(pieces[depth])
    return {root: {place: sorted(names) for place, names in of.items()} for root, of in lacking.items()}, odd


# -- headers that are there ----------------------------------------------------------------------------------


class _Group(NamedTuple):
    """The headers below one root: paths, the entries of ``RECORD`` after their names, and stats."""

    paths: list[str]
    digests: list[str]
    stamps: list[Stamp]

    @classmethod
    def of(cls, root: str, lines: Sequence[str], bases: Mapping[str, str]) -> _Group:
        """Create the group of the headers in ``lines``.

        Raises:
            OSError: a header doesn't exist.
            ValueError: a header is not a file.
        """
        names = list(map(_name, lines))
        paths = [_path(bases, root, name) for name in names]
        status = stats_of(bases.get(root, "/"), names)
        if not all(stat.S_ISREG(one.st_mode) for one in status):
            raise ValueError
        digests = [line[len(name) :] for line, name in zip(lines, names, strict=True)]
        return cls(paths, digests, list(map(stamp_of, status)))


def _name(line: str) -> str:
    return line.rsplit(",", 2)[0]


def _there(found: Mapping[str, Sequence[str]], bases: Mapping[str, str], alike: Sequence[int]) -> Manifest | None:
    """Verify that every header has its expected bytes, or return None."""
    groups = {root: _Group.of(root, found[root], bases) for root in sorted(found)}
    if _alike([stamp for group in groups.values() for stamp in group.stamps]) != alike:
        return None
    by_record, records = _recorded(bases, groups)
    others = [
        (path, _digest(digest), stamp)
        for group in groups.values()
        for path, digest, stamp in zip(*group, strict=True)
        if path not in by_record
    ]
    if not all(starmap(_holds, others)):
        return None
    known = by_record | {path: stamp for path, _, stamp in others if is_old(stamp)}
    return Manifest(
        paths=tuple(os.fsencode("\0".join(known)).split(b"\0")) if known else (),
        stamps=tuple(known.values()),
        fresh=tuple((path, digest.hex()) for path, digest, stamp in others if not is_old(stamp)),
        records=records,
        recorded=len(by_record),
    )


def _digest(text: str) -> bytes:
    import base64  # start-up: what distributions brought is not read

    return base64.urlsafe_b64decode(text.split(",")[1].removeprefix("sha256=") + "=")


def _holds(path: str, digest: bytes, stamp: Stamp) -> bool:
    data, now = content(path)
    return now == stamp and sha256(data).digest() == digest


_Lines: TypeAlias = dict[str, tuple[str, Stamp]]
"""What a ``RECORD`` must say of each header, with its path and stat."""


def _recorded(
    bases: Mapping[str, str], groups: Mapping[str, _Group]
) -> tuple[dict[str, Stamp], tuple[tuple[bytes, Stamp], ...]]:
    """Return the unchanged headers of distributions, and the evidence for it."""
    found: dict[str, Stamp] = {}
    records: list[tuple[bytes, Stamp]] = []
    sites: dict[str, _Lines] = {}
    for root, group in groups.items():
        site, packages, _ = f"{bases.get(root)}/".rpartition(_PACKAGES)
        if packages:
            wanted, begin = sites.setdefault(site + packages, {}), len(site + packages)
            for path, recorded, stamp in zip(*group, strict=True):
                wanted[path[begin:] + recorded] = path, stamp
    for site, wanted in sites.items():
        tops = tuple(top.translate(_PLAIN).lower() for top in {line.partition("/")[0] for line in wanted})
        for name in sorted(os.listdir(site)):
            if wanted and name.endswith(".dist-info") and name.translate(_PLAIN).lower().startswith(tops):
                with contextlib.suppress(OSError, NotModelledError):
                    records += _take_recorded(site + name, wanted, found)
    return found, tuple(records)


def _take_recorded(info: str, wanted: _Lines, found: dict[str, Stamp]) -> list[tuple[bytes, Stamp]]:
    """Move the unchanged headers of a distribution from ``wanted`` to ``found``, and return the evidence.

    An installer writes ``RECORD`` last. A later edit of ``RECORD`` doesn't change its directory, and a file that
    replaces another gets a new ctime.

    Raises:
        OSError, NotModelledError: there is no ``RECORD``.
    """
    path, before = f"{info}/RECORD", len(found)
    data, record = content(path)
    directory = stamp_of(os.stat(info))
    mtime, ctime = min(record[1], directory[1]), record[2]
    for line in wanted.keys() & data.decode("utf-8", "replace").splitlines() if is_old(record) else ():
        header, stamp = wanted[line]
        if line.endswith(f",{stamp[0]}") and stamp[1] <= mtime and stamp[2] <= ctime:
            found[header] = stamp
            del wanted[line]
    return [(os.fsencode(path), record), (os.fsencode(info), directory)] if len(found) > before else []
