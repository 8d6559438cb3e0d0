"""Shared caches: holders of a signing key fill them, and clients can pull ahead of time. ``import cujit.remote``."""

from cujit.cache.remote.filling import RemoteStore
from cujit.cache.remote.signing import Signer
from cujit.remote.directories import Extracted, extract_directory, pack_directory
from cujit.remote.hub import export_hub
from cujit.remote.oci import PulledPack, PushedPack, pull_pack, push_pack
from cujit.remote.publish import Pulled, Pushed, pull, push

__all__ = [
    "Extracted",
    "Pulled",
    "PulledPack",
    "Pushed",
    "PushedPack",
    "RemoteStore",
    "Signer",
    "export_hub",
    "extract_directory",
    "pack_directory",
    "pull",
    "pull_pack",
    "push",
    "push_pack",
]
