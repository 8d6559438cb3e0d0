"""Worklists: what programs asked to be compiled, as lines of JSON that people review and other machines build.

::

    {"cujit worklist": 1}                                   the first line
    {"recipe": <digest>, "text": …, "define": …, …}         a request without its architecture, once
    {"use": <digest>, "arch": "sm_90", "calls": 12, …}      that it was asked for: a later line of one file counts on

A recording is such a file of one process, and may end in the middle of a line.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cujit.arch import Arch, ArchKind
from cujit.artifact import ImageKind
from cujit.artifact.reading import read_file, shown_path
from cujit.artifact.writing import write_file
from cujit.cache.key import is_digest
from cujit.compiler.keys.recipe import recipe_of, request_of
from cujit.compiler.request import Request
from cujit.errors import MEMORY, CujitError, FileError, FormatError, OptionError, spell
from cujit.values import NamedTuple, dataclass
from cujit.worklist.places import Places

_VERSION = 1
_HEADER = "cujit worklist"
HEADER = json.dumps({_HEADER: _VERSION}) + "\n"
SUFFIX = ".jsonl"
_in_json = json.encoder.encode_basestring_ascii
_OUTCOMES = ("made", "hit", "missed", "failed")  # from what tells most
_DAY = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
_LEAST = MappingProxyType({
    "kind": "", "path": "", "names": (), "define": (), "options": {}, "extra": (), "include": [], "language": "cuda",
    "libdevice": False, "modules": [], "headers": (),
})  # fmt: skip
"""What a recipe says between name and text, in this order, and what it means where it does not."""

_PLACES_HELP = (
    "install that package, or specify the project (--project); other headers exist only on the recording machine"
)
_KINDS = {ArchKind.REAL: ImageKind.CUBIN, ArchKind.VIRTUAL: ImageKind.PTX, ArchKind.LTO: ImageKind.LTOIR}


class RecipeUse(NamedTuple):
    """That a recipe was asked for, for one architecture.

    ``key`` is that of the machine where it was, or None; ``outcome`` is ``made``, ``hit``, ``failed`` for a source that
    does not compile, or ``missed`` where it was not there and could not be made for another reason; ``make_ms`` is what
    it took to make, 0 where that is not known; ``calls`` is how often, ``seen`` the last day, ``YYYY-MM-DD``.
    ``elsewhere`` says why another machine cannot make the same of it, or is empty.
    """

    recipe: str
    arch: Arch
    key: str | None = None
    outcome: str = "made"
    make_ms: float = 0.0
    calls: int = 1
    seen: str = ""
    elsewhere: str = ""

    def joined(self, other: RecipeUse, *, is_same_file: bool = False) -> RecipeUse:
        """Merge two lines about the same use. Counts in one file accumulate, and counts of several files are added."""
        later = max(self, other, key=lambda use: use.seen)
        return later._replace(
            outcome=min(self.outcome, other.outcome, key=_OUTCOMES.index),
            make_ms=max(self.make_ms, other.make_ms),
            calls=max(self.calls, other.calls) if is_same_file else self.calls + other.calls,
        )


@dataclass(frozen=True)
class Worklist:
    """Recipes by digest, in file format, and their uses in the order of the list."""

    recipes: Mapping[str, Mapping[str, Any]]
    uses: tuple[RecipeUse, ...]

    def name(self, recipe: str) -> str:
        """Return the name of a recipe's source."""
        return str(self.recipes[recipe]["name"])

    def request(self, recipe: str, arch: Arch, places: Places) -> Request:
        """Return the request of a recipe for an architecture, with the local paths of its headers.

        Raises:
            FormatError: the recipe is invalid.
            FileError: its headers are only on the recording machine, or missing here.
        """

        def directory(name: str) -> str:
            path = places.path(name)
            if path is None:
                raise FileError(f"{self.name(recipe)} requires the headers in {name}", help=_PLACES_HELP)
            return path

        def file(name: str) -> str:  # what lies elsewhere has no neighbours here, as a source in memory
            return places.path(name) or f"{MEMORY}/{os.path.basename(name)}"

        record = _moved({**_LEAST, **self.recipes[recipe]}, directory, file)
        kind = record["kind"] or _KINDS[arch.kind].value
        return request_of({**record, "kind": kind, "arch": [arch.kind.value, arch.number, arch.suffix]})

    def shard(self, number: int, count: int) -> Worklist:
        """Return a part of the list, by its number from 1 to ``count``. Each recipe is in one part, on every machine.

        Raises:
            OptionError: the number is not from 1 to ``count``.
        """
        if not 1 <= number <= count:
            raise OptionError(f"there is no shard {number} of {count}", help=f"write a number from 1 to {count}")
        mine = tuple(use for use in self.uses if int(use.recipe, 16) % count == number - 1)
        return Worklist({digest: self.recipes[digest] for digest in dict.fromkeys(use.recipe for use in mine)}, mine)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the list, whole or not at all: its recipes first, each line as another machine would write it.

        Raises:
            FileError: the file can't be written.
        """
        used = dict.fromkeys(use.recipe for use in self.uses)
        recipes = (_recipe_line(digest, json.dumps(dict(self.recipes[digest]))) for digest in used)
        write_file(path, "".join([HEADER, *recipes, *map(use_line, self.uses)]))


class Merged(NamedTuple):
    """A list, and how many uses were cut, by the reason."""

    worklist: Worklist
    cut: Mapping[str, int]


# -- writing -----------------------------------------------------------------------------------------------


def recipe_line(request: Request, places: Places) -> tuple[str, str]:
    """Return the digest and the line of a request's recipe."""
    record = _moved(recipe_of(request), places.name, places.name)
    if request.kind is _KINDS[request.arch.kind]:
        record["kind"] = ""
    name = os.path.basename(request.source.name) if request.source.path else request.source.name
    rest = {key: record[key] for key, least in _LEAST.items() if record[key] != least}
    # As json.dumps writes it, which takes five times as long for the text. ASCII alone, so that a lone surrogate of a
    # path that is no UTF-8 comes back as it was.
    between = f"{json.dumps(rest)[1:-1]}, " if rest else ""
    text = f'{{"name": {_in_json(name)}, {between}"text": {_in_json(record["text"])}}}'
    digest = hashlib.sha256(text.encode()).hexdigest()
    return digest, _recipe_line(digest, text)


def use_line(use: RecipeUse) -> str:
    """Write the line of a use."""
    key = f'"{use.key}"' if use.key else "null"
    elsewhere = f', "elsewhere": {json.dumps(use.elsewhere)}' if use.elsewhere else ""
    return (
        f'{{"use": "{use.recipe}", "arch": "{use.arch}", "key": {key}, "outcome": "{use.outcome}", '
        f'"make_ms": {use.make_ms:.1f}, "calls": {use.calls}, "seen": "{use.seen}"{elsewhere}}}\n'
    )


def _recipe_line(digest: str, text: str) -> str:
    return f'{{"recipe": "{digest}", {text[1:]}\n'


def _moved(record: Mapping[str, Any], directory: Callable[[str], str], file: Callable[[str], str]) -> dict[str, Any]:
    """Replace the paths of a recipe by other names."""
    moved = {**record, "include": [directory(path) for path in record["include"]]}
    moved["path"] = record["path"] and file(record["path"])
    if include := record["options"].get("include"):
        moved["options"] = {**record["options"], "include": [directory(path) for path in include]}
    return moved


def of_requests(requests: Iterable[Request], places: Places) -> Worklist:
    """Return the list of requests that were never made."""
    recipes: dict[str, Mapping[str, Any]] = {}
    uses = {}
    today = time.strftime("%Y-%m-%d")
    for request in requests:
        digest, line = recipe_line(request, places)
        recipe = json.loads(line)
        del recipe["recipe"]
        recipes[digest] = MappingProxyType(recipe)
        uses[digest, request.arch] = RecipeUse(digest, request.arch, outcome="missed", seen=today)
    return Worklist(MappingProxyType(recipes), tuple(uses.values()))


# -- reading -----------------------------------------------------------------------------------------------


def read(paths: Iterable[str | os.PathLike[str]] | str | os.PathLike[str]) -> Worklist:
    """Read worklists, recordings, and directories of recordings into one list. Uses in several files are added.

    Raises:
        FormatError: a file is not a worklist, or a line is invalid. The message names the line.
        FileError: a file or directory doesn't exist or can't be read.
        OptionError: no path was specified.
    """
    listed = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not listed:
        raise OptionError(
            "no worklist", help="pass the file that cujit worklist merge wrote, or a directory of recordings"
        )
    recipes: dict[str, Mapping[str, Any]] = {}
    uses: dict[tuple[str, Arch], RecipeUse] = {}
    for file, is_whole in dict(pair for path in listed for pair in _files(Path(path))).items():
        one = _read(file, is_whole=is_whole)
        recipes |= one.recipes
        for use in one.uses:
            known = uses.get((use.recipe, use.arch))
            uses[use.recipe, use.arch] = use if known is None else known.joined(use)
    return Worklist(MappingProxyType(recipes), tuple(uses.values()))


def merge(
    paths: Iterable[str | os.PathLike[str]] | str | os.PathLike[str],
    *,
    min_uses: int = 1,
    min_ms: float = 0.0,
    seen_within_days: int | None = None,
    cap: int | None = None,
    arch: Iterable[str | Arch] = (),
) -> Merged:
    """Join lists and recordings into one that is worth building, sorted so that two of them can be compared.

    Args:
        paths: see ``read``.
        min_uses: the calls that a request must have had, all processes together.
        min_ms: the milliseconds that it must have taken to make; where that is not known, it stays.
        seen_within_days: how long ago its last day may be.
        cap: the most uses that are kept; those with the most calls stay.
        arch: the architectures that are kept; none means all.

    Raises:
        FormatError, FileError: as of ``read``.
        OptionError: a number is negative.
        ArchError: there is no such architecture.
    """
    wishes = _Wishes(min_uses, min_ms, _since(seen_within_days), frozenset(map(Arch.parse, arch)))
    for name, number in {"min_uses": min_uses, "min_ms": min_ms, "cap": cap}.items():
        if number is not None and not (isinstance(number, int | float) and number >= 0):
            raise OptionError(f"{name} is {spell(number)}, expected a number of at least 0")
    whole = read(paths)
    reasons = {use: wishes.against(use) for use in whole.uses}
    kept = [use for use, why in reasons.items() if not why]
    kept.sort(key=lambda use: (-use.calls, -use.make_ms, use.recipe, use.arch))
    cut = Counter(filter(None, reasons.values()))
    if cap is not None and len(kept) > cap:
        cut[f"past the cap of {cap}"] = len(kept) - cap
        del kept[cap:]
    kept.sort(key=lambda use: (whole.name(use.recipe), use.recipe, use.arch))
    recipes = {use.recipe: whole.recipes[use.recipe] for use in kept}
    return Merged(Worklist(MappingProxyType(recipes), tuple(kept)), MappingProxyType(cut))


class _Wishes(NamedTuple):
    """Filter for the requests to keep (see ``merge``)."""

    min_uses: float
    min_ms: float
    since: str
    arches: frozenset[Arch]

    def against(self, use: RecipeUse) -> str:
        """Return why a recipe is cut, or an empty string."""
        reasons = {
            "never compiled": use.outcome == "failed",
            "other architectures": self.arches and use.arch not in self.arches,
            f"fewer than {self.min_uses} uses": use.calls < self.min_uses,
            f"made in less than {self.min_ms:g} ms": 0 < use.make_ms < self.min_ms,
            f"not seen since {self.since}": use.seen < self.since,
        }
        return next((reason for reason, is_so in reasons.items() if is_so), "")


def _since(days: object) -> str:
    if days is None:
        return ""
    if type(days) is not int or days < 0:
        raise OptionError(f"seen_within_days is {spell(days)}, expected a number of days", help="seen_within_days=90")
    return time.strftime("%Y-%m-%d", time.localtime(max(0.0, time.time() - days * 86400.0)))


def _files(path: Path) -> Iterator[tuple[Path, bool]]:
    """Yield the files of a path, and whether each must be a complete list. Repeated files are read once."""
    try:
        if path.is_dir():
            yield from ((file.resolve(), False) for file in sorted(path.iterdir()) if file.suffix == SUFFIX)
        else:
            yield path.resolve(), True
    except OSError as e:
        raise FileError(f"{path}: {e.strerror or e}") from e


def _read(file: Path, *, is_whole: bool) -> Worklist:
    lines = read_file(file).split(b"\n")
    torn = lines.pop()
    recipes: dict[str, Mapping[str, Any]] = {}
    uses: dict[tuple[str, Arch], RecipeUse] = {}
    if not lines and not is_whole:  # a process that ended before its first line did
        return Worklist(recipes, ())
    for number, line in enumerate([*lines, torn], start=1):
        is_torn = number > len(lines)
        try:
            record = _object(line) if line or not is_torn else {}
            if number == 1:
                _check_version(record)
            elif "recipe" in record:
                digest = _proved(record)
                recipes.setdefault(digest, MappingProxyType(record))
            elif record:
                use = _use(record, recipes)
                known = uses.get((use.recipe, use.arch))
                uses[use.recipe, use.arch] = use if known is None else known.joined(use, is_same_file=True)
        except (CujitError, AttributeError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as e:
            if is_torn and number > 1:
                break  # the process ended, or the disk was full, in the middle of it
            why = e.message if isinstance(e, CujitError) else f"no line of a worklist ({type(e).__name__}: {e})"
            raise FormatError(f"{shown_path(str(file))}:{number}: {why}", help=_HELP) from None
    return Worklist(MappingProxyType(recipes), tuple(uses.values()))


_HELP = "cujit worklist merge writes lists, and a process with CUJIT_RECORD=DIR writes recordings"


def _object(line: bytes) -> dict[str, Any]:
    record = json.loads(line)
    if not isinstance(record, dict):
        raise FormatError("this line is not part of a worklist: it is not an object")
    return record


def _check_version(record: Mapping[str, Any]) -> None:
    if record.get(_HEADER) != _VERSION:
        version = record.get(_HEADER)
        raise FormatError(
            f"the worklist has format version {spell(version)}, but this cujit reads version {_VERSION}"
            if version is not None
            else f"the file is not a worklist: its first line doesn't contain {spell(_HEADER)}"
        )


def _proved(record: dict[str, Any]) -> str:
    """Remove a recipe's digest from its line. The rest must have this digest and be a request."""
    digest = record.pop("recipe")
    if digest != hashlib.sha256(json.dumps(record).encode()).hexdigest():
        raise FormatError("the recipe was modified: its digest doesn't match")
    whole = _moved({**_LEAST, **record, "text": _text(record["text"]), "name": _text(record["name"])}, _text, _text)
    request_of({**whole, "kind": ImageKind.PTX.value, "arch": [ArchKind.VIRTUAL.value, 90, ""]})
    return str(digest)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, got {spell(value)}")
    return value


def _use(record: dict[str, Any], recipes: Mapping[str, object]) -> RecipeUse:
    names = ("use", "arch", "key", "outcome", "make_ms", "calls", "seen")
    recipe, arch, key, outcome, make_ms, calls, seen = (record[name] for name in names)
    if recipe not in recipes:
        raise FormatError(f"the recipe {spell(recipe)} has no recipe line before its use")
    is_good = (key is None or is_digest(key)) and outcome in _OUTCOMES and _DAY.fullmatch(seen)
    if not is_good or type(calls) is not int or not 1 <= calls < 1 << 63 or not 0 <= make_ms < math.inf:
        raise FormatError("the use of a recipe contains a value that is out of range")
    return RecipeUse(
        recipe, Arch.parse(arch), key, outcome, float(make_ms), calls, seen, str(record.get("elsewhere", ""))
    )
