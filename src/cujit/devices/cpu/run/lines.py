"""What the lines of a PTX text say, and which lines of source they come from."""

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
    from cujit.formats.ptx.syntax import Function, Location, Module


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

    def __init__(self, module: Callable[[], Module], text: str, places: Sequence[tuple[str, str]] = ()) -> None:
        """Take the text, what parses it when that is needed, and the places that its image has."""
        self._parse = module
        self._text = text
        self._places = places

    @cached_property
    def _module(self) -> Module:
        return self._parse()

    def text_of(self, line: int) -> str:
        """Give a line as it stands; "" where there is none."""
        lines = self._lines
        return lines[line - 1].strip() if 1 <= line <= len(lines) else ""

    def source_of(self, line: int) -> SourceLine | None:
        """Find the line of source that a line of PTX comes from: the last ``.loc`` before it in its function says."""
        starts, sources = self._table
        at = bisect.bisect_right(starts, line) - 1
        return sources[at] if at >= 0 else None

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
    def _table(self) -> tuple[list[int], list[SourceLine | None]]:
        from cujit.formats.ptx.syntax import Directive  # not for launches that go well

        directives = [item for item in self._module.items if isinstance(item, Directive) and item.name == "file"]
        named = {d.arguments[0]: file_name(d.arguments[1]) for d in directives if len(d.arguments) > 1}
        files = {number: place_of(name, self._places) for number, name in named.items()}
        starts: list[int] = []
        sources: list[SourceLine | None] = []
        for function in self._module.functions:
            for line, location in _marks(function):
                starts.append(line)
                known = location is not None and files.get(str(location.file))
                sources.append(SourceLine(known, location.source_line) if location is not None and known else None)
        order = sorted(range(len(starts)), key=lambda k: starts[k])
        return [starts[k] for k in order], [sources[k] for k in order]


_ESCAPE = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)


def file_name(quoted: str) -> str:
    """Read the name of a file as NVIDIA's tools write it: what is no ASCII in octal; what is no UTF-8 stays so.

    Source: measured with NVRTC 13.5.
    """
    written = quoted.removeprefix('"').removesuffix('"')
    data = _ESCAPE.sub(lambda m: bytes([int(m[1], 8) & 255]) if m[1].isdigit() else m[1], written.encode())
    try:
        return data.decode()
    except UnicodeDecodeError:
        return written


def _marks(function: Function) -> Iterator[tuple[int, Location | None]]:
    """The beginning of a function, where nothing is known, and its locations."""
    from cujit.formats.ptx.syntax import Location, flat  # start-up: what the cache knows of a module needs no parser

    yield function.line, None
    yield from ((each.line, each) for each in flat(function.body) if isinstance(each, Location))
