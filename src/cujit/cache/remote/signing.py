"""Signatures over records: who may vouch for what runs here, as a file of this machine says.

An object of a shared cache is a head and, after it, a record. The head is

::

    magic, version                   16 bytes
    not after                        Unix time, 8 bytes
    size of the record               8 bytes
    who signed                       SHA-256 of the public key
    what is signed                   SHA-256 of the record
    scope                            64 bytes, padded by zeros
    signature                        64 bytes: Ed25519 over a domain, the scope, the key, the record, its size, the time

Numbers are little-endian. The key is not in the head: whoever asks for it knows it.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
import re
import struct
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cujit.arch.support import install
from cujit.artifact.writing import replacing
from cujit.cache.filesystem import UntrustedFileError, read_trusted
from cujit.cache.record import MAX_RECORD_BYTES, PREFIX_BYTES
from cujit.cache.trust import Trust
from cujit.errors import CacheRefusedError, CujitError, FileError, FormatError, MissingError, OptionError, listed, spell
from cujit.values import NamedTuple, dataclass

_HEAD = struct.Struct("<8sQQQ32s32s64s64s")
HEAD_BYTES = _HEAD.size
"""What stands before a record in a shared cache."""

_MAGIC = b"\x93cujitS\n"  # not ASCII, and broken by a transfer that changes line ends
_VERSION = 1
_DOMAIN = b"cujit record v1\0"  # a signature of this key for something else is none for a record
_SCOPE = re.compile(r"[a-z0-9][a-z0-9._/-]{0,63}")
_KEY_BYTES, _SIGNATURE_BYTES = 32, 64
_SHOWN = 16
_DAY_S = 86400
_MOST_BYTES = 1 << 20
_PUBLIC_FIELDS = {"name", "ed25519", "scopes", "until", "revoked"}

# PKCS #8 of an Ed25519 key is this and the 32 bytes of its seed. Source: RFC 8410, section 7.
_PKCS8 = bytes.fromhex("302e020100300506032b657004220420")
_PEM = ("-----BEGIN PRIVATE KEY-----\n", "\n-----END PRIVATE KEY-----\n")


class Signed(NamedTuple):
    """Verified head: the key that signed a record, the SHA-256 of the record, and its size."""

    signer: str
    sha256: bytes
    size_bytes: int


@dataclass(frozen=True)
class TrustedKey:
    """A public key, and for which scopes it is believed; ``until_s`` is the Unix time of the end of that."""

    name: str
    public: bytes
    scopes: frozenset[str]
    until_s: float
    is_revoked: bool

    @property
    def id(self) -> str:
        """The SHA-256 of the key, in hex."""
        return hashlib.sha256(self.public).hexdigest()

    def verifies(self, message: bytes, signature: bytes) -> bool:
        """Return whether this key signed a message.

        Raises:
            MissingError: the package that verifies is not installed.
        """
        return len(signature) == _SIGNATURE_BYTES and _verifies(signature, message, self.public)


class TrustedKeys:
    """The keys that this machine trusts, from a file that only its user or root can write."""

    def __init__(self, keys: Mapping[str, TrustedKey]) -> None:
        """Store keys by their ids."""
        self.keys = keys

    @classmethod
    def read(cls, path: Path) -> TrustedKeys:
        """Read a file of public keys (see ``docs/remote.md``).

        Raises:
            CacheRefusedError: other users could have written the file.
            FileError: the file can't be read.
            FormatError: the file has another format.
        """
        data = read_key_file(path)
        try:
            rows = json.loads(data)["keys"]
            keys = [_trusted(row) for row in rows]
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError) as e:
            raise FormatError(
                f"{path} doesn't contain a list of keys: {e}",
                help="run cujit cache keygen to create a file in the correct format",
            ) from e
        if len({key.id for key in keys}) < len(keys):
            raise FormatError(f"{path} lists the same key twice", help="write one row per key")
        return cls({key.id: key for key in keys})

    def believes(self, signer: str) -> bool:
        """Return whether entries that this key once provided may stay."""
        return signer in self.keys and not self.keys[signer].is_revoked

    def prove(self, head: bytes, digest: str, *, now_s: float) -> Signed:
        """Verify that a trusted key signed a record for the key ``digest``, and return what the head proves.

        Raises:
            FormatError: no trusted key signed the record.
        """
        if len(head) < HEAD_BYTES:
            raise FormatError(f"the signature is truncated after {len(head)} bytes")
        magic, version, not_after, size, signer_id, sha256, padded, signature = _HEAD.unpack_from(head)
        if magic != _MAGIC or version != _VERSION:
            raise FormatError(
                f"it isn't signed in a format that this cujit reads: it begins with {spell(bytes(head[:12]))}"
            )
        if not PREFIX_BYTES <= size <= MAX_RECORD_BYTES:
            raise FormatError(f"the signature covers {size} bytes")
        scope = padded.rstrip(b"\0").decode("ascii", "replace")
        message = _message(scope, digest, sha256, size, not_after)
        key = self.check(message, signature, signer_id.hex(), scope, not_after, now_s=now_s)
        return Signed(key.id, sha256, size)

    def check(
        self, message: bytes, signature: bytes, signer: str, scope: str, not_after_s: float, *, now_s: float
    ) -> TrustedKey:
        """Verify that the trusted key with the id ``signer`` signed a message for a scope, and return the key.

        Raises:
            FormatError: no trusted key signed the message.
        """
        key = self._key_of(signer, scope, now_s)
        if now_s > not_after_s:
            raise FormatError(f"{key.name} signed the image, but the signature has expired")
        if not key.verifies(message, signature):
            raise FormatError(f"the signature names {key.name}, but that key didn't create it")
        return key

    def _key_of(self, signer: str, scope: str, now_s: float) -> TrustedKey:
        key = self.keys.get(signer)
        if key is None:
            allowed = listed((f"{one.id[:_SHOWN]} ({one.name})" for one in self.keys.values()), 4) or "none"
            raise FormatError(f"the key {signer[:_SHOWN]} signed the image, but cujit trusts only {allowed}")
        if key.is_revoked or now_s > key.until_s:
            raise FormatError(
                f"{key.name} signed the image, but this key is {'revoked' if key.is_revoked else 'no longer trusted'}"
            )
        if scope not in key.scopes:
            raise FormatError(
                f"{key.name} signed the image for the scope {spell(scope)}, but is allowed to sign only for "
                f"{listed(sorted(key.scopes), 4)}"
            )
        return key


class KeyFile:
    """A file of keys that are believed, read again when it is another."""

    def __init__(self, path: Path | str) -> None:
        """Name the file."""
        self.path = Path(path)
        self._known: tuple[bytes, TrustedKeys] | None = None

    def stamp(self) -> bytes:
        """Return bytes that change if the file changes.

        Raises:
            OSError: it is not there.
        """
        status = os.stat(self.path)
        return f"{status.st_ino} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}".encode()

    def read(self) -> TrustedKeys:
        """Return the trusted keys.

        Raises:
            CacheRefusedError, FileError, FormatError: as ``TrustedKeys.read``.
            OSError: it is not there.
        """
        stamp = self.stamp()
        if self._known is None or self._known[0] != stamp:
            self._known = stamp, TrustedKeys.read(self.path)
        return self._known[1]

    def objection_to(self, signers: Sequence[str]) -> str:
        """Return why entries of these keys must be removed, or an empty string."""
        try:
            keys = self.read()
        except (OSError, CujitError) as e:
            return f"the trusted keys are unknown: {e}"
        refused = [signer for signer in signers if not keys.believes(signer)]
        return f"the key {refused[0][:_SHOWN]} signed it, and is no longer trusted" if refused else ""


@dataclass(frozen=True, repr=False)
class Signer:
    """A private key, and the scope that it signs for; signatures hold for ``valid_days``.

    Example::

        signer = Signer.read("farm.key", scope="main")
    """

    seed: bytes
    scope: str
    valid_days: int = 365

    @classmethod
    def read(cls, path: str | os.PathLike[str], *, scope: str, valid_days: int = 365) -> Signer:
        """Read a private key as ``cujit cache keygen`` or ``openssl genpkey -algorithm ed25519`` writes it.

        Args:
            path: the file, which its owner alone may read.
            scope: what is signed for, such as ``main`` or ``pr/17``.
            valid_days: for how many days nobody need sign again.

        Raises:
            CacheRefusedError: others can read the file, or could have written it.
            FileError: it cannot be read.
            FormatError: it is no private key.
            OptionError: that is no scope, or no number of days.
        """
        check_scope(scope)
        if type(valid_days) is not int or not 0 < valid_days <= 36_500:
            raise OptionError(f"a signature can be valid for 1 to 36500 days, not {spell(valid_days)}")
        text = read_key_file(Path(path), is_private=True).decode("ascii", "replace")
        try:
            body = text.partition(_PEM[0])[2].partition(_PEM[1].rstrip())[0]
            der = base64.b64decode("".join(body.split()), validate=True)
        except ValueError:
            der = b""
        if len(der) != len(_PKCS8) + _KEY_BYTES or not der.startswith(_PKCS8):
            raise FormatError(
                f"{path} doesn't contain an Ed25519 private key", help="run cujit cache keygen FILE to create one"
            )
        return cls(der[len(_PKCS8) :], scope, valid_days)

    @property
    def public(self) -> bytes:
        """The public key, of 32 bytes.

        Raises:
            MissingError: the package that signs is not installed.
        """
        public: bytes = bindings().crypto_sign_seed_keypair(self.seed)[0]
        return public

    @property
    def id(self) -> str:
        """The SHA-256 of the public key, in hex."""
        return hashlib.sha256(self.public).hexdigest()

    def head(self, digest: str, record: bytes, *, now_s: float | None = None) -> bytes:
        """Sign a record for the key ``digest``, and return the head that precedes it in a shared cache.

        Raises:
            MissingError: the package that signs is not installed.
        """
        not_after = self.not_after_s(int(time.time() if now_s is None else now_s))
        sha256 = hashlib.sha256(record).digest()
        signature = self.sign(_message(self.scope, digest, sha256, len(record), not_after))
        signer_id, scope = bytes.fromhex(self.id), self.scope.encode("ascii")
        return _HEAD.pack(_MAGIC, _VERSION, not_after, len(record), signer_id, sha256, scope, signature)

    def not_after_s(self, now_s: int) -> int:
        """Return until when a signature of now holds, as Unix time."""
        return now_s + self.valid_days * _DAY_S

    def sign(self, message: bytes) -> bytes:
        """Sign a message that begins with its domain, and return the signature of 64 bytes.

        Raises:
            MissingError: the package that signs is not installed.
        """
        _, secret = bindings().crypto_sign_seed_keypair(self.seed)
        signature: bytes = bindings().crypto_sign(message, secret)[:64]
        return signature


def keygen(path: Path, *, name: str, scope: str) -> str:
    """Write a new private key, and return the file of public keys that trusts it, as text.

    Raises:
        FileError: the file exists or can't be written.
        MissingError: the package that signs is not installed.
        OptionError: the scope is invalid.
    """
    check_scope(scope)
    signer = Signer(os.urandom(_KEY_BYTES), scope)
    row = {"name": name, "ed25519": base64.b64encode(signer.public).decode(), "scopes": [scope]}
    try:
        with replacing(path, mode=0o600, links="replace", is_new=True) as file:
            file.write(base64.b64encode(_PKCS8 + signer.seed).decode().join(_PEM).encode())
    except FileError as e:
        if e.errno == errno.EEXIST:
            e.help = "choose a file name that doesn't exist yet"
        raise
    return json.dumps({"keys": [row]}, indent=2) + "\n"


def check_scope(scope: object) -> None:
    """Check that something is a scope: small letters, digits, and ``._/-`` between them.

    Raises:
        OptionError: the value is invalid.
    """
    if not isinstance(scope, str) or not _SCOPE.fullmatch(scope):
        raise OptionError(
            f"{spell(scope)} is not a valid scope", help="use up to 64 characters, such as main, release/2 or pr/17"
        )


def read_key_file(path: Path, *, is_private: bool = False) -> bytes:
    """Read a file that only its user or root can write. A private key must be readable only by its owner.

    Symbolic links are followed, and the directories of their targets are checked too.

    Raises:
        CacheRefusedError: other users could have written the file, or can read a private key.
        FileError: the file can't be read.
    """
    trust = Trust.of_process()
    try:
        real = Path(os.path.realpath(path))
        trust.check_root(Path(os.path.abspath(path)).parent)
        trust.check_root(real.parent)
        data, status = read_trusted(real, trust, _MOST_BYTES)
    except UntrustedFileError as e:
        raise CacheRefusedError(f"cujit doesn't trust {path}: {e}", help=f"run chmod go-w {path}") from e
    except CacheRefusedError as e:
        reason = e.message.removeprefix("the cache is not used: ")
        raise CacheRefusedError(
            f"cujit doesn't trust {path}: {reason}", help="use a directory that only you can write to"
        ) from e
    except OSError as e:
        raise FileError(f"{path}: {e.strerror}", filename=str(path), errno=e.errno) from e
    if is_private and status.st_mode & 0o077:
        raise CacheRefusedError(f"other users can read the private key {path}", help=f"run chmod go= {path}")
    return data


def bindings() -> Any:
    """Import the library that signs and verifies.

    Raises:
        MissingError: it is not installed.
    """
    try:
        import nacl.bindings  # optional: of the extra "remote"
    except ImportError as e:
        raise MissingError(
            "PyNaCl is not installed; cujit needs it to verify signatures", help=install("remote")
        ) from e
    return nacl.bindings


def _message(scope: str, digest: str, sha256: bytes, size: int, not_after: int) -> bytes:
    return b"".join(
        (_DOMAIN, scope.encode(), b"\0", bytes.fromhex(digest), sha256, struct.pack("<QQ", size, not_after))
    )


def _verifies(signature: bytes, message: bytes, public: bytes) -> bool:
    library = bindings()
    from nacl.exceptions import CryptoError  # optional, as above

    try:
        library.crypto_sign_open(signature + message, public)
    except CryptoError:
        return False
    return True


def _trusted(row: dict[str, Any]) -> TrustedKey:
    if unknown := row.keys() - _PUBLIC_FIELDS:  # a word that is misspelt may have been a revocation
        raise ValueError(
            f"a key can't contain the field {spell(min(unknown))}; its fields are {', '.join(sorted(_PUBLIC_FIELDS))}"
        )
    public = base64.b64decode(row["ed25519"], validate=True)
    if len(public) != _KEY_BYTES:
        raise ValueError(f"a public key is {_KEY_BYTES} bytes long, but this one is {len(public)}")
    scopes, revoked = row["scopes"], row.get("revoked", False)
    if not isinstance(scopes, list) or not isinstance(revoked, bool):
        raise TypeError("scopes must be a list, and revoked must be true or false")
    for scope in scopes:
        check_scope(scope)
    return TrustedKey(str(row.get("name", "a key without a name")), public, frozenset(scopes), _until(row), revoked)


def _until(row: dict[str, Any]) -> float:
    if "until" not in row:
        return float("inf")
    import datetime  # start-up time: most keys have no end

    day = datetime.datetime.strptime(row["until"], "%Y-%m-%d").replace(tzinfo=datetime.timezone.utc)
    return day.timestamp() + _DAY_S
