"""What another XLA would send: frames of other sizes end in an error with a text, and in no crash."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any

import pytest

_KEPT: list[Any] = []
"""What XLA has lies where it lies as long as a process runs: its functions are known by their addresses."""


class _Xla:
    """Frames as XLA lays them out, with sizes of one's own, and what its handlers say.

    ``gpu`` are the number of a GPU and a stream, for handlers that ask; without it, they get an error.
    """

    def __init__(self, api: int = 192, major: int = 0, version: int = 24, gpu: tuple[int, int] | None = None) -> None:
        self.said: list[tuple[int, str]] = []
        self.asked: list[tuple[int, ...]] = []
        functions = [self._function(self._create), *[self._function(lambda _asked: 99)] * 17]
        if gpu is not None:
            functions[17] = self._function(lambda address: self._tell(address, "@i", gpu[0]))
            functions[4] = self._function(lambda address: self._tell(address, "@Q", gpu[1]))
        self.api = self.put("@QQQQiiQ18Q", api, 0, version, 0, major, 3, 0, *functions)

    def _function(self, call: Callable[[int], int]) -> int:
        _KEPT.append(ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(call))
        return ctypes.cast(_KEPT[-1], ctypes.c_void_p).value or 0

    def _create(self, address: int) -> int:
        size, extension, message, code = struct.unpack("@QQQi", ctypes.string_at(address, 28))
        assert (size, extension) == (28, 0)
        self.said.append((code, ctypes.string_at(message).decode()))
        return 77

    def _tell(self, address: int, layout: str, answer: int) -> int:
        self.asked.append(struct.unpack("@QQQ", ctypes.string_at(address, 24)))
        struct.pack_into(layout, (ctypes.c_char * struct.calcsize(layout)).from_address(address + 24), 0, answer)
        return 0

    def put(self, layout: str, *values: Any) -> int:
        _KEPT.append(ctypes.create_string_buffer(struct.pack(layout, *values)))
        return ctypes.addressof(_KEPT[-1])

    def frame(
        self,
        frame: int = 168,
        inner: int = 40,
        buffer: int = 48,
        dtype: int = 11,
        stage: int = 3,
        extension: int = 0,
        attributes: int = 0,
    ) -> int:
        dims, data = self.put("@qq", 2, 3), self.put("@6f", *range(6))
        pointers = self.put("@Q", self.put("@QQi4xQqQ", buffer, 0, dtype, data, 2, dims))
        head, part = (frame, extension, self.api, 5, stage), (inner, 0, 1, 0, pointers)
        texts = self.put("@Q", self.put("@QQ", self.put("@8s", b"a number"), 8))
        return self.put("@QQQQi4xQQqQQQQqQQQQqQQQ", *head, *part, *part, 48, 0, attributes, texts, texts, texts)


@pytest.fixture
def answer(jax: Any) -> Any:  # noqa: ARG001 — it is skipped where there is none
    """Have a handler answer a frame; it keeps the calls that it gets."""
    from cujit.jax import frames

    calls: list[Any] = []

    def run(call: Any) -> None:
        calls.append((frames.buffers(call.key), call.ordinal, call.stream))

    def asked(address: int, is_gpu: bool = False) -> tuple[int | None, list[Any]]:
        return frames.handler("mine::op", run, is_gpu)(address), calls

    return asked


def test_frame_is_read(answer: Any) -> None:
    (error, [((text, count, found), *where)]) = answer(_Xla().frame())
    assert (error, text, count, where) == (None, "", 1, [-1, 0])
    assert [(shape, dtype.name) for shape, dtype in found] == [((2, 3), "float32")] * 2
    [_, ((text, *_), *_)] = answer(_Xla().frame(attributes=1))[1]
    assert text == "a number"


def test_dtype_numbers_match_xla(jax: Any) -> None:  # noqa: ARG001 — it is skipped where there is none
    from cujit.jax.frames import ELEMENTS

    xla_client = pytest.importorskip("jaxlib.xla_client")
    letters = {"S": "int", "U": "uint", "F": "float", "C": "complex"}
    kinds = {f"{letter}{bits}": f"{word}{bits}" for letter, word in letters.items() for bits in (8, 16, 32, 64, 128)}
    kinds |= {"PRED": "bool", "BF16": "bfloat16"}
    numbers = {name: kind.value for name, kind in xla_client.PrimitiveType.__members__.items()}
    short = {name: kinds.get(name) or name.lower().replace("f8", "float8_") for name in numbers}
    named = {number: short[name] for name, number in numbers.items()}
    assert {number: dtype.name for number, dtype in ELEMENTS.items()} == {n: named.get(n) for n in ELEMENTS}
    left = {short[name] for name, number in numbers.items() if number not in ELEMENTS}
    assert left == {"primitive_type_invalid", "s4", "u4", "f4e2m1fn", "tuple", "opaque_type", "token"}


def test_other_stages_run_nothing(answer: Any) -> None:
    assert answer(_Xla().frame(stage=2)) == (None, [])


@pytest.mark.parametrize(
    ("xla", "sizes", "what"),
    [
        ({}, {"frame": 160}, "call frame"),
        ({}, {"inner": 48}, "content of the call frame"),
        ({}, {"buffer": 40}, "a buffer"),
        ({}, {"dtype": 21}, "a buffer"),  # of four bits
        ({"api": 184}, {}, "interface 0"),
        ({"version": 32}, {}, "interface 0"),
        ({"major": 1}, {}, "interface 1"),
    ],
)
def test_other_layout_is_an_error(answer: Any, xla: dict[str, Any], sizes: dict[str, int], what: str) -> None:
    other = _Xla(**xla)
    assert answer(other.frame(**sizes)) == (77, [])
    [(code, said)] = other.said
    assert code == 13
    assert said.startswith("mine::op: UnsupportedError: ")
    assert what in said


def test_question_for_the_version_is_answered(answer: Any) -> None:
    xla = _Xla()
    metadata = xla.put("@QQQiiI", 36, 24, 0, 7, 7, 0)
    assert answer(xla.frame(extension=xla.put("@Qi4xQQ", 32, 1, 0, metadata))) == (None, [])
    assert struct.unpack("@ii", ctypes.string_at(metadata + 24, 8)) == (0, 1)
    short = xla.put("@QQQiiI", 32, 24, 0, 7, 7, 0)
    assert answer(xla.frame(extension=xla.put("@Qi4xQQ", 32, 1, 0, short)))[0] == 77
    assert "the request to a handler" in xla.said[0][1]
    others = xla.put("@Qi4xQQ", 32, 2, 0, 0), xla.put("@Qi4xQQ", 24, 1, 0, metadata)  # extensions that are none of ours
    assert [len(answer(xla.frame(extension=other))[1]) for other in others] == [1, 2]


def test_gpu_call_selects_the_gpu_and_its_stream(answer: Any) -> None:
    xla = _Xla(gpu=(3, 0x7F0012345678))
    (error, [(_, *where)]) = answer(xla.frame(), is_gpu=True)
    assert (error, where) == (None, [3, 0x7F0012345678])
    assert xla.asked == [(28, 0, 5), (32, 0, 5)]


def test_xla_error_is_returned_to_xla(answer: Any) -> None:
    assert answer(_Xla().frame(), is_gpu=True) == (99, [])
