"""The text of PTX lines, and their source lines."""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from cujit.artifact.artifact import place_of
from cujit.errors import MEMORY
from cujit.forks import cached_property
from cujit.values import NamedTuple, dataclass

if TYPE_CHECKING:
    from cujit.formats.ptx.syntax import Function, Location, PtxModule


class SourceLine(NamedTuple):
    """A line of a source file, counted from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file.removeprefix(f'{MEMORY}/')}:{self.line}"


@dataclass(frozen=True)
class SourceFunction:
    """A kernel or function with a body: its lowered name, and the line of source where it begins, if known."""

    name: str
    begins: SourceLine | None


class Lines:
    """The lines of one PTX text, by number from 1.

    Source lines are known where the PTX has ``.loc``: compile with ``lineinfo=True``.
    """

    def __init__(self, module: Callable[[], PtxModule], text: str, places: Sequence[tuple[str, str]] = ()) -> None:
        """Store the text, a function that parses the text on first need, and the source places that
        its image contains.
        """
        self._parse = module
        self._text = text
        self._places = places

    @cached_property
    def _module(self) -> PtxModule:
        return self._parse()

    def text_of(self, line: int) -> str:
        """Return a line of the text without surrounding whitespace, or ``""`` if there is no such line."""
        lines = self._lines
        return lines[line - 1].strip() if 1 <= line <= len(lines) else ""

    def source_of(self, line: int) -> SourceLine | None:
        """Return the source line of a line of PTX, or None if it is unknown. The last ``.loc`` before the line in its
        function determines the source line.
        """
        return next(iter(self.chain_of(line)), None)

    def chain_of(self, line: int) -> tuple[SourceLine, ...]:
        """Return the source line of a line of PTX, and the calls through which the line was inlined, innermost first.

        The last call is in the kernel, or in a function that was not inlined.
        """
        starts, chains = self._chains
        at = bisect.bisect_right(starts, line) - 1
        return chains[at] if at >= 0 else ()

    def origin_of(self, line: int) -> str:
        """Write the chain of a line: ``h.cuh:3, inlined at g.cuh:4, inlined at k.cu:6``; "" if it is not known."""
        return ", inlined at ".join(map(str, self.chain_of(line)))

    def function_of(self, line: int) -> SourceFunction | None:
        """Find the function of the PTX that a line of it is in."""
        starts, functions = self._functions
        at = bisect.bisect_right(starts, line) - 1
        return functions[at] if at >= 0 else None

    def begin_of(self, function: str) -> int:
        """Find the line of the PTX where a kernel or function begins, by its lowered name; 0 if it has no body."""
        return next((f.line for f in self._module.functions if f.name == function and f.body is not None), 0)

    @cached_property
    def _functions(self) -> tuple[list[int], list[SourceFunction]]:
        bodies = sorted((f for f in self._module.functions if f.body is not None), key=lambda f: f.line)
        firsts = [next((line for line, at in _marks(f) if at is not None and at.source_line), 0) for f in bodies]
        begins = [self.source_of(first) if first else None for first in firsts]
        found = [SourceFunction(f.name, begin) for f, begin in zip(bodies, begins, strict=True)]
        return [f.line for f in bodies], found

    @cached_property
    def _lines(self) -> list[str]:
        return self._text.splitlines()

    @cached_property
    def _files(self) -> dict[int, str]:
        """Return the name of each file by its number."""
        from cujit.formats.ptx.syntax import Directive  # not for launches that go well

        directives = [item for item in self._module.items if isinstance(item, Directive) and item.name == "file"]
        named = {d.arguments[0]: file_name(d.arguments[1]) for d in directives if len(d.arguments) > 1}
        return {int(number): place_of(name, self._places) for number, name in named.items()}

    @cached_property
    def _chains(self) -> tuple[list[int], list[tuple[SourceLine, ...]]]:
        """Return the PTX lines where chains begin, and the chains.

        The location of inlined code includes its call site. The last ``.loc`` of the call site includes the next call
        site, if any. Source: PTX ISA 9.1, ".loc".
        """
        found: list[tuple[int, tuple[SourceLine, ...]]] = []
        for function in self._module.functions:
            last: dict[tuple[int, ...], tuple[SourceLine, ...]] = {}
            for line, location in _marks(function):
                chain: tuple[SourceLine, ...] = ()
                if location is not None and location.file in self._files:
                    at = _inlined_at(location)
                    own = SourceLine(self._files[location.file], location.source_line)
                    chain = (own, *(last.get(at, self._alone(at)) if at else ()))
                    last[location.file, location.source_line, location.column] = chain
                found.append((line, chain))
        found.sort(key=lambda each: each[0])
        return [line for line, _ in found], [chain for _, chain in found]

    def _alone(self, place: tuple[int, ...]) -> tuple[SourceLine, ...]:
        return (SourceLine(self._files[place[0]], place[1]),) if place[0] in self._files else ()


def _inlined_at(location: Location) -> tuple[int, ...]:
    """Return the file, line, and column where the code of a location was inlined, or an empty tuple if it was not
    inlined.
    """
    _, _, place = location.rest.partition("inlined_at ")
    return tuple(map(int, place.split()))


_ESCAPE = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)


def file_name(quoted: str) -> str:
    """Return a file name that NVIDIA's tools wrote, with its octal escapes decoded. A name that isn't UTF-8 keeps its
    escapes.

    Source: measured with NVRTC 13.5.
    """
    written = quoted.removeprefix('"').removesuffix('"')
    data = _ESCAPE.sub(lambda m: bytes([int(m[1], 8) & 255]) if m[1].isdigit() else m[1], written.encode())
    try:
        return data.decode()
    except UnicodeDecodeError:
        return written


def _marks(function: Function) -> Iterator[tuple[int, Location | None]]:
    """Yield the first line of a function with None, and then the line of each location with the location."""
    from cujit.formats.ptx.syntax import Location, flat  # start-up: what the cache knows of a module needs no parser

    yield function.line, None
    yield from ((each.line, each) for each in flat(function.body) if isinstance(each, Location))
