"""What a forked child finds of what other threads were at."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import cujit
from cujit.forks import cached_property
from processes import printed

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


def test_forks_are_heard_of_in_one_file() -> None:
    users = [file.name for file in _SOURCES.rglob("*.py") if "register_at_fork" in file.read_text()]
    assert users == ["forks.py"], "cujit.forks.begins_anew, in_child and waits_for"


def test_what_is_called_in_a_child_is_called_after_what_begins_anew() -> None:
    code = """
import os
from cujit.forks import begins_anew, in_child
class Item:
    def after_fork(self):
        print("anew", flush=True)
item = Item()
in_child(lambda: print("called", flush=True))
begins_anew(item)
if os.fork() == 0:
    os._exit(0)
os.wait()
"""
    assert printed(code).split() == ["anew", "called"]
