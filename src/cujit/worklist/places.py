"""Places: where headers lie, named so that another machine finds them: by package, toolkit or project.

``{package:mylib}/include`` is in the directory of that import package, ``{toolkit}/include`` in the toolkit that the
compiler belongs to, ``{project}/src`` in the project: the directory above which ``pyproject.toml`` or ``.git`` lies.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import posixpath
import re
import sys
from collections.abc import Callable, Iterator, Sequence

from cujit.errors import ToolchainNotFoundError

_ELSEWHERE = "{elsewhere}/"
_NAMED = re.compile(r"\{(?:(project|toolkit)|package:([^{}/]+))\}(?:/(.*))?", re.DOTALL)
_INSTALLED = ("site-packages", "dist-packages")
_MARKS = ("pyproject.toml", "setup.py", ".git")


def project_of(directory: str) -> str | None:
    """Return the project of a directory: the nearest parent with a project file, otherwise the directory itself unless
    ``/``.
    """
    above = directory
    while not any(os.path.lexists(os.path.join(above, mark)) for mark in _MARKS):
        parent = os.path.dirname(above)
        if parent == above:
            return directory if directory != parent else None
        above = parent
    return above


def is_elsewhere(named: str) -> bool:
    """Return whether a name refers to a place that is only on the recording machine."""
    return named.startswith(_ELSEWHERE)


class Places:
    """Names for paths on this machine, and paths for names. ``toolkit`` returns the toolkit's include directories."""

    def __init__(self, project: str | None, toolkit: Callable[[], Sequence[str]]) -> None:
        self.project = project
        self._toolkit = toolkit
        self._names: dict[str, str] = {}

    def name(self, path: str) -> str:
        """Return the name of an absolute path. Elsewhere, only its last part is kept, which reveals no
        home directory.
        """
        known = self._names.get(path)
        if known is None:
            found = (name for spelled in dict.fromkeys((path, os.path.realpath(path))) for name in self._forms(spelled))
            known = self._names[path] = next(found, _ELSEWHERE + os.path.basename(path))
        return known

    def path(self, name: str) -> str | None:
        """Return the path of a name on this machine, which may not exist, or None if its place is unknown."""
        match = _NAMED.fullmatch(name)
        rest = match and posixpath.normpath(match[3] or ".")
        if match is None or rest is None or rest.startswith(("../", "/")) or rest == "..":
            return None
        roots = list(self._roots(match[1], match[2]))
        paths = [os.path.normpath(os.path.join(root, rest)) for root in roots]
        return next(filter(os.path.lexists, paths), paths[0] if paths else None)

    def _forms(self, path: str) -> Iterator[str]:
        for home in self._homes():
            if (rest := _below(f"{home}/include", path)) is not None:
                yield f"{{toolkit}}/include/{rest}".rstrip("/")
        yield from self._packages(path, [entry for entry in sys.path if os.path.basename(entry) in _INSTALLED])
        if self.project is not None and (rest := _below(self.project, path)) is not None:
            yield f"{{project}}/{rest}" if rest else "{project}"
        yield from self._packages(path, sys.path)

    def _packages(self, path: str, entries: Sequence[str]) -> Iterator[str]:
        for entry in entries:
            rest = _below(entry, path) if os.path.isabs(entry) else None
            if rest:
                package, _, inner = rest.partition("/")
                if os.path.isdir(os.path.join(entry, package)):
                    yield f"{{package:{package}}}/{inner}" if inner else f"{{package:{package}}}"

    def _homes(self) -> Iterator[str]:
        """The directories that have ``include``, of the toolkit's include directories."""
        try:
            directories = self._toolkit()
        except ToolchainNotFoundError:
            return
        for directory in directories:
            home, include, _ = f"{directory}/".rpartition("/include/")
            if include:
                yield home

    def _roots(self, word: str | None, package: str) -> Iterator[str]:
        own = [] if self.project is None else [self.project]
        if word == "toolkit":
            yield from dict.fromkeys(self._homes())
        elif word == "project":
            yield from own
        else:
            before = [os.path.join(*own, "src"), *own] if own else []
            yield from _directories(importlib.machinery.PathFinder.find_spec(package, [*before, *sys.path]))
            try:
                yield from _directories(importlib.util.find_spec(package))
            except (ImportError, ValueError):  # a finder that hides it, or a module of that name without a spec
                return


def _directories(spec: importlib.machinery.ModuleSpec | None) -> list[str]:
    return list((spec.submodule_search_locations if spec else None) or ())


def _below(root: str, path: str) -> str | None:
    """Return a path relative to a directory that it is in. ``""`` for the directory, None if the path is elsewhere."""
    if path == root:
        return ""
    return path[len(root) + 1 :] if path.startswith(f"{root.rstrip('/')}/") else None
