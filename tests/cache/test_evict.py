"""The size of a cache: counted over all processes, and what was used longest ago goes first."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cache.samples import artifact_of, key_of
from cujit.cache.evict import Evictor
from cujit.cache.filesystem import byte_lock
from cujit.cache.record import encode
from cujit.cache.store import Store, StoreEntry
from cujit.cache.trust import Trust

SIZE = len(encode(key_of(10), artifact_of(10), make_ms=5, made_s=1_700_000_000))
CAP = 10 * SIZE


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache", Trust.of_process(), writable=True)


@pytest.fixture
def budget(store: Store) -> Evictor:
    return Evictor(store, CAP)


def add(store: Store, n: int, used_s: float = 0) -> None:
    store.put(key_of(n).digest, encode(key_of(n), artifact_of(n), make_ms=5, made_s=1_700_000_000))
    if used_s:
        digest = key_of(n).digest
        os.utime(store.root / "e" / digest[:2] / digest[2:], (used_s, used_s))


def held(store: Store) -> int:
    return sum(entry.size_bytes for entry in store.entries())


def test_added_entries_are_counted_and_kept_below_the_cap(store: Store, budget: Evictor) -> None:
    assert budget.used_bytes() == 0
    for n in range(9):
        add(store, n)
        budget.added(SIZE)
    assert len(list(store.entries())) == 9
    assert (
        held(store) <= budget.used_bytes() <= 9 * SIZE
    )  # the first addition counted what was there, each later one adds


def test_eviction_above_the_cap_goes_down_to_80_percent(store: Store, budget: Evictor) -> None:
    now = time.time()
    for n in range(11):
        add(store, n, now - 1000 + (n if n != 0 else 500))  # the first entry was used last
        budget.added(SIZE)
    kept = {entry.digest for entry in store.entries()}
    assert kept == {key_of(n).digest for n in (0, 4, 5, 6, 7, 8, 9, 10)}
    assert budget.used_bytes() == held(store) <= 0.8 * CAP + 20


def test_eviction_is_left_to_a_process_that_is_evicting(
    store: Store, budget: Evictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(store, 0)
    budget.added(SIZE)
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("it waits for the other"))
    with byte_lock(store.root / "usage", store.trust, 64, 0):
        for n in range(1, 14):
            add(store, n)
            budget.added(SIZE)
        assert len(list(store.entries())) == 14
    add(store, 14)
    budget.added(SIZE)
    assert held(store) <= CAP


def test_wrong_counter_is_put_right_by_the_next_count(store: Store, budget: Evictor) -> None:
    for wrong in (b"", b"garbage", struct.pack("<qq", 2**62, 0), struct.pack("<qq", -5, -5), b"\xff" * 16):
        (store.root).mkdir(exist_ok=True, mode=0o700)
        (store.root / "usage").write_bytes(wrong)
        (store.root / "usage").chmod(0o600)
        add(store, 0)
        assert budget.has_room(SIZE)
        budget.added(SIZE)
        assert budget.used_bytes() <= 2 * SIZE
        store.delete(key_of(0).digest)


def test_cache_size_is_recounted_once_a_day(store: Store, budget: Evictor) -> None:
    add(store, 0)
    (store.root / "usage").write_bytes(struct.pack("<qq", 5 * SIZE, int(time.time()) - 80_000))
    budget.added(0)
    assert budget.used_bytes() == 5 * SIZE
    (store.root / "usage").write_bytes(struct.pack("<qq", 5 * SIZE, int(time.time()) - 90_000))
    budget.added(0)
    assert budget.used_bytes() == held(store)


def test_no_entry_is_added_at_twice_the_cap_during_eviction(store: Store, budget: Evictor) -> None:
    add(store, 0)
    assert not budget.has_room(int(0.8 * CAP) + 1)
    assert budget.has_room(int(0.8 * CAP))
    (store.root / "usage").write_bytes(struct.pack("<qq", 2 * CAP, int(time.time())))
    with byte_lock(store.root / "usage", store.trust, 64, 0):
        assert not budget.has_room(SIZE)
    assert budget.has_room(SIZE)  # nobody evicts: we do, and so the true size is known


def test_trim_evicts_to_the_target_and_returns_deleted_bytes(store: Store, budget: Evictor) -> None:
    assert budget.trim(0) == 0
    assert not store.root.exists()
    for n in range(6):
        add(store, n)
        budget.added(SIZE)
    before = held(store)
    assert budget.trim(before) == 0
    freed = budget.trim(3 * SIZE)
    assert freed == before - held(store) > 0
    assert held(store) <= 3 * SIZE
    assert budget.trim(0) == before - freed
    assert budget.used_bytes() == held(store) == 0


def test_opening_a_cache_scans_no_directory(store: Store, budget: Evictor, monkeypatch: pytest.MonkeyPatch) -> None:
    add(store, 0)
    budget.added(SIZE)

    def scan(*_: object) -> None:
        raise AssertionError("the directory was scanned")

    monkeypatch.setattr(os, "scandir", scan)
    monkeypatch.setattr(os, "listdir", scan)
    again = Store(store.root, store.trust, writable=True)
    assert again.get(key_of(0).digest).record is not None
    add(again, 1)
    Evictor(again, CAP).added(SIZE)


class _Busy(Store):
    """A store to which another process adds entries while this one counts."""

    more = 0

    def entries(self) -> Iterator[StoreEntry]:
        found = list(super().entries())
        other = Store(self.root, self.trust, writable=True)
        for n in range(50, 50 + self.more):
            add(other, n)
            Evictor(other, CAP).added(SIZE)
        self.more = 0
        return iter(found)


@pytest.mark.parametrize("more", [1, 12])
def test_entries_added_during_a_count_are_counted_and_evicted(tmp_path: Path, more: int) -> None:
    store = _Busy(tmp_path / "cache", Trust.of_process(), writable=True)
    budget = Evictor(store, CAP)
    for n in range(10, 20):
        add(store, n)
        budget.added(SIZE)
    store.more = more
    add(store, 20)
    budget.added(SIZE)
    assert len(list(store.entries())) <= 10
    assert held(store) <= budget.used_bytes() <= CAP


class _Remote(Store):
    is_remote = True


def test_shared_root_is_trimmed_only_on_request(tmp_path: Path) -> None:
    store = _Remote(tmp_path / "cache", Trust.of_process(), writable=True)
    budget = Evictor(store, CAP)
    for n in range(15):
        add(store, n)
        budget.added(SIZE)
    assert len(list(store.entries())) == 15
    assert budget.has_room(SIZE)
    budget.trim(2 * SIZE)
    assert held(store) <= 2 * SIZE
