"""What a saved launch may have at most comes back of its file, and one more is refused."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from cujit import reproducer
from cujit.errors import FormatError
from cujit.formats import saved_launch
from cujit.formats.saved_launch import (
    PREFIX_BYTES,
    SavedArgument,
    SavedBlock,
    SavedLaunch,
    SavedPlace,
    SavedText,
    SavedVariable,
    read_saved,
    write_saved,
)
from cujit.values import replace
from raising import raises

MOST = 1 << 31
WHOLE = SavedLaunch(
    "k<int>", "_Z1k", "cpu", (MOST, 1, MOST), (1, MOST, 1), MOST, (1, 2, MOST), True,
    (
        SavedArgument("int", bytes(4)),
        SavedArgument("float*", bytes(8), SavedPlace(1, 4), "<f4", (2, 3), 24),
        SavedArgument("char*", bytes(8), SavedPlace(0, 0), "|i1", (0, 1 << 30), 0),
        SavedArgument("all", bytes(32764 - 20)),
    ),
    (b"first", b"second image"), (SavedText("a.cu", "shown.cu", "tex\u00e9"), SavedText("b", "c", "")),
    (SavedBlock(b"", 0), SavedBlock(bytes(range(28)), 255)), (SavedVariable("v", b"\1\2"), SavedVariable("w", b"")),
)  # fmt: skip


def changed(path: str, value: object) -> bytes:
    """The file of the whole launch, with another value at a place of its header; ``+`` adds to the number there."""
    data = write_saved(WHOLE)
    magic, version, header_bytes, body_bytes, size = struct.unpack_from("<8sIIQQ", data)
    header = json.loads(data[PREFIX_BYTES : PREFIX_BYTES + header_bytes])
    at: Any = header
    *way, last = [int(step) if step.isdigit() else step for step in path.split()]
    for step in way:
        at = at[step]
    at[last] = value
    text = json.dumps(header).encode()
    prefix = struct.pack("<8sIIQQ", magic, version, len(text), body_bytes, size)
    body = data[PREFIX_BYTES + header_bytes :]
    return prefix + hashlib.sha256(prefix + text + body).digest() + text + body


def test_launch_at_every_limit_is_restored() -> None:
    assert read_saved(write_saved(WHOLE)) == WHOLE
    assert WHOLE.memory_bytes == 28


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        ("grid 0", MOST + 1, "an int from 1 to 2,147,483,648"),
        ("block 2", 0, "an int from 1 to"),
        ("cluster 1", MOST + 1, "an int from 1 to"),
        ("shared_bytes", MOST + 1, "an int from 0 to 2,147,483,648"),
        ("shared_bytes", -1, "an int from 0 to"),
        ("memory 1 1", 256, "an int from 0 to 255"),
        ("memory 1 1", -1, "an int from 0 to 255"),
        ("images 0", (1 << 30) + 1, "an int from 0 to 1,073,741,824"),
        ("arguments 1 place", [2, 0], "an int from 0 to 1"),
        ("arguments 1 place", [-1, 0], "an int from 0 to 1"),
        ("arguments 1 place", [1, 5], "24 bytes extends beyond its memory"),
        ("arguments 1 place", [1, -1], "an int from 0 to 1,073,741,824"),
        ("arguments 1 nbytes", 23, "an array with shape (2, 3) and dtype <f4 declares 23 bytes"),
        ("arguments 2 nbytes", 1, "1 bytes extends beyond its memory"),
        ("arguments 2 shape", [0, (1 << 30) + 1], "an int from 0 to 1,073,741,824"),
        ("arguments 0 nbytes", 1, "an array doesn't specify its memory"),
        ("arguments 0 data", "00" * 5, "the parameters need 32,765 bytes; a kernel accepts at most 32,764"),
        ("arguments 1 data", "00" * 9, "a pointer is 9 bytes long"),
        ("arguments 1 dtype", "<f123", "elements have the unknown dtype '<f123'"),
        ("arguments 1 dtype", "<V4", "elements have the unknown dtype '<V4'"),
        ("cooperative", 1, "cooperative must be true or false"),
        ("lowered", "a\nb", "expected a name"),
        ("texts 0 0", None, "expected text, not None"),
        ("variables 0 1", 3, "the pieces are 53 bytes long, but the body is 52"),
    ],
)  # fmt: skip
def test_one_more_than_the_most_is_refused(path: str, value: object, why: str) -> None:
    with raises(FormatError, "format", "invalid") as refused:
        read_saved(changed(path, value))
    assert why in str(refused.value)


def test_omitted_fields_are_empty() -> None:
    least = SavedLaunch("k", "k", "cpu", (1, 1, 1), (1, 1, 1))
    assert read_saved(write_saved(least)) == least
    assert least == SavedLaunch("k", "k", "cpu", (1, 1, 1), (1, 1, 1), 0, None, False, (), (), (), (), ())
    assert SavedBlock(b"") == SavedBlock(b"", 0)
    assert not any(bulk in repr(WHOLE) for bulk in ("second image", "tex\u00e9", "SavedBlock", "SavedVariable"))


def test_largest_body_and_header_are_written_and_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (saved_launch.VERSION, saved_launch.MAX_BODY_BYTES, saved_launch.MAX_HEADER_BYTES) == (1, 1 << 30, 1 << 24)
    launch = replace(WHOLE, arguments=())
    header_bytes, _, size = struct.unpack_from("<IQQ", data := write_saved(launch), 12)
    for name, most in (("MAX_BODY_BYTES", size), ("MAX_HEADER_BYTES", header_bytes)):
        with monkeypatch.context() as patched:
            patched.setattr(saved_launch, name, most)
            assert read_saved(write_saved(launch)) == launch
            patched.setattr(saved_launch, name, most - 1)
            with raises(FormatError, "format", "k<int>"):
                write_saved(launch)
            with raises(FormatError, "format"):
                read_saved(data)


@pytest.mark.parametrize(
    ("change", "why", "offset"),
    [
        (lambda data: data[:63], ("63", "64", "prefix"), None),
        (lambda data: data[:64], ("64", "declares"), None),
        (lambda data: b"\x7fELF" + data[4:], ("begins",), 0),
        (lambda data: data[:8] + b"\2" + data[9:], ("2", "1", "at byte 8"), 8),
        (lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:], ("SHA-256",), None),
    ],
)
def test_error_before_the_header_has_its_offset(
    change: Callable[[bytes], bytes], why: tuple[str, ...], offset: int | None
) -> None:
    with raises(FormatError, "format", *why) as refused:
        read_saved(change(write_saved(WHOLE)))
    assert refused.value.offset == offset


def test_file_of_the_most_bytes_is_looked_into(tmp_path: Path) -> None:
    path = tmp_path / "most.launch"
    most = PREFIX_BYTES + (1 << 24) + (1 << 30) + (1 << 20)
    path.touch()
    os.truncate(path, most + 1)
    with raises(FormatError, "format", f"{most + 1:,}", f"{most:,}"):
        reproducer.open(path)


def test_header_has_its_declared_length_in_ascii() -> None:
    data = write_saved(WHOLE)
    header_bytes = struct.unpack_from("<I", data, 12)[0]
    assert data[PREFIX_BYTES : PREFIX_BYTES + header_bytes].isascii()
    assert zstandard.frame_content_size(data[PREFIX_BYTES + header_bytes :]) == 52
