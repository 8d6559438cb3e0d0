"""Keys, records and the store: from what went into a piece of work to the image that came out of it."""

from cujit.cache.provenance import Provenance

__all__ = ["Provenance"]
