"""Ending what NVIDIA's libraries do: work goes to a thread of its own, so that whoever waits for it can stop waiting.

A library that compiles holds the thread that called it, and Python's handlers of signals run in the main thread alone:
a compile there is deaf to Ctrl-C. NVRTC can be asked to stop by a callback (``nvrtcSetFlowCallback``, where the
release has it); its C++ front end and its assembler look at that seldom (measured with 13.5: up to 3 s and 30 s apart
in large sources), and the other libraries never. Whoever waits goes on all the same; the thread ends by itself later.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cujit.threads import Condition, start
from cujit.values.imported import imported
from cujit.values.typed import Any, TypeVar

T = TypeVar("T")

_GRACE_S = 0.2
"""How long work that was asked to end is waited for."""

_SLICE_S = 0.05
"""How long Ctrl-C may go unheard: NVRTC 13.0 changes how signals are handled when a compile begins."""

_STACK_BYTES = 512 << 20
"""The stack of a thread that compiles: address space, of which a compile takes what it needs.

The main thread's grows while NVRTC compiles; in a thread with the usual 8 MiB, 2,000 nested parentheses end the
process (measured, NVRTC 13.5).
"""


class Ended(Exception):  # no error of the work: nobody waited for it any longer
    """Work was stopped before it was done."""


class Stop:
    """A request to stop work, which any thread may make. It is permanent."""

    def __init__(self) -> None:
        self.changed = Condition()
        self.is_requested = False
        self._flags: list[Any] = []
        self._means: list[Callable[[], object]] = []

    def flow_callback(self) -> tuple[int, int]:
        """Return callback and payload for ``nvrtcSetFlowCallback``. The Stop must outlive the compile.

        NVRTC calls f(payload, NULL) a million times and wants 0 or 1. C's atoi reads just that out of a text, takes no
        lock of Python's, and never minds a second argument.
        """
        import ctypes  # whoever finds everything in the cache does without

        with self.changed:
            flag = ctypes.create_string_buffer(b"1" if self.is_requested else b"0")
            self._flags.append(flag)
        return ctypes.cast(ctypes.CDLL(None).atoi, ctypes.c_void_p).value or 0, ctypes.addressof(flag)

    def ask(self) -> None:
        """Request a stop: set the flag that NVRTC checks, and call the functions of ``by``."""
        with self.changed:
            self.is_requested = True
            for flag in self._flags:
                flag[0] = b"1"
            means, self._means = self._means, []
            self.changed.notify_all()
        for end in means:
            end()

    @contextmanager
    def by(self, end: Callable[[], object]) -> Iterator[None]:
        """Call ``end()`` if a stop is requested during the body, from another thread. Call it at once if one was
        already requested.
        """
        with self.changed:
            was_requested = self.is_requested
            if not was_requested:
                self._means.append(end)
        if was_requested:
            end()
        try:
            yield
        finally:
            with self.changed:
                if end in self._means:
                    self._means.remove(end)


_heeded = threading.local()


def current_stop() -> Stop | None:
    """Return the Stop that work in this thread must respect, if any."""
    return getattr(_heeded, "stop", None)


def end_if_requested() -> None:
    """Raise ``Ended`` if a stop of this thread's work was requested."""
    stop = current_stop()
    if stop is not None and stop.is_requested:
        raise Ended


def to_its_end(work: Callable[[], T]) -> T:
    """Do work in this thread to its end, even if no thread waits for it any longer."""
    _heeded.stop = None
    return work()


def finish(
    work: Callable[[], T],
    stop: Stop,
    until: float | Callable[[], bool] | None = None,
    *,
    stack_bytes: int = _STACK_BYTES,
) -> T:
    """Do the work in a thread, and wait for it until it is done, ``stop`` is asked, or its time is over.

    ``until`` is that time as of ``time.monotonic()``, or returns whether it is over. What the work raises is raised. An
    exception in the wait, as Ctrl-C makes in the main thread, asks ``stop`` too.
    Work that was asked to end is waited for 0.2 s; then it is left alone, and what comes of it is dropped.

    Raises:
        Ended: it was not done in time, or somebody asked ``stop``.
    """
    outcome: list[tuple[T | None, BaseException | None]] = []

    def body() -> None:
        _heeded.stop = stop
        result: tuple[T | None, BaseException | None]
        try:
            result = work(), None
        except BaseException as e:
            result = None, e
        with stop.changed:
            outcome.append(result)
            stop.changed.notify_all()

    def wait(until: float | Callable[[], bool] | None, or_requested: bool) -> None:
        with stop.changed:
            while not (outcome or (or_requested and stop.is_requested)):
                left_s = min(_SLICE_S, until - time.monotonic()) if isinstance(until, float) else _SLICE_S
                if left_s <= 0 or (callable(until) and until()):
                    break
                stop.changed.wait(left_s)
                _put_back_signals()

    try:
        start(body, name=_NAME, stack_bytes=stack_bytes)
        wait(until, or_requested=True)
    except BaseException:
        stop.ask()
        wait(time.monotonic() + _GRACE_S, or_requested=False)
        raise
    if not outcome:
        stop.ask()
        wait(time.monotonic() + _GRACE_S, or_requested=False)
    if not outcome or (outcome[0][1] is not None and stop.is_requested):
        raise Ended
    result, error = outcome.pop()
    if error is not None:
        raise error
    return result  # type: ignore[return-value]


def _put_back_signals() -> None:
    nvrtc = imported("cujit.toolchain.process_state")  # which a process without NVRTC does without
    if nvrtc is not None:
        nvrtc.process_state().put_back_signals()


def is_work_left() -> bool:
    """Return whether a library still does abandoned work. Python waits for this work when it exits."""
    return any(thread.name == _NAME for thread in threading.enumerate())


_NAME = "cujit-tool"
