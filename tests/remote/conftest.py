"""A server, and a farm whose signatures are believed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cujit.cache.cache import Cache
from remote.serving import Farm, Server, farm_in, running


@pytest.fixture
def server() -> Iterator[Server]:
    """A shared cache that is empty and works."""
    with running() as server:
        yield server


@pytest.fixture
def farm(tmp_path: Path) -> Farm:
    """Whoever signs, and is believed."""
    return farm_in(tmp_path)


@pytest.fixture
def cache_of(tmp_path: Path, server: Server, farm: Farm) -> Callable[..., Cache]:
    """Make caches with the server behind their root; they wait long, for machines are busy."""

    def made(root: str = "root", *, wait_s: float = 10.0, url: str = "", trust: Path = farm.trust) -> Cache:
        return Cache(tmp_path / root, remote=url or server.url, trust=trust, remote_wait_s=wait_s)

    return made


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask a store that does not answer again at once."""
    monkeypatch.setattr("cujit.remote.publish._PAUSES_S", (0.0, 0.0))
