"""How-to pages: their files are written, their sessions typed, and their snippets run, in the order of the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from pages import Page
from steps import is_shown, steps, typed

PAGES = [
    Page(f"how-to/{name}.md")
    for name in (
        "ci",
        "find-a-race",
        "old-drivers",
        "many-ranks",
        "embed",
        "see-source",
        "ordinary-files",
        "others-kernels",
        "inspect",
        "time-a-kernel",
        "blackwell",
    )
]
LINED = Path(__file__).with_name("goldens") / "lined"
AXPY = next(text for _, path, text in steps(PAGES[0]) if path == "src/kernels.cu")


@pytest.mark.parametrize("page", [*PAGES, Page("quick-start.md")], ids=lambda page: page.name)
def test_page_shows_the_real_output(page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("CUJIT_CACHE_ROOTS", "CUJIT_COMPILE"):
        monkeypatch.setenv(name, "")
    Path("axpy.cu").write_text(AXPY)
    for name in ("triton-softmax-sm_90", "cutile-product-sm_80"):
        Path(f"{name.split('-')[1]}.cubin").write_bytes((LINED / f"{name}.cubin").read_bytes())
    for what, name, text in steps(page):
        if what == "write":
            Path(name).parent.mkdir(exist_ok=True)
            Path(name).write_text(text)
    for what, name, text in steps(page):
        if what == "type":
            _, printed = typed(name)
            assert is_shown(printed, text), f"{name}\n{printed}"
    for _, code in page.snippets():
        page.run(code)


def test_compat_ends_with_1_if_nothing_would_load(tmp_path: Path) -> None:
    source = tmp_path / "k.cu"
    source.write_text(AXPY)
    assert typed(f"cujit build {source} --target sm_80 -o {tmp_path}/k.fatbin")[0] == 0
    assert typed(f"cujit compat {tmp_path}/k.fatbin --driver 12.4 --arch sm_90")[0] == 1


def test_index_lists_every_page() -> None:
    assert all(f"]({Path(page.name).name})" in Page("how-to/index.md").text for page in PAGES)
