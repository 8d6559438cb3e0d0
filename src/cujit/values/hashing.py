"""SHA-256 without OpenSSL for a process that hashes little: to load that library takes 2 ms of it.

A process that launches kernels has native code for it, if its processor has instructions for SHA-256.
"""

from __future__ import annotations

import sys

from cujit.values.imported import imported
from cujit.values.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import hashlib
    from collections.abc import Callable

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
_native: Callable[..., bytes] | None = None

_MOST_NATIVE = 256 << 10
"""Bytes that are hashed by native code, which holds Python's lock. OpenSSL gives it back."""


class Digest(bytes):
    """The SHA-256 of data."""

    __slots__ = ()

    hexdigest = bytes.hex

    def digest(self) -> bytes:
        """Return the digest."""
        return bytes(self)


def use_native(digest: Callable[..., Any]) -> None:
    """Hash small data with ``digest(*pieces)``, which returns bytes, unless it returns None."""
    global _native
    _native = None if digest() is None else digest


def sha256(*pieces: bytes | bytearray | memoryview) -> Digest | hashlib._Hash:
    """Return the hash of pieces one after the other, with ``digest`` and ``hexdigest`` as ``hashlib.sha256``."""
    global _left
    size = sum(map(len, pieces))
    native = _native
    if native is not None and size <= _MOST_NATIVE:
        return Digest(native(*pieces))
    _left -= size
    make = _sha256
    if make is None or _left < 0 or imported("_hashlib") is not None:
        import hashlib  # start-up: for much data, or where it is loaded already

        make = hashlib.sha256
    digest: hashlib._Hash = make()
    for piece in pieces:
        digest.update(piece)
    return digest
