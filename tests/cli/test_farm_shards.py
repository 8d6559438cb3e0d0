"""``cujit farm shard`` and ``merge``: parts of a worklist that no scheduler of ours hands out, and the pack of all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import cujit
from cujit.cli.app import main

KERNELS = 7


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A worklist of several sources, in the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "recorder"))
    with cujit.record_worklist("recordings"):
        for n in range(KERNELS):
            cujit.compile(f"__global__ void k{n}(int *x) {{ *x = {n}; }}", arch="sm_90")
    return tmp_path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def shard(which: str, folder: Path) -> Result:
    """Compile a part, as another machine: with a cache of its own."""
    own = folder / f"machine-{which.partition('/')[0]}"
    own.mkdir(mode=0o700, exist_ok=True)
    return run("farm", "shard", which, "recordings", "--into", "parts", "--dir", own, "--json")


def test_parts_merge_into_the_pack_of_the_whole(folder: Path) -> None:
    counts = []
    for number in (3, 1, 2):
        done = shard(f"{number}/3", folder)
        assert done.exit_code == 0, done.output
        counts.append(json.loads(done.stdout)["made"])
    assert sum(counts) == KERNELS
    assert max(counts) < KERNELS
    merged = run("farm", "merge", "parts", "-o", "merged.pack", "--json")
    assert merged.exit_code == 0, merged.output
    assert (json.loads(merged.stdout)["records"], json.loads(merged.stdout)["shards"]) == (KERNELS, 3)
    assert run("pack", "build", "recordings", "-o", "whole.pack").exit_code == 0
    assert Path("merged.pack").read_bytes() == Path("whole.pack").read_bytes()


def test_repeated_shard_is_found_and_an_empty_one_is_a_pack(folder: Path) -> None:
    numbers = [f"{number}/40" for number in range(1, 41)]
    for which in numbers:
        assert shard(which, folder).exit_code == 0
    first = {path.name: path.read_bytes() for path in Path("parts").iterdir()}
    assert len(first) == 40
    again = [json.loads(shard(which, folder).stdout) for which in numbers]
    assert (sum(one["made"] for one in again), sum(one["hit"] for one in again)) == (0, KERNELS)
    assert {path.name: path.read_bytes() for path in Path("parts").iterdir()} == first
    assert "7 records of 40 shards" in run("farm", "merge", "parts", "-o", "merged.pack").output


def test_merge_without_all_shards_writes_nothing(folder: Path) -> None:
    Path("parts").mkdir()
    assert "no shards" in run("farm", "merge", "parts", "-o", "merged.pack").output
    shard("2/3", folder)
    missing = run("farm", "merge", "parts", "-o", "merged.pack")
    assert missing.exit_code != 0
    assert "1/3" in missing.output
    assert "3/3" in missing.output
    shard("1/2", folder)
    mixed = run("farm", "merge", "parts", "-o", "merged.pack")
    assert "2, 3 parts" in " ".join(mixed.output.split())
    assert not Path("merged.pack").exists()


@pytest.mark.parametrize("which", ["0/3", "4/3", "1", "a/b", "1/0", "-1/3", "1/2/3"])
def test_invalid_shard_is_refused(which: str, folder: Path) -> None:
    done = run("farm", "shard", "--", which, "recordings", "--into", folder / "parts")
    assert done.exit_code == 2
    assert not (folder / "parts").exists()
