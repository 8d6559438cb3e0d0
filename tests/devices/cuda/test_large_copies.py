"""Large copies: every byte arrives, by several threads, and the driver copies where it is as fast."""

from __future__ import annotations

import ctypes
import inspect
import os
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cujit.devices.cuda import copies
from cujit.devices.cuda.copies import LargeCopies
from cujit.devices.cuda.ring import LaunchRing
from cujit.devices.launcher.cpython import is_supported, native_function
from cujit.devices.launcher.library import library
from cujit.devices.launcher.state import MemoryCalls
from cujit.errors import DriverError
from raising import raises

pytestmark = pytest.mark.skipif(not is_supported(), reason="this interpreter takes no native launches")

PIECE = 4096
Word = ctypes.c_void_p


class Gpu:
    """A context whose driver copies at once, and what calls it by native code; ``memory`` is that of the GPU."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, threads: int = 4, page_locked: bool = False) -> None:
        self.memory = np.zeros(1 << 16, np.uint8)
        self.id = 5
        self.status, self.threads, self.events, self.pinned = 0, set[int](), 0, [np.zeros(0, np.uint8)]
        kind, size = ctypes.CFUNCTYPE, ctypes.c_size_t
        self.keep = {
            "get_context": kind(ctypes.c_int, ctypes.POINTER(Word))(lambda out: self._set(out, 1)),
            "push_context": kind(ctypes.c_int, Word)(lambda _: 0),
            "pop_context": kind(ctypes.c_int, ctypes.POINTER(Word))(lambda _: 0),
            "exchange": kind(ctypes.c_int, ctypes.POINTER(ctypes.c_int))(lambda _: 0),
            "copy_in_async": kind(ctypes.c_int, Word, Word, size, Word)(lambda *all: self._move(*all)),
            "copy_out_async": kind(ctypes.c_int, Word, Word, size, Word)(lambda *all: self._move(*all)),
            "record": kind(ctypes.c_int, Word, Word)(lambda *_: 0),
            "wait": kind(ctypes.c_int, Word)(lambda _: 0),
        }
        self.ring = LaunchRing()
        places = {name: ctypes.cast(call, Word).value or 0 for name, call in self.keep.items()}
        self.calls = bytes(MemoryCalls(context=1, ring=self.ring.address, **places))
        self.function = native_function("pieces", library().address("pieces"), self.calls, is_fast=True)
        attributes = SimpleNamespace(CU_POINTER_ATTRIBUTE_MEMORY_TYPE=2)
        self.driver = SimpleNamespace(
            is_emulated=False,
            bindings=SimpleNamespace(CUpointer_attribute=attributes),
            attempt=lambda *_: (0, 1) if page_locked else (1, 0),
        )
        monkeypatch.setattr(copies, "_PIECE_BYTES", PIECE)
        monkeypatch.setattr(copies, "processors", lambda: threads)
        monkeypatch.setattr(copies, "pin", self._pin)
        self.native: Any = SimpleNamespace(pieces=self._pieces)
        self.copies = LargeCopies(self)  # type: ignore[arg-type]

    def __enter__(self) -> Any:
        return self.driver

    def __exit__(self, *_: object) -> None:
        pass

    def call(self, function: str, *_: object) -> int:
        assert function == "cuEventCreate"
        self.events += 1
        return self.events

    def refused(self, function: str, status: int) -> DriverError:
        return DriverError("refused", tool="driver", call=function, result=str(status))

    def _set(self, out: Any, context: int) -> int:
        out[0] = context
        return 0

    def _move(self, to: int, source: int, size: int, _stream: int) -> int:
        ctypes.memmove(to, source, size)
        return self.status

    def _pieces(self, *given: Any) -> int:
        self.threads.add(threading.get_ident())
        return int(self.function.call(*given))

    def _pin(self, _context: object, size: int) -> Any:
        self.pinned.append(np.zeros(size, np.uint8))
        return SimpleNamespace(address=self.pinned[-1].ctypes.data)

    def copy(self, data: Any, *, is_in: bool) -> bool:
        return self.copies.copy(self.native, self.memory.ctypes.data, data, is_in=is_in)


@pytest.mark.parametrize(("threads", "parts"), [(2, 2), (3, 3), (4, 4), (7, 4), (12, 6), (16, 8), (64, 8)])
@pytest.mark.parametrize("size", [1, PIECE, PIECE + 1, 9 * PIECE - 1, 16 * PIECE])
def test_every_byte_arrives(monkeypatch: pytest.MonkeyPatch, threads: int, parts: int, size: int) -> None:
    gpu = Gpu(monkeypatch, threads=threads)
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    for _ in range(3):
        gpu.memory[:] = 0
        assert gpu.copy(data, is_in=True)
        assert (gpu.memory[:size] == data).all()
        assert not gpu.memory[size:].any()
        whole = np.zeros(size + 2, np.uint8)
        assert gpu.copy(whole[1:-1], is_in=False)
        assert (whole[1:-1] == data).all()
        assert not whole[[0, -1]].any()
    assert len(gpu.pinned) == 2, "the memory is kept"
    assert len(gpu.pinned[1]) == 2 * PIECE * parts
    assert len(gpu.threads) > 1


def test_elements_of_any_shape_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(monkeypatch)
    data = np.arange(6000, dtype=np.float32).reshape(2, 30, 100)
    assert gpu.copy(data, is_in=True)
    out = np.empty_like(data)
    assert gpu.copy(out, is_in=False)
    assert (out == data).all()


def test_driver_copies_if_as_fast_or_the_buffer_is_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = np.ones(3 * PIECE, np.uint8)
    assert not Gpu(monkeypatch, page_locked=True).copy(data, is_in=True)
    assert not Gpu(monkeypatch, threads=1).copy(data, is_in=True)
    gpu = Gpu(monkeypatch)
    with gpu.copies._lock:
        assert not gpu.copy(data, is_in=True)
    assert gpu.copy(data, is_in=True)
    monkeypatch.setattr(copies, "pin", lambda *_: (_ for _ in ()).throw(gpu.refused("cuMemHostAlloc", 2)))
    assert not LargeCopies(gpu).copy(gpu.native, gpu.memory.ctypes.data, data, is_in=True)  # type: ignore[arg-type]


def test_refusal_is_an_error_and_the_next_copy_works(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, data = Gpu(monkeypatch), np.ones(9 * PIECE, np.uint8)
    gpu.status = 719
    with raises(DriverError, "driver", "refused"):
        gpu.copy(data, is_in=True)
    gpu.status = 0
    assert gpu.copy(data, is_in=True)


def test_without_threads_one_copies_all(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, data = Gpu(monkeypatch), np.ones(9 * PIECE, np.uint8)

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert gpu.copy(data, is_in=True)
    assert gpu.memory[: data.size].all()
    assert gpu.threads == {threading.get_ident()}


def test_forked_child_has_no_copy_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, data = Gpu(monkeypatch), np.ones(3 * PIECE, np.uint8)
    gpu.copy(data, is_in=True)
    with gpu.copies._lock:
        gpu.copies.after_fork()
    assert gpu.copy(data, is_in=True)
    assert len(gpu.pinned) == 3


def test_other_context_of_the_same_handle_has_no_copy_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, data = Gpu(monkeypatch), np.ones(3 * PIECE, np.uint8)
    gpu.copy(data, is_in=True)
    gpu.id = 6
    assert gpu.copy(data, is_in=True)
    assert gpu.copy(data, is_in=True)
    assert len(gpu.pinned) == 3


@pytest.mark.parametrize(
    ("files", "count"),
    [
        ({}, None),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu.max": "150000 100000"}, 1),
        ({"cpu.max": "50000 100000"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"}, 1),
        ({"cpu.max": "broken"}, None),
    ],
)
def test_processor_count_respects_the_control_group(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], count: int | None
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(copies, "_V2", str(tmp_path / "cpu.max"))
    monkeypatch.setattr(copies, "_V1", str(tmp_path / "cpu" / "cpu.cfs_"))
    assert inspect.unwrap(copies.processors)() == (count or len(os.sched_getaffinity(0)))
