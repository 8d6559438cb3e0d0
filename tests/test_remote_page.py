"""Every snippet of docs/remote.md runs, in Python and in the shell, and the page names every variable."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import cujit
import cujit.worklist
from cujit.cache.remote.signing import TrustedKeys
from cujit.cache.settings import VARIABLES
from pages import Page, shell
from remote.serving import Server, running

PAGE = Page("remote.md")
URL = "https://kernels.example/cuda"


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the page has done by its end: a recording, two keys, and a store that is full."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "scale.cu").write_text('extern "C" __global__ void scale(float *x) { x[threadIdx.x] *= 3; }\n')
    with cujit.record_worklist("recordings"):
        cujit.compile(Path("scale.cu"), arch="sm_90")
    for _, code in PAGE.snippets("shell"):
        for line in code.splitlines():
            shell(line.replace(URL, server.url))
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_python_runs_after_the_shell(server: Server) -> None:
    (_, reading), (_, filling) = PAGE.snippets()
    with pytest.warns(cujit.errors.CacheWarning, match="signed the image, but cujit trusts"):
        read = PAGE.run(reading.replace(URL, server.url))  # for everything is signed by the new key now
    assert read["image"].provenance.outcome.value == "made"  # type: ignore[attr-defined]
    Path("believed.json").write_text(Path("new.json").read_text())
    read = PAGE.run(reading.replace(URL, server.url).replace('"kernels"', '"others"'))
    assert read["image"].provenance.outcome.value == "remote"  # type: ignore[attr-defined]
    filled = PAGE.run(filling.replace(URL, server.url))
    assert filled["pushed"].kept == 1  # type: ignore[attr-defined]


def test_list_of_keys_is_one(tmp_path: Path) -> None:
    ((_, text),) = PAGE.snippets("json")
    (tmp_path / "believed.json").write_text(text)
    keys = TrustedKeys.read(tmp_path / "believed.json").keys.values()
    assert [key.name for key in keys] == ["farm 2026", "farm 2025"]


def test_page_names_every_variable_of_the_shared_cache() -> None:
    named = set(re.findall(r"^\| `(\w+)` \|", PAGE.text, re.MULTILINE))
    assert named == {name for name in VARIABLES if name.startswith(("CUJIT_REMOTE", "CUJIT_TRUST"))}


def test_example_publishes_a_worklist(folder: Path, server: Server) -> None:
    server.files.clear()
    cujit.worklist.merge(["recordings"]).worklist.save("kernels.jsonl")
    guarded = "if __name__ == '__main__':\n    process_main()\n"  # as an installed script has it
    command = f"#!{sys.executable}\nfrom cujit.cli import process_main\n{guarded}"
    (folder / "bin").mkdir()
    (folder / "bin/cujit").write_text(command)
    (folder / "bin/cujit").chmod(0o755)
    paths = os.pathsep.join(os.path.abspath(path) for path in sys.path)
    given = {"STORE": server.url, "KEY": "farm.key", "ARCHES": "sm_80 sm_90", "PYTHONPATH": paths}
    environment = {**os.environ, **given, "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    script = Path(__file__).parents[1] / "examples/shared-cache/publish.sh"
    done = subprocess.run(["sh", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len([name for name in server.files if name.startswith("v1/e/")]) == 2
