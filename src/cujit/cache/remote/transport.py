"""Objects by GET and create-only PUT: in a directory, over HTTP, or in object storage."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
import weakref
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import SplitResult, unquote, urlsplit

from cujit.arch.support import install
from cujit.artifact.writing import replacing
from cujit.errors import MissingError, OptionError, RemoteError, spell

if TYPE_CHECKING:
    import http.client

_CHUNK_BYTES = 1 << 16
_IDLE = 4
_BUSY = (429, 503)
_NOT_THERE = (404, 410)
_PRECONDITION_FAILED = 412
_MOST_RETRY_S = 600.0
_OBJECT_STORES = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss")


class Transport(Protocol):
    """Storage of objects by name, usable by any number of threads. Every failure is a ``RemoteError``."""

    def get(self, name: str) -> Generator[bytes, None, None]:
        """Return a generator of the bytes of an object in pieces. Close the generator if it is not read to the end.

        Raises:
            FileNotFoundError: it is not there.
        """
        ...

    def put(self, name: str, data: bytes, *, replace: bool = False) -> bool:
        """Write a complete object. Return False if it exists and must not be replaced."""
        ...

    def after_fork(self) -> None:
        """Drop the parent's connections in a forked child."""
        ...


def transport_of(url: str, timeout_s: float) -> Transport:
    """Choose how the store at ``url`` is spoken with; ``timeout_s`` bounds each wait for the network.

    Raises:
        MissingError: a package that it needs is not installed.
        OptionError: it is no such URL.
    """
    parts = check_url(url)
    if parts.scheme == "file":
        return _Directory(Path(unquote(parts.path)))
    if parts.scheme in ("http", "https"):
        return _Http(parts, timeout_s)
    return _ObjectStore(url, timeout_s)


def check_url(url: str) -> SplitResult:
    """Check that a URL names a store: ``file:///…``, ``http(s)://…``, ``s3://…``, ``gs://…``, or ``az://…``.

    Raises:
        OptionError: the URL is invalid.
    """
    fault = OptionError(
        f"{spell(url)} is not the URL of a shared cache",
        help="write https://host/path, s3://bucket/path, gs://…, az://… or file:///path",
    )
    if not isinstance(url, str) or any(character <= " " or character > "~" for character in url):
        raise fault
    with contextlib.suppress(ValueError):  # of a bracket or a port that is none
        parts = urlsplit(url)
        _ = parts.port
        is_file = parts.scheme == "file" and not parts.netloc and parts.path.startswith("/")
        if is_file or (parts.scheme in ("http", "https", *_OBJECT_STORES) and parts.hostname):
            return parts
    raise fault


def shown_url(url: str) -> str:
    """Write a URL for messages: without the user and the password in it."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


class _Directory:
    """A directory, which may be on a remote file system. Its owner doesn't matter, because signatures identify the
    writer.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def get(self, name: str) -> Generator[bytes, None, None]:
        try:
            fd = os.open(self._root / name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError) as e:
            raise FileNotFoundError(name) from e
        except OSError as e:
            raise RemoteError(f"{self._root / name}: {e.strerror}") from e
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise RemoteError(f"{self._root / name} is not a regular file")
            while piece := os.read(fd, _CHUNK_BYTES):
                yield piece
        except OSError as e:
            raise RemoteError(f"{self._root / name}: {e.strerror or e}") from e
        finally:
            os.close(fd)

    def put(self, name: str, data: bytes, *, replace: bool = False) -> bool:
        path = self._root / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Whatever the umask is: it is there for others.
            with replacing(path, mode=0o644, links="replace", is_new=not replace) as file:
                file.write(data)
        except OSError as e:
            if e.errno == errno.EEXIST and not replace:
                return False
            raise RemoteError(f"{path}: {os.strerror(e.errno or 0)}") from e
        return True

    def after_fork(self) -> None:
        pass


class _Http:
    """A server that supports GET and PUT of files. A user and a password in the URL are sent with basic authentication.

    Redirections are not followed, and proxies are not used.
    """

    def __init__(self, parts: SplitResult, timeout_s: float) -> None:
        import http.client  # start-up time: 30 ms, and most have no such store

        self._host, self._port = parts.hostname or "", parts.port
        self._path = parts.path.rstrip("/") + "/"
        self._kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._trouble = (OSError, http.client.HTTPException, ValueError)  # ValueError: of a number that is none
        self._stale = (ConnectionError, http.client.BadStatusLine)  # of what an answer left that said less than it had
        self._timeout_s = timeout_s
        self._headers = {"Accept-Encoding": "identity", "User-Agent": "cujit"}
        if parts.username is not None:
            import base64  # start-up time, as above

            credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            self._headers["Authorization"] = f"Basic {base64.b64encode(credentials).decode()}"
        self._idle: list[http.client.HTTPConnection] = []
        self._guard = threading.Lock()
        weakref.finalize(self, _close, self._idle)

    def get(self, name: str) -> Generator[bytes, None, None]:
        connection, answer = self._ask("GET", name)
        try:
            if answer.status in _NOT_THERE:
                answer.read(_CHUNK_BYTES)
            else:
                self._require(answer, 200)
                while piece := answer.read1(_CHUNK_BYTES):
                    yield piece
                if answer.length:
                    raise RemoteError(f"the download is truncated: {answer.length} bytes of {name} did not arrive")
                answer.read()  # which marks it as read
        except self._trouble as e:
            raise _failure(e, name) from e
        finally:
            self._put_away(connection, answer)
        if answer.status in _NOT_THERE:
            raise FileNotFoundError(name)

    def put(self, name: str, data: bytes, *, replace: bool = False) -> bool:
        connection, answer = self._ask("PUT", name, data, {} if replace else {"If-None-Match": "*"})
        try:
            if answer.status != _PRECONDITION_FAILED:
                self._require(answer, 200, 201, 204)
            answer.read(_CHUNK_BYTES)
        except self._trouble as e:
            raise _failure(e, name) from e
        finally:
            self._put_away(connection, answer)
        return answer.status != _PRECONDITION_FAILED

    def after_fork(self) -> None:
        self._guard = threading.Lock()
        _close(self._idle)  # which the parent, who has them open still, does not notice

    def _ask(
        self, method: str, name: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """Ask on a connection that is open, and on a new one where the server has closed that meanwhile."""
        with self._guard:
            old = self._idle.pop() if self._idle else None
        for connection in (old, None):
            made = connection or self._kind(self._host, self._port, timeout=self._timeout_s)
            try:
                made.request(method, self._path + name, body, {**self._headers, **(headers or {})})
                return made, made.getresponse()
            except self._trouble as e:
                made.close()
                if connection is None or not isinstance(e, self._stale):
                    raise _failure(e, name) from e
        raise AssertionError  # the second is always new

    def _require(self, answer: http.client.HTTPResponse, *statuses: int) -> None:
        if answer.status not in statuses:
            raise RemoteError(
                f"the server answered {answer.status} {answer.reason}"[:200], retry_after_s=_retry_after(answer)
            )
        encoding = answer.headers.get("Content-Encoding", "identity")
        if encoding != "identity":
            raise RemoteError(f"the content is encoded as {spell(encoding)}, which cujit didn't request")

    def _put_away(self, connection: http.client.HTTPConnection, answer: http.client.HTTPResponse) -> None:
        """Keep a connection for the next question, if its answer was read to the end."""
        with self._guard:
            if answer.isclosed() and connection.sock is not None and len(self._idle) < _IDLE:
                self._idle.append(connection)
                return
        answer.close()  # which holds the socket too where the server wants it closed
        connection.close()


def _close(connections: list[http.client.HTTPConnection]) -> None:
    while connections:
        connections.pop().close()


def _failure(error: Exception, name: str) -> RemoteError:
    if isinstance(error, RemoteError):
        return error
    return RemoteError(f"{name}: {type(error).__name__}: {error}"[:300])


def _retry_after(answer: http.client.HTTPResponse) -> float | None:
    """Return how long a busy server asks clients to wait. A date counts as a minute.

    Source: RFC 9110, section 10.2.3.
    """
    header = answer.headers.get("Retry-After")
    if answer.status not in _BUSY or header is None:
        return None
    return min(float(header), _MOST_RETRY_S) if header.isascii() and header.isdecimal() else 60.0


class _ObjectStore:
    """Object storage through obstore, with credentials from the environment, as for the vendors' tools."""

    def __init__(self, url: str, timeout_s: float) -> None:
        try:
            # optional: of the extra "remote"
            import obstore
            import obstore.exceptions
            import obstore.store
        except ImportError as e:
            raise MissingError(
                f"obstore is not installed; cujit needs it for {urlsplit(url).scheme}://",
                help=f"run {install('remote')} (Python 3.11 or later); http:// and file:// don't need obstore",
            ) from e
        import datetime  # start-up time, as above

        wait = f"{max(1, round(timeout_s * 1e3))}ms"
        self._is_of_parent = False
        self._library: Any = obstore
        try:
            self._store: Any = obstore.store.from_url(
                url,
                client_options={"timeout": wait, "connect_timeout": wait, "allow_http": True},
                retry_config={"max_retries": 0, "retry_timeout": datetime.timedelta(seconds=timeout_s)},
            )
        except (obstore.exceptions.BaseError, ValueError, TypeError) as e:
            raise OptionError(f"{shown_url(url)} is not a shared cache: {_first_line(e)}") from e

    def get(self, name: str) -> Generator[bytes, None, None]:
        self._check_process()
        try:
            yield from map(bytes, self._library.get(self._store, name).stream(min_chunk_size=_CHUNK_BYTES))
        except FileNotFoundError as e:
            raise FileNotFoundError(name) from e
        except self._trouble as e:
            raise RemoteError(_first_line(e)) from e

    def put(self, name: str, data: bytes, *, replace: bool = False) -> bool:
        self._check_process()
        trouble = self._library.exceptions
        try:
            self._library.put(self._store, name, data, mode="overwrite" if replace else "create", use_multipart=False)
        except (trouble.AlreadyExistsError, trouble.PreconditionError):
            return False
        except self._trouble as e:
            raise RemoteError(_first_line(e)) from e
        return True

    def after_fork(self) -> None:
        self._is_of_parent = True

    def _check_process(self) -> None:
        if self._is_of_parent:  # its threads are not here, and it would wait for them
            raise RemoteError("obstore doesn't work in a process forked from a parent that already used it")

    @property
    def _trouble(self) -> tuple[type[Exception], ...]:
        return (self._library.exceptions.BaseError, OSError, RuntimeError, ValueError)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:300]
