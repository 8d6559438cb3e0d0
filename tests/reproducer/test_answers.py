"""Answers of a process that nobody trusts: bounded before they are parsed, printable and finite after."""

from __future__ import annotations

import json
import struct
import tracemalloc

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from cujit.errors import FormatError
from cujit.formats.unpack import unpack_pieces
from cujit.workers.answers import read_answer

_HOSTILE = "\x1b]0;title\x07\x9b2J\u202e\u2066\ud800\r"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for pair in value.items() for each in pair for text in _texts(each)]
    return [text for each in value for text in _texts(each)] if isinstance(value, list) else []


def test_no_text_controls_a_terminal() -> None:
    answer = {_HOSTILE: [_HOSTILE, {"a": _HOSTILE, "b": [[_HOSTILE]]}], "plain": "tab\tand line\nstay, and so does é"}
    found = read_answer(json.dumps(answer).encode())
    texts = _texts(found)
    assert len(texts) == 8
    assert not [text for text in texts for character in "\x1b\x07\x9b\u202e\u2066\ud800\r" if character in text]
    assert found["plain"] == answer["plain"]


@given(JSON)
def test_harmless_text_is_unchanged(value: object) -> None:
    if not [text for text in _texts(value) if any(not c.isprintable() for c in text)]:
        assert read_answer(json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    "text", ["NaN", "Infinity", "-Infinity", "1e400", '{"a": [1.0, -1e999]}', "[" * 100_000, "", "[1"]
)
def test_numbers_without_end_and_nests_are_refused(text: str) -> None:
    with pytest.raises((ValueError, RecursionError)):
        read_answer(text.encode())


@pytest.mark.parametrize("item", [b"[]", b"{}", b"[[]]", b'""', b"0", b"1.5", b'{"":0}'])
def test_memory_is_bounded_before_anything_is_parsed(item: bytes) -> None:
    data = b"[" + item + (b"," + item) * (32_000_000 // (len(item) + 1)) + b"]"
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="is too large"):
            read_answer(data)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_pieces_use_no_more_memory_than_their_size() -> None:
    size = 64 << 20
    packed = zstandard.ZstdCompressor(write_content_size=True).compress(bytes(size))
    tracemalloc.start()
    try:
        pieces = list(unpack_pieces(packed, [size // 2, 0, size // 2], 0))
        assert tracemalloc.get_traced_memory()[1] < size * 1.2
    finally:
        tracemalloc.stop()
    assert list(map(len, pieces)) == [size // 2, 0, size // 2]


@pytest.mark.parametrize("sizes", [[5], [11], [4, 7], [1 << 40], [3, 3]])
def test_pieces_of_other_sizes_are_refused(sizes: list[int]) -> None:
    packed = zstandard.ZstdCompressor(write_content_size=True).compress(b"0123456789")
    with pytest.raises(FormatError):
        list(unpack_pieces(packed, sizes, 0))


def test_frame_with_a_wrong_size_is_refused() -> None:
    whole = zstandard.ZstdCompressor(write_content_size=True).compress(struct.pack("<1000Q", *range(1000)))
    for cut in range(0, len(whole) - 1, 97):
        with pytest.raises(FormatError):
            list(unpack_pieces(whole[:cut], [4000, 4000], 0))
