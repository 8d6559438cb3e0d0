"""Whom a cache believes, and where it is."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from cujit.cache.settings import CacheSettings, DirectoryName
from cujit.cache.trust import Trust
from cujit.errors import CacheRefusedError
from raising import raises

TRUST = Trust.of_process()
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


def test_private_and_missing_directories_are_trusted(tmp_path: Path) -> None:
    TRUST.check_root(tmp_path)
    TRUST.check_root(tmp_path / "not" / "yet")
    TRUST.check_root(Path("/"))


@pytest.mark.parametrize(("mode", "help"), [(0o777, "chmod go-w"), (0o775, "chmod g-w")])
def test_directory_writable_by_others_is_refused_with_a_fix(tmp_path: Path, mode: int, help: str) -> None:
    root = tmp_path / "a b"
    root.mkdir()
    root.chmod(mode)
    with raises(CacheRefusedError, "cache-refused", "writable") as error:
        TRUST.check_root(root)
    assert error.value.help == f"{help} '{root}'"
    subprocess.run(error.value.help, shell=True, check=True)
    TRUST.check_root(root)


def test_directory_shared_on_purpose_is_refused_and_unchanged(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)  # as /tmp: what the user of a machine may not close to the others
    with raises(CacheRefusedError, "cache-refused", "CUJIT_CACHE_DIR=") as error:
        TRUST.check_root(tmp_path)
    assert error.value.help == "CUJIT_CACHE_DIR=<a directory of yours>"


def test_parent_directory_may_be_writable_only_if_sticky(tmp_path: Path) -> None:
    root = tmp_path / "open" / "cache"
    root.mkdir(parents=True)
    root.parent.chmod(0o777)
    with raises(CacheRefusedError, "cache-refused", root.parent):
        TRUST.check_root(root)
    root.parent.chmod(0o1777)
    TRUST.check_root(root)


def test_own_symbolic_link_is_followed_and_its_target_checked(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "link").symlink_to("far")
    TRUST.check_root(tmp_path / "link")
    (tmp_path / "far").chmod(0o777)
    with raises(CacheRefusedError, "cache-refused", "far"):
        TRUST.check_root(tmp_path / "link")


@ROOT
def test_symbolic_link_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "link").symlink_to("far")
    os.chown(tmp_path / "link", 12345, -1, follow_symlinks=False)
    with raises(CacheRefusedError, "cache-refused", "link", "12345"):
        TRUST.check_root(tmp_path / "link")


@ROOT
def test_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, -1)
    with raises(CacheRefusedError, "cache-refused", "12345", "0") as error:
        TRUST.check_root(tmp_path)
    assert error.value.help == "CUJIT_CACHE_DIR=<a directory of yours>"
    shared = replace(TRUST, gid=tmp_path.stat().st_gid)
    shared.check_root(tmp_path)
    assert not shared.may_write(tmp_path)


def test_file_in_the_place_of_the_root_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with raises(CacheRefusedError, "cache-refused", "CUJIT_CACHE_DIR="):
        TRUST.check_root(tmp_path / "file")


def test_group_is_trusted_only_if_it_is_named(tmp_path: Path) -> None:
    root = tmp_path / "team"
    root.mkdir()
    root.chmod(0o2770)
    with raises(CacheRefusedError, "cache-refused", root.stat().st_gid):
        TRUST.check_root(root)
    replace(TRUST, gid=root.stat().st_gid).check_root(root)
    root.chmod(0o2777)
    with raises(CacheRefusedError, "cache-refused", "everyone"):
        replace(TRUST, gid=root.stat().st_gid).check_root(root)


@pytest.mark.parametrize(
    ("environment", "root"),
    [
        ({"CUJIT_CACHE_DIR": "/c", "XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/c"),
        ({"CUJIT_CACHE_DIR": "", "XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/x/cujit"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, "/h/.cache/cujit"),
        ({"HOME": "/h"}, "/h/.cache/cujit"),
    ],
    ids=["ours", "xdg", "relative", "home"],
)
def test_root_comes_from_the_environment(environment: dict[str, str], root: str) -> None:
    assert CacheSettings.from_environment(environment) == CacheSettings(DirectoryName(root))


def test_relative_root_is_resolved_and_runtime_directory_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    settings = CacheSettings.from_environment({"CUJIT_CACHE_DIR": "c", "XDG_RUNTIME_DIR": "/run/user/1"})
    assert settings == CacheSettings(DirectoryName(tmp_path / "c"), DirectoryName("/run/user/1"))
