"""Shared caches: filled by whoever holds a key, and pulled ahead of time. ``import cujit.remote``."""

from cujit.cache.remote.filling import RemoteStore
from cujit.cache.remote.signing import Signer
from cujit.remote.publish import Pulled, Pushed, pull, push

__all__ = ["Pulled", "Pushed", "RemoteStore", "Signer", "pull", "push"]
