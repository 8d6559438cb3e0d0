"""A thousand ranks on many nodes that start at once, with one store behind them: what the store is asked for."""

from __future__ import annotations

import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cache.samples import artifact_of, key_of
from cujit.cache.cache import Cache
from cujit.errors import CacheWarning
from cujit.remote import push
from remote.serving import Server, farm_in, running

NODES, RANKS, KEYS = 125, 8, 4


def started(server: Server, trust: Path, nodes: Path) -> Counter[str]:
    """Start all ranks, and count where their kernels came from. The ranks of a node share its directory."""

    def rank(number: int) -> list[str]:
        cache = Cache(nodes / str(number // RANKS), remote=server.url, trust=trust, remote_wait_s=10)
        got = [cache.find(key_of(n), is_read=True) for n in range(KEYS)]
        return ["nobody" if one is None else one[1].outcome.value for one in got]

    with warnings.catch_warnings(), ThreadPoolExecutor(64) as ranks:
        warnings.simplefilter("ignore", CacheWarning)
        return Counter(outcome for each in ranks.map(rank, range(NODES * RANKS)) for outcome in each)


def test_each_node_requests_each_kernel_once(tmp_path: Path) -> None:
    farm, source = farm_in(tmp_path), Cache(tmp_path / "source")
    for n in range(KEYS):
        source.keep(key_of(n), artifact_of(n))
    with running() as server:
        push(server.url, source.stores, farm.signer)
        server.asked.clear()
        server.trouble["*"] = lambda handler, _: handler.answer(500, b"")
        assert started(server, farm.trust, tmp_path / "failing") == {"nobody": NODES * RANKS * KEYS}
        assert len(server.asked) <= NODES * RANKS * 4
        server.trouble.clear()
        server.asked.clear()
        found = started(server, farm.trust, tmp_path / "nodes")
        assert found["remote"] == NODES * KEYS
        assert sum(found.values()) == NODES * RANKS * KEYS
        assert "nobody" not in found
        assert sum("/e/" in name for name in server.asked) == NODES * KEYS
        server.asked.clear()
        assert started(server, farm.trust, tmp_path / "nodes") == {"disk": NODES * RANKS * KEYS}
        assert server.asked == []
