"""Launches under checks that native code starts: they find what others find, and see each change of memory."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import cujit
from cujit.devices.cpu.module import CpuKernel
from cujit.errors import CheckWarning, KernelFaultError
from raising import raises

pytestmark = pytest.mark.usefixtures("unoptimised")

CODE = r"""
extern "C" __global__ void move(const float *x, float *y, long long at) { y[threadIdx.x] = x[threadIdx.x + at]; }
"""


class Moves:
    """A launch whose memory is known, and how often Python made it since."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.device = cujit.cpu(1, check="all")
        self.x, self.y = self.device.array(np.ones(64, np.float32)), self.device.zeros(32, np.float32)
        self.launch = cujit.load(cujit.compile(CODE, arch="compute_80"), self.device)["move"].prepare(1, 32)
        self.launch(self.x, self.y, 0)
        self.count = 0
        plain = CpuKernel.launch

        def launch(*arguments: object, **named: object) -> None:
            self.count += 1
            plain(*arguments, **named)  # type: ignore[arg-type]

        patch.setattr(CpuKernel, "launch", launch)

    def settle(self) -> None:
        """Launch until Python has no part in it."""
        self.launch(self.x, self.y, 0)
        self.count = 0


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch) -> Moves:
    made = Moves(monkeypatch)
    made.settle()
    return made


def test_repeated_launch_runs_no_python(moves: Moves) -> None:
    moves.launch(moves.x, moves.y, 32)
    made = moves.count
    assert made == 0
    more = moves.device.zeros(64, np.float32)
    moves.launch(more, moves.y, 0)
    moves.launch(more, moves.y, 1)
    made = moves.count
    assert made == 1
    assert not moves.y.numpy().any()


def test_native_and_python_find_the_same(moves: Moves) -> None:
    words = []
    for _ in range(2):
        with raises(KernelFaultError, "fault-memory", "256-byte") as found:
            moves.launch(moves.x, moves.y, 40)
        words.append((found.value.message, found.value.kind, found.value.thread))
        moves.device.zeros(1, np.int8)
    assert words[0] == words[1]
    assert moves.count == 1
    assert words[0][1:] == ("memory", (24, 0, 0))


def test_freed_array_is_no_longer_valid_memory(moves: Moves) -> None:
    gone = moves.device.array(np.ones(64, np.float32))
    at = cujit.Pointer(gone.address)
    moves.launch(at, moves.y, 0)
    moves.settle()
    del gone
    for count in (1, 1):
        with raises(KernelFaultError, "fault-memory", "freed"):
            moves.launch(at, moves.y, 0)
        assert moves.count == count


def test_python_counts_the_bytes_of_host_arrays(moves: Moves) -> None:
    whole = np.ones(64, np.float32)
    with raises(KernelFaultError, "fault-memory", "1", "numpy"):
        moves.launch(whole, moves.y, 33)
    with pytest.warns(CheckWarning, match="outside the view passed to the kernel"):
        moves.launch(whole[:40], moves.y, 16)
    assert moves.count == 2


def test_memory_at_a_bare_address_is_found_by_python(moves: Moves) -> None:
    hidden = np.full(64, 7, np.float32)
    for count in (1, 2):
        moves.launch(cujit.Pointer(hidden.ctypes.data), moves.y, 0)
        assert moves.count == count
        assert (moves.y.numpy() == 7).all()


def test_large_number_is_not_an_address(moves: Moves) -> None:
    with raises(KernelFaultError, "fault-memory", "4", "Invalid"):
        moves.launch(moves.x, moves.y, 1 << 40)
    assert not moves.count


def test_uninitialized_value_stored_by_native_code_is_named(moves: Moves) -> None:
    part = moves.device.empty(64, np.float32)
    part[:32].copy_from(np.ones(32, np.float32))
    moves.settle()
    moves.launch(part, moves.y, 0)
    moves.y.numpy()
    moves.launch(part, moves.y, 1)
    assert not moves.count
    with raises(KernelFaultError, "fault-init", "31", "124", "move"):
        moves.y.numpy()


def test_adopted_memory_is_looked_at_when_a_launch_ends(moves: Moves) -> None:
    whole, empty = np.zeros(32, np.float32), moves.device.empty(64, np.float32)
    adopted = moves.device.adopt(whole.ctypes.data, whole.nbytes)
    for count in (1, 2):
        with raises(KernelFaultError, "fault-init", "x[:n].numpy()"):
            moves.launch(empty, cujit.Pointer(whole.ctypes.data), 0)
        assert moves.count == count
    del adopted


def test_threads_launch_while_others_allocate(moves: Moves) -> None:
    failed: list[BaseException] = []

    def work(k: int) -> None:
        try:
            y = moves.device.zeros(32, np.float32)
            for _ in range(100):
                x = moves.device.array(np.full(64, k, np.float32)) if k % 2 else moves.x
                moves.launch(x, y, k)
                assert y[0].numpy() == (k if k % 2 else 1)
        except BaseException as e:
            failed.append(e)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
