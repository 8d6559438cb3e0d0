"""The right to make an Artifact, for makers that are no function: one has it, the others wait for what it keeps."""

from __future__ import annotations

import threading
from pathlib import Path

from cache.samples import artifact_of, key_of
from cujit.cache.cache import Cache
from cujit.cache.provenance import Outcome

KEY = key_of(1)


def test_claim_lets_one_process_compile_and_others_wait(tmp_path: Path) -> None:
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


def test_claim_compiles_after_waiting_too_long(tmp_path: Path) -> None:
    with Cache(tmp_path / "cache").claim(KEY, 60) as first, Cache(tmp_path / "cache").claim(KEY, 0.01) as second:
        assert first is None
        assert second is None


def test_claim_returns_an_existing_artifact_immediately(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    cache.keep(KEY, artifact_of(1))
    with cache.claim(KEY, 0) as known, Cache(tmp_path / "cache").claim(KEY, 0) as read:
        assert known is not None
        assert known[1].outcome is Outcome.MEMORY
        assert read is not None
        assert read[1].outcome is Outcome.DISK
        assert read[0].data == known[0].data


def test_holds_finds_entries_of_every_root(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    assert not cache.holds(KEY.digest)
    cache.keep(KEY, artifact_of(1))
    assert cache.holds(KEY.digest)
    cache.discard(KEY)
    assert not cache.holds(KEY.digest)
    assert not Cache(None).holds(KEY.digest)
