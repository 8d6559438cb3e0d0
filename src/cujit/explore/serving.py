"""Entry points of the explorer: ``serve`` runs until Ctrl-C, and ``start`` runs a server in a thread."""

from __future__ import annotations

import contextlib
import html
import os
import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cujit.arch.arch import KNOWN_ARCHES, Arch, ArchKind
from cujit.arch.support import install
from cujit.artifact.writing import temporary_directory, write_file
from cujit.devices.arguments.written import DTYPES
from cujit.devices.options import check_timeout
from cujit.errors import ArchError, CujitError, MissingError, OptionError, read_int
from cujit.explore.editor import EditedFile
from cujit.explore.request_auth import Door, Strangers
from cujit.explore.scene import TIMEOUT_S, LaunchLimits, Scene
from cujit.explore.starters import STARTERS
from cujit.occupancy.products import PRODUCTS
from cujit.profile.peaks import peaks
from cujit.program import toolchain
from cujit.threads import start as start_thread
from cujit.values import attributes, replace

if TYPE_CHECKING:
    from uvicorn import Server

_HOST = "127.0.0.1"
_USUAL_PORT = 17440
"""The port that is tried first: a browser remembers the layout of a page for its address."""
_MOST_CONNECTIONS = 64
_START_S = 30.0


class Explorer:
    """A server in a thread of this process. ``url`` is the address for a browser and includes the token.

    Example::

        with cujit.explore.start("axpy.cu") as explorer:
            print(explorer.url)
    """

    def __init__(self, url: str, server: Server, thread: threading.Thread) -> None:
        self.url = url
        self._server = server
        self._thread = thread

    def close(self) -> None:
        """End the server, and the processes that it has; again is harmless."""
        self._server.should_exit = True
        self._thread.join()

    def __enter__(self) -> Explorer:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def serve(
    path: str | os.PathLike[str],
    scene: Scene | None = None,
    *,
    port: int = 0,
    timeout_s: float = TIMEOUT_S,
    memory_mib: int | None = None,
    trusted: bool = False,
    opens_browser: bool = False,
    say: Callable[[str], None] = print,
) -> None:
    """Serve a page with an editor of one file on this machine alone, until Ctrl-C.

    Args:
        path: of the source: CUDA C++ or LLVM IR as text.
        scene: how it is compiled and launched at first; the text and the name are the file's.
        port: of 127.0.0.1; 0 is 17440 if that is free, otherwise any free one.
        timeout_s: how long a launch may run, in seconds.
        memory_mib: how much address space the process of a launch may have, in MiB; None as for ``reproducer.run``.
        trusted: launch also where the system has no filter of system calls.
        opens_browser: open the page in the user's browser.
        say: is called with the address of the page, which has the token.

    Raises:
        MissingError: the server's libraries are not installed, or there is no compiler.
        FileError: the file can't be read.
        FormatError: it is no source.
        OptionError: the port is in use, or an argument is wrong.

    Example::

        cujit.explore.serve("axpy.cu", cujit.explore.Scene("", kernel="axpy<float>", over="1000"))
    """
    server, listening, url = _made(path, scene, port, LaunchLimits(timeout_s, memory_mib, trusted))
    say(url)
    with contextlib.suppress(KeyboardInterrupt), listening, _redirect(url) as redirect:
        if opens_browser:
            webbrowser.open(redirect.as_uri())
        server.run(sockets=[listening])


@contextlib.contextmanager
def _redirect(url: str) -> Iterator[Path]:
    """Write a file that leads to a page, for a browser's command line: every user of the machine can read that line."""
    page = f'<!doctype html><meta http-equiv="refresh" content="0;url={html.escape(url)}">\n'
    with temporary_directory() as directory:
        yield write_file(directory / "open.html", page, mode=0o600)


def start(
    path: str | os.PathLike[str],
    scene: Scene | None = None,
    *,
    port: int = 0,
    timeout_s: float = TIMEOUT_S,
    memory_mib: int | None = None,
    trusted: bool = False,
) -> Explorer:
    """Start an explorer in a thread. It serves the same page as ``serve``, until it is closed.

    Args:
        path: as for ``serve``.
        scene: as for ``serve``.
        port: as for ``serve``.
        timeout_s: as for ``serve``, in seconds.
        memory_mib: as for ``serve``, in MiB.
        trusted: as for ``serve``.

    Raises:
        CujitError: see ``serve``.

    Example::

        explorer = cujit.explore.start("axpy.cu")
        explorer.close()
    """
    server, listening, url = _made(path, scene, port, LaunchLimits(timeout_s, memory_mib, trusted))

    def run() -> None:
        with listening:
            server.run(sockets=[listening])

    thread = start_thread(run, name="cujit-explorer", daemon=True)
    while thread.is_alive() and not server.started:
        thread.join(0.01)
    if not server.started:
        raise CujitError("the explorer's server didn't start")
    return Explorer(url, server, thread)


# -- what is served ---------------------------------------------------------------------------------------------


def _made(
    path: str | os.PathLike[str], scene: Scene | None, port: int, limits: LaunchLimits
) -> tuple[Server, socket.socket, str]:
    """Make a server of a file, with the socket that it listens at and the address of its page."""
    try:
        import uvicorn  # an optional part
        from uvicorn.protocols.http.h11_impl import H11Protocol  # as above

        from cujit.explore.server import ExplorerServer  # as above
    except ModuleNotFoundError as e:
        if e.name not in ("uvicorn", "starlette", "anyio", "h11"):
            raise
        raise MissingError(f"the explorer requires {e.name}, which is not installed", help=install("explore")) from None
    if limits.memory_mib is not None:
        read_int(limits.memory_mib, "memory_mib", OptionError, least=1)
    limits = replace(limits, timeout_s=check_timeout(limits.timeout_s))
    file = EditedFile(path)
    resolved = file.scene(scene)
    made = ExplorerServer(file, resolved, limits, _choices(resolved))
    listening = _socket(port)
    number = listening.getsockname()[1]
    door = Door(number, secrets.token_urlsafe(32))

    strangers = Strangers()

    class Connection(H11Protocol):
        """A connection without an access log, because logged addresses would include the token.

        Another server in this process may enable uvicorn's access log for all servers.
        """

        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            self.access_log = False

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            strangers.came(self.client, transport.abort)

        def connection_lost(self, exc: Exception | None) -> None:
            strangers.left(self.client)
            super().connection_lost(exc)

    config = uvicorn.Config(
        made.application(door, strangers),
        http=Connection,
        lifespan="on",
        log_level="warning",
        server_header=False,
        ws="none",
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_graceful_shutdown=1,
        proxy_headers=False,
    )

    class Server(uvicorn.Server):
        """A server that stops running work before it waits for open responses."""

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            await made.close()
            await super().shutdown(sockets)

    return Server(config), listening, f"http://{_HOST}:{number}/?token={door.token}"


def _socket(port: int) -> socket.socket:
    """Return a socket that listens on a port for connections from this machine only.

    Raises:
        OptionError: the port is invalid or in use.
    """
    number = read_int(port, "port", OptionError, least=0)
    if number > 65535:
        raise OptionError(f"port is {number}; the maximum is 65535")
    if not number:
        with contextlib.suppress(OSError):
            return _listening(_USUAL_PORT)
    try:
        return _listening(number)
    except OSError as e:
        raise OptionError(
            f"can't open port {number} of {_HOST}: {e.strerror or e}", help="remove --port to use a free port"
        ) from None


def _listening(number: int) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((_HOST, number))
        made.listen()
    except OSError:
        made.close()
        raise
    return made


def _choices(scene: Scene) -> dict[str, Any]:
    """Return the choices that the page offers: architectures of the compiler, and GPUs that run their code."""
    numbers = toolchain().compiler("nvvm" if scene.is_ir else "cuda").arches
    arches = [
        Arch(ArchKind.REAL, n, suffix)
        for n in numbers
        for suffix in ("", "a")
        if not suffix or (n in KNOWN_ARCHES and KNOWN_ARCHES[n].a_since)
    ]
    names = dict.fromkeys([*map(str, arches), scene.arch])
    gpus = [[product.name, str(product.arch)] for product in PRODUCTS if str(product.arch) in names]
    checks = {name: name for name in ("all", "memory", "race", "sync", "init", scene.check)} | {"": "none"}
    more = {"checks": [*checks.items()], "dtypes": [*DTYPES], "is_ir": scene.is_ir}
    if not scene.is_ir:
        more["starters"] = [attributes(each, "source name grid block over arguments") for each in STARTERS]
    known = sorted(PRODUCTS, key=lambda product: not _has_peaks(product.name))
    runs = {name: [product.name for product in known if _runs(name, product.arch)] for name in names}
    return {"arches": list(names), "gpus": gpus, "runs": runs, **more}


def _has_peaks(gpu: str) -> bool:
    try:
        return bool(peaks(gpu))
    except ArchError:
        return False


def _runs(name: str, arch: Arch) -> bool:
    """Return whether a GPU of an architecture runs machine code of another."""
    code = Arch.parse(name)
    return code.is_real and code.runs_on(arch)
