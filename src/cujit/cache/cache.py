"""The cache, which maps a key to an Artifact. Locks let one process compile each key if the machine supports them."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from cujit.artifact import Artifact
from cujit.cache.evict import Evictor
from cujit.cache.flight import SingleFlight, fresh
from cujit.cache.hints import Hints
from cujit.cache.key import Key
from cujit.cache.lock import Hold, KeyLocks, lock_file
from cujit.cache.memory import RecentCache
from cujit.cache.provenance import Counters, Outcome, Provenance
from cujit.cache.record import Summary, encode
from cujit.cache.settings import (
    CacheSettings,
    Compiling,
    DirectoryName,
    directory_of,
    require_size,
)
from cujit.cache.store import PACK_SUFFIX, Explanation, Published, Root, Store
from cujit.cache.tier import Fetched
from cujit.cache.trust import Trust
from cujit.errors import CacheRefusedError, CacheWarning, CompileError, CujitError, FormatError, OptionError, spell
from cujit.forks import register_reset, single_flight_cache
from cujit.values import NamedTuple, replace
from cujit.values.keywords import ClassKeywords, take
from cujit.values.typed import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from pathlib import Path
    from typing import TypedDict

    from typing_extensions import Unpack

    from cujit.cache.packaged import PackagedPack
    from cujit.cache.record import EntryRecord
    from cujit.cache.remote.ledger import Ledger
    from cujit.cache.tier import Tier

    class CacheKeywords(TypedDict, total=False):
        """Fields of ``CacheSettings``."""

        runtime_dir: Path | DirectoryName | None
        read_only: Sequence[Path | DirectoryName]
        cap_bytes: int
        remote: str | None
        trust: Path | DirectoryName | None
        remote_wait_s: float
        memory_bytes: int
        trusted_gid: int | None


_TROUBLE = (OSError, CacheRefusedError)
"""What never keeps an Artifact from being made."""

_Recipe: TypeAlias = Callable[[], bytes]

_NO_ROOT = "there is no writable root"
_FAILURES_KEPT = 64
_LEAST_WAIT_S = 30.0
_WAIT_FACTOR = 3.0
_COUNTED = {
    Outcome.MEMORY: "memory_hits",
    Outcome.DISK: "disk_hits",
    Outcome.SHIPPED: "disk_hits",
    Outcome.REMOTE: "remote_hits",
    Outcome.WAITED: "waits",
}


class _CachedArtifact(NamedTuple):
    """An Artifact, how long it took to make, and the root where it is kept."""

    artifact: Artifact
    make_ms: float
    place: str | None


def _no_reason() -> str:
    return ""


def _no_recipe() -> bytes:
    return b""


class _CacheMiss(Exception):
    """A look-up without compiling found nothing."""


class _PendingWork(NamedTuple):
    """Work for a key, as in ``Cache.get_or_make``. ``make`` is None for a look-up only."""

    make: Callable[[], Artifact] | None
    why_not_keep: Callable[[], str] = _no_reason
    recipe: _Recipe = _no_recipe
    most_wait_s: float = math.inf
    least_wait_s: float = _LEAST_WAIT_S


class _Lookup(NamedTuple):
    """Result of a look-up: an Artifact and its origin."""

    known: _CachedArtifact
    outcome: Outcome
    reason: str = ""


class Cache:
    """A cache of Artifacts: in memory, in read-only root directories, and in one writable root directory.

    Any number of threads and processes can share the roots. ``get_or_make`` returns the Artifact even if the file
    system fails. The cache counts such failures and warns once with a ``CacheWarning``.

    Example::

        cache = cujit.Cache(Path("kernels"), cap_bytes=1 << 30)
        image = cujit.compile(CODE, names=["axpy<float>"], cache=cache)
    """

    __signature__ = ClassKeywords(CacheSettings, hidden=("root", "is_on"))

    def __init__(
        self,
        root: Path | CacheSettings | None,
        *,
        compile: str = "auto",
        keep_failure: Callable[[Exception], bool] = lambda e: isinstance(e, CompileError),
        tiers: Sequence[Tier] = (),
        **settings: Unpack[CacheKeywords],
    ) -> None:
        """Search the roots ``read_only`` in their order, then ``root``.

        Args:
            root: a directory that is written too; None writes nowhere. Or all settings as one value.
            compile: what ``CUJIT_COMPILE`` can be, for what uses this cache; of the two, the stricter one holds.
            keep_failure: which exceptions come again for the same key, as those of source that does not compile.
            tiers: caches that are asked after the roots, in their order, and never written.
            runtime_dir: a directory of this machine and user, for the locks of a remote ``root``.
            read_only: directories and packs.
            cap_bytes: how large ``root`` may become.
            remote: the URL of a shared cache, which is asked last and never written.
            trust: a file of keys; what they have signed is believed, and kept in ``root``.
            remote_wait_s: seconds that a store which does not answer costs in all.
            memory_bytes: how much this process remembers.
            trusted_gid: a group that shares ``root``.

        Raises:
            OptionError: a root that no directory can be called, a negative size, or an argument of the wrong type.
        """
        chosen = _settings_of(root, settings)
        require_size("cap_bytes", chosen.cap_bytes)
        require_size("memory_bytes", chosen.memory_bytes)
        if not isinstance(chosen.read_only, Sequence):
            raise OptionError(
                f"read_only is {spell(chosen.read_only)}, expected a list", help="read_only=[pathlib.Path('…')]"
            )
        if not callable(keep_failure):
            raise OptionError(f"keep_failure is {spell(keep_failure)}, expected a function that accepts an exception")
        self.compiling = Compiling.of(compile)
        self.distribution = ""
        self.own_packs: tuple[PackagedPack, ...] = ()
        private = None if chosen.runtime_dir is None else directory_of(chosen.runtime_dir)
        owners = Trust.of_process(chosen.trusted_gid)
        self.store = store = None if chosen.root is None else Store(directory_of(chosen.root), owners, writable=True)
        others: list[Root] = [_read_only(directory_of(r), owners, chosen.trust) for r in chosen.read_only]
        self.stores = (*others, *((store,) if store else ()))
        self.budget = None if store is None else Evictor(store, chosen.cap_bytes)
        self._locks = None if store is None else KeyLocks(functools.partial(lock_file, store, private), owners)
        self.hints = None if store is None else Hints(store, private)
        self.tiers: tuple[Tier, ...] = (*tiers, *_remote_tiers(chosen))
        self._ledger = _ledger(store, chosen.trust, self.hints)
        self._is_settled = self._ledger is None
        self._flights: SingleFlight[_Lookup] = SingleFlight()
        self._guard = threading.Lock()
        self._memory: RecentCache[_CachedArtifact] = RecentCache(chosen.memory_bytes)
        self._failed: RecentCache[Exception] = RecentCache(_FAILURES_KEPT)
        self._keep_failure = keep_failure
        self._tally: dict[str, float] = dict.fromkeys(Counters.__match_args__, 0)
        self._longest_ms: dict[str, float] = {}
        self._warned: set[str] = set()
        self._new = True
        register_reset(self)

    @property
    def is_supplied(self) -> bool:
        """Whether the cache has read-only roots or tiers, which other processes or machines fill."""
        return bool(self.tiers) or any(store is not self.store for store in self.stores)

    @classmethod
    def of(cls, settings: CacheSettings, *, compile: str = "auto") -> Cache:
        """Create the cache that the environment specifies. If it turns caching off, the cache stores nothing."""
        return cls(settings, compile=compile) if settings.is_on else cls(None, memory_bytes=0)

    @classmethod
    def packaged(cls, distribution: str, *, compile: str = "auto") -> Cache:
        """Return the process's cache plus the packs of an installed distribution. The same settings return the same
        cache.

        The packs are the ``.pack`` files in the distribution's RECORD. Other distributions can add packs with an entry
        point ``cujit.packs`` that names this distribution. cujit imports no distribution to find its packs. cujit
        searches the packs after ``CUJIT_CACHE_ROOTS``, even with ``CUJIT_CACHE=0``. If there are no packs, as in an
        editable install, the result is ``default_cache()``.

        ``cujit.jit(…, cache=…)`` searches this cache for code that runs on the device, best first: SASS for the
        architecture, its family, and older architectures, and then PTX. If the cache contains no such code, cujit
        compiles the source.

        Args:
            distribution: name of the distribution, as ``pip list`` shows it.
            compile: as for ``Cache``.

        Raises:
            MissingError: the distribution is not installed.
            OptionError: the name is invalid, or an environment variable has an invalid value.

        Example::

            cache = cujit.Cache.packaged("cujit")       # here the name of your library
        """
        return _packaged_once(distribution, CacheSettings.from_environment(os.environ), compile)

    @property
    def counters(self) -> Counters:
        """The current values of the counters."""
        with self._guard:
            return Counters(**self._tally)  # type: ignore[arg-type]

    def get_or_make(
        self,
        key: Key,
        make: Callable[[], Artifact],
        *,
        why_not_keep: Callable[[], str] = _no_reason,
        recipe: _Recipe = _no_recipe,
        most_wait_s: float | None = None,
        least_wait_s: float = _LEAST_WAIT_S,
    ) -> tuple[Artifact, Provenance]:
        """Return the Artifact of a key with its provenance, and call ``make()`` if no cache contains it.

        Exceptions of ``make`` propagate, and ``make`` may use the cache for other keys. After ``make`` returns or
        fails, ``why_not_keep()`` returns a reason not to store the result, or an empty string. ``recipe()`` returns how
        to compile a new Artifact again, which is stored with it.

        If another process compiles the key, wait three times as long as such work ever took, between ``least_wait_s``
        and ``most_wait_s`` seconds. After this time, or after a ToolTimeoutError or ToolCrashError there, call
        ``make()`` here. If the other process publishes an Artifact first, return that Artifact.
        """
        had = self._lookup_memory(key, is_read=True)
        if had is not None:
            return had
        most_s = math.inf if most_wait_s is None else most_wait_s
        work = _PendingWork(make, why_not_keep, recipe, most_s, least_wait_s)
        got, joined = self._flights.run(key.digest, lambda: self._work(key, work), self._patience_s(key, work))
        return self._with_provenance(key, got.known, Outcome.WAITED if joined else got.outcome, got.reason)

    @contextlib.contextmanager
    def claim(self, key: Key, wait_s: float) -> Iterator[tuple[Artifact, Provenance] | None]:
        """Get the Artifact of a key, or None. After None, only this process makes the Artifact while the body runs.

        The body makes the Artifact and calls ``keep``. If another process is making it, wait at most ``wait_s`` for it.
        """
        had = self._lookup_memory(key, is_read=True)
        if had is not None:
            yield had
            return
        with self._claimed(key, wait_s) as (got, _, _):
            self._count(misses=0 if got else 1)
            yield self._with_provenance(key, got.known, got.outcome, got.reason) if got else None

    def holds(self, digest: str) -> bool:
        """Return whether a root has an entry for a key, without reading it. Revoked entries are deleted first."""
        if not self._is_settled:
            self._settle()
        try:
            return any(root.has(digest) for root in self.stores)
        except _TROUBLE as e:
            self._failure(e)
            return False

    def find(self, key: Key, *, is_read: bool = False) -> tuple[Artifact, Provenance] | None:
        """Return the Artifact of a key without compiling, or None if no root contains it.

        Unless ``is_read`` is set, the data is read on first use, which may then find it damaged, and the tiers aren't
        searched.
        """
        had = self._lookup_memory(key, is_read=is_read)
        if had is not None or not is_read or not self.tiers:
            return had
        work = _PendingWork(None)
        try:
            got, _ = self._flights.run(("find", key.digest), lambda: self._work(key, work), self._patience_s(key, work))
        except _CacheMiss:
            return None
        return self._with_provenance(key, got.known, got.outcome, got.reason)

    def hit(self, digest: str, work: str) -> tuple[Artifact, float, str] | None:
        """Get from a root what this process does not remember, in the fewest steps.

        Args:
            digest: digest of the key.
            work: kind of the key.

        Return the Artifact, the milliseconds that making it took, and the root. None leaves everything to ``find``.
        """
        with self._guard:
            if not self._is_settled or digest in self._memory or digest in self._failed:
                return None
        try:
            for root in self.stores:
                artifact, make_ms, size_bytes, damage = root.find(digest, is_read=True)
                if artifact is not None:
                    break
                if damage:
                    self._count(damaged=1)
                    return None
            else:
                return None
        except _TROUBLE:
            return None
        known = tuple.__new__(_CachedArtifact, (artifact, make_ms, root.place))  # start-up: no method is written
        with self._guard:
            self._memory.put(digest, known, size_bytes + 1024)
            tally = self._tally
            tally["read_bytes"] += size_bytes
            tally["disk_hits"] += 1
            tally["saved_ms"] += make_ms
            if make_ms > self._longest_ms.get(work, 0.0):
                self._longest_ms[work] = make_ms
        return artifact, make_ms, root.place

    def pinned(self, pin: str, is_answer: Callable[[Summary, Root], bool]) -> tuple[Artifact, Provenance] | None:
        """Return the Artifact that the distribution's own packs contain for a pin, or None.

        ``is_answer(summary, pack)`` returns whether an entry of a pack is acceptable.
        """
        for pack in self.own_packs:
            try:
                digest = pack.key_of(pin)
                head = None if digest is None else pack.peek(digest)
            except _TROUBLE as e:
                self._failure(e)
                continue
            if head is None or not is_answer(head[0], pack):
                continue
            by_pin = Key(pin, head[0].work, head[1])
            known = self._remembered(by_pin) or self._on_disk(by_pin, (pack,), head[0].digest, is_read=True)
            if known is not None:
                return self._with_provenance(Key(head[0].digest, head[0].work, head[1]), known, Outcome.SHIPPED)
        return None

    def keep(self, key: Key, artifact: Artifact, *, make_ms: float = 0.0) -> Provenance:
        """Store an Artifact that was compiled elsewhere in ``make_ms`` milliseconds. An existing entry
        stays unchanged.
        """
        got = self._kept(key, artifact, make_ms, self.store, _NO_ROOT, _no_recipe)
        return self._with_provenance(key, got.known, got.outcome, got.reason)[1]

    def adopt(self, digest: str, fetched: Fetched, ledger: Ledger | None) -> str:
        """Store an entry from a tier in the root after verification. Return the reason if it isn't stored, or an empty
        string.
        """
        if self.store is None or (ledger is None and fetched.signer):
            return _NO_ROOT
        try:
            if ledger is not None and fetched.signer:
                ledger.note(fetched.signer, digest)  # before it is kept: nothing is there without its signer
            return self._publish(self.store, digest, fetched.data) or ""
        except _TROUBLE as e:
            self._failure(e)
            return str(e)

    def discard(self, key: Key) -> bool:
        """Remove the Artifact of a key from memory and the writable root. Return False if neither contained it.

        Read-only roots keep their entries.
        """
        with self._guard:
            was_known = self._memory.get(key.digest) is not None
            self._memory.forget(key.digest)
            self._failed.forget(key.digest)
        try:
            was_there = self.store is not None and self.store.is_there() and self.store.delete(key.digest)
        except _TROUBLE as e:
            self._failure(e)
            was_there = False
        return was_known or was_there

    def why(self, key: Key) -> Explanation | None:
        """Return the most similar entry in all roots and the inputs that differ, or None if there is no entry."""
        found = []
        for store in self.stores:
            try:
                found.append(store.why(key))
            except _TROUBLE as e:  # noqa: PERF203
                self._failure(e)
        return min(filter(None, found), key=lambda explanation: len(explanation.differences), default=None)

    def closures(self, search: str) -> Iterator[bytes]:
        """Yield the records of header searches in the packs for the digest of a search."""
        for store in self.stores:
            try:
                yield from store.closures(search)
            except _TROUBLE as e:  # noqa: PERF203
                self._failure(e)

    def forget(self) -> None:
        """Drop the entries in this process's memory. The root directories don't change.

        Example::

            cujit.default_cache().forget()
        """
        with self._guard:
            self._memory.clear()
            self._failed.clear()

    # Looking

    def _remembered(self, key: Key) -> _CachedArtifact | None:
        with self._guard:
            known, failure = self._memory.get(key.digest), self._failed.get(key.digest)
        if failure is not None:
            raise fresh(failure)
        return known

    def _lookup_memory(self, key: Key, *, is_read: bool) -> tuple[Artifact, Provenance] | None:
        if not self._is_settled:
            self._settle()
        known, outcome = self._remembered(key), Outcome.MEMORY
        if known is None:
            known, outcome = self._on_disk(key, self.stores, key.digest, is_read=is_read), Outcome.DISK
        return None if known is None else self._with_provenance(key, known, outcome)

    def _on_disk(self, key: Key, roots: Sequence[Root], digest: str, *, is_read: bool) -> _CachedArtifact | None:
        """Search the roots for an entry, and remember it under a key. Unless ``is_read`` is set, the data is read on
        first use.
        """
        for root in roots:
            try:
                artifact, make_ms, size_bytes, damage = root.find(digest, is_read=is_read)
            except _TROUBLE as e:
                self._failure(e)
                continue
            if artifact is not None:
                known = tuple.__new__(
                    _CachedArtifact, (artifact, make_ms, root.place)
                )  # start-up: no method is written
                self._remember(key, known, size_bytes, read_bytes=size_bytes)
                return known
            if damage:
                self._count(damaged=1)
        return None

    # Making

    def _work(self, key: Key, work: _PendingWork) -> _Lookup:
        """Make an Artifact in only one thread and, if there is a root, in only one process."""
        known = self._remembered(key)  # by a thread that was done between our look and our flight
        if known is not None:
            return _Lookup(known, Outcome.MEMORY)
        with self._claimed(key, self._patience_s(key, work)) as (got, store, reason):
            return got or self._made(key, work, store, reason)

    @contextlib.contextmanager
    def _claimed(self, key: Key, patience_s: float) -> Iterator[tuple[_Lookup | None, Store | None, str]]:
        """Be alone among the processes for the body; yields what is there, and where to write or why nowhere."""
        store, locks = self.store, self._locks
        if store is None or locks is None:
            yield self._fetched(key, _NO_ROOT), None, _NO_ROOT
            return
        try:
            reason = "" if store.prepare() else store.other_version
        except _TROUBLE as e:
            self._failure(e)
            reason = str(e)
        if reason:
            yield self._fetched(key, reason), None, reason
            return
        ready = functools.partial(store.has, key.digest)
        with locks.hold(key.digest, patience_s, ready, self._failure) as hold:
            known = self._on_disk(key, self.stores, key.digest, is_read=True)
            if known is not None:
                yield _Lookup(known, Outcome.WAITED if hold is Hold.WAITED else Outcome.DISK), store, ""
            else:
                yield self._fetched(key, ""), store, ""

    def _fetched(self, key: Key, reason: str) -> _Lookup | None:
        """Ask the tiers, and keep what one has, unless there is a reason not to; None where none has anything."""
        for tier in self.tiers:
            try:
                fetched = tier.get(key)
            except (CujitError, OSError) as e:
                fetched = Fetched(fault=e)
            if fetched.record is not None:
                return self._adopted(key, fetched, fetched.record, reason)
            if fetched.fault is not None:
                self._without_tier(tier, fetched.fault)
        return None

    def _adopted(self, key: Key, fetched: Fetched, record: EntryRecord, reason: str) -> _Lookup:
        reason = reason or self.adopt(key.digest, fetched, self._ledger)
        place = None if reason or self.store is None else self.store.place
        known = _CachedArtifact(record.artifact, record.make_ms, place)
        self._remember(key, known, len(fetched.data), read_bytes=len(fetched.data))
        self._count(not_kept=1 if reason else 0)
        return _Lookup(known, Outcome.REMOTE, reason)

    def _settle(self) -> None:
        """Delete, once, what signers have brought that are believed no more."""
        self._is_settled = True
        try:
            if self._ledger is not None:
                self._ledger.settle()
        except _TROUBLE as e:
            self._failure(e)

    def _made(self, key: Key, work: _PendingWork, store: Store | None, reason: str) -> _Lookup:
        if work.make is None:
            raise _CacheMiss
        self._count(misses=1)
        begin = time.perf_counter()
        try:
            artifact = work.make()
        except Exception as e:
            if self._keep_failure(e) and not work.why_not_keep():
                with self._guard:
                    self._failed.put(key.digest, fresh(e), 1)  # without the traceback, which holds frames
            raise
        make_ms = (time.perf_counter() - begin) * 1e3
        self._count(makes=1, made_ms=make_ms)
        if why_not := work.why_not_keep():
            self._count(not_kept=1)
            return _Lookup(_CachedArtifact(artifact, make_ms, None), Outcome.UNCACHED, why_not)
        return self._kept(key, artifact, make_ms, store, reason, work.recipe)

    def _kept(
        self, key: Key, artifact: Artifact, make_ms: float, store: Store | None, reason: str, recipe: _Recipe
    ) -> _Lookup:
        """Write an Artifact to the root, or say why not: there is none because of ``reason``, or it is no use now.

        The first writer wins, so that all who share a root have the same where each would make another.
        """
        if store is not None:
            why_not = self._write(store, key, artifact, make_ms, recipe)
            theirs = self._on_disk(key, (store,), key.digest, is_read=True) if why_not is None else None
            if theirs is not None and theirs.artifact.data != artifact.data:
                return _Lookup(theirs, Outcome.WAITED)
            reason = why_not or ""
        known = _CachedArtifact(artifact, make_ms, None if reason or store is None else store.place)
        self._remember(key, known, len(artifact.data) + len(artifact.log))
        self._count(not_kept=1 if reason else 0)
        return _Lookup(known, Outcome.UNCACHED if reason else Outcome.MADE, reason)

    def _write(self, store: Store, key: Key, artifact: Artifact, make_ms: float, recipe: _Recipe) -> str | None:
        """Write an Artifact to the root, and return why not, or nothing; None where others have written theirs."""
        try:
            record = encode(key, artifact, make_ms=make_ms, made_s=int(time.time()), recipe=recipe())
        except FormatError as e:
            return e.message
        except OSError as e:  # a working directory that was removed meanwhile
            return str(e)
        try:
            return self._publish(store, key.digest, record)
        except _TROUBLE as e:
            self._failure(e)
            return str(e)

    def _publish(self, store: Store, digest: str, record: bytes) -> str | None:
        if self._new:
            self._new = False
            store.remove_stale()
        assert self.budget is not None
        if not self.budget.has_room(len(record)):
            return f"{len(record)} more bytes exceed the cap of {self.budget.cap_bytes} bytes"
        published = store.put(digest, record)
        if published is Published.REFUSED_FORMAT:
            return store.other_version
        if published is Published.KEPT_THEIRS:
            return None
        self._count(written_bytes=len(record))
        try:
            self.budget.added(len(record))
        except _TROUBLE as e:  # the record is published all the same
            self._failure(e)
        return ""

    def _remember(self, key: Key, known: _CachedArtifact, size_bytes: int, read_bytes: int = 0) -> None:
        with self._guard:
            self._memory.put(key.digest, known, size_bytes + 1024)
            self._tally["read_bytes"] += read_bytes
            if known.make_ms > self._longest_ms.get(key.kind, 0.0):
                self._longest_ms[key.kind] = known.make_ms

    def _patience_s(self, key: Key, work: _PendingWork) -> float:
        """How long to wait for somebody else: longer than such work has ever taken, if there is the time."""
        return min(work.most_wait_s, max(work.least_wait_s, _WAIT_FACTOR * self._longest_ms.get(key.kind, 0.0) / 1e3))

    # Counting and warning

    def _count(self, **more: float) -> None:
        with self._guard:
            for name, n in more.items():
                self._tally[name] += n

    def _with_provenance(
        self, key: Key, known: _CachedArtifact, outcome: Outcome, reason: str = ""
    ) -> tuple[Artifact, Provenance]:
        """Count how an Artifact was got, and tell."""
        artifact, make_ms, place = known
        field = _COUNTED.get(outcome)
        if field is None:
            return artifact, Provenance(outcome, key, place, make_ms, reason, _explain=self.why)
        self._count(**{field: 1, "saved_ms": make_ms})
        return artifact, Provenance(outcome, key, place, make_ms, reason)

    def _failure(self, error: Exception) -> None:
        self._count(failures=1)
        self._warn_once("files", f"cujit can't use its cache directory, and continues without it: {error}")

    def _without_tier(self, tier: Tier, fault: Exception) -> None:
        is_refused = isinstance(fault, FormatError)
        self._count(**{"remote_refused" if is_refused else "remote_failures": 1})
        what = "refuses an entry of" if is_refused else "goes on without"
        self._warn_once(f"{what} {tier.url}", f"cujit {what} the shared cache {tier.url}: {fault}")

    def _warn_once(self, subject: str, message: str) -> None:
        with self._guard:
            if subject in self._warned:
                return
            self._warned.add(subject)
        from cujit.events.hub import warn_of  # start-up: for what goes wrong

        warn_of("cache", "the cache", message, CacheWarning)

    def after_fork(self) -> None:
        """Begin anew, in a forked child, with what other threads of the parent may have been changing."""
        self._flights.after_fork()
        if self._locks is not None:
            self._locks.after_fork()
        for tier in self.tiers:
            tier.after_fork()
        if self._guard.locked():
            self._memory.clear()
            self._failed.clear()
        self._guard = threading.Lock()


@single_flight_cache(64)
def _packaged_once(distribution: str, settings: CacheSettings, compile: str) -> Cache:
    from cujit.cache.packaged import PackagedPack, packs_of  # start-up: for libraries that bring packs

    cache = Cache.of(settings, compile=compile) if settings.is_on else Cache(None, compile=compile)
    packs = [PackagedPack(recorded, cache.hints) for recorded in packs_of(distribution)]
    cache.own_packs = tuple(pack for pack in packs if pack.recorded.is_own and pack.recorded.sha256)
    at = len(cache.stores) - (cache.store is not None)
    cache.stores = (*cache.stores[:at], *packs, *cache.stores[at:])
    cache.distribution = distribution
    return cache


def _read_only(path: DirectoryName, owners: Trust, trust: Path | DirectoryName | None) -> Root:
    if os.path.splitext(path)[1] != PACK_SUFFIX:
        return Store(path, owners, writable=False)
    from cujit.cache.pack import Pack  # start-up time: most have none

    if trust is None:
        return Pack(path, owners)
    from cujit.cache.remote.signing import KeyFile  # start-up time, as above

    return Pack(path, owners, KeyFile(directory_of(trust)).objection_to)


def _settings_of(root: Path | CacheSettings | None, more: CacheKeywords) -> CacheSettings:
    if isinstance(root, CacheSettings):
        return replace(root, **more)
    return take(CacheSettings, {"root": root, **more}, Cache)


def _remote_tiers(chosen: CacheSettings) -> Iterator[Tier]:
    if chosen.remote is None:
        return
    if chosen.trust is None:
        raise OptionError(
            "a shared cache is set, but no key is trusted",
            help="CUJIT_TRUST=FILE: docs/remote.md",
            code="trust-missing",
        )
    from cujit.cache.remote.tier import RemoteTier  # start-up time: most have none

    yield RemoteTier(chosen.remote, directory_of(chosen.trust), wait_s=chosen.remote_wait_s)


def _ledger(store: Store | None, trust: Path | DirectoryName | None, hints: Hints | None) -> Ledger | None:
    if store is None or trust is None:
        return None
    from cujit.cache.remote.ledger import Ledger  # start-up time, as above

    return Ledger(store, directory_of(trust), hints)
