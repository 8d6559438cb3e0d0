"""Launches under checks that native code starts while memory is unchanged: see ``runtime/standing.c``."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from cujit.devices.cpu.native.checking import CheckedJob, Standing, Watch
from cujit.devices.cpu.native.library import address_of

if TYPE_CHECKING:
    from cujit.devices.cpu.run.launch import Launch

_OF_STANDING = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)


class StandingLaunch:
    """A launch that native code starts. Python takes over if memory has changed or a check found something."""

    def __init__(self, standing: Standing, job: Launch, watch: Watch, kernel: int, size: int) -> None:
        self._standing, self._launch, self._watch = standing, job, watch
        self._job = CheckedJob(ctypes.addressof(standing), kernel, size)
        self._template = ctypes.create_string_buffer(ctypes.sizeof(job) + ctypes.sizeof(watch))
        job.checks = ctypes.addressof(watch)

    def fields(self) -> dict[str, int]:
        """Return what differs in the ``LaunchState`` from a launch without checks, when the launch is described."""
        self._template.raw = bytes(self._launch) + bytes(self._watch)
        return {
            "template": ctypes.addressof(self._template),
            "template_bytes": len(self._template),
            "job": ctypes.addressof(self._job),
            "run": address_of("cujit_check_run"),
        }

    @contextlib.contextmanager
    def left(self, launch: Launch) -> Iterator[Watch]:
        """Return the watch of a launch that native code has left to Python."""
        try:
            yield Watch.from_address(ctypes.addressof(launch) + ctypes.sizeof(self._launch))
        finally:
            _native("told")(ctypes.addressof(self._standing))


def users_of(standing: Standing) -> int:
    """Count the launches that may read what is known, or what was known before."""
    return _native("users")(ctypes.addressof(standing))


@functools.cache
def _native(name: str) -> Callable[[int], int]:
    return _OF_STANDING(address_of(f"cujit_check_{name}"))
