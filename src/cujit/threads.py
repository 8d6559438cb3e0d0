"""Threads and waiting primitives that signal handlers can't break.

Python runs signal handlers in the main thread between two instructions of Python code, and Ctrl-C raises an exception
there. If Python code takes a lock and is interrupted before it returns, the lock stays locked, and other threads wait
forever. This affects ``threading.Condition``, ``Event``, ``queue.Queue``, ``Future``, ``ThreadPoolExecutor``, and
``Thread.start``. cujit uses this module instead, and a test enforces it.
"""

from __future__ import annotations

import _thread
import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence

from cujit.forks import Lock
from cujit.values.typed import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")


class Condition(Lock):
    """A lock that is entered and left in C, like ``Lock``. Its holder can wait until another thread notifies it."""

    def __init__(self) -> None:
        super().__init__()
        self._bells: list[Any] = []

    def after_fork(self) -> None:
        """Unlock it in a forked child, where no other thread waits."""
        super().after_fork()
        self._bells = []

    def wait(self, timeout_s: float | None = None) -> bool:
        """Release the lock until a notification or the end of the time; return whether there was a notification.

        The thread must hold the lock once.
        """
        bell = _thread.allocate_lock()
        bell.acquire()
        self._bells.append(bell)
        limit_s = -1 if timeout_s is None else max(timeout_s, 0.0)
        held_once = 1, _thread.get_ident()
        try:  # Handlers run after calls. The first call is in C and releases the lock, and the next one takes it again.
            self._release_save()
            return bell.acquire(timeout=limit_s)
        finally:
            self._acquire_restore(held_once)
            if bell in self._bells:
                self._bells.remove(bell)

    def notify_all(self) -> None:
        """Wake all threads that wait. The thread must hold the lock."""
        bells, self._bells = self._bells, []
        for bell in bells:
            bell.release()


_STARTING = Lock()


def start(
    body: Callable[..., object], *arguments: object, name: str, daemon: bool = False, stack_bytes: int = 0
) -> threading.Thread:
    """Start a thread that runs ``body(*arguments)``, and return the thread.

    ``Thread.start`` waits in Python code until the thread runs. For the main thread, another thread calls it.

    Args:
        stack_bytes: the size of its stack if the system grants so much; 0 is Python's default.

    Raises:
        RuntimeError: the system gives no thread.
    """
    thread = threading.Thread(target=body, args=arguments, name=name, daemon=daemon)
    refused: list[RuntimeError] = []
    is_begun = _thread.allocate_lock()

    def begin() -> None:
        try:
            _begin(thread, stack_bytes)
        except RuntimeError as e:
            refused.append(e)
        finally:
            is_begun.release()

    is_begun.acquire()
    if threading.current_thread() is threading.main_thread():
        _thread.start_new_thread(begin, ())
        is_begun.acquire()
    else:
        begin()
    if refused:
        raise refused.pop()
    return thread


def _begin(thread: threading.Thread, stack_bytes: int) -> None:
    with _STARTING:
        usual = threading.stack_size()
        try:
            threading.stack_size(stack_bytes or usual)
            thread.start()
        except RuntimeError:  # the address space of the process is limited
            if not stack_bytes:
                raise
            threading.stack_size(usual)
            thread.start()
        finally:
            threading.stack_size(usual)


def as_done(
    works: Sequence[Callable[[], T]], threads: int, name: str, give_up: Callable[[], object] = lambda: None
) -> Generator[tuple[int, Callable[[], T]], None, None]:
    """Do tasks in several threads, and yield the number of each finished task with a function that returns its result.

    The function raises the exception of the task. If the iterator is closed early, it calls ``give_up``, starts no more
    tasks, and waits for the running ones.
    """
    from queue import SimpleQueue  # start-up: few do several things at once. Its methods are in C

    left = deque(enumerate(works))
    done: SimpleQueue[tuple[int, Callable[[], T]]] = SimpleQueue()

    def work() -> None:
        while left:
            try:
                number, each = left.popleft()
            except IndexError:  # another thread took the last one
                return
            done.put((number, _outcome(each)))

    started: list[threading.Thread] = []
    is_whole = False
    try:
        started.extend(start(work, name=name) for _ in range(min(len(works), threads)))
        for _ in works:
            yield done.get()
        is_whole = True
    finally:
        left.clear()
        if not is_whole:
            give_up()
        for thread in started:
            thread.join()


def _outcome(work: Callable[[], T]) -> Callable[[], T]:
    """Do work, and return a function that returns its result or raises its error."""
    try:
        result = work()
    except BaseException as e:
        error = e
    else:
        return lambda: result

    def fail() -> T:
        raise error

    return fail


def future_of(work: Callable[[], T], name: str) -> Future[T]:
    """Run a function in a thread, and return a ``Future`` of its result. No signal handler can interrupt inside its
    lock.
    """
    from concurrent.futures import Future  # start-up: few do something in the background

    made: Future[T] = Future()
    made._condition = Condition()

    def run() -> None:
        if not made.set_running_or_notify_cancel():
            return
        try:
            made.set_result(work())
        except BaseException as e:
            made.set_exception(e)

    start(run, name=name)
    return made
