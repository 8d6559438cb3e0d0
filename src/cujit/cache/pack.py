"""Packs: many records in one file, which is never changed: for wheels, and for what many processes read.

::

    head (192 bytes)   magic, version, how many closures, records and requests, the size of the file, SHA-256 of the
                       tables, and the ids of up to three keys that signed what was pulled; then 24 bytes of 0
    index              per record, by digest: digest, SHA-256 of its bytes as they lie here, where, how many, unpacked
    requests           per request, by digest: digest, and that of the key which answers it; or the digest of a search
                       for headers, and that of the closure which it found
    closures           as the index: per closure its SHA-256 and where it lies
    records            as ``record`` writes them, then closures; or that in one frame of zstd; each at a multiple of 8

Numbers are little-endian. The same records make the same bytes. A pack is written whole and put in its place by a
rename: who has the old one open goes on with it.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import struct
import sys
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path

from cujit.artifact import ImageKind, kind_of
from cujit.artifact.reading import file_errors
from cujit.artifact.writing import replacing
from cujit.cache.filesystem import OpenFile, UntrustedFileError, open_trusted
from cujit.cache.key import Key, Part
from cujit.cache.record import (
    MAX_RECORD_BYTES,
    PORTABLE,
    PREFIX_BYTES,
    EntryRecord,
    Summary,
    decode,
    encode,
    head_bytes,
    hit_of,
    peek,
    unread,
)
from cujit.cache.store import Explanation, Hit, Lookup, Root, StoreEntry, nearest
from cujit.cache.trust import Trust
from cujit.errors import CacheRefusedError, FormatError, spell
from cujit.values import NamedTuple, replace
from cujit.values.hashing import sha256
from cujit.values.typed import Any, BinaryIO, TypeAlias

_VERSION = 1
_MAGIC = b"\x93cujitP\n"  # not ASCII, and broken by a transfer that changes line ends
_HEAD = struct.Struct("<8sII QQQ 32s 32s32s32s 24x")
HEAD_BYTES = _HEAD.size
_ROW = struct.Struct("<32s32sQII")
_REQUEST = struct.Struct("<32s32s")
_DIGEST_BYTES = 32
_SIGNERS_AT, _MOST_SIGNERS = 72, 3
_ALIGNMENT = 8
_LEVEL = 19
"""Of zstd: packs are made once and read often; what is unpacked does not depend on it."""

_Fields: TypeAlias = tuple[bytes, bytes, int, int, int]


class _PackRow(NamedTuple):
    digest: bytes
    sha256: bytes
    at: int
    stored_bytes: int
    record_bytes: int


class PackStats(NamedTuple):
    """Contents of a pack: ``records`` of ``record_bytes`` that occupy ``stored_bytes`` of ``file_bytes``.

    ``closures`` are results of header searches. ``requests`` map to a record or a closure.
    """

    records: int
    requests: int
    closures: int
    record_bytes: int
    stored_bytes: int
    file_bytes: int


class Pack:
    """A pack as a read-only root. The file is opened on first use, and stays open.

    The SHA-256 in the index verifies each record, and the SHA-256 in the head verifies the index. ``Trust`` checks who
    may have written the file, as for a directory. For a pulled pack, the signing keys must still be trusted.
    """

    writable = False

    def __init__(
        self, path: Path | str, trust: Trust, objection_to: Callable[[Sequence[str]], str] | None = None
    ) -> None:
        """Set the path of the file, which may not exist yet.

        ``objection_to(signers)`` returns why the keys that signed a pulled pack aren't trusted. None trusts all keys.
        """
        self.root, self.place = Path(path), str(path)
        self.trust = trust
        self._objection_to = objection_to
        self._opened: _Opened | None = None
        self._is_refused = False

    def is_there(self) -> bool:
        """Return whether there is a pack. A pack that is refused raises once, and counts as missing from then on.

        Raises:
            CacheRefusedError: it is damaged, of another version, or others could have written it; or it was pulled, and
                a key that signed it is no longer believed.
            OSError: it cannot be opened.
        """
        return self._tables() is not None

    def has(self, digest: str) -> bool:
        """Return whether there is a record for a key, without reading it.

        Raises:
            CacheRefusedError, OSError: as ``is_there``.
        """
        tables = self._tables()
        return tables is not None and tables.row(digest) is not None

    def get(self, digest: str) -> Lookup:
        """Read and prove the record of a key.

        Raises:
            CacheRefusedError, OSError: as ``is_there``.
        """
        try:
            data = self._proved(digest)
            return Lookup(decode(data, digest, is_proved=True), len(data)) if data else Lookup()
        except FormatError as e:
            return Lookup(damage=f"{self.root}: {e}")

    def find(self, digest: str, *, is_read: bool = False) -> Hit:
        """Verify the record of a key. Its data is read when the Artifact is first used. Packs store no times.

        Raises:
            CacheRefusedError, OSError: as ``is_there``.
        """
        try:
            data = self._proved(digest)
            if not data:
                return Hit()
            artifact = hit_of(data, digest, is_proved=True)[0] if is_read else unread(data, digest)
            return tuple.__new__(Hit, (artifact, 0.0, len(data), ""))  # start-up: no method is written
        except FormatError as e:
            return Hit(damage=f"{self.root}: {e}")

    def _proved(self, digest: str, is_again: bool = False) -> bytes | memoryview:
        """Read and verify a record. Return None if there is no such key."""
        tables = self._opened or self._tables()
        row = None if tables is None else tables.row(digest)
        if tables is None or row is None:
            return b""
        try:
            return tables.record(row)
        except (OSError, FormatError):
            if is_again:
                raise
            # Opened anew, it is read in pieces again: there may be no memory for all of it, or a daemon has closed all
            # descriptors, and another file has ours now.
            self._opened = None
            return self._proved(digest, is_again=True)

    def key_of(self, request: str) -> str | None:
        """Return the digest of the key for a request, by the request's digest, or None.

        Raises:
            CacheRefusedError, OSError: as ``is_there``.
        """
        tables = self._tables()
        return None if tables is None else next((key.hex() for key in tables.answers_to(request)), None)

    def closures(self, search: str) -> Iterator[bytes]:
        """Yield the results of a header search when the pack was built, by the digest of the search.

        There can be several, for headers of several releases. Damaged results are skipped.

        Raises:
            CacheRefusedError, OSError: as ``is_there``.
        """
        tables = self._tables()
        if tables is None:
            return
        for digest in tables.answers_to(search):
            row = tables.closure(digest)
            with contextlib.suppress(FormatError):
                if row is not None:
                    yield bytes(tables.record(row))

    def answers(self) -> tuple[set[tuple[str, str]], dict[str, bytes]]:
        """Return every row of the requests, and every closure by its SHA-256, for another pack.

        Raises:
            CacheRefusedError, OSError: as ``is_there``.
            FormatError: a closure is damaged.
        """
        tables = self._tables()
        if tables is None:
            return set(), {}
        found = {row.digest.hex(): bytes(tables.record(row)) for row in tables.closures()}
        return {(request.hex(), answer.hex()) for request, answer in tables.answers()}, found

    def entries(self) -> Iterator[StoreEntry]:
        """List the records, by digest; they count as used when the pack was written.

        Raises:
            CacheRefusedError, OSError: as ``is_there``.
        """
        tables = self._tables()
        if tables is not None:
            for row in tables.rows():
                yield StoreEntry(row.digest.hex(), row.stored_bytes, tables.written_s)

    def peek(self, digest: str) -> tuple[Summary, tuple[Part, ...]] | None:
        """Read the summary of a record without verification. Return None if there is no record or it is damaged.

        Raises:
            CacheRefusedError, OSError: as ``is_there``.
        """
        tables = self._tables()
        row = None if tables is None else tables.row(digest)
        if tables is None or row is None:
            return None
        with contextlib.suppress(FormatError):
            summary, parts = peek(tables.head(row))
            return (summary, parts) if summary.digest == digest else None
        return None

    def why(self, key: Key) -> Explanation | None:
        """Return the record of the same kind of work with the fewest different inputs.

        Raises:
            CacheRefusedError, OSError: as ``is_there``.
        """
        return nearest(self, key)

    def signers(self) -> tuple[str, ...]:
        """Return the ids of the keys that signed a pulled pack. A pack that was built here has none.

        Raises:
            CacheRefusedError, OSError: as ``is_there``.
        """
        tables = self._tables()
        return () if tables is None else tables.signers

    def stats(self) -> PackStats:
        """Return the numbers of records, closures, requests, and bytes.

        Raises:
            CacheRefusedError, OSError: as ``is_there``.
            FileNotFoundError: the file doesn't exist.
        """
        tables = self._require()
        return _stats(list(tables.rows()), tables.requests, tables.count_of_closures, tables.size)

    def verify(self) -> Iterator[tuple[str, str]]:
        """Read every record, and yield each digest with a description of its damage, or an empty string.

        This checks more than a look-up does: the parts of a record hash to its key, the tables are sorted, records
        don't overlap, and every request names a record.

        Raises:
            CacheRefusedError, OSError: as ``is_there``.
            FileNotFoundError: the file doesn't exist.
        """
        tables = self._require()
        rows, closures = list(tables.rows()), list(tables.closures())
        overlapping = _overlapping(tables.records_at, [*rows, *closures])
        for table, fault_of in ((rows, tables.fault), (closures, tables.fault_of_closure)):
            last = b""
            for row in table:
                fault = "the index is not sorted here" if row.digest <= last else fault_of(row)
                if not fault and row.digest in overlapping:
                    fault = "the record overlaps another record"
                last = row.digest
                yield row.digest.hex(), fault
        yield from _false_answers(tables.answers(), {row.digest for row in (*rows, *closures)})

    def _require(self) -> _Opened:
        tables = self._tables()
        if tables is None:
            raise FileNotFoundError(2, "this pack doesn't exist", str(self.root))
        return tables

    def _tables(self) -> _Opened | None:
        if self._opened is None and not self._is_refused:
            try:
                self._opened = self._open()
            except FileNotFoundError:
                return None
            except (UntrustedFileError, FormatError) as e:
                self._is_refused = True
                raise CacheRefusedError(f"can't use the pack {self.root}: {e}", help=_help(e)) from e
            except CacheRefusedError:
                self._is_refused = True
                raise
        return self._opened

    def _open(self) -> _Opened:
        self.trust.check_root(self.root.parent)
        fd, status = open_trusted(self.root, self.trust)
        file = OpenFile(fd, status)
        self._check_whole(file, status)
        opened = _Opened(file, status)
        if self._objection_to and opened.signers and (objection := self._objection_to(opened.signers)):
            raise CacheRefusedError(
                f"can't use the pack {self.root}: {objection}",
                help=f"delete {self.root}, or replace it by a pack that a trusted key signed",
            )
        return opened

    def _check_whole(self, file: OpenFile, status: os.stat_result) -> None:
        """Raise FormatError if the file isn't the expected one. Subclasses that know its digest override this."""


def open_verified(path: Path, objection_to: Callable[[Sequence[str]], str] | None = None) -> Pack:
    """Open a pack, and prove every record; ``objection_to`` is as of ``Pack``.

    Raises:
        FormatError: a record is damaged.
        CacheRefusedError, OSError: as ``Pack.is_there``.
        FileNotFoundError: it is not there.
    """
    pack = Pack(path.absolute(), Trust.of_process(), objection_to)
    for digest, fault in pack.verify():
        if fault:
            raise FormatError(f"{path}: the record {digest[:12]} is damaged: {fault}")
    return pack


class _Opened:
    """The tables of an open pack. Each offset in them is checked before it is read."""

    def __init__(self, file: OpenFile, status: os.stat_result) -> None:
        self.size, self.written_s = status.st_size, status.st_mtime
        self._file = file
        head = file.read(0, HEAD_BYTES)
        if len(head) < HEAD_BYTES:
            raise FormatError(
                f"the pack is truncated: it is {len(head)} bytes long, but the header alone is {HEAD_BYTES} bytes"
            )
        magic, version, self.count_of_closures, self.records, self.requests, size, seal, *_ = _HEAD.unpack(head)
        self.signers = signers_in(head)
        if magic != _MAGIC:
            raise FormatError(f"the file is not a pack: it begins with {spell(bytes(head[:8]))}", offset=0)
        if version != _VERSION:
            raise FormatError(
                f"the pack has format version {version}, but this cujit reads version {_VERSION}", offset=8
            )
        if size != self.size:
            raise FormatError(f"the pack is {self.size} bytes long, but its header declares {size} bytes")
        ends = [HEAD_BYTES + self.records * _ROW.size]
        ends.append(ends[0] + self.requests * _REQUEST.size)
        self.records_at = ends[1] + self.count_of_closures * _ROW.size
        if self.records_at > self.size:
            raise FormatError(f"the pack is {self.size} bytes long, but its tables would end at byte {self.records_at}")
        if self.records_at > MAX_RECORD_BYTES:
            raise FormatError(f"the tables of the pack end at byte {self.records_at}; the limit is {MAX_RECORD_BYTES}")
        tables = file.read(HEAD_BYTES, self.records_at - HEAD_BYTES)
        if sha256(tables).digest() != seal:
            raise FormatError("the pack is damaged: the SHA-256 of its tables doesn't match")
        first, second = (end - HEAD_BYTES for end in ends)
        self._index = _PackTable(tables[:first], _ROW)
        self._answers = _PackTable(tables[first:second], _REQUEST)
        self._closures = _PackTable(tables[second:], _ROW)

    def row(self, digest: str) -> _Fields | None:
        row: _Fields | None = self._index.first(bytes.fromhex(digest))
        return row

    def closure(self, digest: bytes) -> _Fields | None:
        row: _Fields | None = self._closures.first(digest)
        return row

    def answers_to(self, request: str) -> Iterator[bytes]:
        return (answer for _, answer in self._answers.of(bytes.fromhex(request)))

    def rows(self) -> Iterator[_PackRow]:
        return map(_PackRow._make, self._index)

    def closures(self) -> Iterator[_PackRow]:
        return map(_PackRow._make, self._closures)

    def answers(self) -> Iterator[tuple[bytes, bytes]]:
        return iter(self._answers)

    def record(self, row: _Fields) -> bytes | memoryview:
        """Read and verify the bytes of a record.

        Raises:
            FormatError: the bytes don't match the index, or are invalid in a pack.
            OSError: the bytes can't be read.
        """
        digest, proof, at, stored_bytes, record_bytes = row
        if at < self.records_at or at + stored_bytes > self.size or record_bytes > MAX_RECORD_BYTES:
            raise FormatError(
                f"the pack is {self.size} bytes long, but its index lists {stored_bytes} bytes at {at}: {digest.hex()}"
            )
        stored = self._file.read(at, stored_bytes)
        if sha256(stored).digest() != proof:
            raise FormatError("the record is damaged: its SHA-256 doesn't match the index")
        return stored if stored_bytes == record_bytes else _unpacked(stored, record_bytes)

    def head(self, row: _Fields) -> bytes | memoryview:
        """Read the part of a record before its image. It is verified only if the record is compressed.

        Raises:
            FormatError, OSError: as ``record``.
        """
        _, _, at, stored_bytes, record_bytes = row
        if stored_bytes != record_bytes:
            data = self.record(row)
            return data[: head_bytes(data)]
        return self._file.read(at, head_bytes(self._file.read(at, PREFIX_BYTES)))

    def fault(self, row: _PackRow) -> str:
        try:
            decode(self.record(row), row.digest.hex()).key()
        except FormatError as e:
            return e.message
        return ""

    def fault_of_closure(self, row: _PackRow) -> str:
        try:
            return "" if sha256(self.record(row)).digest() == row.digest else "its SHA-256 doesn't match"
        except FormatError as e:
            return e.message


class _PackTable:
    """Rows of one size, a multiple of 8, sorted by the digests that they begin with."""

    def __init__(self, rows: memoryview, row: struct.Struct) -> None:
        self._rows = rows
        self._row = row
        self._begins = array("Q", rows.cast("Q")[:: row.size // 8].tobytes())  # 8 bytes of each tell nearly all apart
        if sys.byteorder == "little":
            self._begins.byteswap()  # digests are in the order of their bytes: a number of which the first counts most

    def __iter__(self) -> Iterator[Any]:
        # Not iter_unpack: CPython ends at the collection of its iterator in a cycle with the memoryview.
        return map(self._row.unpack_from, itertools.repeat(self._rows), range(0, self._rows.nbytes, self._row.size))

    def first(self, digest: bytes) -> Any:
        """Return the first row with a digest, or None."""
        number = bisect_left(self._begins, int.from_bytes(digest[:8], "big"))
        if number < len(self._begins):
            fields = self._row.unpack_from(self._rows, number * self._row.size)
            if fields[0] == digest:
                return fields
        return next(self.of(digest), None)  # there is none, but where others have the same 8 bytes

    def of(self, digest: bytes) -> Iterator[Any]:
        """Yield the rows of a digest."""
        rows, row, begins = self._rows, self._row, self._begins
        begin = int.from_bytes(digest[:8], "big")
        for number in range(bisect_left(begins, begin), len(begins)):
            fields = row.unpack_from(rows, number * row.size)
            if fields[0] == digest:
                yield fields
            elif begins[number] != begin:
                break


def _overlapping(end: int, rows: Iterable[_PackRow]) -> set[bytes]:
    """Return the digests of rows that begin before ``end``, or before the end of an earlier row."""
    found = set()
    for at, stored, digest in sorted((row.at, row.stored_bytes, row.digest) for row in rows):
        if at < end:
            found.add(digest)
        end = max(end, at + stored)
    return found


def _false_answers(answers: Iterable[tuple[bytes, bytes]], known: Set[bytes]) -> Iterator[tuple[str, str]]:
    before = (b"", b"")
    for pair in answers:
        if pair <= before:
            yield pair[1].hex(), "the requests are not sorted here"
        elif pair[1] not in known:
            yield pair[1].hex(), "a request refers to it, but it is missing"
        before = pair


def _stats(rows: Sequence[_PackRow], requests: int, closures: int, file_bytes: int) -> PackStats:
    sizes = sum(row.record_bytes for row in rows), sum(row.stored_bytes for row in rows)
    return PackStats(len(rows), requests, closures, *sizes, file_bytes)


def _unpacked(stored: memoryview, size: int) -> bytes:
    import zstandard  # start-up time: most packs hold records as they are

    try:
        data = zstandard.ZstdDecompressor().decompress(stored, max_output_size=size)
    except (zstandard.ZstdError, MemoryError) as e:
        raise FormatError(f"can't decompress a record: {e}") from e
    if len(data) != size:
        raise FormatError(f"a record should decompress to {size} bytes, but decompressed to {len(data)} bytes")
    return data


def _help(error: Exception) -> str:
    return "make it again" if isinstance(error, FormatError) else "run chmod go-w on the pack, or use your own pack"


# -- writing -----------------------------------------------------------------------------------------------


@file_errors()
def write_pack(
    path: Path,
    roots: Sequence[Root],
    *,
    wanted: Sequence[str] | None = None,
    requests: Mapping[str, str] | None = None,
    closures: Mapping[str, bytes] | None = None,
    compress: bool = False,
    with_recipes: bool = False,
    made_s: int = 0,
) -> PackStats:
    """Write a pack of records out of caches and other packs, and put it in its place whole.

    What other packs know of requests goes with their records, and all of their closures where nothing is ``wanted``.

    Args:
        path: the file; its name ends in ``.pack``.
        roots: where records are looked for, in this order.
        wanted: the digests of their keys; None takes all that can be used on another machine.
        requests: digests of requests, and for each the digest of the key that answers it.
        closures: digests of searches for headers, and for each what it found, as ``KeyMaker.closures`` gives them.
        compress: whether each record is packed by zstd where that makes it smaller. 1,000 kernels of 10 kB take a third
            of the room then, and two to three times as long to find (``benchmarks/ranks.py``); but a wheel, which is
            packed anyway, gets only a tenth smaller. So it is not the default.
        with_recipes: keep sources and the compilers' logs, which hold paths of the machine that they were made on.
        made_s: the Unix time that is noted as when they were made; 0 makes the same bytes whenever it is done.

    Raises:
        FormatError: a record that is wanted is not there or damaged; or two roots have different images for one key.
        CacheRefusedError: others could have written to a root.
        FileError: a root cannot be read, or the file not be written.
    """
    digests = portable(roots) if wanted is None else set(wanted)
    answers = set((requests or {}).items())
    if missing := {key for _, key in answers} - digests:
        raise FormatError(f"a request refers to {min(missing)}, which is not a record in the pack")
    searches = {search: (sha256(data).hexdigest(), data) for search, data in (closures or {}).items()}
    answers |= {(search, digest) for search, (digest, _) in searches.items()}
    found = dict(searches.values())
    for root in roots:
        if isinstance(root, Pack):
            others, theirs = root.answers()
            found |= theirs if wanted is None else {}
            answers |= {pair for pair in others if pair[1] in found or pair[1] in digests}
    signers = signed_by(*(signer for root in roots if isinstance(root, Pack) for signer in root.signers()))
    normalised = functools.partial(_normalised, roots, made_s=made_s, with_recipes=with_recipes)
    with replacing(path, mode=0o644) as file:  # whatever the umask is: others read a pack, and nobody writes to it
        stats = _write(file, sorted(digests), normalised, sorted(answers), sorted(found.items()), compress=compress)
        name_signers(file, signers)
        return stats


def signed_by(*signers: str) -> list[str]:
    """Return the distinct ids of keys in their order, as a pack stores them.

    Raises:
        FormatError: there are more ids than a pack has space for.
    """
    found = sorted(set(signers))
    if len(found) > _MOST_SIGNERS:
        raise FormatError(
            f"{len(found)} keys signed what is in this pack, but a pack can name only {_MOST_SIGNERS} keys",
            help="compile the worklist again with cujit pack build, and sign the new pack",
        )
    return found


def name_signers(file: BinaryIO, signers: Iterable[str]) -> None:
    """Write the ids of the signing keys into the head of a pack."""
    file.seek(_SIGNERS_AT)
    file.write(b"".join(map(bytes.fromhex, signers)))


def signers_in(head: bytes | memoryview) -> tuple[str, ...]:
    """Return the ids of the signing keys in the first bytes of a pack, or none if the head is incomplete."""
    if len(head) < HEAD_BYTES:
        return ()
    return tuple(signer.hex() for signer in _HEAD.unpack_from(head)[-_MOST_SIGNERS:] if any(signer))


def _write(
    file: BinaryIO,
    digests: Sequence[str],
    record_of: Callable[[str], bytes],
    answers: Sequence[tuple[str, str]],
    closures: Sequence[tuple[str, bytes]],
    *,
    compress: bool,
) -> PackStats:
    """Write the records, and then write the tables with their offsets before them."""

    def written(digest: str, record: bytes) -> _PackRow:
        stored = _packed(record) if compress else record
        file.write(bytes(-file.tell() % _ALIGNMENT))
        at = file.tell()
        file.write(stored)
        return _PackRow(bytes.fromhex(digest), sha256(stored).digest(), at, len(stored), len(record))

    file.seek(HEAD_BYTES + (len(digests) + len(closures)) * _ROW.size + len(answers) * _REQUEST.size)
    rows = [written(digest, record_of(digest)) for digest in digests]
    others = [written(digest, data) for digest, data in closures]
    size = file.tell()
    tables = b"".join(_ROW.pack(*row) for row in rows)
    tables += b"".join(_REQUEST.pack(bytes.fromhex(request), bytes.fromhex(answer)) for request, answer in answers)
    tables += b"".join(_ROW.pack(*row) for row in others)
    file.seek(0)
    seal = sha256(tables).digest()
    file.write(_HEAD.pack(_MAGIC, _VERSION, len(others), len(rows), len(answers), size, seal, b"", b"", b"") + tables)
    return _stats(rows, len(answers), len(others), size)


def portable(roots: Sequence[Root]) -> set[str]:
    """Return the keys of all entries that another machine could use. Raises the same errors as ``Root.entries``."""
    found = set()
    for root in roots:
        for entry in root.entries():
            head = root.peek(entry.digest)
            if head is not None and head[0].work in PORTABLE:
                found.add(entry.digest)
    return found


def _normalised(roots: Sequence[Root], digest: str, *, made_s: int, with_recipes: bool) -> bytes:
    """Return the record of a key without parts that differ between machines."""
    found: dict[bytes, Path] = {}
    damage = ""
    for root in roots:
        lookup = root.get(digest)
        damage = damage or lookup.damage
        if lookup.record is not None:
            found.setdefault(encoded_anew(lookup.record, made_s=made_s, with_recipes=with_recipes), root.root)
    if not found:
        raise FormatError(damage or f"{', '.join(str(r.root) for r in roots)} contains no record with the key {digest}")
    (record, first), *others = found.items()
    for other, root_path in others:
        image = _image(record, digest)
        if _image(other, digest) != image and kind_of(image) is not ImageKind.TUNING:  # of which the first is as good
            raise FormatError(f"{first} and {root_path} contain different images for the key {digest}")
    return record


def encoded_anew(record: EntryRecord, *, made_s: int, with_recipes: bool, make_ms: float = 0.0) -> bytes:
    """Return a record for other machines: without source, log, and paths, unless they are requested.

    Raises:
        FormatError: the parts don't match its key.
    """
    artifact = record.artifact
    if not with_recipes:  # who made it first called its source by a path of that machine
        artifact = replace(artifact, log="", name=os.path.basename(artifact.name))
    recipe = record.recipe if with_recipes else b""
    return encode(record.key(), artifact, make_ms=make_ms, made_s=made_s, recipe=recipe)


def _image(record: bytes, digest: str) -> bytes:
    return decode(record, digest).artifact.data


def _packed(record: bytes) -> bytes:
    import zstandard  # start-up: who reads packs needs the unpacker alone

    packed = zstandard.ZstdCompressor(level=_LEVEL, write_content_size=True).compress(record)
    return packed if len(packed) < len(record) else record
