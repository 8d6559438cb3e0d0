"""The compile cache: cache keys, entries, and the store."""

from cujit.cache.provenance import Provenance

__all__ = ["Provenance"]
