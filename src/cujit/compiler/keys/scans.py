"""The parts of a compile that determine where headers are searched, and the resulting key parts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

from cujit.cache.key import Part, make_key
from cujit.compiler.inputs.source import Source
from cujit.compiler.keys.frame import has_includes, outline_of
from cujit.compiler.options.arguments import macros, wants_working_directory
from cujit.compiler.recorded import NAME_FILES, RecordedNames, headers_may_hold_paths, may_hold_paths
from cujit.compiler.request import Request
from cujit.values import NamedTuple
from cujit.values.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from cujit.compiler.includes.closure import Closure
    from cujit.compiler.includes.search import HeaderPlace, Search

_OLD_DIALECTS = tuple(f"std=c++{year}" for year in ("98", "03", "11", "14"))

RECORDED = "recorded as"
"""The part of a key that says how the result names its source where names stand for directories."""

_SEARCH = "1"
"""Another number where a scan finds something else in the same headers."""


class Scan(NamedTuple):
    """What of a request decides where headers are looked for and what they are looked for by.

    ``may_hold_paths``: the result may, whatever is in headers; ``names`` then stand for directories in it, if they can.
    """

    request: Request
    source: Source
    program: str
    headers: tuple[tuple[str, str], ...]
    include: tuple[str, ...]
    pre_include: tuple[str, ...]
    arguments: tuple[str, ...]
    working: str
    may_hold_paths: bool = False
    names: RecordedNames | None = None

    @classmethod
    def of(cls, request: Request, arguments: Sequence[str]) -> Scan:
        """Create the scan of a request with its arguments in the current working directory."""
        source, working = request.source, os.getcwd()
        before = request.options.get("pre_include") or ()
        assert isinstance(before, tuple)
        include = tuple(os.path.join(working, directory) for directory in request.include)
        headers = tuple(source.compiler_headers())
        return cls(
            request, source, source.program_name, headers, include, tuple(map(str, before)), tuple(arguments), working
        )

    @property
    def has_includes(self) -> bool:
        """Whether any header could be read. Texts without the word ``include`` read none."""
        texts = (self.source.text, *(text for _, text in self.headers), *self.arguments)
        return bool(self.pre_include) or any(map(has_includes, texts))

    def name(self, toolkit: Sequence[str], outline: str | None = None) -> str:
        """Name the manifest: a hash over everything that the scan is made of, paths included.

        With an ``outline`` (``frame.outline_of``) the manifest is that of all sources that have the same.
        """
        where = self.program, self.working, toolkit, self.include
        decides = repr((*where, self.arguments, self.headers, self._shows))
        text = Part.text("source", self.source.text) if outline is None else Part.text("outline", outline)
        return make_key("includes", [text, Part.text("decides", decides)]).digest

    @property
    def outline(self) -> str | None:
        """The part of the source that determines its headers, or None if any part may."""
        return None if self.is_old_dialect else outline_of(self.source.text)

    @property
    def _shows(self) -> str:
        """Return what the result contains of directories' paths or names, whatever the headers contain."""
        if self.names is None:
            return "paths" if self.may_hold_paths else ""
        return "names" if self.is_left(self.names) else "names and the working directory"

    def is_left(self, names: RecordedNames) -> bool:
        """Return whether a result with names contains nothing of the working directory."""
        return not (self.shows_working_directory or self.headers) or names.leaves

    def named(self, toolkit: Sequence[str]) -> Scan:
        """Return the same scan with the names that directories have in the result."""
        if not may_hold_paths(self.request):
            return self
        return self._replace(may_hold_paths=True, names=RecordedNames.of(self.request, toolkit))

    def shipped_name(self, toolkit: Sequence[str]) -> str:
        """Return the name of the search in packs: a hash over the inputs of the scan except files and paths."""
        parts = (
            self.headers,
            self.pre_include,
            tuple(macros(self.arguments)),
            self.is_old_dialect,
            self.searches_includer,
        )
        decides = repr((os.path.basename(self.program), len(self.include), len(toolkit), *parts))
        return make_key(
            "search",
            [Part.text("schema", _SEARCH), Part.text("source", self.source.text), Part.text("decides", decides)],
        ).digest

    @property
    def is_old_dialect(self) -> bool:
        """Whether it is C++14 or earlier."""
        return any(a.lstrip("-") in _OLD_DIALECTS for a in self.arguments)

    @property
    def shows_working_directory(self) -> bool:
        """Whether the result names the working directory even where every header is a file."""
        return self.request.kind in NAME_FILES or wants_working_directory(self.arguments)

    @property
    def searches_includer(self) -> bool:
        """Whether headers are searched next to the source."""
        return not any(a.lstrip("-") == "no-source-include" for a in self.arguments)

    def directories(self, toolkit: Sequence[str]) -> dict[str, str]:
        """Return the include directories in order, under names that are equal on all machines."""
        labelled = {f"include[{i}]": path for i, path in enumerate(self.include)}
        return labelled | {f"toolkit[{i}]": path for i, path in enumerate(toolkit)}

    def bases(self, toolkit: Sequence[str]) -> dict[str, str]:
        """Return every directory that the place of a header may start from."""
        own = {"source": os.path.dirname(self.program), "working directory": self.working}
        return own | self.directories(toolkit)

    def search(self, toolkit: Sequence[str]) -> Search:
        """Return what the scan searches."""
        # Start-up: a hit whose headers are as they were searches none.
        from cujit.compiler.includes.search import Search

        memory = {name: text.encode() for name, text in self.headers}
        return Search(memory, tuple(self.directories(toolkit).items()), self.working, self.searches_includer)


def found_parts(closure: Closure) -> Iterator[Part]:
    """Return the closure as key parts: each of the user's headers, and one listing per directory of toolkit headers."""
    listings: dict[str, list[str]] = {}
    for found, (place, value) in zip(closure.found, closure.entries(), strict=True):
        if place.root.startswith("toolkit"):
            listings.setdefault(place.root, []).append(f"{place.name} {value}")
        else:
            yield Part.text(f"include {place}", f"{value} ({found.text.stamp[0]} bytes)" if found.is_read else value)
    for root, lines in sorted(listings.items()):
        yield Part.content(f"include {root}", "\n".join(lines))
    yield absent_part(closure.absent)


def absent_part(absent: Iterable[HeaderPlace]) -> Part:
    """Write the names that must stay absent."""
    return Part.content("absent", "\n".join(map(str, absent)))


def says_paths(closure: Closure) -> bool:
    """Return whether a header of the user may add paths to the result."""
    return any(f.text.facts.says_where for f in closure.found if f.is_read and not f.place.root.startswith("toolkit"))


def path_parts(work: Scan, roots: Mapping[str, str | None], toolkit: Sequence[str], *, says: bool) -> Iterator[Part]:
    """Return the paths that the result may contain: with debug information or line numbers, and through ``__FILE__``.

    ``roots`` are the header roots with their directories. ``says`` is whether a header may add paths to the result.
    """
    if not (says or work.may_hold_paths):
        return
    names = work.names
    if not work.may_hold_paths and headers_may_hold_paths(work.request):
        names = RecordedNames.of(work.request, toolkit)
    if names is not None:
        yield Part.text(RECORDED, names.recorded_program_name)
        if not work.is_left(names):
            yield Part.text("path of working directory", work.working)
        return
    yield Part.text("path of source", work.program)
    yield from (Part.text(f"path of {root}", path) for root, path in roots.items() if path is not None)
    if work.shows_working_directory or work.headers or any(not root.startswith("toolkit") for root in roots):
        yield Part.text("path of working directory", work.working)
