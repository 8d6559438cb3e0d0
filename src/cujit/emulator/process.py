"""The emulation of a process: its device, what was asked of it, and what it says in words."""

from __future__ import annotations

import collections
import contextlib
import os
import sys
import threading

from cujit.devices.cpu.backend import CpuBackend
from cujit.emulator.call_log import Notes
from cujit.emulator.machine import Native, native
from cujit.emulator.results import RefusedCall, Result
from cujit.emulator.settings import EmulatorSettings
from cujit.forks import cached_property, once


class Emulation:
    """What the entry points of a process share.

    ``call_counts`` counts calls of Python's entry points by name, ``refused`` the calls that no entry point answers.
    ``notes`` has the files in which both are written down. ``last_errors`` has the message of the last refusal of each
    thread, by the thread's number. ``fault`` has the message of the last kernel that could not go on.
    """

    def __init__(self, settings: EmulatorSettings) -> None:
        self.settings = settings
        self.notes = Notes(settings)
        self.call_counts: collections.Counter[str] = collections.Counter()
        self.refused: collections.Counter[str] = collections.Counter()
        self.last_errors: dict[int, tuple[Result, str]] = {}
        self.fault: tuple[Result, str] = (Result.SUCCESS, "")

    @property
    def native(self) -> Native:
        """The entry points in C."""
        return native()

    @cached_property
    def device(self) -> CpuBackend:
        """The CPU device that runs the kernels: made at the first call that needs it.

        It knows all memory that the driver gives or registers; a GPU reaches no other (``PAGEABLE_MEMORY_ACCESS`` is
        0).
        """
        settings = self.settings
        return CpuBackend(settings.threads, check=settings.check, knows_all=True, timeout_s=settings.timeout_s)

    def refuse(self, name: str) -> None:
        """Count a call that nobody answers; the first of a name is said."""
        self.refused[name] += 1
        self.notes.refused(name)
        if self.refused[name] == 1:
            say(f"{name} is not emulated: it returns CUDA_ERROR_NOT_SUPPORTED")

    def remember(self, error: RefusedCall) -> None:
        """Keep the words of a refusal for who asks this thread's ``cuGetErrorString``."""
        self.last_errors[threading.get_native_id()] = (error.result, error.words)

    def words(self, result: int) -> str:
        """Return the message of this thread's last refusal, or of the last fault, if it is of that kind."""
        kept, words = self.last_errors.get(threading.get_native_id(), (None, ""))
        fault, what = self.fault
        return (words if kept is result else "") or (what if fault is result else "")


def say(words: str) -> None:
    """Write a line to standard error, whatever Python's own stands for, after what that has written before."""
    with contextlib.suppress(OSError, ValueError):  # of a standard error that is closed
        if sys.stderr is not None:
            sys.stderr.flush()
    with contextlib.suppress(OSError):
        os.write(2, f"cujit emulate: {words}\n".encode(errors="replace"))


@once
def emulation() -> Emulation:
    """Return the emulation of this process, made as the environment specifies.

    Raises:
        OptionError: the environment says what cannot be.
        MissingError: llvmlite is not installed.
        UnsupportedError: the emulator is not written for this processor.
    """
    return Emulation(EmulatorSettings.from_environment())
