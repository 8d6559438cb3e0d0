"""Machine code is made beside the launches, which nobody notices."""

from __future__ import annotations

import ctypes
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cujit.devices.device import Device
from cujit.devices.launcher import code, runtime
from cujit.devices.launcher import launch as launching
from cujit.devices.launcher.binder import Binder
from cujit.devices.launcher.code import launch_code
from cujit.devices.launcher.cpython import is_supported, native_type
from cujit.devices.launcher.finish import COPY
from cujit.devices.launcher.launch import attach
from cujit.errors import MissingError
from cujit.kernel import Launch
from cujit.loading import jit
from processes import printed
from waiting import eventually

pytestmark = pytest.mark.skipif(not is_supported(), reason="this interpreter takes no machine code")

FILL = """extern "C" __global__ void fill(int* p, int n, int value) {
    if (threadIdx.x < n) p[threadIdx.x] = value;
}"""


WANTED = code.Wanted(COPY, native_type(Launch).state_offset)


def test_a_launch_changes_to_machine_code_between_two_calls(cpu: Device) -> None:
    launch, p = jit(FILL, device=cpu)["fill"][1, 32], cpu.zeros(32, np.int32)
    value = 0

    def is_attached() -> bool:
        nonlocal value
        value += 1
        launch(p, 32, value)
        assert p.numpy().tolist() == [value] * 32
        return launch._prepared is not None

    eventually(is_attached)
    for _ in range(4):
        is_attached()


def test_where_the_launcher_is_not_written_for_the_processor_launches_go_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "_NATIVE", tmp_path)
    monkeypatch.setattr(runtime, "native", runtime.native.__wrapped__)
    with pytest.raises(MissingError, match="the launcher is not written for"):
        launch_code.__wrapped__(*WANTED)
    monkeypatch.setattr(code, "launch_code", launch_code.__wrapped__)
    assert code._Compiler().now(WANTED) is None


def test_threads_that_call_at_once_attach_one_code(cpu: Device) -> None:
    launch, p = jit(FILL, device=cpu)["fill"][1, 32], cpu.zeros(32, np.int32)

    def call() -> None:
        for _ in range(300):
            launch(p, 32, 1)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    attach(launch, wait=True)
    kept = launch._prepared
    for thread in threads:
        thread.join()
    assert launch._prepared is kept


def test_a_handler_of_a_signal_that_launches_the_same_meanwhile_leaves_its_code_whole(
    cpu: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch, p = jit(FILL, device=cpu)["fill"][1, 32], cpu.zeros(32, np.int32)
    begun: list[object] = []

    def interrupted(base: type) -> object:
        if launch._prepared is not None and not begun:
            begun.append(launch._prepared)
            launch(p, 32, 1)
            attach(launch, wait=True)
        return native_type(base)

    monkeypatch.setattr(launching, "native_type", interrupted)
    assert attach(launch, wait=True)
    assert begun == [launch._prepared]
    state = ctypes.c_uint64.from_address(id(launch) + native_type(Launch).state_offset).value
    assert launch._prepared is not None
    assert state == ctypes.addressof(launch._prepared.state)
    launch(p, 32, 7)
    assert p.numpy().tolist() == [7] * 32


def test_a_handler_of_a_signal_that_launches_the_same_meanwhile_does_not_bind_it_too(
    cpu: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch, p = jit(FILL, device=cpu)["fill"][1, 32], cpu.zeros(32, np.int32)
    bind, begun, q = Binder.bind, 0, cpu.zeros(32, np.int32)

    def interrupted(*given: Any) -> object:
        nonlocal begun
        begun += 1
        if begun == 1:
            launch(q, 32, 1)
        return bind(*given)

    monkeypatch.setattr(Binder, "bind", interrupted)
    assert attach(launch, wait=True)
    for value in (3, 7):
        launch(p, 32, value)
        assert (begun, p.numpy().tolist()) == (1, [value] * 32)
    assert q.numpy().tolist() == [1] * 32


def test_code_is_made_once_in_a_thread_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    def compile_(*what: Any) -> Any:
        threads.append(threading.current_thread())
        return launch_code(*what)

    monkeypatch.setattr(code, "launch_code", compile_)
    compiler = code._Compiler()
    assert compiler.soon(WANTED, "a layout") is None
    eventually(lambda: compiler.soon(WANTED, "a layout") is not None)
    assert compiler.soon(WANTED, "a layout") is compiler.now(WANTED)
    assert [thread.name for thread in threads] == ["cujit-launcher"]


def test_a_process_that_launches_three_times_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[threading.Thread] = []
    monkeypatch.setattr(threading.Thread, "start", lambda thread: begun.append(thread))
    compiler = code._Compiler()
    for _ in range(3):
        assert compiler.soon(WANTED, "a layout") is None
    assert begun == []
    assert compiler.soon(WANTED, "a layout") is None
    assert len(begun) == 1


def test_without_a_thread_nothing_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none)
    compiler = code._Compiler()
    for _ in range(5):
        assert compiler.soon(WANTED, "a layout") is None
    assert compiler.now(WANTED) is not None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_that_was_forked_during_a_compilation_compiles_too() -> None:
    code = f"""
import os, warnings
warnings.simplefilter("ignore")
import numpy as np
import cujit
cpu = cujit.cpu(1)
launch, p = cujit.jit({FILL!r}, device=cpu)["fill"][1, 32], cpu.zeros(32, np.int32)
launch(p, 32, 1)
child = os.fork()
if not child:
    from cujit.devices.launcher.launch import attach
    again, q = cujit.jit({FILL!r}, device=cpu)["fill"][1, 32], cpu.zeros(32, np.int32)
    again(q, 32, 2)
    assert attach(again, wait=True)
    for _ in range(3):
        again(q, 32, 3)
    os._exit(0 if q.numpy().tolist() == [3] * 32 else 1)
assert os.waitpid(child, 0)[1] == 0
"""
    printed(code)
