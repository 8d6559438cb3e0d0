"""A farm that fills a shared cache while it compiles: its driver signs, and what is there is not made again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import cujit
from cujit.cache.cache import Cache
from cujit.cache.provenance import Outcome
from cujit.cache.record import decode
from cujit.cache.remote.signing import HEAD_BYTES
from cujit.cache.remote.tier import FORMAT_NAME, object_name
from cujit.cli.app import main
from cujit.errors import OptionError, RemoteError
from cujit.farm import Report, publishing
from cujit.farm.report import BuildTally
from cujit.remote import RemoteStore, pull
from farming import Elsewhere, variants
from raising import raises
from remote.serving import Farm, Handler, Server, farm_in


@pytest.fixture(scope="module")
def two() -> Iterator[Executor]:
    """Two threads, each of which has a process apart that compiles."""
    with ThreadPoolExecutor(2) as executor:
        yield executor


@pytest.fixture
def build(two: Executor, tmp_path: Path) -> Callable[..., Report]:
    """Build some variants into a root of that name and into a store."""

    def built(count: int, root: str, store: RemoteStore | None, **more: Any) -> Report:
        return cujit.farm.build(variants(count), executor=two, sink=tmp_path / root, store=store, **more)

    return built


def entries(root: Path) -> int:
    return sum(1 for _ in Cache(root).stores[0].entries()) if root.exists() else 0


def test_built_images_are_published_and_existing_ones_reused(
    url: str, farm: Farm, build: Callable[..., Report], cache_of: Callable[..., Cache], tmp_path: Path
) -> None:
    store = RemoteStore(url, farm.signer)
    first = build(3, "root", store)
    assert (first.made, first.published, first.is_good) == (3, 3, True)
    assert "published: 3" in str(first)
    assert first.as_json()["published"] == 3
    seen: list[tuple[int, int]] = []
    later = build(4, "of another job", store, progress=lambda done, total, _name: seen.append((done, total)))
    assert (later.made, later.hit, later.published, later.is_good) == (1, 3, 1, True)
    assert seen == [(4, 4)], "what is there is done"
    assert entries(tmp_path / "of another job") == 1
    here = cache_of("here", url=url)
    for request in variants(4):
        found = cujit.compile(request.source, names=request.names, arch="sm_90", cache=here)
        assert found.provenance is not None
        assert found.provenance.outcome is Outcome.REMOTE
    packed = build(4, "of another job", store, pack=tmp_path / "k.pack")
    assert (packed.made, packed.hit, packed.published) == (3, 1, 0), "a pack is made of what is here"
    assert packed.pack is not None
    assert packed.pack.records == 4


def test_images_in_the_sinks_shared_cache_are_not_rebuilt(
    two: Executor, server: Server, farm: Farm, build: Callable[..., Report], cache_of: Callable[..., Cache]
) -> None:
    build(2, "root", RemoteStore(server.url, farm.signer))
    report = cujit.farm.build(variants(3), executor=two, sink=cache_of("here"))
    assert (report.made, report.hit, report.is_good) == (1, 2, True)


def test_images_already_in_the_root_are_published(server: Server, farm: Farm, build: Callable[..., Report]) -> None:
    build(2, "root", None)
    assert set(server.files) == set()
    report = build(3, "root", RemoteStore(server.url, farm.signer))
    assert (report.made, report.hit, report.published, report.is_good) == (1, 2, 3, True)
    assert len(server.files) == 4
    again = build(3, "root", RemoteStore(server.url, farm.signer))
    assert (again.made, again.hit, again.published, again.is_good) == (0, 3, 0, True)


def test_found_images_of_unknown_origin_are_not_signed(
    server: Server, farm: Farm, build: Callable[..., Report], tmp_path: Path
) -> None:
    build(2, "root", None)
    (tmp_path / "root/signers").write_text("no directory")
    report = build(3, "root", RemoteStore(server.url, farm.signer))
    assert (report.made, report.hit, report.published) == (1, 2, 1)
    assert [failure.reason[:16] for failure in report.failed] == ["not published: [", "not published: ["]
    assert len(server.files) == 2


@pytest.mark.parametrize("with_recipes", [False, True])
def test_sources_stay_local_unless_requested(
    with_recipes: bool, server: Server, farm: Farm, build: Callable[..., Report]
) -> None:
    (key,) = build(1, "root", RemoteStore(server.url, farm.signer, with_recipes=with_recipes)).keys
    entry = decode(server.files[object_name(key)][HEAD_BYTES:], key)
    assert bool(entry.recipe) is with_recipes


def test_workers_have_neither_key_nor_store_name(server: Server, farm: Farm, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    there = Elsewhere(tmp_path / "project")
    store = RemoteStore(server.url, farm.signer)
    assert cujit.farm.build(variants(1), executor=there, sink=tmp_path / "root", store=store).published == 1
    assert farm.signer.seed not in there.sent
    assert server.url.encode() not in there.sent


def test_images_of_other_users_are_not_signed(
    server: Server, farm: Farm, build: Callable[..., Report], tmp_path: Path
) -> None:
    other = farm_in(tmp_path, "other")
    (key,) = build(1, "theirs", RemoteStore(server.url, other.signer)).keys
    pull(server.url, [key], Cache(tmp_path / "root"), other.trust)
    ours = f"file://{tmp_path}/ours"
    (failure,) = build(1, "root", RemoteStore(ours, farm.signer)).failed
    assert failure.reason.startswith("not published: the image comes from another shared cache")
    assert not (tmp_path / "ours" / object_name(key)).exists()
    assert build(1, "new", RemoteStore(ours, farm.signer)).published == 1
    assert build(1, "root", RemoteStore(ours, farm.signer)).is_good, "the store has one that we have made"


def test_entries_of_another_key_are_neither_used_nor_replaced(
    server: Server, farm: Farm, build: Callable[..., Report], tmp_path: Path
) -> None:
    other = farm_in(tmp_path, "other")
    (key,) = build(1, "theirs", RemoteStore(server.url, other.signer)).keys
    lies_there = server.files[object_name(key)]
    report = build(1, "root", RemoteStore(server.url, farm.signer))
    assert (report.made, report.published) == (1, 0)
    assert (
        "already contains an image that isn't signed with this key: run cujit cache push --replace"
        in report.failed[0].reason
    )
    assert server.files[object_name(key)] == lies_there


@pytest.mark.usefixtures("impatient")
def test_rejecting_store_is_left_alone_and_nothing_lost(
    server: Server, farm: Farm, build: Callable[..., Report], tmp_path: Path
) -> None:
    store = RemoteStore(server.url, farm.signer)
    server.password = "of somebody else"  # so that nothing can be written any more
    report = build(24, "root", store, join=8)
    assert (report.made, report.published, len(report.failed)) == (24, 0, 24)
    assert entries(tmp_path / "root") == 24
    reasons = sorted({failure.reason for failure in report.failed})
    assert reasons[0].startswith(f"not published: cujit didn't publish the image because {server.url} doesn't respond")
    assert "401" in reasons[-1]
    assert sum(failure.reason == reasons[-1] for failure in report.failed) < 24
    server.password = ""
    again = build(24, "root", store)
    assert (again.made, again.hit, again.published, again.is_good) == (0, 24, 24, True)


class Unsteady(RemoteStore):
    """Takes every tenth record."""

    asked = 0

    def put(self, record: bytes, *, replace: bool = False) -> int:
        self.asked += 1
        if self.asked % 10:
            raise RemoteError("no answer")
        return super().put(record, replace=replace)


def test_intermittently_failing_store_is_still_used(
    server: Server, farm: Farm, build: Callable[..., Report], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AT_ONCE", "_MOST_WAITING"):
        monkeypatch.setattr(publishing, name, 1)
    report = build(24, "root", Unsteady(server.url, farm.signer), join=8)
    assert (report.published, {failure.reason for failure in report.failed}) == (2, {"not published: no answer"})


@pytest.mark.usefixtures("impatient")
def test_unreadable_store_costs_no_image(
    server: Server, farm: Farm, build: Callable[..., Report], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "AT_ONCE", 1)
    store = RemoteStore(server.url, farm.signer)
    store._written = 1  # so that none is read back
    server.trouble["*"] = lambda handler, _: Handler.answer(handler, 500, b"")
    report = build(24, "root", store, join=8)
    assert (report.made, report.published, report.is_good) == (24, 24, True)
    assert set(server.files) == {FORMAT_NAME, *map(object_name, report.keys)}
    assert len(server.asked) == 1 + 3, "after it has not answered, it is asked no more what it has"


def test_pending_images_are_not_published_after_an_error(
    farm: Farm, build: Callable[..., Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended = threading.Event(), threading.Event()
    records: list[bytes] = []

    class Pool(ThreadPoolExecutor):
        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            ended.set()
            super().shutdown(wait)

    class Slow(RemoteStore):
        def put(self, record: bytes, *, replace: bool = False) -> int:
            begun.set()
            assert ended.wait(60)
            records.append(record)
            return not replace

    monkeypatch.setattr(publishing, "AT_ONCE", 1)
    monkeypatch.setattr(publishing, "ThreadPoolExecutor", Pool)
    made = build(3, "root", None)
    store, roots = Slow(f"file://{tmp_path}/store", farm.signer), Cache(tmp_path / "root").stores

    def interrupted() -> None:
        with publishing.publishing(store, roots, BuildTally()) as publisher:
            assert publisher is not None
            for key, request in zip(made.keys, variants(3), strict=True):
                publisher.put(key, request, is_made=True)
            assert begun.wait(60)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(records) == 1


def test_invalid_store_is_refused(two: Executor, tmp_path: Path) -> None:
    with raises(OptionError, "option", "https://host/x"):
        cujit.farm.build(variants(1), executor=two, sink=tmp_path, store="https://host/x")  # type: ignore[arg-type]


def test_command_needs_a_signing_key_and_a_store(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with cujit.record_worklist("recordings"):
        cujit.compile("__global__ void k() {}", arch="sm_90", cache=False)
    for words, why in (
        (["--store", server.url], "cujit has no key to sign images"),
        (["--key", "farm.key"], "--store is missing"),
    ):
        done = CliRunner().invoke(main, ["farm", "build", "recordings", "--root", "root", *words])
        assert (done.exit_code, server.files) == (1, {})
        assert why in done.output
