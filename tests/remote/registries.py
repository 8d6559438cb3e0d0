"""A registry of containers, Debian's ``docker-registry``, for the tests that speak with one."""

from __future__ import annotations

import hashlib
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cujit.remote.attestation import ENVELOPE_TYPE

__all__ = ["Registry", "registry"]

_SERVER = shutil.which("docker-registry")
_TYPE = "application/vnd.oci.image.manifest.v1+json"

CONFIG = """version: 0.1
log: {{level: error}}
storage: {{filesystem: {{rootdirectory: {root}}}, delete: {{enabled: true}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""


class Registry(NamedTuple):
    """A registry that runs, and the directory where it keeps blobs by digest."""

    root: Path
    port: int

    @property
    def url(self) -> str:
        return f"oci://127.0.0.1:{self.port}/team/kernels"

    def blob(self, digest: str) -> Path:
        kind, _, name = digest.partition(":")
        return self.root / "docker/registry/v2/blobs" / kind / name[:2] / name / "data"

    def upload(self, content: bytes) -> dict[str, Any]:
        """Upload a blob, as a stolen token that may write could, and describe it as a layer."""
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        begin = urllib.request.Request(f"http://127.0.0.1:{self.port}/v2/team/kernels/blobs/uploads/", b"")
        with urllib.request.urlopen(begin) as answer:
            place = f"{answer.headers['Location']}&digest={digest}"
        kind = {"Content-Type": "application/octet-stream"}
        with urllib.request.urlopen(urllib.request.Request(place, content, kind, method="PUT")):
            return {"digest": digest, "size": len(content), "mediaType": ENVELOPE_TYPE}

    def manifest(self, tag: str, content: bytes | None = None) -> bytes:
        """Read a manifest, or write one, as a stolen token that may write could."""
        url = f"http://127.0.0.1:{self.port}/v2/team/kernels/manifests/{tag}"
        method = "GET" if content is None else "PUT"
        request = urllib.request.Request(url, content, {"Accept": _TYPE, "Content-Type": _TYPE}, method=method)
        with urllib.request.urlopen(request) as answer:
            return bytes(answer.read())


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    pytest.importorskip("oras")
    if _SERVER is None:
        pytest.skip("docker-registry is not installed: Debian's package of that name")
    root = tmp_path_factory.mktemp("registry")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (root / "config.yml").write_text(CONFIG.format(root=root / "blobs", port=port))
    with subprocess.Popen([_SERVER, "serve", root / "config.yml"], stderr=subprocess.DEVNULL) as server:
        try:
            _await(port, server)
            yield Registry(root / "blobs", port)
        finally:
            server.terminate()


def _await(port: int, server: subprocess.Popen[bytes]) -> None:
    with socket.socket() as client:
        for _ in range(200):
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
            assert server.poll() is None
            time.sleep(0.05)
    raise AssertionError("the registry does not answer")
