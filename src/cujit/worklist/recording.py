"""Recordings: the compile requests of this process, written immediately, for lists that other machines build.

A new request takes one or two lines, and its second, fourth, eighth … call another line. A killed process therefore
loses less than half of its counts. The other counts are kept in memory and written at the end.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from cujit.artifact import Artifact
from cujit.artifact.artifact import ArtifactOrigin
from cujit.artifact.reading import path_of
from cujit.artifact.writing import temporary_name
from cujit.compiler.keys.maker import Keyed, Uncacheable
from cujit.compiler.keys.recipe import recipe_of
from cujit.compiler.request import Request
from cujit.compiler.runner import LISTENERS
from cujit.errors import MEMORY, CacheWarning, CompileError, CujitError, warn
from cujit.forks import Lock, register_reset, single_flight_cache
from cujit.worklist.lists import HEADER, SUFFIX, RecipeUse, recipe_line, use_line
from cujit.worklist.places import Places, is_elsewhere, project_of


class _Known:
    """A recorded request: its line, its number of calls, and the number in the file."""

    __slots__ = ("count", "use", "written")

    def __init__(self, use: RecipeUse) -> None:
        self.use = use
        self.count = self.written = 1


class Recording:
    """The file of one process, created at its first request. ``path`` is None before.

    A forked child has its own file. A file error never fails a compile: one ``CacheWarning`` reports it, and recording
    stops.
    """

    def __init__(self, directory: Path, project: str | None) -> None:
        self.directory = directory
        self.path: Path | None = None
        self._project = project
        self._lock = Lock()
        self._known: dict[object, _Known] = {}
        self._recipes: set[str] = set()
        self._places: Places | None = None
        self._fd = -1
        self._is_over = False
        register_reset(self)

    def __enter__(self) -> Recording:
        LISTENERS.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        LISTENERS.remove(self)
        self.close()

    def on_compile(
        self,
        request: Request,
        keyed: Keyed | Uncacheable,
        result: Artifact | CujitError,
        toolkit: Callable[[], Sequence[str]],
    ) -> None:
        """Record a request, its key, and its outcome."""
        name = keyed.key.digest if isinstance(keyed, Keyed) else _named(request), isinstance(result, Artifact)
        with self._lock:
            known = self._known.get(name)
            if known is not None:
                known.count += 1
                if known.count & (known.count - 1) == 0:
                    self._count(known)
            elif not self._is_over:
                try:
                    self._known[name] = self._noted(request, keyed, result, toolkit)
                except OSError as e:
                    self._give_up(e)

    def close(self) -> None:
        """Write the counts, and end the file."""
        with self._lock:
            self.flush()
            if self._fd >= 0:
                fd, self._fd = self._fd, -1
                try:
                    os.close(fd)
                except OSError as e:  # what a server could not keep
                    self._give_up(e)
            self._is_over = True

    def flush(self) -> None:
        """Write the counts that the file lacks."""
        with self._lock:
            for known in self._known.values():
                if known.count > known.written:
                    self._count(known)

    def after_fork(self) -> None:
        """Start another file in a forked child, because the parent owns its file."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.close(self._fd)
        self._fd, self.path = -1, None
        self._known, self._recipes = {}, set()

    def _noted(
        self,
        request: Request,
        keyed: Keyed | Uncacheable,
        result: Artifact | CujitError,
        toolkit: Callable[[], Sequence[str]],
    ) -> _Known:
        """Write the new facts about a request.

        Raises:
            OSError: the file can't be written.
        """
        if self._places is None:
            self._places = Places(self._project or project_of(os.getcwd()), toolkit)
        recipe, line = recipe_line(request, self._places)
        known = result.provenance if isinstance(result, Artifact) else None
        use = RecipeUse(
            recipe,
            request.arch,
            keyed.key.digest if isinstance(keyed, Keyed) else None,
            _outcome(known, result),
            0.0 if known is None else known.make_ms,
            1,
            _today(),
            _elsewhere(request, keyed, self._places),
        )
        text = ("" if recipe in self._recipes else line) + use_line(use)
        if self._fd < 0:
            self._open()
            text = HEADER + text
        self._write(text)
        self._recipes.add(recipe)
        return _Known(use)

    def _count(self, known: _Known) -> None:
        if not self._is_over:
            try:
                self._write(use_line(known.use._replace(calls=known.count, seen=_today())))
                known.written = known.count
            except OSError as e:
                self._give_up(e)

    def _open(self) -> None:
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        self.path = self.directory / (temporary_name() + SUFFIX)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC  # in place: by lines
        self._fd = os.open(self.path, flags, 0o600)  # sources are in it

    def _write(self, text: str) -> None:
        data = text.encode("ascii")
        if (written := os.write(self._fd, data)) < len(data):
            os.write(self._fd, data[written:])  # says why

    def _give_up(self, error: OSError) -> None:
        self._is_over = True
        warn(f"cujit stopped recording: {error}", CacheWarning)


def _today() -> str:
    return time.strftime("%Y-%m-%d")


def _named(request: Request) -> bytes:
    """Return a name for a request without a key that contains none of its text."""
    return hashlib.sha256(repr(recipe_of(request)).encode("utf-8", "surrogatepass")).digest()


def _outcome(known: ArtifactOrigin | None, result: Artifact | CujitError) -> str:
    if known is None:
        return "failed" if isinstance(result, CompileError) else "missed"
    return "hit" if known.is_hit else "made"


def _elsewhere(request: Request, keyed: Keyed | Uncacheable, places: Places) -> str:
    """Return why another machine cannot make the same result of a request. ``""`` if it can, or if
    that is not known.
    """
    parts = keyed.manifest.parts if isinstance(keyed, Keyed) else ()
    if len(parts) < 2 and not request.source.include and "include" not in request.options:
        return ""  # no header, and no path: most are so
    outside = [path for path in request.include if is_elsewhere(places.name(path))]
    if outside:
        return f"headers of {os.path.basename(outside[0])}, which is in no package, toolkit or project"
    is_outside = request.source.path and is_elsewhere(places.name(request.source.path))
    for part in parts:
        if part.label.startswith(("include absolute:", "include working directory:")):
            return f"the header {part.label.partition(':')[2]} by its path on this machine"
        if is_outside and part.label.startswith("include source:"):
            return "headers beside the source, which is in no package, toolkit or project"
        if part.label.startswith("path of ") and not part.value.startswith(f"{MEMORY}/"):
            return "its result contains paths (lineinfo, __FILE__, assert)"
    return ""


def record_worklist(directory: str | os.PathLike[str], *, project: str | os.PathLike[str] | None = None) -> Recording:
    """Record the process's compile requests in a ``with`` block: ``with cujit.record_worklist("lists"): …``.

    The file contains sources, macros, and in-memory headers unchanged. Only the user who runs the process can read the
    file.

    Args:
        directory: directory for this process's file. To record a whole process, set ``CUJIT_RECORD`` instead.
        project: directory that cujit replaces with ``{project}`` in header names. Default: the nearest directory at or
            above the working directory that contains ``pyproject.toml``, ``setup.py``, or ``.git``.

    Raises:
        OptionError: an argument is not a path.

    Example::

        with cujit.record_worklist("recorded"):
            cujit.compile(CODE, names=["axpy<float>"], arch="sm_90")
    """
    root = None if project is None else os.path.abspath(path_of(project))
    return Recording(Path(os.path.abspath(path_of(directory))), root)


@single_flight_cache(8)
def recording_of(directory: str) -> Recording:
    """Return the recording of the process for the directory that ``CUJIT_RECORD`` names. It ends with the process."""
    made = record_worklist(os.path.expanduser(directory))
    atexit.register(made.flush)
    return made
