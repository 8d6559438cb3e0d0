"""What a forked child finds of what other threads were at."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import cujit
from cujit.forks import cached_property

_SOURCES = Path(cujit.__file__).parent


def _ends_well(child: int, within_s: float) -> bool:
    """Wait for a child; end it where it takes too long."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def test_a_property_that_another_thread_computes_does_not_stop_a_child() -> None:
    begun, go = threading.Event(), threading.Event()

    class Made:
        def __init__(self, *, waits: bool) -> None:
            self._waits = waits

        @cached_property
        def value(self) -> int:
            if self._waits:
                begun.set()
                go.wait()
            return 7

    slow = Made(waits=True)
    thread = threading.Thread(target=lambda: slow.value)
    thread.start()
    begun.wait()
    child = os.fork()
    if not child:
        os._exit(Made(waits=False).value - 7)
    try:
        assert _ends_well(child, 20)
    finally:
        go.set()
        thread.join()
    assert slow.value == slow.value == 7


def test_no_property_has_the_lock_of_functools() -> None:
    users = [file for file in _SOURCES.rglob("*.py") if "functools.cached_property" in file.read_text()]
    assert [file.name for file in users] == ["forks.py"]
    assert not [file for file in _SOURCES.rglob("*.py") if "from functools import cached_property" in file.read_text()
                and file.name != "forks.py"]  # fmt: skip
