"""What a scan found, by content: written down for a pack, and proved on another machine without a scan.

It is believed where every header has the bytes that it had, and every name that was missed is missed again: then a
scan would find the same. What a header holds is known by reading it, or else by the ``RECORD`` of the distribution that
brought it, where its stat shows that nobody touched it since: the size of the ``RECORD``, and no time later than that.
Nothing is sampled. What cannot be proved is not believed, and costs a scan.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from cujit.cache.key import Part
from cujit.cache.packaged import normal_name
from cujit.compiler.includes.files import Listings, NotModelledError, Stamp, content, is_absent, is_old, stamp_of
from cujit.compiler.includes.memo import Manifest, directories_of

if TYPE_CHECKING:  # searching headers needs large expressions; proving what was found does not
    from cujit.compiler.includes.closure import Closure
    from cujit.compiler.includes.search import HeaderPlace

_SCHEMA = 1
_PACKAGES = "-packages/"
"""Where distributions are installed: ``site-packages``, of some systems ``dist-packages``."""


class Shipped(NamedTuple):
    """A closure that was proved: its manifest, the roots of its headers, and whether one may put paths into results."""

    manifest: Manifest
    roots: tuple[str, ...]
    says_where: bool


def write_closure(closure: Closure, parts: Iterable[Part], bases: Mapping[str, str], *, says_where: bool) -> bytes:
    """Write down what a scan found.

    ``parts`` are those of the key that came out of it, without paths. ``bases`` are the directories of its roots.
    """
    found: dict[str, list[str]] = {}
    for place, text in ((header.place, header.text) for header in closure.found):
        digest = base64.urlsafe_b64encode(bytes.fromhex(text.digest)).decode().rstrip("=")
        found.setdefault(place.root, []).append(f"{place.name},sha256={digest},{text.stamp[0]}")  # as in a RECORD
    stamps = {str(header.place): header.text.stamp for header in closure.found}
    missed, odd = _missed(closure.absent, bases)
    said = {
        "schema": _SCHEMA,
        "parts": [(part.label, part.value, part.size) for part in parts],
        "roots": list(found),
        "says where": says_where,
        "found": found,
        "alike": _alike([stamps[header.place] for header in _headers(found, bases)]),
        "missed": missed,
        "odd": odd,
        "settled": [(place.root, place.name, _settled(bases, place.root, place.name)) for place in closure.unsettled],
    }
    return json.dumps(said, separators=(",", ":"), sort_keys=True).encode()


def prove(data: bytes, bases: Mapping[str, str]) -> Shipped | None:
    """Tell what a scan would find, from what one found elsewhere; None where that is not sure, or the bytes are none.

    ``bases`` are the directories of the roots on this machine.
    """
    try:
        return _proved(json.loads(data), bases)
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError, NotModelledError):
        return None


def _proved(said: dict[str, Any], bases: Mapping[str, str]) -> Shipped | None:
    if said["schema"] != _SCHEMA:
        return None
    odd = [_path(bases, root, name) for root, name in said["odd"]]
    missed = [
        _path(bases, root, f"{place}/{name}" if place else name)
        for root, places in said["missed"].items()
        for place, names in places.items()
        for name in names
    ]
    directories = directories_of([*missed, *odd])  # as they are before they are looked at
    listings = Listings(bases.values())
    if not all(listings.lacks(path) or not os.path.lexists(path) for path in missed) or not all(map(is_absent, odd)):
        return None
    if any(_settled(bases, root, spelled) != name for root, spelled, name in said["settled"]):
        return None
    manifest = _there(_headers(said["found"], bases), said["alike"])
    if manifest is None:
        return None
    parts = tuple(Part(str(label), str(value), size) for label, value, size in said["parts"])
    found = manifest._replace(parts=parts, directories=directories)
    return Shipped(found, tuple(map(str, said["roots"])), bool(said["says where"]))


def _path(bases: Mapping[str, str], root: str, name: str) -> str:
    return name if name.startswith("/") else f"{bases[root]}/{name}"


def _settled(bases: Mapping[str, str], root: str, name: str) -> str:
    from cujit.compiler.includes.search import HeaderPlace, settled  # start-up: few say `..` in a name

    return settled(HeaderPlace(root, name, _path(bases, root, name))).name


def _alike(stamps: Sequence[Stamp]) -> list[int]:
    """Tell which headers are one file under several names: for each the first of them; nothing where none is."""
    first: dict[tuple[int, int], int] = {}
    numbers = [first.setdefault(stamp[3:], number) for number, stamp in enumerate(stamps)]
    return numbers if len(first) < len(numbers) else []


# -- names that are missed -----------------------------------------------------------------------------------


def _missed(
    absent: Iterable[HeaderPlace], bases: Mapping[str, str]
) -> tuple[dict[str, dict[str, list[str]]], list[tuple[str, str]]]:
    """Say why names are missed: what a listing of each directory lacks; and the names of which no listing tells."""
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


class _Header(NamedTuple):
    """A header: its place and path; its SHA-256 and size as a ``RECORD`` says them."""

    place: str
    path: str
    said: str

    @property
    def digest(self) -> bytes:
        return base64.urlsafe_b64decode(self.said.partition(",")[0].removeprefix("sha256=") + "=")


def _headers(found: Mapping[str, Sequence[str]], bases: Mapping[str, str]) -> list[_Header]:
    headers = []
    for root, lines in sorted(found.items()):
        for line in lines:
            name, digest, size = line.rsplit(",", 2)
            headers.append(_Header(f"{root}:{name}", _path(bases, root, name), f"{digest},{size}"))
    return headers


def _there(headers: Sequence[_Header], alike: Sequence[int]) -> Manifest | None:
    """Prove that every header is there, with the bytes that it should have; None where one is not so."""
    status = list(map(os.stat, [header.path for header in headers]))
    stamps = list(map(stamp_of, status))
    if not all(stat.S_ISREG(one.st_mode) for one in status) or _alike(stamps) != alike:
        return None
    seen = list(zip(headers, stamps, strict=True))
    by_record, records = _recorded(seen)
    others = [(header, stamp) for header, stamp in seen if header.path not in by_record]
    if not all(_holds(header, stamp) for header, stamp in others):
        return None
    known = [*by_record.items(), *((header.path, stamp) for header, stamp in others if is_old(stamp))]
    return Manifest(
        paths=tuple(os.fsencode(path) for path, _ in known),
        stamps=tuple(stamp for _, stamp in known),
        fresh=tuple((header.path, header.digest.hex()) for header, stamp in others if not is_old(stamp)),
        records=records,
        recorded=len(by_record),
    )


def _holds(header: _Header, stamp: Stamp) -> bool:
    data, now = content(header.path)
    return now == stamp and hashlib.sha256(data).digest() == header.digest


_Lines: TypeAlias = dict[str, tuple[str, Stamp]]
"""What a ``RECORD`` must say of each header, with its path and stat."""


def _recorded(seen: Iterable[tuple[_Header, Stamp]]) -> tuple[dict[str, Stamp], tuple[tuple[bytes, Stamp], ...]]:
    """Find the headers that a distribution brought as they should be, and nobody touched since; and what shows that."""
    found: dict[str, Stamp] = {}
    records: list[tuple[bytes, Stamp]] = []
    sites: dict[str, _Lines] = {}
    for header, stamp in seen:
        site, packages, inside = header.path.rpartition(_PACKAGES)
        if packages:
            sites.setdefault(site + packages, {})[f"{inside},{header.said}"] = header.path, stamp
    for site, wanted in sites.items():
        tops = tuple(map(normal_name, {line.partition("/")[0] for line in wanted}))
        for name in sorted(os.listdir(site)):
            if wanted and name.endswith(".dist-info") and normal_name(name).startswith(tops):
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
