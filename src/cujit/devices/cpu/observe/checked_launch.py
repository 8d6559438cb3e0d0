"""Checked launches that native code starts while memory is unchanged. See ``runtime/checked_launch.c``."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from cujit.devices.cpu.native.checking import CheckedJob, CheckedMemory, Watch
from cujit.devices.cpu.native.library import address_of

if TYPE_CHECKING:
    from cujit.devices.cpu.run.launch import Launch

_OF_CHECKED = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)


class CheckedLaunch:
    """A launch that native code starts. Python takes over if memory has changed or a check found something."""

    def __init__(self, checked: CheckedMemory, job: Launch, watch: Watch, kernel: int, size: int) -> None:
        self._checked, self._launch, self._watch = checked, job, watch
        self._job = CheckedJob(ctypes.addressof(checked), kernel, size)
        self._template = ctypes.create_string_buffer(ctypes.sizeof(job) + ctypes.sizeof(watch))
        job.checks = ctypes.addressof(watch)

    def fields(self) -> dict[str, int]:
        """Return the fields of the ``LaunchState`` that differ from a launch without checks."""
        self._template.raw = bytes(self._launch) + bytes(self._watch)
        return {
            "template": ctypes.addressof(self._template),
            "template_bytes": len(self._template),
            "job": ctypes.addressof(self._job),
            "run": address_of("cujit_check_run"),
        }

    @contextlib.contextmanager
    def left(self, launch: Launch) -> Iterator[Watch]:
        """Yield the watch of a launch that native code has left to Python."""
        try:
            yield Watch.from_address(ctypes.addressof(launch) + ctypes.sizeof(self._launch))
        finally:
            _native("told")(ctypes.addressof(self._checked))


def users_of(checked: CheckedMemory) -> int:
    """Return the number of launches that may read the current or previous table of known memory."""
    return _native("users")(ctypes.addressof(checked))


@functools.cache
def _native(name: str) -> Callable[[int], int]:
    return _OF_CHECKED(address_of(f"cujit_check_{name}"))
