"""Under ``CUJIT_SOURCES``, texts that have lines become files, under the names that tools look for."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import cujit
from cujit.errors import CompileError, FileError
from raising import raises

BODY = '#include "n.h"\nextern "C" __global__ void k(int *p) { *p = N; }'


def source(name: str = "k.cu", value: int = 3) -> cujit.Source:
    return cujit.Source.cuda(BODY, name=name, headers={"in/n.h": "#define WRONG", "n.h": f"#define N {value}"})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CUJIT_SOURCES", str(tmp_path / "sources"))
    return tmp_path / "sources"


def files(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("option", ["lineinfo", "debug"])
def test_text_and_headers_are_written_under_their_names(folder: Path, option: str) -> None:
    for cache in (None, None, False):  # made, found, and made with no cache
        cujit.compile(source(), arch="compute_90", cache=cache, options={option: True})
        assert files(folder) == {"k.cu": BODY, "n.h": "#define N 3", "in/n.h": "#define WRONG"}
        shutil.rmtree(folder)


def test_last_of_two_texts_with_a_name_is_written(folder: Path) -> None:
    for value in (4, 5, 4):
        cujit.build(source(value=value), targets=["compute_90"], lineinfo=True)
        assert files(folder)["n.h"] == f"#define N {value}"


@pytest.mark.parametrize("name", ["../../up.cu", "/up.cu", "a/../up.cu"])
def test_no_name_leads_out_of_the_directory(folder: Path, name: str) -> None:
    cujit.compile(source(name), arch="compute_90", lineinfo=True)
    assert files(folder)["up.cu"] == BODY
    assert [path.name for path in folder.parent.iterdir()] == ["sources"]


def test_without_lines_nothing_is_written(folder: Path) -> None:
    cujit.compile(source(), arch="compute_90")
    assert not folder.exists()


@pytest.mark.parametrize("cache", [None, False], ids=["cache", "no cache"])
def test_files_and_their_headers_are_symbolic_links(folder: Path, tmp_path: Path, cache: bool | None) -> None:
    texts = {"a/file.cu": '#include "b.h"\n#include <c.h>\n' + BODY.replace('#include "n.h"', "#define N B + C")}
    texts |= {"a/b.h": "#define B 2", "inc/c.h": "#define C 3", "inc/unused.h": ""}
    for place in ("one", "two"):
        for name, text in texts.items():
            (tmp_path / place / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / place / name).write_text(text)
        path, include = tmp_path / place / "a/file.cu", tmp_path / place / "inc"
        image = cujit.compile(path, arch="compute_90", lineinfo=True, include=[include], cache=cache)
        assert '"/cujit-source/src/file.cu"' in image.text
        links = {str(p.relative_to(folder)): os.readlink(p) for p in folder.rglob("*") if p.is_symlink()}
        assert links == {"src/file.cu": str(path), "src/b.h": str(path.parent / "b.h"), "i00/c.h": str(include / "c.h")}


def test_sources_that_do_not_compile_are_written_too(folder: Path) -> None:
    with pytest.raises(CompileError):
        cujit.compile(cujit.Source.cuda("nonsense", name="n.cu"), arch="compute_90", lineinfo=True)
    assert files(folder) == {"n.cu": "nonsense"}


def test_unwritable_directory_is_an_error(folder: Path) -> None:
    folder.write_text("a file")
    with raises(FileError, "file", "CUJIT_SOURCES", "sources/n.h"):
        cujit.compile(
            cujit.Source.cuda("", name="k.cu", headers={"n.h": ""}), arch="compute_90", lineinfo=True, cache=False
        )
