"""``cujit pack``: packs out of caches and packs, and what is told of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cache.samples import artifact_of, key_of
from cujit.cache.cache import Cache
from cujit.cache.provenance import Provenance
from cujit.cli.app import main
from cujit.program import compile

PackVerb = Callable[..., Result]


@pytest.fixture
def verb() -> PackVerb:
    def run(*arguments: object) -> Result:
        return CliRunner().invoke(main, ["pack", *map(str, arguments)], catch_exceptions=False)

    return run


@pytest.fixture
def caches(tmp_path: Path) -> list[Path]:
    """Two caches with two records each, of which they share one."""
    roots = [tmp_path / "one", tmp_path / "two"]
    for root, numbers in zip(roots, ((0, 1), (1, 2)), strict=True):
        for n in numbers:
            Cache(root).keep(key_of(n), artifact_of(n, 1000 * (n + 1)))
    return roots


@pytest.fixture
def pack(verb: PackVerb, caches: list[Path], tmp_path: Path) -> Path:
    assert verb("merge", *caches, "-o", tmp_path / "kernels.pack").exit_code == 0
    return tmp_path / "kernels.pack"


def test_compiled_image_is_found_in_a_pack(verb: PackVerb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "cache"))
    code = 'extern "C" __global__ void k(float *x) { x[threadIdx.x] = 1; }'
    made = compile(code, arch="sm_90", cache=Cache(tmp_path / "cache"))
    told = json.loads(verb("merge", tmp_path / "cache", "-o", tmp_path / "k.pack", "--json").output)
    assert told["records"] == 1
    found = compile(code, arch="sm_90", cache=Cache(None, read_only=[tmp_path / "k.pack"]))
    assert (found.data, found.provenance and found.provenance.is_hit) == (made.data, True)
    assert verb("show", tmp_path / "k.pack", told and found.provenance.key.digest[:8]).output.count("k = k") == 1  # type: ignore[union-attr]


def test_headers_of_merged_packs_are_not_scanned_again(
    verb: PackVerb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "own"))
    for name in ("kept.h", "gone.h"):
        (tmp_path / name).write_text("#define VALUE 1\n")
        code = f'#include "{name}"\n' + 'extern "C" __global__ void k(float *x) { x[threadIdx.x] = VALUE; }'
        (tmp_path / f"{name}.cu").write_text(code)
        compile(tmp_path / f"{name}.cu", arch="sm_90", cache=Cache(tmp_path / "cache"))
    (tmp_path / "gone.h").write_text("#define VALUE 2\n")
    told = json.loads(verb("merge", tmp_path / "cache", "-o", tmp_path / "k.pack", "--json").output)
    assert (told["records"], told["closures"]) == (2, 2), "all headers and the user's; of what was changed, none"
    again = json.loads(verb("merge", tmp_path / "k.pack", "-o", tmp_path / "again.pack", "--json").output)
    assert (again["requests"], again["closures"]) == (3, 2)
    found = compile(tmp_path / "kept.h.cu", arch="sm_90", cache=Cache(None, read_only=[tmp_path / "again.pack"]))
    assert isinstance(found.provenance, Provenance)
    assert (found.provenance.is_hit, found.provenance.headers) == (True, "request table")


def test_packs_and_caches_are_merged(verb: PackVerb, caches: list[Path], pack: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.pack"
    told = json.loads(verb("merge", pack, caches[1], "-o", again, "--json").output)
    assert (told["records"], again.read_bytes()) == (3, pack.read_bytes())
    assert told["file_bytes"] == again.stat().st_size


def test_pack_time_comes_from_the_environment(
    verb: PackVerb, caches: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    verb("merge", *caches, "-o", tmp_path / "k.pack")
    assert {row["made_s"] for row in json.loads(verb("ls", tmp_path / "k.pack", "--json").output)} == {1700000000}
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    refused = verb("merge", *caches, "-o", tmp_path / "k.pack")
    assert (refused.exit_code, "expected seconds" in refused.output) == (1, True)


def test_pack_ls_lists_entries(verb: PackVerb, pack: Path) -> None:
    lines = verb("ls", pack).output.splitlines()
    assert [line.split()[1] for line in lines[2:]] == ["0.cu", "1.cu", "2.cu"]
    rows = json.loads(verb("ls", pack, "--json").output)
    assert [row["key"] for row in rows] == [key_of(n).digest for n in range(3)]
    assert [row["names"] for row in rows] == [["f<0>"], ["f<1>"], ["f<2>"]]


def test_pack_info_prints_sizes_and_the_limit(verb: PackVerb, pack: Path) -> None:
    told = json.loads(verb("size", pack, "--by", "kernel,arch", "--json").output)
    assert told["bytes"] == pack.stat().st_size
    assert [(row["kernel"], row["arch"]) for row in told["groups"]] == [(f"f<{n}>", "sm_90") for n in (2, 1, 0)]
    assert verb("size", pack, "--max-bytes", "50MB").exit_code == 0
    over = verb("size", pack, "--max-bytes", "1KiB")
    assert (over.exit_code, "more than --max-bytes 1 KiB" in over.output) == (1, True)
    wrong = verb("size", pack, "--by", "colour")
    assert (wrong.exit_code, "colour is not a valid value for --by: use kernel, arch, name, work" in wrong.output) == (
        1,
        True,
    )


def test_damage_is_reported_with_its_record(verb: PackVerb, pack: Path) -> None:
    assert verb("verify", pack).exit_code == 0
    whole = bytearray(pack.read_bytes())
    whole[-1] ^= 1
    pack.write_bytes(whole)
    told = verb("verify", pack, "--json")
    assert told.exit_code == 1
    assert "SHA-256" in json.loads(told.output)["faults"][0]["fault"]
    assert "SHA-256" in verb("verify", pack).output


@pytest.mark.parametrize("verb_of", [("ls",), ("size",), ("verify",), ("show", "ab")], ids=str)
def test_invalid_pack_is_refused(verb: PackVerb, tmp_path: Path, verb_of: tuple[str, ...]) -> None:
    (tmp_path / "no.pack").write_bytes(b"something else, of more than the hundred and ninety-two bytes of a head" * 4)
    told = verb(verb_of[0], tmp_path / "no.pack", *verb_of[1:])
    assert (told.exit_code, "no.pack: the file is not a pack: it begins" in told.output) == (1, True)


def test_pack_is_reported_by_its_name(verb: PackVerb, caches: list[Path], tmp_path: Path) -> None:
    told = verb("merge", *caches, "-o", tmp_path / "kernels.bin")
    assert (told.exit_code, "kernels.bin.pack" in told.output) == (1, True)
