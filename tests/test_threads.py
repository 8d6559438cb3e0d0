"""Threads, and waiting for them: no signal handler leaves a lock held, whatever instruction of Python it interrupts."""

from __future__ import annotations

import re
import threading
from contextlib import closing
from pathlib import Path

import pytest

import cujit
from cujit.threads import Condition, as_done, future_of, start
from processes import printed

TWO_SIGNALS = """
import _thread, ctypes, os, signal, sys, time
from cujit.threads import Condition

numbers = signal.SIGUSR1, signal.SIGUSR2
for number in numbers:
    signal.signal(number, signal.default_int_handler)
kill = ctypes.PyDLL(None).kill  # with Python's lock held: the main thread finds both


def interrupt():
    time.sleep(0.1)
    for number in numbers:
        kill(os.getpid(), number)


sys.setswitchinterval(60)
changed = Condition()
_thread.start_new_thread(interrupt, ())
try:
    with changed:
        changed.wait(20)
except BaseException as e:
    print(type(e).__name__, type(e.__context__).__name__, changed._is_owned())
"""

INTERRUPTED = """
import os, random, signal, sys, threading, time
from cujit.cache.flight import SingleFlight
from cujit.devices.cpu.run.grid import Pool
from cujit.threads import as_done, future_of
from cujit.toolchain import stopping

stopping._GRACE_S = 0.0
sys.unraisablehook = lambda unraisable: None
flights, asked = SingleFlight(), 0


def flight():
    # Another thread leads, and waits for the main thread, or the other way round.
    global asked
    asked += 1
    other = future_of(lambda: flights.run(asked, int, 60), "other")
    flights.run(asked, int, 60)
    other.result()


DO = {
    "finish": lambda: stopping.finish(int, stopping.Stop()),
    "several": lambda: list(as_done([int] * 4, 2, "some")),
    "future": lambda: future_of(int, "future").result(),
    "flight": flight,
    "pool": lambda: Pool(1),
}[sys.argv[1]]
DO()
draw, interrupted, end = random.Random(1), 0, time.monotonic() + 1
signal.signal(signal.SIGALRM, signal.default_int_handler)
while time.monotonic() < end:
    try:
        signal.setitimer(signal.ITIMER_REAL, draw.uniform(1e-5, 5e-4))
        DO()
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        interrupted += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
end = time.monotonic() + 20
while (left := {thread.name for thread in threading.enumerate()[1:]} - {"cujit-cpu"}) and time.monotonic() < end:
    time.sleep(0.01)
print(interrupted > 50, *left, flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("what", ["finish", "several", "future", "flight", "pool"])
def test_no_thread_waits_forever_after_interrupts(what: str) -> None:
    assert printed(INTERRUPTED, what).split() == ["True"]


_OF_PYTHON = re.compile(
    r"threading\.(Barrier|BoundedSemaphore|Condition|Event|Semaphore|Thread|Timer)\(|from threading import"
    r"|queue\.(Lifo|Priority)?Queue\(|(Thread|Process)PoolExecutor\("
)
_ALLOWED = {
    "threads.py",
    "farm/publishing.py",  # `wait` for what is published, in a command of its own
    "worklist/building.py",  # an executor is what the function takes
}


def test_threads_start_and_wait_in_one_file() -> None:
    sources = Path(cujit.__file__).parent
    files = [file for file in sources.rglob("*.py") if _OF_PYTHON.search(file.read_text())]
    assert {str(file.relative_to(sources)) for file in files} == _ALLOWED, "cujit.threads"


def test_condition_is_entered_and_left_in_c() -> None:
    assert {type(Condition.__enter__), type(Condition.__exit__)} == {type(list.append)}


def test_two_concurrent_signals_leave_no_lock_held() -> None:
    assert printed(TWO_SIGNALS) == "KeyboardInterrupt KeyboardInterrupt False\n"


def test_waiter_is_notified_or_times_out() -> None:
    condition, heard = Condition(), []

    def wait() -> None:
        with condition:
            heard.append(condition.wait(60))

    thread = start(wait, name="waits")
    while not heard:
        with condition:
            condition.notify_all()
    thread.join()
    with condition:
        assert (heard, condition.wait(0.001)) == ([True], False)
    assert not condition._bells


def test_tasks_return_results_and_errors_and_unstarted_remain() -> None:
    def fail() -> int:
        raise ValueError("no")

    with closing(as_done([lambda: 1, fail, lambda: 3], 2, "some")) as done:
        results = dict(done)
    assert (results[0](), results[2]()) == (1, 3)
    with pytest.raises(ValueError, match="no"):
        results[1]()
    gone = threading.Event()
    begun: list[None] = []

    def work() -> None:
        begun.append(None)
        gone.wait(60)

    with closing(as_done([lambda: None, *[work] * 5], 1, "some", gone.set)) as left:
        next(left)
    assert (gone.is_set(), len(begun) < 2) == (True, True)


def test_future_has_a_result_an_error_or_nothing() -> None:
    def fail() -> None:
        raise ValueError("no")

    assert future_of(lambda: 1, "one").result(60) == 1
    assert isinstance(future_of(fail, "fails").exception(60), ValueError)


def test_thread_gets_its_required_or_the_default_stack() -> None:
    def deep(levels: int) -> int:
        return 0 if not levels else 1 + max([deep(levels - 1)])

    before = threading.stack_size()
    start(deep, 100, name="deep", stack_bytes=64 << 20).join()
    start(deep, 100, name="deep", stack_bytes=1 << 60).join()
    assert threading.stack_size() == before
