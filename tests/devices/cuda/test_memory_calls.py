"""Memory of a GPU by native code: the calls that it makes, in which context and mode, and what a refusal becomes."""

from __future__ import annotations

import ctypes
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

import null_driver
from cujit.devices.cuda import memory
from cujit.devices.cuda.ring import LaunchRing
from cujit.devices.launcher.cpython import is_supported, native_function
from cujit.devices.launcher.library import library
from cujit.devices.launcher.state import (
    MOST_STAGED_BYTES,
    STAGED_AFTER,
    STAGING_BYTES,
    WANTS_STAGING,
    LargeCopy,
    MemoryCalls,
)
from cujit.errors import DriverError
from processes import printed
from raising import raises

pytestmark = pytest.mark.skipif(not is_supported(), reason="this interpreter takes no native launches")

OURS, OTHERS = 0x1000, 0x2000
Word = ctypes.c_void_p


class Driver:
    """Functions of the driver as C calls them; ``heard`` is what they were told."""

    def __init__(self, current: int = OURS, **answers: int) -> None:
        self.heard: list[Any] = []
        self.current, self.answers, self.mode = current, answers, 0
        self.ring, self.id = LaunchRing(), 0
        kind = ctypes.CFUNCTYPE
        self.keep = {
            "get_context": kind(ctypes.c_int, ctypes.POINTER(Word))(self._get),
            "push_context": kind(ctypes.c_int, Word)(lambda context: self._say("push", context)),
            "pop_context": kind(ctypes.c_int, ctypes.POINTER(Word))(lambda _: self._say("pop")),
            "exchange": kind(ctypes.c_int, ctypes.POINTER(ctypes.c_int))(self._exchange),
            "allocate": kind(ctypes.c_int, ctypes.POINTER(ctypes.c_uint64), ctypes.c_size_t)(self._allocate),
            "release": kind(ctypes.c_int, ctypes.c_uint64)(lambda address: self._say("release", address)),
            "copy_in": kind(ctypes.c_int, ctypes.c_uint64, Word, ctypes.c_size_t)(self._copy_in),
            "copy_out": kind(ctypes.c_int, Word, ctypes.c_uint64, ctypes.c_size_t)(self._copy_out),
            "copy_in_async": kind(ctypes.c_int, ctypes.c_uint64, Word, ctypes.c_size_t, Word)(self._copy_in_async),
            "copy_out_async": kind(ctypes.c_int, Word, ctypes.c_uint64, ctypes.c_size_t, Word)(self._copy_out_async),
            "set": kind(ctypes.c_int, ctypes.c_uint64, ctypes.c_uint8, ctypes.c_size_t)(
                lambda *all: self._say("set", *all)
            ),
            "set_async": kind(ctypes.c_int, ctypes.c_uint64, ctypes.c_uint8, ctypes.c_size_t, Word)(
                lambda *all: self._say("set later", *all[:3], all[3] or 0)
            ),
            "get_id": kind(ctypes.c_int, Word, ctypes.POINTER(ctypes.c_uint64))(self._get_id),
            "record": kind(ctypes.c_int, Word, Word)(lambda event, stream: self._say("record", event, stream or 0)),
            "wait": kind(ctypes.c_int, Word)(lambda event: self._say("wait", event)),
            "synchronize": kind(ctypes.c_int, Word)(lambda stream: self._say("synchronize", stream or 0)),
        }

    def _say(self, name: str, *values: int) -> int:
        self.heard.append((name, *values))
        return self.answers.get(name, 0)

    def _get(self, out: Any) -> int:
        out[0] = self.current or None
        return 0

    def _get_id(self, _context: int, out: Any) -> int:
        out[0] = self.id
        return 0

    def _exchange(self, mode: Any) -> int:
        mode[0], self.mode = self.mode, mode[0]
        return self._say("mode", self.mode)

    def _allocate(self, out: Any, size: int) -> int:
        out[0] = 0x5000
        return self._say("allocate", size)

    def _copy_in(self, address: int, host: int, size: int) -> int:
        return self._say("copy in", address, ctypes.string_at(host, size))  # type: ignore[arg-type]

    def _copy_out(self, host: int, address: int, size: int) -> int:
        ctypes.memset(host, 0x61, size)
        return self._say("copy out", address, size)

    def _copy_in_async(self, address: int, host: int, size: int, stream: int | None) -> int:
        return self._say("copy in later", address, ctypes.string_at(host, size), stream or 0)  # type: ignore[arg-type]

    def _copy_out_async(self, host: int, address: int, size: int, stream: int | None) -> int:
        ctypes.memset(host, 0x62, size)
        return self._say("copy out later", address, size, stream or 0)

    def place_of(self, name: str) -> int:
        """Give the address of a function."""
        return ctypes.cast(self.keep[name], Word).value or 0

    def ask(self, name: str, *given: Any) -> int:
        """Call native code; give its answer."""
        places = {name: self.place_of(name) for name in self.keep}
        calls = bytes(MemoryCalls(context=OURS, ring=self.ring.address, **places))
        is_fast = name not in ("get", "put", "settle")
        function = native_function(name, library().address(name), calls, is_fast=is_fast)
        return int(function.call(*given))

    def heard_of_bytes(self) -> list[Any]:
        """Give what was heard but for contexts and modes, and forget it."""
        heard = [each for each in self.heard if each[0] not in ("push", "pop", "mode")]
        self.heard.clear()
        return heard


def test_memory_is_allocated_in_relaxed_capture_mode() -> None:
    driver = Driver()
    assert driver.ask("get", 400) == 0x5000
    assert driver.ask("put", 0x5000) == 0
    assert driver.heard == [
        ("mode", 2), ("allocate", 400), ("mode", 0), ("mode", 2), ("release", 0x5000), ("mode", 0)
    ]  # fmt: skip


@pytest.mark.parametrize("current", [OTHERS, 0])
def test_previous_context_is_restored(current: int) -> None:
    driver = Driver(current)
    assert driver.ask("get", 8) == 0x5000
    assert driver.heard == [("push", OURS), ("mode", 2), ("allocate", 8), ("mode", 0), ("pop",)]


@pytest.mark.parametrize("refused", ["push", "mode", "allocate"])
def test_failed_allocation_restores_context_and_mode(refused: str) -> None:
    driver = Driver(OTHERS, **{refused: 719})
    assert driver.ask("get", 8) == -719
    names = [name for name, *_ in driver.heard]
    assert names.count("push") == names.count("pop") + (refused == "push")
    assert names.count("mode") == {"push": 0, "mode": 1, "allocate": 2}[refused]


def test_copies_outside_streams_are_waited_for() -> None:
    driver, out = Driver(OTHERS), bytearray(3)
    assert driver.ask("upload", 0x5000, b"abc") == driver.ask("fill", 0x5000, 9, 7) == 0
    assert driver.ask("download", 0x5000, out) == 0
    assert out == b"aaa"
    assert [each[0] for each in driver.heard].count("pop") == 3
    assert driver.heard_of_bytes() == [
        ("copy in", 0x5000, b"abc"), ("synchronize", 0), ("set", 0x5000, 7, 9), ("synchronize", 0),
        ("copy out", 0x5000, 3),
    ]  # fmt: skip
    for what in ("copy in", "synchronize"):
        assert Driver(**{what: 700}).ask("upload", 0x5000, b"abc") == 700
    with pytest.raises(BufferError):
        driver.ask("download", 0x5000, b"read-only")


def test_new_memory_is_waited_for_on_demand() -> None:
    driver = Driver()
    unsettled = driver.ring.unsettled
    assert driver.ask("place", 0x5000, b"abc") == driver.ask("clear", 0x6000, 9) == 0
    assert driver.heard_of_bytes() == [("copy in", 0x5000, b"abc"), ("set later", 0x6000, 0, 9, 0)]
    assert (unsettled.issued, unsettled.settled) == (2, 0)
    assert driver.ask("settle", 0) == 0
    assert driver.heard == [("mode", 2), ("synchronize", 0), ("mode", 0)], "also while a stream is captured"
    assert (unsettled.issued, unsettled.settled) == (2, 2)
    refusing = Driver(synchronize=719)
    refusing.ask("clear", 0x6000, 9)
    assert refusing.ask("settle", 0) == 719
    assert (refusing.ring.unsettled.issued, refusing.ring.unsettled.settled) == (1, 0), "it is still to be waited for"


def test_small_copies_use_page_locked_memory() -> None:
    driver, out = Driver(), bytearray(4)
    unsettled = driver.ring.unsettled
    answers = [driver.ask("place", 0x5000, b"abc") for _ in range(STAGED_AFTER)] + [driver.ask("download", 0x5000, out)]
    assert answers == [0] * STAGED_AFTER + [WANTS_STAGING], "said once"
    assert driver.ask("download", 0x5000, out) == 0
    driver.heard_of_bytes()
    staging = ctypes.create_string_buffer(STAGING_BYTES)
    unsettled.used, unsettled.staging = 0, ctypes.addressof(staging)
    assert driver.ask("place", 0x5000, b"abcd") == driver.ask("place", 0x6000, b"x" * 65) == 0
    assert driver.heard_of_bytes() == [("copy in later", 0x5000, b"abcd", 0), ("copy in later", 0x6000, b"x" * 65, 0)]
    assert (staging.raw[:4], staging.raw[64:129], unsettled.used) == (b"abcd", b"x" * 65, 192)
    assert driver.ask("download", 0x5000, out) == 0
    assert driver.heard_of_bytes() == [("copy out later", 0x5000, 4, 0), ("synchronize", 0)]
    assert out == b"bbbb"
    assert (unsettled.used, unsettled.busy) == (0, 0)
    assert unsettled.issued == unsettled.settled
    large = bytes(MOST_STAGED_BYTES + 1)
    assert driver.ask("place", 0x5000, large) == 0
    assert driver.heard_of_bytes() == [("copy in", 0x5000, large)], "by the driver"
    unsettled.busy = 1
    assert driver.ask("download", 0x5000, out) == 0
    assert driver.heard_of_bytes() == [("copy out", 0x5000, 4)], "another thread has it"
    unsettled.busy, driver.id = 0, 1
    assert driver.ask("download", 0x5000, out) == driver.ask("place", 0x5000, b"abc") == 0
    assert driver.heard_of_bytes() == [("copy out", 0x5000, 4), ("copy in", 0x5000, b"abc")], "the device was reset"


def test_page_locked_memory_is_reused_after_its_copies() -> None:
    driver = Driver()
    unsettled = driver.ring.unsettled
    staging = ctypes.create_string_buffer(STAGING_BYTES)
    unsettled.staging = ctypes.addressof(staging)
    for _ in range(STAGING_BYTES // MOST_STAGED_BYTES):
        driver.ask("place", 0x5000, bytes(MOST_STAGED_BYTES))
    assert ("synchronize", 0) not in driver.heard_of_bytes()
    driver.ask("place", 0x5000, b"abc")
    assert [each[0] for each in driver.heard_of_bytes()] == ["synchronize", "copy in later"]
    assert unsettled.used == 64
    driver.answers["synchronize"] = 719
    unsettled.used = STAGING_BYTES
    driver.ask("place", 0x5000, b"abc")
    assert ("copy in", 0x5000, b"abc") in driver.heard_of_bytes()
    assert unsettled.busy == 0


@pytest.mark.parametrize("size", [1, 63, 64, 65, 256, 1000])
@pytest.mark.parametrize("offset", [0, 1])
def test_large_copy_is_split_into_pieces(size: int, offset: int) -> None:
    driver, host = Driver(), ctypes.create_string_buffer(bytes(range(250)) * 4, 1001)
    begin, staging = ctypes.addressof(host) + offset, ctypes.create_string_buffer(128)
    before = host.raw

    def copied(*, is_in: bool) -> LargeCopy:
        copy = LargeCopy(address=0x5000, host=begin, bytes=size, piece_bytes=64)
        assert driver.ask("pieces", ctypes.addressof(copy), ctypes.addressof(staging), 7, 8, is_in) == copy.status
        return copy

    assert copied(is_in=True).status == 0
    heard = driver.heard_of_bytes()
    sent = [each for each in heard if each[0] == "copy in later"]
    assert [each[1] for each in sent] == [0x5000 + at for at in range(0, size, 64)]
    assert b"".join(each[2] for each in sent) == before[offset : offset + size]
    assert [each[0] for each in heard].count("record") == [each[0] for each in heard].count("wait") == len(sent)
    for turn, event in ((0, 7), (1, 8)):  # a piece is waited for before its memory has the next one
        mine = [name for name, *rest in heard if name in ("record", "wait") and rest[0] == event]
        assert mine == ["record", "wait"] * len(sent[turn::2])
    copied(is_in=False)
    assert host.raw == before[:offset] + b"b" * size + before[offset + size :]
    assert sum(each[2] for each in driver.heard_of_bytes() if each[0] == "copy out later") == size
    driver.answers["wait"] = 719
    assert copied(is_in=True).status == 719


def test_array_takes_two_calls_besides_mode_and_context(tmp_path: Any) -> None:
    if not null_driver.is_buildable():
        pytest.skip("needs ziglang")
    text = """
import ctypes
import numpy as np
import cujit
device = cujit.gpu(0)
device.empty(4, np.float32)
mark = ctypes.CDLL("libcuda.so.1").null_driver_mark
mark(b"start")
x = device.empty(1024, np.float32)
mark(b"empty")
del x
mark(b"del")
device.zeros(1024, np.float32)
mark(b"zeros")
for _ in range(40):
    device.empty(1024, np.float32)
mark(b"many")
x = [device.empty(1024, np.float32) for _ in range(20)]
addresses = {each.address for each in x}
del x
large = [device.empty(1 << 20, np.uint8) for _ in range(9)]
del large
device.trim()
mark(b"trim")
"""
    printed(text, environment=null_driver.build(tmp_path))
    calls = null_driver.calls(tmp_path)
    mode = {"cuThreadExchangeStreamCaptureMode": 2}
    assert {n: k for n, k in calls["empty"].items() if not n.startswith("cuCtx")} == {"cuMemAlloc_v2": 1, **mode}
    assert not calls.get("del"), "a small block waits for the next array"
    assert calls["zeros"]["cuMemsetD8Async"] == 1
    assert not calls["zeros"]["cuStreamSynchronize"]
    assert sum(calls["empty"].values()) <= 6
    assert 1 <= calls["many"]["cuMemFree_v2"] <= 2, "one block of many is freed, and the others serve again"
    assert calls["many"]["cuMemAlloc_v2"] < 40
    every = sum((Counter(found) for found in calls.values()), Counter())
    assert every["cuMemAlloc_v2"] == every["cuMemFree_v2"], (
        "what is trimmed goes to the driver, and large blocks at once"
    )


# -- small blocks ------------------------------------------------------------------------------------------


class Context:
    """A context whose driver counts. To free memory, it waits for all work: what was given back before is unused."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, is_emulated: bool = False) -> None:
        self.driver = SimpleNamespace(is_emulated=is_emulated)
        self.got: list[int] = []
        self.put: list[int] = []
        self.refuses = False
        monkeypatch.setattr(memory, "_get", lambda _context, size: self._get(size))
        monkeypatch.setattr(memory, "_put", lambda _context, address: self._put(address))

    def _get(self, size: int) -> int:
        if self.refuses:
            self.refuses = False
            raise DriverError("no memory", tool="driver", call="cuMemAlloc", result="CUDA_ERROR_OUT_OF_MEMORY")
        self.got.append(size)
        return 0x1000 * len(self.got)

    def _put(self, address: int) -> None:
        if self.refuses:
            raise DriverError("dead", tool="driver", call="cuMemFree", result="CUDA_ERROR_ILLEGAL_ADDRESS")
        self.put.append(address)


def blocks_of(context: Context) -> memory.Blocks:
    return memory.Blocks(context)  # type: ignore[arg-type]


def test_block_is_reused_after_the_driver_waited_for_all_work(monkeypatch: pytest.MonkeyPatch) -> None:
    context = Context(monkeypatch)
    blocks = blocks_of(context)
    seen = set()
    for _ in range(memory._WAITING):
        address = blocks.allocate(256).address  # which goes at once
        assert address not in seen
        seen.add(address)
    assert len(context.put) == 1
    again = [blocks.allocate(256) for _ in range(memory._WAITING - 1)]
    assert {each.address for each in again} == seen - set(context.put)
    assert len(context.got) == memory._WAITING
    assert blocks.allocate(512).address not in seen, "a block serves arrays of its size alone"


def test_kept_blocks_are_bounded_trimmed_and_small(monkeypatch: pytest.MonkeyPatch) -> None:
    context = Context(monkeypatch)
    blocks = blocks_of(context)
    blocks.allocate(memory._SMALL_BYTES + 1)
    assert len(context.put) == 1
    many = [blocks.allocate(memory._SMALL_BYTES) for _ in range(300)]
    del many
    kept = len(context.got) - len(context.put)
    assert (
        memory._KEPT_BYTES // memory._SMALL_BYTES - memory._WAITING <= kept <= memory._KEPT_BYTES // memory._SMALL_BYTES
    )
    blocks.trim()
    assert sorted(context.put) == [0x1000 * (n + 1) for n in range(len(context.got))]


def test_out_of_memory_retries_without_kept_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    context = Context(monkeypatch)
    blocks = blocks_of(context)
    blocks.allocate(256)
    context.refuses = True
    held = blocks.allocate(512)
    assert held.size == 512
    assert len(context.put) == 1, "the kept block"
    context.refuses = True
    with raises(DriverError, "driver", "cuMemAlloc"):
        blocks.allocate(1024)


def test_dead_context_or_fork_leaves_no_reusable_block(monkeypatch: pytest.MonkeyPatch) -> None:
    context = Context(monkeypatch)
    blocks = blocks_of(context)
    held = [blocks.allocate(256) for _ in range(memory._WAITING)]
    context.refuses = True
    del held  # nobody hears of it
    context.refuses = False
    asked = len(context.got)
    held = [blocks.allocate(256) for _ in range(memory._WAITING)]
    assert len(context.got) == asked + memory._WAITING
    del held
    blocks.after_fork()
    blocks.allocate(256)
    assert len(context.got) == asked + memory._WAITING + 1


def test_emulation_gives_every_array_its_own_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    context = Context(monkeypatch, is_emulated=True)
    blocks = blocks_of(context)
    for _ in range(3):
        blocks.allocate(256)
    assert len(context.put) == len(context.got) == 3
