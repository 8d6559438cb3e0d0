"""The include closure: every file that NVRTC could open for a source, and every missing name before it.

The scan follows both branches of every condition. The closure therefore contains at least the files that a compile
opens (tests compare it with NVRTC's time trace), and usually more. Constructs that can't be followed are refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping

from cujit.compiler.includes.directives import Facts, Inclusion, Verb, read_calls, read_facts
from cujit.compiler.includes.files import Files, Listings, NotModelledError, SourceText
from cujit.compiler.includes.has_include import HasIncludeCalls, askers
from cujit.compiler.includes.macros import Macro, UnresolvedError, headers_named, read_macro, tested_headers
from cujit.compiler.includes.search import MEMORY, HeaderPlace, Search, settled
from cujit.values import dataclass, field

_MOST_FILES = 20_000


@dataclass(frozen=True, slots=True)
class Found:
    """A header: its place, its contents, and whether the compile could read it or only test for its existence."""

    place: HeaderPlace
    text: SourceText
    is_read: bool


@dataclass(frozen=True)
class Closure:
    """Files that a compile could read. ``found`` and ``absent`` are in the order of their places.

    ``unsettled`` are the places whose names lost a part ``a/..``. ``askers`` are macros that test for headers in every
    call, also in code.
    """

    found: tuple[Found, ...] = ()
    absent: tuple[HeaderPlace, ...] = ()
    unsettled: tuple[HeaderPlace, ...] = ()
    askers: tuple[str, ...] = ()

    def entries(self) -> Iterator[tuple[HeaderPlace, str]]:
        """Yield every header with its digest, or with ``there`` if only its existence is tested.

        Several names of one file are marked as one file, because ``#pragma once`` compares inode and device (measured).
        """
        names: dict[tuple[int, int], HeaderPlace] = {}
        for header in self.found:
            names.setdefault((header.text.stamp[3], header.text.stamp[4]), header.place)
        for header in self.found:
            first = names[header.text.stamp[3], header.text.stamp[4]]
            same = "" if first == header.place else f" = {first}"
            yield header.place, (header.text.digest if header.is_read else "there") + same


def scan(
    search: Search,
    primary: HeaderPlace,
    source: bytes,
    *,
    pre_include: Iterable[str] = (),
    define: Iterable[str] = (),
    is_old_dialect: bool = False,
    files: Files,
) -> Closure:
    """Follow every include from a source and from ``--pre-include``.

    ``define`` contains the macros of the command line as ``NAME VALUE``. ``is_old_dialect`` means C++14 or earlier.

    Raises:
        NotModelledError: the inputs of the compile can't be determined. The message contains the reason.
    """
    walk = _Walk(search, files, is_old_dialect)
    start = HeaderPlace("pre-include", "")
    defines = "".join(f"#define {text}\n" for text in define)
    walk.take_text(HeaderPlace("command line", "the command line"), defines.encode("utf-8", "surrogateescape"))
    for name in pre_include:
        walk.follow(Inclusion(Verb.INCLUDE, '"', name), start)
    walk.take_text(primary, source)
    return walk.closure()


@dataclass
class _Walk:
    """A scan in progress."""

    search: Search
    files: Files
    is_old_dialect: bool
    _found: dict[HeaderPlace, Found] = field(default_factory=dict)
    _absent: dict[HeaderPlace, None] = field(default_factory=dict)
    _unsettled: set[HeaderPlace] = field(default_factory=set)
    _taken: set[HeaderPlace] = field(default_factory=set)
    _looked: set[tuple[Inclusion, tuple[str, ...]]] = field(default_factory=set)
    _waiting: list[tuple[HeaderPlace, Facts]] = field(default_factory=list)
    _computed: dict[tuple[Inclusion, HeaderPlace], None] = field(default_factory=dict)
    _macros: dict[str, set[Macro]] = field(default_factory=dict)
    _texts: list[tuple[str, ...]] = field(default_factory=list)
    _known_texts: int = 0
    _given: dict[HeaderPlace, bytes] = field(default_factory=dict)
    _seen: dict[str, SourceText | None] = field(default_factory=dict)
    _askers: tuple[str, ...] = ()
    _listings: Listings = field(init=False)

    def __post_init__(self) -> None:
        self._listings = Listings(path for _, path in self.search.directories)

    def closure(self) -> Closure:
        """Process all queued texts, and return the closure."""
        self._drain()
        known: tuple[int, int] | None = None
        while known != (len(self._found), len(self._taken)):
            known = len(self._found), len(self._taken)
            self._find_calls()
            if self._computed:
                self._expand_computed()
                self._drain()
        by_place = sorted(self._found.values(), key=lambda found: str(found.place))
        unsettled = tuple(sorted(self._unsettled, key=str))
        return Closure(tuple(by_place), tuple(sorted(self._absent, key=str)), unsettled, self._askers)

    def take(self, place: HeaderPlace, facts: Facts) -> None:
        """Queue a text once.

        Raises:
            NotModelledError: it contains an unsupported construct.
        """
        if place in self._taken:
            return
        self._taken.add(place)
        refusal = facts.refusal or (facts.old_refusal if self.is_old_dialect else "")
        if refusal:
            raise NotModelledError(f"{place.name} has {refusal}")
        if len(self._taken) > _MOST_FILES:
            raise NotModelledError(f"the source includes more than {_MOST_FILES} headers")
        self._texts.append(facts.defines)
        if facts.directives:
            self._waiting.append((place, facts))

    def take_text(self, place: HeaderPlace, data: bytes) -> None:
        """Queue an in-memory text once, and keep its bytes.

        Raises:
            NotModelledError: it contains an unsupported construct.
        """
        if place not in self._given:
            self._given[place] = data
            self.take(place, read_facts(data))

    def follow(self, directive: Inclusion, includer: HeaderPlace) -> None:
        """Find the header of one directive, and queue it."""
        if not directive.form:
            self._computed[directive, includer] = None
            return
        includer_place = (includer.root, includer.path.rpartition("/")[0]) if directive.form == '"' else ()
        looked = (directive, includer_place)
        if looked in self._looked:
            return
        self._looked.add(looked)
        name = directive.name if directive.name.isascii() else os.fsdecode(directive.name.encode("latin-1"))
        for place in self.search.candidates(directive.form, name, includer):
            if self._is_there(place, directive.verb) and directive.verb is not Verb.NEXT:
                return

    def _is_there(self, place: HeaderPlace, verb: Verb) -> bool:
        if place.root == MEMORY:
            self.take_text(place, self.search.memory[place.name])
            return True
        text = self._text(place.path)
        if text is None:
            self._absent[place] = None
            return False
        spelled, place = place, settled(place)
        if place != spelled:
            self._unsettled.add(spelled)
        is_read = verb is not Verb.PROBE
        before = self._found.get(place)
        if before is None or (is_read and not before.is_read):
            self._found[place] = Found(place, text, is_read)
        if is_read:
            self.take(place, text.facts)
        return True

    def _text(self, path: str) -> SourceText | None:
        if path not in self._seen:
            self._seen[path] = None if self._listings.lacks(path) else self.files.read(path)
        return self._seen[path]

    def _drain(self) -> None:
        while self._waiting:
            place, facts = self._waiting.pop()
            for directive in facts.directives:
                self.follow(directive, place)

    def _find_calls(self) -> None:
        """Queue the arguments of all calls of macros that test for headers."""
        try:
            names = askers(text for texts in self._texts for text in texts)
        except ValueError as e:
            raise NotModelledError(f"in a macro, {e}") from None
        self._askers = tuple(sorted(names))
        if not names:
            return
        for place in self._taken:
            calls = self._calls(place, names)
            if calls.refusal:
                raise NotModelledError(f"{place.name} has {calls.refusal}")
            self._computed.update(((Inclusion(Verb.CALL, "", call), place), None) for call in calls.calls)

    def _calls(self, place: HeaderPlace, names: Mapping[str, bool]) -> HasIncludeCalls:
        if place in self._given:
            return read_calls(self._given[place], names)
        return self.files.calls(place.path, self._found[place].text, names)

    def _expand_computed(self) -> None:
        for texts in self._texts[self._known_texts :]:
            for text in texts:
                if (read := read_macro(text)) is not None:
                    self._macros.setdefault(read[0], set()).add(read[1])
        self._known_texts = len(self._texts)
        macros = {name: frozenset(found) for name, found in self._macros.items()}
        for directive, includer in list(self._computed):
            is_call = directive.verb is Verb.CALL
            try:
                named = (tested_headers if is_call else headers_named)(directive.name, macros)
            except UnresolvedError as e:
                raise NotModelledError(
                    f"the directive #{directive.verb.value} {directive.name} in {includer.name}: {e}"
                ) from None
            for form, name in named:
                self.follow(Inclusion(Verb.PROBE if is_call else directive.verb, form, name), includer)
