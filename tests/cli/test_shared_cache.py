"""``cujit cache keygen``, ``push`` and ``pull``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import cujit
from cache.samples import artifact_of, key_of
from cujit.cache.cache import Cache
from cujit.cache.provenance import Outcome
from cujit.cli.app import main

Verb = Callable[..., Result]


@pytest.fixture
def verb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Verb:
    """Run ``cujit cache`` in a directory that has a key, ``farm.key``, and who believes it, ``believed.json``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "cache"))

    def run(*arguments: object) -> Result:
        return CliRunner().invoke(main, ["cache", *map(str, arguments)])

    (tmp_path / "believed.json").write_text(run("keygen", "farm.key").stdout)
    return run


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/store"


def test_entries_are_pushed_and_pulled_into_another_directory(verb: Verb, url: str, tmp_path: Path) -> None:
    for n in range(3):
        Cache(tmp_path / "cache").keep(key_of(n), artifact_of(n))
    pushed = verb("push", url, "--key", "farm.key", "--json")
    assert {**json.loads(pushed.stdout), "new_bytes": 0} == {"new": 3, "kept": 0, "skipped": 0, "new_bytes": 0}
    assert "0 published" in verb("push", url, "cache", "--key", "farm.key").stderr
    (tmp_path / "here").mkdir()
    digests = [key_of(n).digest for n in (0, 2)]
    pulled = verb("pull", url, *digests, "--dir", "here", "--trust", "believed.json")
    assert pulled.exit_code == 0, pulled.output
    assert "2 fetched" in pulled.stderr
    assert {entry.digest for entry in Cache(tmp_path / "here").stores[0].entries()} == set(digests)


def test_keygen_prints_the_path_of_a_new_key(verb: Verb) -> None:
    said, listed = verb("keygen", "one.key"), verb("keygen", "two.key", "--json")
    assert said.stderr == "one.key: keep this private key only where you publish to the remote cache\n"
    assert listed.stderr == ""
    assert json.loads(said.stdout).keys() == json.loads(listed.stdout).keys()


def test_missing_or_refused_entry_is_reported_with_status_1(verb: Verb, url: str, tmp_path: Path) -> None:
    Cache(tmp_path / "cache").keep(key_of(0), artifact_of(0))
    verb("push", url, "--key", "farm.key")
    Path("others.json").write_text(verb("keygen", "other.key", "--key-name", "other").stdout)
    asked = ("pull", url, key_of(0).digest, key_of(1).digest, "--dir", tmp_path, "--trust", "others.json")
    said = verb(*asked)
    assert said.exit_code == 1
    assert f"missing: {key_of(1).digest[:12]}" in said.stderr
    assert f"refused: {key_of(0).digest[:12]}" in said.stderr
    assert "(other)" in said.stderr
    listed = json.loads(verb(*asked, "--json").stdout)
    assert listed["missing"] == [key_of(1).digest]
    assert list(listed["refused"]) == [key_of(0).digest]


def test_pulled_keys_of_a_worklist_need_no_compile(
    verb: Verb, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = 'extern "C" __global__ void listed() {}', '#include "gone.h"\n__global__ void k() {}'
    (tmp_path / "gone.h").write_text("")
    Path("good.cu").write_text(good)
    Path("bad.cu").write_text(bad)
    with cujit.record_worklist("recordings"):
        for name in ("good.cu", "bad.cu"):
            cujit.compile(Path(name), arch="sm_90")
    verb("push", url, "--key", "farm.key")
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "here"))
    monkeypatch.setenv("CUJIT_TRUST", "believed.json")
    monkeypatch.setenv("CUJIT_COMPILE", "never")
    (tmp_path / "gone.h").write_text("// another\n")
    said = verb("pull", url, "--list", "recordings")
    assert said.exit_code == 1
    assert "1 fetched" in said.stderr
    assert "bad.cu" in said.stderr
    found = cujit.compile(Path("good.cu"), arch="sm_90").provenance
    assert found is not None
    assert found.outcome is Outcome.DISK


def test_info_names_the_remote_cache(verb: Verb, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUJIT_REMOTE", "https://user:secret@kernels.example/cuda")
    monkeypatch.setenv("CUJIT_TRUST", "believed.json")
    assert "then the shared cache https://kernels.example/cuda" in verb("info").stdout
    assert json.loads(verb("info", "--json").stdout)["remote"] == "https://kernels.example/cuda"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["push", "ftp://x/y", "--key", "farm.key"], "is not the URL of a shared cache"),
        (["push", "file:///tmp/x", "--key", "gone.key"], "No such file"),
        (["push", "file:///tmp/x", "--key", "believed.json", "--scope", "A"], "is not a valid scope"),
        (["push", "file:///tmp/x", "--key", "believed.json"], "can read|no private key"),
        (["pull", "file:///nowhere", "ab" * 32], "no key is trusted"),
        (["pull", "file:///nowhere", "--trust", "believed.json"], "nothing to download"),
        (["pull", "file:///nowhere", "ab", "--trust", "believed.json"], "complete key|FORMAT"),
        (["keygen", "farm.key"], "File exists"),
    ],
)
def test_impossible_requests_are_reported(
    arguments: list[str], why: str, verb: Verb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cujit.cache.remote.filling._PAUSES_S", ())
    said = verb(*arguments)
    assert said.exit_code not in (0, None)
    assert any(part in said.stderr for part in why.split("|")), said.output
    assert said.exception is None or isinstance(said.exception, SystemExit)
