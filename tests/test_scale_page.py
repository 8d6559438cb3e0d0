"""Every snippet of docs/scale.md runs, in Python and in the shell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import cujit
from pages import Page, shell
from remote.serving import Server, running

PAGE = Page("scale.md")
URL = "https://kernels.example/cuda"


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the snippets name, as the working directory, and a cache of their own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "cache"))
    with cujit.record_worklist("recordings"):
        cujit.compile("__global__ void k() {}", arch="sm_90")
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("code", PAGE.each())
def test_python_runs(code: str, server: Server) -> None:
    shell("cujit cache keygen farm.key > believed.json")
    PAGE.run(code.replace(URL, server.url))


def test_shell_runs(folder: Path, server: Server) -> None:
    said = {title: "".join(shell(line.replace(URL, server.url)) for line in code.splitlines())
            for title, code in PAGE.snippets("shell")}  # fmt: skip
    assert "1 image: 1 made, 0 found; 0 failed" in said["On one machine"]
    assert (folder / "kernels.pack").exists()
    assert "1 records of 2 shards" in said["On many machines"]
    assert "1 image: 0 made, 1 found; 0 failed" in said["Into a shared cache"]
    assert "published: 1" in said["Into a shared cache"]
    assert "published" not in said["In CI"]
    assert len(server.files) == 2
