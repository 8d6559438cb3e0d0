"""Any order of uses, harm, forks and kills, against a dictionary."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import warnings
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cache.samples import artifact_of, key_of
from cujit.artifact import Artifact
from cujit.cache import admin
from cujit.cache.cache import Cache
from cujit.cache.record import encode
from cujit.errors import CacheWarning

NUMBERS = st.integers(0, 5)
PLACES = st.sampled_from([".", "e", "tmp", "bad", "usage", "lock", "FORMAT", "CACHEDIR.TAG"])


class CacheMachine(RuleBasedStateMachine):
    """``maker`` is the thing a key stands for; whatever was done to the files, a cache gives it or makes it."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.root = self.directory / "cache"
        self.kept: set[int] = set()
        """What must be a hit, because it was put and nothing was done to it since."""
        self.harmed = False

    @initialize(cap=st.sampled_from([4000, 1 << 20]))
    def open(self, cap: int) -> None:
        self.cap = cap
        self.cache = Cache(self.root, cap_bytes=cap)

    def teardown(self) -> None:
        for place in (self.root, *(self.root.rglob("*") if self.root.is_dir() else ())):
            if place.is_dir():
                place.chmod(0o700)
        shutil.rmtree(self.directory)

    def path(self, n: int) -> Path:
        digest = key_of(n).digest
        return self.root / "e" / digest[:2] / digest[2:]

    def use(self, cache: Cache, n: int) -> bool:
        """Get a thing, and tell whether it had to be made."""
        made = []

        def make() -> Artifact:
            made.append(n)
            return artifact_of(n)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CacheWarning)
            artifact, provenance = cache.get_or_make(key_of(n), make)
        assert artifact == artifact_of(n)
        assert provenance.is_hit is not bool(made)
        return bool(made)

    def model_put(self, n: int) -> None:
        if self.cap > 100_000 and not self.harmed:
            self.kept.add(n)

    @rule(n=NUMBERS)
    def get_or_make_in_this_process(self, n: int) -> None:
        self.use(self.cache, n)

    @rule(n=NUMBERS)
    def get_or_make_in_a_new_process(self, n: int) -> None:
        made = self.use(Cache(self.root, cap_bytes=self.cap), n)
        assert not (made and n in self.kept)
        self.model_put(n)

    @rule(n=NUMBERS)
    def put_by_another_that_is_as_good(self, n: int) -> None:
        with contextlib.suppress(Exception):
            assert self.cache.store is not None
            self.cache.store.put(key_of(n).digest, encode(key_of(n), artifact_of(n), make_ms=1, made_s=1))

    @rule(n=NUMBERS)
    def delete(self, n: int) -> None:
        self.kept.discard(n)
        with contextlib.suppress(OSError):
            assert self.cache.store is not None
            self.cache.store.delete(key_of(n).digest)

    @rule(to_bytes=st.sampled_from([0, 2000, 5000]))
    def evict(self, to_bytes: int) -> None:
        self.kept.clear()
        with contextlib.suppress(Exception):
            admin.trim(self.cache, to_bytes)
            assert admin.info(self.cache).total_bytes <= to_bytes

    @rule(n=NUMBERS, place=st.integers(0, 2000), how=st.sampled_from(["cut", "change", "empty", "double"]))
    def corrupt(self, n: int, place: int, how: str) -> None:
        path = self.path(n)
        if path.is_file():
            self.kept.discard(n)
            whole = path.read_bytes()
            at = place % (len(whole) or 1)
            changed = {"cut": whole[:at], "empty": b"", "double": whole * 2}
            path.write_bytes(changed.get(how, whole[:at] + b"\xaa\x55" + whole[at + 2 :]))

    @rule(n=NUMBERS, m=NUMBERS)
    def swap(self, n: int, m: int) -> None:
        if n != m and self.path(n).is_file() and self.path(m).is_file():
            self.kept -= {n, m}
            self.path(n).rename(self.directory / "third")
            self.path(m).rename(self.path(n))
            (self.directory / "third").rename(self.path(m))

    @rule(n=NUMBERS, mode=st.sampled_from([0, 0o200, 0o644, 0o666, 0o777]))
    def chmod_an_entry(self, n: int, mode: int) -> None:
        if self.path(n).is_file():
            self.kept.discard(n)
            self.path(n).chmod(mode)

    @rule(place=PLACES, mode=st.sampled_from([0o500, 0o700, 0o755, 0o777]))
    def chmod_a_place(self, place: str, mode: int) -> None:
        if (self.root / place).exists():
            self.harmed = True
            self.kept.clear()
            (self.root / place).chmod(mode)

    @rule(place=PLACES)
    def remove_a_place(self, place: str) -> None:
        self.kept.clear()
        path = self.root / place
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    @precondition(lambda self: self.harmed)
    @rule()
    def mend(self) -> None:
        if self.root.exists():
            for place in [self.root, *self.root.rglob("*")]:
                place.chmod(0o700 if place.is_dir() else 0o600)
        self.harmed = False
        self.cache = Cache(self.root, cap_bytes=self.cap)

    @rule(n=NUMBERS, m=NUMBERS, killed=st.booleans(), within=st.booleans())
    def fork(self, n: int, m: int, killed: bool, within: bool) -> None:
        """A child uses the same cache object, perhaps from within a making; or it is killed while it makes."""

        def forking() -> Artifact:
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    self.use(self.cache if within else Cache(self.root, cap_bytes=self.cap), n)
                    if killed:
                        self.cache.get_or_make(key_of(99), lambda: os.kill(os.getpid(), signal.SIGKILL))  # type: ignore
                    status = 0
                finally:
                    os._exit(status)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == (-signal.SIGKILL if killed else 0)
            return artifact_of(m)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if within and n != m:
                assert self.cache.get_or_make(key_of(m), forking)[0] == artifact_of(m)
            else:
                forking()

    @invariant()
    def no_entry_is_larger_than_it_should_be_and_nothing_is_left_behind(self) -> None:
        with contextlib.suppress(OSError):
            assert os.listdir(self.root / "tmp") == []


CacheMachine.TestCase.settings = settings(
    max_examples=40, stateful_step_count=25, suppress_health_check=list(HealthCheck)
)
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
TestCacheMachine = CacheMachine.TestCase
