"""Messages of workers: bounded before they are read, and of classes that do nothing."""

from __future__ import annotations

import io
import os
import pickle
import struct
import tracemalloc

import pytest

import cujit
from cujit.errors import CompileError
from cujit.workers.messages import read_message, write_message

_LENGTHS = struct.Struct("<QQ")


def _read(values: bytes, images: bytes = b"") -> object:
    return read_message(io.BytesIO(_LENGTHS.pack(len(values), len(images)) + values + images))


def test_artifacts_and_errors_are_restored_unchanged() -> None:
    source = cujit.Source.cuda("__global__ void k(int *p, float x) { *p = x; }", include=("/usr/include",))
    made = cujit.compile(source, arch="sm_90", options={"define": {"A": "1"}})
    with pytest.raises(CompileError) as caught:
        cujit.compile("__global__ void k() { what; }", arch="sm_90", cache=False)
    for value in (made, caught.value):
        stream = io.BytesIO()
        write_message(stream, value)
        stream.seek(0)
        found = read_message(stream)
        assert type(found) is type(value)
        assert (vars(found), read_message(stream)) == (vars(value), None)


def test_image_message_takes_twice_its_bytes() -> None:
    stream = io.BytesIO()
    write_message(stream, [image := os.urandom(32 << 20)])
    stream.seek(0)
    tracemalloc.start()
    try:
        assert read_message(stream) == [image]
        assert tracemalloc.get_traced_memory()[1] < 2.1 * len(image)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("code", [b"]", b"}", b")", b"(", b"\x8f"])
def test_message_that_would_expand_greatly_is_refused(code: bytes) -> None:
    values = b"\x80\x05" + code * (8 << 20) + b"."
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="the message is"):
            _read(values)
        assert tracemalloc.get_traced_memory()[1] < 2.1 * len(values)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("lengths", [(1 << 63, 0), (1 << 40, 1), (5, 1 << 40)])
def test_lengths_beyond_any_message_are_refused(lengths: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="the message is"):
        read_message(io.BytesIO(_LENGTHS.pack(*lengths) + b"more"))


class _Calls:
    def __init__(self, *call: object) -> None:
        self._call = call

    def __reduce__(self) -> tuple[object, ...]:
        function, *arguments = self._call
        return function, tuple(arguments)


@pytest.mark.parametrize(
    "call",
    [(os.system, "true"), (eval, "1"), (getattr, str, "join"), (cujit.Cache,), (cujit.compile, "")],
    ids=["system", "eval", "getattr", "Cache", "compile"],
)
def test_answer_with_a_callable_is_refused(call: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match="the answer refers"):
        _read(pickle.dumps(_Calls(*call)))


@pytest.mark.parametrize(
    "values", [b"", b"\x80\x05.", b"\x80\x05K\x01Q.", b"\x80\x05K\x05K\x05\x86Q.", b"\x80\x05h\x07.", b"none"]
)
def test_invalid_message_is_refused(values: bytes) -> None:
    with pytest.raises(ValueError, match=r"a message"):
        _read(values, b"1234")
