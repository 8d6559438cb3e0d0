"""A server of files by HTTP, as many are, that misbehaves where a test asks for it; and keys to sign with."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

from cache.samples import artifact_of, key_of
from cujit.cache.record import encode
from cujit.cache.remote.signing import Signer, keygen
from cujit.cache.remote.tier import FORMAT, FORMAT_NAME, object_name

__all__ = ["Farm", "Server", "Trouble", "farm_in", "running"]


class Handler(BaseHTTPRequestHandler):
    """Answers GET and create-only PUT out of a table, on connections that stay open."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # as servers do; else every answer of two pieces takes 40 ms
    server: Server

    def do_GET(self) -> None:
        name = self.path.removeprefix("/kernels/")
        self.server.asked.append(name)
        trouble = self.server.trouble.get(name) or (self.server.trouble.get("*") if name != FORMAT_NAME else None)
        if trouble is not None:
            trouble(self, self.server.files.get(name, b""))
        elif name in self.server.files:
            self.answer(200, self.server.files[name])
        else:
            self.answer(404, b"nothing here")

    def do_PUT(self) -> None:
        name = self.path.removeprefix("/kernels/")
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.password and self.headers.get("Authorization") != self.server.password:
            self.answer(401, b"")
        elif name in self.server.files and self.headers.get("If-None-Match") == "*" and self.server.knows_conditions:
            self.answer(412, b"")
        else:
            self.server.files[name] = data
            self.answer(201, b"")

    def answer(self, status: int, body: bytes, length: int | None = None, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body) if length is None else length), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


Trouble = Callable[[Handler, bytes], None]
"""What to answer instead: by the handler, and what lies there."""


class Server(ThreadingHTTPServer):
    """The table, what was asked for, and by name ("*": every entry) what goes wrong."""

    daemon_threads = True
    request_queue_size = 400

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.trouble: dict[str, Trouble] = {}
        self.password = ""
        self.knows_conditions = True
        self.closing = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/kernels"

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: clients go away on purpose."""


@contextlib.contextmanager
def running() -> Iterator[Server]:
    """Serve, for the body."""
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.closing.set()
            server.shutdown()
            thread.join()


class Farm(NamedTuple):
    """Who signs: a private key, and the file in which its public one is believed for the scope ``main``."""

    signer: Signer
    trust: Path

    def content(self, n: int, *, work: str = "nvrtc", size: int = 1000) -> bytes:
        """Make the object of the n-th piece of work."""
        key = key_of(n, work=work)
        record = encode(key, artifact_of(n, size), make_ms=50.0, made_s=1)
        return self.signer.head(key.digest, record) + record

    def files(self, *numbers: int) -> dict[str, bytes]:
        """Make what a shared cache holds that has these."""
        return {FORMAT_NAME: FORMAT, **{object_name(key_of(n).digest): self.content(n) for n in numbers}}


def farm_in(directory: Path, name: str = "farm", scope: str = "main") -> Farm:
    """Make a key, and a file that believes it."""
    trust = directory / f"{name}.json"
    trust.write_text(keygen(directory / f"{name}.key", name=name, scope=scope))
    trust.chmod(0o600)
    return Farm(Signer.read(directory / f"{name}.key", scope=scope), trust)
