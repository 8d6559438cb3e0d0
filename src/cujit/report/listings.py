"""Listings: the source, PTX and machine code of a report, and which lines of each belong together."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cujit.artifact.artifact import place_of
from cujit.artifact.reading import quoted_lines
from cujit.devices.cpu.run.source_map import Lines, SourceLine, file_name
from cujit.devices.watch import Sources, Text
from cujit.errors import CujitError
from cujit.formats.cubin import PTX_SECTION
from cujit.formats.ptx.parser import parse
from cujit.formats.ptx.places import as_written
from cujit.values import attributes, dataclass

_MOST_FILES = 32

_TARGET = re.compile(r"^\s*\.target\s+(\w+)", re.MULTILINE)
_PLACE = re.compile(r'\s*//## File "(?P<file>[^"]*)", line (?P<line>\d+)')
_CODE = re.compile(r"\s*(?P<address>/\*[0-9a-f]{4,}\*/)\s*(?P<code>.*)|\s*(?P<label>[.\w$]+:)$")


_NOTHING = re.compile(r"\*/ NOP ?;$")

_TILE_NAME = re.compile(r"^(#\w+) = (.*)$", re.MULTILINE)
_TILE_PLACE = re.compile(r'loc\("(?P<file>[^"]*)":(?P<line>\d+):\d+\)')
_TILE_CALLER = re.compile(r"callsite\(.* at (#\w+)\)")
_TILE_WITHIN = re.compile(r"di_loc<(#\w+) in")
_MOST_PLACES = 64
"""Calls that are inlined into each other, of which a place is followed."""


@dataclass(frozen=True)
class Listing:
    """A text by lines, starting at line ``first``. ``kind`` is ``source``, ``tileir``, ``ptx``, or ``sass``.

    ``sources`` contains the source line of each line, or None if it is unknown. ``ptx_lines`` contains the PTX line of
    each line, or 0 if it is unknown. Both are empty if no line has any.
    """

    kind: str
    name: str
    lines: tuple[str, ...]
    sources: tuple[SourceLine | None, ...] = ()
    ptx_lines: tuple[int, ...] = ()
    first: int = 1

    def to_json(self) -> dict[str, Any]:
        """Return the listing as plain values. A source line is the number of its file among ``files`` and its own
        number.
        """
        files = list(dict.fromkeys(source.file for source in self.sources if source is not None))
        return {
            **attributes(self, "kind name first"),
            "lines": list(self.lines),
            "files": files,
            "sources": [source and [files.index(source.file), source.line] for source in self.sources],
            "ptx_lines": list(self.ptx_lines),
        }


class Quoted:
    """The sources that a report may quote: texts by name, and existing source files.

    ``left_out`` are files that could not be read, or exceeded the maximum number.
    """

    def __init__(self, texts: Mapping[str, Text], places: Sequence[tuple[str, str]] = ()) -> None:
        """Store the texts that are not files, by their names in the compiler, and the places of an image."""
        self.places = places
        self._sources = Sources()
        for name, text in texts.items():
            self._sources.know(name, text)
        self.left_out: list[str] = []
        self._shown = {text.shown: text.text for text in texts.values()}

    def shown(self, line: SourceLine | None) -> SourceLine | None:
        """Call a line as profiles do."""
        known = None if line is None else self._sources.find(line.file)
        return line if line is None or known is None else SourceLine(known.shown, line.line)

    def listings(self, used: Iterable[SourceLine | None]) -> list[Listing]:
        """Return the listings of the used sources: known texts first, then files, each by number of uses.

        Unreadable files are omitted.
        """
        counts: dict[str, int] = {}
        for line in used:
            if line is not None and line.line:
                counts[line.file] = counts.get(line.file, 0) + 1
        ranked = sorted(counts, key=lambda file: (file not in self._shown, -counts[file], file))
        found = {file: self._read(file) for file in ranked[:_MOST_FILES]}
        self.left_out = [file for file in ranked if found.get(file) is None]
        return [Listing("source", file, tuple(text.splitlines())) for file, text in found.items() if text is not None]

    def _read(self, file: str) -> str | None:
        if file in self._shown:
            return self._shown[file]
        return "".join(quoted_lines(file)) or None


def ptx_listing(text: str, quoted: Quoted) -> Listing:
    """Return the listing of PTX with the source line of each instruction. Invalid PTX has no source lines."""
    lines, sources = text.rstrip("\0\n").splitlines(), []
    known, target = Lines(lambda: parse(text), text, quoted.places), _TARGET.search(text)
    with contextlib.suppress(CujitError):
        for number, line in enumerate(lines, 1):
            is_code = line.rstrip().endswith(";") and not line.lstrip().startswith((".", "//"))
            source = known.source_of(number) if is_code else None
            sources.append(quoted.shown(source) if source is not None and source.line else None)
    name = f"PTX {target[1]}" if target is not None else "PTX"
    return Listing("ptx", name, tuple(lines), tuple(sources) if any(sources) else ())


def tile_listing(text: str, quoted: Quoted) -> Listing:
    """Return the listing of Tile IR from tileirdisasm, with the source lines in its debug information."""
    names, lines = dict(_TILE_NAME.findall(text)), []
    sources: list[SourceLine | None] = []
    for line in text.splitlines():
        if not line.startswith(("#", "//")):
            code, _, place = line.partition(" loc(")
            lines.append(code)
            sources.append(_tile_source(names, place.rstrip(")"), quoted))
    return Listing("tileir", "Tile IR", tuple(lines), tuple(sources) if any(sources) else ())


def _tile_source(names: Mapping[str, str], place: str, quoted: Quoted) -> SourceLine | None:
    """Return the source line of a named place. For inlined code, return the line of its caller."""
    for _ in range(_MOST_PLACES):
        meaning = names.get(place, "")
        if found := _TILE_PLACE.fullmatch(meaning):
            file = place_of(file_name(as_written(found["file"])), quoted.places)
            return quoted.shown(SourceLine(file, int(found["line"])))
        within = _TILE_CALLER.search(meaning) or _TILE_WITHIN.search(meaning)
        if within is None:
            return None
        place = within[1]
    return None


def sass_listing(text: str, name: str, quoted: Quoted, ptx: Listing | None) -> Listing:
    """Return the listing of SASS from nvdisasm. ``ptx`` is the PTX that was assembled, if it is known."""
    lines: list[str] = []
    sources: list[SourceLine | None] = []
    ptx_lines: list[int] = []
    source: SourceLine | None = None
    ptx_line = 0
    for line in text.splitlines():
        place = _PLACE.match(line)
        if place is not None and place["file"].startswith(PTX_SECTION):
            ptx_line = int(place["line"]) if ptx is not None else 0
        elif place is not None:
            file = place_of(file_name(as_written(place["file"])), quoted.places)
            source = quoted.shown(SourceLine(file, int(place["line"])))
        elif (found := _CODE.match(line)) is not None and not line.startswith(".text."):
            is_code = found["label"] is None
            lines.append(f"{found['address']} {found['code'].strip()}" if is_code else found["label"])
            ptx_lines.append(ptx_line if is_code else 0)
            sources.append(source_behind(ptx, ptx_line) or source if is_code else None)
            if not is_code:
                source, ptx_line = None, 0
    kept = [k for k, is_padding in enumerate(_padding(lines)) if not is_padding]
    code, places = tuple(lines[k] for k in kept), tuple(sources[k] for k in kept)
    return Listing("sass", name, code, places, tuple(ptx_lines[k] for k in kept))


def _padding(lines: Sequence[str]) -> list[bool]:
    """Return for each line whether it fills the end of a function: a NOP that no code follows in the function."""
    found, is_end = [], True
    for line in reversed(lines):
        is_label = line.endswith(":")
        if not line.startswith(".L"):
            is_end = is_label or (is_end and _NOTHING.search(line) is not None)
        found.append(is_end and not is_label)
    return found[::-1]


def source_behind(ptx: Listing | None, line: int) -> SourceLine | None:
    """Return the source line of a PTX line, or None. For inlined code, it is the same line as in the profile."""
    within = ptx is not None and 0 < line <= len(ptx.sources)
    return ptx.sources[line - 1] if ptx is not None and within else None


def sources_of(listings: Sequence[Listing]) -> Iterable[SourceLine | None]:
    """Return every source line that a line of listings comes from."""
    return (source for listing in listings for source in listing.sources)
