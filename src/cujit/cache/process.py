"""The process's cache, as the environment configures it."""

from __future__ import annotations

import functools
import os

from cujit.cache.cache import Cache
from cujit.cache.settings import VARIABLES, CacheSettings, values_of
from cujit.forks import single_flight_cache


def default_cache() -> Cache:
    """Return the process's cache for the current environment variables. The same settings return the same cache.

    ``CUJIT_CACHE_DIR`` specifies the directory. Default: ``cujit`` in the user's cache directory.
    ``CUJIT_CACHE_ROOTS`` specifies read-only directories, which cujit searches first. ``CUJIT_CACHE_BYTES`` limits the
    size (``4GiB``). ``CUJIT_CACHE=0`` turns off the cache.

    Raises:
        OptionError: an environment variable has an invalid value.

    Example::

        print(cujit.default_cache().counters)
    """
    return _cache_under(values_of(VARIABLES, os.environ))


@single_flight_cache(8)
def _cache_under(values: tuple[str | bytes | None, ...]) -> Cache:
    return cache_of(settings_of(values))


@single_flight_cache(8)
def cache_of(settings: CacheSettings) -> Cache:
    """Return the process's cache under the given settings."""
    return Cache.of(settings)


@functools.lru_cache(maxsize=8)
def settings_of(values: tuple[str | bytes | None, ...]) -> CacheSettings:
    """Read the values of VARIABLES. A relative path refers to the working directory of the first call.

    Raises:
        OptionError: a variable has an invalid value.
    """
    pairs = zip(VARIABLES, values, strict=True)
    return CacheSettings.from_environment({name: os.fsdecode(value) for name, value in pairs if value is not None})
