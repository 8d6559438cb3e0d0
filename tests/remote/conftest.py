"""A server, and a farm whose signatures are believed."""

from __future__ import annotations

import contextlib
import http.client
import sys
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
    monkeypatch.setattr("cujit.cache.remote.filling._PAUSES_S", (0.0, 0.0))


@pytest.fixture(params=["file", "http", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """A shared cache of each kind, empty."""
    if request.param == "file":
        return f"file://{tmp_path}/store"
    if request.param == "http":
        return server.url
    if sys.version_info < (3, 11):
        pytest.skip("obstore needs Python 3.11")
    endpoint = request.getfixturevalue("object_storage")
    for name, value in {"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    bucket = f"kernels-{abs(hash(str(tmp_path)))}"
    connection = http.client.HTTPConnection(endpoint.removeprefix("http://"))
    connection.request("PUT", f"/{bucket}")
    with contextlib.closing(connection), connection.getresponse() as answer:
        assert answer.status == 200
        answer.read()
    return f"s3://{bucket}/of/cujit"


@pytest.fixture(scope="session")
def object_storage() -> Iterator[str]:
    """A server that speaks the protocol of S3."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()
