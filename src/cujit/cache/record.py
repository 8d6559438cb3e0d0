"""Records: one file that holds a whole Artifact, says which key it answers, and proves that it is undamaged.

::

    prefix (96 bytes)   magic, version, four lengths, the key's digest, SHA-256 over all but itself
    header              JSON: what is known of the Artifact but its bytes, and how it was made
    parts               JSON: the parts of the key, read only to explain a miss
    recipe              how to make the Artifact again, in the words of who made it; may be empty
    payload             the image

Numbers are little-endian. A record of another version is no record; nothing in it is ever executed.
"""

from __future__ import annotations

import contextlib
import functools
import struct
from itertools import starmap
from types import MappingProxyType

from cujit.arch import Arch, ArchKind
from cujit.artifact import Artifact, ImageKind, kind_of
from cujit.artifact.artifact import unchecked
from cujit.cache.key import Key, Part, make_key
from cujit.errors import CujitError, FormatError, spell
from cujit.signature import Parameter, ParameterClass, Signature
from cujit.values import NamedTuple, dataclass, field, later
from cujit.values.hashing import sha256
from cujit.values.json_text import only_value, value_at
from cujit.values.native import LOADED
from cujit.values.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import json
else:
    json = later("json")  # start-up: for what writes, and for explanations

VERSION = 1
MAX_RECORD_BYTES = 1 << 30
"""A larger file is no record: it is refused before memory is taken for it."""

PORTABLE = frozenset(("nvrtc", "nvvm", "tileiras", "link", "bundle", "tuning", "triton", "directory"))
"""Work whose result is good on every machine. Machine code of this processor and modules by version are not."""

_MAGIC = b"\x93cujit\r\n"  # not ASCII, and broken by a transfer that changes line ends
_FIELDS = struct.Struct("<8sIIIIQ32s")
_DIGEST_AT = _FIELDS.size - 32
_HASH_BYTES = 32
PREFIX_BYTES = _FIELDS.size + _HASH_BYTES
_NO_HEADER = (LookupError, TypeError, ValueError, OverflowError, AttributeError, RecursionError, CujitError)
"""What comes of JSON that is no header; OverflowError of an infinite number where an integer should be."""
_HEAD_BYTES = 4096  # where the first telling line of a text image is sought before the whole is


_KINDS = {kind.value: kind for kind in ImageKind}
_TEXT = (ImageKind.PTX, ImageKind.NVVMIR)


class _Prefix(NamedTuple):
    header_bytes: int
    parts_bytes: int
    recipe_bytes: int
    payload_bytes: int
    digest: bytes
    total_bytes: int


class Summary(NamedTuple):
    """The header of a record, which is unverified until the whole record is read.

    ``work`` is the kind of work (``Key.kind``), ``made_s`` the Unix time of the compile, and ``make_ms`` its duration.
    ``names`` are the name expressions. ``recipe_bytes`` is 0 if the record doesn't contain a recipe.
    """

    digest: str
    work: str
    kind: ImageKind
    arch: Arch | None
    name: str
    tool: str
    names: tuple[str, ...]
    payload_bytes: int
    make_ms: float
    made_s: int
    recipe_bytes: int = 0


@dataclass(frozen=True)
class EntryRecord:
    """A verified record: the Artifact, and how it was compiled.

    ``work`` is the kind of work, ``made_s`` the Unix time of the compile, and ``make_ms`` its duration. ``recipe``
    tells its writer how to compile the Artifact again, or is empty.
    """

    digest: str
    work: str
    artifact: Artifact
    make_ms: float
    made_s: int
    _parts: bytes = field(repr=False)
    recipe: bytes = field(default=b"", repr=False)

    def key(self) -> Key:
        """Return the key with its parts.

        Raises:
            FormatError: the parts don't match the record's key.
        """
        key = make_key(self.work, _read_parts(self._parts))
        if key.digest != self.digest:
            raise FormatError(f"the record's parts hash to the key {key.digest}, but the record declares {self.digest}")
        return key


def encode(key: Key, artifact: Artifact, *, make_ms: float, made_s: int, recipe: bytes = b"") -> bytes:
    """Return a record.

    Raises:
        FormatError: the Artifact doesn't match its kind, contains values that aren't text, or is too large.
    """
    _check_payload(artifact.kind, artifact.data)
    try:
        header = _json(_header(key, artifact, round(make_ms, 3), made_s))
    except (TypeError, ValueError, AttributeError, RecursionError) as e:
        raise FormatError(f"this Artifact can't be stored in a record: {e}") from e
    parts = _json([[part.label, part.value, part.size] for part in key.parts])
    lengths = (len(header), len(parts), len(recipe), len(artifact.data))
    if PREFIX_BYTES + sum(lengths) > MAX_RECORD_BYTES:
        raise FormatError(f"the record is {PREFIX_BYTES + sum(lengths)} bytes long; the maximum is {MAX_RECORD_BYTES}")
    fields = _FIELDS.pack(_MAGIC, VERSION, *lengths, bytes.fromhex(key.digest))
    body = (header, parts, recipe, artifact.data)
    return b"".join((fields, sha256(fields, *body).digest(), *body))


def decode(data: bytes | memoryview, digest: str, *, is_proved: bool = False) -> EntryRecord:
    """Read a record for the key ``digest``. Every byte is checked unless the bytes are already verified.

    Raises:
        FormatError: the record is damaged, truncated, of another version, or for another key.
    """
    prefix = _prefix_of(data, digest)
    view = memoryview(data)
    fields, rest = view[: _FIELDS.size], view[PREFIX_BYTES:]
    if not is_proved and sha256(fields, rest).digest() != view[_FIELDS.size : PREFIX_BYTES]:
        raise FormatError("the record is damaged: its SHA-256 doesn't match")
    parts_at = PREFIX_BYTES + prefix.header_bytes
    recipe_at = parts_at + prefix.parts_bytes
    payload_at = recipe_at + prefix.recipe_bytes
    try:
        header = _read_json(view[PREFIX_BYTES:parts_at])
        artifact = _artifact(header, bytes(view[payload_at:]))
        made = object.__new__(EntryRecord)
        made.__dict__.update(
            digest=digest,
            work=_text(header["work"]),
            artifact=artifact,
            make_ms=float(header["make_ms"]),
            made_s=int(header["made_s"]),
            _parts=bytes(view[parts_at:recipe_at]),
            recipe=bytes(view[recipe_at:payload_at]),
        )
    except _NO_HEADER as e:
        raise FormatError(f"the record header is invalid: {e}") from e
    _check_payload(artifact.kind, artifact.data)
    return made


def hit_of(data: bytes | memoryview, digest: str, *, is_proved: bool = False) -> tuple[Artifact, float]:
    """Read the parts of a record that a hit needs, with the checks of ``decode``: the Artifact and its compile time.

    Raises:
        FormatError: as ``decode``.
    """
    native = LOADED.get("record")
    for is_last in (False, True) if native else ():
        found = native(data, digest, is_proved, _READ)  # type: ignore[misc]
        if found:
            return _hit(found)
        if not is_last:
            _learn(data)
    record = decode(data, digest, is_proved=is_proved)
    return record.artifact, record.make_ms


def _hit(found: tuple[dict[str, Any], str, float, int]) -> tuple[Artifact, float]:
    fields, _, make_ms, _ = found
    if fields["kind"] is not ImageKind.CUBIN:
        _check_payload(fields["kind"], fields["data"])
    return unchecked(fields), make_ms


def entry_of(path: str, digest: str, trust: bytes, flags: int) -> tuple[Artifact, float, int, int] | None:
    """Read and prove a record in a file by native code, if only those who are trusted can have written the file.

    Args:
        path: the path of the file.
        digest: the digest of the record's key.
        trust: whom to trust, as ``Trust.words``.
        flags: what to open the file with.

    Return the Artifact, how long it took to make, the size in bytes, and the time of the file's last use. None leaves
    the file to Python.
    """
    native = LOADED.get("entry")
    found = native and native(path, digest, _READ, trust, flags)
    if not found:
        return None
    record, size_bytes, used_s = found
    with contextlib.suppress(FormatError):
        return (*_hit(record), size_bytes, used_s)
    return None


_READ: dict[bytes, object] = {}
"""Kinds, architectures and signatures as headers spell them, for native code, which reads no others."""
_MOST_READ = 1024


def _learn(data: bytes | memoryview) -> None:
    """Remember the spellings in a header. Native code leaves headers with other spellings to Python."""
    try:
        header = str(data[PREFIX_BYTES : PREFIX_BYTES + _prefix(data).header_bytes], "utf-8")
    except (FormatError, ValueError):
        return
    if len(_READ) >= _MOST_READ:
        _READ.clear()
    _READ.update({f'"kind":"{name}"'.encode(): kind for name, kind in _KINDS.items()})
    with contextlib.suppress(*_NO_HEADER):
        at, value = _spelled(header, '"arch":', 0)
        _READ[b'"arch":' + value] = None if value == b"null" else _read_arch(*only_value(value.decode()))
        at = header.index('"signatures":[', at)
        while True:
            at = header.index('["', at) + 1
            _, at = value_at(header, at)
            at, value = _spelled(header, ",", at)
            _READ[value] = _read_signature(tuple(map(tuple, only_value(value.decode()))))


def _spelled(header: str, before: str, at: int) -> tuple[int, bytes]:
    """Return where the value after ``before`` ends, and how it is spelled."""
    begin = header.index(before, at) + len(before)
    _, end = value_at(header, begin)
    return end, header[begin:end].encode()


def unread(data: bytes | memoryview, digest: str) -> Artifact:
    """Return the Artifact of a verified record. The record is read when the Artifact is first accessed.

    To hold a thousand kernels then takes little more than to prove them. What nobody but its maker could have written,
    a header that is none in a record whose SHA-256 is right, is a FormatError at that first look.

    Raises:
        FormatError: it is of another version, or answers another key.
    """
    if data[_DIGEST_AT : _FIELDS.size] != bytes.fromhex(digest):
        _prefix_of(data, digest)  # which says what it is
    artifact = object.__new__(_Unread)
    object.__setattr__(artifact, "unread", (data, digest))
    return artifact


class _Unread(Artifact):
    """An unread Artifact. It becomes an Artifact when an attribute is first accessed."""

    def __getattribute__(self, name: str) -> Any:
        kept = object.__getattribute__(self, "__dict__")
        if record := kept.get("unread"):
            kept.update(hit_of(*record, is_proved=True)[0].__dict__)
            object.__setattr__(self, "__class__", Artifact)
            kept.pop("unread", None)  # the last: a second thread finds either this or all the rest
        return getattr(self, name)


def head_bytes(prefix: bytes | memoryview) -> int:
    """Return the number of bytes that ``peek`` needs, from the first ``PREFIX_BYTES`` of a record.

    Raises:
        FormatError: the bytes are not the beginning of a record.
    """
    fields = _prefix(prefix)
    return PREFIX_BYTES + fields.header_bytes + fields.parts_bytes


def peek(head: bytes | memoryview) -> tuple[Summary, tuple[Part, ...]]:
    """Read the part of a record before the image without verification, for lists and explanations.

    Raises:
        FormatError: the bytes are not the beginning of a record.
    """
    prefix = _prefix(head)
    parts_at = PREFIX_BYTES + prefix.header_bytes
    try:
        header = _read_json(head[PREFIX_BYTES:parts_at])
        known = _artifact(header, b"")
        parts = tuple(_read_parts(bytes(head[parts_at : parts_at + prefix.parts_bytes])))
        summary = Summary(
            prefix.digest.hex(), _text(header["work"]), known.kind, known.arch, known.name, known.tool,
            tuple(known.names), prefix.payload_bytes, float(header["make_ms"]), int(header["made_s"]),
            prefix.recipe_bytes,
        )  # fmt: skip
    except _NO_HEADER as e:
        raise FormatError(f"the record header is invalid: {e}") from e
    return summary, parts


def _prefix_of(data: bytes | memoryview, digest: str) -> _Prefix:
    """Read the prefix of a record that should be whole and answer the key ``digest``."""
    prefix = _prefix(data)
    if prefix.digest != bytes.fromhex(digest):
        raise FormatError(f"the record has the key {prefix.digest.hex()}, expected {digest}")
    if prefix.total_bytes != len(data):
        raise FormatError(f"the record is {len(data)} bytes long, but its prefix declares {prefix.total_bytes} bytes")
    return prefix


def _prefix(data: bytes | memoryview) -> _Prefix:
    if len(data) < PREFIX_BYTES:
        raise FormatError(
            f"the record is truncated: it is {len(data)} bytes long, but the prefix alone is {PREFIX_BYTES} bytes"
        )
    magic, version, header, parts, recipe, payload, digest = _FIELDS.unpack_from(data)
    if magic != _MAGIC:
        raise FormatError(f"the data is not a cache record: it begins with {spell(magic)}", offset=0)
    if version != VERSION:
        raise FormatError(f"the record has format version {version}, but this cujit reads version {VERSION}", offset=8)
    total = PREFIX_BYTES + header + parts + recipe + payload
    if total > MAX_RECORD_BYTES:
        raise FormatError(f"the record declares {total} bytes; the maximum is {MAX_RECORD_BYTES}")
    fields = header, parts, recipe, payload, digest, total
    return tuple.__new__(_Prefix, fields)  # start-up: no method is written for it


def _json(value: object) -> bytes:
    # ASCII alone, so that a lone surrogate of a path that is no UTF-8 comes back as it was.
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii")


def _read_json(data: bytes | memoryview) -> Any:
    return only_value(str(data, "utf-8"))


def _check_payload(kind: ImageKind, data: bytes) -> None:
    """Check that an image matches its record, by its first bytes or its first significant line."""
    if kind is ImageKind.PTX and _begins_as_ptx(data):
        return
    try:
        found = kind_of(data[: data.rfind(b"\n", 0, _HEAD_BYTES) + 1] if kind in _TEXT else data)
    except FormatError:
        found = kind_of(data)
    if found is not kind:
        raise FormatError(f"the record declares {kind.value}, but contains {found.value}")


def _begins_as_ptx(data: bytes) -> bool:
    """Return whether only comments precede ``.version``, as in PTX from NVRTC. ``kind_of`` then returns PTX."""
    end = data.find(b"\n.version ", 0, _HEAD_BYTES)
    return end >= 0 and b"\0" not in data[:_HEAD_BYTES] and _is_comment(data[:end])


@functools.lru_cache(16)  # every kernel that a compiler wrote has the same
def _is_comment(head: bytes) -> bool:
    return head.isascii() and all(
        not line or (line.startswith("//") and line.isprintable()) for line in head.decode("ascii").split("\n")
    )


def _header(key: Key, artifact: Artifact, make_ms: float, made_s: int) -> dict[str, object]:
    arch = artifact.arch
    return {
        "work": key.kind,
        "kind": artifact.kind.value,
        "arch": arch and [arch.kind.value, arch.number, arch.suffix],
        "names": [[_text(a), _text(b)] for a, b in artifact.names.items()],
        "signatures": [[_text(n), [_parameter(p) for p in s.parameters]] for n, s in artifact.signatures.items()],
        "log": _text(artifact.log),
        "name": _text(artifact.name),
        "tool": _text(artifact.tool),
        "make_ms": make_ms,
        "made_s": made_s,
    }


def _artifact(header: dict[str, Any], data: bytes) -> Artifact:
    arch = header["arch"]
    signatures = {name: _read_signature(tuple(map(tuple, rows))) for name, rows in header["signatures"]}
    names = dict(header["names"])
    texts = header["log"], header["name"], header["tool"]
    for text in (*texts, *signatures, *names, *names.values()):
        if type(text) is not str:
            raise TypeError(f"expected text, not {spell(text)}")
    log, name, tool = texts
    return unchecked({
        "kind": _KINDS[header["kind"]],
        "data": data,
        "arch": None if arch is None else _read_arch(*arch),
        "names": MappingProxyType(names),
        "signatures": MappingProxyType(signatures),
        "log": log,
        "name": name,
        "tool": tool,
        "provenance": None,
        "places": (),
    })  # fmt: skip


@functools.lru_cache(typed=True)
def _read_arch(kind: str, number: int, suffix: str) -> Arch:
    return Arch(ArchKind(kind), number, suffix)


def _parameter(p: Parameter) -> list[object]:
    return [p.kind.value, p.size, p.align, p.type, p.pointee, p.offset]


@functools.lru_cache(1024, typed=True)  # kernels take much the same
def _read_signature(rows: tuple[tuple[Any, ...], ...]) -> Signature:
    return Signature(tuple(starmap(_read_parameter, rows)))


def _read_parameter(kind: str, size: int, align: int, type: str, pointee: str, offset: int | None) -> Parameter:
    return Parameter(ParameterClass(kind), int(size), int(align), _text(type), _text(pointee), offset and int(offset))


def _read_parts(data: bytes) -> list[Part]:
    try:
        rows = json.loads(data)
        return [Part(_text(label), _text(value), None if size is None else int(size)) for label, value, size in rows]
    except (TypeError, ValueError, OverflowError, RecursionError) as e:
        raise FormatError(f"the key parts in the record are invalid: {e}") from e


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, not {spell(value)}")
    return value
