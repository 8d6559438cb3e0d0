"""cujit's cache for cuda.core: ``Program.compile("cubin", cache=cujit.integrations.cuda_core.program_cache())``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from cujit.artifact import Artifact, kind_of
from cujit.cache import admin
from cujit.cache.cache import Cache
from cujit.cache.key import Key, Part, make_key
from cujit.cache.process import default_cache
from cujit.errors import CujitError, FormatError, MissingError, OptionError, spell

_KIND = "cuda.core"
"""The kind of work under which these entries are kept: they are apart from all that cujit compiles itself."""

_TROUBLE = (OSError, CujitError)


class ProgramCache:
    """A mapping from keys of cuda.core to images, over a ``Cache``. ``program_cache`` makes one.

    Only images are kept (cubin, PTX, LTO-IR, fatbin …), each in an entry that proves itself when it is read; other
    bytes are dropped without an error. Nor is it one what the file system does: what cannot be read is not there, what
    cannot be written is remembered by this process alone. The key is cuda.core's, so what that leaves out (headers
    that were found without an option, the build of the compiler) is left out here too; ``cujit.compile`` has it in.
    """

    def __init__(self, cache: Cache) -> None:
        self.cache = cache

    def __getitem__(self, key: bytes | str) -> bytes:
        found = self.cache.find(_key(key))
        if found is None:
            raise KeyError(key)
        return found[0].data

    def get(self, key: bytes | str, default: bytes | None = None) -> bytes | None:
        """Return the image of a key, or ``default``.

        Raises:
            TypeError: the key is neither bytes nor text.
        """
        try:
            return self[key]
        except KeyError:
            return default

    def __setitem__(self, key: bytes | str, value: object) -> None:
        ours, data = _key(key), _image(value)
        found = self.cache.find(ours)
        if found is not None and found[0].data != data:
            self.cache.discard(ours)  # in a cache the first image stays, in a mapping the last
        with contextlib.suppress(FormatError):  # cuda.core gives away empty images, as PTX of an ``arch="sm_90"``
            artifact = Artifact(kind_of(data), data, name=str(getattr(value, "name", "")), tool="cuda.core")
            self.cache.keep(ours, artifact)

    def update(self, items: Mapping[Any, object] | Iterable[tuple[Any, object]], /) -> None:
        """Keep several.

        Raises:
            TypeError: a key is neither bytes nor text, or a value neither bytes nor an ObjectCode.
        """
        for key, value in items.items() if isinstance(items, Mapping) else items:
            self[key] = value

    def __delitem__(self, key: bytes | str) -> None:
        ours = _key(key)
        if self.cache.find(ours) is None:
            raise KeyError(key)
        self.cache.discard(ours)

    def __len__(self) -> int:
        return sum(1 for _ in self._digests())

    def clear(self) -> None:
        """Delete the entries for cuda.core in the writable directory. cujit's own entries remain."""
        for digest in list(self._digests()):
            with contextlib.suppress(*_TROUBLE):
                if self.cache.store is not None:
                    self.cache.store.delete(digest)
        self.cache.forget()

    def close(self) -> None:
        """Do nothing, because nothing is open between two calls."""

    def __enter__(self) -> ProgramCache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _digests(self) -> Iterator[str]:
        with contextlib.suppress(*_TROUBLE):
            listed = (entry for entry in admin.ls(self.cache) if entry.summary is not None)
            yield from (entry.digest for entry in listed if entry.summary and entry.summary.work == _KIND)


def program_cache(cache: Cache | None = None) -> ProgramCache:
    """Make a cache that ``cuda.core.Program.compile(cache=…)`` takes; without ``cache``, over the process's.

    Source: ``cuda.core.utils.ProgramCacheResource`` of cuda.core 1.2.

    Raises:
        MissingError: there is no cuda.core, or one older than 1.2.
        OptionError: ``cache`` is no Cache.
    """
    if cache is not None and not isinstance(cache, Cache):
        raise OptionError(f"cache is {spell(cache)}, expected a cujit.Cache or None", help="cujit.Cache(Path('…'))")
    try:
        from cuda.core.utils import ProgramCacheResource  # optional: cuda.core
    except ImportError as e:
        raise MissingError(f"this cuda.core has no program cache: {e}", help="run pip install 'cuda-core>=1.2'") from e
    ProgramCacheResource.register(ProgramCache)
    return ProgramCache(default_cache() if cache is None else cache)


def _key(key: object) -> Key:
    """Make the key of a key of cuda.core, where text is the same as its UTF-8."""
    if not isinstance(key, (bytes, bytearray, str)):
        raise TypeError(f"a key must be bytes or str, not {type(key).__name__}")
    return make_key(_KIND, [Part.content("key", key if isinstance(key, str) else bytes(key))])


def _image(value: object) -> bytes:
    """Return the bytes of an image, or of an ObjectCode, which may be a path."""
    code = getattr(value, "code", value)
    if isinstance(code, str) and code is not value:
        return Path(code).read_bytes()
    if not isinstance(code, (bytes, bytearray, memoryview)):
        raise TypeError(f"a value must be bytes or an ObjectCode, not {type(value).__name__}")
    return bytes(code)
