"""Results of a farm build: counts, failures with their reasons, and the most expensive images."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from cujit.arch import Arch
from cujit.cache.pack import PackStats
from cujit.compiler.request import Request
from cujit.errors import counted
from cujit.values import NamedTuple, dataclass, field

_SHOWN = 20


class Failure(NamedTuple):
    """A request that produced no image, and the reason: the first message from the compiler or from cujit.

    ``request`` is None if this machine can't read a request from a list. ``key`` is the digest of the cache key, or "".
    For a quarantined request, ``signal`` states how its process died (a signal, ``deadline``, or ``worker``).
    ``peak_bytes`` is the peak memory of the process, and ``log`` is its last output.

    Example::

        report = cujit.farm.build([], sink="kernels")
        for failure in (*report.failed, *report.quarantined):
            print(failure.name, failure.reason)
    """

    name: str
    arch: Arch
    reason: str
    request: Request | None = None
    key: str = ""
    signal: str = ""
    log: str = ""
    peak_bytes: int = 0

    @classmethod
    def of(cls, request: Request, reason: str, *more: Any) -> Failure:
        """Return the failure of a request with the reason why no image is stored. ``more`` are the fields after
        ``request``.
        """
        return cls(request.source.name, request.arch, reason, request, *more)

    def __str__(self) -> str:
        died = f" ({self.signal}, {self.peak_bytes >> 20} MiB)" if self.signal else ""
        return f"{self.name} for {self.arch}: {self.reason}{died}"


class BuiltImage(NamedTuple):
    """A compiled image: its request, its compile time in milliseconds, and its size.

    Example::

        report = cujit.farm.build([], sink="kernels")
        for image in report.slowest:
            print(image.name, image.arch, image.make_ms)
    """

    name: str
    arch: str
    key: str
    make_ms: float
    size_bytes: int


@dataclass(frozen=True)
class Report:
    """Result of a farm build. ``keys`` contains the digests of all images, both new images
    (``made``) and existing images (``hit``).

    ``failed`` lists requests that didn't compile or couldn't be stored. ``quarantined`` lists requests whose process
    died twice. ``cpu_s`` is the total CPU time of all workers, and ``wall_s`` is the elapsed time, both in seconds.
    ``slowest`` and ``largest`` list up to 20 images each. ``pack`` describes the written pack, if any. ``published`` is
    the number of new images in the shared cache. With ``share``, ``shared`` is the number of images that several
    architectures share, and ``alone`` counts the other images by reason.

    Example::

        report = cujit.farm.build([], sink="kernels")
        assert report.is_good and not report.made
    """

    keys: tuple[str, ...]
    made: int
    failed: tuple[Failure, ...] = ()
    quarantined: tuple[Failure, ...] = ()
    cpu_s: float = 0.0
    wall_s: float = 0.0
    slowest: tuple[BuiltImage, ...] = ()
    largest: tuple[BuiltImage, ...] = ()
    pack: PackStats | None = None
    published: int = 0
    shared: int = 0
    alone: Mapping[str, int] = field(default_factory=dict)

    @property
    def hit(self) -> int:
        """The number of images that existed before."""
        return len(self.keys) - self.made

    @property
    def is_good(self) -> bool:
        """Whether an image exists for every request."""
        return not self.failed and not self.quarantined

    def __str__(self) -> str:
        lines = [
            f"{counted(len(self.keys), 'image')}: {self.made:,} made, {self.hit:,} found; {len(self.failed):,} failed, "
            f"{len(self.quarantined):,} quarantined; {self.cpu_s:.1f} s of CPU in {self.wall_s:.1f} s"
        ]
        if self.slowest:
            slow, large = self.slowest[0], self.largest[0]
            lines.append(f"  slowest: {slow.name} for {slow.arch}, {slow.make_ms:.0f} ms")
            lines.append(f"  largest: {large.name} for {large.arch}, {large.size_bytes:,} bytes")
        if self.published:
            lines.append(f"  published: {self.published:,}")
        if self.shared or self.alone:
            lines.append(f"  {self.shared:,} made of what architectures share")
        lines += [f"  {count:,} made alone: {why}" for why, count in self.alone.items()]
        lines += [f"  failed: {one}" for one in self.failed]
        lines += [f"  quarantined: {one}" for one in self.quarantined]
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values. Each request is represented by its name and architecture.

        Example::

            print(cujit.farm.build([], sink="kernels").as_json())
        """
        record: dict[str, Any] = {**vars(self), "hit": self.hit, "pack": self.pack and self.pack._asdict()}
        for name in ("slowest", "largest"):
            record[name] = [one._asdict() for one in record[name]]
        for name in ("failed", "quarantined"):
            record[name] = [_failure(one) for one in record[name]]
        return record


def _failure(one: Failure) -> dict[str, Any]:
    return {**one._asdict(), "arch": str(one.arch), "request": one.request and str(one.request)}


@dataclass
class BuildTally:
    """A report in progress. ``keys`` maps the digest of each requested key to whether its image is stored."""

    keys: dict[bytes, bool] = field(default_factory=dict)
    made: int = 0
    published: int = 0
    cpu_s: float = 0.0
    failed: list[Failure] = field(default_factory=list)
    quarantined: list[Failure] = field(default_factory=list)
    shared: int = 0
    alone: Counter[str] = field(default_factory=Counter)
    _slowest: list[tuple[float, BuiltImage]] = field(default_factory=list)
    _largest: list[tuple[float, BuiltImage]] = field(default_factory=list)

    def add(self, image: BuiltImage) -> None:
        """Count a newly compiled image."""
        self.made += 1
        for heap, size in ((self._slowest, image.make_ms), (self._largest, float(image.size_bytes))):
            heapq.heappush(heap, (size, image))
            if len(heap) > _SHOWN:
                heapq.heappop(heap)

    def share(self, is_shared: bool, why_alone: str) -> None:
        """Count an image that was built from code that architectures share, or the reason why it was not."""
        if is_shared:
            self.shared += 1
        elif why_alone in self.alone or len(self.alone) < _SHOWN:
            self.alone[why_alone] += 1
        else:
            self.alone["other reasons"] += 1

    def kept(self) -> list[str]:
        """Return the sorted digests of all stored images."""
        return sorted(key.hex() for key, is_kept in self.keys.items() if is_kept)

    def report(self, wall_s: float, pack: PackStats | None) -> Report:
        """Return the report, with the costliest items first."""
        return Report(
            tuple(self.kept()),
            self.made,
            tuple(sorted(self.failed, key=str)),
            tuple(sorted(self.quarantined, key=str)),
            self.cpu_s,
            wall_s,
            _first(self._slowest),
            _first(self._largest),
            pack,
            self.published,
            self.shared,
            dict(self.alone.most_common()),
        )


def _first(heap: Sequence[tuple[float, BuiltImage]]) -> tuple[BuiltImage, ...]:
    return tuple(image for _, image in sorted(heap, reverse=True))
