"""Shared parts of the build hooks: the pack that pyproject.toml requests for a wheel."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from cujit.artifact.writing import temporary_directory
from cujit.cache.cache import Cache
from cujit.cache.pack import PackStats
from cujit.cache.process import default_cache
from cujit.cache.store import PACK_SUFFIX
from cujit.errors import CacheRefusedError, CompileError, OptionError, spell
from cujit.values import dataclass
from cujit.worklist import build, read

_KEYS = ("worklist", "arch", "ptx", "pack")
_HELP = 'worklist = "kernels.jsonl", arch = ["sm_90"], ptx = true, pack = "mylib/kernels.pack"'


@dataclass(frozen=True)
class WantedPack:
    """A pack to build from ``worklist`` for the architectures ``arch`` and, with ``ptx``, for later GPUs.

    ``project`` is the directory of pyproject.toml. ``pack`` is its path in the wheel.
    """

    project: Path
    worklist: tuple[str, ...]
    pack: str
    arch: tuple[str, ...] = ()
    ptx: bool = True

    @classmethod
    def of(cls, table: Mapping[str, object], project: str | os.PathLike[str], *, where: str) -> WantedPack:
        """Read a table of pyproject.toml. ``where`` is its name in errors.

        Raises:
            OptionError: a key is unknown, missing, or of the wrong type.
        """
        unknown = [key for key in table if key not in _KEYS]
        if unknown:
            raise OptionError(f"{where}: unknown key {spell(unknown[0])}", help=_HELP)
        lists, arch = (_texts(table.get(key, ()), f"{where}: {key}") for key in ("worklist", "arch"))
        pack, ptx = table.get("pack", ""), table.get("ptx", True)
        if not lists:
            raise OptionError(f"{where} specifies no worklist", help=_HELP)
        path = PurePosixPath(pack if isinstance(pack, str) else "")
        if path.suffix != PACK_SUFFIX or path.is_absolute() or ".." in path.parts:
            raise OptionError(
                f"{where}: pack is {spell(pack)}, expected the path of a .pack file in the wheel", help=_HELP
            )
        if not isinstance(ptx, bool):
            raise OptionError(f"{where}: ptx is {spell(ptx)}, expected true or false")
        return cls(Path(project), lists, str(path), arch, ptx)

    def build(self, target: Path) -> PackStats:
        """Compile the worklist, and write the pack. Equal lists, headers, and compilers give equal bytes.

        Raises:
            CompileError: an entry of the list doesn't compile.
            CujitError: as ``cujit.worklist.build``.
        """
        lists = read([self.project / path for path in self.worklist])
        target.parent.mkdir(parents=True, exist_ok=True)
        with temporary_directory() as folder:
            cache = _written_cache() or Cache(folder)
            built = build(lists, arch=self.arch, ptx=self.ptx, pack=target, cache=cache, project=self.project)
        if not built.is_good:
            lines = [str(one) for one in (*built.failed, *built.quarantined)]
            raise CompileError("\n  ".join([f"{len(lines)} of the kernels for {self.pack} don't compile", *lines]))
        assert built.pack is not None
        return built.pack


def _written_cache() -> Cache | None:
    """Return the process's cache, or None if it is off or not writable."""
    cache = default_cache()
    try:
        return cache if cache.store is not None and cache.store.prepare() else None
    except (OSError, CacheRefusedError):
        return None


def _texts(given: object, what: str) -> tuple[str, ...]:
    listed = [given] if isinstance(given, str) else given
    if not isinstance(listed, list | tuple) or not all(isinstance(text, str) for text in listed):
        raise OptionError(f"{what} is {spell(given)}, expected str or a list of str", help=_HELP)
    return tuple(listed)
