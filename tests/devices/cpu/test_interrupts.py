"""Ctrl-C and threads: no lock stays held, no shared structure is seen half changed."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

import cujit
from cujit.forks import Lock
from processes import printed

INTERRUPTED = """
import os, random, signal, sys, threading, time
import numpy as np
import cujit

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
draw, interrupted, end = random.Random(3), 0, time.monotonic() + 8
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
print(interrupted > 20, int(out.numpy()[0]))
"""


@pytest.mark.parametrize("perf", ["0", "ptx"])
def test_interrupted_launches_leave_no_lock_held(perf: str) -> None:
    # For profilers, LLVM's own loader keeps the code, so that engines of LLVM's are freed as well.
    assert printed(INTERRUPTED, perf).split() == ["True", "77"]


def test_a_handler_that_raises_cannot_leave_a_lock_held() -> None:
    # No frame of Python's runs in it, and handlers run between such frames' instructions alone.
    assert {type(Lock.__enter__), type(Lock.__exit__)} == {type(list.append)}


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
