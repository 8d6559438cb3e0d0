"""The cache: an Artifact in any case, made once if possible, and told where from."""

from __future__ import annotations

import copy
import errno
import gc
import os
import pickle
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cache.samples import artifact_of, key_of
from cujit.artifact import Artifact
from cujit.cache.cache import Cache
from cujit.cache.key import make_key
from cujit.cache.memory import RecentCache
from cujit.cache.provenance import Outcome, Provenance
from cujit.cache.settings import CacheSettings
from cujit.errors import CacheWarning, CompileError, OptionError
from raising import raises

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def make(n: int) -> Callable[[], Artifact]:
    return lambda: artifact_of(n)


def nobody() -> Artifact:
    raise AssertionError("this should not have been made")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_artifact_published_by_another_process_is_returned(root: Path) -> None:
    ours, theirs = Cache(root), Cache(root)

    def make_late() -> Artifact:
        theirs.keep(key_of(0), artifact_of(1))
        return artifact_of(2)

    got, provenance = ours.get_or_make(key_of(0), make_late)
    assert (got, provenance.outcome) == (artifact_of(1), Outcome.WAITED)
    assert ours.get_or_make(key_of(0), nobody)[0] == artifact_of(1)


def test_cache_waits_for_another_process_for_the_least_time(root: Path) -> None:
    ours, theirs = Cache(root), Cache(root)
    begun, done = threading.Event(), threading.Event()

    def make_slowly() -> Artifact:
        begun.set()
        assert done.wait(60)
        return artifact_of(1)

    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(theirs.get_or_make, key_of(0), make_slowly)
        assert begun.wait(60)
        impatient, _ = ours.get_or_make(key_of(0), make(2), least_wait_s=0.05)
        assert impatient == artifact_of(2)
        done.set()
        assert slow.result()[0] == artifact_of(2)


def test_miss_is_compiled_then_found_in_memory_and_on_disk(root: Path) -> None:
    cache = Cache(root)
    artifact, made = cache.get_or_make(key_of(0), make(0))
    assert (artifact, made.outcome, made.root, made.key) == (artifact_of(0), Outcome.MADE, root, key_of(0))
    again, memory = cache.get_or_make(key_of(0), nobody)
    assert again is artifact
    assert (memory.outcome, memory.make_ms) == (Outcome.MEMORY, made.make_ms)
    other = Cache(root)
    from_disk, disk = other.get_or_make(key_of(0), nobody)
    assert from_disk == artifact
    assert (disk.outcome, disk.root, round(made.make_ms, 3)) == (Outcome.DISK, root, disk.make_ms)
    assert other.get_or_make(key_of(0), nobody)[1].outcome is Outcome.MEMORY
    assert made.is_hit is False
    assert disk.is_hit is memory.is_hit is True


def test_counters_count_each_kind_of_access(root: Path) -> None:
    cache = Cache(root)

    def slow() -> Artifact:
        time.sleep(0.02)
        return artifact_of(0)

    for _ in range(3):
        cache.get_or_make(key_of(0), slow)
    cache.forget()
    cache.get_or_make(key_of(0), slow)
    counted = cache.counters
    assert (counted.memory_hits, counted.disk_hits, counted.misses, counted.makes) == (2, 1, 1, 1)
    assert (counted.hits, counted.waits, counted.failures, counted.damaged, counted.not_kept) == (3, 0, 0, 0, 0)
    assert counted.read_bytes == counted.written_bytes > 1000
    assert counted.made_ms >= 20
    assert abs(counted.saved_ms - 3 * counted.made_ms) < 0.01
    assert cache.counters == counted


def test_memory_evicts_least_recently_used_above_its_cap(root: Path) -> None:
    cache = Cache(root, memory_bytes=7000)
    for n in (0, 1, 2):
        cache.get_or_make(key_of(n), make(n))
    cache.get_or_make(key_of(0), nobody)
    cache.get_or_make(key_of(3), make(3))
    outcomes = [cache.get_or_make(key_of(n), nobody)[1].outcome for n in (0, 2, 3, 1)]
    assert outcomes == [Outcome.MEMORY, Outcome.MEMORY, Outcome.MEMORY, Outcome.DISK]
    none = Cache(root, memory_bytes=0)
    assert [none.get_or_make(key_of(0), nobody)[1].outcome for _ in range(2)] == [Outcome.DISK] * 2


def test_recent_cache_can_be_full_and_reuses_freed_space() -> None:
    recent = RecentCache[int](100)

    def held() -> list[str]:
        return [key for key in "abcde" if recent.get(key) is not None]  # which uses them in this order

    for _ in range(2):
        recent.put("a", 1, 60)
        recent.put("b", 2, 40)
        assert held() == ["a", "b"], "it may be full"
        recent.put("a", 3, 60)
        assert (recent.get("a"), held()) == (3, ["a", "b"]), "what is put again counts once"
        recent.put("c", 4, 30)
        assert held() == ["b", "c"], "the one used longest ago goes"
        recent.put("d", 5, 30)
        assert held() == ["b", "c", "d"], "one that went leaves its room"
        recent.forget("b")
        recent.forget("none")
        recent.put("e", 6, 40)
        assert held() == ["c", "d", "e"], "one that is forgotten leaves its room"
        recent.put("b", 7, 101)
        assert held() == ["c", "d", "e"], "what is larger than all the room has no other go"
        recent.put("a", 8, 100)
        assert held() == ["a"]
        recent.clear()
        assert held() == []


def test_read_only_roots_are_searched_before_the_writable_root(root: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for place, numbers in ((first, (1,)), (second, (1, 2)), (root, (1, 2, 3))):
        for n in numbers:
            Cache(place).get_or_make(key_of(n), make(n))
    for path in (first / "e").rglob("*"):
        os.utime(path, (1, 1))
    cache = Cache(root, read_only=[tmp_path / "none", first, second])
    assert [cache.get_or_make(key_of(n), nobody)[1].root for n in (1, 2, 3)] == [first, second, root]
    assert {path.stat().st_mtime for path in (first / "e").rglob("*")} == {1}, "a use is noted where it may be written"
    shipped = Cache(None, read_only=[second])
    assert shipped.get_or_make(key_of(2), nobody)[1].outcome is Outcome.DISK
    made = shipped.get_or_make(key_of(9), make(9))[1]
    assert (made.outcome, made.reason) == (Outcome.UNCACHED, "there is no writable root")
    assert shipped.counters.not_kept == 1
    assert shipped.get_or_make(key_of(9), nobody)[1].outcome is Outcome.MEMORY
    assert sorted(os.listdir(first)) == sorted(os.listdir(second)) == sorted(os.listdir(root))


def test_miss_names_the_input_that_changed(root: Path) -> None:
    cache = Cache(root)
    _, first = cache.get_or_make(key_of(0), make(0))
    assert first.why() is None
    _, second = cache.get_or_make(key_of(1), make(1))
    explanation = second.why()
    assert explanation is not None
    assert [d.label for d in explanation.differences] == ["source"]
    assert cache.get_or_make(key_of(1), nobody)[1].why() is None
    assert Provenance(Outcome.UNCACHED, reason="an include that is computed").why() is None


def test_provenance_is_pickled_without_its_cache(root: Path) -> None:
    provenance = Cache(root).get_or_make(key_of(0), make(0))[1]
    assert copy.deepcopy(provenance) == pickle.loads(pickle.dumps(provenance)) == provenance


@pytest.mark.parametrize("error", [ValueError("no"), CompileError("no", log="l", request="r")], ids=["any", "compile"])
def test_exceptions_of_make_propagate_and_store_nothing(root: Path, error: Exception) -> None:
    cache = Cache(root)

    def fail() -> Artifact:
        raise error

    with pytest.raises(type(error)) as raised:
        cache.get_or_make(key_of(0), fail)
    assert raised.value is error
    assert cache.counters.makes == 0
    assert cache.store is not None
    assert list(cache.store.entries()) == []
    if isinstance(error, CompileError):  # the source will not compile the next time either
        with pytest.raises(CompileError) as again:
            cache.get_or_make(key_of(0), nobody)
        assert again.value is not error
        assert (str(again.value), again.value.request) == (str(error), "r")
        cache.forget()
    assert cache.get_or_make(key_of(0), make(0))[1].outcome is Outcome.MADE


def test_stored_failure_does_not_keep_locals_alive() -> None:
    cache, held = Cache(None), []

    def fail() -> Artifact:
        source = artifact_of(0)
        held.append(weakref.ref(source))
        raise CompileError("no")

    try:
        cache.get_or_make(key_of(0), fail)
    except CompileError as e:
        e.__traceback__ = None
    gc.collect()
    assert held[0]() is None


def test_artifact_compiled_elsewhere_can_be_stored_and_found(root: Path) -> None:
    cache = Cache(root)
    assert cache.find(key_of(0)) is None
    kept = cache.keep(key_of(0), artifact_of(0), make_ms=12.5)
    assert (kept.outcome, kept.root, kept.make_ms) == (Outcome.MADE, root, 12.5)
    for found, outcome in ((cache.find(key_of(0)), Outcome.MEMORY), (Cache(root).find(key_of(0)), Outcome.DISK)):
        assert found is not None
        assert (found[0], found[1].outcome, found[1].make_ms) == (artifact_of(0), outcome, 12.5)
    assert Cache(None).keep(key_of(0), artifact_of(0)).reason == "there is no writable root"
    assert cache.counters.makes == cache.counters.misses == 0


def test_explanation_is_found_in_a_read_only_root_too(root: Path, tmp_path: Path) -> None:
    Cache(tmp_path / "shipped").keep(key_of(0), artifact_of(0))
    explanation = Cache(root, read_only=[tmp_path / "shipped"]).get_or_make(key_of(1), make(1))[1].why()
    assert explanation is not None
    assert explanation.nearest.digest == key_of(0).digest


def test_stored_failures_are_bounded() -> None:
    cache = Cache(None)

    def fail() -> Artifact:
        raise CompileError("no")

    for n in range(100):
        with pytest.raises(CompileError):
            cache.get_or_make(key_of(n), fail)
    assert cache.get_or_make(key_of(0), make(0))[0] == artifact_of(0)
    with pytest.raises(CompileError):
        cache.get_or_make(key_of(99), nobody)


def test_24_threads_compile_each_key_once(root: Path) -> None:
    cache = Cache(root)
    made: list[int] = []
    start = threading.Barrier(24)

    def slow(n: int) -> Artifact:
        made.append(n)
        time.sleep(0.02)
        return artifact_of(n)

    def work(_: int) -> list[tuple[Artifact, Provenance]]:
        start.wait()
        return [cache.get_or_make(key_of(n), lambda n=n: slow(n)) for n in range(8)]  # type: ignore[misc]

    with ThreadPoolExecutor(24) as pool:
        results = list(pool.map(work, range(24)))
    assert sorted(made) == list(range(8))
    assert all([a for a, _ in got] == [artifact_of(n) for n in range(8)] for got in results)
    counted = cache.counters
    assert (counted.makes, counted.hits) == (8, 23 * 8)
    assert counted.waits > 0


def test_make_may_use_the_cache_for_another_key(root: Path) -> None:
    cache = Cache(root)

    def linked() -> Artifact:
        return cache.get_or_make(key_of(1), make(1))[0]

    assert cache.get_or_make(key_of(0), linked)[0] == artifact_of(1)


def test_interrupt_while_compiling_leaves_the_key_free(root: Path) -> None:
    cache = Cache(root)

    def interrupt() -> Artifact:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.get_or_make(key_of(0), interrupt)
    assert cache.get_or_make(key_of(0), make(0))[1].outcome is Outcome.MADE


def test_fork_while_compiling_gives_both_processes_the_result(root: Path) -> None:
    """The child too comes back out of the flight that its parent was in, and so does a thread's that was elsewhere."""
    cache = Cache(root)
    pids: list[int] = []

    def forking() -> Artifact:
        pids.append(os.fork())
        return artifact_of(0)

    def slowly() -> Artifact:
        time.sleep(0.2)
        return artifact_of(1)

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(cache.get_or_make, key_of(1), slowly)
        time.sleep(0.05)
        artifact, _ = cache.get_or_make(key_of(0), forking)
        if pids[0] == 0:
            status = 1
            try:
                # The thread that makes key 1 is not here: it would be waited for in vain, for 30 s.
                begin = time.monotonic()
                mine = cache.get_or_make(key_of(1), make(1))[0]
                slow = time.monotonic() - begin > 20
                status = int(slow or (artifact, mine) != (artifact_of(0), artifact_of(1)))
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pids[0], 0)[1]) == 0
        assert other.result()[0] == artifact_of(1)
    assert artifact == artifact_of(0)
    assert Cache(root).get_or_make(key_of(0), nobody)[1].outcome is Outcome.DISK


def test_child_of_a_killed_process_does_not_block_others(root: Path) -> None:
    pids, tell = os.pipe()

    def fork_and_stay() -> Artifact:
        child = os.fork()
        if child:
            os.write(tell, child.to_bytes(4, "little"))
        time.sleep(60)
        os._exit(0)

    maker = os.fork()
    if maker == 0:
        try:
            Cache(root).get_or_make(key_of(0), fork_and_stay)
        finally:
            os._exit(1)
    child = int.from_bytes(os.read(pids, 4), "little")
    time.sleep(0.05)
    os.kill(maker, signal.SIGKILL)
    os.waitpid(maker, 0)
    begin = time.monotonic()
    assert Cache(root).get_or_make(key_of(0), make(0))[1].outcome is Outcome.MADE
    took_s = time.monotonic() - begin
    os.kill(child, signal.SIGKILL)
    os.close(pids)
    os.close(tell)
    assert took_s < 20  # else it waits for 30


def test_artifact_that_no_record_can_hold_is_returned_not_stored(root: Path) -> None:
    cache = Cache(root)
    strange = replace(artifact_of(0), data=b"\x7fELF and no more of it")
    artifact, provenance = cache.get_or_make(key_of(0), lambda: strange)
    assert artifact is strange
    assert provenance.outcome is Outcome.UNCACHED
    assert "truncated" in provenance.reason
    assert cache.counters.not_kept == 1


def test_artifact_above_the_cap_is_returned_but_not_stored(root: Path) -> None:
    provenance = Cache(root, cap_bytes=1500).get_or_make(key_of(0), make(0))[1]
    assert "exceed the cap of 1500 bytes" in provenance.reason
    assert Cache(root, cap_bytes=0).get_or_make(key_of(0), make(0))[1].outcome is Outcome.UNCACHED


def made_twice_with_one_warning(cache: Cache, said: str) -> None:
    with pytest.warns(CacheWarning, match=said) as warned:
        got = [cache.get_or_make(key_of(n), make(n)) for n in (0, 1)]
    assert len(warned) == 1
    assert [artifact for artifact, _ in got] == [artifact_of(0), artifact_of(1)]
    assert {provenance.outcome for _, provenance in got} == {Outcome.UNCACHED}
    assert cache.counters.failures > 1


def test_root_writable_by_others_warns_once_with_the_remedy(root: Path) -> None:
    root.mkdir()
    root.chmod(0o777)
    cache = Cache(root)
    made_twice_with_one_warning(cache, f"chmod go-w {root}")
    assert cache.why(key_of(5)) is None
    assert os.listdir(root) == []


def test_root_that_is_a_file_or_cannot_be_created_warns_once(root: Path) -> None:
    root.write_text("x")
    made_twice_with_one_warning(Cache(root), "is not a directory")
    made_twice_with_one_warning(Cache(Path("/proc/cujit")), "cujit")
    made_twice_with_one_warning(Cache(root / ("x" * 300)), "")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_superuser_does_not_write_into_a_users_cache(root: Path) -> None:
    root.mkdir(0o700)
    os.chown(root, 12345, 12345)
    made_twice_with_one_warning(Cache(root), "belongs to user 12345")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_superuser_reads_a_group_cache_without_writing(root: Path) -> None:
    gid = os.getegid()
    Cache(root, trusted_gid=gid).keep(key_of(5), artifact_of(5))
    for place in (root, *root.rglob("*")):
        os.chown(place, 12345, gid)
    cache = Cache(root, trusted_gid=gid)
    assert cache.get_or_make(key_of(5), nobody)[1].outcome is Outcome.DISK
    made_twice_with_one_warning(cache, "root doesn't write to")


def test_too_many_open_files_cost_one_warning(root: Path) -> None:
    cache = Cache(root)
    cache.get_or_make(key_of(5), make(5))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        made_twice_with_one_warning(cache, "Too many open files")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert cache.get_or_make(key_of(6), make(6))[1].outcome is Outcome.MADE


SMALL = """
import os, sys, warnings
from pathlib import Path
from cache.samples import artifact_of, key_of
from cujit.cache.cache import Cache
cache = Cache(Path(sys.argv[1]) / "cache", memory_bytes=0)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for n in range(60):
        assert cache.get_or_make(key_of(n), lambda: artifact_of(n, 60_000))[0] == artifact_of(n, 60_000)
assert len(caught) == 1 and "No space left" in str(caught[0].message), caught
again = Cache(Path(sys.argv[1]) / "cache")
for n in range(60):
    assert again.get_or_make(key_of(n), lambda: artifact_of(n, 60_000))[0] == artifact_of(n, 60_000)
assert 5 < again.counters.disk_hits < 60, again.counters
assert again.counters.damaged == 0
"""


@pytest.mark.parametrize("size", ["size=1m", "nr_inodes=24", "size=20k"])
def test_full_file_system_warns_once(tmp_path: Path, size: str) -> None:
    mount = f"mount -t tmpfs -o {size},mode=700 tmpfs {tmp_path} && exec {sys.executable} -W ignore - {tmp_path}"
    unshare = ["unshare", "-m", *([] if os.geteuid() == 0 else ["-r"]), "sh", "-c"]
    if shutil.which("unshare") is None or subprocess.run([*unshare, "true"], capture_output=True).returncode:
        pytest.skip("this machine makes no mount namespaces")
    script = SMALL.replace("5 <", "-1 <") if size == "size=20k" else SMALL
    path = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    done = subprocess.run(
        [*unshare, mount], input=script, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_damaged_entry_is_recompiled_and_counted(root: Path) -> None:
    Cache(root).get_or_make(key_of(0), make(0))
    digest = key_of(0).digest
    (root / "e" / digest[:2] / digest[2:]).write_bytes(b"damaged")
    cache = Cache(root)
    assert cache.get_or_make(key_of(0), make(0))[1].outcome is Outcome.MADE
    assert (cache.counters.damaged, cache.counters.failures) == (1, 0)
    assert Cache(root).get_or_make(key_of(0), nobody)[1].outcome is Outcome.DISK


def test_root_of_another_version_is_not_changed(root: Path) -> None:
    root.mkdir(0o700)
    (root / "FORMAT").write_text("cujit cache 99\n")
    provenance = Cache(root).get_or_make(key_of(0), make(0))[1]
    assert provenance.reason == f"{root} belongs to another version of cujit"
    assert os.listdir(root) == ["FORMAT"]


def test_cache_touches_nothing_before_first_use(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def touched(*_: object, **__: object) -> int:
        raise OSError(errno.EIO, "touched")

    monkeypatch.setattr(os, "open", touched)
    monkeypatch.setattr(os, "mkdir", touched)
    Cache.of(CacheSettings(root))
    assert not root.exists()


@pytest.mark.parametrize("wrong", ["a\0b", 3], ids=["nul", "number"])
def test_invalid_root_and_negative_sizes_are_refused(wrong: object) -> None:
    with raises(OptionError, "option", "directory"):
        Cache(Path(wrong) if isinstance(wrong, str) else wrong)  # type: ignore[arg-type]
    with raises(OptionError, "option", "-1"):
        Cache(None, cap_bytes=-1)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("read_only", Path("a")),
        ("read_only", "abc"),
        ("cap_bytes", "2GiB"),
        ("cap_bytes", None),
        ("cap_bytes", float("nan")),
        ("memory_bytes", True),
        ("trusted_gid", "video"),
        ("trusted_gid", -1),
        ("runtime_dir", "a"),
        ("keep_failure", 3),
    ],
)
def test_arguments_of_the_wrong_type_are_refused(root: Path, name: str, wrong: Any) -> None:
    with pytest.raises(OptionError):
        Cache(root, **{name: wrong})


def test_one_key_can_be_discarded_in_memory_and_on_disk(root: Path) -> None:
    cache = Cache(root)
    for n in range(2):
        cache.get_or_make(key_of(n), make(n))
    assert cache.discard(key_of(0))
    assert (cache.find(key_of(0)), Cache(root).find(key_of(0))) == (None, None)
    assert Cache(root).find(key_of(1)) is not None
    assert not cache.discard(key_of(0))
    bare = Cache(None)
    bare.get_or_make(key_of(0), make(0))
    assert (bare.discard(key_of(0)), bare.discard(key_of(0))) == (True, False)


def test_stored_failure_can_be_discarded(root: Path) -> None:
    def fail() -> Artifact:
        raise CompileError("no")

    cache = Cache(root)
    with pytest.raises(CompileError):
        cache.get_or_make(key_of(0), fail)
    cache.discard(key_of(0))
    assert cache.get_or_make(key_of(0), make(0))[1].outcome is Outcome.MADE


def test_unwritable_recipe_loses_the_entry_not_the_artifact(root: Path) -> None:
    def recipe() -> bytes:
        raise FileNotFoundError(errno.ENOENT, "no working directory")

    artifact, provenance = Cache(root).get_or_make(key_of(0), make(0), recipe=recipe)
    assert (artifact, provenance.outcome) == (artifact_of(0), Outcome.UNCACHED)
    assert "no working directory" in provenance.reason


def test_warning_names_the_line_of_the_user(root: Path) -> None:
    root.write_text("a file")
    with pytest.warns(CacheWarning) as warned:
        Cache(root).get_or_make(key_of(0), make(0))
    assert [warning.filename for warning in warned] == [__file__]


def test_group_can_share_a_cache(root: Path) -> None:
    before = os.umask(0o077)
    try:
        Cache(root, trusted_gid=os.getegid()).get_or_make(make_key("k", []), make(0))
    finally:
        os.umask(before)
    paths = [root, *root.rglob("*")]
    assert {p.stat().st_mode & 0o7777 for p in paths if p.is_dir()} == {0o2770}
    assert {p.stat().st_mode & 0o7777 for p in paths if p.is_file()} == {0o660}
    with pytest.warns(CacheWarning, match="is writable by group"):
        Cache(root).get_or_make(make_key("k", []), make(0))
    assert Cache(root, trusted_gid=os.getegid()).get_or_make(make_key("k", []), nobody)[1].outcome is Outcome.DISK


def test_new_cache_has_zero_counters(tmp_path: Path) -> None:
    for cache in (Cache(tmp_path), Cache(None)):
        counted = cache.counters
        assert set(vars(counted).values()) == {0}
        assert (counted.hits, counted.misses, counted.saved_ms) == (0, 0, 0.0)
