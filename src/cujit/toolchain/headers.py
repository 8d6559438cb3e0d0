"""The toolkit's headers: found without configuration, matched to the NVRTC in use, and reported with the search rule.

A search is a tuple of steps, each of which returns directories. Each part (the CUDA runtime's headers, CCCL, crt) comes
from the first directory that contains it. A hit names its step, and a miss lists everything that was tried.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping

from cujit.toolchain.libraries import read_build_id
from cujit.values import NamedTuple, later
from cujit.values.typed import TYPE_CHECKING
from cujit.workers.environment import cache_directory
from cujit.workers.package_files import data_path

if TYPE_CHECKING:
    import pathlib
    import re
    from pathlib import Path
else:
    pathlib = later("pathlib")  # start-up: a hit works with text
    re = later("re")  # start-up: few calls need it

HOST_DIRECTORY = data_path("toolchain", "host")
"""Where headers for hosts are found, with nothing in them, by who asks for that."""

STD_DIRECTORY = data_path("toolchain", "std")
"""Where the standard headers over libcu++ lie (``std_headers``); the last include directory of a compile."""


class Settings(NamedTuple):
    """Environment settings, read once by the public functions and passed down."""

    cuda_homes: tuple[tuple[str, str], ...] = ()
    """(variable, directory) of a CUDA toolkit, in the order of the search."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Settings:
        """Read ``CUDA_HOME`` and ``CUDA_PATH``."""
        return cls(tuple((v, environment[v]) for v in ("CUDA_HOME", "CUDA_PATH") if environment.get(v)))


class IncludeDirectory(NamedTuple):
    """A directory of headers, the part of the toolkit that it holds, and the step that found it."""

    path: str
    part: str
    found_via: str

    def __str__(self) -> str:
        return f"{self.path} ({self.part}, found via {self.found_via})"


class HeaderSearch(NamedTuple):
    """Result of a search: the directories in order, the missing parts, and everything that was tried."""

    directories: tuple[IncludeDirectory, ...]
    missing: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """The directories for the compiler. The directory of the standard headers is last."""
        return (*dict.fromkeys(d.path for d in self.directories), STD_DIRECTORY)

    def report(self) -> str:
        """Return lines that describe the found parts and, if a part is missing, everything that was tried."""
        lines = [str(d) for d in self.directories]
        lines.append(f"{STD_DIRECTORY} (standard headers over libcu++, part of cujit)")
        if self.missing:
            lines.append(f"not found: {', '.join(self.missing)}; tried:")
            lines += [f"  {line}" for line in self.tried]
        return "\n".join(lines)


class _HeaderPlace(NamedTuple):
    """Inputs of a search: settings, the major version of NVRTC, and its file."""

    settings: Settings
    major: int
    library: Path | None


# A header of each part, by which a directory is known to hold it.
_PARTS: Mapping[str, str] = {
    "CUDA runtime headers": "cuda_runtime_api.h",
    "CCCL": "cuda/std/version",
    "crt": "crt/mma.h",
}

# The bundle has no header of the runtime's functions, which no kernel needs.
_BUNDLED_MARKERS: Mapping[str, str] = {"cuda_runtime_api.h": "cuda_fp16.h"}


def _near_nvrtc(place: _HeaderPlace) -> Iterator[Path]:
    """The directory tree of NVRTC itself: a wheel, conda, or a toolkit."""
    if place.library is None:
        return
    home = place.library.parent.parent
    # 13.x wheels and toolkits; conda; 12.x wheels, which have a directory per component.
    yield home / "include"
    yield home / "include" / "cccl"
    yield from sorted(home.glob("targets/*/include"))
    for component in ("cuda_runtime", "cuda_cccl", "cuda_nvcc"):
        yield home.parent / component / "include"


def _wheels(place: _HeaderPlace) -> Iterator[Path]:
    """The wheels of this Python, regardless of NVRTC's place."""
    from importlib.util import find_spec  # start-up: a process whose notes say where all is looks for nothing

    try:
        spec = find_spec("nvidia")
    except (ImportError, ValueError):  # a finder that hides it, or a module of that name without a spec
        return
    for root in (spec.submodule_search_locations or ()) if spec else ():
        yield pathlib.Path(root) / f"cu{place.major}" / "include"
        yield pathlib.Path(root) / f"cu{place.major}" / "include" / "cccl"
        for component in ("cuda_runtime", "cuda_cccl", "cuda_nvcc"):
            yield pathlib.Path(root) / component / "include"


def _toolkit(home: Path) -> Iterator[Path]:
    yield home / "include"
    yield home / "include" / "cccl"
    yield from sorted(home.glob("targets/*/include"))
    yield from sorted(home.glob("targets/*/include/cccl"))


def _environment(place: _HeaderPlace) -> Iterator[Path]:
    """The toolkits that the environment names."""
    for _, home in place.settings.cuda_homes:
        yield from _toolkit(pathlib.Path(home))


def _usual_place(_: _HeaderPlace) -> Iterator[Path]:
    """The directory where NVIDIA's installers put the toolkit."""
    yield from _toolkit(pathlib.Path("/usr/local/cuda"))


BUNDLE = "the headers that NVRTC bundles"
BUNDLED_SINCE = (13, 5)
"""The first NVRTC that has headers in it. Source: ``nvrtc.h`` of 13.5."""

BUNDLES = "headers"
"""The directory of the cache directory that they are installed in."""


def bundle_directory(library: str | None) -> str | None:
    """Return the directory for the headers inside an NVRTC, or None without such headers or a cache directory.

    It depends on the current environment, unlike the rest of a toolchain. The name contains the build of NVRTC, because
    the files show only when they were installed.
    """
    cache = cache_directory(os.environ)
    if library is None or cache is None:
        return None
    path = pathlib.Path(library)
    for builtins in path.parent.glob("libnvrtc-builtins.so.*"):
        found = re.search(r"\.so\.(\d+)\.(\d+)", builtins.name)
        if found and (int(found[1]), int(found[2])) >= BUNDLED_SINCE:
            return f"{cache}/{BUNDLES}/{found[1]}.{found[2]}-{read_build_id(library)[:16]}"
    return None


def _bundled(place: _HeaderPlace) -> Iterator[Path]:
    """The headers that NVRTC itself installs (``bundled``)."""
    directory = bundle_directory(None if place.library is None else str(place.library))
    if directory is not None:
        yield pathlib.Path(directory)
        yield pathlib.Path(directory, "cccl")


_STEPS: tuple[tuple[str, Callable[[_HeaderPlace], Iterator[Path]]], ...] = (
    ("NVRTC's directory", _near_nvrtc),
    ("the wheels of this Python", _wheels),
    ("CUDA_HOME or CUDA_PATH", _environment),
    ("/usr/local/cuda", _usual_place),
    (BUNDLE, _bundled),
)


def find_headers(settings: Settings, major: int, library: str | None) -> HeaderSearch:
    """Return the include directories for an NVRTC of version ``major``, opened from the file ``library``.

    A missing part is not an error, because most kernels include nothing. A compile that requires the part raises the
    error.
    """
    place = _HeaderPlace(settings, major, pathlib.Path(library) if library else None)
    found: list[IncludeDirectory] = []
    missing: list[str] = []
    tried: list[str] = []
    for part, marker in _PARTS.items():
        for step, directory in _candidates(place):
            why_not = _why_not(directory, _BUNDLED_MARKERS.get(marker, marker) if step == BUNDLE else marker, major)
            if why_not is None:
                found.append(IncludeDirectory(str(directory), part, step))
                break
            tried.append(f"{directory}: {why_not} ({step})")
        else:
            missing.append(part)
    return HeaderSearch(tuple(found), tuple(missing), tuple(dict.fromkeys(tried)))


def _candidates(place: _HeaderPlace) -> Iterator[tuple[str, Path]]:
    """Yield every directory to search, one at a time. Mostly the first one matches, and the rest is never listed."""
    for step, directories in _STEPS:
        for directory in directories(place):
            yield step, directory


def _why_not(directory: Path, marker: str, major: int) -> str | None:
    try:
        if not (directory / marker).is_file():
            return f"no {marker}"
        version = _runtime_version(directory / marker) if marker == "cuda_runtime_api.h" else None
    except OSError as e:
        return str(e)
    if version is not None and version != major:
        return f"headers of CUDA {version}, but NVRTC is {major}"
    return None


_VERSION = rb"#define\s+CUDART_VERSION\s+(\d+)"  # compiled when it is first used: start-up


def _runtime_version(header: Path) -> int | None:
    """The major version that a header states; ``CUDART_VERSION`` is 1000 x major + 10 x minor."""
    with header.open("rb") as file:
        # The definition is in the first kilobytes of half a megabyte, in 12.9 and 13.4.
        match = re.search(_VERSION, file.read(65536))
    return int(match[1]) // 1000 if match else None
