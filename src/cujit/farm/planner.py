"""The intake, which creates the key of every request and returns the images to compile, each key once.

It reads requests in windows, so memory usage doesn't grow with the number of requests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized

from cujit.arch import Arch
from cujit.cache.key import Key
from cujit.compiler.includes.files import NotModelledError
from cujit.compiler.jobs import CompileJob
from cujit.compiler.keys.maker import KeyMaker, Uncacheable
from cujit.compiler.request import Request
from cujit.compiler.runner import Runner
from cujit.errors import CujitError, OptionError, spell
from cujit.farm.arch_sharing import alike, why_alone, why_names_alone
from cujit.farm.publishing import Publisher
from cujit.farm.report import BuildTally, Failure
from cujit.farm.tasks import Piece, WorkChunk, piece_of
from cujit.farm.worker import first_message

_WINDOW = 4096
"""Requests whose keys are made before the costliest of them are handed out."""

_TAKING_S = 1.0
"""How long keys are made while workers may wait; where headers are many, a key takes 25 ms."""

_FIRST_MS = 60.0
"""What a compile takes of which nothing is known: a small kernel (NVRTC 13.5)."""


class Unit:
    """One compile: its key, its expected milliseconds, and the number of processes that died with it.

    ``group`` is the same number for units that may be compiled together, and 0 for the others. ``why_alone`` is the
    reason why the unit doesn't use code that architectures share.
    """

    __slots__ = ("deaths", "group", "key", "make_ms", "request", "why_alone")

    def __init__(self, request: Request, key: Key, make_ms: float, group: int, why_alone: str) -> None:
        self.request, self.key, self.make_ms, self.group, self.why_alone = request, key, make_ms, group, why_alone
        self.deaths = 0

    @property
    def names(self) -> tuple[str, ...]:
        """The instances that the unit requests, if it may be compiled with other instances of its source. Otherwise
        empty.
        """
        return self.request.names if self.group else ()

    def piece(self, keys: KeyMaker) -> Piece:
        """Write it as plain data."""
        digest, parts, request = self.key.digest, self.key.parts, self.request
        has_files = request.source.path or request.include
        try:
            piece = piece_of(request, digest, parts, keys.own_headers(request) if has_files else ())
        except (NotModelledError, OSError):  # a header has changed since: the worker will have another key, and say so
            piece = piece_of(request, digest, parts, ())
        return piece._replace(is_shared=not self.why_alone)


class Intake:
    """The requests of a build, their known compile times, and the tally of their results.

    ``total`` is the number of known requests, and ``done`` the number with a result. ``pins`` and ``closures`` are used
    to write a pack, if any. Stored images are passed to ``publisher``, if any.
    """

    def __init__(
        self,
        requests: Iterable[Request],
        arches: Sequence[Arch],
        runner: Runner,
        make_ms: Callable[[Request], float],
        tally: BuildTally,
        publisher: Publisher | None,
        task: WorkChunk,
        *,
        is_packed: bool,
    ) -> None:
        assert runner.keys is not None
        self.runner, self.keys = runner, runner.keys
        self.tally = tally
        self.done = 0
        self.total = len(requests) * max(1, len(arches)) if isinstance(requests, Sized) else 0
        self._is_counted = self.total > 0
        self.is_over = False
        self.pins: dict[str, str] = {}
        self.closures: dict[str, bytes] = {}
        self._publisher, self._is_packed, self._share = publisher, is_packed, task.share
        self._is_joined = task.join > 1
        self._alone: dict[Request, str] = {}
        self._given = self._each(requests, arches)
        self._make_ms = make_ms
        self._languages: set[str] = set()
        self._known_ms: dict[int, float] = {}
        self._sum_ms, self._learned = 0.0, 0

    def take(self) -> list[Unit]:
        """Return the next units to compile. The result is empty at the end, or after one second with
        cache hits only.
        """
        units: list[Unit] = []
        begin = time.monotonic()
        while len(units) < _WINDOW and time.monotonic() - begin < _TAKING_S:
            request = next(self._given, None)
            if request is None:
                self.is_over = True
                break
            self.total += not self._is_counted
            unit = self._unit(request)
            if unit is None:
                self.done += 1
            else:
                units.append(unit)
        return units if self._publisher is None or self._is_packed else self._lacking(units, self._publisher)

    def _lacking(self, units: list[Unit], publisher: Publisher) -> list[Unit]:
        """Return the units that the shared cache lacks. A build with a pack compiles them all, because it needs their
        images.
        """
        lacking = []
        for unit, is_there in zip(units, publisher.has([unit.key.digest for unit in units]), strict=True):
            if is_there:
                self.tally.keys[bytes.fromhex(unit.key.digest)] = True
                self.done += 1
            else:
                lacking.append(unit)
        return lacking

    def learn(self, unit: Unit, make_ms: float) -> None:
        """Record the time of a compile. Other compiles of the same source are expected to need the same time."""
        if len(self._known_ms) >= _WINDOW:
            self._known_ms.clear()
        self._known_ms[hash(unit.request.source.text)] = make_ms
        self._sum_ms, self._learned = self._sum_ms + make_ms, self._learned + 1

    def kept(self, unit: Unit, *, is_made: bool) -> None:
        """Record the request of a stored image for a pack, and publish the image."""
        self._answer(unit.key.digest, unit.request, is_made=is_made)

    def _answer(self, digest: str, request: Request, *, is_made: bool = False) -> None:
        if self._publisher is not None:
            self._publisher.put(digest, request, is_made=is_made)
        if self._is_packed:
            pins, closures = self.keys.answers({digest: request})
            self.pins.update(pins)
            self.closures.update(closures)

    def _each(self, requests: Iterable[Request], arches: Sequence[Arch]) -> Iterator[Request]:
        for request in requests:
            if not isinstance(request, Request):
                raise OptionError(
                    f"{spell(request)} is not a valid request", help="cujit.request(source, arch='sm_90')"
                )
            yield from (request.for_arch(arch) for arch in arches) if arches else (request,)

    def _unit(self, request: Request) -> Unit | None:
        """Return the unit of a request with its key, or None if there is nothing to compile."""
        job = CompileJob(request)
        if request.source.language not in self._languages:
            job.check()
            self.runner.compiler(request.source.language)
            self._languages.add(request.source.language)
        try:
            job.check()
            keyed = job.key(self.keys)
            if isinstance(keyed, Uncacheable):
                self._failed(request, f"not cached: {keyed.reason}")
                return None
            digest = bytes.fromhex(keyed.key.digest)
            if digest in self.tally.keys:
                return None
            self.tally.keys[digest] = False
            if self.runner.compiling.is_forbidden:
                self.runner.get(job)
            # is_read: the shared cache of the sink is asked, too
            elif self.runner.cache is None or self.runner.cache.find(keyed.key, is_read=True) is None:
                why = self._why_alone(request)
                share = "" if why else self._share
                group = hash(alike(request, share)) if self._is_joined or share else 0
                return Unit(request, keyed.key, self._time_of(request), group, why)
        except CujitError as e:
            self._failed(request, first_message(e))
            return None
        self.tally.keys[digest] = True
        self._answer(keyed.key.digest, request)
        return None

    def _why_alone(self, request: Request) -> str:
        """Return why a request uses no shared code, or an empty string. All architectures of a family have the same
        reason.
        """
        if not self._share:
            return "nothing is shared"
        like = alike(request, self._share)
        if like not in self._alone:
            if len(self._alone) >= _WINDOW:
                self._alone.clear()
            self._alone[like] = why_alone(request, self._share, self.keys)
        return self._alone[like] or why_names_alone(request)

    def _failed(self, request: Request, reason: str) -> None:
        self.tally.failed.append(Failure.of(request, reason))

    def _time_of(self, request: Request) -> float:
        usual = self._sum_ms / self._learned if self._learned else _FIRST_MS
        return self._make_ms(request) or self._known_ms.get(hash(request.source.text), usual)
