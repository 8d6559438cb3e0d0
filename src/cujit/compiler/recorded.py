"""Names that replace directories of this machine in NVRTC's output."""

from __future__ import annotations

import os
from collections.abc import Sequence

from cujit.artifact import ImageKind
from cujit.compiler.includes.location import says_where
from cujit.compiler.options.arguments import macros, unmodelled, wants_paths
from cujit.compiler.options.values import Tool
from cujit.compiler.request import Request
from cujit.toolchain.aliases import SOURCE, WORKING, Named, aliases, numbered
from cujit.values import NamedTuple, later
from cujit.values.typed import TYPE_CHECKING

if TYPE_CHECKING:
    import re

    from cujit.compiler.includes.files import SourceText
else:
    re = later("re")  # start-up: few results hold paths

_COMPUTED = r"(?m)^[ \t]*#[ \t]*include[ \t]+[^\s<]"
_BEFORE = "--pre-include="
_INCLUDE = "--include-path="


class RecordedNames(NamedTuple):
    """The directories that a compile names by aliases."""

    directories: tuple[Named, ...]
    request: Request

    @classmethod
    def of(cls, request: Request, toolkit: Sequence[str]) -> RecordedNames | None:
        """Return the names for the directories of a compile, or None if the process can't have the numbers.

        Args:
            request: the request to compile.
            toolkit: the directories of the toolkit's headers.
        """
        found = _directories(request, toolkit)
        if found is None or not aliases().are_ours([each.number for each in found]):
            return None
        return cls(tuple(found), request)

    @property
    def leaves(self) -> bool:
        """Whether NVRTC works in ``/``: the working directory isn't searched, and a thread may leave it."""
        from cujit.toolchain.process_state import may_leave_working_directory  # start-up: few results name it

        texts = (text for _, text in self.request.source.headers)
        return not any(re.search(_COMPUTED, text) for text in texts) and may_leave_working_directory()

    @property
    def program_name(self) -> str:
        """The name of the program that NVRTC receives."""
        source = self.request.source
        return f"{Named(SOURCE, '').alias}/{os.path.basename(source.path)}" if source.path else source.program_name

    @property
    def recorded_program_name(self) -> str:
        """The name of the program as the image has it."""
        source = self.request.source
        return f"{Named(SOURCE, '').recorded}/{os.path.basename(source.path)}" if source.path else source.program_name

    def arguments(self, arguments: Sequence[str]) -> list[str]:
        """Return arguments with aliases for the directories, in their order."""
        searched = iter([each.alias for each in self.directories if each.number not in (SOURCE, WORKING)])
        return [_INCLUDE + next(searched) if a.startswith(_INCLUDE) else self._before(a) for a in arguments]

    def _before(self, argument: str) -> str:
        name = argument.removeprefix(_BEFORE)
        working = [each for each in self.directories if each.number == WORKING]
        is_there = name != argument and bool(working) and os.path.exists(os.path.join(working[0].path, name))
        return f"{_BEFORE}{working[0].alias}/{name}" if is_there else argument

    def as_here(self, text: str) -> str:
        """Return NVRTC's output with the paths of this machine."""
        for each in self.directories:
            text = text.replace(f"{each.alias}/", f"{each.path}/")
        return text


NAME_FILES = (ImageKind.LTOIR, ImageKind.OPTIXIR, ImageKind.TILEIR)
"""The kinds of images that name files and the working directory even without debug information."""


def may_hold_paths(request: Request) -> bool:
    """Return whether NVRTC's output may contain file paths, and every argument of the request is understood."""
    if request.source.language != "cuda":
        return False
    arguments = request.arguments()
    texts = (request.source.text, *arguments, *(text for _, text in request.source.headers))
    may = request.kind in NAME_FILES or wants_paths(arguments) or any(map(says_where, texts))
    return may and _is_understood(request)


def _is_understood(request: Request) -> bool:
    return not unmodelled(request.arguments(), Tool.NVRTC, request.options.extra)


def reads_own_files(request: Request) -> bool:
    """Return whether a compile may read the user's files."""
    return request.source.language == "cuda" and bool(request.source.path or request.include)


def headers_may_hold_paths(request: Request) -> bool:
    """Return whether headers among the user's files put paths into the result."""
    return any(text.facts.says_where for text in own_headers(request).values())


def own_headers(request: Request) -> dict[str, SourceText]:
    """Return the user's headers by path, or none if they can't be determined. Toolkit headers are excluded."""
    if not reads_own_files(request) or not _is_understood(request):
        return {}
    # Start-up: for work that no cache has.
    from cujit.compiler.includes.closure import scan
    from cujit.compiler.includes.files import Files, NotModelledError
    from cujit.compiler.includes.search import HeaderPlace, Search

    source = request.source
    memory = {name: text.encode() for name, text in source.compiler_headers()}
    include = tuple((f"include[{index}]", os.path.abspath(path)) for index, path in enumerate(request.include))
    program = HeaderPlace("source", os.path.basename(source.program_name), source.program_name)
    search = Search(memory, include, os.getcwd())
    try:
        found = scan(search, program, source.text.encode(), define=macros(request.arguments()), files=Files()).found
    except NotModelledError:
        return {}
    return {header.place.path: header.text for header in found if header.is_read}


def numbers_of(request: Request, toolkit: Sequence[str]) -> tuple[int, ...]:
    """List the numbers of the directories of a compile."""
    return tuple(each.number for each in _directories(request, toolkit) or ())


def places_of(request: Request) -> tuple[tuple[str, str], ...]:
    """Return the names that replace the user's directories in the result of a request, with their local paths."""
    if not reads_own_files(request):
        return ()
    return tuple((each.recorded, each.path) for each in _directories(request, ()) or ())


def _directories(request: Request, toolkit: Sequence[str]) -> list[Named] | None:
    """Number the directories that a compile searches, or return None if they are too many."""
    found = numbered([os.path.abspath(path) for path in request.include], toolkit)
    before = request.options.get("pre_include") or ()
    assert isinstance(before, tuple)
    if found is None:
        return None
    source = os.path.dirname(request.source.path)
    own = [Named(SOURCE, source)] if source else []
    looks = any(not os.path.isabs(str(name)) for name in before)
    return [*own, *([Named(WORKING, os.getcwd())] if looks else []), *found]
