"""The events, as frozen values. Each says which logger writes it, and how loud."""

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
    """A tool was called: for a compile, a link or a bundle.

    ``step`` is ``compile``, ``link`` or ``bundle``, ``subject`` what of and for what (``axpy.cu for sm_90``), ``tool``
    the library. ``seconds`` is how long it took by the clock, with looking into the cache. ``key`` is the name of the
    entry of the cache, ``reason`` says why there is none. ``error`` is why nothing came out, or None.
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
    """The cache had it; ``outcome`` is a value of ``cujit.cache.Outcome``, ``saved_s`` how long making it took once."""

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
    """Something went another way than the first choice; ``what`` it is, the ``way`` that it went, and ``why``.

    ``floor`` is ``compiler``, ``cache`` or ``devices``; the logger is that of the floor.
    """

    floor: str
    what: str
    way: str
    why: str

    def __str__(self) -> str:
        return f"{self.what}: {self.way}, because {self.why}"


@dataclass(frozen=True)
class LaunchFailure(Happening):
    """A launch raised; ``kernel`` and ``device`` are names, ``error`` is what was raised."""

    logger: ClassVar[str] = "cujit.devices"
    kernel: str
    device: str
    error: CujitError

    def __str__(self) -> str:
        return f"{self.kernel} on {self.device}: {type(self.error).__name__}: {self.error.message}"
