"""What a scan found, by content: written down for a pack, and proved on another machine without a scan.

It is believed where every header has the bytes that it had, and every name that was missed is missed again: then a
scan would find the same. What a header holds is known by reading it, or else by the ``RECORD`` of the distribution that
brought it, where its stat shows that nobody touched it since: the size of the ``RECORD``, and no time later than that.
Nothing is sampled. What cannot be proved is not believed, and costs a scan.
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
    """A closure that was proved: its manifest, the roots of its headers, and whether one may put paths into results."""

    manifest: Manifest
    roots: tuple[str, ...]
    says_where: bool


def write_closure(closure: Closure, parts: Iterable[Part], bases: Mapping[str, str], *, says_where: bool) -> bytes:
    """Write down what a scan found.

    ``parts`` are those of the key that came out of it, without paths. ``bases`` are the directories of its roots.
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
    """Return what a scan would find, from what a scan found elsewhere. None if that is uncertain, or the bytes are
    invalid.

    ``bases`` are the directories of the roots on this machine.
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
    """Return which headers are one file under several names: for each header, the first of them. Empty if there are
    none.
    """
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
    """The headers under one root, side by side: paths, what a ``RECORD`` says of each behind its name, and stats."""

    paths: list[str]
    digests: list[str]
    stamps: list[Stamp]

    @classmethod
    def of(cls, root: str, lines: Sequence[str], bases: Mapping[str, str]) -> _Group:
        """Look at the headers that ``lines`` tell of.

        Raises:
            OSError: one of them is not there.
            ValueError: one of them is no file.
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
    """Prove that every header is there, with the bytes that it should have; None where one is not so."""
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
    """Find the headers that a distribution brought as they should be, and nobody touched since; and what shows that."""
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
    """Move from ``wanted`` to ``found`` what a distribution brought and nobody touched; give what shows that.

    An installer writes ``RECORD`` last. Whoever touches that later does not touch its directory, and whoever puts an
    old file in the place of another gives it a new ctime.

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
