"""The cache of the process, as its environment asks for it."""

from __future__ import annotations

import functools
import os

from cujit.cache.cache import Cache
from cujit.cache.settings import VARIABLES, CacheSettings
from cujit.forks import Lock


def default_cache() -> Cache:
    """Give the process's cache under the environment of this moment; the same one for the same settings.

    ``CUJIT_CACHE_DIR`` names its directory (else ``cujit`` in the user's cache directory), ``CUJIT_CACHE_ROOTS``
    directories that are searched before it and only read, ``CUJIT_CACHE_BYTES`` how large it may become (``4GiB``).
    With ``CUJIT_CACHE=0`` nothing is cached.

    Raises:
        OptionError: one of these variables has a value that it cannot have.

    Example::

        print(cujit.default_cache().counters)
    """
    settings = process_settings()
    with _LOCK:  # else two threads that come first would have one each
        return _cache(settings)


def process_settings() -> CacheSettings:
    """Give the settings of this moment.

    Raises:
        OptionError: one of the variables has a value that it cannot have.
    """
    return _settings(tuple(map(os.environ.get, VARIABLES)))


@functools.lru_cache(maxsize=8)
def _settings(values: tuple[str | None, ...]) -> CacheSettings:
    """Read the values of VARIABLES; a relative path means the working directory of the first time."""
    return CacheSettings.from_environment({n: v for n, v in zip(VARIABLES, values, strict=True) if v is not None})


_LOCK = Lock()


@functools.lru_cache(maxsize=8)
def _cache(settings: CacheSettings) -> Cache:
    return Cache.of(settings)
