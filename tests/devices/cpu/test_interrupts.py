"""Ctrl-C and threads: no lock stays held, no shared structure is seen half changed."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from llvmlite.binding import TargetMachine

import cujit
from cujit.devices import jit
from cujit.devices.cpu import module as cujit_module
from cujit.devices.cpu.module import CpuKernel
from cujit.devices.shapes import Dim3
from cujit.errors import ToolTimeoutError
from cujit.forks import Lock
from cujit.toolchain import stopping
from processes import printed
from raising import raises
from waiting import eventually

INTERRUPTED = """
import faulthandler, os, random, signal, sys, threading, time
import numpy as np
import cujit

faulthandler.dump_traceback_later(100, exit=True)
os.environ["CUJIT_CACHE"] = "0"
os.environ["CUJIT_PERF"] = sys.argv[1]
sys.unraisablehook = lambda unraisable: None
device = cujit.cpu(1)
out = device.zeros(32, np.uint32)
HEAD = ".version 8.0\\n.target sm_80\\n.address_size 64\\n.visible .entry k(.param .u64 p) {"


def launch(number):
    text = f"{HEAD} .reg .b64 a; ld.param.u64 a, [p]; st.global.u32 [a], {number}; ret; }}"
    cujit.load(text, device)["k"][1, 32](out)


launch(0)
draw, interrupted, end = random.Random(3), 0, time.monotonic() + 3
while time.monotonic() < end:
    try:
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, draw.uniform(0.0005, 0.02))
        launch(draw.randrange(1 << 30))
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        interrupted += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    if interrupted % 10 == 1:
        other = threading.Thread(target=launch, args=(draw.randrange(1 << 30),), daemon=True)
        other.start()
        other.join(60)
        if other.is_alive():
            sys.stdout.write("a thread waits for ever")
            sys.stdout.flush()
            os._exit(1)
launch(77)
print(interrupted > 10, int(out.numpy()[0]))
"""


@pytest.mark.parametrize("perf", ["0", "ptx"])
def test_interrupted_launches_release_every_lock(perf: str) -> None:
    # For profilers, LLVM's own loader keeps the code, so that engines of LLVM's are freed as well.
    assert printed(INTERRUPTED, perf).split() == ["True", "77"]


def test_handler_that_raises_cannot_leave_a_lock_held() -> None:
    # No frame of Python's runs in it, and handlers run between such frames' instructions alone.
    assert {type(Lock.__enter__), type(Lock.__exit__)} == {type(list.append)}


def slow(monkeypatch: pytest.MonkeyPatch, seconds: float) -> cujit.Kernel:
    """Give a kernel whose compile takes some seconds, in which LLVM is at work."""
    monkeypatch.setattr(cujit_module, "_LEAST_COMPILE_S", 0.1)
    text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 p) { ret; }"
    write, stops = CpuKernel._write, threading.Event()

    def slowly(self: CpuKernel, block: Dim3, ptx: str, *, of_source: bool) -> str:
        stops.wait(seconds)
        return write(self, block, ptx, of_source=of_source)

    monkeypatch.setattr(CpuKernel, "_write", slowly)
    monkeypatch.setenv("CUJIT_CACHE", "0")
    return cujit.load(text, cujit.cpu(1))["k"]


def test_launch_time_limit_covers_its_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = slow(monkeypatch, 3)
    begin = time.monotonic()
    with raises(ToolTimeoutError, "tool-timeout", "k", "32 x 1 x 1", "0.2") as error:
        kernel.prepare(1, 32, timeout_s=0.2)(None)
    assert time.monotonic() - begin < 2
    assert "kernel.compile((32, 1, 1))" in str(error.value.help)
    kernel[1, 32](None)  # waits for the compile that goes on, and runs


def test_compile_may_use_some_cpu_time_for_any_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, write = slow(monkeypatch, 0), CpuKernel._write

    def work(self: CpuKernel, block: Dim3, ptx: str, *, of_source: bool) -> str:
        end = time.process_time() + 0.5
        while time.process_time() < end:
            pass
        return write(self, block, ptx, of_source=of_source)

    monkeypatch.setattr(CpuKernel, "_write", work)
    monkeypatch.setattr(cujit_module, "_LEAST_COMPILE_S", 60)
    kernel.prepare(1, 32, timeout_s=0.01)(None)
    monkeypatch.setattr(cujit_module, "_LEAST_COMPILE_CPU_S", 0.1)
    with raises(ToolTimeoutError, "tool-timeout", "64", "0.1"):
        kernel.prepare(1, 64, timeout_s=0.01)(None)


def test_compile_in_time_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    slow(monkeypatch, 0).prepare(1, 32, timeout_s=60)(None)


@pytest.fixture
def switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("switching")
@pytest.mark.parametrize("check", ["memory", "init", "all"])
def test_threads_allocate_free_and_launch_on_one_checked_device(check: str) -> None:
    device = cujit.cpu(1, check=check)
    text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 p) {"
    text += " .reg .b64 a; ld.param.u64 a, [p]; st.global.u32 [a], 7; ret; }"
    kernel = cujit.load(text, device)["k"]
    errors: list[BaseException] = []
    end = time.monotonic() + 2

    def work() -> None:
        try:
            while time.monotonic() < end:
                out = device.zeros(64, np.uint32)
                device.array(np.ones(3, np.uint32))
                kernel[1, 1](out)
                host = np.zeros(8, np.uint32)
                adopted = device.adopt(host.ctypes.data, host.nbytes)
                assert out.numpy()[0] == 7
                adopted.close()
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def _interrupted(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> list[str]:
    """Interrupt the main thread while LLVM has read a module, and list what LLVM does with it afterwards."""
    eventually(lambda: not stopping.is_work_left())  # of the tests before
    calls: list[str] = []
    was_left = threading.Event()

    def look(_: str) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        assert was_left.wait(60)

    def listed(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def listing(*arguments: object, **named: object) -> Any:
            calls.append(name)
            return call(*arguments, **named)

        return listing

    monkeypatch.setattr(jit, "_LOOKERS", [look])
    monkeypatch.setattr(jit, "_optimise_all", listed("optimise", jit._optimise_all))
    monkeypatch.setattr(TargetMachine, "emit_object", listed("generate", TargetMachine.emit_object))
    with pytest.raises(KeyboardInterrupt):
        work()
    was_left.set()
    eventually(lambda: not stopping.is_work_left())
    return calls


def test_llvm_leaves_an_interrupted_compile_before_the_next_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    ir = "define void @run() { ret void }"
    assert _interrupted(monkeypatch, lambda: jit.emit_object(ir)) == []


def test_compile_of_a_late_launch_is_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    ir = "define void @run() { ret void }"
    assert _interrupted(monkeypatch, lambda: jit.aside(lambda: jit.emit_object(ir), lambda: False)) == [
        "optimise",
        "generate",
    ]
