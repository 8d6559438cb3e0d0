"""The tier after the roots, which requests records from a shared cache, verifies them, and never blocks for long.

A store that is dead, slow, or wrong costs a process at most ``wait_s`` including imports. The process then stops using
it, and a background thread tries the store again later.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias, TypeVar

from cujit.artifact import ImageKind
from cujit.cache.key import Key
from cujit.cache.record import PORTABLE, decode
from cujit.cache.remote.signing import HEAD_BYTES, KeyFile, TrustedKeys, bindings
from cujit.cache.remote.transport import Transport, check_url, shown_url, transport_of
from cujit.cache.tier import Fetched
from cujit.errors import CujitError, FormatError, OptionError, RemoteError, spell
from cujit.threads import Condition, start

T = TypeVar("T")

FORMAT_NAME, FORMAT = "v1/FORMAT", b"cujit remote 1\n"
"""What lies in every shared cache. Where it does not, whatever answers is something else, such as a proxy."""

_FAILURES = 3
_FIRST_OFF_S, _LONGEST_OFF_S = 30.0, 600.0
_ABSENT_S = 10.0
_MOST_ABSENT = 4096
_BYTES_PER_S = 8 << 20  # a record that is proved to be signed may come as slowly as this
_IMPORTS = 1 / 3  # of what may be waited goes to imports at most, however long they take
_SOCKET_S = 10.0


def object_name(digest: str) -> str:
    """Return the name of a key's record in a shared cache."""
    return f"v1/e/{digest[:2]}/{digest[2:]}"


def fetch(
    transport: Transport,
    keys: TrustedKeys,
    digest: str,
    *,
    may_go_on: Callable[[int], None] = lambda _: None,
) -> Fetched:
    """Fetch and verify the record of a key, with its size, signer, digests, key parts, and kind.

    ``may_go_on(came_bytes)`` is called after each piece with the number of received bytes whose signature is verified,
    or 0. It raises an exception to stop the transfer.

    Raises:
        FileNotFoundError: the store doesn't contain the record.
        FormatError: the record isn't trusted.
        RemoteError: the store doesn't answer.
    """
    pieces = transport.get(object_name(digest))
    data, signed = bytearray(), None
    with contextlib.closing(pieces):
        for piece in pieces:
            data += piece
            if signed is None and len(data) >= HEAD_BYTES:
                signed = keys.prove(bytes(data[:HEAD_BYTES]), digest, now_s=time.time())
            if signed is not None and len(data) > HEAD_BYTES + signed.size_bytes:
                raise FormatError(f"the record is longer than the signed {signed.size_bytes} bytes")
            may_go_on(0 if signed is None else len(data))
    if signed is None:
        raise FormatError(f"the object is truncated after {len(data)} bytes")
    record = bytes(data[HEAD_BYTES:])
    if len(record) < signed.size_bytes:
        raise RemoteError(f"the record is truncated: {len(record)} of {signed.size_bytes} bytes arrived")
    if hashlib.sha256(record).digest() != signed.sha256:
        raise FormatError("the record is not the one that was signed: its SHA-256 doesn't match")
    entry = decode(record, digest)
    if entry.key().kind not in PORTABLE or entry.artifact.kind is ImageKind.OBJECT:
        raise FormatError(
            f"cujit doesn't download images of this type ({entry.work}, {entry.artifact.kind.value}) from "
            "other machines"
        )
    return Fetched(entry, record, signed.signer)


def read_format(transport: Transport) -> bool:
    """Read the marker of a shared cache, and return False if there is none.

    Raises:
        RemoteError: there is something else, or no answer.
    """
    found = b""
    try:
        with contextlib.closing(transport.get(FORMAT_NAME)) as pieces:
            for piece in pieces:
                found += piece
                if len(found) > len(FORMAT):
                    break
    except FileNotFoundError:
        return False
    if found != FORMAT:
        raise RemoteError(
            f"this version of cujit doesn't support the shared cache's FORMAT, which begins with {spell(found[:20])}"
        )
    return True


_Question: TypeAlias = Callable[[Callable[[int], None]], Fetched]
"""What is asked of a store; it is given ``may_go_on`` as ``fetch`` takes it."""


class RemoteTier:
    """A shared cache that is only read, under a file of keys that are believed; for any number of threads."""

    def __init__(self, url: str, trust: Path | str, *, wait_s: float) -> None:
        """Set the store and the key file. Nothing is opened yet.

        Raises:
            OptionError: the URL names no store.
        """
        check_url(url)
        if isinstance(wait_s, bool) or not isinstance(wait_s, (int, float)) or not 0 <= wait_s <= _SOCKET_S:
            raise OptionError(f"remote_wait_s is {spell(wait_s)}, expected 0 to {_SOCKET_S:.0f} seconds")
        self.url = shown_url(url)
        self._whole_url = url
        self._keys = KeyFile(trust)
        self._wait_s = wait_s
        self._transport: Transport | None = None
        self._clock = time.monotonic
        self._absent: dict[str, float] = {}
        self._is_checked = False
        self._failures, self._lost_s = 0, 0.0
        self._off_until: float | None = None
        self._on_since, self._off_s = float("-inf"), _FIRST_OFF_S
        self._is_probing = False
        self._guard = threading.Lock()

    def get(self, key: Key) -> Fetched:
        """Request the record of a key, unless the store is paused or recently reported that it lacks the key."""
        if key.kind not in PORTABLE:
            return Fetched()
        with self._guard:
            now = self._clock()
            is_off = self._off_until is not None
            is_probe = is_off and not self._is_probing and now >= (self._off_until or 0.0)
            self._is_probing = self._is_probing or is_probe
            allowed_s = self._wait_s - self._lost_s
            if not is_off and self._absent.get(key.digest, now) > now:
                return Fetched()
        if is_off and not is_probe:
            return Fetched()
        attempt = _Attempt(allowed_s)
        try:
            keys, transport = attempt.ready(lambda: (self._keys.read(), self._opened()))
            look = functools.partial(self._look, transport, keys, key.digest)
            check = functools.partial(self._check, transport)
            if not is_probe:
                return self._judged(self._fetch(attempt, check, look), key.digest)
            attempt.start(look if self._is_checked else check, self._probed)
        except (CujitError, OSError) as e:
            self._is_probing = False
            return self._failed(e, 0.0, at_once=True)
        return Fetched()

    def _fetch(self, attempt: _Attempt, check: _Question, look: _Question) -> _Attempt:
        """Request a record, and import the verification code only after the store answered. A miss costs no import."""
        if self._is_checked or attempt.ask(check).fault is None:
            attempt.ready(bindings)
            attempt.ask(look)
        return attempt

    def _opened(self) -> Transport:
        if self._transport is None:
            self._transport = transport_of(self._whole_url, _SOCKET_S)
        return self._transport

    def _check(self, transport: Transport, may_go_on: Callable[[int], None]) -> Fetched:
        """Check in a separate thread whether the store is a shared cache."""
        if not read_format(transport):
            raise RemoteError(
                "this location is not a shared cache: it has no FORMAT file", help="run cujit cache push to create one"
            )
        may_go_on(0)
        self._is_checked = True
        return Fetched()

    def _look(self, transport: Transport, keys: TrustedKeys, digest: str, may_go_on: Callable[[int], None]) -> Fetched:
        """Perform a request to the store in a separate thread."""
        with contextlib.suppress(FileNotFoundError):
            return fetch(transport, keys, digest, may_go_on=may_go_on)
        return Fetched()

    def _judged(self, attempt: _Attempt, digest: str) -> Fetched:
        fetched = attempt.fetched
        if isinstance(fetched.fault, FormatError):
            self._forget_for_now(digest)
            return self._failed(fetched.fault, attempt.took_s)
        if fetched.fault is not None:
            return self._failed(fetched.fault, attempt.took_s, at_once=not self._is_checked)
        with self._guard:
            self._failures = 0
        if fetched.record is None:
            self._forget_for_now(digest)
        return fetched

    def _forget_for_now(self, digest: str) -> None:
        with self._guard:
            if len(self._absent) >= _MOST_ABSENT:
                self._absent.clear()
            self._absent[digest] = self._clock() + _ABSENT_S

    def _failed(self, error: Exception, took_s: float, *, at_once: bool = False) -> Fetched:
        """Count a failure, and pause the store after the third failure or when the allowed waiting time is used up."""
        with self._guard:
            self._failures, self._lost_s = self._failures + 1, self._lost_s + took_s
            wanted_s = getattr(error, "retry_after_s", None)
            if wanted_s is not None:
                self._off_until = self._clock() + wanted_s
            elif at_once or self._failures >= _FAILURES or self._lost_s >= self._wait_s:
                self._leave_alone()
        return Fetched(fault=error)

    def _leave_alone(self) -> None:
        now = self._clock()
        is_again = now - self._on_since < self._off_s
        self._off_s = min(2 * self._off_s, _LONGEST_OFF_S) if is_again else _FIRST_OFF_S
        self._off_until = now + self._off_s

    def _probed(self, attempt: _Attempt) -> None:
        """Process the result of a background request."""
        is_well = attempt.fetched.fault is None and attempt.took_s <= self._wait_s
        with self._guard:
            self._is_probing = False
            if is_well:
                self._off_until, self._failures, self._lost_s, self._on_since = None, 0, 0.0, self._clock()
            else:
                self._on_since = self._clock()  # so that it is left alone for twice as long
                self._leave_alone()

    def after_fork(self) -> None:
        """Reset the state that other threads of the parent may have been changing, in a forked child."""
        self._guard = threading.Lock()
        self._is_probing = False
        if self._transport is not None:
            self._transport.after_fork()


class _Attempt:
    """Requests to the store, each in its own thread, which is abandoned when the total time is over.

    ``fetched`` is the last answer, and ``took_s`` is the elapsed time including imports.
    """

    def __init__(self, allowed_s: float) -> None:
        self._allowed_s = allowed_s
        self._begin = time.monotonic()
        self._ready_s = self._more_s = 0.0
        self._changed = Condition()
        self._is_done = False
        self._is_late = False
        self.fetched = Fetched()
        self.took_s = 0.0

    def ready(self, make: Callable[[], T]) -> T:
        """Import and read what a request needs. This counts as waiting, up to a share of the allowed time."""
        begin = time.monotonic()
        try:
            return make()
        finally:
            self._ready_s += time.monotonic() - begin

    def ask(self, question: _Question) -> Fetched:
        """Send a request, and wait for the answer within the allowed time, or longer while a signed record arrives."""
        self._is_done = False
        self.start(question)
        with self._changed:
            while not self._is_done:
                self._changed.wait(self._left_s())
                if not self._is_done and self._left_s() <= 0:
                    self._is_late = True
                    self.took_s = time.monotonic() - self._begin
                    self.fetched = Fetched(
                        fault=RemoteError(f"the shared cache didn't answer within {self._allowed_s:.2g} s")
                    )
                    break
        return self.fetched

    def start(
        self,
        question: _Question,
        when_done: Callable[[_Attempt], None] = lambda _: None,
    ) -> None:
        """Ask, and have ``when_done`` called with this."""
        try:
            start(self._run, question, when_done, name="cujit-remote", daemon=True)
        except RuntimeError as e:  # there are too many threads, or the interpreter ends
            self._finish(Fetched(fault=RemoteError(str(e))), when_done)

    def _run(self, question: _Question, when_done: Callable[[_Attempt], None]) -> None:
        try:
            fetched = question(self._go_on)
        except (CujitError, OSError) as e:
            fetched = Fetched(fault=e)
        except Exception as e:  # of a library underneath: whatever it is, it ends no process
            fetched = Fetched(fault=RemoteError(f"{type(e).__name__}: {e}"[:300]))
        self._finish(fetched, when_done)

    def _finish(self, fetched: Fetched, when_done: Callable[[_Attempt], None]) -> None:
        with self._changed:
            if not self._is_late:
                self.took_s = time.monotonic() - self._begin
                self.fetched = fetched
            self._is_done = True
            self._changed.notify_all()
        when_done(self)

    def _go_on(self, came_bytes: int) -> None:
        self._more_s = came_bytes / _BYTES_PER_S
        if self._is_late:
            raise RemoteError("the answer arrived too late")

    def _left_s(self) -> float:
        uncounted_s = max(0.0, self._ready_s - self._allowed_s * _IMPORTS)
        return self._begin + self._allowed_s + self._more_s + uncounted_s - time.monotonic()
