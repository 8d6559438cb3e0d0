"""Filling a shared cache, and taking out of it ahead of time: in a directory, by HTTP, in object storage."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from cache.samples import artifact_of, key_of
from cujit.cache import admin
from cujit.cache.cache import Cache
from cujit.cache.pack import write_pack
from cujit.cache.provenance import Outcome
from cujit.cache.record import decode, encode
from cujit.cache.remote.signing import HEAD_BYTES
from cujit.cache.remote.tier import FORMAT, FORMAT_NAME, object_name
from cujit.errors import CacheRefusedError, CacheWarning, FormatError, MissingError, OptionError, RemoteError
from cujit.remote import Pulled, Pushed, RemoteStore, pull, push
from raising import raises
from remote.serving import Farm, Handler, Server, farm_in

CacheOf = Callable[..., Cache]


def filled(root: Path, *numbers: int, work: str = "nvrtc") -> Cache:
    cache = Cache(root)
    for n in numbers:
        cache.get_or_make(key_of(n, work=work), lambda n=n: artifact_of(n), recipe=lambda: b"secret source")  # type: ignore[misc]
    return cache


def test_pushed_entry_is_found_on_another_machine(url: str, farm: Farm, cache_of: CacheOf, tmp_path: Path) -> None:
    pushed = push(url, filled(tmp_path / "farm", 0, 1, 2).stores, farm.signer)
    assert (pushed.new, pushed.kept, pushed.skipped) == (3, 0, 0)
    assert push(url, filled(tmp_path / "farm", 2, 3).stores, farm.signer)[:2] == (1, 3)
    here = cache_of(url=url)
    for n in range(4):
        artifact, provenance = here.get_or_make(key_of(n), lambda: pytest.fail("it was made"))
        assert artifact.data == artifact_of(n).data
        assert provenance.outcome is Outcome.REMOTE
    assert here.get_or_make(key_of(4), lambda: artifact_of(4))[1].outcome is Outcome.MADE
    assert here.counters.remote_failures == 0


def test_pulled_entry_is_found_without_the_store(url: str, farm: Farm, tmp_path: Path) -> None:
    push(url, filled(tmp_path / "farm", 0, 1).stores, farm.signer)
    here = filled(tmp_path / "here", 1)
    digests = [key_of(n).digest for n in range(3)]
    pulled = pull(url, digests, here, farm.trust)
    assert (pulled.new, pulled.had, pulled.missing, pulled.refused) == (1, 1, (digests[2],), ())
    assert pulled.new_bytes > 1000
    found = Cache(tmp_path / "here").find(key_of(0))
    assert found is not None
    assert found[0].data == artifact_of(0).data
    assert pull(url, digests[:2], here, farm.trust) == Pulled(0, 2, 0, (), ())


def test_missing_store_is_reported(url: str, farm: Farm, tmp_path: Path, impatient: None) -> None:  # noqa: ARG001
    with raises(RemoteError, "remote", "FORMAT"):
        pull(url, [key_of(0).digest], Cache(tmp_path / "here"), farm.trust)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="obstore needs Python 3.11")
@pytest.mark.usefixtures("impatient")
def test_unavailable_object_storage_costs_one_request(
    farm: Farm, cache_of: CacheOf, object_storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.setenv(name, "us-east-1")
    for endpoint in ("http://127.0.0.1:9", object_storage):  # where there is no such bucket
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        cache = cache_of(url="s3://no-such-bucket/x")
        with pytest.warns(CacheWarning, match="goes on without the shared cache s3:"):
            assert cache.get_or_make(key_of(0), lambda: artifact_of(0))[1].outcome is Outcome.MADE
        cache.get_or_make(key_of(1), lambda: artifact_of(1))
        assert cache.counters.remote_failures == 1
        cache.discard(key_of(0))
        with pytest.raises(RemoteError):
            RemoteStore("s3://no-such-bucket/x", farm.signer)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_child_uses_the_store_or_continues_without(
    url: str, farm: Farm, cache_of: CacheOf, tmp_path: Path
) -> None:
    push(url, filled(tmp_path / "farm", 0, 1, 2).stores, farm.signer)
    cache = cache_of(url=url)
    cache.get_or_make(key_of(0), lambda: artifact_of(0))
    reader, writer = os.pipe()
    if os.fork() == 0:
        status = 1
        try:
            warnings.simplefilter("ignore")
            began, outcome = time.monotonic(), cache.get_or_make(key_of(1), lambda: artifact_of(1))[1].outcome
            os.write(writer, f"{outcome.value} {time.monotonic() - began < 9}".encode())  # of the ten that it may wait
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    assert os.read(reader, 100) == (b"made True" if url.startswith("s3:") else b"remote True")
    os.close(reader)
    assert os.wait()[1] == 0
    assert cache.get_or_make(key_of(2), lambda: artifact_of(2))[1].outcome is Outcome.REMOTE


@pytest.mark.skipif(sys.version_info < (3, 11), reason="obstore needs Python 3.11")
def test_missing_object_storage_setting_is_named(farm: Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with raises(OptionError, "option", "az://c/x", "Account must be specified"):
        RemoteStore("az://c/x", farm.signer)


def test_concurrent_writers_leave_one_good_entry(url: str, farm: Farm, tmp_path: Path) -> None:
    store = RemoteStore(url, farm.signer)
    record = encode(key_of(0), artifact_of(0), make_ms=1.0, made_s=1)
    with ThreadPoolExecutor(8) as pool:
        written = list(pool.map(lambda _: store.put(record), range(16)))
    assert sum(size > 0 for size in written) == 1
    assert pull(url, [key_of(0).digest], Cache(tmp_path / "here"), farm.trust).new == 1


def test_after_a_new_key_everything_is_signed_once_more(url: str, farm: Farm, tmp_path: Path) -> None:
    roots = filled(tmp_path / "farm", 0, 1).stores
    push(url, roots, farm.signer)
    new = farm_in(tmp_path, "new")
    assert push(url, roots, new.signer)[:2] == (0, 2)
    digests = [key_of(n).digest for n in range(2)]
    pulled = pull(url, digests, Cache(tmp_path / "here"), new.trust)
    assert pulled[:4] == (0, 0, 0, ())
    assert [digest for digest, _ in pulled.refused] == sorted(digests)
    assert all("signed the image, but cujit trusts" in why for _, why in pulled.refused)
    assert push(url, roots, new.signer, replace=True)[:2] == (2, 0)
    assert pull(url, digests, Cache(tmp_path / "here"), new.trust).new == 2


def test_key_rotation_of_the_page_causes_no_compile(url: str, farm: Farm, cache_of: CacheOf, tmp_path: Path) -> None:
    roots = filled(tmp_path / "farm", 0, 1).stores
    push(url, roots, farm.signer)
    old, new = json.loads(farm.trust.read_text())["keys"][0], farm_in(tmp_path, "new")

    def believe(*rows: dict[str, object]) -> None:
        farm.trust.write_text(json.dumps({"keys": rows}))

    def outcomes(root: str) -> list[Outcome]:
        cache = cache_of(root, url=url)
        return [cache.get_or_make(key_of(n), lambda: pytest.fail("it was made"))[1].outcome for n in range(2)]

    def signers(root: str) -> set[str]:
        return {path.name for path in (tmp_path / root / "signers").iterdir()}

    assert outcomes("one") == 2 * [Outcome.REMOTE]
    believe(old, json.loads(new.trust.read_text())["keys"][0])
    assert outcomes("two") == 2 * [Outcome.REMOTE], "what the old key has signed is believed as before"
    push(url, roots, new.signer, replace=True)
    assert outcomes("three") == 2 * [Outcome.REMOTE]
    assert [signers(root) for root in ("one", "two", "three")] == 2 * [{farm.signer.id}] + [{new.signer.id}]
    believe({**old, "revoked": True}, json.loads(new.trust.read_text())["keys"][0])
    for root, outcome in (("one", Outcome.REMOTE), ("two", Outcome.REMOTE), ("three", Outcome.DISK)):
        assert outcomes(root) == 2 * [outcome], "what the old key brought has gone, and comes again"
        assert signers(root) == {new.signer.id}
        assert outcomes(root) == 2 * [Outcome.DISK]


def test_server_that_ignores_conditions_has_an_equal_entry(server: Server, farm: Farm, cache_of: CacheOf) -> None:
    server.knows_conditions = False
    store = RemoteStore(server.url, farm.signer)
    with ThreadPoolExecutor(4) as pool:
        sizes = list(pool.map(lambda n: store.put(encode(key_of(0), artifact_of(0), make_ms=n, made_s=n)), range(8)))
    assert all(sizes)
    assert cache_of().get_or_make(key_of(0), lambda: pytest.fail("it was made"))[0].data == artifact_of(0).data


# What goes out


def test_sources_logs_and_paths_stay_local_unless_requested(server: Server, farm: Farm, tmp_path: Path) -> None:
    cache = Cache(tmp_path / "farm")
    artifact = replace(artifact_of(0), name="/home/somebody/kernel.cu", log="/home/somebody/kernel.cu(3): warning")
    record = encode(key_of(0), artifact, make_ms=12.5, made_s=7, recipe=b"secret source")
    assert cache.store is not None
    cache.store.put(key_of(0).digest, record)
    push(server.url, cache.stores, farm.signer)
    name = object_name(key_of(0).digest)
    published = server.files[name]
    assert b"somebody" not in published
    assert b"secret source" not in published
    entry = decode(published[HEAD_BYTES:], key_of(0).digest)
    assert (entry.artifact.name, entry.artifact.log, entry.recipe) == ("kernel.cu", "", b"")
    assert (entry.make_ms, entry.made_s) == (12.5, 7)
    push(server.url, cache.stores, farm.signer, with_recipes=True, replace=True)
    assert b"secret source" in server.files[name]
    assert b"somebody/kernel.cu(3): warning" in server.files[name]


def test_machine_specific_entries_stay_local(server: Server, farm: Farm, tmp_path: Path) -> None:
    filled(tmp_path / "farm", 0, work="module")
    filled(tmp_path / "farm", 1, work="cpu code")
    assert push(server.url, filled(tmp_path / "farm").stores, farm.signer) == Pushed(0, 0, 0, 0)
    assert server.files == {FORMAT_NAME: FORMAT}
    record = encode(key_of(0, work="module"), artifact_of(0), make_ms=1.0, made_s=1)
    with raises(FormatError, "format", "module"):
        RemoteStore(server.url, farm.signer).put(record)


def test_entries_of_other_users_are_not_signed(server: Server, farm: Farm, cache_of: CacheOf, tmp_path: Path) -> None:
    other = farm_in(tmp_path, "other")
    server.files |= farm.files(0)
    here = cache_of()
    for n in range(2):
        here.get_or_make(key_of(n), lambda n=n: artifact_of(n))  # type: ignore[misc]
    assert push(f"file://{tmp_path}/theirs", here.stores, other.signer)[:3] == (1, 0, 1)
    assert not (tmp_path / "theirs" / object_name(key_of(0).digest)).exists()


def test_images_rebuilt_after_clearing_are_signed(
    server: Server, farm: Farm, cache_of: CacheOf, tmp_path: Path
) -> None:
    server.files |= farm.files(0)
    cache_of().get_or_make(key_of(0), lambda: artifact_of(0))
    here = Cache(tmp_path / "root")
    admin.clear(here)
    here.get_or_make(key_of(0), lambda: artifact_of(0))
    assert push(f"file://{tmp_path}/ours", here.stores, farm.signer).new == 1
    admin.clear(Cache(tmp_path / "never used"))


def test_pack_is_pushed_as_a_cache_is(server: Server, farm: Farm, cache_of: CacheOf, tmp_path: Path) -> None:
    write_pack(tmp_path / "k.pack", filled(tmp_path / "farm", 0, 1).stores)
    assert push(server.url, Cache(None, read_only=[tmp_path / "k.pack"]).stores, farm.signer).new == 2
    assert cache_of().get_or_make(key_of(1), lambda: artifact_of(1))[1].outcome is Outcome.REMOTE


def test_farm_publishes_records_as_they_arrive(server: Server, farm: Farm, cache_of: CacheOf) -> None:
    store = RemoteStore(server.url, farm.signer)
    sizes = [store.put(encode(key_of(n), artifact_of(n), make_ms=9.0, made_s=1)) for n in range(3)]
    assert all(size > 1000 for size in sizes)
    assert store.put(encode(key_of(0), artifact_of(0), make_ms=9.0, made_s=1)) == 0
    assert cache_of().get_or_make(key_of(2), lambda: artifact_of(2))[1].outcome is Outcome.REMOTE
    with pytest.raises(FormatError):
        store.put(b"no record")


# What goes wrong


def test_store_that_changes_writes_is_detected(server: Server, farm: Farm, tmp_path: Path) -> None:
    server.trouble["*"] = lambda handler, data: handler.answer(200, data[:-1] + b"?")
    with raises(FormatError, "format", "SHA-256"):
        push(server.url, filled(tmp_path / "farm", 0).stores, farm.signer)
    server.trouble["*"] = lambda handler, _: handler.answer(404, b"")
    with raises(RemoteError, "remote", "v1"):
        push(server.url, filled(tmp_path / "farm", 0).stores, farm.signer, replace=True)


def test_busy_store_is_retried(server: Server, farm: Farm, tmp_path: Path) -> None:
    push(server.url, filled(tmp_path / "farm", 0).stores, farm.signer)
    tried = []

    def busy_once(handler: Handler, data: bytes) -> None:
        tried.append(1)
        if len(tried) == 1:
            handler.answer(503, b"", None, Retry_After="0")
        else:
            handler.answer(200, data)

    server.trouble["*"] = busy_once
    assert pull(server.url, [key_of(0).digest], Cache(tmp_path / "here"), farm.trust).new == 1


@pytest.mark.usefixtures("impatient")
def test_failing_store_ends_a_pull_with_its_reason(server: Server, farm: Farm, tmp_path: Path) -> None:
    server.files |= farm.files(0)
    server.trouble["*"] = lambda handler, _: handler.answer(500, b"")
    with raises(RemoteError, "remote", "500"):
        pull(server.url, [key_of(0).digest], Cache(tmp_path / "here"), farm.trust)


@pytest.mark.usefixtures("impatient")
def test_failed_pull_ends_after_pending_transfers(server: Server, farm: Farm, tmp_path: Path) -> None:
    server.files |= farm.files(0, 1)
    first, second = sorted(key_of(n).digest for n in range(2))
    asked, failed, returned = threading.Event(), threading.Event(), threading.Event()

    def fail(handler: Handler, _: bytes) -> None:
        asked.wait(30)
        handler.answer(500, b"")
        failed.set()

    def answer(handler: Handler, data: bytes) -> None:
        asked.set()
        failed.wait(30)
        returned.wait(0.2)  # which it does not before this is answered
        handler.answer(200, data)

    server.trouble |= {object_name(first): fail, object_name(second): answer}
    with raises(RemoteError, "remote", "500"):
        pull(server.url, [first, second], Cache(tmp_path / "here"), farm.trust)
    came = [entry.digest for entry in admin.ls(Cache(tmp_path / "here"))]
    returned.set()
    assert came == [second]


def test_foreign_service_behind_the_url_is_never_written(server: Server, farm: Farm, tmp_path: Path) -> None:
    server.files[FORMAT_NAME] = b"of another kind"
    with raises(RemoteError, "remote", "FORMAT"):
        push(server.url, filled(tmp_path / "farm", 0).stores, farm.signer)
    assert server.files == {FORMAT_NAME: b"of another kind"}


def test_root_that_cannot_store_pulled_entries_is_an_error(server: Server, farm: Farm, tmp_path: Path) -> None:
    server.files |= farm.files(0)
    small = Cache(tmp_path / "here", cap_bytes=100)
    with raises(CacheRefusedError, "cache-refused", "cap"):
        pull(server.url, [key_of(0).digest], small, farm.trust)
    with raises(MissingError, "missing"):
        pull(server.url, [key_of(0).digest], Cache(None), farm.trust)


@pytest.mark.parametrize("key", ["", "ab", "x" * 64, "A" * 64])
def test_invalid_key_is_refused(key: str, server: Server, farm: Farm, tmp_path: Path) -> None:
    server.files |= farm.files()
    with raises(OptionError, "option"):
        pull(server.url, [key], Cache(tmp_path / "here"), farm.trust)


def test_pulled_entry_is_removed_with_its_signer(server: Server, farm: Farm, tmp_path: Path) -> None:
    server.files |= farm.files(0)
    pull(server.url, [key_of(0).digest], Cache(tmp_path / "here"), farm.trust)
    listed = json.loads(farm.trust.read_text())
    listed["keys"][0]["revoked"] = True
    farm.trust.write_text(json.dumps(listed))
    assert Cache(tmp_path / "here", trust=farm.trust).find(key_of(0)) is None
