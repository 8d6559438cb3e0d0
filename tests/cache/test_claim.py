"""The right to make an Artifact, for makers that are no function: one has it, the others wait for what it keeps."""

from __future__ import annotations

import threading
from pathlib import Path

from cache.samples import artifact_of, key_of
from cujit.cache.cache import Cache
from cujit.cache.provenance import Outcome

KEY = key_of(1)


def test_one_makes_it_and_the_others_wait_for_what_is_kept(tmp_path: Path) -> None:
    found, holding = [], threading.Event()

    def ask() -> None:
        holding.wait()
        with Cache(tmp_path / "cache").claim(KEY, 60) as got:
            assert got is not None
            found.append((got[0].data, got[1].outcome))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    cache = Cache(tmp_path / "cache")
    with cache.claim(KEY, 60) as got:
        assert got is None
        holding.set()
        cache.keep(KEY, artifact_of(1))
    for thread in threads:
        thread.join()
    assert {data for data, _ in found} == {artifact_of(1).data}
    assert {outcome for _, outcome in found} <= {Outcome.WAITED, Outcome.DISK}
    assert cache.counters.misses == 1


def test_who_waits_too_long_makes_it_too(tmp_path: Path) -> None:
    with Cache(tmp_path / "cache").claim(KEY, 60) as first, Cache(tmp_path / "cache").claim(KEY, 0.01) as second:
        assert first is None
        assert second is None


def test_what_is_there_is_given_at_once(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    cache.keep(KEY, artifact_of(1))
    with cache.claim(KEY, 0) as known, Cache(tmp_path / "cache").claim(KEY, 0) as read:
        assert known is not None
        assert known[1].outcome is Outcome.MEMORY
        assert read is not None
        assert read[1].outcome is Outcome.DISK
        assert read[0].data == known[0].data


def test_a_cache_holds_what_a_root_has(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    assert not cache.holds(KEY.digest)
    cache.keep(KEY, artifact_of(1))
    assert cache.holds(KEY.digest)
    cache.discard(KEY)
    assert not cache.holds(KEY.digest)
    assert not Cache(None).holds(KEY.digest)
