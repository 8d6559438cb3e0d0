"""Every snippet of docs/cache.md runs, in Python and in the shell, and the page names every variable."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

import cujit
from cujit.cache.cache import Cache
from cujit.cache.settings import VARIABLES
from cujit.cli.app import main
from pages import Page

PAGE = Page("cache.md")
SHELL = dict(PAGE.snippets("shell"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files that the snippets name, as the working directory, and a cache of their own."""
    (tmp_path / "scale.h").write_text("#define SCALE 2\n")
    (tmp_path / "scale.cu").write_text(
        '#include "scale.h"\nextern "C" __global__ void scale(float *x) { x[threadIdx.x] *= SCALE; }\n'
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CUJIT_CACHE_ROOTS", raising=False)
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("code", PAGE.each())
def test_python_runs(code: str) -> None:
    PAGE.run(code)


@pytest.mark.parametrize("title", list(SHELL))
def test_shell_runs(title: str, folder: Path) -> None:
    image = cujit.compile(folder / "scale.cu", arch="sm_90", cache=Cache(folder / "cache"))
    assert image.provenance is not None
    for line in SHELL[title].splitlines():
        words = shlex.split(line.replace("KEY", str(image.provenance.key)))  # type: ignore[attr-defined]
        assert words[0] == "cujit"
        result = CliRunner().invoke(main, words[1:], catch_exceptions=False)
        assert result.exit_code == 0, result.output


def test_page_names_every_variable_of_the_cache() -> None:
    named = {*re.findall(r"`(CUJIT_CACHE\w*)", PAGE.text)}
    assert named == {name for name in VARIABLES if name.startswith("CUJIT_CACHE")}
