"""Explorers of a transpose through shared memory, and of what attackers would type."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest

import costs
import cujit.explore
from browsing import browser, visit
from cujit.explore import Explorer, Scene
from cujit.explore.analyzer import before
from cujit.explore.editor import EditedFile
from cujit.explore.scene import TIMEOUT_S, LaunchLimits
from waiting import eventually

__all__ = ["browser", "visit"]

pytest.importorskip("uvicorn", reason="needs a server: pip install 'cujit[explore]'")

CODE = """extern "C" __global__ void transpose(const float *x, float *y, int n) {
    __shared__ float s[32][32];
    int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
    s[threadIdx.y][threadIdx.x] = 1.5f * x[row * n + column];
    __syncthreads();
    y[(blockIdx.x * 32 + threadIdx.y) * n + blockIdx.y * 32 + threadIdx.x] = s[threadIdx.x][threadIdx.y];
}
"""
LAUNCHED = Scene("", grid="2x2", block="32x32", arguments="ones:f32:4096 zeros:f32:4096 64", on="H200")


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Asking:
    """Speaks with an explorer as its page does, or as an attacker would."""

    explorer: Explorer
    path: Path
    token: str = field(init=False)
    port: int = field(init=False)

    def __post_init__(self) -> None:
        url = urlsplit(self.explorer.url)
        (self.token,), self.port = parse_qs(url.query)["token"], url.port or 0

    def ask(
        self, method: str, path: str, body: bytes | str | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Ask with these headers alone."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)) as connection:
            return self._ask(connection, method, path, body, headers)

    def _ask(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: bytes | str | None,
        headers: Mapping[str, str] | None,
    ) -> Answer:
        said = {"Host": f"127.0.0.1:{self.port}", **(headers or {})}
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        data = body.encode() if isinstance(body, str) else body
        if data is not None and "Content-Length" not in said:
            said["Content-Length"] = str(len(data))
        for name, value in said.items():
            connection.putheader(name, value)
        connection.endheaders(data)
        with connection.getresponse() as response:
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read())

    def own(self, path: str, body: object) -> Answer:
        """Ask as the page does."""
        headers = {"X-Cujit-Token": self.token, "Origin": f"http://127.0.0.1:{self.port}"}
        return self.ask("POST", path, json.dumps(body), headers)

    def look(self, source: str = CODE, **said: object) -> dict[str, Any]:
        """Ask for a scene, and give the last line of the answer."""
        scene = {**LAUNCHED.to_json(), "source": source, **said}
        del scene["name"]
        answer = self.own("/look", scene)
        assert answer.status == 200
        last: dict[str, Any] = json.loads(answer.body.splitlines()[-1])
        return last


Serve = Callable[..., Asking]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """Begin one explorer, which is as if it had begun anew whenever somebody asks for it.

    Its processes go on: to begin two of them costs as much as a look.
    """
    from cujit.explore import server

    made: list[server.ExplorerServer] = []

    class Kept(server.ExplorerServer):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            made.append(self)

    path = tmp_path_factory.mktemp("explored") / "shared.cu"
    path.write_text(CODE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "ExplorerServer", Kept)
        explorer = cujit.explore.start(path, LAUNCHED)
    asking = Asking(explorer, path)

    def anew(text: str = CODE, scene: Scene = LAUNCHED, timeout_s: float = TIMEOUT_S) -> Asking:
        for other in path.parent.iterdir():
            other.unlink()
        path.write_text(text)
        made[0].file = EditedFile(path)
        made[0]._scene = made[0].file.scene(scene)
        made[0]._record, made[0]._last = before(made[0]._scene).record(), b""
        made[0]._workers._limits = LaunchLimits(timeout_s, None, False)
        eventually(lambda: not (made[0]._workers._busy or made[0]._workers._starting))
        return asking

    with explorer:
        yield anew
        _count()


@pytest.fixture
def serve(served: Serve) -> Serve:
    """Give the explorer of the module, with a file and a scene, and how long a launch may run."""
    return served


@pytest.fixture(scope="module")
def asking(served: Serve) -> Asking:
    """Speak with the explorer of the module as the last test left it."""
    return served()


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Serve]:
    """Begin explorers of a file that are this test's own, and end with it."""
    begun: list[Explorer] = []

    def start(**more: Any) -> Asking:
        path = tmp_path / "shared.cu"
        path.write_text(CODE)
        begun.append(cujit.explore.start(path, LAUNCHED, **more))
        return Asking(begun[-1], path)

    yield start
    _count()
    for explorer in begun:
        explorer.close()


_counted: dict[int, float] = {}


def _count() -> None:
    """Count what the processes spent that fork launches: nobody waits for them."""
    for number in processes("cujit.reproducer.child"):
        if os.getpid() in parents(number):
            spent = costs.spent_by(number)
            costs.add(spent - _counted.get(number, 0))
            _counted[number] = spent


def processes(word: str) -> list[int]:
    """List the processes that were started with a word in their command."""
    return [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline") if word in read(path)]


def read(path: Path) -> str:
    """Read a file of /proc; a process may be gone."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def parents(number: int) -> Iterator[int]:
    """Give the processes above one."""
    while number > 1:
        found = re.search(r"^PPid:\s*(\d+)", read(Path(f"/proc/{number}/status")), re.MULTILINE)
        number = int(found[1]) if found else 0
        yield number
