"""What people do with a cache."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from cache.samples import artifact_of, key_of
from cujit.artifact import Artifact
from cujit.cache import admin
from cujit.cache.admin import Shown
from cujit.cache.cache import Cache
from cujit.errors import FormatError, MissingError, NameNotFoundError, OptionError
from raising import raises


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    """A cache with the entries 0 to 3, and 9 in a read-only root."""
    Cache(tmp_path / "shipped").get_or_make(key_of(9), lambda: artifact_of(9))
    cache = Cache(tmp_path / "cache", read_only=[tmp_path / "shipped"], cap_bytes=1 << 20)
    for n in range(4):
        cache.get_or_make(key_of(n), lambda n=n: artifact_of(n))  # type: ignore[misc]
        os.utime(path_of(cache, n), (1_700_000_000 + n, 1_700_000_000 + n))
    return cache


def path_of(cache: Cache, n: int) -> Path:
    assert cache.store is not None
    digest = key_of(n).digest
    return cache.store.root / "e" / digest[:2] / digest[2:]


def test_info_counts_the_writable_root(cache: Cache, tmp_path: Path) -> None:
    info = admin.info(cache)
    sizes = sum(path_of(cache, n).stat().st_size for n in range(4))
    assert (info.root, info.roots) == (tmp_path / "cache", (tmp_path / "shipped", tmp_path / "cache"))
    assert (info.entries, info.total_bytes, info.cap_bytes) == (4, sizes, 1 << 20)
    assert info.counters.makes == 4
    nothing = admin.info(Cache(None))
    assert (nothing.root, nothing.roots, nothing.entries, nothing.total_bytes, nothing.cap_bytes) == (None, (), 0, 0, 0)


def test_ls_lists_entries_by_last_use_and_marks_damaged_ones(cache: Cache) -> None:
    path_of(cache, 1).write_bytes(b"damaged")
    os.utime(path_of(cache, 1), (1_700_000_001, 1_700_000_001))
    listed = list(admin.ls(cache))
    assert [entry.digest for entry in listed] == [key_of(n).digest for n in (9, 3, 2, 1, 0)]
    assert [entry.used_s for entry in listed[1:]] == [1_700_000_000.0 + n for n in (3, 2, 1, 0)]
    summary = listed[1].summary
    assert summary is not None
    assert (summary.name, str(summary.arch), summary.work, summary.names) == ("3.cu", "sm_90", "nvrtc", ("f<3>",))
    assert (summary.payload_bytes, listed[1].size_bytes) == (1000, path_of(cache, 3).stat().st_size)
    assert listed[3].summary is None


def test_show_finds_an_entry_by_a_key_prefix(cache: Cache, tmp_path: Path) -> None:
    shown = admin.show(cache, key_of(2).digest[:10])
    assert (shown.record.artifact, shown.key.parts) == (artifact_of(2), key_of(2).parts)
    assert admin.show(cache, key_of(9).digest).root == tmp_path / "shipped"


def test_show_explains_an_invalid_key_prefix(cache: Cache) -> None:
    with raises(NameNotFoundError, "name-not-found", "ffffffffffff"):
        admin.show(cache, "f" * 12)
    for wrong in ("", "xyz", "AB"):
        with raises(OptionError, "option", "hexadecimal"):
            admin.show(cache, wrong)
    first = [key_of(n).digest[0] for n in (0, 1, 2, 3, 9)]
    n = 100
    while key_of(n).digest[0] not in first:
        n += 1
    cache.get_or_make(key_of(n), lambda: artifact_of(n))
    with raises(OptionError, "option", "keys") as error:
        admin.show(cache, key_of(n).digest[0])
    assert key_of(n).digest[:5] in str(error.value.help)
    path_of(cache, 1).write_bytes(b"damaged")
    with raises(FormatError, "format", "truncated"):
        admin.show(cache, key_of(1).digest)


def test_export_writes_the_bare_image(cache: Cache, tmp_path: Path) -> None:
    path = admin.export(cache, key_of(0).digest, tmp_path / "image")
    assert path.read_bytes() == artifact_of(0).data


def test_trim_and_clear_return_the_deleted_bytes(cache: Cache, tmp_path: Path) -> None:
    before = admin.info(cache).total_bytes
    size = path_of(cache, 3).stat().st_size
    assert admin.trim(cache, size + 10) == before - size
    assert [entry.digest for entry in admin.ls(cache)] == [key_of(9).digest, key_of(3).digest]
    path_of(cache, 3).write_bytes(b"damaged")
    assert cache.store is not None
    cache.store.get(key_of(3).digest)
    assert os.listdir(tmp_path / "cache" / "bad") != []
    cache.get_or_make(key_of(5), lambda: artifact_of(5))
    assert admin.clear(cache) > 1000
    assert admin.info(cache).entries == len(os.listdir(tmp_path / "cache" / "bad")) == 0
    assert len(list(admin.ls(cache))) == 1  # what is read-only stays
    assert cache.get_or_make(key_of(5), lambda: artifact_of(6))[0] == artifact_of(6)  # it was forgotten too
    with raises(OptionError, "option", "-1"):
        admin.trim(cache, -1)
    with raises(MissingError, "missing", "CUJIT_CACHE_DIR"):
        admin.trim(Cache(None), 0)
    assert admin.clear(Cache(tmp_path / "never")) == 0


def test_verify_compares_a_sample_with_recompiled_images(cache: Cache) -> None:
    def remake(shown: Shown) -> Artifact | None:
        n = int(shown.record.artifact.name.removesuffix(".cu"))
        if n == 0:
            return None
        return replace(artifact_of(n), data=artifact_of(n).data[:-1] + b"!") if n == 1 else artifact_of(n, 1000 + n % 2)

    path_of(cache, 2).write_bytes(b"damaged")
    found = {verdict.digest: verdict for verdict in admin.verify(cache, 1, remake)}
    zero, one, two, three = (found[key_of(n).digest] for n in range(4))
    assert (zero.remade, zero.fault, zero.name) == (False, "", "0.cu")
    assert (one.remade, one.fault) == (True, "the entry and the recompiled image differ from byte 999 on")
    assert (two.remade, "is truncated" in two.fault) == (False, True)
    assert (three.remade, three.fault) == (True, "the entry is 1000 bytes long, but the recompiled image is 1001")
    assert not path_of(cache, 2).exists()


def test_verify_draws_a_sample_of_the_share_by_seed(cache: Cache) -> None:
    def drawn(fraction: float, seed: int = 0) -> list[str]:
        return [verdict.digest for verdict in admin.verify(cache, fraction, lambda _: None, seed=seed)]

    assert [len(drawn(f)) for f in (0, 0.25, 0.5, 1)] == [0, 1, 2, 4]
    assert drawn(0.5) == drawn(0.5)
    assert len({tuple(drawn(0.5, seed)) for seed in range(20)}) > 1
    for wrong in (-0.1, 1.1, float("nan")):
        with raises(OptionError, "option", "0", "1"):
            admin.verify(cache, wrong, lambda _: None)


def test_verify_checks_at_least_one_entry_unless_share_is_0(cache: Cache) -> None:
    assert len(list(admin.verify(cache, 0.01, lambda _: None))) == 1
    assert [admin.sample_size(*drawn) for drawn in ((0, 0.5), (4, 0), (4, 0.1), (30, 0.1), (4, 1))] == [0, 0, 1, 3, 4]


def test_ls_puts_the_entries_of_all_roots_in_one_order(cache: Cache) -> None:
    path = cache.stores[0].root / "e" / key_of(9).digest[:2] / key_of(9).digest[2:]
    os.utime(path, (1_700_000_001.5, 1_700_000_001.5))
    assert [entry.digest for entry in admin.ls(cache)] == [key_of(n).digest for n in (3, 2, 9, 1, 0)]


def test_clear_and_trim_leave_other_directories_unchanged(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("hints/notes", "bad/a", "tmp/x", f"e/ab/{'c' * 62}")]
    for file in files:
        file.parent.mkdir(parents=True)
        file.write_text("somebody's")
    assert admin.clear(Cache(tmp_path)) == admin.trim(Cache(tmp_path), 0) == 0
    assert [file.read_text() for file in files] == ["somebody's"] * 4
