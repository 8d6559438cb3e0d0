"""Tiers of a cache: each is one class, asked after the roots in order."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cache.samples import artifact_of, key_of
from cujit.artifact import Artifact
from cujit.cache.cache import Cache
from cujit.cache.key import Key
from cujit.cache.provenance import Outcome
from cujit.cache.record import decode, encode
from cujit.cache.tier import Fetched
from cujit.errors import CacheWarning, RemoteError


class DictTier:
    """Records in memory, by digest."""

    def __init__(self, url: str, *numbers: int, error: Exception | None = None) -> None:
        self.url, self.error = url, error
        self.asked: list[str] = []
        self.forks = 0
        self._records = {
            key_of(n).digest: encode(key_of(n), artifact_of(n), make_ms=5.0, made_s=0, recipe=b"") for n in numbers
        }

    def get(self, key: Key) -> Fetched:
        self.asked.append(key.digest)
        if self.error is not None:
            raise self.error
        data = self._records.get(key.digest)
        return Fetched() if data is None else Fetched(decode(data, key.digest), data)

    def after_fork(self) -> None:
        self.forks += 1


def nobody() -> Artifact:
    raise AssertionError("a tier has it")


def test_tiers_are_searched_in_order_and_the_root_stores(tmp_path: Path) -> None:
    first, second = DictTier("dict:1", 1), DictTier("dict:2", 1, 2)
    cache = Cache(tmp_path / "root", tiers=[first, second])
    for n, (one, two) in ((1, (1, 0)), (2, (2, 1))):
        artifact, provenance = cache.get_or_make(key_of(n), nobody)
        assert (artifact.data, provenance.outcome) == (artifact_of(n).data, Outcome.REMOTE)
        assert (len(first.asked), len(second.asked)) == (one, two)
    assert cache.get_or_make(key_of(3), lambda: artifact_of(3))[1].outcome is Outcome.MADE
    again = Cache(tmp_path / "root")
    assert [again.get_or_make(key_of(n), nobody)[1].outcome for n in (1, 2)] == 2 * [Outcome.DISK]


def test_failing_tier_is_counted_and_the_next_is_searched() -> None:
    broken, good = DictTier("dict:1", error=RemoteError("no route")), DictTier("dict:2", 1)
    cache = Cache(None, tiers=[broken, good])
    with pytest.warns(CacheWarning, match="goes on without the shared cache dict:1: no route"):
        assert cache.get_or_make(key_of(1), nobody)[1].outcome is Outcome.REMOTE
    assert (cache.counters.remote_failures, cache.counters.remote_hits) == (1, 1)


def test_tiers_answer_find_and_count_as_suppliers() -> None:
    tier = DictTier("dict:1", 1)
    cache = Cache(None, tiers=[tier])
    assert cache.is_supplied
    assert cache.find(key_of(1)) is None
    assert tier.asked == []
    assert cache.find(key_of(1), is_read=True) is not None
    assert cache.find(key_of(2), is_read=True) is None


def test_tiers_are_notified_of_a_fork() -> None:
    tier = DictTier("dict:1")
    cache = Cache(None, tiers=[tier])
    child = os.fork()
    if not child:
        os._exit(tier.forks)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert cache.tiers == (tier,)
