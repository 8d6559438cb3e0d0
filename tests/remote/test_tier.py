"""Behind the roots: what a shared cache has is taken and kept, and whatever it does instead costs next to nothing."""

from __future__ import annotations

import errno
import gzip
import os
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import cujit
from cache.samples import artifact_of, key_of
from cujit.artifact import Artifact
from cujit.cache.cache import Cache
from cujit.cache.provenance import Outcome
from cujit.cache.remote import tier
from cujit.cache.remote.signing import HEAD_BYTES
from cujit.cache.remote.tier import FORMAT_NAME, RemoteTier, _Attempt, object_name
from cujit.errors import CacheWarning, NotCompiledError, OptionError, RemoteError
from cujit.remote import push
from processes import printed
from raising import raises
from remote.serving import Farm, Handler, Server, Trouble, farm_in

CacheOf = Callable[..., Cache]
NAME = object_name(key_of(0).digest)
_STARTS = 300 if "CUJIT_FORGERIES" in os.environ else 8  # processes that start at once; many with `make store`


def nobody() -> Artifact:
    raise AssertionError("this should not have been made")


def get(cache: Cache, n: int = 0, make: Callable[[], Artifact] | None = None) -> Outcome:
    artifact, provenance = cache.get_or_make(key_of(n), make or (lambda: artifact_of(n)))
    assert artifact.data == artifact_of(n).data
    return provenance.outcome


def test_store_entry_is_fetched_once_and_kept_in_the_root(
    server: Server, farm: Farm, cache_of: CacheOf, tmp_path: Path
) -> None:
    server.files |= farm.files(0)
    cache = cache_of()
    artifact, provenance = cache.get_or_make(key_of(0), nobody)
    assert artifact.data == artifact_of(0).data
    assert (provenance.outcome, provenance.root, provenance.is_hit) == (Outcome.REMOTE, tmp_path / "root", True)
    assert get(cache, make=nobody) is Outcome.MEMORY
    assert get(Cache(tmp_path / "root"), make=nobody) is Outcome.DISK
    assert server.asked == [FORMAT_NAME, NAME]
    counted = cache.counters
    assert (counted.remote_hits, counted.hits, counted.misses, counted.makes) == (1, 2, 0, 0)
    assert counted.saved_ms == 100.0


def test_missing_entry_is_compiled_and_is_no_failure(server: Server, farm: Farm, cache_of: CacheOf) -> None:
    server.files |= farm.files()
    cache = cache_of()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert get(cache) is Outcome.MADE
    counted = cache.counters
    assert (counted.misses, counted.makes, counted.remote_failures, counted.remote_refused) == (1, 1, 0, 0)
    assert counted.written_bytes > 0
    assert set(server.files) == {FORMAT_NAME}


def test_missing_entry_is_not_requested_again_for_10_seconds(server: Server, farm: Farm, cache_of: CacheOf) -> None:
    server.files |= farm.files()
    cache = cache_of()
    clock = clock_of(cache)
    assert [cache.find(key_of(0), is_read=True) for _ in range(3)] == [None, None, None]
    assert server.asked.count(NAME) == 1
    server.files |= farm.files(0)
    clock.now += 9
    assert cache.find(key_of(0), is_read=True) is None
    clock.now += 2
    found = cache.find(key_of(0), is_read=True)
    assert found is not None
    assert found[1].outcome is Outcome.REMOTE
    assert cache.counters.misses == 0


def test_number_of_remembered_misses_is_bounded(
    server: Server, farm: Farm, cache_of: CacheOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tier, "_MOST_ABSENT", 2)
    server.files |= farm.files()
    cache = cache_of()
    clock_of(cache)
    for n in (0, 1, 0, 2, 1, 2):
        assert cache.find(key_of(n), is_read=True) is None
    names = [object_name(key_of(n).digest) for n in range(3)]
    assert server.asked == [FORMAT_NAME, *(names[n] for n in (0, 1, 2, 1))], "the third has the first two forgotten"


def test_incidental_look_up_sends_no_request(server: Server, farm: Farm, cache_of: CacheOf) -> None:
    server.files |= farm.files(0)
    assert cache_of().find(key_of(0)) is None
    assert server.asked == []


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def clock_of(cache: Cache) -> Clock:
    (tier,) = cache.tiers
    assert isinstance(tier, RemoteTier)
    tier._clock = clock = Clock()
    return clock


# What goes wrong on the way


def status(code: int, **headers: str) -> Trouble:
    return lambda handler, _: handler.answer(code, b"<html>", None, **headers)


def cut_off(handler: Handler, data: bytes) -> None:
    handler.answer(200, data[:-100], len(data))
    handler.close_connection = True


def too_short(handler: Handler, data: bytes) -> None:
    handler.answer(200, data, len(data) // 2)


def cut_off_in_chunks(handler: Handler, data: bytes) -> None:
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    handler.wfile.write(b"%x\r\n%s\r\n" % (len(data) - 100, data[:-100]))
    handler.close_connection = True


def no_http(handler: Handler, _: bytes) -> None:
    handler.wfile.write(b"\x00\xff nothing of HTTP\r\n\r\n")
    handler.close_connection = True


def hang_up(handler: Handler, _: bytes) -> None:
    handler.close_connection = True


def packed(handler: Handler, data: bytes) -> None:
    handler.answer(200, gzip.compress(data), Content_Encoding="gzip")


def endless_header(handler: Handler, _: bytes) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000)
    handler.close_connection = True


TROUBLES: dict[str, Trouble] = {
    "401": status(401),
    "403": status(403),
    "407": status(407),
    "500": status(500),
    "503": status(503),
    "a redirection": status(302, Location="http://127.0.0.1:9/"),
    "no content": lambda handler, _: handler.answer(204, b""),
    "truncated": cut_off,
    "truncated in chunks": cut_off_in_chunks,
    "a length that is less": too_short,
    "no HTTP": no_http,
    "hangs up": hang_up,
    "a header without end": endless_header,
    "packed on the way": packed,
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_error_is_a_failure_not_a_miss_and_work_continues(
    trouble: str, server: Server, farm: Farm, cache_of: CacheOf
) -> None:
    server.files |= farm.files(0, 1)
    server.trouble[NAME] = TROUBLES[trouble]
    cache = cache_of()
    with pytest.warns(CacheWarning, match="goes on without the shared cache http") as said:
        assert get(cache) is Outcome.MADE
    assert len(said) == 1
    counted = cache.counters
    assert (counted.remote_failures, counted.remote_refused, counted.remote_hits) == (1, 0, 0)
    assert get(cache, 1) is Outcome.REMOTE  # one failure is not the end


@pytest.mark.parametrize("trouble", [*TROUBLES, "404", "something else"])
def test_foreign_service_is_abandoned_immediately(trouble: str, server: Server, farm: Farm, cache_of: CacheOf) -> None:
    server.files |= farm.files(0, 1)
    others = {"404": status(404), "something else": lambda handler, _: handler.answer(200, b"<html>log in</html>")}
    server.trouble[FORMAT_NAME] = {**TROUBLES, **others}[trouble]
    cache = cache_of()
    with pytest.warns(CacheWarning, match="goes on without the shared cache") as said:
        assert [get(cache, n) for n in range(4)] == 4 * [Outcome.MADE]
    assert len(said) == 1
    assert cache.counters.remote_failures == 1
    assert set(server.asked) == {FORMAT_NAME}


def test_unreachable_store_costs_one_request(cache_of: CacheOf) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        cache = cache_of(url=f"http://127.0.0.1:{taken.getsockname()[1]}/x")
        with pytest.warns(CacheWarning, match="ConnectionRefused"):
            assert [get(cache, n) for n in range(5)] == 5 * [Outcome.MADE]
    assert cache.counters.remote_failures == 1


def test_tls_with_a_plain_server_is_a_failure(server: Server, cache_of: CacheOf) -> None:
    cache = cache_of(url=server.url.replace("http", "https"))
    with pytest.warns(CacheWarning, match="SSL"):
        assert get(cache) is Outcome.MADE
    assert cache.counters.remote_failures == 1


def wait(handler: Handler, _: bytes) -> None:
    handler.server.closing.wait(60)
    handler.close_connection = True


def dribble(handler: Handler, data: bytes) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    for at in range(len(data)):
        handler.wfile.write(data[at : at + 1])
        if handler.server.closing.wait(0.02):
            break
    handler.close_connection = True


@pytest.mark.parametrize("slow", [wait, dribble])
@pytest.mark.parametrize("where", [FORMAT_NAME, "*"])
def test_slow_store_is_waited_for_once(
    slow: Trouble, where: str, server: Server, farm: Farm, cache_of: CacheOf
) -> None:
    server.files |= farm.files(*range(6))
    server.trouble[where] = slow
    cache = cache_of(wait_s=0.2)
    with pytest.warns(CacheWarning, match="didn't answer within"):
        assert [get(cache, n) for n in range(6)] == 6 * [Outcome.MADE]
    (tier,) = cache.tiers
    assert isinstance(tier, RemoteTier)
    assert cache.counters.remote_failures == 1
    assert server.asked.count(NAME) <= 1


def test_stalled_signed_record_is_abandoned(server: Server, farm: Farm, cache_of: CacheOf) -> None:
    server.files |= farm.files(*range(4))

    def head_first(handler: Handler, data: bytes) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data[: HEAD_BYTES + 10])
        handler.server.closing.wait(60)
        handler.close_connection = True

    server.trouble["*"] = head_first
    cache = cache_of(wait_s=0.2)
    with pytest.warns(CacheWarning, match="didn't answer within"):
        assert [get(cache, n) for n in range(4)] == 4 * [Outcome.MADE]
    assert cache.counters.remote_failures == 1


def test_unresolved_host_name_is_abandoned(cache_of: CacheOf, monkeypatch: pytest.MonkeyPatch) -> None:
    never = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: never.wait(30))
    cache = cache_of(url="https://cache.example/kernels", wait_s=0.1)
    try:
        with pytest.warns(CacheWarning, match="didn't answer within"):
            assert [get(cache, n) for n in range(3)] == 3 * [Outcome.MADE]
        assert cache.counters.remote_failures == 1
    finally:
        never.set()


def test_imports_count_as_waiting_up_to_a_third(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(tier, "time", SimpleNamespace(monotonic=clock))

    def importing(seconds: float) -> None:
        clock.now += seconds

    attempt = _Attempt(0.15)
    attempt.ready(lambda: importing(0.04))
    assert attempt._left_s() == pytest.approx(0.11)
    attempt.ready(lambda: importing(0.06))
    assert attempt._left_s() == pytest.approx(0.10)
    clock.now += 0.09
    assert attempt._left_s() == pytest.approx(0.01)
    attempt._go_on(1 << 20)  # of a record that is proved to be signed
    assert attempt._left_s() == pytest.approx(0.01 + 0.125)


@pytest.mark.parametrize("who", ["nobody", "something else"])
def test_invalid_store_imports_no_verification(who: str, server: Server, farm: Farm, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        url = server.url if who == "something else" else f"http://127.0.0.1:{taken.getsockname()[1]}/x"
        said = printed(
            """
            import sys, warnings
            from pathlib import Path
            from cache.samples import artifact_of, key_of
            from cujit.cache.cache import Cache
            warnings.simplefilter("ignore")
            root, url, trust = sys.argv[1:]
            cache = Cache(Path(root), remote=url, trust=Path(trust), remote_wait_s=10)
            print([cache.get_or_make(key_of(n), lambda: artifact_of(n))[1].outcome.value for n in range(3)])
            print(cache.counters.remote_failures, "nacl" in sys.modules)
            """,
            tmp_path / "root",
            url,
            farm.trust,
        )
    assert said.split("\n")[1] == "1 False"
    assert server.asked == [FORMAT_NAME] * (who == "something else")


# The breaker


def probe_is_done(cache: Cache) -> bool:
    for thread in threading.enumerate():
        if thread.name == "cujit-remote":
            thread.join(30)
    (tier,) = cache.tiers
    assert isinstance(tier, RemoteTier)
    return not tier._is_probing


@pytest.fixture
def failing(server: Server, farm: Farm, cache_of: CacheOf) -> Iterator[tuple[Cache, Clock]]:
    """A cache whose store has failed three times, and its clock."""
    server.files |= farm.files(*range(1000))
    server.trouble["*"] = status(500)
    cache = cache_of()
    clock = clock_of(cache)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CacheWarning)
        assert [get(cache, n) for n in range(5)] == 5 * [Outcome.MADE]
        assert cache.counters.remote_failures == 3
        yield cache, clock


def test_three_failures_pause_the_store_for_30_seconds(failing: tuple[Cache, Clock], server: Server) -> None:
    cache, clock = failing
    clock.now += 29
    asked = len(server.asked)
    assert get(cache, 10) is Outcome.MADE
    assert len(server.asked) == asked
    server.trouble.clear()
    clock.now += 2
    assert get(cache, 11) is Outcome.MADE  # the trial is for the next
    assert probe_is_done(cache)
    assert get(cache, 12) is Outcome.REMOTE
    assert cache.counters.remote_failures == 3


def test_repeated_failures_double_the_pause_up_to_10_minutes(failing: tuple[Cache, Clock], server: Server) -> None:
    cache, clock = failing
    n = 10
    for off_s in (30, 60, 120, 240, 480, 600, 600):
        clock.now += off_s - 1
        asked = len(server.asked)
        assert get(cache, n) is Outcome.MADE
        assert len(server.asked) == asked
        clock.now += 2
        assert get(cache, n + 1) is Outcome.MADE
        assert probe_is_done(cache)
        assert len(server.asked) == asked + 1
        n += 2
    assert cache.counters.remote_failures == 3  # nobody waited for the trials


def test_success_resets_the_failure_count(server: Server, farm: Farm, cache_of: CacheOf) -> None:
    server.files |= farm.files(*range(20))
    for n in (0, 1, 3, 4, 6, 7):
        server.trouble[object_name(key_of(n).digest)] = status(500)
    cache = cache_of()
    with pytest.warns(CacheWarning):
        assert [get(cache, n).value[:2] for n in range(9)] == ["ma", "ma", "re", "ma", "ma", "re", "ma", "ma", "re"]
    assert cache.counters.remote_failures == 6


@pytest.mark.parametrize(
    ("code", "said", "off_s"), [(429, "7", 7), (503, "120", 120), (503, "99999", 600), (429, "x", 60)]
)
def test_requested_pause_of_a_store_is_respected(
    code: int, said: str, off_s: int, server: Server, farm: Farm, cache_of: CacheOf
) -> None:
    server.files |= farm.files(*range(9))
    server.trouble[NAME] = status(code, Retry_After=said)
    cache = cache_of()
    clock = clock_of(cache)
    with pytest.warns(CacheWarning, match=str(code)):
        assert get(cache) is Outcome.MADE
    clock.now += off_s - 1
    assert get(cache, 1) is Outcome.MADE
    assert server.asked == [FORMAT_NAME, NAME]
    clock.now += 2
    assert get(cache, 2) is Outcome.MADE
    assert probe_is_done(cache)
    assert get(cache, 3) is Outcome.REMOTE


def test_slow_trial_does_not_reenable_the_store(failing: tuple[Cache, Clock], server: Server) -> None:
    cache, clock = failing
    (tier,) = cache.tiers
    assert isinstance(tier, RemoteTier)
    tier._wait_s = 0.0  # whatever takes any time is slow
    server.trouble.clear()
    clock.now += 31
    assert get(cache, 10) is Outcome.MADE
    assert probe_is_done(cache)
    assert get(cache, 11) is Outcome.MADE


# What stays as it is


def test_other_work_is_never_requested(server: Server, farm: Farm, cache_of: CacheOf) -> None:
    server.files |= farm.files()
    for work in ("module", "cpu code", "cuda.core"):
        key = key_of(0, work=work)
        server.files[object_name(key.digest)] = farm.content(0, work=work)
        assert cache_of().get_or_make(key, lambda: artifact_of(0))[1].outcome is Outcome.MADE
    assert server.asked == []


def test_unwritable_root_keeps_fetched_entries_in_memory(
    server: Server, farm: Farm, cache_of: CacheOf, tmp_path: Path
) -> None:
    server.files |= farm.files(0, 1)
    (tmp_path / "file").write_text("")
    cache = cache_of("file/root")
    with pytest.warns(CacheWarning):
        assert get(cache, make=nobody) is Outcome.REMOTE
    assert get(cache, make=nobody) is Outcome.MEMORY
    without = Cache(None, remote=server.url, trust=farm.trust, remote_wait_s=10)
    artifact, provenance = without.get_or_make(key_of(1), nobody)
    assert (provenance.outcome, provenance.root, bool(provenance.reason)) == (Outcome.REMOTE, None, True)
    assert artifact.data == artifact_of(1).data


def test_full_root_keeps_fetched_entries_in_memory(server: Server, farm: Farm, tmp_path: Path) -> None:
    server.files |= farm.files(0)
    cache = Cache(tmp_path / "root", cap_bytes=100, remote=server.url, trust=farm.trust, remote_wait_s=10)
    _, provenance = cache.get_or_make(key_of(0), nobody)
    assert (provenance.outcome, provenance.root) == (Outcome.REMOTE, None)
    assert "exceed the cap" in provenance.reason


def test_concurrent_processes_request_once(server: Server, farm: Farm, tmp_path: Path) -> None:
    server.files |= farm.files(0)
    seen = threading.Semaphore(0)

    def slowly(handler: Handler, data: bytes) -> None:
        seen.release()
        threading.Event().wait(0.5)  # long enough for all the others to come
        handler.answer(200, data)

    server.trouble[NAME] = slowly
    said = printed(
        """
        import os, sys
        from pathlib import Path
        from cache.samples import artifact_of, key_of
        from cujit.cache.cache import Cache
        root, url, trust, starts = sys.argv[1:]
        ends = []
        for _ in range(int(starts)):
            r, w = os.pipe()
            if os.fork() == 0:
                cache = Cache(Path(root), remote=url, trust=Path(trust), remote_wait_s=10)
                got = cache.get_or_make(key_of(0), lambda: artifact_of(0))[1].outcome.value
                os.write(w, got.encode()); os._exit(0)
            os.close(w); ends.append(r)
        print(*sorted(os.read(r, 100).decode() for r in ends))
        """,
        tmp_path / "root",
        server.url,
        farm.trust,
        _STARTS,
    )
    assert server.asked.count(NAME) == 1, said
    assert len(said.split()) == _STARTS
    assert set(said.split()) <= {"remote", "waited", "disk"}
    assert said.split().count("remote") == 1


def test_concurrent_threads_request_once(server: Server, farm: Farm, cache_of: CacheOf) -> None:
    server.files |= farm.files(0)

    def slowly(handler: Handler, data: bytes) -> None:
        threading.Event().wait(0.2)
        handler.answer(200, data)

    server.trouble[NAME] = slowly
    cache, got = cache_of(), []
    threads = [threading.Thread(target=lambda: got.append(get(cache, make=nobody))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.asked.count(NAME) == 1
    assert got.count(Outcome.REMOTE) == 1


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_child_uses_its_own_connections(server: Server, farm: Farm, cache_of: CacheOf) -> None:
    server.files |= farm.files(*range(4))
    ports: list[int] = []

    def noting(handler: Handler, data: bytes) -> None:
        ports.append(handler.client_address[1])
        handler.answer(200, data)

    server.trouble["*"] = noting
    cache = cache_of()
    assert get(cache, 0) is Outcome.REMOTE
    reader, writer = os.pipe()
    if os.fork() == 0:
        status = 1
        try:
            os.write(writer, " ".join(get(cache, n).value for n in (1, 2)).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    assert os.read(reader, 100) == b"remote remote"
    assert os.wait()[1] == 0
    assert get(cache, 3) is Outcome.REMOTE
    os.close(reader)
    assert ports[0] == ports[3]
    assert ports[0] not in ports[1:3]


def test_store_is_used_if_compiling_is_forbidden(server: Server, farm: Farm, tmp_path: Path) -> None:
    source = 'extern "C" __global__ void asked(float *x) { *x = 1; }'
    ahead = Cache(tmp_path / "ahead")
    made = cujit.compile(source, arch="sm_90", cache=ahead)
    push(server.url, ahead.stores, farm.signer)
    never = Cache(tmp_path / "root", compile="never", remote=server.url, trust=farm.trust, remote_wait_s=10)
    found = cujit.compile(source, arch="sm_90", cache=never)
    assert found.data == made.data
    assert found.provenance is not None
    assert found.provenance.outcome is Outcome.REMOTE
    with raises(NotCompiledError, "not-compiled", "http://127"):
        cujit.compile(f"{source} // another", arch="sm_90", cache=never)


# How it is asked for


def test_shared_cache_requires_a_trusted_key(tmp_path: Path) -> None:
    with raises(OptionError, "trust-missing", "docs/remote.md"):
        Cache(tmp_path, remote="https://cache.example/x")


@pytest.mark.parametrize(
    "url",
    ["", "ftp://host/x", "http://", "/a/path", "file://host/x", "http://[x", "http://h:x/", "s3://", "http://h/ x", 7],
)
def test_invalid_store_url_is_refused(url: str, tmp_path: Path) -> None:
    with raises(OptionError, "option", "https://host/path"):
        Cache(tmp_path, remote=url, trust=tmp_path / "t")


@pytest.mark.parametrize("wait_s", [-1, float("nan"), 1e9, "1", True, None])
def test_invalid_wait_is_refused(wait_s: float, tmp_path: Path) -> None:
    with raises(OptionError, "option", "remote_wait_s"):
        Cache(tmp_path, remote="https://host/x", trust=tmp_path / "t", remote_wait_s=wait_s)


def test_missing_or_untrusted_key_file_turns_the_store_off(
    server: Server, farm: Farm, cache_of: CacheOf, tmp_path: Path
) -> None:
    server.files |= farm.files(0)
    open_to_all = tmp_path / "all.json"
    open_to_all.write_text(farm.trust.read_text())
    open_to_all.chmod(0o666)
    for trust, why in ((tmp_path / "none.json", "No such file"), (open_to_all, "writable by everyone")):
        cache = cache_of(f"root of {trust.name}", trust=trust)
        with pytest.warns(CacheWarning, match=why):
            assert get(cache) is Outcome.MADE
        assert cache.counters.remote_failures == 1
    assert server.asked == []


@pytest.mark.usefixtures("impatient")
def test_password_of_a_url_is_sent_and_never_shown(server: Server, farm: Farm, cache_of: CacheOf) -> None:
    server.password = "Basic dXNlcjpzM2M6cmV0"
    url = server.url.replace("http://", "http://user:s3c%3Aret@")
    ahead = Cache(cache_of().stores[0].root.parent / "ahead")
    get(ahead)
    assert push(url, ahead.stores, farm.signer).new == 1
    server.trouble["*"] = status(500)
    cache = cache_of(url=url)
    with pytest.warns(CacheWarning) as said:
        get(cache)
    assert "s3c" not in str(said[0].message)
    assert [tier.url for tier in cache.tiers] == [server.url]
    with raises(RemoteError, "remote", "401"):
        push(server.url, Cache(cache_of().stores[0].root.parent / "ahead").stores, farm.signer, replace=True)


@pytest.mark.parametrize("strange", ["directory", "loop", "pipe"])
def test_nonfile_in_a_directory_is_a_failure(strange: str, farm: Farm, cache_of: CacheOf, tmp_path: Path) -> None:
    for name, data in farm.files(1).items():
        (tmp_path / "store" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "store" / name).write_bytes(data)
    path = tmp_path / "store" / NAME
    path.parent.mkdir()
    if strange == "loop":
        path.symlink_to(path)
    else:
        (os.mkdir if strange == "directory" else os.mkfifo)(path)
    cache = cache_of(url=f"file://{tmp_path}/store")
    with pytest.warns(CacheWarning, match="goes on without"):
        assert get(cache) is Outcome.MADE
    assert cache.counters.remote_failures == 1
    assert get(cache, 1) is Outcome.REMOTE


def test_file_lost_on_another_machine_is_a_failure(
    farm: Farm, cache_of: CacheOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, data in farm.files(0, 1).items():
        (tmp_path / "store" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "store" / name).write_bytes(data)
    read, lost = os.read, (tmp_path / "store" / NAME).stat().st_ino

    def stale(fd: int, size: int) -> bytes:
        if os.fstat(fd).st_ino == lost:
            raise OSError(errno.ESTALE, "Stale file handle")
        return read(fd, size)

    monkeypatch.setattr(os, "read", stale)
    cache = cache_of(url=f"file://{tmp_path}/store")
    with pytest.warns(CacheWarning, match="Stale file handle"):
        assert get(cache) is Outcome.MADE
    assert cache.counters.remote_failures == 1
    assert get(cache, 1) is Outcome.REMOTE


@pytest.mark.parametrize(("url", "package"), [("", "nacl.bindings"), ("s3://bucket/x", "obstore")])
def test_missing_package_is_reported_and_work_continues(
    url: str, package: str, server: Server, farm: Farm, cache_of: CacheOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files |= farm.files(0)
    monkeypatch.setitem(sys.modules, package, None)
    cache = cache_of(url=url)
    with pytest.warns(CacheWarning, match=r"pip install 'cujit\[remote\]'"):
        assert [get(cache, n) for n in range(3)] == 3 * [Outcome.MADE]
    assert cache.counters.remote_failures == 1


def test_keys_are_read_again_after_the_file_changes(
    server: Server, farm: Farm, cache_of: CacheOf, tmp_path: Path
) -> None:
    other = farm_in(tmp_path, "other")
    server.files |= other.files(0, 1)
    cache = cache_of()
    with pytest.warns(CacheWarning, match="signed the image, but cujit trusts"):
        assert get(cache, 0) is Outcome.MADE
    farm.trust.write_text(other.trust.read_text())
    assert get(cache, 1) is Outcome.REMOTE
