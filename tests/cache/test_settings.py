"""The environment says where the cache is, how large it may be, and whether there is one."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path

import pytest

from cujit.cache.cache import Cache
from cujit.cache.settings import (
    DEFAULT_CAP_BYTES,
    DEFAULT_REMOTE_WAIT_S,
    VARIABLES,
    CacheSettings,
    DirectoryName,
    parse_bytes,
    values_of,
)
from cujit.errors import OptionError
from raising import raises


def test_variables_are_compared_as_they_are_at_the_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("CUJIT_CACHE", "CUJIT_CACHE_DIR")
    environments: list[MutableMapping[str, str]] = [os.environ, {}]
    for environment in environments:
        for name in names:
            monkeypatch.delitem(environment, name, raising=False)
        assert values_of(names, environment) == (None, None)
        monkeypatch.setitem(environment, "CUJIT_CACHE_DIR", "/tmp/\udcff")  # no UTF-8: lone surrogates
        before = values_of(names, environment)
        assert tuple(value and os.fsdecode(value) for value in before) == (None, "/tmp/\udcff")
        monkeypatch.setitem(environment, "CUJIT_CACHE", "0")
        assert values_of(names, environment) != before


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("17", 17), ("17 B", 17), ("4GiB", 4 << 30), ("1.5 mib", 3 << 19), ("2GB", 2 * 10**9), ("3k", 3000)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1e9", "4 PiB", "inf", "1,5GB", "٣GB", "9" * 40])
def test_invalid_size_is_refused(text: str) -> None:
    with raises(OptionError, "option", "500MB"):
        parse_bytes(text)


@pytest.mark.parametrize("said", ["0", "off", " No ", "FALSE"])
def test_cache_can_be_off(said: str) -> None:
    settings = CacheSettings.from_environment({"HOME": "/h", "CUJIT_CACHE": said})
    assert not settings.is_on
    assert Cache.of(settings).stores == ()
    assert CacheSettings.from_environment({"HOME": "/h", "CUJIT_CACHE": "1"}).is_on


def test_roots_and_cap_come_from_the_environment(tmp_path: Path) -> None:
    environment = {"HOME": "/h", "CUJIT_CACHE_ROOTS": f"{tmp_path}::~/shipped", "CUJIT_CACHE_BYTES": "4GiB"}
    settings = CacheSettings.from_environment(environment)
    assert settings.read_only == (str(tmp_path), os.path.expanduser("~/shipped"))
    assert settings.cap_bytes == 4 << 30
    roots = [store.root for store in Cache.of(settings).stores]
    assert roots == [*map(Path, settings.read_only), Path("/h/.cache/cujit")]
    assert CacheSettings.from_environment({"HOME": "/h"}) == CacheSettings(DirectoryName("/h/.cache/cujit"))
    assert CacheSettings().cap_bytes == DEFAULT_CAP_BYTES


def test_shared_cache_comes_from_the_environment(tmp_path: Path) -> None:
    given = {"HOME": "/h", "CUJIT_REMOTE": "s3://bucket/x", "CUJIT_TRUST": str(tmp_path / "believed.json")}
    settings = CacheSettings.from_environment({**given, "CUJIT_REMOTE_WAIT_S": "1.5"})
    assert (settings.remote, settings.trust) == ("s3://bucket/x", str(tmp_path / "believed.json"))
    assert (settings.remote_wait_s, CacheSettings().remote_wait_s) == (1.5, DEFAULT_REMOTE_WAIT_S)
    assert [tier.url for tier in Cache.of(settings).tiers] == ["s3://bucket/x"]
    assert Cache.of(CacheSettings.from_environment({**given, "CUJIT_CACHE": "0"})).tiers == ()
    with raises(OptionError, "trust-missing", "docs/remote.md"):
        Cache.of(CacheSettings.from_environment({**given, "CUJIT_TRUST": ""}))


@pytest.mark.parametrize("said", ["-1", "1e3", "soon", "inf", "nan", "1,5"])
def test_invalid_wait_is_refused(said: str) -> None:
    with raises(OptionError, "environment-value", "CUJIT_REMOTE_WAIT_S"):
        CacheSettings.from_environment({"CUJIT_REMOTE_WAIT_S": said})


def test_settings_read_no_other_variable() -> None:
    class Asked(dict[str, str]):
        def get(self, name: str, default: object = None) -> object:  # type: ignore[override]
            assert name in VARIABLES
            return super().get(name, default)

    CacheSettings.from_environment(Asked())
