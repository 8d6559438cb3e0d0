"""Saved launches: one file with a kernel's image and source, the sizes of a launch, its arguments and their memory.

::

    prefix (64 bytes)  magic, version, bytes of header and body as they lie here, of the body unpacked; SHA-256
    header             JSON: kernel, sizes, arguments; how long each piece of the body is
    body               one frame of zstd: images, sources, blocks of memory, variables

Numbers are little-endian. An argument is the bytes of its parameter, or a place in a block of memory: arrays that
share memory lie in one block. Every size is checked against what the file has before memory is taken for it, and
nothing in it is executed here.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from cujit.errors import CujitError, FormatError, spell
from cujit.formats.unpack import unpack_pieces
from cujit.values import NamedTuple, attributes, dataclass, field

VERSION = 1
MAX_BODY_BYTES = 1 << 30
"""The most that images, sources and memory may have together."""
MAX_HEADER_BYTES = 16 << 20
PREFIX_BYTES = 64
MAX_FILE_BYTES = PREFIX_BYTES + MAX_HEADER_BYTES + MAX_BODY_BYTES + (1 << 20)  # what cannot be packed grows a little

_MAGIC = b"\x93cujitL\n"  # not ASCII, and broken by a transfer that changes line ends
_FIELDS = struct.Struct("<8sIIQQ")
_LEVEL = 3
"""Of zstd: a launch is saved once and run a few times."""
_MOST_PARAMETER_BYTES = 32764
"""Source: CUDA C++ Programming Guide, "Kernel Parameters": 32,764 bytes in all."""
_MOST_SIZE = 1 << 31
_PLAIN = re.compile(r"[<|][biufc][0-9]{1,2}")
"""Element types that NumPy has of its own."""
_NO_HEADER = (LookupError, TypeError, ValueError, OverflowError, AttributeError, RecursionError)


class SavedPlace(NamedTuple):
    """Where an argument points: which block of memory, and how many bytes into it."""

    block: int
    offset: int


class SavedArgument(NamedTuple):
    """One argument: the bytes of its parameter, or the ``place`` that its pointer means.

    ``type`` is the parameter's as the source spells it. Of arrays, ``dtype`` is NumPy's code of the elements ("" where
    NumPy has none) and ``shape`` their number along each axis; ``shape`` is None of what is no array.
    """

    type: str
    data: bytes
    place: SavedPlace | None = None
    dtype: str = ""
    shape: tuple[int, ...] | None = None
    nbytes: int = 0


class SavedText(NamedTuple):
    """A source of the image: its name in line tables, its displayed name, and its text."""

    name: str
    shown: str
    text: str


class SavedBlock(NamedTuple):
    """Memory that arguments point into; ``skip`` is how far it began beyond a multiple of 256 bytes."""

    data: bytes
    skip: int = 0


class SavedVariable(NamedTuple):
    """A ``__device__`` or ``__constant__`` variable by its lowered name, and its bytes."""

    name: str
    data: bytes


@dataclass(frozen=True)
class SavedLaunch:
    """A launch that can be run again: what ``Launch.save`` writes, as a value.

    ``kernel`` is the name as the source spells it, ``lowered`` what the images call it; ``device`` is where it was
    saved. ``images`` are in the order in which a GPU tries them; the CPU device takes the last that has PTX.

    Example::

        saved = cujit.reproducer.open("bug.launch")
        print(saved.kernel, saved.grid, saved.block)
    """

    kernel: str
    lowered: str
    device: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0
    cluster: tuple[int, int, int] | None = None
    cooperative: bool = False
    arguments: tuple[SavedArgument, ...] = ()
    images: tuple[bytes, ...] = field(default=(), repr=False)
    texts: tuple[SavedText, ...] = field(default=(), repr=False)
    memory: tuple[SavedBlock, ...] = field(default=(), repr=False)
    variables: tuple[SavedVariable, ...] = field(default=(), repr=False)

    @property
    def memory_bytes(self) -> int:
        """Bytes of all memory that the arguments point into."""
        return sum(len(block.data) for block in self.memory)


# -- writing ------------------------------------------------------------------------------------------------


def write_saved(saved: SavedLaunch) -> bytes:
    """Write the file.

    Raises:
        FormatError: it holds more than ``MAX_BODY_BYTES``.
    """
    import zstandard  # start-up: for who saves

    texts = [text.text.encode("utf-8", "replace") for text in saved.texts]
    memory, variables = (block.data for block in saved.memory), (variable.data for variable in saved.variables)
    pieces = [*saved.images, *texts, *memory, *variables]
    size = sum(map(len, pieces))
    if size > MAX_BODY_BYTES:
        raise FormatError(
            f"{saved.kernel} and its arguments need {size:,} bytes; a saved launch can contain at most "
            f"{MAX_BODY_BYTES:,}",
            help="launch the kernel with fewer elements, if the failure still occurs",
        )
    header = json.dumps(_header(saved, [len(text) for text in texts]), separators=(",", ":")).encode("ascii")
    if len(header) > MAX_HEADER_BYTES:
        raise FormatError(
            f"{saved.kernel}: the header is {len(header):,} bytes long; the maximum is {MAX_HEADER_BYTES:,}"
        )
    body = zstandard.ZstdCompressor(level=_LEVEL, write_content_size=True).compress(b"".join(pieces))
    fields = _FIELDS.pack(_MAGIC, VERSION, len(header), len(body), size)
    return b"".join((fields, _digest(fields, header, body), header, body))


def _header(saved: SavedLaunch, texts: Sequence[int]) -> dict[str, object]:
    return {
        **attributes(saved, "kernel lowered device grid block shared_bytes cluster cooperative"),
        "arguments": [
            {**argument._asdict(), "data": argument.data.hex(), "place": argument.place and [*argument.place]}
            for argument in saved.arguments
        ],
        "images": [len(image) for image in saved.images],
        "texts": [[text.name, text.shown, size] for text, size in zip(saved.texts, texts, strict=True)],
        "memory": [[len(block.data), block.skip] for block in saved.memory],
        "variables": [[variable.name, len(variable.data)] for variable in saved.variables],
    }


def _digest(*pieces: bytes | memoryview) -> bytes:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.digest()


# -- reading ------------------------------------------------------------------------------------------------


def is_saved(begin: bytes) -> bool:
    """Return whether a file is a saved launch, by its first bytes."""
    return begin.startswith(_MAGIC)


def read_saved(data: bytes) -> SavedLaunch:
    """Read the file. Every size is checked before it is used.

    Raises:
        FormatError: the file is not a saved launch, or is damaged, truncated, contradictory, or of another version.
    """
    if len(data) < PREFIX_BYTES:
        raise FormatError(
            f"the saved launch is truncated: it is {len(data)} bytes long, but the prefix alone is {PREFIX_BYTES} bytes"
        )
    magic, version, header_bytes, packed_bytes, size = _FIELDS.unpack_from(data)
    if magic != _MAGIC:
        raise FormatError(f"the data is not a saved launch: it begins with {spell(magic)}", offset=0)
    if version != VERSION:
        raise FormatError(
            f"the saved launch has format version {version}, but this cujit reads version {VERSION}", offset=8
        )
    total = PREFIX_BYTES + header_bytes + packed_bytes
    if total != len(data):
        raise FormatError(f"the saved launch is {len(data):,} bytes long, but declares {total:,} bytes")
    if header_bytes > MAX_HEADER_BYTES or size > MAX_BODY_BYTES:
        raise FormatError(
            f"the saved launch declares {header_bytes:,} and {size:,} bytes; the limits are "
            f"{MAX_HEADER_BYTES:,} and {MAX_BODY_BYTES:,}"
        )
    body_at = PREFIX_BYTES + header_bytes
    view = memoryview(data)
    if _digest(view[: _FIELDS.size], view[PREFIX_BYTES:]) != view[_FIELDS.size : PREFIX_BYTES]:
        raise FormatError("the saved launch is damaged: its SHA-256 doesn't match")
    try:
        header = json.loads(data[PREFIX_BYTES:body_at])
        sizes = _sizes(header)
        if sum(sizes) != size:
            raise ValueError(f"the pieces are {sum(sizes):,} bytes long, but the body is {size:,}")
        return _read(header, list(unpack_pieces(data[body_at:], sizes, body_at)))
    except CujitError as e:
        raise FormatError(f"the body of the saved launch is invalid: {e.message}") from e
    except _NO_HEADER as e:
        raise FormatError(f"the header of the saved launch is invalid: {type(e).__name__}: {e}") from e


def _sizes(header: Mapping[str, Any]) -> list[int]:
    """List how long each piece of the body is."""
    rows = (("texts", 2), ("memory", 0), ("variables", 1))
    sizes = (row[place] for name, place in rows for row in header[name])
    return [_int(n, 0, MAX_BODY_BYTES) for n in (*header["images"], *sizes)]


def _read(header: Mapping[str, Any], pieces: Sequence[bytes]) -> SavedLaunch:
    left = iter(pieces)
    images = tuple(next(left) for _ in header["images"])
    texts = [SavedText(_text(row[0]), _text(row[1]), next(left).decode("utf-8", "replace")) for row in header["texts"]]
    blocks = [SavedBlock(next(left), _int(row[1], 0, 255)) for row in header["memory"]]
    variables = tuple(SavedVariable(_text(row[0]), next(left)) for row in header["variables"])
    arguments = tuple(_argument(row, blocks) for row in header["arguments"])
    if (passed := sum(len(argument.data) for argument in arguments)) > _MOST_PARAMETER_BYTES:
        raise ValueError(f"the parameters need {passed:,} bytes; a kernel accepts at most {_MOST_PARAMETER_BYTES:,}")
    if type(header["cooperative"]) is not bool:
        raise TypeError("cooperative must be true or false")
    return SavedLaunch(
        _text(header["kernel"]),
        _text(header["lowered"]),
        _text(header["device"]),
        _three(header["grid"]),
        _three(header["block"]),
        _int(header["shared_bytes"], 0, _MOST_SIZE),
        None if header["cluster"] is None else _three(header["cluster"]),
        header["cooperative"],
        arguments,
        images,
        tuple(texts),
        tuple(blocks),
        variables,
    )


def _argument(row: Mapping[str, Any], blocks: Sequence[SavedBlock]) -> SavedArgument:
    data = bytes.fromhex(_text(row["data"]))
    dtype = _text(row["dtype"])
    if dtype and not _PLAIN.fullmatch(dtype):
        raise ValueError(f"the elements have the unknown dtype {spell(dtype)}")
    shape = None if row["shape"] is None else tuple(_int(n, 0, MAX_BODY_BYTES) for n in row["shape"])
    place, nbytes = None, _int(row["nbytes"], 0, MAX_BODY_BYTES)
    if row["place"] is not None:
        block, offset = row["place"]
        place = SavedPlace(_int(block, 0, len(blocks) - 1), _int(offset, 0, MAX_BODY_BYTES))
        if place.offset + nbytes > len(blocks[place.block].data):
            raise ValueError(f"an argument of {nbytes:,} bytes extends beyond its memory")
        if len(data) != 8:
            raise ValueError(f"a pointer is {len(data)} bytes long")
    elif nbytes:
        raise ValueError("an array doesn't specify its memory")
    if dtype and shape is not None and math.prod(shape) * int(dtype[2:]) != nbytes:
        raise ValueError(f"an array with shape {spell(shape)} and dtype {dtype} declares {nbytes:,} bytes")
    return SavedArgument(_text(row["type"]), data, place, dtype, shape, nbytes)


def _int(value: object, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"expected an int from {least} to {most:,}, not {spell(value)}")
    return value


def _three(value: Sequence[object]) -> tuple[int, int, int]:
    x, y, z = (_int(n, 1, _MOST_SIZE) for n in value)
    return x, y, z


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, not {spell(value)}")
    if not value.isprintable():
        raise ValueError(f"expected a name, not {spell(value)}")
    return value
