"""One maker per key: among threads, among processes, and through forks."""

from __future__ import annotations

import fcntl
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cujit.cache.filesystem import is_remote
from cujit.cache.flight import Flight, SingleFlight, fresh
from cujit.cache.lock import Hold, KeyLocks, lock_file
from cujit.cache.store import Store
from cujit.cache.trust import Trust
from cujit.errors import PtxSyntaxError
from cujit.threads import Condition
from waiting import eventually

# Only these few tests fork a process that may have threads, those of pytest-xdist; the children need none of them.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

KEY, OTHER = "ab" * 32, "cd" * 32


def never() -> bool:
    return False


def unexpected(error: OSError) -> None:
    raise AssertionError(error)


# Threads


def others_wait(flights: SingleFlight[int], count: int) -> None:
    """Wait until so many threads wait for what is under way."""
    changed = flights._under_way[KEY].changed
    eventually(lambda: len(changed._bells) >= count)


def test_flight_of_a_single_thread_creates_no_lock() -> None:
    flights: SingleFlight[int] = SingleFlight()
    kept = []

    def work() -> int:
        kept.append(flights._under_way[KEY])
        return 7

    assert flights.run(KEY, work, 30) == (7, False)
    assert kept[0].done
    assert not any(isinstance(value, Condition) for value in vars(kept[0]).values())


def test_24_threads_with_the_same_work_do_it_once() -> None:
    flights: SingleFlight[int] = SingleFlight()
    made = []

    def work() -> int:
        made.append(1)
        others_wait(flights, 23)
        return 7

    def ask(_: int) -> tuple[int, bool]:
        return flights.run(KEY, work, 30)

    with ThreadPoolExecutor(24) as pool:
        results = list(pool.map(ask, range(24)))
    assert len(made) == 1
    assert sorted(results) == [(7, False)] + [(7, True)] * 23


def led(flights: SingleFlight[int], work: Callable[[], int]) -> tuple[threading.Thread, list[BaseException]]:
    """Start a thread that leads a flight, and wait until it is under way."""
    began, errors = threading.Event(), []

    def lead() -> None:
        def told() -> int:
            began.set()
            return work()

        try:
            flights.run(KEY, told, 30)
        except BaseException as e:
            errors.append(e)

    thread = threading.Thread(target=lead)
    thread.start()
    assert began.wait(10)
    return thread, errors


def test_each_thread_gets_its_own_exception_and_can_retry() -> None:
    flights: SingleFlight[int] = SingleFlight()

    def fail() -> int:
        others_wait(flights, 1)
        raise ValueError("no")

    thread, errors = led(flights, fail)
    with pytest.raises(ValueError, match="no") as error:
        flights.run(KEY, lambda: 1, 30)
    thread.join()
    assert isinstance(errors[0], ValueError)
    assert errors[0] is not error.value
    assert flights.run(KEY, lambda: 1, 30) == (1, False)


def test_interrupt_of_the_working_thread_is_not_passed_on() -> None:
    flights: SingleFlight[int] = SingleFlight()

    def interrupt() -> int:
        others_wait(flights, 1)
        raise KeyboardInterrupt

    thread, errors = led(flights, interrupt)
    assert flights.run(KEY, lambda: 2, 30) == (2, False)
    thread.join()
    assert [type(e) for e in errors] == [KeyboardInterrupt]


def test_flight_ended_by_a_signal_handler_starts_again() -> None:
    flights: SingleFlight[int] = SingleFlight()
    left: Flight[int] = Flight()
    flights._under_way[KEY] = left
    assert flights.run(KEY, lambda: 1, 60) == (1, False)
    flights._under_way[KEY] = left
    with left.running, ThreadPoolExecutor(1) as pool:
        waits = pool.submit(flights.run, KEY, lambda: 2, 60)
        others_wait(flights, 1)
        left.running.release()
        assert waits.result(60) == (2, False)
        left.running.acquire()


def test_work_that_takes_too_long_is_repeated() -> None:
    flights: SingleFlight[int] = SingleFlight()
    done = threading.Event()
    thread, _ = led(flights, lambda: int(done.wait(20)))
    assert flights.run(KEY, lambda: 2, 0.01) == (2, False)
    done.set()
    thread.join()


def test_recursive_work_does_not_wait_for_itself() -> None:
    flights: SingleFlight[int] = SingleFlight()
    begin = time.monotonic()
    assert flights.run(KEY, lambda: 1 + flights.run(KEY, lambda: 1, 30)[0], 30) == (2, False)
    assert time.monotonic() - begin < 20


def test_exception_that_cannot_be_copied_is_passed_on_itself() -> None:
    class OddError(Exception):
        def __init__(self, what: str, where: str) -> None:
            super().__init__(what + where)

    error = OddError("bad", "here")
    assert fresh(error) is error
    ours = PtxSyntaxError("bad", line=1, column=1, source_line="x")
    assert (fresh(ours) is ours, vars(fresh(ours))) == (False, vars(ours))
    try:
        raise ValueError("a") from KeyError("b")
    except ValueError as e:
        again = fresh(e)
    assert (again.args, again.__traceback__) == (("a",), None)
    assert isinstance(again.__cause__, KeyError)


# Processes


@pytest.fixture
def locks(tmp_path: Path) -> KeyLocks:
    return KeyLocks(lambda: tmp_path / "lock", Trust.of_process())


@pytest.fixture
def other(tmp_path: Path) -> KeyLocks:
    """The locks of another process, as far as the kernel can tell."""
    return KeyLocks(lambda: tmp_path / "lock", Trust.of_process())


def forked(work: Callable[[], object]) -> int:
    """Do work in a child that then stays until it is killed; returns when the work is done."""
    done, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os.write(tell, b"x")
            time.sleep(60)
        finally:
            os._exit(0)
    os.close(tell)
    assert os.read(done, 1) == b"x"
    os.close(done)
    return pid


def killed(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_lock_is_for_one_key_and_given_back(locks: KeyLocks, other: KeyLocks) -> None:
    with locks.hold(KEY, 9, never, unexpected) as first, other.hold(OTHER, 9, never, unexpected) as second:
        assert (first, second) == (Hold.FIRST, Hold.FIRST)
    with other.hold(KEY, 9, never, unexpected) as again:
        assert again is Hold.FIRST


def test_slow_lock_holder_only_delays_others(locks: KeyLocks, other: KeyLocks) -> None:
    with locks.hold(KEY, 9, never, unexpected), other.hold(KEY, 0.05, never, unexpected) as hold:
        assert hold is Hold.WITHOUT


def test_no_process_waits_after_the_result_exists(locks: KeyLocks, other: KeyLocks) -> None:
    with locks.hold(KEY, 9, never, unexpected), other.hold(KEY, 60, lambda: True, unexpected) as hold:
        assert hold is Hold.WAITED


def test_lock_of_a_killed_process_is_free_at_once(locks: KeyLocks) -> None:
    held = locks.hold(KEY, 9, never, unexpected)
    pid = forked(held.__enter__)
    with locks.hold(KEY, 0.05, never, unexpected) as hold:
        assert hold is Hold.WITHOUT
    killed(pid)
    with locks.hold(KEY, 9, never, unexpected) as hold:
        assert hold in (Hold.FIRST, Hold.WAITED)


@pytest.fixture
def child(locks: KeyLocks) -> Iterator[tuple[KeyLocks, int]]:
    """The locks, of which one was held while a child was forked that is still there."""
    with locks.hold(KEY, 9, never, unexpected):
        pid = forked(lambda: None)
    yield locks, pid
    killed(pid)


def test_child_forked_under_a_lock_does_not_hold_it(child: tuple[KeyLocks, int]) -> None:
    with child[0].hold(KEY, 0.05, never, unexpected) as hold:
        assert hold is Hold.FIRST


def test_child_neither_holds_nor_releases_its_parents_locks(locks: KeyLocks, other: KeyLocks) -> None:
    held = locks.hold(KEY, 9, never, unexpected)
    held.__enter__()

    def end() -> None:
        locks.after_fork()
        reused = os.open("/dev/null", os.O_RDONLY)
        held.__exit__(None, None, None)
        os.fstat(reused)  # it is open still

    pid = forked(end)
    with other.hold(KEY, 0.05, never, unexpected) as hold:
        assert hold is Hold.WITHOUT
    killed(pid)
    held.__exit__(None, None, None)


def test_work_continues_on_systems_without_locks(locks: KeyLocks, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[OSError] = []

    def refuse(*_: object) -> bool:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "fcntl", refuse)
    with locks.hold(KEY, 9, never, told.append) as hold:
        assert hold is Hold.WITHOUT
    nowhere = KeyLocks(lambda: Path("/nonexistent/lock"), Trust.of_process())
    with nowhere.hold(KEY, 9, never, told.append) as hold:
        assert hold is Hold.WITHOUT
    assert len(told) == 2


def test_locks_leave_no_descriptor_open(locks: KeyLocks) -> None:
    before = os.listdir("/proc/self/fd")
    for _ in range(3):
        with locks.hold(KEY, 9, never, unexpected):
            pass
    assert os.listdir("/proc/self/fd") == before


class _Remote(Store):
    is_remote = True


def test_locks_of_a_remote_root_are_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trust = Trust.of_process()
    local = Store(tmp_path, trust, writable=True)
    assert not is_remote(tmp_path)
    assert (
        lock_file(
            local,
            tmp_path / "run",
        )
        == tmp_path / "lock"
    )
    remote = _Remote(tmp_path / "nfs", trust, writable=True)
    (tmp_path / "run").mkdir(0o700)
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    assert lock_file(remote, tmp_path / "run").parent == tmp_path / "run"
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    for runtime in (None, tmp_path / "open", tmp_path / "none"):
        found = lock_file(remote, runtime)
        assert found.parent == tmp_path / f"cujit-{os.geteuid()}"
        assert found.parent.stat().st_mode & 0o777 == 0o700
    (tmp_path / f"cujit-{os.geteuid()}").chmod(0o777)
    with pytest.raises(PermissionError, match="other users can write to"):
        lock_file(remote, None)
