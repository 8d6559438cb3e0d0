"""Every snippet of docs/shipping.md runs."""

from __future__ import annotations

from pathlib import Path

import pytest

import cujit
from cujit.cache.cache import Cache
from cujit.cache.pack import write_pack
from cujit.cache.settings import Compiling
from pages import Page

PAGE = Page("shipping.md")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files that the snippets name, as the working directory, and a cache of their own."""
    (tmp_path / "scale.cu").write_text('extern "C" __global__ void scale(float *x) { x[threadIdx.x] *= 2; }\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "cache"))
    cujit.compile(Path("scale.cu"), arch="sm_90")
    write_pack(tmp_path / "kernels.pack", Cache(tmp_path / "cache").stores)
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("code", PAGE.each())
def test_python_runs(code: str) -> None:
    PAGE.run(code)


def test_page_names_every_mode() -> None:
    assert all(f"| `{mode}` |" in PAGE.text for mode in Compiling)
