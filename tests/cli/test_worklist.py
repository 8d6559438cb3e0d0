"""``cujit worklist`` and ``cujit pack build``: lists are joined, shown, built, and compared with packs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import cujit
from cujit.cli.app import main

Verb = Callable[..., Result]


@pytest.fixture
def verb() -> Verb:
    def run(*arguments: object) -> Result:
        return CliRunner().invoke(main, [*map(str, arguments)], catch_exceptions=False)

    return run


@pytest.fixture
def recordings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three requests of two sources, one of them for one architecture that it does not compile for."""
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "far").mkdir()
    code = '#if __CUDA_ARCH__ == 800\n#error not here\n#endif\nextern "C" __global__ void k(float *x) { *x = TOKEN; }'
    source = cujit.Source.cuda(code, name="k\x1b[2J.cu", define={"TOKEN": "12345"}, include=["/usr"])
    with cujit.record_worklist(tmp_path / "rec"):
        for _ in range(3):
            cujit.compile(source, arch="sm_90")
        cujit.compile(source, arch="sm_100")
        cujit.compile('extern "C" __global__ void other() {}', to="ptx", names=["other"])
    return tmp_path / "rec"


def test_list_is_shown_without_the_values_of_macros(verb: Verb, recordings: Path) -> None:
    shown = verb("worklist", "show", recordings)
    assert "TOKEN" in shown.output
    assert "12345" not in shown.output
    assert "\x1b" not in shown.output
    assert "not portable: k\\x1b[2J.cu for sm_90: headers of usr" in shown.output
    rows = json.loads(verb("worklist", "show", recordings, "--json").output)
    assert [(row["arch"], row["calls"], row["macros"], row["names"]) for row in rows] == [
        ("sm_90", 3, ["TOKEN"], []),
        ("sm_100", 1, ["TOKEN"], []),
        ("compute_75", 1, [], ["other"]),
    ]
    text = verb("worklist", "show", recordings, "--recipe", rows[2]["recipe"][:8]).output
    assert text == 'extern "C" __global__ void other() {}\n'
    absent = verb("worklist", "show", recordings, "--recipe", "0123456789")
    assert (absent.exit_code, "0 recipes have digests" in absent.output) == (1, True)


def test_worklists_are_merged_and_dropped_entries_reported(verb: Verb, recordings: Path, tmp_path: Path) -> None:
    path = tmp_path / "list.jsonl"
    said = verb("worklist", "merge", recordings, "-o", path, "--min-uses", 2)
    assert said.output == f"{path}: 1 requests of 1 sources\n  cut 2: fewer than 2 uses\n"
    merged = verb("worklist", "merge", recordings, "-o", path, "--arch", "sm_100", "--seen-within", "9d", "--json")
    assert json.loads(merged.output) == {
        "output": str(path), "requests": 1, "sources": 1, "cut": {"other architectures": 2},
    }  # fmt: skip
    assert verb("worklist", "merge", recordings, "-o", path, "--seen-within", "soon").exit_code == 2


def test_pack_is_built_and_failures_end_with_status_1(verb: Verb, recordings: Path, tmp_path: Path) -> None:
    path = tmp_path / "k.pack"
    told = json.loads(verb("pack", "build", recordings, "-o", path, "--json").output)
    assert told["pack"]["records"] == len(told["keys"])
    assert told["pack"]["file_bytes"] == path.stat().st_size
    built = verb("pack", "build", recordings, "-o", path)
    assert built.exit_code == 1
    assert "1 image: 0 made, 1 found; 2 failed" in built.output
    assert "k\\x1b[2J.cu for sm_100: k\\x1b[2J.cu requires the headers in {elsewhere}/usr" in built.output
    cover = verb("worklist", "cover", path, recordings, "--json")
    told = json.loads(cover.output)
    assert (cover.exit_code, told["share_of_calls"], len(told["missing"])) == (1, 0.2, 2)
    assert verb("worklist", "cover", path, recordings, "--at-least", 20).exit_code == 0
    assert "20.0% of 5 calls" in verb("worklist", "cover", path, recordings).output


def test_compiler_message_is_printed(verb: Verb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "cache"))
    code = '#if __CUDA_ARCH__ == 800\n#error not here\n#endif\nextern "C" __global__ void k() {}'
    with cujit.record_worklist(tmp_path / "rec"):
        cujit.compile(cujit.Source.cuda(code, name="k.cu"), arch="sm_90")
    words = ("worklist", "build", tmp_path / "rec", "--arch", "sm_80", "--arch", "recorded", "--add-ptx")
    told = json.loads(verb(*words, "--json").output)
    assert (len(told["keys"]), told["made"], told["pack"]) == (2, 1, None)
    assert [(one["arch"], one["reason"]) for one in told["failed"]] == [
        ("sm_80", 'k.cu:2:2: error: #error directive: not here')
    ]  # fmt: skip


def test_pack_records_the_specified_time(
    verb: Verb, recordings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "k.pack"
    images = []
    for said in ("0", "1700000000", "0"):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", said)
        verb("pack", "build", recordings, "-o", path)
        images.append(path.read_bytes())
    assert images[0] == images[2] != images[1]
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "now")
    assert "SOURCE_DATE_EPOCH is 'now'" in verb("pack", "build", recordings, "-o", path).output
    assert "must end in .pack" in verb("pack", "build", recordings, "-o", tmp_path / "k.bin").output


def test_invalid_worklist_ends_with_status_1(verb: Verb, tmp_path: Path) -> None:
    (tmp_path / "list").write_text("nonsense\n")
    for words in (("worklist", "show"), ("worklist", "build"), ("worklist", "cover", tmp_path)):
        result = verb(*words, tmp_path / "list")
        assert (result.exit_code, f"{tmp_path}/list:1: no line of a worklist" in result.output) == (1, True)
    assert verb("worklist", "show", tmp_path / "absent").exit_code == 2


def test_full_disk_leaves_no_files(verb: Verb, recordings: Path, tmp_path: Path) -> None:
    verb("worklist", "build", recordings)
    program = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))\n"
        "from cujit.cli.app import main; main(sys.argv[1:])"
    )
    before = sorted(os.listdir(tmp_path))
    for words in (("worklist", "merge", recordings, "-o", "l.jsonl"), ("pack", "build", recordings, "-o", "k.pack")):
        done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert done.stderr.startswith("error: ")
        assert "File too large" in done.stderr
        assert "Traceback" not in done.stderr
    assert sorted(os.listdir(tmp_path)) == before
