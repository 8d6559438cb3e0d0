"""SHA-256 without OpenSSL for a process that hashes little: to load that library takes 2 ms of it."""

from __future__ import annotations

import sys

from cujit.values.imported import imported
from cujit.values.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import hashlib

_LITTLE_BYTES = 128 << 10
"""Bytes that a process hashes without OpenSSL: Python's own code takes 1 ms for them, OpenSSL a fifth of that."""


def _own() -> Any:
    try:
        if sys.version_info >= (3, 12):
            from _sha2 import sha256  # start-up: beside hashlib, which loads OpenSSL
        else:
            from _sha256 import sha256  # type: ignore[import-not-found]  # start-up: as above
    except ImportError:
        return None
    return sha256


_sha256, _left = _own(), _LITTLE_BYTES


def sha256(*pieces: bytes | bytearray | memoryview) -> hashlib._Hash:
    """Return the hash of pieces one after the other, an object as ``hashlib.sha256`` makes it."""
    global _left
    for piece in pieces:
        _left -= len(piece)
    make = _sha256
    if make is None or _left < 0 or imported("_hashlib") is not None:
        import hashlib  # start-up: for much data, or where it is loaded already

        make = hashlib.sha256
    digest: hashlib._Hash = make()
    for piece in pieces:
        digest.update(piece)
    return digest
