"""Memory of a GPU by native code: the calls that it makes, in which context and mode, and what a refusal becomes."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

import null_driver
from cujit.devices.launcher.cpython import is_supported
from cujit.devices.launcher.library import library
from cujit.devices.launcher.state import MemoryCalls
from processes import printed

pytestmark = pytest.mark.skipif(not is_supported(), reason="this interpreter takes no native launches")

OURS, OTHERS = 0x1000, 0x2000
Word = ctypes.c_void_p


class Driver:
    """Functions of the driver as C calls them; ``heard`` is what they were told."""

    def __init__(self, current: int = OURS, **answers: int) -> None:
        self.heard: list[Any] = []
        self.current, self.answers, self.mode = current, answers, 0
        kind = ctypes.CFUNCTYPE
        self.keep = {
            "get_context": kind(ctypes.c_int, ctypes.POINTER(Word))(self._get),
            "push_context": kind(ctypes.c_int, Word)(lambda context: self._say("push", context)),
            "pop_context": kind(ctypes.c_int, ctypes.POINTER(Word))(lambda _: self._say("pop")),
            "exchange": kind(ctypes.c_int, ctypes.POINTER(ctypes.c_int))(self._exchange),
            "allocate": kind(ctypes.c_int, ctypes.POINTER(ctypes.c_uint64), ctypes.c_size_t)(self._allocate),
            "release": kind(ctypes.c_int, ctypes.c_uint64)(lambda address: self._say("release", address)),
        }

    def _say(self, name: str, *values: int) -> int:
        self.heard.append((name, *values))
        return self.answers.get(name, 0)

    def _get(self, out: Any) -> int:
        out[0] = self.current or None
        return 0

    def _exchange(self, mode: Any) -> int:
        mode[0], self.mode = self.mode, mode[0]
        return self._say("mode", self.mode)

    def _allocate(self, out: Any, size: int) -> int:
        out[0] = 0x5000
        return self._say("allocate", size)

    def ask(self, size: int, address: int = 0) -> tuple[int, int]:
        """Call native code; give its answer and the address."""
        places = {name: ctypes.cast(call, Word).value or 0 for name, call in self.keep.items()}
        calls, place = MemoryCalls(context=OURS, **places), ctypes.c_uint64(address)
        function = ctypes.CFUNCTYPE(ctypes.c_int, Word, ctypes.c_uint64, Word)(library().address("memory"))
        return function(ctypes.addressof(calls), size, ctypes.addressof(place)), place.value


def test_memory_is_got_and_given_back_in_the_relaxed_mode_of_captures() -> None:
    driver = Driver()
    assert driver.ask(400) == (0, 0x5000)
    assert driver.ask(0, 0x5000) == (0, 0x5000)
    assert driver.heard == [
        ("mode", 2), ("allocate", 400), ("mode", 0), ("mode", 2), ("release", 0x5000), ("mode", 0)
    ]  # fmt: skip


@pytest.mark.parametrize("current", [OTHERS, 0])
def test_another_context_is_put_back(current: int) -> None:
    driver = Driver(current)
    assert driver.ask(8)[0] == 0
    assert driver.heard == [("push", OURS), ("mode", 2), ("allocate", 8), ("mode", 0), ("pop",)]


@pytest.mark.parametrize("refused", ["push", "mode", "allocate"])
def test_a_refusal_is_the_answer_and_leaves_context_and_mode_as_they_were(refused: str) -> None:
    driver = Driver(OTHERS, **{refused: 719})
    assert driver.ask(8)[0] == 719
    names = [name for name, *_ in driver.heard]
    assert names.count("push") == names.count("pop") + (refused == "push")
    assert names.count("mode") == {"push": 0, "mode": 1, "allocate": 2}[refused]


def test_an_array_takes_two_calls_besides_the_mode_and_the_context(tmp_path: Any) -> None:
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
"""
    printed(text, environment=null_driver.build(tmp_path))
    calls = null_driver.calls(tmp_path)
    mode = {"cuThreadExchangeStreamCaptureMode": 2}
    assert {n: k for n, k in calls["empty"].items() if not n.startswith("cuCtx")} == {"cuMemAlloc_v2": 1, **mode}
    assert {n: k for n, k in calls["del"].items() if not n.startswith("cuCtx")} == {"cuMemFree_v2": 1, **mode}
    assert calls["zeros"]["cuMemsetD8_v2"] == 1
    assert sum(calls["empty"].values()) <= 6
