"""Which build of a compiler it is: the identity that a key needs, without opening the library where that can be.

A build is known by the identifier that its linker wrote into it, a hash of what was linked, and its size. Both are in
the first and last kilobytes that a few reads touch; version numbers say less (a patch release keeps major.minor), and
a hash of the file costs 130 ms (NVRTC 13.5: 141 MB).
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping

from cujit.arch.support import NEWEST, arches_of
from cujit.cache.key import Part, make_key
from cujit.cache.settings import values_of
from cujit.compiler.includes.files import Stamp, is_old, stamp_of
from cujit.compiler.includes.stat_cache import HintStore
from cujit.errors import ToolchainNotFoundError
from cujit.toolchain.libraries import find_library, library_path, missing_library, real_path
from cujit.toolchain.libraries import read_build_id as read_build_id  # tests replace it here
from cujit.toolchain.toolset import Toolchain
from cujit.values import NamedTuple, later
from cujit.values.json_text import only_value
from cujit.values.typed import TYPE_CHECKING

if TYPE_CHECKING:
    import json
    import re
else:
    json = later("json")  # start-up: for what writes a hint
    re = later("re")  # start-up: few calls need it

# What each library opens beside itself at a compile. Source: its system calls, 13.5.
_COMPANIONS = {"nvrtc": "libnvrtc-builtins."}
NAMES = {"nvrtc": "NVRTC", "nvvm": "libNVVM", "nvJitLink": "nvJitLink", "nvfatbin": "nvFatbin", "tileiras": "tileiras"}
# What decides which file is opened. Source: cuda-pathfinder 1.9 manual, "Search order"; ld.so(8).
_DECIDES = ("CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
_LONGEST_HINT_BYTES = 1 << 16
_NOTES_KEPT = 64

_Deciding = tuple[object, ...]


class Build(NamedTuple):
    """A library on disk. ``identity`` is equal for equal builds, and ``version`` is (major, minor).

    ``arches`` are the numbers of the architectures that a compiler supports, in ascending order. Linkers and packers
    have none. ``files`` are the paths and stats behind the identity. ``is_opened`` is whether this process has opened
    the library. Otherwise, the identity is that of the library that an earlier process opened here.
    """

    library: str
    path: str
    version: tuple[int, int]
    arches: tuple[int, ...]
    identity: str
    files: tuple[tuple[str, Stamp], ...]
    is_opened: bool

    def is_still(self, toolchain: Toolchain) -> bool:
        """Return whether this build did the compile, after the compile. The result of another build must not be stored
        under its key.

        Raises:
            ToolchainNotFoundError: the library is not installed.
        """
        path = real_path(_opened_path(self.library, toolchain))
        return path == self.path and _stamps([file for file, _ in self.files]) == self.files

    def was_emulated(self, toolchain: Toolchain) -> bool:
        """Return whether ``cujit emulate`` replaced this build, after a compile. A cubin from the emulator is not a
        real cubin.

        Raises:
            ToolchainNotFoundError: the library is not installed.
        """
        path = _opened_path(self.library, toolchain)
        return real_path(path) != path


def build_of(library: str, toolchain: Toolchain, store: HintStore | None, environment: Mapping[str, str]) -> Build:
    """Return the build of ``nvrtc``, ``nvvm``, ``nvJitLink``, ``nvfatbin`` or ``tileiras`` that a compile uses.

    Where the library is not open yet, a hint of an earlier process names the file, as long as nothing changed that
    decides which file is opened. Without a hint the library is opened. What one cache has made a process find out holds
    for the others too, as long as nothing changed that decides, nor the files.

    Raises:
        ToolchainNotFoundError: the library is not installed.
    """
    if library == "tileiras":
        return _program_build(toolchain)
    place = library, _deciding(toolchain, environment)
    known: tuple[Build | None, str] = toolchain.notes.get(place) or (None, _hint_name(*place))
    build, where = known
    if build is None or not _is_as_it_was(build, toolchain):
        hinted = None if store is None or _is_open(library, toolchain) else _from_hint(library, store.get(where))
        build = hinted or _opened_build(library, toolchain)
        if len(toolchain.notes) >= _NOTES_KEPT:
            toolchain.notes.clear()
        toolchain.notes[place] = build, where
        if hinted is not None:
            return build
    elif store is None or store.has(where):
        return build
    if store is not None:
        store.put(where, json.dumps([build.path, build.version, build.arches, build.files]).encode())
    return build


def _is_as_it_was(build: Build, toolchain: Toolchain) -> bool:
    """Return whether a build that this process knows is still the installed one, and the open one if it is open."""
    try:
        is_same = all(stamp_of(os.stat(path)) == stamp for path, stamp in build.files)
    except OSError:
        return False
    return is_same and (build.is_opened or not _is_open(build.library, toolchain))


def _opened_build(library: str, toolchain: Toolchain) -> Build:
    path = real_path(_opened_path(library, toolchain))
    version, arches = _version(library, toolchain), _arches(library, toolchain)
    files = _stamps(_files(library, path))
    return Build(library, path, version, arches, _identity(files), files, is_opened=True)


def _program_build(toolchain: Toolchain) -> Build:
    """Return the build of tileiras, a program that takes 20 ms to report its version."""
    program = toolchain.tileiras
    files = _stamps([*program.files])
    return Build("tileiras", files[0][0], program.version, program.arches, program.identity, files, is_opened=True)


def unopened_build_of(
    library: str, toolchain: Toolchain, store: HintStore | None, environment: Mapping[str, str]
) -> Build:
    """Return the build of a library without opening it: from a hint, otherwise from the file in its wheel.

    Keys use it if compiling is forbidden. If a compile would open another file, the key is different, and nothing is
    found. The file name contains the version, which determines the architectures.

    Raises:
        ToolchainNotFoundError: there is no such file.
    """
    if library == "tileiras":
        return _program_build(toolchain)
    where = _hint_name(library, _deciding(toolchain, environment))
    hinted = None if store is None else _from_hint(library, store.get(where))
    if hinted is not None:
        return hinted
    homes = [home for _, home in toolchain.settings.cuda_homes]
    path = find_library(library, homes)
    if path is None:
        raise missing_library(NAMES[library], FileNotFoundError("cujit searched for the library but didn't open it"))
    files = _stamps(_files(library, path))
    *_, numbered = [file for file, _ in files[1:]] or [find_library("nvrtc-builtins", homes) or ""]
    named = re.search(r"\.so\.(\d+)\.(\d+)", numbered)
    version = (int(named[1]), int(named[2])) if named else NEWEST
    arches = () if library in ("nvJitLink", "nvfatbin") else arches_of(version)
    return Build(library, path, version, arches, _identity(files), files, is_opened=False)


def _hint_name(library: str, decides: _Deciding) -> str:
    digest = make_key("library", [Part.text("decides", repr(decides))]).digest
    return f"library-{library}-{digest[:32]}"


def _from_hint(library: str, data: bytes | None) -> Build | None:
    try:
        path, (major, minor), numbers, listed = only_value(str((data or b"")[:_LONGEST_HINT_BYTES], "utf-8"))
        files = tuple((str(file), tuple(int(n) for n in stamp)) for file, stamp in listed)
        version, arches = (int(major), int(minor)), tuple(int(n) for n in numbers)
    except (ValueError, TypeError, RecursionError):
        return None
    try:
        now = _stamps(_files(library, str(path)))
    except ToolchainNotFoundError:
        return None
    if now != files or not all(is_old(stamp) for _, stamp in now):
        return None
    # The hint says which file; what that file is, it says itself.
    return Build(library, str(path), version, arches, _identity(now), now, is_opened=False)


def _files(library: str, path: str) -> list[str]:
    prefix = _COMPANIONS.get(library)
    directory = os.path.dirname(path)
    try:
        siblings = sorted(name for name in os.listdir(directory) if name.startswith(prefix)) if prefix else []
    except OSError as e:
        raise missing_library(NAMES[library], e) from e
    return [path, *(f"{directory}/{name}" for name in siblings)]


def _stamps(paths: list[str]) -> tuple[tuple[str, Stamp], ...]:
    try:
        return tuple((path, stamp_of(os.stat(path))) for path in paths)
    except OSError as e:
        raise missing_library(os.path.basename(paths[0]), e) from e


def _identity(files: tuple[tuple[str, Stamp], ...]) -> str:
    return " ".join(f"{read_build_id(path)}/{stamp[0]}" for path, stamp in files)


def _is_open(library: str, toolchain: Toolchain) -> bool:
    return library.lower() in toolchain.__dict__


def _opened_path(library: str, toolchain: Toolchain) -> str:
    """Open the library if necessary, and return its path."""
    if library == "tileiras":
        return toolchain.tileiras.files[0]
    getattr(toolchain, library.lower())
    path = library_path(library)
    if not path:
        raise ToolchainNotFoundError(f"{NAMES[library]} is loaded, but cujit can't determine its path")
    return path


def _version(library: str, toolchain: Toolchain) -> tuple[int, int]:
    opened = getattr(toolchain, library.lower())
    version = opened.release if library == "nvvm" else opened.version
    return int(version[0]), int(version[1])


def _arches(library: str, toolchain: Toolchain) -> tuple[int, ...]:
    return toolchain.nvrtc.arches if library == "nvrtc" else toolchain.nvvm.arches if library == "nvvm" else ()


def _deciding(toolchain: Toolchain, environment: Mapping[str, str]) -> _Deciding:
    """Return everything that selects the file to open: settings, search paths, and the times of package directories.

    An installer changes the package directory itself. In other directories of ``sys.path``, which programs may write
    to, only the packages ``cuda`` and ``nvidia`` matter.
    """
    changed = tuple(map(_changed_ns, _places(tuple(sys.path))))
    values = values_of(_DECIDES, environment)
    return sys.prefix, sys.base_prefix, toolchain.settings, values, tuple(sys.path), changed


@functools.lru_cache(maxsize=8)
def _places(paths: tuple[str, ...]) -> tuple[str, ...]:
    places = [
        place
        for path in paths
        for place in (
            (path,) if path.endswith("-packages") else (os.path.join(path, "cuda"), os.path.join(path, "nvidia"))
        )
    ]
    return (*places, "/etc/ld.so.cache")


def _changed_ns(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except (OSError, ValueError):
        return 0
