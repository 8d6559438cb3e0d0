"""The requests to an explorer's server: its page, the results for a scene, saving the file, and the report."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from cujit.errors import CujitError, FileError, FormatError, spell
from cujit.explore.analyzer import before
from cujit.explore.editor import EditedFile
from cujit.explore.request_auth import App, Door, Guard, Strangers, TooLong
from cujit.explore.scene import LaunchLimits, Scene, fault_of
from cujit.explore.workers import WorkerPool
from cujit.report.page import page
from cujit.values import replace
from cujit.workers.answers import read_answer
from cujit.workers.package_files import data_path

_ASSETS = Path(data_path("explore", "assets"))


class ExplorerServer:
    """Server for one explored file, with the scene that was last requested and its last record."""

    def __init__(self, file: EditedFile, scene: Scene, limits: LaunchLimits, choices: Mapping[str, Any]) -> None:
        """Create the server for a file. ``choices`` are the choices that the page offers."""
        self.file = file
        self._scene = scene
        self._choices = choices
        self._workers = WorkerPool(file.path, limits)
        self._record = before(scene).record()
        self._last: bytes = b""

    def application(self, door: Door, strangers: Strangers) -> App:
        """Return the ASGI application, guarded by the door. A connection with a valid token is removed from
        ``strangers``.
        """
        routes = [
            Route("/", self._page, methods=["GET"]),
            Route("/look", self._look, methods=["POST"]),
            Route("/save", self._save, methods=["POST"]),
            Route("/report", self._report, methods=["POST"]),
        ]
        handlers: dict[Any, Any] = {CujitError: _refused, TooLong: _too_long}
        return Guard(Starlette(routes=routes, lifespan=self._running, exception_handlers=handlers), door, strangers)

    @contextlib.asynccontextmanager
    async def _running(self, _app: Starlette) -> AsyncIterator[None]:
        self._workers.begin()
        try:
            yield
        finally:
            await self._workers.close()

    async def close(self) -> None:
        """End all work."""
        await self._workers.close()

    # -- the page -------------------------------------------------------------------------------------------------

    async def _page(self, _request: Request) -> Response:
        nonce = secrets.token_urlsafe(16)
        record = self._latest()
        known = {
            **record.get("explorer", {}),
            **self._choices,
            "scene": self._scene.to_json(),
            "nonce": nonce,
            "digest": self.file.digest,
            "is_saved": self._scene.source == self.file.text,
        }
        text = page(
            {**record, "explorer": known},
            scripts=[
                (_ASSETS / name).read_text()
                for name in ("vendored/editor.js", "arguments.js", "compare.js", "layout.js", "explore.js")
            ],
            styles=[(_ASSETS / "explore.css").read_text()],
            policy={"connect-src": "'self'"},
            nonce=nonce,
        )
        return HTMLResponse(text)

    def _latest(self) -> dict[str, Any]:
        """Return the last record, which a worker wrote."""
        if self._last:
            self._record = read_answer(self._last)["record"]
            self._last = b""
        return self._record

    # -- what it asks for -----------------------------------------------------------------------------------------

    async def _look(self, request: Request) -> Response:
        fields = await _read_fields(request, "scene")
        is_aside = fields.pop("aside", False)
        if type(is_aside) is not bool:
            raise FormatError(f"aside is {spell(is_aside)}, expected a bool")
        scene = Scene.of({**fields, "name": self.file.name})
        if not is_aside:  # what the page has beside is not what it is reloaded with
            self._scene = scene

        async def lines() -> AsyncIterator[bytes]:
            async with contextlib.aclosing(self._workers.look(scene)) as answer:
                async for line in answer:
                    if line.startswith(b'{"stage":"done"') and not is_aside:
                        self._last = line
                    yield line

        return StreamingResponse(lines(), media_type="application/x-ndjson")

    async def _save(self, request: Request) -> Response:
        fields = await _read_fields(request, "save")
        source, known, is_forced = fields.get("source"), fields.get("digest"), fields.get("force", False)
        if not isinstance(source, str) or not isinstance(known, str) or type(is_forced) is not bool:
            raise FormatError("saving requires source and digest, both str")
        if fault := fault_of(source):
            raise FormatError(f"can't save: the source {fault}")
        digest = self.file.save(source, known, is_forced=is_forced)
        self._scene = replace(self._scene, source=source)
        return JSONResponse({"digest": digest})

    async def _report(self, _request: Request) -> Response:
        record = {name: value for name, value in self._latest().items() if name != "explorer"}
        return HTMLResponse(page(record))


async def _read_fields(request: Request, what: str) -> dict[str, Any]:
    """Return the JSON object in the body of a request.

    Raises:
        FormatError: the body is not a JSON object.
    """
    try:
        given = json.loads(await request.body())
    except (ValueError, RecursionError) as e:
        raise FormatError(f"{what}: invalid JSON: {e}") from None
    if not isinstance(given, dict):
        raise FormatError(f"{what}: expected a JSON object, not {spell(given)}")
    return given


async def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, CujitError)
    is_changed = isinstance(error, FileError) and error.errno is None
    return JSONResponse({"message": error.message, "help": error.help, "code": error.code}, 409 if is_changed else 400)


async def _too_long(_request: Request, _error: Exception) -> Response:
    return Response("too long\n", 413)
