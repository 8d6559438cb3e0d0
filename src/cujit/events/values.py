"""The events, as frozen values. Each class specifies its logger and its log level."""

from __future__ import annotations

from typing import ClassVar

from cujit.errors import CujitError
from cujit.values import dataclass

_DEBUG, _INFO = 10, 20
"""Levels of ``logging``, which a process that logs nothing never imports."""


@dataclass(frozen=True)
class Happening:
    """Something that cujit did; ``logger`` is the name of its logger in ``logging``, ``level`` how loud it is there."""

    logger: ClassVar[str] = "cujit"
    level: ClassVar[int] = _INFO


@dataclass(frozen=True)
class Made(Happening):
    """A call of a tool for a compile, a link, or a bundle.

    ``step`` is ``compile``, ``link`` or ``bundle``. ``subject`` describes the input and the target (``axpy.cu for
    sm_90``), and ``tool`` is the library. ``seconds`` is the elapsed time, including the cache lookup. ``key`` is the
    name of the cache entry, and ``reason`` explains why there is none. ``error`` is the error of a failed call, or
    None.
    """

    logger: ClassVar[str] = "cujit.compiler"
    step: str
    subject: str
    tool: str
    seconds: float
    key: str | None = None
    reason: str = ""
    error: CujitError | None = None

    def __str__(self) -> str:
        what = f"{self.step} {self.subject} by {self.tool}: {self.seconds * 1e3:.1f} ms"
        if self.error is not None:
            return f"{what}, and {type(self.error).__name__}: {self.error.message.partition(chr(10))[0]}"
        return f"{what}, not kept: {self.reason}" if self.reason else what


@dataclass(frozen=True)
class CacheHit(Happening):
    """A result from the cache. ``outcome`` is a value of ``cujit.cache.Outcome``.

    ``saved_s`` is the time in seconds that the work originally required.
    """

    logger: ClassVar[str] = "cujit.cache"
    level: ClassVar[int] = _DEBUG
    step: str
    subject: str
    outcome: str
    key: str | None
    saved_s: float

    def __str__(self) -> str:
        return f"{self.step} {self.subject}: {self.outcome}, {self.saved_s * 1e3:.1f} ms saved"


@dataclass(frozen=True)
class Fallback(Happening):
    """The use of an alternative to the first choice: ``what`` was affected, the alternative ``way``, and the reason
    ``why``.

    ``floor`` is ``compiler``, ``cache`` or ``devices``, and determines the logger.
    """

    floor: str
    what: str
    way: str
    why: str

    def __str__(self) -> str:
        return f"{self.what}: {self.way}, because {self.why}"


@dataclass(frozen=True)
class LaunchFailure(Happening):
    """A launch that raised an error. ``kernel`` and ``device`` are names, and ``error`` is the raised error."""

    logger: ClassVar[str] = "cujit.devices"
    kernel: str
    device: str
    error: CujitError

    def __str__(self) -> str:
        return f"{self.kernel} on {self.device}: {type(self.error).__name__}: {self.error.message}"
