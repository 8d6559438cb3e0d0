"""Access control of the explorer by host, origin, and token, and the headers of its responses.

Only the explorer's own page on this machine is accepted.
"""

from __future__ import annotations

import asyncio
import hmac
import html
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, TypeAlias
from urllib.parse import parse_qs

from cujit.values import NamedTuple, dataclass, group_by

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Message, Receive, Send], Awaitable[None]]

HOSTS = ("127.0.0.1", "localhost")
TOKEN_HEADER = "x-cujit-token"
MOST_BODY_BYTES = 8 << 20
"""More than a source of the longest kind takes, written as JSON."""

MOST_STRANGERS = 32
LONGEST_STRANGE_S = 10.0
_DROPPED_BYTES = 1 << 16
_OWN_SITES = ("same-origin", "none")
_VISIT = {"sec-fetch-mode": ["navigate"], "sec-fetch-dest": ["document"]}
"""How a browser opens a page in a tab. Source: W3C, "Fetch Metadata Request Headers"."""

_RETURN = """<!doctype html><meta charset=utf-8><title>cujit explore</title><p>{why}</p>
<script>const token = sessionStorage.getItem("cujit-token"); if (token) location.replace("/?token=" + token);</script>
"""
"""The answer to a tab without the token: if the tab had shown the page before, it still has the token."""

_HEADERS = {
    "content-security-policy": "frame-ancestors 'none'",
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""What goes with every answer: it is in no frame, is read by no other site, and is not kept.

Source: WHATWG, "HTML" and "Fetch"; W3C, "Content Security Policy Level 3".
"""


class Denial(NamedTuple):
    """Why a request is refused: a status of HTTP, and the reason for people."""

    status: int
    why: str
    is_tab: bool = False


@dataclass(frozen=True)
class Door:
    """The requirements for a request: the port in its Host header, and the token."""

    port: int
    token: str

    def refusal(self, method: str, path: str, query: str, headers: Mapping[str, list[str]]) -> Denial | None:
        """Return why a request is refused, or None if it is accepted. ``headers`` are by lowercase names.

        The Host header reveals another name for this machine (DNS rebinding). Origin and Sec-Fetch-Site reveal a page
        of another site. A request for the page has the token in its URL. The page's script sends the token in a header,
        which a form or an image of another site can't send.
        """
        is_page = method in ("GET", "HEAD") and path == "/"
        is_visit = is_page and all(headers.get(name) == values for name, values in _VISIT.items())
        if why := self._elsewhere(headers, is_visit):
            return Denial(403, why)
        brought = parse_qs(query).get("token", []) if is_page else headers.get(TOKEN_HEADER, [])
        if len(brought) != 1 or not hmac.compare_digest(brought[0].encode(), self.token.encode()):
            why = "the token is missing or wrong; open the address that `cujit explore` printed"
            return Denial(403, why, is_tab=is_visit and not query)
        lengths = headers.get("content-length", [])
        if any(not (n.isascii() and n.isdigit()) or int(n[:20]) > MOST_BODY_BYTES for n in lengths):
            return Denial(413, f"a request can have at most {MOST_BODY_BYTES:,} bytes")
        return None

    def _elsewhere(self, headers: Mapping[str, list[str]], is_visit: bool) -> str:
        """Return why a request is not from this explorer's own page, or an empty string if it is.

        A visit in a browser tab may start from any site, because the file that ``--open`` passes to the browser is
        another site.
        """
        hosts = headers.get("host", [])
        if len(hosts) != 1 or hosts[0].lower() not in {f"{host}:{self.port}" for host in HOSTS}:
            return "this explorer accepts only requests to 127.0.0.1, but the request names another host"
        if any(origin != f"http://{hosts[0].lower()}" for origin in headers.get("origin", [])):
            return "the request comes from a page of another origin"
        if not is_visit and any(site not in _OWN_SITES for site in headers.get("sec-fetch-site", [])):
            return "the request comes from a page of another site"
        return ""


class Strangers:
    """Connections that have not sent the token yet, with a limit on their number and their seconds.

    All connections are from this machine, so addresses don't distinguish the user from others. At the limit, the oldest
    connection is closed.
    """

    def __init__(self) -> None:
        self._ends: dict[object, tuple[Callable[[], None], asyncio.TimerHandle]] = {}

    def came(self, address: object, end: Callable[[], None]) -> None:
        """Note a connection, and how to end it."""
        self._ends[address] = end, asyncio.get_running_loop().call_later(LONGEST_STRANGE_S, self._end, address)
        if len(self._ends) > MOST_STRANGERS:
            self._end(next(iter(self._ends)))

    def left(self, address: object) -> None:
        """Forget a connection that has brought the token, or has ended."""
        if known := self._ends.pop(address, None):
            known[1].cancel()

    def _end(self, address: object) -> None:
        end, _ = self._ends[address]
        self.left(address)
        end()


class Guard:
    """ASGI middleware that checks each request with the door and limits the body that the application reads."""

    def __init__(self, app: App, door: Door, strangers: Strangers) -> None:
        self._app = app
        self._door = door
        self._strangers = strangers

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        pairs = ((name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"])
        headers = group_by(pairs)
        query = scope["query_string"].decode("latin-1")
        refused = self._door.refusal(scope["method"], scope["path"], query, headers)

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in message["headers"]}
                more = [(n.encode(), v.encode()) for n, v in _HEADERS.items() if n.encode() not in own]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        if refused is not None:
            await _answer(receive, sent, refused)
            return
        self._strangers.left(scope["client"])
        await self._app(scope, _bounded(receive), sent)


async def _answer(receive: Receive, send: Send, refused: Denial) -> None:
    """Send the response for a refused request.

    A limited part of the request body is read and discarded first. Otherwise, the client could lose the response.
    """
    text = _RETURN.format(why=html.escape(refused.why)) if refused.is_tab else f"{refused.why}\n"
    left, body = _DROPPED_BYTES, text.encode()
    while left > 0 and refused.status != 413:
        message = await receive()
        left -= len(message.get("body", b""))
        if not message.get("more_body"):
            break
    kind = b"text/html" if refused.is_tab else b"text/plain"
    headers = [(b"content-type", kind + b"; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class TooLong(Exception):
    """A request body exceeds the size limit."""


def _bounded(receive: Receive) -> Receive:
    """Return a receive function that limits the bytes read, for requests that declare no length."""
    left = MOST_BODY_BYTES

    async def received() -> Message:
        nonlocal left
        message = await receive()
        left -= len(message.get("body", b""))
        if left < 0:
            raise TooLong
        return message

    return received
