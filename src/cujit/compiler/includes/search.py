"""Where NVRTC looks for a header: the candidates in their order, by place and by path.

Source: measured with NVRTC 13.5, by its system calls. A header in memory whose name is exactly the one in the
directive comes first, everywhere. Then, for ``"…"``, the directory of the including file as it was spelled; for a
source in memory the directory of the program's name; for a header in memory, and for ``--pre-include``, the working
directory. Then the include directories in their order. The directories of files further up are not searched.
In each directory, where the last part of the name has no dot, ``name.stdh`` is taken if ``name`` is not there; not so
for absolute names and headers in memory (measured with 12.9, 13.0 and 13.5).
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator, Mapping

from cujit.values import dataclass, field

MEMORY = "memory"
ABSOLUTE = "absolute"


@dataclass(frozen=True, slots=True)
class HeaderPlace:
    """A file or a missing name: ``root`` is the label of a search directory, and ``name`` is relative to it.

    ``path`` is its place on this machine, or empty for in-memory headers. Machines with equal texts under equal roots
    and names compile equally, so that the path doesn't matter.
    """

    root: str
    name: str
    path: str = field(compare=False, default="")

    def __str__(self) -> str:
        return f"{self.root}:{self.name}"


@dataclass(frozen=True)
class Search:
    """The directories of one compile. ``memory`` maps names of in-memory headers to their bytes.

    ``directories`` are (label, path) of the include directories. ``searches_includer`` is False with
    ``--no-source-include``. ``working`` is the working directory.
    """

    memory: Mapping[str, bytes]
    directories: tuple[tuple[str, str], ...]
    working: str
    searches_includer: bool = True

    def candidates(self, form: str, name: str, includer: HeaderPlace) -> Iterator[HeaderPlace]:
        """Yield every possible place of the header in order. NVRTC uses the first that exists. For ``#include_next``,
        it may use any of them.
        """
        if name in self.memory:
            yield HeaderPlace(MEMORY, name)
        if name.startswith("/"):
            yield HeaderPlace(ABSOLUTE, name, name)
            return
        spellings = (name,) if "." in posixpath.basename(name) else (name, f"{name}.stdh")
        if form == '"' and (self.searches_includer or includer.root == "pre-include"):
            yield from (self._neighbour(includer, spelled) for spelled in spellings)
        for root, directory in self.directories:
            yield from (HeaderPlace(root, spelled, f"{directory}/{spelled}") for spelled in spellings)

    def _neighbour(self, includer: HeaderPlace, name: str) -> HeaderPlace:
        if includer.root in (MEMORY, "pre-include"):
            directory = posixpath.dirname(includer.name)
            joined = posixpath.join(directory, name)
            return HeaderPlace("working directory", joined, f"{self.working}/{joined}")
        return HeaderPlace(
            includer.root,
            posixpath.join(posixpath.dirname(includer.name), name),
            posixpath.join(posixpath.dirname(includer.path), name),
        )


def settled(place: HeaderPlace) -> HeaderPlace:
    """Remove ``a/../`` from a place if the result names the same directory."""
    if ".." not in place.name and "/./" not in place.name:
        return place
    plain = posixpath.normpath(place.path)
    name = posixpath.normpath(place.name)
    try:
        same = os.path.samefile(posixpath.dirname(plain), posixpath.dirname(place.path))
    except OSError:
        same = False
    return HeaderPlace(place.root, name, plain) if same else place
