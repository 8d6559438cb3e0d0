"""The emulation of a process: its device, its call counts, and its messages."""

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
    """The state that the entry points of a process share.

    ``call_counts`` counts calls of Python's entry points by name, and ``refused`` counts calls that are not emulated.
    ``notes`` writes both counts to files. ``last_errors`` contains the result and message of each thread's last
    refusal, by thread ID. ``fault`` contains the result and message of the last kernel fault.
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
        """The CPU device that runs the kernels, created at the first call that needs it.

        It knows all memory that the driver allocates or registers. Like the emulated GPU, it can't access other memory
        (``PAGEABLE_MEMORY_ACCESS`` is 0).
        """
        settings = self.settings
        return CpuBackend(settings.threads, check=settings.check, knows_all=True, timeout_s=settings.timeout_s)

    def refuse(self, name: str) -> None:
        """Count a call that is not emulated. Print a message at the first call of each name."""
        self.refused[name] += 1
        self.notes.refused(name)
        if self.refused[name] == 1:
            say(f"{name} is not emulated: it returns CUDA_ERROR_NOT_SUPPORTED")

    def remember(self, error: RefusedCall) -> None:
        """Keep the message of a refusal for a later ``cuGetErrorString`` in this thread."""
        self.last_errors[threading.get_native_id()] = (error.result, error.words)

    def words(self, result: int) -> str:
        """Return the message of this thread's last refusal, or of the last fault, if it is of that kind."""
        kept, words = self.last_errors.get(threading.get_native_id(), (None, ""))
        fault, what = self.fault
        return (words if kept is result else "") or (what if fault is result else "")


def say(words: str) -> None:
    """Write a line to the standard error of the process, even if ``sys.stderr`` was replaced.

    ``sys.stderr`` is flushed first, so that the output stays in order.
    """
    with contextlib.suppress(OSError, ValueError):  # of a standard error that is closed
        if sys.stderr is not None:
            sys.stderr.flush()
    with contextlib.suppress(OSError):
        os.write(2, f"cujit emulate: {words}\n".encode(errors="replace"))


@once
def emulation() -> Emulation:
    """Return the emulation of this process, created as the environment specifies.

    Raises:
        OptionError: a setting in the environment is invalid.
        MissingError: llvmlite is not installed.
        UnsupportedError: the emulator doesn't support this processor.
    """
    return Emulation(EmulatorSettings.from_environment())
