"""Triton's kernels in cujit's cache: ``TRITON_CACHE_MANAGER=cujit.integrations.triton:CacheManager``.

Triton reads its kernels from files, so the files of a kernel are written to Triton's own directory. The entry of
cujit's cache decides whether they are used: files whose entry was evicted, or whose signer is no longer trusted, are
not. The file that lists the files of a kernel also says which entry they are of, and their sizes.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import sys
import threading
import time
import types
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import triton
from triton import knobs
from triton.runtime import cache as triton_cache

from cujit.arch import Arch
from cujit.artifact import Artifact, ImageKind
from cujit.artifact.writing import replacing
from cujit.cache.cache import Cache
from cujit.cache.files import pack_files, unpack_files
from cujit.cache.filesystem import UntrustedFileError, read_trusted
from cujit.cache.key import Key, Part, make_key
from cujit.cache.process import default_cache
from cujit.cache.provenance import Outcome
from cujit.cache.settings import Compiling
from cujit.cache.trust import Trust
from cujit.errors import CacheRefusedError, CompileWarning, CujitError, FormatError, NotCompiledError
from cujit.threads import Condition, start
from cujit.values.json_text import only_value

_GROUP = "__grp__"
_STAMP = "cujit"
_SWEPT = "__cujit_swept__"
_MOST_GROUP_BYTES = 1 << 20
_HOUR_S = 3600.0
_WAIT_S = 120.0
"""How long a process waits for another one that compiles the same kernel."""
_LOOK_S = 0.1
"""How often to look whether a compile is still under way."""


class CacheManager(triton_cache.CacheManager):  # type: ignore[misc]  # Triton has no types
    """Triton's interface for the files of a kernel. Triton creates one for each key.

    Dumps and overrides (``TRITON_KERNEL_DUMP``, ``TRITON_KERNEL_OVERRIDE``) use Triton's own manager.
    """

    def __new__(cls, key: str, override: bool = False, dump: bool = False) -> Any:
        """Make a manager for a key; of a dump or an override, Triton's own."""
        if override or dump:
            return triton_cache.FileCacheManager(key, override=override, dump=dump)
        return super().__new__(cls)

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:  # noqa: ARG002
        """Store the key and Triton's directory for it.

        Raises:
            CacheRefusedError: other users could write to Triton's directory.
            OptionError: a variable of cujit's cache has an invalid value.
        """
        self._key = key
        self._cache = default_cache()
        self._trust = Trust.of_process()
        self._directory = f"{_checked_root(knobs.cache.dir)}/{key}"
        self._claim: _Claim | None = None

    def get_file(self, filename: str) -> str | None:
        """Return the path of a file that ``put`` wrote, or None. Such a file is never shared with other machines."""
        path = self._path(filename)
        return path if self._is_trusted(path) else None

    def put(self, data: object, filename: str, binary: bool = True) -> str:  # noqa: ARG002
        """Write a file to Triton's directory, and return its path."""
        content = data if isinstance(data, bytes) else str(data).encode()
        os.makedirs(self._directory, 0o700, exist_ok=True)
        path = self._path(filename)
        with replacing(path, mode=0o600, links="replace") as file:
            file.write(content)
        return path

    def get_group(self, filename: str) -> dict[str, str] | None:
        """Return the paths of the files of a kernel by name, or None if Triton has to compile the kernel.

        Only one process of the machine compiles a kernel, and the others wait for it.

        Raises:
            NotCompiledError: no cache contains the kernel, and ``CUJIT_COMPILE`` forbids compiling it.
        """
        key = _key_of(self._key, filename)
        found = self._local(filename, key)
        if found is not None:
            return found
        claim = _Claim(self._cache, key, sys._getframe(1))
        if claim.had is not None:
            return self._written(filename, key, claim.had)
        try:
            _require_compiling(key, self._cache)
        except CujitError:
            claim.end()
            raise
        self._claim = claim
        return None

    def put_group(self, filename: str, group: Mapping[str, str]) -> str:
        """Keep the files of a kernel, which Triton has just written, in cujit's cache."""
        claim, self._claim = self._claim, None
        names = sorted(group)
        self._keep(filename, names, 0.0 if claim is None else claim.took_ms)
        if claim is not None:
            claim.end()
        _sweep(os.path.dirname(self._directory), self._cache)
        return self._path(_GROUP + filename)

    def _local(self, filename: str, key: Key) -> dict[str, str] | None:
        """Return the files that are there, if they are whole and the cache still vouches for them."""
        listed = self._path(_GROUP + filename)
        try:
            data, status = read_trusted(listed, self._trust, _MOST_GROUP_BYTES)
            listing = only_value(str(data, "utf-8"))
            stamp = listing.get(_STAMP)
            sizes: dict[str, int] = dict.fromkeys(listing["child_paths"], -1) if stamp is None else stamp["bytes"]
            paths = {name: self._path(name) for name in sizes}
        except (OSError, UntrustedFileError, ValueError, LookupError, TypeError, AttributeError):
            return None
        if not all(self._is_trusted(path, sizes[name]) for name, path in paths.items()):
            return None
        if stamp is None:  # Triton compiled it before cujit was asked
            self._keep(filename, sorted(paths), 0.0)
        elif stamp.get("key") != key.digest or not self._cache.holds(key.digest):
            return None
        elif time.time() - status.st_mtime > _HOUR_S:
            self._touch(listed, key)
        return paths

    def _touch(self, listed: str, key: Key) -> None:
        with contextlib.suppress(OSError):
            os.utime(listed)
        if self._cache.store is not None:
            self._cache.store.touch(key.digest)

    def _is_trusted(self, path: str, size: int = -1) -> bool:
        """Return whether a file exists that only trusted users could have written, with the right size
        if it is known.
        """
        try:
            status = os.lstat(path)
        except OSError:
            return False
        return size in (-1, status.st_size) and not self._trust.objection(status)

    def _keep(self, filename: str, names: list[str], make_ms: float) -> None:
        files = {name: Path(self._path(name)).read_bytes() for name in names}
        key, artifact = _entry_of(self._key, filename, files)
        kept = self._cache.keep(key, artifact, make_ms=make_ms)
        self._list(filename, files, None if kept.outcome is Outcome.UNCACHED else key)

    def _written(self, filename: str, key: Key, artifact: Artifact) -> dict[str, str]:
        """Write the files of an entry that was proved to Triton's directory, the list of them last."""
        files = unpack_files(artifact.data)
        if filename not in files:
            raise FormatError(f"the cache entry {key.digest[:12]} has no file {filename}")
        paths = {name: self.put(content, name) for name, content in files.items()}
        self._list(filename, files, key)
        return paths

    def _list(self, filename: str, files: Mapping[str, bytes], key: Key | None) -> None:
        """Write the list of the files of a kernel, as Triton reads it; without ``key``, no entry vouches for them."""
        listing: dict[str, object] = {"child_paths": {name: self._path(name) for name in files}}
        if key is not None:
            listing[_STAMP] = {"key": key.digest, "bytes": {name: len(content) for name, content in files.items()}}
        self.put(json.dumps(listing), _GROUP + filename)

    def _path(self, filename: str) -> str:
        return f"{self._directory}/{filename}"


class RemoteBackend(triton_cache.RemoteCacheBackend):  # type: ignore[misc]  # Triton has no types
    """The back end of Triton's own ``RemoteCacheManager``: ``TRITON_REMOTE_CACHE_BACKEND``.

    It shares the entries of ``CacheManager``. Triton writes the files to its directory, and processes don't wait for
    each other.
    """

    def __init__(self, key: str) -> None:
        """Store the key of a kernel.

        Raises:
            OptionError: a variable of cujit's cache has an invalid value.
        """
        self._key = key
        self._cache = default_cache()
        self._files: dict[str, bytes] = {}

    def get(self, filenames: Iterable[str]) -> dict[str, bytes]:
        """Return the existing files by name. Triton first requests the list of a kernel's files.

        Raises:
            NotCompiledError: no cache contains the kernel, and ``CUJIT_COMPILE`` forbids compiling it.
        """
        names = list(filenames)
        for name in names:
            if name.startswith(_GROUP) and name not in self._files:
                self._files |= self._found(name)
        return {name: self._files[name] for name in names if name in self._files}

    def put(self, filename: str, data: bytes) -> None:
        """Receive a file. The list of a kernel's files completes the kernel, which is then cached. Other files stay
        local.
        """
        self._files[filename] = data
        if filename.startswith(_GROUP):
            files = {name: self._files[name] for name in json.loads(data)["child_paths"]}
            self._cache.keep(*_entry_of(self._key, filename[len(_GROUP) :], files))

    def _found(self, listed: str) -> dict[str, bytes]:
        key = _key_of(self._key, listed[len(_GROUP) :])
        had = self._cache.find(key, is_read=True)
        if had is None:
            _require_compiling(key, self._cache)
            return {}
        files = unpack_files(had[0].data)
        return {**files, listed: json.dumps({"child_paths": sorted(files)}).encode()}


_TOOL = f"Triton {triton.__version__}"


class _Claim:
    """The right to compile one kernel, from the miss until its files are kept, or Triton's compile is left.

    Triton doesn't say that a compile failed, and whoever keeps its traceback keeps the manager too. So a thread looks
    whether the frame of the compile is still on the stack of its thread.
    """

    def __init__(self, cache: Cache, key: Key, frame: types.FrameType) -> None:
        self._frame: types.FrameType | None = frame
        self._thread = threading.get_ident()
        self._begin = time.perf_counter()
        self._changed = Condition()
        self._held = contextlib.ExitStack()
        got = self._held.enter_context(cache.claim(key, _WAIT_S))
        self.had = None if got is None else got[0]
        if got is not None or not self._is_watched():
            self.end()

    @property
    def took_ms(self) -> float:
        """How long it is since the claim was made."""
        return (time.perf_counter() - self._begin) * 1e3

    def end(self) -> None:
        """Let other processes compile the kernel."""
        with self._changed:
            self._frame = None
            self._held.close()
            self._changed.notify_all()

    def _is_watched(self) -> bool:
        try:
            start(self._watch, name="cujit-triton", daemon=True)
        except RuntimeError:  # there are too many threads, or the interpreter ends
            return False
        return True

    def _watch(self) -> None:
        with self._changed:
            while self._is_compiling():
                self._changed.wait(_LOOK_S)
        self.end()

    def _is_compiling(self) -> bool:
        frame = sys._current_frames().get(self._thread)
        while frame is not None and frame is not self._frame:
            frame = frame.f_back
        return frame is not None


def _key_of(key: str, filename: str) -> Key:
    """Make the key of a kernel: Triton's own covers its compiler, the source, the options and the target."""
    return make_key("triton", [Part.text("name", filename.removesuffix(".json")), Part.text("triton key", key)])


def _entry_of(key: str, filename: str, files: Mapping[str, bytes]) -> tuple[Key, Artifact]:
    """Make the entry of a kernel: its key, and its files."""
    made, arch = _key_of(key, filename), _arch_of(files.get(filename, b""))
    return made, Artifact(ImageKind.FILES, pack_files(files), arch, name=made.name, tool=_TOOL)


@functools.lru_cache(8)
def _checked_root(directory: str) -> str:
    """Create Triton's directory if it doesn't exist, and check that only this user can write to it."""
    directory = os.path.abspath(directory)
    os.makedirs(directory, 0o700, exist_ok=True)
    try:
        Trust.of_process().check_root(directory)
    except CacheRefusedError as e:
        raise CacheRefusedError(
            f"cujit doesn't use Triton's cache directory: {e.message}",
            help="set TRITON_CACHE_DIR to a directory that only you can write to",
        ) from e
    return directory


def _require_compiling(key: Key, cache: Cache) -> None:
    compiling = max(Compiling.from_environment(os.environ), cache.compiling)
    if compiling is Compiling.AUTO:
        return
    message = f"no cache has the Triton kernel {key.name} ({compiling})"
    if compiling.is_forbidden:
        raise NotCompiledError(message, help="set CUJIT_COMPILE=auto to let Triton compile the kernel")
    warnings.warn(message, CompileWarning, stacklevel=3)


def _arch_of(metadata: bytes) -> Arch | None:
    try:
        target = json.loads(metadata)["target"]
        return Arch.parse(f"sm_{target['arch']}") if target["backend"] == "cuda" else None
    except (ValueError, LookupError, TypeError, CujitError):
        return None


def _sweep(directory: str, cache: Cache) -> None:
    """Delete files of kernels that the cache evicted and that were unused for an hour. This runs at
    most once an hour.
    """
    mark, now = f"{directory}/{_SWEPT}", time.time()
    with contextlib.suppress(OSError):
        if os.path.exists(mark) and now - os.stat(mark).st_mtime < _HOUR_S:
            return
        with replacing(mark, mode=0o600, links="replace"):
            pass
        for kernel in os.listdir(directory):
            if _is_evicted(f"{directory}/{kernel}", kernel, cache, now):
                shutil.rmtree(f"{directory}/{kernel}", ignore_errors=True)


def _is_evicted(path: str, key: str, cache: Cache, now: float) -> bool:
    """Return whether all kernels of a directory came from deleted entries."""
    lists = [name for name in os.listdir(path) if name.startswith(_GROUP)] if os.path.isdir(path) else []
    return bool(lists) and all(
        _is_left(f"{path}/{name}", _key_of(key, name[len(_GROUP) :]), cache, now) for name in lists
    )


def _is_left(listed: str, key: Key, cache: Cache, now: float) -> bool:
    if cache.holds(key.digest) or now - os.stat(listed).st_mtime < _HOUR_S:
        return False
    with contextlib.suppress(ValueError, AttributeError):
        return _STAMP in json.loads(Path(listed).read_bytes())
    return False
