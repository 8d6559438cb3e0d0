"""Who may ask an explorer: its own page on this machine; everybody else is refused, and nothing is done for them."""

from __future__ import annotations

import contextlib
import hmac
import json
import socket
import time
from collections.abc import Callable

import pytest

from cujit.explore import request_auth
from cujit.explore.request_auth import MOST_BODY_BYTES, Door
from explore.conftest import CODE, Asking

OTHER = "attacker.example"


def page(token: str) -> str:
    return f"/?token={token}"


def test_page_requires_the_token(asking: Asking) -> None:
    answer = asking.ask("GET", page(asking.token))
    text = answer.text
    assert answer.status == 200
    assert "__shared__ float s[32][32]" in text
    assert asking.token not in text


@pytest.mark.parametrize("path", ["/", "/?token=", "/?token=x", "/look", "/save", "/report", "/nothing"])
def test_request_without_the_token_gets_no_answer(asking: Asking, path: str) -> None:
    for method in ("GET", "POST", "PUT", "OPTIONS"):
        answer = asking.ask(method, path, "{}")
        assert answer.status == 403
        assert "token is missing or wrong" in answer.text


def test_almost_right_token_is_refused(asking: Asking) -> None:
    for token in (asking.token[:-1], asking.token + "A", asking.token.swapcase(), asking.token[:-1] + "!"):
        assert asking.ask("GET", page(token)).status == 403
        assert asking.ask("POST", "/report", "{}", {"X-Cujit-Token": token}).status == 403
    assert asking.ask("GET", f"{page(asking.token)}&token={asking.token}").status == 403


def test_token_in_the_address_only_shows_the_page(asking: Asking) -> None:
    """A form of another site can send that, if the address leaks."""
    assert asking.ask("POST", f"/save?token={asking.token}", json.dumps({"source": "", "digest": ""})).status == 403
    assert asking.ask("GET", f"/report?token={asking.token}").status == 403


@pytest.mark.parametrize(
    "host", [OTHER, f"{OTHER}:PORT", "127.0.0.1", "127.0.0.1:1", "localhost.attacker.example:PORT", "0.0.0.0:PORT", ""]
)
def test_rebound_host_name_is_refused(asking: Asking, host: str) -> None:
    """DNS rebinding: the browser takes attacker.example for 127.0.0.1, and says so in Host."""
    own = {"X-Cujit-Token": asking.token, "Host": host.replace("PORT", str(asking.port))}
    assert asking.ask("POST", "/report", "{}", own).status == 403
    assert asking.ask("GET", page(asking.token), headers={"Host": own["Host"]}).status == 403


def test_this_machine_has_two_names(asking: Asking) -> None:
    for host in ("127.0.0.1", "localhost", "LocalHost"):
        assert asking.ask("GET", page(asking.token), headers={"Host": f"{host}:{asking.port}"}).status == 200


@pytest.mark.parametrize(
    "origin", [f"http://{OTHER}", "null", "https://127.0.0.1:PORT", "http://127.0.0.1:1", "http://localhost:PORT", ""]
)
def test_page_of_another_origin_is_refused(asking: Asking, origin: str) -> None:
    said = {"X-Cujit-Token": asking.token, "Origin": origin.replace("PORT", str(asking.port))}
    answer = asking.ask("POST", "/save", json.dumps({"source": "", "digest": "", "force": True}), said)
    assert answer.status == 403
    assert "another origin" in answer.text


@pytest.mark.parametrize("site", ["cross-site", "same-site", "evil"])
def test_cross_site_request_is_refused(asking: Asking, site: str) -> None:
    said = {"X-Cujit-Token": asking.token, "Sec-Fetch-Site": site}
    assert asking.ask("POST", "/report", "{}", said).status == 403
    assert asking.ask("GET", page(asking.token), headers={"Sec-Fetch-Site": site}).status == 403


def test_tab_from_a_file_needs_the_token_too(asking: Asking) -> None:
    visit = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert asking.ask("GET", page(asking.token), headers=visit).status == 200
    assert asking.ask("GET", page(asking.token), headers={**visit, "Sec-Fetch-Dest": "iframe"}).status == 403
    assert asking.ask("GET", page("x"), headers=visit).status == 403
    assert asking.ask("POST", "/report", "{}", {**visit, "X-Cujit-Token": asking.token}).status == 403
    returned = asking.ask("GET", "/", headers=visit)
    assert (returned.status, asking.token in returned.text) == (403, False)
    assert "sessionStorage" in returned.text


def test_answers_cannot_be_read_or_framed_by_others(asking: Asking) -> None:
    for answer in (asking.ask("GET", page(asking.token)), asking.ask("GET", "/"), asking.own("/report", {})):
        headers = answer.headers
        assert not [name for name in headers if name.startswith("access-control-")]
        assert headers["content-security-policy"] == "frame-ancestors 'none'"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["cache-control"] == "no-store"
        assert headers["referrer-policy"] == "no-referrer"
        assert "server" not in headers


def test_request_is_bounded(asking: Asking) -> None:
    own = {"X-Cujit-Token": asking.token}
    assert asking.ask("POST", "/look", b"", {**own, "Content-Length": str(MOST_BODY_BYTES + 1)}).status == 413
    assert asking.own("/look", {"source": "x" * ((1 << 20) + 1)}).status == 400
    with socket.create_connection(("127.0.0.1", asking.port), timeout=60) as made:
        head = f"POST /look HTTP/1.1\r\nHost: 127.0.0.1:{asking.port}\r\nX-Cujit-Token: {asking.token}\r\n"
        made.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        chunk = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
        try:
            for _ in range(MOST_BODY_BYTES // (1 << 20) + 1):
                made.sendall(chunk)
            said = made.recv(100)
        except ConnectionError:  # it was told before all was sent
            said = b" 413 "
    assert b" 413 " in said


def test_connections_without_the_token_block_nobody_and_end(
    serve: Callable[[], Asking], monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = serve()
    begun = f"POST /look HTTP/1.1\r\nHost: 127.0.0.1:{asking.port}\r\nContent-Length: 9\r\n"
    with contextlib.ExitStack() as held:
        for sent in ["", begun, f"{begun}\r\n{{"] * 30:  # silent, without the end of the head, without that of the body
            made = held.enter_context(socket.create_connection(("127.0.0.1", asking.port), timeout=60))
            made.sendall(sent.encode())
        assert asking.ask("GET", page(asking.token)).status == 200
        assert asking.own("/look", []).status == 400
    monkeypatch.setattr(request_auth, "LONGEST_STRANGE_S", 0.2)
    with contextlib.ExitStack() as held:
        made, mine = (
            held.enter_context(socket.create_connection(("127.0.0.1", asking.port), timeout=60)) for _ in range(2)
        )
        made.sendall(f"{begun}\r\n{{".encode())
        mine.sendall(f"{begun}X-Cujit-Token: {asking.token}\r\n\r\n".encode())
        with contextlib.suppress(ConnectionError):
            assert made.recv(100) == b""
        time.sleep(0.3)
        mine.sendall(b" " * 9)  # the user may take all the time
        assert b" 400 " in mine.recv(100)


@pytest.mark.parametrize(
    "body",
    ["", "[]", "1", "{", "[" * 100_000, '{"source": 1}', "{}", '{"source": "", "path": "/etc/passwd"}',
     '{"source": "", "grid": "' + "9" * 20000 + '"}', '{"source": "", "cooperative": "yes"}'],
)  # fmt: skip
def test_invalid_scene_is_refused(asking: Asking, body: str) -> None:
    answer = asking.ask("POST", "/look", body, {"X-Cujit-Token": asking.token})
    assert answer.status == 400
    assert set(answer.json) == {"message", "help", "code"}


def test_server_listens_on_this_machine_only(asking: Asking) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing; tells an own address, where there is a way out
        own = probe.getsockname()[0]
    for address in {own, "127.0.0.2"} - {"127.0.0.1"}:
        with pytest.raises(OSError, match=r"refused|timed out|unreachable"):
            socket.create_connection((address, asking.port), timeout=2).close()


def test_tokens_are_compared_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a time that does not tell how much of one was right."""
    seen: list[tuple[bytes, bytes]] = []

    def compared(a: bytes, b: bytes) -> bool:
        seen.append((a, b))
        return a == b

    monkeypatch.setattr(hmac, "compare_digest", compared)
    headers = {"host": ["127.0.0.1:5"]}
    assert Door(5, "secret").refusal("GET", "/", "token=wrong", headers) is not None
    assert Door(5, "secret").refusal("GET", "/", "token=secret", headers) is None
    assert seen == [(b"wrong", b"secret"), (b"secret", b"secret")]


def test_no_work_was_done_for_refused_requests(asking: Asking) -> None:
    text = asking.ask("GET", page(asking.token)).text
    assert json.dumps(CODE)[1:60] in text
