"""Tasks: compiles as plain data for any machine with the same toolkit. Headers are sent by content.

A request is sent as its recipe. If the recipe names files of the driver's machine, their content is sent too. The
worker writes this content to a separate directory. Keys contain no paths, so the worker computes the same key. A
request is sent without files if its result contains paths. Then only a machine with the same files accepts it.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cujit.cache.key import Part
from cujit.compiler.includes.closure import Found
from cujit.compiler.jobs import CompileJob
from cujit.compiler.keys.recipe import recipe_of, request_of, write_recipe
from cujit.compiler.request import Request
from cujit.values import NamedTuple

_BOUND = ("path of ", "include absolute:", "include working directory:")
"""How the labels of parts begin that a machine with other paths has otherwise."""


class Tree(NamedTuple):
    """Files of the driver's machine. ``places`` maps their paths to their places in the tree.

    ``files`` maps places to contents, and ``links`` contains additional names of the same files.
    """

    places: dict[str, str]
    files: dict[str, bytes]
    links: dict[str, str]

    def lay_out(self, directory: Path) -> None:
        """Write it into an empty directory.

        Raises:
            OSError: it cannot be written.
        """
        for place in self.places.values():
            (directory / place).parent.mkdir(parents=True, exist_ok=True)
        for name, text in self.files.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_bytes(text)  # in place: a directory of its own
        for name, first in self.links.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            os.link(directory / first, directory / name)  # in place: a directory of its own


class Piece(NamedTuple):
    """One compile: the digest of its key in the driver, its request as a recipe, and its files.

    ``is_shared`` is whether it may be built from code that several architectures share.
    """

    digest: str
    recipe: dict[str, Any]
    tree: Tree | None = None
    is_shared: bool = False


class WorkChunk(NamedTuple):
    """A task: some compiles, the cache root for their images, and the limits of each compile.

    ``deadline_s`` is in seconds, and ``memory_mib`` is the address space of the process that compiles. ``compiling`` is
    a value of ``CUJIT_COMPILE``. ``join`` is how many instances of one source are compiled together. ``share`` is the
    kind of code that their architectures share.
    """

    pieces: tuple[Piece, ...]
    root: str
    cap_bytes: int
    gid: int | None
    compiling: str
    deadline_s: float | None
    memory_mib: int | None
    join: int = 1
    share: str = ""


class PieceResult(NamedTuple):
    """Result of a piece.

    ``outcome`` is ``made``, ``hit``, ``failed``, ``quarantined``, ``not kept``, or ``refused``. If it is ``refused``,
    ``parts`` are the parts of the worker's key. ``is_shared`` is whether the image was built from code that
    architectures share. ``why_alone`` is the reason if it was not.
    """

    outcome: str
    reason: str = ""
    make_ms: float = 0.0
    size_bytes: int = 0
    signal: str = ""
    log: str = ""
    peak_bytes: int = 0
    parts: tuple[Part, ...] = ()
    is_shared: bool = False
    why_alone: str = ""


class ChunkResult(NamedTuple):
    """Result of a task: the results of its pieces in order, and the CPU seconds that it used on ``host``."""

    ended: tuple[PieceResult, ...]
    cpu_s: float
    host: str


class MovedJob(CompileJob):
    """A compile with files at other paths than in the ``original`` request. Its recipe contains the original paths."""

    def __init__(self, request: Request, original: Request) -> None:
        super().__init__(request)
        self._original = original

    def recipe(self) -> bytes:
        """Return the recipe of the driver's original request."""
        return write_recipe(self._original)


def piece_of(request: Request, digest: str, parts: Sequence[Part], headers: Sequence[Found]) -> Piece:
    """Write a request as plain data; ``parts`` are of its key, ``headers`` the user's that it could read.

    Raises:
        OSError: a header cannot be read.
    """
    recipe = recipe_of(request)
    if not (request.source.path or request.include) or any(part.label.startswith(_BOUND) for part in parts):
        return Piece(digest, recipe)
    directories = list(dict.fromkeys(map(os.path.abspath, request.include)))
    source = [request.source.path] * bool(request.source.path)
    paths = [found.place.path for found in headers]
    if any(os.path.normpath(path) != path for path in (*directories, *source, *paths)):
        return Piece(digest, recipe)
    common = os.path.commonpath([*directories, *map(os.path.dirname, (*source, *paths))])
    places = {path: posixpath.join("tree", os.path.relpath(path, common)) for path in (*directories, *source)}
    files: dict[str, bytes] = {}
    links: dict[str, str] = {}
    names: dict[tuple[int, int], str] = {}
    for found in headers:
        name = posixpath.join("tree", os.path.relpath(found.place.path, common))
        first = names.setdefault(found.text.stamp[3:], name)
        if first == name:
            files[name] = Path(found.place.path).read_bytes()
        else:
            links[name] = first
    return Piece(digest, recipe, Tree(places, files, links))


def job_of(piece: Piece, directory: Path) -> CompileJob:
    """Return the job of a piece, and write its files to an empty directory.

    Raises:
        FormatError: the piece is invalid.
        OSError: the files can't be written.
    """
    original = request_of(piece.recipe)
    if piece.tree is None:
        return CompileJob(original)
    piece.tree.lay_out(directory)
    places = {path: str(directory / place) for path, place in piece.tree.places.items()}
    for path in original.include:
        os.makedirs(places[os.path.abspath(path)], exist_ok=True)
    recipe = {**piece.recipe, "include": [places[os.path.abspath(path)] for path in piece.recipe["include"]]}
    recipe["path"] = places.get(piece.recipe["path"], "")
    if include := recipe["options"].get("include"):
        recipe["options"] = {**recipe["options"], "include": [places[path] for path in include]}
    return MovedJob(request_of(recipe), original)
